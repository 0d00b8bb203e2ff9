"""`mcpx [CONFIG]`: combines flags, environment, and configuration into a `Run`, and runs it."""

import argparse
import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from mcpx import __version__, app
from mcpx.cli.options import LEVELS
from mcpx.cli.parsing import suggestion
from mcpx.cli.running import mistake
from mcpx.cli.serve_flags import FALSE, TRUE, by_stdio, choice, is_strict
from mcpx.config import Config, is_loopback, load, without_itself
from mcpx.config.load import Texts
from mcpx.config.locate import config_home, own_file
from mcpx.core.config_files import Read
from mcpx.model.state import state_folder
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
    background: Background | None = None,
) -> int:
    run = run_options(path, options, environ, background)
    if path is None and run.transport == "stdio":
        _announce_demo(environ)
    return app.serve(run, environ)


def run_options(
    path: Path | None,
    options: argparse.Namespace,
    environ: Mapping[str, str],
    background: Background | None = None,
) -> app.Run:
    """Combine flags, environment, and configuration. Raises ConfigError."""
    env = options.env or environ.get("MCPX_ENV") or None
    state = state_folder(environ)
    stdio = background is not None or by_stdio(options, environ)
    mode = options.mode or choice(environ, "MCPX_MODE", SURFACES)
    profile = options.profile or environ.get("MCPX_PROFILE") or None
    if background is not None:  # Each client says what it wants to see.
        mode = profile = None
    strict = is_strict(options, environ)

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
        _check_profile(profile, stdio, config, "--profile" if options.profile else "MCPX_PROFILE")
    host, port = listens = address(options, environ, config)  # A changed file does not change it.
    itself = mark_of(path, env)
    if itself in running_inside(environ):
        # The gateway starts itself through a wrapper that the file does not show.
        raise mistake(f"this mcpx was started by an mcpx that runs on {path} already; it ends here")
    run = app.Run(
        config=config,
        transport="stdio" if stdio else "http",
        host=host,
        port=port,
        log_level=_log_level(options, environ, config),
        log_level_given=bool(options.log_level or environ.get("MCPX_LOG_LEVEL")),
        env=env,
        profile=profile,
        itself=itself,
        admin=_admin(options, environ, config),
    )
    if path is not None:
        run = replace(run, state=state, reload=read)
    else:  # The demo writes nothing.
        is_any_port = options.port is None and not environ.get("MCPX_PORT")
        run = replace(run, or_another_port=is_any_port)
        if run.admin is not None:
            own = own_file(environ)
            run = replace(run, fresh=(own, reading(own), state))
    if not stdio:
        _check_ports(run)
        run = replace(run, store=store_address(environ, config))
    if background is not None:
        linger, log_file, started = background.linger, background.log_file, background.started
        run = replace(run, linger=linger, log_file=log_file, started=started)
    return run


def _log_level(options: argparse.Namespace, environ: Mapping[str, str], config: Config) -> str:
    given = options.log_level or environ.get("MCPX_LOG_LEVEL")
    level = (given or config.global_.log_level).upper()
    if level not in LEVELS:
        raise mistake(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    return level


def _check_ports(run: app.Run) -> None:
    admin = run.admin
    if admin is None or not run.port or (admin.host, admin.port) != (run.host, run.port):
        return
    raise mistake(
        f"clients and the admin UI would both listen on {run.host}:{run.port}\n  Give "
        "one of them another port: --port or --admin-port, 0 takes any free one."
    )


def _check_profile(name: str, by_stdio: bool, config: Config, source: str) -> None:
    check_profile(name, [profile.name for profile in config.profiles], f"{source}: ")
    if not by_stdio:
        path = f"/p/{quote(name, safe='')}/mcp"
        raise mistake(f"{source} is for a client over stdio; over HTTP the profile is at {path}")


def check_profile(name: str, known: Collection[str], source: str = "") -> None:
    if name in known:
        return
    there = ", ".join(map(repr, known)) or "none"
    hint = suggestion(name, known, f"there is {there}")
    raise mistake(f"{source}no profile is named {name!r}; {hint}")


def address(
    options: argparse.Namespace, environ: Mapping[str, str], config: Config
) -> tuple[str, int]:
    """Where the gateway listens over HTTP. `options` of other commands have no such flags."""
    host = getattr(options, "host", None) or environ.get("MCPX_HOST") or config.server.host
    port = getattr(options, "port", None)
    if port is not None:
        return host, port_number(port, "--port")
    return host, _port_of(environ, "MCPX_PORT", config.server.port)


def _admin(
    options: argparse.Namespace, environ: Mapping[str, str], config: Config
) -> AdminPlace | None:
    """Where the admin UI is served, if it is wanted. The demo in a terminal has it (RUN-3)."""
    wanted: bool | None = options.admin
    if options.admin_port is not None:
        wanted = True
    if wanted is None:
        said = choice(environ, "MCPX_ADMIN", (*TRUE, *FALSE))
        if said is not None:
            wanted = said in TRUE
    by_default = wanted is None and config.path is None
    by_default = by_default and not by_stdio(options, environ) and os.isatty(0)
    if not wanted and not by_default:
        return None
    server = config.server
    host = server.host if is_loopback(server.host) else "127.0.0.1"
    if server.admin is not None and server.admin.host:
        host = server.admin.host
    if options.admin_port is not None:
        port = port_number(options.admin_port, "--admin-port")
    else:
        port = _port_of(environ, "MCPX_ADMIN_PORT", server.admin_port)
    token = environ.get("MCPX_ADMIN_TOKEN") or None
    return AdminPlace(host=host, port=port, token=token, or_another=by_default)


def store_address(environ: Mapping[str, str], config: Config) -> str | None:
    given = environ.get("MCPX_STORE")
    if not given:
        return config.server.store
    from mcpx.replicas.address import parse
    from mcpx.wire.address import BadAddress

    try:
        parse(given)
    except BadAddress as problem:
        raise mistake(f"MCPX_STORE: {problem}") from None
    return given


def _announce_demo(environ: Mapping[str, str]) -> None:
    """Write to the client's log whose tools these are. Over HTTP, the greeting says it."""
    own = Path(config_home(environ), "mcpx", "config.yaml")
    places = f"MCPX_CONFIG, mcpx.yaml, config.yaml and config.json in {Path.cwd()}, {own}"
    line = f"mcpx {__version__} · no config found (looked at {places}), running the built-in demo\n"
    with contextlib.suppress(OSError):  # The reader may have gone, or the disk may be full.
        os.write(2, line.encode(errors="replace"))


def _port_of(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name)
    return port_number(text, name) if text else default


def port_number(text: str, name: str) -> int:
    """Accepts ASCII digits only: int() accepts ٣ and 1_000, too."""
    number = whole_number(text)
    if number is None or number > 65535:
        raise mistake(f"{name} is {text[:40]!r}; a port is a number from 0 (any free one) to 65535")
    return number
