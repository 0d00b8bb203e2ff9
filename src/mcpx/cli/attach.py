"""`mcpx [CONFIG]`: over stdio, attach to the gateway that all clients of a configuration share, or
start it. Otherwise serve in this process.

A client that cannot share a gateway gets one in this process, exactly as with `--standalone`.
Nothing was read from the client by then. This module imports no gateway and no config, so a bridge
starts fast and stays small.
"""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from mcpx.base.files import private_folder
from mcpx.cli import serve_flags
from mcpx.cli.target import WORKING_FOLDER_NAMES, folder_of, found, glance, named, overlay
from mcpx.model.state import STORE, state_folder
from mcpx.wire.channels import socket_path


def run(options: argparse.Namespace) -> int:
    if (named(options) or os.environ.get("MCPX_CONFIG")) == STORE:
        from mcpx.cli.shared import fetch

        fetch(options, os.environ)
    code = attached(options, os.environ)
    if code is not None:
        return code
    from mcpx.cli.serve import serve

    return serve(found(options), options, os.environ)


def attached(options: argparse.Namespace, environ: Mapping[str, str]) -> int | None:
    """Serve the client through a shared gateway. Returns the exit code, or None if the client needs
    a gateway of its own."""
    is_alone = serve_flags.is_standalone(options, environ)
    if is_alone or not serve_flags.by_stdio(options, environ):
        return None
    linger = serve_flags.linger(options, environ)
    # A server of another gateway: with separate gateways, it stays known which one started which.
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
    wanted = gateways.Wanted(
        place=place,
        mode=options.mode or environ.get("MCPX_MODE") or None,
        profile=options.profile or environ.get("MCPX_PROFILE") or None,
        strict=serve_flags.is_strict(options, environ),
        environ=environ,
        serve=_arguments(options, path),
        linger=linger,
        folder=folder_of(path),
    )
    gateway = gateways.find(wanted)
    if isinstance(gateway, gateways.Refused):
        # Of these reasons, `serve` gives the better explanation.
        if gateway.reason not in (*gateways.SAID_SO, "start"):
            _say(f"{gateway.error}; this client gets a gateway of its own")
        return None
    _report_differences(options, environ, gateway.about)
    from mcpx.bridge.relay import Relay

    return Relay(wanted, gateway, _say).run()


def _config(options: argparse.Namespace, environ: Mapping[str, str]) -> Path | None:
    path = glance(options, environ)
    is_usual = any(map(os.path.lexists, WORKING_FOLDER_NAMES))
    if path is not None or named(options) or not is_usual:
        return path
    from mcpx.config.locate import find  # Only a parser can tell whose file this is.

    located = find(None, environ, Path.cwd())
    return located and Path(os.path.abspath(located))


def _arguments(options: argparse.Namespace, path: Path) -> list[str]:
    """For the gateway that is started: all flags that are not about one client only."""
    arguments = ["--config", str(path)]
    for name in ("env", "log_level", "admin_port", "host", "port"):
        value = getattr(options, name)
        if value is not None:
            arguments.append(f"--{name.replace('_', '-')}={value}")
    switches = [name for name in ("strict", "admin") if getattr(options, name)]
    return arguments + [f"--{name}" for name in switches]


def _report_differences(
    options: argparse.Namespace, environ: Mapping[str, str], about: Mapping[str, object]
) -> None:
    """Name the flags that the gateway that runs cannot follow."""
    by_environ = environ.get("MCPX_ADMIN") in serve_flags.TRUE
    wants_admin = options.admin or options.admin_port is not None or by_environ
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
    for warning in cast("list[str]", about.get("warnings") or []):
        _say(f"warning: {warning}")


def _say(line: str) -> None:
    """Write to the client's log."""
    text = "".join(c if c.isprintable() else " " for c in line)
    try:  # Unbuffered. The reader may have gone, or the disk may be full.
        os.write(2, f"mcpx: {text}\n".encode(errors="replace"))
    except OSError:
        pass
