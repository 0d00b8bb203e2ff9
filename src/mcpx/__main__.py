"""The command line: `mcpx [CONFIG]` serves, `mcpx check [CONFIG]` validates."""

import argparse
import difflib
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mcpx import __version__
from mcpx.model.errors import ConfigError

COMMANDS = ("serve", "check")
MODES = ("direct", "inspect", "describe", "search", "auto")

EPILOG = """\
Without --transport: stdio when standard input is a pipe, a socket or a file (a client started it), HTTP when it is a
terminal or when --host or --port is given. Without CONFIG: $MCPX_CONFIG, then mcpx.yaml, config.yaml, config.json in
this folder, then config.yaml in the user's config folder, else the built-in demo.
Exit codes: 0 ended cleanly, 1 could not run, 2 a mistake in the config or on the command line."""


def main(argv: Sequence[str] | None = None) -> int:
    _open_standard_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = "serve"
    if arguments and arguments[0] in COMMANDS:
        command = arguments.pop(0)
    options = _parser(command).parse_args(arguments)
    try:
        return _check(options) if command == "check" else _serve(options)
    except ConfigError as error:
        sys.stderr.write("\n\n".join(error.problems) + "\n")
        return 2
    except KeyboardInterrupt:
        return 130


def _open_standard_streams() -> None:
    """The null device in the place of a closed standard stream: else the next thing opened gets its number."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, so this one
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _parser(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mcpx" if command == "serve" else f"mcpx {command}",
        description="One MCP gateway in front of many MCP servers."
        if command == "serve"
        else "Validate a config file and say what it holds.",
        epilog=EPILOG + "\nCommands: check (see mcpx check --help)" if command == "serve" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config_file", metavar="CONFIG", nargs="?", help="the config file")
    parser.add_argument("--config", metavar="FILE", help="the same, as an option")
    if command == "serve":
        parser.add_argument("--transport", choices=("stdio", "http"), help="how clients reach mcpx")
        parser.add_argument("--host", help="address to bind (default 127.0.0.1)")
        parser.add_argument("--port", type=int, help="port to bind (default 8000; 0 takes any free one)")
        parser.add_argument("--mode", choices=MODES, help="what clients see by default")
        parser.add_argument("--log-level", metavar="LEVEL", help="DEBUG, INFO, WARNING or ERROR")
        parser.add_argument("--admin", action="store_true", help="start the admin UI (not in this version yet)")
        parser.add_argument("--admin-port", type=int, metavar="PORT", help="port of the admin UI")
        parser.add_argument("--version", action="version", version=f"mcpx {__version__}")
    return parser


def _named(options: argparse.Namespace) -> str | None:
    """The config file named on the command line, once."""
    named = options.config or options.config_file
    if options.config and options.config_file:
        raise ConfigError(["error: the config file is named twice, as an argument and by --config"])
    if options.config_file and not Path(options.config_file).exists() and not _looks_like_file(options.config_file):
        near = difflib.get_close_matches(str(options.config_file), COMMANDS, n=1, cutoff=0.5)
        hint = f"; did you mean 'mcpx {near[0]}'?" if near else ""
        raise ConfigError([f"error: {options.config_file!r} is neither a command nor a file{hint}"])
    return named


def _looks_like_file(word: str) -> bool:
    return "/" in word or os.sep in word or Path(word).suffix.lower() in (".yaml", ".yml", ".json", ".jsonc")


def _check(options: argparse.Namespace) -> int:
    from mcpx.config import find, load

    path = find(_named(options), os.environ, Path.cwd())
    if path is None:
        raise ConfigError(["error: no config file found here; name one: mcpx check FILE"])
    config = load(path, os.environ)
    for warning in config.warnings:
        sys.stderr.write(f"warning: {warning}\n")
    enabled = sum(server.enabled for server in config.mcp_servers)
    sys.stdout.write(
        f"{path}: good · {config.dialect} shape · mode {config.mode} · {enabled} of {len(config.mcp_servers)}"
        f" servers enabled · {len(config.commands)} commands\n"
    )
    return 0


def _serve(options: argparse.Namespace) -> int:
    from dataclasses import replace

    from mcpx.app import Run, serve
    from mcpx.config import find, load

    environ = os.environ
    if options.admin or options.admin_port is not None:
        raise ConfigError(["error: the admin UI is not part of this version yet; leave --admin out"])
    path = find(_named(options), environ, Path.cwd())
    if path is None:
        from mcpx import demo

        config = demo.config()
    else:
        config = load(path, environ)
    mode = options.mode or _choice(environ, "MCPX_MODE", MODES)
    if mode is not None:
        config = replace(config, mode=mode)
    host = options.host or environ.get("MCPX_HOST") or config.server.host
    port = options.port if options.port is not None else _port(environ, config.server.port)
    if not 0 <= port <= 65535:
        raise ConfigError([f"error: port {port} is not between 0 and 65535"])
    levels = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
    level = (options.log_level or environ.get("MCPX_LOG_LEVEL") or config.global_.log_level).upper()
    if level not in levels:
        raise ConfigError([f"error: log level {level!r} is not one of {', '.join(levels)}"])
    wanted = options.transport or _choice(environ, "MCPX_TRANSPORT", ("stdio", "http"))
    if wanted is None:
        named = options.host is not None or options.port is not None
        wanted = "stdio" if not named and _started_by_a_client() else "http"
    transport = "stdio" if wanted == "stdio" else "http"
    return serve(Run(config=config, transport=transport, host=host, port=port, log_level=level), environ)


def _choice(environ: Mapping[str, str], name: str, allowed: Sequence[str]) -> str | None:
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


def _started_by_a_client() -> bool:
    """Standard input is a pipe, a socket (Node programs give one) or a file: RUN-2."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


if __name__ == "__main__":
    sys.exit(main())
