"""`mcpx connect`: write mcpx into client programs, and take that back (RUN-5)."""

import argparse

from mcpx.cli.where import config_options, json_option

EPILOG = """\
Without a CLIENT it lists those that are found on this machine. Each change is shown before it is made, and a copy of
the file is kept: 'mcpx connect --undo' takes the last change back.

  mcpx connect cursor             for you, everywhere
  mcpx connect cursor --project   for this folder
  mcpx connect --all --dry-run    what it would change
  mcpx connect --all --replace    also disable the clients' own entries for servers of the config
"""


def options(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument(
        "--project",
        action="store_true",
        help="the file of the project in this folder, not your own",
    )
    parser.add_argument(
        "--transport",
        choices=("stdio", "http"),
        help=(
            "stdio (default): the client starts mcpx, which joins the one that runs; http: one "
            "you keep running"
        ),
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="what the client sees: a profile of the config"
    )
    parser.add_argument(
        "--print",
        action="store_true",
        help="print what to paste, and the vendor's command; write nothing",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="disable (else remove) the client's own entries for servers that the config has",
    )
    parser.add_argument(
        "--undo",
        action="store_true",
        help="take the last change back, or the last one of each CLIENT",
    )
    change_options(parser)
    config_options(parser, positional=False)
    json_option(parser)


def client_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "clients",
        metavar="CLIENT",
        nargs="*",
        help="claude-code, cursor, vscode, … ('--all --print' has all)",
    )
    parser.add_argument("--all", action="store_true", help="every client that is found")


def change_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would change; write nothing"
    )
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.connect import connect

    return connect(options)
