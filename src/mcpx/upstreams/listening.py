"""What clients want to hear of a server over one link: subscriptions, log messages, and changes.

An older server is asked for each. A modern server reports to one `subscriptions/listen` request at
a time, which is sent again when it ends.
"""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from mcpx.base.aio import Tasks
from mcpx.model.call import Json, as_object
from mcpx.model.errors import METHOD_NOT_FOUND, RpcError, Unavailable
from mcpx.wire import era

if TYPE_CHECKING:
    from mcpx.upstreams.link import Link

log = logging.getLogger(__name__)

RETRY = (0.5, 2.0, 10.0, 30.0)
"""Seconds before a listen request that ended is sent again."""
ACKNOWLEDGED_WITHIN = 3.0
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

FLAGS = (
    ("tools", "toolsListChanged"),
    ("prompts", "promptsListChanged"),
    ("resources", "resourcesListChanged"),
)


class Listening:
    def __init__(self, link: "Link", tasks: Tasks) -> None:
        self.subscribers: dict[str, set[str]] = {}
        """Native URI -> the sessions and modern listenings that are subscribed."""
        self._link = link
        self._tasks = tasks
        self._level: str | None = None
        self._running: asyncio.Task[Any] | None = None
        self._acknowledged = asyncio.Event()

    async def subscribe(self, uri: str, who: str, params: Json) -> Json:
        users = self.subscribers.setdefault(uri, set())
        is_first = not users
        users.add(who)
        try:
            if not is_first:
                return {}
            if self._link.modern:
                await self.listen()
                return {}
            return await self._link.ask("resources/subscribe", {**params, "uri": uri})
        except (RpcError, asyncio.CancelledError):
            self._forget(uri, who)
            raise

    async def unsubscribe(self, uri: str, who: str, params: Json) -> Json:
        was_last = self._forget(uri, who)
        if not was_last or not self._link.alive:
            return {}
        if self._link.modern:
            await self.listen()
            return {}
        return await self._link.ask("resources/unsubscribe", {**params, "uri": uri})

    def _forget(self, uri: str, who: str) -> bool:
        """Whether that was the last subscriber."""
        users = self.subscribers.get(uri, set())
        if who not in users:
            return False
        users.discard(who)
        if not users:
            del self.subscribers[uri]
        return not users

    async def set_level(self, level: str) -> None:
        """Ask an older server for log messages from this level on. Modern requests carry it."""
        link = self._link
        if level == self._level or link.modern or "logging" not in link.terms.capabilities:
            return
        self._level = level
        try:
            await link.ask("logging/setLevel", {"level": level})
        except RpcError as error:
            log.debug("[%s] refused log level %s: %s", link.name, level, error.message)

    def covers(self, level: str) -> bool:
        """Whether the server sends messages of this level already."""
        order = era.LOG_LEVELS.index
        return self._level is not None and order(self._level) <= order(level)

    def acknowledged(self) -> None:
        self._acknowledged.set()

    async def listen(self) -> None:
        """Listen for what is wanted now. The previous request ends when this one is accepted."""
        if not self._link.modern:
            return  # Older servers announce changes unasked.
        previous = self._running
        self._acknowledged = acknowledged = asyncio.Event()
        self._running = self._tasks.start(self._keep_listening(acknowledged), apart=True)
        # A server that never acknowledges must not delay its own calls.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(self._link.server.timeout, ACKNOWLEDGED_WITHIN)):
                await acknowledged.wait()
        if previous is not None:
            previous.cancel()

    def _wanted(self) -> Json:
        able = self._link.terms.capabilities
        wanted: Json = {}
        for name, flag in FLAGS:
            if as_object(able.get(name)).get("listChanged"):
                wanted[flag] = True
        if self.subscribers:
            wanted["resourceSubscriptions"] = sorted(self.subscribers)
        return wanted

    async def _keep_listening(self, acknowledged: asyncio.Event) -> None:
        link, stream = self._link, _Stream(self._link, acknowledged)
        tries = 0
        while link.alive and (wanted := self._wanted()):
            try:
                await link.listen_for(wanted, stream)
                tries = 0
            except Unavailable as error:
                log.debug("[%s] listening ended: %s", link.name, error.message)
            except RpcError as error:
                log.debug("[%s] does not take listeners: %s", link.name, error.message)
                break
            link.told.clear()  # Changes are not reported now.
            await asyncio.sleep(RETRY[min(tries, len(RETRY) - 1)])
            tries += 1
        acknowledged.set()


class _Stream:
    """Receives messages for a listen request. Implements `wire.peer.Meanwhile`."""

    def __init__(self, link: "Link", acknowledged: asyncio.Event) -> None:
        self._link = link
        self._acknowledged = acknowledged

    def progress(self, params: Json) -> None:
        pass

    def notification(self, method: str, params: Json) -> None:
        if method == ACKNOWLEDGED:
            self._acknowledged.set()
        else:
            self._link.notification(method, params)

    async def question(self, method: str, params: Json | None) -> Json:
        raise RpcError(METHOD_NOT_FOUND, f"nobody here can be asked {method}")

    def paused(self, retry_ms: int) -> None:
        pass
