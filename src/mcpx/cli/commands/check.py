"""`mcpx check`: validate a config file and say what it holds (CFG-8)."""

import argparse

from mcpx.cli.where import config_options, json_option, required


def options(parser: argparse.ArgumentParser) -> None:
    config_options(parser)
    parser.add_argument(
        "--strict", action="store_true", help="an unset variable of a server or command is an error"
    )
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.check import check

    return check(required(options, "check"), options)
