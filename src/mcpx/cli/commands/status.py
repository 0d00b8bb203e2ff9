"""`mcpx status`: whether a gateway runs on this config, since when, and how it is."""

import argparse

from mcpx.cli import where


def options(parser: argparse.ArgumentParser) -> None:
    where.config_options(parser)
    where.json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.status import status

    return status(options)
