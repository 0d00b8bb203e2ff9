"""Runs the ASGI application of the admin API for requests of `wire.http_server`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

from mcpx.admin.pages import Headers
from mcpx.base.aio import Tasks
from mcpx.wire.exchange import Exchange

log = logging.getLogger(__name__)

SLASH = "\ue000"
"""Replaces `%2F` while a path is split at its slashes: the names of many servers contain one."""


def decoded(path: str) -> str:
    return unquote(path.replace("%2F", SLASH).replace("%2f", SLASH))


class AsgiServer:
    """Each request runs in a task. `receive` returns the body, then waits until the client has
    disconnected or its access has ended."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.tasks = Tasks("admin requests")

    def begin(
        self,
        exchange: Exchange,
        more: Headers,
        state: dict[str, Any],
        on_end: Callable[[asyncio.Event], object],
    ) -> asyncio.Event:
        """Return the event that ends the request. `on_end` is called with it after the response."""
        gone = asyncio.Event()
        exchange.on_disconnect = gone.set
        self.tasks.start(self._run(exchange, more, state, gone, on_end), apart=True)
        return gone

    async def _run(
        self,
        exchange: Exchange,
        more: Headers,
        state: dict[str, Any],
        gone: asyncio.Event,
        on_end: Callable[[asyncio.Event], object],
    ) -> None:
        body: list[bytes] = [exchange.body]

        async def receive() -> Message:
            if body:
                return {"type": "http.request", "body": body.pop(), "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        try:
            await self.app({**_scope(exchange), **state}, receive, _sender(exchange, more))
        except Exception:
            log.debug("admin: the response was broken off", exc_info=True)
        finally:
            exchange.abort()  # Without effect after a complete response.
            on_end(gone)


def _scope(exchange: Exchange) -> Scope:
    headers = exchange.headers
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": exchange.method,
        "scheme": exchange.scheme,
        "path": decoded(exchange.path),
        "raw_path": exchange.path.encode(),
        "query_string": exchange.query.encode(),
        "root_path": "",
        "headers": [*headers.first.items(), *headers.more],
        "client": exchange.client,
        "server": exchange.server,
    }


def _sender(exchange: Exchange, more: Headers) -> Callable[[Message], Awaitable[None]]:
    """`more` are headers of each response that does not set them itself."""
    head: list[tuple[int, Sequence[tuple[str, str]]]] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            status, headers = message["status"], complete(message["headers"], more)
            log.debug("admin: %s %s: %d", exchange.method, exchange.path, status)
            head.append((status, headers))
            return
        body, is_last = message.get("body", b""), not message.get("more_body", False)
        if not head:
            exchange.write(body)
        elif is_last:
            exchange.reply(head[0][0], body, None, head[0][1])
            return
        else:
            exchange.stream(*head.pop())
            exchange.write(body)
        await exchange.drain()
        if is_last:
            exchange.end()

    return send


def complete(own: Sequence[tuple[bytes, bytes]], more: Headers) -> Headers:
    headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in own if n != b"content-length"]
    names = {name for name, _ in headers}
    return [*headers, *[pair for pair in more if pair[0] not in names]]
