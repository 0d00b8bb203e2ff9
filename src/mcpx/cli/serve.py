"""`mcpx [CONFIG]`: from flags, environment and config to a `Run`, and off it goes."""

import argparse
import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from mcpx import __version__, app
from mcpx.cli.commands.serve import LEVELS
from mcpx.cli.how import by_stdio, choice, is_strict
from mcpx.config import Config, is_loopback, load, without_itself
from mcpx.config.load import Texts
from mcpx.config.locate import config_home, own_file
from mcpx.config.problems import nearest
from mcpx.core.config_files import Read
from mcpx.model.errors import ConfigError
from mcpx.office import AdminPlace
from mcpx.processes.environment import mark_of, running_inside
from mcpx.surfaces import SURFACES
from mcpx.wire.exchange import whole_number


@dataclass(frozen=True, slots=True)
class Background:
    """For clients that attach, started by one of them."""

    linger: float
    log_file: Path
    started: Callable[[], None]


def serve(
    path: Path | None,
    options: argparse.Namespace,
    environ: Mapping[str, str],
    env: str | None,
    state: Path,
    background: Background | None = None,
) -> int:
    run = run_options(path, options, environ, env, state, background)
    if path is None and run.transport == "stdio":
        _say_that_it_is_the_demo(environ)
    return app.serve(run, environ)


def run_options(
    path: Path | None,
    options: argparse.Namespace,
    environ: Mapping[str, str],
    env: str | None,
    state: Path,
    background: Background | None = None,
) -> app.Run:
    """Combine flags, environment, and configuration. Raises ConfigError."""
    # In the background each client says for itself what it wants to see.
    mode = (
        None if background is not None else options.mode or choice(environ, "MCPX_MODE", SURFACES)
    )
    strict = is_strict(options, environ)
    stdio = background is not None or by_stdio(options, environ)
    profile = (
        None if background is not None else options.profile or environ.get("MCPX_PROFILE") or None
    )

    def reading(path: Path | None) -> Read:
        def read(texts: Texts | None = None) -> Config:
            if path is None:
                from mcpx import demo

                config = demo.config()
            else:
                config = load(path, environ, env, strict=strict, texts=texts)
            if not stdio:
                config = without_itself(config, *(listens or address(options, environ, config)))
            return config if mode is None else replace(config, mode=mode)

        return read

    listens: tuple[str, int] | None = None
    read = reading(path)
    config = read(None)
    if profile is not None:
        _refuse_profile(profile, stdio, config, "--profile" if options.profile else "MCPX_PROFILE")
    host, port = listens = address(options, environ, config)  # a changed file does not change it
    itself = mark_of(path, env)
    if itself in running_inside(environ):
        # Through a wrapper that the file does not show. To the gateway above it is one more server
        # that ended.
        raise ConfigError(
            [f"error: this mcpx was started by an mcpx that runs on {path} already; it ends here"]
        )
    given = options.log_level or environ.get("MCPX_LOG_LEVEL")
    level = (given or config.global_.log_level).upper()
    if level not in LEVELS:
        raise ConfigError([f"error: log level {level!r} is not one of {', '.join(LEVELS)}"])
    admin = _admin(options, environ, config)
    if admin is not None and not stdio and (admin.host, admin.port) == (host, port) and port:
        told = f"error: clients and the admin UI would both listen on {host}:{port}"
        raise ConfigError(
            [
                f"{told}\n  Give one of them another port: --port or --admin-port, 0 takes any "
                "free one."
            ]
        )
    return app.Run(
        config=config,
        transport="stdio" if stdio else "http",
        host=host,
        port=port,
        log_level=level,
        log_level_given=bool(given),
        or_another_port=path is None and options.port is None and not environ.get("MCPX_PORT"),
        state=None if path is None else state,  # the demo writes nothing
        reload=None if path is None else read,
        fresh=(own_file(environ), reading(own_file(environ)), state)
        if path is None and admin is not None
        else None,
        env=env,
        profile=profile,
        itself=itself,
        admin=admin,
        linger=None if background is None else background.linger,
        log_file=None if background is None else background.log_file,
        started=None if background is None else background.started,
        store=None if stdio else store_address(environ, config),
    )


def _refuse_profile(name: str, by_stdio: bool, config: Config, said: str) -> None:
    """One that is not there, or that would not be kept to."""
    names = [profile.name for profile in config.profiles]
    if name not in names:
        raise ConfigError([f"error: {unknown_profile(name, names, said)}"])
    if not by_stdio:
        what = (
            f"error: {said} is for a client over stdio; over HTTP the profile is at "
            f"/p/{quote(name, safe='')}/mcp"
        )
        raise ConfigError([what])


def unknown_profile(name: str, names: Collection[str], said: str = "") -> str:
    meant = nearest(name, list(names))
    hint = (
        f"did you mean {meant!r}?" if meant else f"there is {', '.join(map(repr, names)) or 'none'}"
    )
    return f"{f'{said}: ' if said else ''}no profile is named {name!r}; {hint}"


def address(
    options: argparse.Namespace, environ: Mapping[str, str], config: Config
) -> tuple[str, int]:
    """Where it listens over HTTP."""
    host, port = (
        getattr(options, "host", None),
        getattr(options, "port", None),
    )  # `check` has no such flags
    port = port_number(port, "--port") if port is not None else _port(environ, config.server.port)
    return host or environ.get("MCPX_HOST") or config.server.host, port


def _admin(
    options: argparse.Namespace, environ: Mapping[str, str], config: Config
) -> AdminPlace | None:
    """Where the admin UI is to be found, if anybody wants it; beside the demo in a terminal it is
    (RUN-3)."""
    wanted: bool | None = True if options.admin_port is not None else options.admin
    if (
        wanted is None
        and (said := choice(environ, "MCPX_ADMIN", ("true", "false", "1", "0"))) is not None
    ):
        wanted = said in ("true", "1")
    first = (
        wanted is None and config.path is None and not by_stdio(options, environ) and os.isatty(0)
    )
    if not wanted and not first:
        return None
    server = config.server
    if options.admin_port is not None:
        port = port_number(options.admin_port, "--admin-port")
    else:
        given = environ.get("MCPX_ADMIN_PORT")
        port = port_number(given, "MCPX_ADMIN_PORT") if given else server.admin_port
    own = server.host if is_loopback(server.host) else "127.0.0.1"
    host = (server.admin.host if server.admin is not None else None) or own
    return AdminPlace(
        host=host, port=port, token=environ.get("MCPX_ADMIN_TOKEN") or None, or_another=first
    )


def store_address(environ: Mapping[str, str], config: Config) -> str | None:
    """Over stdio there is one client and one process: nothing is shared."""
    given = environ.get("MCPX_STORE")
    if not given:
        return config.server.store
    from mcpx.replicas.address import parse
    from mcpx.wire.address import BadAddress

    try:
        parse(given)
    except BadAddress as problem:
        raise ConfigError([f"error: MCPX_STORE: {problem}"]) from None
    return given


def _say_that_it_is_the_demo(environ: Mapping[str, str]) -> None:
    """In a client's log, where somebody wonders whose tools these are; over HTTP the greeting says
    it."""
    own = Path(config_home(environ), "mcpx", "config.yaml")
    places = f"MCPX_CONFIG, mcpx.yaml, config.yaml and config.json in {Path.cwd()}, {own}"
    line = f"mcpx {__version__} · no config found (looked at {places}), running the built-in demo\n"
    with contextlib.suppress(
        OSError
    ):  # nobody listens, or the disk is full; unbuffered, so that it is over with
        os.write(2, line.encode(errors="replace"))


def _port(environ: Mapping[str, str], default: int) -> int:
    value = environ.get("MCPX_PORT")
    return port_number(value, "MCPX_PORT") if value else default


def port_number(text: str, name: str) -> int:
    """A port as somebody wrote it: in plain digits, for int() takes ٣ and 1_000 too."""
    number = whole_number(text)
    if number is None or number > 65535:
        raise ConfigError(
            [f"error: {name} is {text[:40]!r}; a port is a number from 0 (any free one) to 65535"]
        )
    return number
