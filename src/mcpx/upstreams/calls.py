"""Sends calls to one server.

No call is sent twice unless the server did not receive it, or the call may be repeated.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcpx.catalog.apps import result_with_public_pages
from mcpx.model.call import Call, Json
from mcpx.model.errors import (
    OVERLOADED,
    SERVER_DIED,
    SERVER_DOWN,
    SERVER_TIMEOUT,
    RpcError,
    Unavailable,
)
from mcpx.upstreams.bridges import Parked, Parking
from mcpx.upstreams.lease import Lease
from mcpx.wire import era

if TYPE_CHECKING:
    from mcpx.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

MAX_RETRY_AFTER = 10.0
"""Seconds of a server's `Retry-After` that a call waits for before it is sent again."""


class CallForwarder:
    def __init__(self, upstream: "Upstream") -> None:
        self.made = 0
        """Calls since the start."""
        self.running = 0
        """Calls that are waiting or were sent."""
        self.before: Upstream | None = None
        """The upstream that this one has replaced, while it is drained."""
        self._upstream = upstream
        self._name = upstream.name
        self._life = upstream.life
        self._links = upstream.links
        self._judging = upstream.judging
        self._parking = Parking(upstream.name, upstream.tasks, self._check_idle)
        self._idle = asyncio.Event()

    async def call(self, call: Call, params: Json, *, repeatable: bool = False) -> Json:
        """Forward one call. Errors of the server are raised unchanged.

        A `repeatable` call is sent again if the server died.
        """
        self.made += 1
        self.running += 1
        try:
            try:
                result = await self._forward(call, params)
            except Unavailable as error:
                if error.retry_after is not None and error.retry_after <= MAX_RETRY_AFTER:
                    await asyncio.sleep(error.retry_after)
                elif not _may_repeat(error, repeatable):
                    raise
                result = await self._forward(call, params)
        except Unavailable as error:
            connection = self._upstream.connection
            connection.make_presentable(error)
            if connection.explain_sign_in(error):
                connection.sign_in_wanted(error)
            raise
        except RpcError:
            self._life.recovery.served()  # An error is an answer.
            raise
        finally:
            self.running -= 1
            self._check_idle()
        self._life.recovery.served()
        if self._life.status.state == "needs_auth":
            self._life.set_status("connected")
        return result_with_public_pages(self._name, result)

    async def _forward(self, call: Call, params: Json) -> Json:
        caller = call.caller
        comes_back = caller.modern and bool(caller.answers) and call.method in era.MAY_ASK
        if not comes_back:
            lease = self._links.take_now(call)
            if lease is not None:
                if self._upstream.admission is not None and not self._judging.passes(lease):
                    await self._judging.admit(lease, params)
                return await lease.run(params)
        server = self._upstream.server
        if not server.enabled:
            raise Unavailable(self._name, SERVER_DOWN, server.switched_off or "is disabled")
        if comes_back and self._parking.holds(call):
            return await self._parking.resume(call, params)
        if comes_back and self.before is not None and self.before.calls._parking.holds(call):
            return await self.before.call(call, params)
        await self._upstream.connection.wait_until_connected()
        if comes_back and self._links.wishes.era_for(caller) == "older":
            return await self._park(call, params)
        lease = self._links.take_now(call) or await self._links.take(call)
        if comes_back and not lease.link.modern:  # The era was found out just now.
            lease.end()
            return await self._park(call, params)
        return await self._use(lease, params)

    async def _park(self, call: Call, params: Json) -> Json:
        """A modern client's call to an older server, which may ask a question."""
        if call.params.get("requestState") is not None:
            # Older servers have no states: it is unknown, or one of the gateway.
            return await self._parking.resume(call, params)

        async def run(parked: Parked) -> Json:
            lease = self._links.take_now(call, parked)
            parked.lease = lease or await self._links.take(call, parked)
            return await self._use(parked.lease, params)

        return await self._parking.begin(call, params, run)

    async def _use(self, lease: Lease, params: Json) -> Json:
        if self._upstream.admission is not None:
            await self._judging.admit(lease, params)
        return await lease.run(params)

    def see_off(self, stays: Callable[[str], bool]) -> None:
        """Cancel the parked calls of principals that are no longer allowed."""
        if self._parking:
            self._parking.see_off(stays)

    def _check_idle(self) -> None:
        if not self.running and not self._parking:
            self._idle.set()

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for running calls."""
        try:
            async with asyncio.timeout(grace):
                while self.running or self._parking:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            log.warning("[%s] calls that are still running are cut off", self._name)


def _may_repeat(error: Unavailable, repeatable: bool) -> bool:
    """Whether to send a call again. A call that has waited for a connection in vain is too late."""
    if repeatable and error.code == SERVER_DIED:
        return True
    return error.unsent and error.code not in (SERVER_TIMEOUT, OVERLOADED)
