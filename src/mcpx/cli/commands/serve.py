"""`mcpx [CONFIG]`: run the gateway."""

import argparse
import os
from collections.abc import Iterator

from mcpx import __version__
from mcpx.cli import codes
from mcpx.cli.state import state_folder
from mcpx.cli.where import config_options, found, named, overlay
from mcpx.model.state import STORE

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_RULES = """\
Without --transport: stdio when standard input is a pipe, a socket or a file (a client started it), HTTP when it is a
terminal or when --host or --port is given. Without CONFIG: $MCPX_CONFIG, then mcpx.yaml, config.yaml, config.json in
this folder, then config.yaml in the user's config folder, else the built-in demo. `store:` as CONFIG is the one that
replicas keep in the store that $MCPX_STORE names; `mcpx config push FILE` puts it there.

Options of a command may stand before it: `mcpx --config FILE tools` is `mcpx tools --config FILE`.
"""


def _epilog() -> str:
    from textwrap import fill

    from mcpx.cli.table import GROUPS

    lines: list[str] = []
    for title, group in GROUPS.items():
        lines += [
            f"{title}:",
            *(f"  mcpx {_column(c.name, c.arguments)} {c.summary}" for c in group),
        ]
    lines += [
        "  mcpx " + _column("help", "[COMMAND]") + " This, or more about a command.",
        "",
        _RULES,
    ]
    ends = ", ".join(f"{code} {meaning}" for code, meaning in codes.MEANINGS.items())
    return "\n".join([*lines, fill(f"Exit codes: {ends}.", 118)])


def _column(name: str, arguments: str) -> str:
    return f"{name} {arguments}".ljust(30)


def __getattr__(name: str) -> str:
    if name == "EPILOG":  # made when somebody asks for help
        return _epilog()
    raise AttributeError(name)


def options(parser: argparse.ArgumentParser) -> None:
    config_options(parser)
    parser.add_argument(
        "--strict", action="store_true", help="an unset variable of one server is an error"
    )
    parser.add_argument("--transport", choices=("stdio", "http"), help="how clients reach mcpx")
    parser.add_argument("--host", help="address to bind (default 127.0.0.1)")
    parser.add_argument("--port", help="port to bind (default 8000; 0 takes any free one)")
    parser.add_argument(
        "--mode", metavar="MODE", choices=_Modes(), help="what clients see by default: %(choices)s"
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="over stdio: show the client this profile only"
    )
    parser.add_argument("--log-level", metavar="LEVEL", help=", ".join(LEVELS))
    told = "start the admin UI and API too; the demo in a terminal has it unless --no-admin"
    parser.add_argument("--admin", action=argparse.BooleanOptionalAction, default=None, help=told)
    parser.add_argument(
        "--admin-port", metavar="PORT", help="the same, on this port (default 8080; 0: any free)"
    )
    parser.add_argument(
        "--standalone", action="store_true", help="over stdio: a gateway for this client alone"
    )
    parser.add_argument(
        "--linger",
        metavar="SECONDS",
        help="how long a shared gateway outlives its last client (60)",
    )
    parser.add_argument("--version", action="version", version=f"mcpx {__version__}")


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.attach import attached

    if (named(options) or os.environ.get("MCPX_CONFIG")) == STORE:
        from mcpx.cli.shared import fetch

        fetch(options, os.environ)
    if (code := attached(options, os.environ)) is not None:
        return code
    from mcpx.cli.serve import serve

    return serve(found(options), options, os.environ, overlay(options), state_folder(os.environ))


class _Modes:
    """The modes there are, looked for when somebody asks."""

    def __contains__(self, name: object) -> bool:
        from mcpx.surfaces import SURFACES

        return name in SURFACES

    def __iter__(self) -> Iterator[str]:
        from mcpx.surfaces import SURFACES

        return iter(SURFACES)
