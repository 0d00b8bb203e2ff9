"""`mcpx token`: tokens that clients over the network show."""

import argparse
import os
from typing import TYPE_CHECKING

from mcpx.cli import where
from mcpx.cli.state import state_folder

if TYPE_CHECKING:
    from mcpx.config import Config

EPILOG = """\
  mcpx token new NAME [CONFIG]   make one and print it, once: TOKEN=$(mcpx token new laptop)
  mcpx token list                those that were made; a config's own are not among them
  mcpx token revoke NAME         end it, and everything it has opened

A config that has server.auth: {type: bearer} lets them in, a running gateway within a second."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("new", "list", "revoke"), help="what to do")
    parser.add_argument(
        "words", metavar="NAME", nargs="*", help="the token's name; for 'new' then the config file"
    )
    parser.add_argument("--config", metavar="FILE", help="new: the config file, as an option")
    parser.add_argument(
        "--env",
        metavar="NAME",
        help="new: lay the files of an environment over it (mcpx.NAME.yaml)",
    )
    parser.add_argument("--profile", metavar="P", help="new: the profile its bearer finds at /mcp")
    parser.add_argument(
        "--expires",
        metavar="WHEN",
        help="new: 30d, 12h, 2027-01-31 or 2027-01-31T12:00Z; else never",
    )
    where.json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.token import run as work

    def load() -> "Config | None":
        path = where.found(options)
        return None if path is None else where.load(path, options)

    return work(options, load, state_folder(os.environ))
