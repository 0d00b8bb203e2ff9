"""`mcpx [CONFIG]`: from flags, environment and config to a `Run`, and off it goes."""

import argparse
import os
import stat
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from mcpx import app
from mcpx.cli.main import LEVELS
from mcpx.config import Config, load
from mcpx.model.errors import ConfigError
from mcpx.surfaces import SURFACES


def serve(
    path: Path | None, options: argparse.Namespace, environ: Mapping[str, str], env: str | None, state: Path
) -> int:
    if options.admin or options.admin_port is not None:
        raise ConfigError(["error: the admin UI is not part of this version yet; leave --admin out"])
    mode = options.mode or _choice(environ, "MCPX_MODE", SURFACES)

    def read() -> Config:
        if path is None:
            from mcpx import demo

            config = demo.config()
        else:
            config = load(path, environ, env)
        return config if mode is None else replace(config, mode=mode)

    config = read()
    port = options.port if options.port is not None else _port(environ, config.server.port)
    if not 0 <= port <= 65535:
        raise ConfigError([f"error: port {port} is not between 0 and 65535"])
    given = options.log_level or environ.get("MCPX_LOG_LEVEL")
    level = (given or config.global_.log_level).upper()
    if level not in LEVELS:
        raise ConfigError([f"error: log level {level!r} is not one of {', '.join(LEVELS)}"])
    run = app.Run(
        config=config,
        transport="stdio" if _by_stdio(options, environ) else "http",
        host=options.host or environ.get("MCPX_HOST") or config.server.host,
        port=port,
        log_level=level,
        log_level_given=bool(given),
        state=None if path is None else state,  # the demo writes nothing
        reload=None if path is None else read,
        env=env,
    )
    return app.serve(run, environ)


def _by_stdio(options: argparse.Namespace, environ: Mapping[str, str]) -> bool:
    wanted = options.transport or _choice(environ, "MCPX_TRANSPORT", ("stdio", "http"))
    if wanted is not None:
        return wanted == "stdio"
    return options.host is None and options.port is None and _started_by_a_client()


def _started_by_a_client() -> bool:
    """Standard input is a pipe, a socket (Node programs give one) or a file: RUN-2."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def _choice(environ: Mapping[str, str], name: str, allowed: Collection[str]) -> str | None:
    value = environ.get(name)
    if value and value not in allowed:
        raise ConfigError([f"error: {name} is {value!r}; it must be one of {', '.join(allowed)}"])
    return value or None


def _port(environ: Mapping[str, str], default: int) -> int:
    value = environ.get("MCPX_PORT")
    if not value:
        return default
    if not value.isdigit():
        raise ConfigError([f"error: MCPX_PORT is {value!r}, not a port number"])
    return int(value)
