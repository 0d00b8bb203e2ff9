"""`mcpx approve`: see what waits for approval, and approve it."""

import argparse
import os

from mcpx.cli import where


def options(parser: argparse.ArgumentParser) -> None:
    told = "a server, SERVER.TOOL, or the id of a call; then the config file"
    parser.add_argument("words", metavar="WHAT", nargs="*", help=told)
    where.config_options(parser, positional=False)
    where.json_option(parser)
    parser.add_argument("--yes", action="store_true", help="approve what is shown without asking")
    parser.add_argument("--deny", action="store_true", help="refuse a call")


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.approve import approve
    from mcpx.cli.pins import Where

    what = where.about(options)
    path = where.required(options, "approve --config")
    desk = Where(path, lambda: where.load(path, options), os.environ, where.overlay(options))
    return approve(desk, what, yes=options.yes, deny=options.deny, as_json=options.json)
