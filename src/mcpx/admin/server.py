"""The admin port: bound early, served in the gateway's own loop, ended with it.

Promise: `bind` needs nothing of the web framework, so that a port that is taken is told before
anything starts; `start` loads the framework in a thread, so that whoever is served meanwhile is not
held up. uvicorn gets no signal, no logger and no task of its own: this is its protocol without its
server, which would look ten times a second whether it is to end.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcpx.config import Admin, Config, is_loopback
from mcpx.wire import memory

if TYPE_CHECKING:
    from mcpx.admin.connection import State
    from mcpx.admin.desk import Desk
    from mcpx.admin.door import Door
    from mcpx.admin.keys import Keys
    from mcpx.admin.live import Live
    from mcpx.admin.login_file import LoginFile

log = logging.getLogger(__name__)

LONG = 22
"""Characters from which a token cannot be guessed by trying: 128 bits, if it is random."""
ENDING = 1.0
"""Seconds that requests have to notice that the gateway ends."""


class AdminServer:
    def __init__(self, host: str, port: int, token: str | None, config: Config) -> None:
        """`token` wins over the one of the configuration."""
        self._host = host
        self.port = port
        self._given = token
        self._admin = config.server.admin or Admin()
        self._token = self._token_of(config)
        self._socket: socket.socket | None = None
        self._listener: asyncio.Server | None = None
        self._context: ssl.SSLContext | None = None
        self._keys: Keys | None = None
        self._served: _Served | None = None
        self._login_file: LoginFile | None = None
        self._closing = False
        self.url = ""
        """Where it is found, once bound."""

    def bind(self) -> None:
        """Raises OSError (ssl.SSLError is one), or ValueError for what is not even in form a
        host."""
        from mcpx.admin.keys import Keys

        if self._admin.tls is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(self._admin.tls.cert, self._admin.tls.key)
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._socket = socket.create_server((self._host, self.port), family=family, backlog=128)
        self._socket.setblocking(False)
        port = self._socket.getsockname()[1]
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        shown = f"[{shown}]" if ":" in shown else shown
        self.url = f"{'http' if self._context is None else 'https'}://{shown}:{port}"
        self._keys = Keys(self._token)

    async def start(self, furnish: "Callable[[], Desk]") -> None:
        """Serve. Connections that came since `bind` have waited. `furnish` is called in a
        thread."""
        keys = self._keys
        assert self._socket is not None and keys is not None, "bind first"
        made = await asyncio.to_thread(
            lambda: _made(self._host, self._admin, keys, self._token_of, furnish())
        )
        if self._closing:
            return
        made.door.take_up(self._admin, self._token)  # they may have changed meanwhile
        self._served = made
        self._warn()
        self._listener = await asyncio.get_running_loop().create_server(
            made.protocol,
            sock=self._socket,
            ssl=self._context,
            ssl_handshake_timeout=made.state.limits.head_timeout if self._context else None,
        )

    def login_url(self) -> str:
        """With a pass that is good once, for ten minutes; from `bind` on, for who comes before
        `start` only waits."""
        assert self._keys is not None, "bind first"
        return f"{self.url}/login?token={self._keys.passes.make()}"

    async def write_login_file(self, folder: Path, login_url: str) -> Path:
        """Write a file that leads a browser to a login URL. Raises OSError."""
        from mcpx.admin.login_file import LoginFile

        if self._login_file is None:
            port = self.url.rpartition(":")[2]
            self._login_file = LoginFile(folder / f"admin-login-{port}.html")
        return await self._login_file.write(login_url)

    def tell_elsewhere(self) -> None:
        """Somebody may listen to events at another replica."""
        if self._served is not None:
            _ = self._served.live.events

    def take_up(self, config: Config) -> None:
        """What a changed configuration says of who may come in."""
        self._admin, self._token = config.server.admin or Admin(), self._token_of(config)
        if self._served is not None:
            self._served.door.take_up(self._admin, self._token)

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
        """No more connections. What is being answered may end, streams are told that they are over;
        then all is cut."""
        self._closing = True
        if self._login_file is not None:
            self._login_file.close()
        if self._listener is not None:
            self._listener.close()
        elif self._socket is not None:
            self._socket.close()
        if self._served is None:
            return
        state, live = self._served.state, self._served.live
        live.end_streams()
        self._served.door.keys.end_all()
        for connection in list(state.held):
            connection.wind_down()
        await _wait(state.tasks)
        for connection in list(state.held):
            connection.abort()
        for task in state.tasks:
            task.cancel()
        await _wait(state.tasks)
        await live.close()
        state.close()


async def _wait(tasks: "set[asyncio.Task[None]]") -> None:
    if tasks:
        await asyncio.wait(set(tasks), timeout=ENDING)


@dataclass(frozen=True, slots=True)
class _Served:
    door: "Door"
    live: "Live"
    state: "State"
    protocol: Callable[[], asyncio.Protocol]


def _made(
    host: str, admin: Admin, keys: "Keys", token_of: Callable[[Config], str | None], desk: "Desk"
) -> _Served:
    """All that is heavy is imported here, and nowhere before."""
    from uvicorn.config import Config as UvicornConfig

    from mcpx.admin import application
    from mcpx.admin.connection import Connection, Limits, State
    from mcpx.admin.door import Door
    from mcpx.admin.pages import Pages

    door = Door(host, admin, keys, token_of)
    door.pages = Pages()
    door.api = api = application.make(desk)
    api.state.door = door
    settings = UvicornConfig(
        door,
        loop="none",
        http=Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=3600,  # ours is looked after by `State`
    )
    settings.load()
    state = State(Limits())
    memory.give_back(surely=True)  # what loading took, and is not needed any more
    return _Served(door, api.state.live, state, lambda: Connection(settings, state))
