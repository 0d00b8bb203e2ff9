"""`mcpx remove`: servers and commands of the config, by their names (CFG-6)."""

import argparse

from mcpx.cli.where import config_options, json_option


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+", help="what it is called; several do")
    config_options(parser, positional=False)
    parser.add_argument(
        "--kind", choices=("server", "command", "auth"), help="which of two that have the name"
    )
    parser.add_argument("--force", action="store_true", help="although something refers to it")
    parser.add_argument("--purge", action="store_true", help="with the files of a bundle")
    parser.add_argument("-y", "--yes", action="store_true", help="ask nothing")
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would change, and do nothing"
    )
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.entries import run as work

    return work("remove", options)
