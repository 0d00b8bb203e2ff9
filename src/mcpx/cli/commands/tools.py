"""`mcpx tools`: every tool, or those of a server, with what they take."""

import argparse

from mcpx.cli import where
from mcpx.cli.where import use_options

EPILOG = """\
  mcpx tools                   every tool of every server
  mcpx tools github            those of one; without a running gateway only that one is started
  mcpx tools github --schema   as functions in TypeScript, with what each argument is"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="SERVER", nargs="*", help="the server; then the config file"
    )
    parser.add_argument(
        "--schema",
        action="store_true",
        help="function signatures in TypeScript; with --json schemas",
    )
    use_options(parser)


def run(options: argparse.Namespace) -> int:
    server = where.about(options)

    from mcpx.cli.listing import tools

    return tools(options, server)
