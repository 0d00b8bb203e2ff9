"""`mcpx export`: the configuration for somebody else, without its secrets."""

import argparse

from mcpx.cli.where import config_options, json_option


def options(parser: argparse.ArgumentParser) -> None:
    config_options(parser)
    parser.add_argument(
        "--format", choices=("yaml", "json", "mcpServers"), default="yaml", help="default: yaml"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write a new file instead of standard output"
    )
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.export import run as work

    return work(options)
