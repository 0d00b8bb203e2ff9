"""`mcpx migrate`: a config of any shape in the native one (CFG-8)."""

import argparse

from mcpx.cli.where import config_options, json_option

EPILOG = """\
  mcpx migrate old.json                 print it
  mcpx migrate old.json -o mcpx.yaml    write a new file
  mcpx migrate config.json --in-place   change the file itself; what it was stays beside it

Mode and naming of the old shape are written out, so that everything goes on as it was."""


def options(parser: argparse.ArgumentParser) -> None:
    config_options(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write a new file, .yaml or .json")
    parser.add_argument(
        "--in-place",
        action="store_true",
        help="change the file itself; what it was stays beside it",
    )
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be written, and do nothing"
    )
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.migrate import run as work

    return work(options)
