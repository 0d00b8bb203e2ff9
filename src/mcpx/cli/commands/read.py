"""`mcpx read`: read a resource; without one, list them."""

import argparse

from mcpx.cli.where import seconds, use_options

EPILOG = """\
  mcpx read                          every resource, and templates of more
  mcpx read file:///etc/hosts        by its own URI, or the one it is listed under
  mcpx read res://logo -o logo.png   bytes go into a file"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("uri", metavar="URI", nargs="?", help="the resource")
    parser.add_argument("-o", "--output", metavar="FILE", help="write what was read into a file")
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, help="give up after so many seconds"
    )
    use_options(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.offers import read

    return read(options)
