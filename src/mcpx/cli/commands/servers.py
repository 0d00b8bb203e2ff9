"""`mcpx servers`: every server and how it is."""

import argparse
import os
from functools import partial

from mcpx.cli import where


def options(parser: argparse.ArgumentParser) -> None:
    where.config_options(parser)
    where.json_option(parser, "a table")
    parser.add_argument("--links", action="store_true", help="also every connection, and why there is one")


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.servers import servers

    path = where.required(options, "servers")
    load = partial(where.load, path, options)  # asked for only where no gateway runs
    return servers(path, load, os.environ, where.overlay(options), options.json, options.links)
