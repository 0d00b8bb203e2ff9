"""`mcpx explain PROFILE TOOL`: whether a tool is seen and may be called, and what decided it."""

import argparse
import os

from mcpx.cli import where
from mcpx.cli.state import state_folder


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profile", metavar="PROFILE", help="the profile; '-' is without one")
    parser.add_argument(
        "tool", metavar="TOOL", help="the tool by the name it is listed under, or server.tool"
    )
    where.config_options(parser)
    parser.add_argument(
        "--principal", metavar="NAME", default="anonymous", help="who calls (default: anonymous)"
    )
    where.json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.explain import explain

    config = where.load(where.required(options, "explain PROFILE TOOL"), options)
    state = state_folder(os.environ)
    return explain(
        config, options.profile, options.tool, options.principal, os.environ, state, options.json
    )
