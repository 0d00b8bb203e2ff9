"""`mcpx reload`: have the running gateway read its config again (CFG-5)."""

import argparse
import os

from mcpx.cli import where
from mcpx.cli.state import state_folder


def options(parser: argparse.ArgumentParser) -> None:
    where.config_options(parser)
    where.json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.servers import reload

    path = where.required(options, "reload")
    return reload(path, state_folder(os.environ), where.overlay(options), options.json)
