"""The credentials of type `oauth`: what a person's sign-in to one MCP server gave, and the way to
the next one.

Promised: a token is renewed in time, once for all that wait, and whatever becomes of those. Nobody
is asked to sign in unless `begin` says so; of what it gives there is one at a time, good for one
answer. What another gateway with the same folder got is found before anything is asked for. Not
promised: that a server keeps its word; what it wants again and again is asked of a person twice.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, TypeVar

from mcpx.auth.credentials import Proof, Purpose, Refusal
from mcpx.auth.flow import clients, tokens
from mcpx.auth.flow.asking import Asking, first_scope, union
from mcpx.auth.flow.challenge import Challenge, bearer
from mcpx.auth.flow.discovery import Found, discover, same_issuer
from mcpx.auth.flow.grant import Grant, kept_grant
from mcpx.auth.flow.web import Refused, Web, checked, parse_server
from mcpx.base.aio import Tasks
from mcpx.base.text import one_line
from mcpx.model.call import Json
from mcpx.model.errors import Unproved

T = TypeVar("T")

SECONDS = 45.0
"""For all that comes before a person is asked."""
YOUNG = 60.0
"""Seconds in which a server that refuses a token that was renewed for it has something else against
us."""
PAUSE = 5.0
"""Seconds before a renewal that failed is tried again, of a token that is still good."""
SOONEST = 1.0
"""Seconds for which a renewed token is used, however soon it is said to end: else every call would
renew it."""
GRACE = 5.0
"""Seconds that a renewal may take when everything ends: a new refresh token that is not kept is
lost."""
REPEATS = 1
"""Sign-ins for scopes that were asked for before, when the server still does not let us."""
NEVER = float("inf")


class OAuthCredentials:
    def __init__(
        self,
        purpose: Purpose,
        client_id: str,
        client_secret: str,
        scope: str,
        issuer: str | None = None,
    ) -> None:
        """`issuer`: the authorization server that the configuration names."""
        self._purpose = purpose
        self._client = client_id, client_secret
        self._scope = scope
        self._issuer = issuer
        self.auth_url: str | None = None
        """Where a person signs in; None when nobody has to, or it is not known yet."""
        self.problem: str | None = None
        """Why it cannot be asked for, or what went wrong last."""
        self._proof: Proof | None = None
        """None: nobody is signed in."""
        self._renew_at = NEVER
        self._grant: Grant | None = None
        self._kept: Json | None = None
        """The grant as it was last read or written."""
        self._asking: Asking | None = None
        self._why: tuple[int, Challenge] | None = None
        """What it answers to: a status, and what the server said with it."""
        self._repeats = 0
        self._young_until = 0.0
        """The present token came because the one before was refused: until then another refusal is
        not about it."""
        self._lock = asyncio.Lock()
        self._safe = asyncio.Event()
        """Not set while a refresh token is on its way, which may be used up by now."""
        self._safe.set()
        self._tasks = Tasks(f"{purpose.name}: sign-in")
        self._renewal: asyncio.Task[None] | None = None

    # Credentials
    # ----------------------------------------------------------------------------------------------

    def now(self) -> Proof | None:
        return self._proof if self._renew_at is NEVER or time.time() < self._renew_at else None

    async def get(self) -> Proof:
        self._server()
        if self._proof is None:
            await self._whatever_happens(self._look())
        if self._proof is not None and self.now() is None:
            if self._renewal is None or self._renewal.done():
                self._renewal = self._tasks.start(self._renew_in_time(), awaited=True)
            await self._outcome(self._renewal)
        if self._proof is None:
            raise Unproved("somebody has to sign in", sign_in=True)
        return self._proof

    async def refused(self, proof: Proof, refusal: Refusal) -> bool:
        return await self._whatever_happens(self._refused(proof, refusal))

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._safe.wait()
        self._stop_asking()
        await self._tasks.close()

    # For people
    # ----------------------------------------------------------------------------------------------

    async def begin(self, refusal: Refusal | None = None) -> str:
        """The page to sign in at, as it was refused; the same for the same, and a fresh one where a
        person wants it (None). Raises `Unproved`."""
        return await self._whatever_happens(self._begin(refusal))

    async def forget(self) -> None:
        """Sign out; the issuer is told, if it can be. Raises `Unproved` when the next start would
        not know of it."""
        await self._whatever_happens(self._forget())

    def look_again(self) -> None:
        self._tasks.start(self._look_again())

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

    # What is held
    # ----------------------------------------------------------------------------------------------

    @property
    def _key(self) -> str:
        return f"grant {self._purpose.name} {self._purpose.url}"

    def _server(self) -> str:
        if self._purpose.url is None:
            raise Unproved(
                "auth of type oauth signs in to MCP servers, not to the APIs of commands"
            )
        return self._purpose.url

    async def _look(self) -> None:
        async with self._lock:
            if self._proof is None:
                await self._reload()

    async def _look_again(self) -> None:
        async with self._lock:
            was_absent = self._proof is None and self._asking is None
            if await self._reload() and was_absent:
                self._purpose.changed()

    async def _share(self) -> None:
        """What is kept is what other replicas have, and the other way round."""
        if self._purpose.shared is not None:
            await self._purpose.shared.settle(self._key)

    async def _reload(self) -> bool:
        """Look at what is kept; True: it is something else than we had, and worth a try."""
        await self._share()
        vault = self._purpose.vault()
        kept = await asyncio.to_thread(vault.read, self._key)
        if kept is None:
            self._notice_sign_out()  # what is renewed now would undo it
        if kept is None or kept == self._kept:
            return False
        self._kept = kept
        grant = kept_grant(kept, *self._client)
        if grant is None or grant == self._grant or not self._is_expected(grant.issuer):
            return False
        self._take(grant)
        if grant.tokens is None:
            return False
        if self._asking is not None:
            self._stop_asking_for(grant)  # somebody did so elsewhere
            self._purpose.changed()
        return True

    def _notice_sign_out(self) -> bool:
        """Whether somebody did so elsewhere."""
        if self._kept is None or not self._purpose.vault().is_absent(self._key):
            return False
        self._take(None)
        self._kept = None
        self._purpose.changed()
        return True

    async def _keep(self, grant: Grant) -> None:
        self._take(grant)
        self._kept = grant.to_json()
        await asyncio.to_thread(self._purpose.vault().write, self._key, self._kept)
        await self._share()

    def _take(self, grant: Grant | None) -> None:
        self._grant = grant
        self._young_until = 0.0
        held = None if grant is None else grant.tokens
        if held is not None:
            self.problem = None
        if grant is not None:
            self._purpose.learn(
                [grant.client.secret, *(() if held is None else (held.access, held.refresh))]
            )
        self._proof = None if held is None else Proof((("Authorization", f"Bearer {held.access}"),))
        self._renew_at = (
            NEVER if held is None or not held.refresh or held.renew is None else held.renew
        )

    # Renewal
    # ----------------------------------------------------------------------------------------------

    async def _renew_in_time(self) -> None:
        async with self._lock:
            grant = self._grant
            if self.now() is not None or grant is None or grant.tokens is None:
                return
            try:
                await self._renew(grant, grant.tokens)
                self._renew_at = max(self._renew_at, time.time() + SOONEST)
            except Refused:
                pass  # and nobody is signed in now
            except Unproved:
                ends = grant.tokens.expires
                if ends is None or ends <= time.time():
                    raise
                self._renew_at = min(ends, time.time() + PAUSE)  # it is good for a while yet

    async def _renew(self, grant: Grant, held: tokens.Tokens, *, refused: bool = False) -> bool:
        """Once for all replicas. False: it was `refused`, and another replica has renewed it for
        that already."""
        shared = self._purpose.shared
        async with nullcontext() if shared is None else shared.turn(self._key):
            if await self._reload():
                return True
            if refused and shared is not None and await shared.renewed_for(self._key):
                return False
            await self._renew_here(grant, held)
            if refused and shared is not None:
                await shared.renewed_for(self._key, YOUNG)
            return True

    async def _renew_here(self, grant: Grant, held: tokens.Tokens) -> None:
        if self._grant is None or self._grant.tokens is None:
            raise Refused("somebody has signed out, or has to sign in again", "")
        web = Web(self._purpose.fetcher, self._server())
        self._safe.clear()
        try:
            renewed = replace(
                grant,
                tokens=await tokens.renewed(web, grant.token, grant.client, held, grant.resource),
            )
            await self._share()
            if is_over := self._notice_sign_out():  # kept, it would sign everybody in again
                await self._revoke(renewed)
            else:
                await self._keep(renewed)
        except Refused as error:
            if await self._reload():  # another gateway was quicker, and ours was used up
                return
            if self._kept is None:  # by whoever signed out
                raise
            await self._drop_client(error, grant.client, grant.issuer, grant.redirect)
            await self._keep(replace(grant, tokens=None))
            raise
        finally:
            self._safe.set()
        if is_over:
            raise Refused("somebody has signed out", "")

    async def _revoke(self, grant: Grant) -> None:
        if grant.tokens is None or grant.revoke is None:
            return
        with suppress(Unproved):  # they end by themselves
            web = Web(self._purpose.fetcher, self._server())
            for token, hint in (
                (grant.tokens.refresh, "refresh_token"),
                (grant.tokens.access, "access_token"),
            ):
                if token:
                    await tokens.revoke(web, grant.revoke, grant.client, token, hint)

    async def _drop_client(
        self, error: Refused, client: clients.Client, issuer: str, redirect: str
    ) -> bool:
        if not client.registered or error.error not in ("invalid_client", "unauthorized_client"):
            return False
        await clients.drop(self._purpose.vault(), issuer, redirect)
        return True

    # Refusals
    # ----------------------------------------------------------------------------------------------

    async def _refused(self, proof: Proof, refusal: Refusal) -> bool:
        async with self._lock:
            if proof is not self._proof:
                return self._proof is not None  # there is another by now
            if refusal.status != 401:
                return False
            young = self._young_until
            if await self._reload():
                self._young_until = (
                    young  # else two gateways would renew in turns, for a server that takes nothing
                )
                return True
            grant = self._grant
            if grant is None or grant.tokens is None or not grant.tokens.refresh:
                return False
            if time.monotonic() < self._young_until:
                return False
            try:
                if not await self._renew(grant, grant.tokens, refused=True):
                    return False
            except Refused:
                return False
            except Unproved as error:
                self.problem = error.reason
                raise
            self._young_until = time.monotonic() + YOUNG
            return True

    # Asking a person
    # ---------------------------------------------------------------------------------------------

    async def _begin(self, refusal: Refusal | None) -> str:
        async with self._lock:
            if self._grant is None:
                await self._reload()
            asking, by_hand, more = self._asking, refusal is None, None
            why = (
                (self._why or (401, Challenge()))
                if refusal is None
                else (refusal.status, bearer(refusal.challenge))
            )
            if asking is not None and not by_hand and why == self._why:
                return asking.url
            anew = (
                by_hand and asking is not None and asking.client.kept
            )  # nobody came back: is it known there?
            status, said = self._why = why
            if by_hand or status != 403:
                self._repeats = 0
            try:
                if status == 403:
                    more = "" if self._grant is None else self._grant.scopes
                    if not by_hand:
                        self._count_repeats(said, more)
                return await self._prepare(said, more, anew=anew)
            except Unproved as error:
                self._stop_asking()
                self.problem = error.reason
                self._purpose.changed()
                raise

    def _count_repeats(self, said: Challenge, before: str) -> None:
        """A server may want more scopes than it was content with; not the same ones for ever.
        Raises `Unproved`."""
        if said.error != "insufficient_scope":
            raise Unproved("it does not let us in, and no other sign-in would change that")
        news = set((said.scope or "").split()) - set(before.split())
        self._repeats = 0 if news else self._repeats + 1
        if self._repeats > REPEATS:
            wanted = one_line(said.scope or "")
            raise Unproved(
                "it wants scopes that it was given already: "
                f"{wanted or 'which ones it does not say'}"
            )

    async def _prepare(
        self, said: Challenge, more: str | None = None, *, anew: bool = False
    ) -> str:
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
                    client = await clients.registered(
                        web, vault, found.issuer, redirect, scope, anew=anew
                    )
        except TimeoutError:
            raise Unproved(
                f"who signs people in could not be found out within {SECONDS:.0f} s"
            ) from None
        self.problem = None
        return self._expect(Asking(found, client, redirect, scope))

    def _check_issuer(self, found: Found) -> None:
        """The client secret of the configuration is for one issuer. Raises `Unproved`."""
        issuer = found.issuer.issuer
        if not self._is_expected(issuer):
            raise Unproved(
                f"the server names the authorization server {one_line(issuer)}, but 'issuer' of "
                "the auth config is "
                f"{one_line(self._issuer or '')}. Nothing is sent there. If the server is right, "
                "change 'issuer'"
            )
        if self._issuer is None and self._client[1]:
            self._require_same_host(found)
        grant = self._grant
        if grant is None or not self._client[1] or same_issuer(grant.issuer, found.issuer.issuer):
            return
        raise Unproved(
            "it names another authorization server than before, "
            f"{checked(found.issuer.issuer).host}, and the "
            "client_secret was meant for that; if this is right, sign out first (mcpx auth logout)"
        )

    def _is_expected(self, issuer: str) -> bool:
        return self._issuer is None or same_issuer(issuer, self._issuer)

    def _require_same_host(self, found: Found) -> None:
        """Raises `Unproved`."""
        host = parse_server(self._server()).host
        for place in (found.issuer.issuer, found.issuer.token):
            if checked(place).host != host:
                raise Unproved(
                    f"the server names the authorization server {one_line(found.issuer.issuer)}, "
                    "which is on another "
                    "host. The client secret is not sent there. If this server is right, set "
                    "'issuer' to it in the "
                    "auth config"
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

    def _stop_asking_for(self, grant: Grant) -> None:
        if self._asking is not None and set(self._asking.scope.split()) <= set(
            grant.scopes.split()
        ):
            self._stop_asking()

    async def _finish(self, asking: Asking, query: Mapping[str, str]) -> str:
        """The browser is back."""
        if self._asking is not asking:
            raise Unproved(
                "this sign-in was answered before, or replaced by another; open its page again"
            )
        self._stop_asking()
        async with self._lock:
            issuer, client = asking.found.issuer, asking.client
            what, where = asking.found.resource, asking.redirect
            try:
                web, code = Web(self._purpose.fetcher, self._server()), asking.code(query)
                held = await tokens.exchange(
                    web, issuer, client, code, asking.verifier, where, what, asking.scope
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
            grant = Grant(
                issuer.issuer, what, issuer.token, issuer.revoke, where, client, asking.scope, held
            )
            await self._keep(grant)
            self._stop_asking_for(grant)  # begun while this one was on its way
            self.problem = None
            self._purpose.changed()
            return f"mcpx is signed in to {self._purpose.name}. This page can be closed."

    async def _forget(self) -> None:
        async with self._lock:
            if self._grant is None:
                await self._reload()
            grant, asking = self._grant, self._asking
            if (
                asking is not None and asking.client.kept
            ):  # nobody came back from there: is it known?
                await clients.drop(
                    self._purpose.vault(), asking.found.issuer.issuer, asking.redirect
                )
            self._stop_asking()
            self._take(None)
            self._kept = self.problem = self._why = None
            self._repeats = 0
            left = await asyncio.to_thread(self._purpose.vault().delete, self._key)
            await self._share()
            self._purpose.changed()
            if grant is not None:
                await self._revoke(grant)
            if left is not None:
                raise Unproved(f"signed out until the next start only: {left}; delete that file")

    async def _whatever_happens(self, work: Coroutine[Any, Any, T]) -> T:
        """To the end, even if who waits for it gives up: a code or a refresh token can be used
        once."""
        return await self._outcome(self._tasks.start(work, awaited=True))

    async def _outcome(self, task: "asyncio.Task[T]") -> T:
        await asyncio.wait([task])
        if task.cancelled():
            raise Unproved("these credentials are no longer in use")
        return task.result()
