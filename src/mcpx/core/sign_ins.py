"""Who is signed in where, and the way to change it, for whoever looks after a gateway (section 6).

Each answer is an object for a command line or an API: `ok`, `state` (one of `STATES`), and what
there is to tell. What is secret is not told; where to sign in is, for who signs in there signs this
gateway in.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from mcpx.core.gateway import Gateway
from mcpx.model.call import Json
from mcpx.model.errors import Denied, Unproved
from mcpx.model.events import Event, UpstreamChanged
from mcpx.upstreams.upstream import Upstream

if TYPE_CHECKING:
    from mcpx.policy.approvals import ApprovalStore


class PendingCalls:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @property
    def verbs(self) -> Mapping[str, Callable[[Json], Awaitable[Json]]]:
        """For the control socket."""
        return {"approvals": self._list, "decide": self._decide}

    @property
    def _book(self) -> "ApprovalStore":
        return self._gateway.provisions.policy_state.book

    async def _list(self, request: Json) -> Json:
        return {"ok": True, "calls": [approval.told() for approval in await self._book.pending()]}

    async def _decide(self, request: Json) -> Json:
        id, allow, by = request.get("id"), request.get("allow"), request.get("by")
        if not isinstance(id, str) or not isinstance(allow, bool):
            return {"ok": False, "error": "'id' must be a text and 'allow' true or false"}
        try:
            approval = await self._book.decide(
                id, allow=allow, by=by if isinstance(by, str) else ""
            )
        except Denied as away:
            return {"ok": False, "error": away.message}
        if approval is None:
            return {
                "ok": False,
                "error": f"no call waits for approval under {id!r}",
                "unknown": True,
            }
        return {"ok": True, "call": approval.told()}


State = Literal["signed_in", "sign_in_needed", "not_needed", "configured", "unknown"]
"""`configured`: the gateway proves itself by what the config says; `unknown`: the server has not
been reached."""

LONGEST_WAIT = 30.0
"""Seconds one question waits for a sign-in; who wants to wait for longer asks again."""


class SignIns:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._waiting: set[asyncio.Event] = set()
        self._listens = False

    @property
    def verbs(self) -> Mapping[str, Callable[[Json], Awaitable[Json]]]:
        """For the control socket."""
        return {
            "auth": lambda _: self.status(),
            "auth.login": lambda request: self.login(str(request.get("name"))),
            "auth.wait": lambda request: self.wait(str(request.get("name"))),
            "auth.finish": lambda request: self.finish(
                str(request.get("name")), str(request.get("url"))
            ),
            "auth.logout": lambda request: self.logout(str(request.get("name"))),
        }

    async def status(self) -> Json:
        """Every server, and how what is signed for is kept."""
        upstreams = self._gateway.generation.upstreams.values()
        return {
            "ok": True,
            "servers": [self._about(each) for each in upstreams],
            "store": self._store(upstreams),
        }

    def _store(self, upstreams: Iterable[Upstream]) -> Json:
        if not any(
            upstream.signing is not None and upstream.signing.inner is not None
            for upstream in upstreams
        ):
            return {
                "kept": None,
                "encrypted_by": None,
            }  # nobody has asked for a keyring yet, nor needs to
        vault = self._gateway.provisions.ring.vault
        return {"kept": vault.kept, "encrypted_by": vault.sealed_by}

    async def login(self, name: str) -> Json:
        """Where to sign in to a server, if somebody has to."""
        upstream = self._gateway.generation.upstreams.get(name)
        if upstream is None:
            return self._unknown(name)
        await self._met(upstream)
        about = self._about(upstream)
        if about["state"] == "unknown":
            return {
                **about,
                "ok": False,
                "error": about["last_error"] or "it is not connected yet; try again",
            }
        if about["state"] != "sign_in_needed" or upstream.signing is None:
            return about
        try:
            await upstream.signing.where()
        except Unproved as error:
            return {**about, "ok": False, "error": error.reason}
        return self._about(upstream)

    async def wait(self, name: str) -> Json:
        """Until somebody has signed in and the server is connected, or it is clear that nobody
        will; for a while."""
        changed = asyncio.Event()
        self._listen(changed)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_WAIT):
                    while not self._is_over(name):
                        changed.clear()
                        await changed.wait()
        finally:
            self._waiting.discard(changed)
        upstream = self._gateway.generation.upstreams.get(name)
        return self._unknown(name) if upstream is None else self._about(upstream)

    def _is_over(self, name: str) -> bool:
        upstream = self._gateway.generation.upstreams.get(name)
        if upstream is None:
            return True
        inner = None if upstream.signing is None else upstream.signing.inner
        if inner is None or inner.problem is not None:
            return True
        return _state(upstream) == "signed_in" and upstream.status.state != "connecting"

    async def finish(self, name: str, url: str) -> Json:
        """Somebody was sent back to this address, and brought it here."""
        try:
            said = await self._gateway.provisions.ring.callback.redirected(url)
        except Unproved as error:
            return {"ok": False, "error": error.reason}
        return {"ok": True, "said": said}

    async def logout(self, name: str) -> Json:
        upstream = self._gateway.generation.upstreams.get(name)
        if upstream is None:
            return self._unknown(name)
        if upstream.signing is None:
            return {**self._about(upstream), "ok": False, "error": "nobody signs in to it"}
        was = self._about(upstream)["state"]
        try:
            await upstream.signing.forget()
        except Unproved as error:
            return {**self._about(upstream), "ok": False, "error": error.reason}
        return {**self._about(upstream), "was": was}

    def _unknown(self, name: str) -> Json:
        names = list(self._gateway.generation.upstreams)
        return {
            "ok": False,
            "error": f"no server is called {name!r}",
            "unknown": True,
            "names": names,
        }

    async def _met(self, upstream: Upstream) -> None:
        """Wait, bounded, until it has been reached or not."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(upstream.server.timeout, LONGEST_WAIT)):
                while upstream.server.enabled and upstream.status.state == "connecting":
                    changed = asyncio.Event()
                    self._listen(changed)
                    try:
                        if upstream.status.state == "connecting":
                            await changed.wait()
                    finally:
                        self._waiting.discard(changed)

    def _listen(self, changed: asyncio.Event) -> None:
        self._waiting.add(changed)
        if not self._listens:
            self._listens = True
            self._gateway.bus.subscribe(self._heard, UpstreamChanged)

    def _heard(self, event: Event) -> None:
        for each in self._waiting:
            each.set()

    def _about(self, upstream: Upstream) -> Json:
        signing, status = upstream.signing, upstream.status
        return {
            "ok": True,
            "name": upstream.name,
            "state": _state(upstream),
            "auth": upstream.auth and upstream.auth[1].type,
            "auth_url": upstream.auth_url,
            "status": status.state,
            "last_error": upstream.connection.problem,
            "tools": self._gateway.catalog.count(upstream.name, "tools"),
            "problem": None if signing is None or signing.inner is None else signing.inner.problem,
            "sign_in": None if signing is None else signing.describe(),
        }


def _state(upstream: Upstream) -> State:
    signing, status = upstream.signing, upstream.status.state
    if not upstream.address or not upstream.server.enabled:
        return "not_needed"
    if signing is None:
        return "configured"
    if status == "needs_auth" or signing.auth_url is not None:
        return "sign_in_needed"
    if signing.describe().get("signed_in"):
        return "signed_in"
    return "not_needed" if status in ("connected", "degraded", "sleeping") else "unknown"
