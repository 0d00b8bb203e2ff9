"""`mcpx servers`: every server and how it is."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from mcpx.cli import where

if TYPE_CHECKING:
    from mcpx.config import Config


def options(parser: argparse.ArgumentParser) -> None:
    where.config_options(parser)
    where.json_option(parser, "a table")
    parser.add_argument(
        "--links", action="store_true", help="also every connection, and why there is one"
    )


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.servers import servers

    found = where.found(options)
    path = None if found is None else where.required(options, "servers")

    def load() -> "Config":  # Needed only where no gateway runs.
        return _demo() if path is None else where.load(path, options)

    return servers(path, load, os.environ, where.overlay(options), options.json, options.links)


def _demo() -> "Config":
    from mcpx import demo

    if sys.stderr.isatty():
        sys.stderr.write("no config found; this is the built-in demo\n")
    return demo.config()
