"""`mcpx pins`: what was approved of pinned servers, and what of them is held back."""

import argparse
import os

from mcpx.cli import where


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="SERVER", nargs="*", help="the server; then the config file"
    )
    where.config_options(parser, positional=False)
    where.json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.pins import Where, pins

    server = where.about(options)
    path = where.required(options, "pins --config")
    desk = Where(path, lambda: where.load(path, options), os.environ, where.overlay(options))
    return pins(desk, server, options.json)
