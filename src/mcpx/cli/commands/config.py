"""`mcpx config`: what the config said before, and back to it (CFG-6)."""

import argparse

from mcpx.cli.where import config_options, json_option

EPILOG = """\
  mcpx config history             who changed it, when, and what
  mcpx config rollback NUMBER     have it say again what it said then; that is a change like any other"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("history", "rollback"), help="what to do")
    parser.add_argument("number", metavar="NUMBER", nargs="?", type=int, help="rollback: the revision")
    config_options(parser, positional=False)
    parser.add_argument("--dry-run", action="store_true", help="rollback: show what would change, and do nothing")
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.past import run as work

    return work(options)
