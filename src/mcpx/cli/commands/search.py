"""`mcpx search`: find tools by words."""

import argparse

from mcpx.cli.where import use_options

EPILOG = """\
  mcpx search read a file
  mcpx search 发送邮件 --limit 5

By the ranking that models get. Exit code 1: nothing was found."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="WORDS", nargs="+", help="what the tool shall do, or its name"
    )
    parser.add_argument(
        "--limit", metavar="N", type=int, default=10, help="how many are shown (default 10)"
    )
    use_options(parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.listing import search

    return search(options)
