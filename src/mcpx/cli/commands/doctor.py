"""`mcpx doctor`: what breaks first runs, and how to mend it (RUN-4)."""

import argparse

from mcpx.cli import where

EPILOG = """\
  mcpx doctor               the config, its programs, the gateway, the client programs; nothing is started
  mcpx doctor github        start this server once for real, and say how far it gets
  mcpx doctor --json        the same for programs

Exit code 0: nothing is broken, whatever it warns of; 1: something is."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="SERVER", nargs="*", help="a server to start once; then the config file"
    )
    where.config_options(parser, positional=False)
    where.json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.doctor.examining import run as examine

    return examine(options)
