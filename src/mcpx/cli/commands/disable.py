"""`mcpx disable`: servers and commands of the config, by their names (CFG-6)."""

import argparse

from mcpx.cli.where import config_options, json_option


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+", help="what it is called; several do")
    config_options(parser, positional=False)
    parser.add_argument(
        "--kind", choices=("server", "command"), help="which of two that have the name"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would change, and do nothing"
    )
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.entries import run as work

    return work("disable", options)
