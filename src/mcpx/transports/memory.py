"""A server inside this process: a function that answers a method. For the built-in demo and for
embedding."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar

from mcpx.model.call import Json
from mcpx.model.errors import SERVER_TIMEOUT, Unavailable
from mcpx.transports.dial import Dial
from mcpx.wire.peer import Conversation, Meanwhile

Serve = Callable[[str, Json], Awaitable[Json]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    type: ClassVar[str] = "memory"

    serve: Serve

    async def open(self, dial: Dial) -> Conversation:
        return MemoryConversation(self.serve, dial.name)


class MemoryConversation:
    def __init__(self, serve: Serve, name: str) -> None:
        self._serve = serve
        self._name = name

    async def request(
        self,
        method: str,
        params: Json,
        *,
        meanwhile: Meanwhile | None = None,
        timeout: float | None = None,
    ) -> Json:
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await self._serve(method, params)
        except TimeoutError:
            if not limit.expired():
                raise  # the server's own
            raise Unavailable(
                self._name, SERVER_TIMEOUT, f"no answer within {timeout:g} s"
            ) from None

    def notify(self, method: str, params: Json | None) -> None:
        """Nobody inside waits for notifications."""

    def agreed(self, version: str) -> None:
        """Nothing changes with the revision."""

    def memory(self) -> int:
        return 0

    async def close(self) -> None:
        """There is nothing to close."""
