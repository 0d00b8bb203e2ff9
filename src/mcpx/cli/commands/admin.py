"""`mcpx admin`: a login URL of the gateway that runs on this config."""

import argparse
import os

from mcpx.cli import where
from mcpx.cli.state import state_folder

OF_THE_DEMO = "\n  The built-in demo has none: start it again for another login URL."


def options(parser: argparse.ArgumentParser) -> None:
    where.config_options(parser)
    parser.add_argument("--no-browser", action="store_true", help="only print the URL")
    where.json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.admin import admin

    path = where.required(options, "admin", OF_THE_DEMO)
    browser = not options.no_browser and not options.json
    return admin(path, state_folder(os.environ), where.overlay(options), browser, options.json)
