"""`mcpx disconnect`: take mcpx out of client programs, whoever wrote it there (RUN-5)."""

import argparse

from mcpx.cli.commands.connect import change_options, client_options
from mcpx.cli.where import json_option


def options(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument(
        "--project",
        action="store_true",
        help="the file of the project in this folder, not your own",
    )
    change_options(parser)
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.disconnect import disconnect

    return disconnect(options)
