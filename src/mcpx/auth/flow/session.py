"""Credentials of type `oauth`: the tokens of a user's sign-in to one MCP server.

A token is renewed in time, once for all calls that need it, even if these calls are cancelled
meanwhile. A user is asked to sign in only by `begin`. Tokens that another gateway with the same
vault received are found before anything is requested.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, TypeVar

from mcpx.auth.credentials import Proof, Purpose, Refusal
from mcpx.auth.flow import clients, tokens
from mcpx.auth.flow.grant import Grant, HeldGrant
from mcpx.auth.flow.sign_in import Page, SignIn
from mcpx.auth.flow.web import Refused, Web
from mcpx.base.aio import SingleFlight, Tasks
from mcpx.model.call import Json
from mcpx.model.errors import Unproved

T = TypeVar("T")

TRUST_SECONDS = 60.0
"""If a server refuses a token that was renewed because it refused the one before, the token is not
renewed again for this time."""
RETRY_SECONDS = 5.0
"""Pause after a failed renewal, while the token is still valid."""
MIN_USE_SECONDS = 1.0
"""A renewed token is used for this time, even if it expires earlier."""
CLOSE_SECONDS = 5.0
"""Time for a renewal at the end: a new refresh token that is not saved is lost."""


class OAuthCredentials:
    def __init__(
        self,
        purpose: Purpose,
        client_id: str,
        client_secret: str,
        scope: str,
        issuer: str | None = None,
    ) -> None:
        """`issuer` is the authorization server that the configuration names."""
        self._purpose = purpose
        self.problem: str | None = None
        """Why the user cannot sign in, or why the last sign-in failed."""
        self._held = HeldGrant(purpose, client_id, client_secret)
        client = (client_id, client_secret)
        self._sign_in = SignIn(purpose, self._held, client, scope, issuer, self._answered)
        self._trusted_until = 0.0
        self._lock = asyncio.Lock()
        self._is_safe = asyncio.Event()
        """Not set while a refresh token is in use, because it may be invalid by now."""
        self._is_safe.set()
        self._tasks = Tasks(f"{purpose.name}: sign-in")
        self._renewal: SingleFlight[None, None] = SingleFlight(self._tasks, apart=False)

    # Credentials
    # ----------------------------------------------------------------------------------------------

    @property
    def auth_url(self) -> str | None:
        """The open sign-in page."""
        return self._sign_in.url

    def now(self) -> Proof | None:
        return self._held.valid_proof()

    async def get(self) -> Proof:
        self._server()
        if self._held.proof is None:
            await self._to_the_end(self._load())
        if self._held.proof is not None and self.now() is None:
            await _outcome(self._renewal.start(None, self._renew_in_time))
        if self._held.proof is None:
            raise Unproved("somebody has to sign in", sign_in=True)
        return self._held.proof

    async def refused(self, proof: Proof, refusal: Refusal) -> bool:
        return await self._to_the_end(self._refused(proof, refusal))

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._is_safe.wait()
        self._sign_in.close()
        await self._tasks.close()

    async def begin(self, refusal: Refusal | None = None) -> str:
        """Return the URL of the sign-in page. Without a refusal, it is a new page.

        Raises `Unproved`.
        """
        return await self._to_the_end(self._begin(refusal))

    async def forget(self) -> None:
        """Sign out, and revoke the tokens. Raises `Unproved` if the file remains."""
        await self._to_the_end(self._forget())

    def look_again(self) -> None:
        self._tasks.start(self._load_again())

    def describe(self) -> Json:
        return self._held.describe()

    # Saved grants
    # ----------------------------------------------------------------------------------------------

    def _server(self) -> str:
        if self._purpose.url is None:
            raise Unproved(
                "auth of type oauth signs in to MCP servers, not to the APIs of commands"
            )
        return self._purpose.url

    def _web(self) -> Web:
        return Web(self._purpose.fetcher, self._server())

    async def _load(self) -> None:
        async with self._lock:
            if self._held.proof is None:
                await self._reload()

    async def _load_again(self) -> None:
        async with self._lock:
            was_absent = self._held.proof is None and self._sign_in.page is None
            if await self._reload() and was_absent:
                self._purpose.changed()

    async def _reload(self) -> bool:
        """Return whether another gateway has saved other tokens."""
        grant = self._held.grant
        is_new = await self._held.reload(self._sign_in.is_expected)
        if self._held.grant is not grant:
            self._grant_changed()
        if is_new and self._sign_in.page is not None:
            assert self._held.grant is not None
            self._sign_in.close_if_served(self._held.grant)
            self._purpose.changed()
        return is_new

    async def _save(self, grant: Grant) -> None:
        self._grant_changed(grant)
        await self._held.save(grant)

    def _grant_changed(self, grant: Grant | None = None) -> None:
        self._trusted_until = 0.0
        grant = grant or self._held.grant
        if grant is not None and grant.tokens is not None:
            self.problem = None

    # Renewal
    # ----------------------------------------------------------------------------------------------

    async def _renew_in_time(self) -> None:
        async with self._lock:
            grant = self._held.grant
            if self.now() is not None or grant is None or grant.tokens is None:
                return
            try:
                await self._renew(grant, grant.tokens)
                earliest = time.time() + MIN_USE_SECONDS
                self._held.renew_at = max(self._held.renew_at, earliest)
            except Refused:
                pass  # No user is signed in any more.
            except Unproved:
                expires = grant.tokens.expires
                if expires is None or expires <= time.time():
                    raise
                self._held.renew_at = min(expires, time.time() + RETRY_SECONDS)

    async def _renew(self, grant: Grant, held: tokens.Tokens, *, refused: bool = False) -> bool:
        """Renew the tokens, in one replica for all. Return False if the server `refused` a token
        that another replica has just renewed."""
        shared = self._purpose.shared
        async with nullcontext() if shared is None else shared.turn(self._held.key):
            if await self._reload():
                return True
            if refused and shared is not None and await shared.renewed_for(self._held.key):
                return False
            await self._renew_here(grant, held)
            if refused and shared is not None:
                await shared.renewed_for(self._held.key, TRUST_SECONDS)
            return True

    async def _renew_here(self, grant: Grant, held: tokens.Tokens) -> None:
        if self._held.grant is None or self._held.grant.tokens is None:
            raise Refused("somebody has signed out, or has to sign in again", "")
        self._is_safe.clear()
        try:
            fresh = await tokens.renewed(
                self._web(), grant.token, grant.client, held, grant.resource
            )
            renewed = replace(grant, tokens=fresh)
            await self._held.share()
            is_signed_out = self._held.notice_sign_out()
            if is_signed_out:  # Saving the tokens would sign the user in again.
                await self._revoke(renewed)
            else:
                await self._save(renewed)
        except Refused as error:
            if await self._reload():
                return  # Another gateway was faster, and has used the refresh token.
            if not self._held.is_saved:
                raise  # The user has signed out.
            await self._drop_client(error, grant.client, grant.issuer, grant.redirect)
            await self._save(replace(grant, tokens=None))
            raise
        finally:
            self._is_safe.set()
        if is_signed_out:
            raise Refused("somebody has signed out", "")

    async def _revoke(self, grant: Grant) -> None:
        held = grant.tokens
        if held is None or grant.revoke is None:
            return
        with suppress(Unproved):  # The tokens expire anyway.
            web = self._web()
            for token, hint in ((held.refresh, "refresh_token"), (held.access, "access_token")):
                if token:
                    await tokens.revoke(web, grant.revoke, grant.client, token, hint)

    async def _drop_client(
        self, error: Refused, client: clients.Client, issuer: str, redirect: str
    ) -> bool:
        if not client.registered or error.error not in ("invalid_client", "unauthorized_client"):
            return False
        await clients.drop(self._purpose.vault(), issuer, redirect)
        return True

    async def _refused(self, proof: Proof, refusal: Refusal) -> bool:
        async with self._lock:
            if proof is not self._held.proof:
                return self._held.proof is not None
            if refusal.status != 401:
                return False
            trusted_until = self._trusted_until
            if await self._reload():
                # Otherwise two gateways would renew in turns for a server that refuses all tokens.
                self._trusted_until = trusted_until
                return True
            grant = self._held.grant
            if grant is None or grant.tokens is None or not grant.tokens.refresh:
                return False
            if time.monotonic() < self._trusted_until:
                return False
            try:
                if not await self._renew(grant, grant.tokens, refused=True):
                    return False
            except Refused:
                return False
            except Unproved as error:
                self.problem = error.reason
                raise
            self._trusted_until = time.monotonic() + TRUST_SECONDS
            return True

    # Sign-in
    # ----------------------------------------------------------------------------------------------

    async def _begin(self, refusal: Refusal | None) -> str:
        async with self._lock:
            if self._held.grant is None:
                await self._reload()
            try:
                url = await self._sign_in.begin(self._server(), refusal)
            except Unproved as error:
                self._sign_in.close()
                self.problem = error.reason
                self._purpose.changed()
                raise
            self.problem = None
            return url

    async def _answered(self, page: Page, query: Mapping[str, str]) -> str:
        return await self._to_the_end(self._finish(page, query))

    async def _finish(self, page: Page, query: Mapping[str, str]) -> str:
        """The browser has returned from the sign-in page."""
        if self._sign_in.page is not page:
            raise Unproved(
                "this sign-in was answered before, or replaced by another; open its page again"
            )
        self._sign_in.close()
        async with self._lock:
            try:
                grant = await self._exchange(page, page.code(query))
            except Unproved as error:
                await self._reopen(page, error)
                raise
            await self._save(grant)
            self._sign_in.close_if_served(grant)  # A page that was opened meanwhile.
            self.problem = None
            self._purpose.changed()
            return f"mcpx is signed in to {self._purpose.name}. This page can be closed."

    async def _exchange(self, page: Page, code: str) -> Grant:
        issuer, resource = page.found.issuer, page.found.resource
        held = await tokens.exchange(
            self._web(),
            issuer,
            page.client,
            code,
            page.verifier,
            page.redirect,
            resource,
            page.scope,
        )
        return Grant(
            issuer.issuer,
            resource,
            issuer.token,
            issuer.revoke,
            page.redirect,
            page.client,
            page.scope,
            held,
        )

    async def _reopen(self, page: Page, error: Unproved) -> None:
        """Let the user try again, unless the issuer does not know the client."""
        issuer = page.found.issuer.issuer
        if isinstance(error, Refused) and await self._drop_client(
            error, page.client, issuer, page.redirect
        ):
            self._sign_in.reason = None
        elif self._sign_in.page is None:
            self._sign_in.open(Page(page.found, page.client, page.redirect, page.scope))
        self.problem = error.reason
        self._purpose.changed()

    async def _forget(self) -> None:
        async with self._lock:
            if self._held.grant is None:
                await self._reload()
            grant = self._held.grant
            await self._sign_in.reset()
            self.problem = None
            self._trusted_until = 0.0
            problem = await self._held.delete()
            self._purpose.changed()
            if grant is not None:
                await self._revoke(grant)
            if problem is not None:
                raise Unproved(f"signed out until the next start only: {problem}; delete that file")

    async def _to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Finish the work even if the caller is cancelled: codes and refresh tokens are
        single-use."""
        return await _outcome(self._tasks.start(work, awaited=True))


async def _outcome(task: "asyncio.Task[T]") -> T:
    await asyncio.wait([task])
    if task.cancelled():
        raise Unproved("these credentials are no longer in use")
    return task.result()
