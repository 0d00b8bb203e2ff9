"""A conversation over one carrier that moves whole messages in order: what stdio, WebSocket and
HTTP+SSE share."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from mcpx.model.call import Json
from mcpx.model.errors import SERVER_TIMEOUT, Unavailable
from mcpx.transports.dial import Dial
from mcpx.wire.peer import Meanwhile, Peer


class Carried:
    def __init__(self, dial: Dial, transmit: Callable[[bytes], None]) -> None:
        """`transmit` sends one message; it never blocks and never fails."""
        self._dial = dial
        self._peer = Peer(dial.name, transmit, dial.inbound)

    def _backlog(self) -> Awaitable[None] | None:
        """What to wait for before more is sent: that the server reads what it was sent. None: it
        does."""
        return None

    def request(
        self,
        method: str,
        params: Json,
        *,
        meanwhile: Meanwhile | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, Json]:
        sent = self._peer.request(method, params, meanwhile=meanwhile, timeout=timeout)
        backlog = self._backlog()
        return sent if backlog is None else self._when_read(backlog, sent, timeout)

    async def _when_read(
        self, backlog: Awaitable[None], sent: Coroutine[Any, Any, Json], timeout: float | None
    ) -> Json:
        """A server that stops reading must not grow our memory: wait for it, inside the request's
        own time."""
        try:
            async with asyncio.timeout(timeout):
                waiting: Awaitable[None] | None = backlog
                while waiting is not None:  # those that waited with this one may have been quicker
                    await waiting
                    waiting = self._backlog()
        except BaseException as error:
            sent.close()
            if isinstance(error, TimeoutError):
                problem = Unavailable(
                    self._dial.name, SERVER_TIMEOUT, "does not read what it is sent"
                )
                problem.unsent = True
                raise problem from None
            raise
        return await sent

    def notify(self, method: str, params: Json | None) -> None:
        self._peer.notify(method, params)

    def agreed(self, version: str) -> None:
        """Nothing changes with the revision."""

    def memory(self) -> int:
        return 0

    async def close(self) -> None:
        await self._peer.close()
