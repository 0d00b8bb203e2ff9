"""The credentials of type `oauth`: what a person's sign-in to one MCP server gave, and the way to the next one.

Promised: without a sign-in nothing is sent, and the server says what it wants. A token is renewed in time, once for all
that wait, and whatever becomes of those; a refused one leads to `auth_url`, of which there is one at a time. What
another gateway with the same folder got is found before anything is asked for.
Not promised: that a server keeps its word; what it asks for again and again is asked of a person twice.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from mcpx.auth.credentials import Proof, Purpose, Refusal
from mcpx.auth.flow import clients, tokens
from mcpx.auth.flow.asking import Asking, first_scope, union
from mcpx.auth.flow.challenge import Challenge, bearer
from mcpx.auth.flow.discovery import Found, discover, same_issuer
from mcpx.auth.flow.grant import Grant, kept_grant
from mcpx.auth.flow.web import Refused, Web, checked, printable
from mcpx.model.call import Json
from mcpx.model.errors import Unproved
from mcpx.wire.tasks import Tasks

T = TypeVar("T")

SECONDS = 45.0
"""For all that comes before a person is asked."""
PAUSE = 5.0
"""Seconds after a failure in which the same is not tried again unless a person wants it."""
GRACE = 5.0
"""Seconds that a renewal may take when everything ends: a new refresh token that is not kept is lost."""
REPEATS = 1
"""Sign-ins for scopes that were asked for before, when the server still does not let us."""
NEVER = float("inf")


class OAuthCredentials:
    def __init__(self, purpose: Purpose, client_id: str, client_secret: str, scope: str) -> None:
        self._purpose = purpose
        self._client = client_id, client_secret
        self._scope = scope
        self.auth_url: str | None = None
        """Where a person signs in; None when nobody has to, or it is not known yet."""
        self.problem: str | None = None
        """Why it cannot be asked for, or what went wrong last."""
        self._nothing = Proof()
        self._proof = self._nothing
        self._renew_at = NEVER
        self._grant: Grant | None = None
        self._kept: Json | None = None
        """The grant as it was last read or written."""
        self._loaded = False
        self._asking: Asking | None = None
        self._why: object = None
        """What the last asking, or the attempt at one, answered to."""
        self._paused_until = 0.0
        self._said = Challenge()
        """The server's last."""
        self._repeats = 0
        self._again = False
        """The present token is the second in a row that was got because the one before was refused."""
        self._lock = asyncio.Lock()
        self._tasks = Tasks(f"{purpose.name}: sign-in")
        self._renewal: asyncio.Task[None] | None = None

    # Credentials -----------------------------------------------------------------------------------------------

    def now(self) -> Proof | None:
        if self._loaded and not self._lapsed and (self._renew_at is NEVER or time.time() < self._renew_at):
            return self._proof
        return None

    async def get(self) -> Proof:
        self._server()
        if not self._loaded:
            await self._whatever_happens(self._load())
        if self._lapsed:
            await self._whatever_happens(self._sign_in_again())
        if self.now() is None and not self._lapsed:
            if self._renewal is None or self._renewal.done():
                self._renewal = self._tasks.start(self._renew_in_time(), awaited=True)
            await asyncio.shield(self._renewal)
        if self._lapsed:
            raise Unproved("somebody has to sign in again", sign_in=True)
        return self._proof

    async def refused(self, proof: Proof, refusal: Refusal) -> bool:
        return await self._whatever_happens(self._refused(proof, refusal))

    async def close(self) -> None:
        if self._renewal is not None and not self._renewal.done():
            await asyncio.wait([self._renewal], timeout=GRACE)
        self._stop_asking()
        await self._tasks.close()

    # For people --------------------------------------------------------------------------------------------------

    async def begin(self, refusal: Refusal | None = None) -> str:
        """A fresh page to sign in at. Raises `Unproved`."""
        return await self._whatever_happens(self._begin(refusal))

    async def forget(self) -> None:
        """Sign out; the issuer is told, if it can be."""
        await self._whatever_happens(self._forget())

    def describe(self) -> Json:
        grant = self._grant
        if grant is None:
            return {"signed_in": False}
        held = grant.tokens
        return {
            "signed_in": held is not None,
            "issuer": grant.issuer,
            "resource": grant.resource,
            "scope": grant.asked if held is None else held.scope,
            "expires": None if held is None else held.expires,
            "renewable": held is not None and bool(held.refresh),
            "client_id": grant.client.id,
        }

    # What is held ------------------------------------------------------------------------------------------------

    @property
    def _lapsed(self) -> bool:
        return self._grant is not None and self._grant.tokens is None

    @property
    def _key(self) -> str:
        return f"grant {self._purpose.name} {self._purpose.url}"

    def _server(self) -> str:
        if self._purpose.url is None:
            raise Unproved("auth of type oauth signs in to MCP servers, not to the APIs of commands")
        return self._purpose.url

    async def _load(self) -> None:
        async with self._lock:
            if not self._loaded:
                await self._reload()
                self._loaded = True

    async def _reload(self) -> bool:
        """Look at what is kept; True: it is something else than we had, and worth a try."""
        kept = await asyncio.to_thread(self._purpose.vault().read, self._key)
        if kept is None or kept == self._kept:
            return False
        self._kept = kept
        grant = kept_grant(kept, *self._client)
        if grant is None or grant == self._grant:
            return False
        self._take(grant)
        if grant.tokens is None:
            return False
        if self._asking is not None and set(self._asking.scope.split()) <= set(grant.scopes.split()):
            self._stop_asking()  # somebody did so elsewhere
            self._purpose.changed()
        return True

    async def _keep(self, grant: Grant) -> None:
        self._take(grant)
        self._kept = grant.to_json()
        await asyncio.to_thread(self._purpose.vault().write, self._key, self._kept)

    def _take(self, grant: Grant | None) -> None:
        self._grant = grant
        self._again = False
        held = None if grant is None else grant.tokens
        if held is not None:
            self.problem = None
        self._proof = self._nothing if held is None else Proof((("Authorization", f"Bearer {held.access}"),))
        self._renew_at = NEVER if held is None or not held.refresh or held.renew is None else held.renew

    # Renewal -----------------------------------------------------------------------------------------------------

    async def _renew_in_time(self) -> None:
        async with self._lock:
            grant = self._grant
            if self.now() is not None or grant is None or grant.tokens is None:
                return
            try:
                await self._renew(grant, grant.tokens)
            except Refused:
                await self._ask(Challenge(), why="lapsed")
            except Unproved:
                ends = grant.tokens.expires
                if ends is None or ends <= time.time():
                    raise
                self._renew_at = min(ends, time.time() + PAUSE)  # it is good for a while yet

    async def _renew(self, grant: Grant, held: tokens.Tokens) -> None:
        if await self._reload():
            return
        web = Web(self._purpose.fetcher, self._server())
        try:
            fresh = await tokens.renewed(web, grant.token, grant.client, held, grant.resource)
        except Refused as error:
            if await self._reload():  # another gateway was quicker, and ours was used up
                return
            await self._drop_client(error, grant.client, grant.issuer, grant.redirect)
            await self._keep(replace(grant, tokens=None))
            raise
        await self._keep(replace(grant, tokens=fresh))

    async def _drop_client(self, error: Refused, client: clients.Client, issuer: str, redirect: str) -> bool:
        if not client.registered or error.error not in ("invalid_client", "unauthorized_client"):
            return False
        await clients.drop(self._purpose.vault(), issuer, redirect)
        return True

    # Refusals ----------------------------------------------------------------------------------------------------

    async def _refused(self, proof: Proof, refusal: Refusal) -> bool:
        await self._load()
        async with self._lock:
            if proof is not self._proof:
                return True  # there is another by now
            said = bearer(refusal.challenge)
            if refusal.status == 401:
                self._said = said
                try:
                    return await self._renewed_after_refusal() or await self._ask(said, why=(401, said))
                except Unproved as error:  # it cannot be renewed now: no reason to ask a person
                    self.problem = error.reason
                    return False
            if refusal.status == 403 and said.error == "insufficient_scope":
                return await self._step_up(said)
            return False

    async def _renewed_after_refusal(self) -> bool:
        if await self._reload():
            return True
        grant = self._grant
        if grant is None or grant.tokens is None or not grant.tokens.refresh or self._again:
            return False
        try:
            await self._renew(grant, grant.tokens)
        except Refused:
            return False
        self._again = True
        return True

    async def _step_up(self, said: Challenge) -> bool:
        """It wants scopes that the token does not have. False: a person decides."""
        why = (403, said)
        if self._asking is not None and self._why == why:
            return False
        before = "" if self._grant is None else self._grant.scopes
        news = set((said.scope or "").split()) - set(before.split())
        self._repeats = 0 if news else self._repeats + 1
        if self._repeats > REPEATS:
            wanted = printable(said.scope or "")
            self._fail(
                f"it wants scopes that it was given already: {wanted}" if wanted else "its scopes do not suffice"
            )
            return False
        return await self._ask(said, why=why, more=before)

    # Asking a person ---------------------------------------------------------------------------------------------

    async def _begin(self, refusal: Refusal | None) -> str:
        await self._load()
        async with self._lock:
            if refusal is not None:
                self._said = bearer(refusal.challenge)
            self._repeats = 0
            unanswered = self._asking is not None and self._asking.client.kept
            self._why = (401, self._said)
            try:
                return await self._prepare(self._said, anew=unanswered and refusal is None)
            except Unproved as error:
                self._fail(error.reason)
                raise

    async def _sign_in_again(self) -> None:
        async with self._lock:
            if self._lapsed and not await self._reload():
                await self._ask(Challenge(), why="lapsed")

    async def _ask(self, said: Challenge, why: object, more: str | None = None) -> bool:
        """Have a page to sign in at, the same as long as it is for the same; always False: nothing is won by itself."""
        if self._asking is not None and (self._why == why or more is None):
            return False  # somebody may be about to answer it
        if self._why == why and time.monotonic() < self._paused_until:
            return False
        self._why = why
        try:
            await self._prepare(said, more)
        except Unproved as error:
            self._paused_until = time.monotonic() + PAUSE
            self._fail(error.reason)
        return False

    async def _prepare(self, said: Challenge, more: str | None = None, *, anew: bool = False) -> str:
        """`more`: scopes to keep asking for; `anew`: register again."""
        try:
            async with asyncio.timeout(SECONDS):
                web = Web(self._purpose.fetcher, self._server())
                found = await discover(web, self._server(), said)
                self._check_issuer(found)
                if more is None:
                    scope = first_scope(self._scope, said.scope, found)
                else:
                    scope = union(more, said.scope or first_scope(self._scope, None, found))
                redirect = await self._purpose.callback().redirect_uri()
                client = clients.configured(found.issuer, *self._client)
                if client is None:
                    vault = self._purpose.vault()
                    client = await clients.registered(web, vault, found.issuer, redirect, scope, anew=anew)
        except TimeoutError:
            raise Unproved(f"who signs people in could not be found out within {SECONDS:.0f} s") from None
        self.problem = None
        return self._expect(Asking(found, client, redirect, scope))

    def _check_issuer(self, found: Found) -> None:
        """A secret that stands in the config was meant for one issuer: the first."""
        grant = self._grant
        if grant is None or not self._client[1] or same_issuer(grant.issuer, found.issuer.issuer):
            return
        raise Unproved(
            f"it names another authorization server than before, {checked(found.issuer.issuer).host}, and the "
            "client_secret was meant for that; if this is right, sign out first (mcpx auth logout)"
        )

    def _expect(self, asking: Asking) -> str:
        self._stop_asking()

        async def finish(query: Mapping[str, str]) -> str:
            return await self._whatever_happens(self._finish(asking, query))

        self._asking = asking
        self._purpose.callback().expect(asking.state, finish)
        self.auth_url = asking.url
        self._purpose.changed()
        return self.auth_url

    def _stop_asking(self) -> None:
        if self._asking is not None:
            self._purpose.callback().forget(self._asking.state)
        self._asking = self.auth_url = None

    def _fail(self, reason: str) -> None:
        self._stop_asking()
        self.problem = reason
        self._purpose.changed()

    async def _finish(self, asking: Asking, query: Mapping[str, str]) -> str:
        """The browser is back."""
        if self._asking is not asking:
            raise Unproved("this sign-in was answered before, or replaced by another; open its page again")
        self._stop_asking()
        async with self._lock:
            issuer, client = asking.found.issuer, asking.client
            try:
                web = Web(self._purpose.fetcher, self._server())
                held = await tokens.exchange(
                    web,
                    issuer,
                    client,
                    asking.code(query),
                    asking.verifier,
                    asking.redirect,
                    asking.found.resource,
                    asking.scope,
                )
            except Unproved as error:
                if isinstance(error, Refused) and await self._drop_client(
                    error, client, issuer.issuer, asking.redirect
                ):
                    self._why = None
                elif self._asking is None:  # once more, from the start
                    self._expect(Asking(asking.found, client, asking.redirect, asking.scope))
                self.problem = error.reason
                self._purpose.changed()
                raise
            found = asking.found
            await self._keep(
                Grant(
                    issuer.issuer,
                    found.resource,
                    issuer.token,
                    issuer.revoke,
                    asking.redirect,
                    client,
                    asking.scope,
                    held,
                )
            )
            self.problem = None
            self._purpose.changed()
            return f"mcpx is signed in to {self._purpose.name}. This page can be closed."

    async def _forget(self) -> None:
        await self._load()
        async with self._lock:
            grant = self._grant
            self._stop_asking()
            self._take(None)
            self._kept = self.problem = self._why = None
            self._repeats = 0
            await asyncio.to_thread(self._purpose.vault().delete, self._key)
            self._purpose.changed()
            if grant is None or grant.tokens is None or grant.revoke is None:
                return
            web = Web(self._purpose.fetcher, self._server())
            for token, hint in ((grant.tokens.refresh, "refresh_token"), (grant.tokens.access, "access_token")):
                if token:
                    try:
                        await tokens.revoke(web, grant.revoke, grant.client, token, hint)
                    except Unproved:
                        return  # it ends by itself

    async def _whatever_happens(self, work: Coroutine[Any, Any, T]) -> T:
        """To the end, even if who waits for it gives up: a code or a refresh token can be used once."""
        return await asyncio.shield(self._tasks.start(work, awaited=True))
