"""`mcpx config`: what the config said before, and back to it (CFG-6); and a file made that of all
replicas (SCA-1)."""

import argparse

from mcpx.cli.where import config_options, json_option

EPILOG = """\
  mcpx config history             who changed it, when, and what
  mcpx config rollback NUMBER     have it say again what it said then; that is a change like any other
  mcpx config push [FILE]         make it the configuration of all replicas"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("history", "rollback", "push"), help="what to do")
    parser.add_argument(
        "what", metavar="NUMBER | FILE", nargs="?", help="rollback: the revision; push: the file"
    )
    config_options(parser, positional=False)
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would change, and do nothing"
    )
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    if options.action == "push":
        from mcpx.cli.shared import push

        return push(options)
    from mcpx.cli.past import run as work

    return work(options)
