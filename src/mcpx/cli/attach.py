"""`mcpx [CONFIG]` over stdio, where one gateway serves all clients of a configuration: attach to
it, or start it.

Promise: None where the client gets a gateway of its own, in this process and exactly as with
`--standalone`; nothing was read from the client by then. Imports no gateway and no config: it
starts in a moment, and stays small.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from mcpx.base.files import private_folder
from mcpx.cli import how
from mcpx.cli.state import state_folder
from mcpx.cli.where import named, overlay
from mcpx.wire.channels import socket_path


def attached(options: argparse.Namespace, environ: Mapping[str, str]) -> int | None:
    """The exit code once the client has left; None: run alone."""
    if not how.by_stdio(options, environ) or how.alone(options, environ):
        return None
    linger = how.linger(options, environ)
    # A server of another gateway: who starts whom is only known while each has its own.
    if environ.get("MCPX_INSIDE"):
        return None
    path = _config(options, environ)
    if path is None:
        return None
    place = socket_path(state_folder(environ), path, overlay(options))
    try:
        private_folder(place.parent)
    except OSError:
        return None
    from mcpx.bridge import gateways
    from mcpx.bridge.standard import can_be_watched

    if not can_be_watched():
        return None
    strict = how.is_strict(options, environ)
    wanted = gateways.Wanted(
        place=place,
        mode=options.mode or environ.get("MCPX_MODE") or None,
        profile=options.profile or environ.get("MCPX_PROFILE") or None,
        strict=strict,
        environ=environ,
        serve=_arguments(options, path),
        linger=linger,
        folder=path if path.is_dir() else path.parent,
    )
    found = gateways.find(wanted)
    if isinstance(found, gateways.Refused):
        if found.reason not in (
            *gateways.SAID_SO,
            "start",
        ):  # for these the whole program has better words
            _say(f"{found.error}; this client gets a gateway of its own")
        return None
    _say_what_differs(options, environ, found.about)
    from mcpx.bridge.relay import Relay

    return Relay(wanted, found, _say).run()


def _config(options: argparse.Namespace, environ: Mapping[str, str]) -> Path | None:
    path = how.config_path(options, environ)
    if (
        path is not None
        or named(options)
        or not any(map(os.path.lexists, how.WORKING_FOLDER_NAMES))
    ):
        return path
    from mcpx.config.locate import (
        find,
    )  # a file under a common name: whose it is takes more than a glance

    found = find(None, environ, Path.cwd())
    return None if found is None else Path(os.path.abspath(found))


def _arguments(options: argparse.Namespace, path: Path) -> list[str]:
    """For the gateway that is started, what is not about one client only."""
    valued = ("env", "log_level", "admin_port", "host", "port")
    given = [
        (name, getattr(options, name)) for name in valued if getattr(options, name) is not None
    ]
    switches = [f"--{name}" for name in ("strict", "admin") if getattr(options, name)]
    return [
        "--config",
        str(path),
        *(f"--{name.replace('_', '-')}={value}" for name, value in given),
        *switches,
    ]


def _say_what_differs(
    options: argparse.Namespace, environ: Mapping[str, str], about: Mapping[str, object]
) -> None:
    """What was asked for and cannot be had from the gateway that runs."""
    wants_admin = (
        options.admin or options.admin_port is not None or environ.get("MCPX_ADMIN") in how.TRUE
    )
    if wants_admin and not about.get("admin"):
        _say(
            "the gateway that runs was started without --admin; end it, or use --standalone, to "
            "get the admin UI"
        )
    elif wants_admin:
        _say("the admin UI belongs to the gateway that all clients share; 'mcpx admin' opens it")
    level = (options.log_level or environ.get("MCPX_LOG_LEVEL") or "").upper()
    if level and about.get("log_level") != level:
        _say(f"the gateway that runs logs at {about.get('log_level')}, not {level}")
    for warning in cast(Sequence[str], about.get("warnings") or ()):
        _say(f"warning: {warning}")


def _say(line: str) -> None:
    """In the client's log."""
    try:  # unbuffered, so that it is over with; nobody may listen, or the disk be full
        plain = "".join(c if c.isprintable() else " " for c in line)
        os.write(2, f"mcpx: {plain}\n".encode(errors="replace"))
    except OSError:
        pass
