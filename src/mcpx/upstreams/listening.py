"""How a link hears of changes from a modern server: one `subscriptions/listen` at a time, begun
again when it ends."""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from mcpx.base.aio import Tasks
from mcpx.model.call import Json, as_object
from mcpx.model.errors import METHOD_NOT_FOUND, RpcError, Unavailable

if TYPE_CHECKING:
    from mcpx.upstreams.link import Link

log = logging.getLogger(__name__)

RETRY = (0.5, 2.0, 10.0, 30.0)
"""Seconds before a listening that ended is begun again."""
ACKNOWLEDGED_WITHIN = 3.0

FLAGS = (
    ("tools", "toolsListChanged"),
    ("prompts", "promptsListChanged"),
    ("resources", "resourcesListChanged"),
)


class Listening:
    def __init__(self, link: "Link", tasks: Tasks) -> None:
        self._link = link
        self._tasks = tasks
        self._running: asyncio.Task[Any] | None = None
        self._acknowledged = asyncio.Event()

    def acknowledged(self) -> None:
        self._acknowledged.set()

    async def begin(self) -> None:
        """Listen for what is wanted now; the listening before it ends when this one stands."""
        previous = self._running
        self._acknowledged = acknowledged = asyncio.Event()
        self._running = self._tasks.start(self._keep_on(acknowledged), apart=True)
        with contextlib.suppress(
            TimeoutError
        ):  # a server that never acknowledges must not hold up its own calls
            async with asyncio.timeout(min(self._link.server.timeout, ACKNOWLEDGED_WITHIN)):
                await acknowledged.wait()
        if previous is not None:
            previous.cancel()

    def _wanted(self) -> Json:
        able = self._link.terms.capabilities
        wanted: Json = {
            flag: True for name, flag in FLAGS if as_object(able.get(name)).get("listChanged")
        }
        if self._link.subscribers:
            wanted["resourceSubscriptions"] = sorted(self._link.subscribers)
        return wanted

    async def _keep_on(self, acknowledged: asyncio.Event) -> None:
        stream = _Stream(self._link, acknowledged)
        tries = 0
        while self._link.alive and (wanted := self._wanted()):
            try:
                await self._link.listen_for(wanted, stream)
                tries = 0
            except Unavailable as error:
                log.debug("[%s] listening ended: %s", self._link.name, error.message)
            except RpcError as error:
                log.debug("[%s] does not take listeners: %s", self._link.name, error.message)
                break
            self._link.told.clear()  # what changes now is not heard
            await asyncio.sleep(RETRY[min(tries, len(RETRY) - 1)])
            tries += 1
        acknowledged.set()


class _Stream:
    """What the listen request hears (`wire.peer.Meanwhile`); over HTTP it has a stream of its
    own."""

    def __init__(self, link: "Link", acknowledged: asyncio.Event) -> None:
        self._link = link
        self._acknowledged = acknowledged

    def progress(self, params: Json) -> None:
        pass

    def notification(self, method: str, params: Json) -> None:
        if method == "notifications/subscriptions/acknowledged":
            self._acknowledged.set()
        else:
            self._link.notification(method, params)

    async def question(self, method: str, params: Json | None) -> Json:
        raise RpcError(METHOD_NOT_FOUND, f"nobody here can be asked {method}")

    def paused(self, retry_ms: int) -> None:
        pass
