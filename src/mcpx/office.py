"""The admin port of one run: what it needs of every room, brought together at its desk.

Here and not in `app`, which would otherwise load it for everybody: nothing of `mcpx.admin` is
imported before `open`.
"""

import errno
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mcpx import __version__
from mcpx.config import Config
from mcpx.core.chronicle import Chronicle
from mcpx.core.gateway import Gateway
from mcpx.model.call import Json

if TYPE_CHECKING:
    from mcpx.admin.desk import Desk
    from mcpx.core.store import ConfigStore
    from mcpx.front.audience import Audience
    from mcpx.telemetry.telemetry import Telemetry

log = logging.getLogger(__name__)

STARTED = time.time()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminPlace:
    """Where the admin UI was asked for."""

    host: str
    port: int
    token: str | None
    """Of the environment, which wins over the configuration's."""
    or_another: bool = False
    """Any other port will do where this one is taken: nobody has named it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What stays the same while it runs, of the gateway that is looked after."""

    gateway: Gateway
    store: "ConfigStore"
    telemetry: "Telemetry"
    audience: "Audience"
    transport: Literal["stdio", "http"]
    url: Callable[[], str | None]
    """Where clients find it over HTTP."""
    state: Path | None
    env: str | None


class Office:
    def __init__(self, place: AdminPlace, config: Config) -> None:
        from mcpx.admin.server import AdminServer

        self._chronicle: Chronicle | None = None
        self._config = config
        self._server = AdminServer(place.host, place.port, place.token, config)
        self._place = place
        self._state: Path | None = None

    def bind(self) -> str | None:
        """Take the port; None, or what is wrong with it."""
        try:
            self._server.bind()
        except (OSError, ValueError) as error:
            if (
                self._place.or_another
                and isinstance(error, OSError)
                and error.errno == errno.EADDRINUSE
            ):
                self._place = replace(self._place, port=0, or_another=False)
                self._server.port = 0
                return self.bind()
            return _why(error, self._place)
        return None

    def watch(self, chronicle: Chronicle) -> None:
        """What servers print, from before they start: it says why they do not."""
        self._chronicle = chronicle

    @property
    def url(self) -> str:
        """Where it is, without what lets somebody in."""
        return self._server.url

    async def open(self, room: Room) -> None:
        self._state = room.state
        _ = room.telemetry.admin  # Counts from now on, in the thread of the event loop.
        await self._server.start(
            lambda: _desk(room, self._config, self._server.url, self._chronicle)
        )

    def login_url(self) -> str:
        return self._server.login_url()

    async def tell_login(self, request: Json) -> Json:
        """The control verb `admin`. With `file`, the reply has the path of a file that leads a
        browser to the URL."""
        url = self.login_url()
        reply: Json = {"ok": True, "url": url}
        if request.get("file") and self._state is not None:
            try:
                reply["file"] = str(await self._server.write_login_file(self._state, url))
            except OSError as error:
                log.warning("admin: cannot write the login file in %s: %s", self._state, error)
        return reply

    def take_up(self, config: Config) -> None:
        self._server.take_up(config)

    async def close(self) -> None:
        await self._server.close()


def _desk(room: Room, config: Config, admin_url: str, chronicle: "Chronicle | None") -> "Desk":
    from mcpx.admin.desk import About, Desk
    from mcpx.clients.launcher import launcher
    from mcpx.clients.programs import programs
    from mcpx.front.identity.store import TokenStore
    from mcpx.imports.curl import preview_curl
    from mcpx.imports.openapi import preview_openapi

    starts = launcher().words

    def about() -> About:
        return About(
            version=__version__,
            transport=room.transport,
            started=STARTED,
            config=room.gateway.generation.config.path,  # the demo gets one with its first save
            env=room.env,
            state=room.state,
            url=room.url(),
            admin_url=admin_url,
            launcher=starts,
        )

    telemetry = room.telemetry.admin
    return Desk(
        gateway=room.gateway,
        store=room.store,
        about=about,
        statistics=telemetry.statistics,
        recording=telemetry.recording,
        savings=telemetry.savings,
        audience=room.audience,
        programs=programs,
        tokens=None if room.state is None else TokenStore(room.state),
        imports={"openapi": preview_openapi, "curl": preview_curl},
        watched=chronicle,
    )


def _why(error: OSError | ValueError, place: AdminPlace) -> str:
    import ssl

    if (
        isinstance(error, ssl.SSLError | FileNotFoundError | PermissionError)
        and error.filename is None
    ):
        return (
            f"the certificate of the admin UI cannot be used: {error.strerror or error}. See "
            "server.admin.tls"
        )
    what = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    where = f"{place.host}:{place.port}"
    return (
        f"the admin UI cannot listen on {where}: {what}. Another port: --admin-port 0 takes "
        "any free one."
    )
