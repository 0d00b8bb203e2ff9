"""The admin port.

`bind` does not load the routes and pydantic: a taken port is reported before any server starts.
`start` loads them in a thread, because that takes a moment.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mcpx.admin.keys import LONG, PASS_LIFE, Keys
from mcpx.base.files import replace_private
from mcpx.config import Admin, Config, is_loopback
from mcpx.wire import codec
from mcpx.wire.http_server import HttpServer, Limits

if TYPE_CHECKING:
    from mcpx.admin.application import Live
    from mcpx.admin.desk import Desk
    from mcpx.admin.door import Door

log = logging.getLogger(__name__)

LIMITS = Limits(connections=256, bodies_bytes=64 * 2**20)
ENDING = 1.0
"""Seconds in which requests can finish when the gateway ends."""
LOGIN_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={url}">
<title>mcpx</title>
<p><a href="{url}">Open the admin UI of mcpx</a></p>
"""


class _Running(NamedTuple):
    server: HttpServer
    door: "Door"
    live: "Live"


class AdminServer:
    def __init__(self, host: str, port: int, token: str | None, config: Config) -> None:
        """`token` takes precedence over the one of the configuration."""
        self._host = host
        self.port = port
        self._given = token
        self._admin = config.server.admin or Admin()
        self._token = self._token_of(config)
        self._keys = Keys(self._token)
        self._socket: socket.socket | None = None
        self._context: ssl.SSLContext | None = None
        self._running: _Running | None = None
        self._login_file = _LoginFile()
        self._closing = False
        self.url = ""
        """The address of the admin UI, after `bind`."""

    def bind(self) -> None:
        """Raises OSError (ssl.SSLError is one), or ValueError for an invalid host."""
        if self._admin.tls is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(self._admin.tls.cert, self._admin.tls.key)
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._socket = socket.create_server((self._host, self.port), family=family, backlog=128)
        self._socket.setblocking(False)
        port = self._socket.getsockname()[1]
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        if ":" in shown:
            shown = f"[{shown}]"
        scheme = "http" if self._context is None else "https"
        self.url = f"{scheme}://{shown}:{port}"

    async def start(self, furnish: "Callable[[], Desk]") -> None:
        """Serve. Connections since `bind` have waited. `furnish` is called in a thread."""
        assert self._socket is not None, "bind first"
        desk = await asyncio.to_thread(_load, furnish)
        if self._closing:
            return
        self._running = running = self._build(desk)
        self._warn()
        await running.server.start_on(self._socket, self._context)

    def _build(self, desk: "Desk") -> _Running:
        from mcpx.admin.application import Live, make
        from mcpx.admin.door import Door, refusal

        live = Live(desk)
        door = Door(self._host, self._admin, self._keys, self._token_of, make(desk, live))
        server = HttpServer(door.handle, LIMITS, door.forestall, refusal=refusal)
        return _Running(server, door, live)

    def login_url(self) -> str:
        """Create a URL with a single-use token. A browser that opens it before `start` waits."""
        return f"{self.url}/login?token={self._keys.passes.make()}"

    async def write_login_file(self, folder: Path, login_url: str) -> Path:
        """Write a file that leads a browser to a login URL. Raises OSError."""
        port = self.url.rpartition(":")[2]
        return await self._login_file.write(folder / f"admin-login-{port}.html", login_url)

    def take_up(self, config: Config) -> None:
        """Apply a changed configuration."""
        self._admin, self._token = config.server.admin or Admin(), self._token_of(config)
        self._keys.take_up(self._token)
        if self._running is not None:
            self._running.door.take_up(self._admin)

    def _token_of(self, config: Config) -> str | None:
        return self._given or config.server.admin_token

    def _warn(self) -> None:
        if self._token is not None and len(self._token) < LONG:
            log.warning("the admin token is short: %d characters or more cannot be guessed", LONG)
        if self._context is None and not is_loopback(self._host):
            log.warning(
                "the admin UI is reached from other machines without TLS: its token can be read "
                "on the way"
            )

    async def close(self) -> None:
        """Accept no more connections, end all streams, and give other requests a moment."""
        self._closing = True
        self._login_file.delete()
        if self._running is None:
            if self._socket is not None:
                self._socket.close()
            return
        server, door, live = self._running
        live.events.end_streams()
        door.keys.end_all()
        await server.close(ENDING)
        await door.api.tasks.close()
        await live.close()


def _load(furnish: "Callable[[], Desk]") -> "Desk":
    from mcpx.admin import application, door  # pyright: ignore[reportUnusedImport] # noqa: F401

    desk = furnish()
    codec.release_memory(surely=True)  # Loading took memory that is no longer needed.
    return desk


class _LoginFile:
    """An HTML file that leads a browser to a login URL.

    All users of a machine can read the arguments of a browser program. A login URL therefore does
    not go to the browser as an argument. The browser gets the path of this file instead, which only
    its owner can read. The file is deleted when its token expires, and when the gateway ends.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._expiry: asyncio.TimerHandle | None = None

    async def write(self, path: Path, login_url: str) -> Path:
        """Replace the previous file. Raises OSError."""
        content = LOGIN_PAGE.format(url=escape(login_url)).encode()
        await asyncio.to_thread(replace_private, path, content)
        if self._expiry is not None:
            self._expiry.cancel()
        self._path = path
        self._expiry = asyncio.get_running_loop().call_later(PASS_LIFE, self.delete)
        return path

    def delete(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None
