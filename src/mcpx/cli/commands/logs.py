"""`mcpx logs`: what servers and the gateway have printed."""

import argparse

from mcpx.cli import where

EPILOG = """\
  mcpx logs              the last lines of every server, in the order they came
  mcpx logs github -f    of one, and what comes, until Ctrl-C
  mcpx logs mcpx         the gateway's own log, where it goes to a file"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="SERVER", nargs="*", help="the server, or mcpx; then the config file"
    )
    where.config_options(parser, positional=False)
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what comes, until Ctrl-C"
    )
    parser.add_argument(
        "-n", "--lines", metavar="N", type=int, default=50, help="how many lines (default 50)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


def run(options: argparse.Namespace) -> int:
    server = where.about(options)

    from mcpx.cli.logs import logs

    return logs(options, server)
