"""`mcpx version`: which mcpx this is, and on what it runs; the first thing a report of a problem
needs."""

import argparse
import platform
import sys

from mcpx import __version__
from mcpx.cli.terminal import print_json
from mcpx.cli.where import json_option


def options(parser: argparse.ArgumentParser) -> None:
    json_option(parser, "a line")


def run(options: argparse.Namespace) -> int:
    system = f"{platform.system()} {platform.machine()}"
    if options.json:
        told = {"version": __version__, "python": platform.python_version(), "system": system}
        print_json({**told, "executable": sys.executable})
    else:
        sys.stdout.write(f"mcpx {__version__} · Python {platform.python_version()} · {system}\n")
    return 0
