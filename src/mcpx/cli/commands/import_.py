"""`mcpx import`: the servers of client programs, of any config file, and commands of an OpenAPI
document or a curl command line (RUN-5, SRC-7)."""

import argparse
from typing import cast

from mcpx.cli.parsing import Parser
from mcpx.cli.where import json_option

EPILOG = """\
  mcpx import                              every client program on this machine
  mcpx import cursor claude-code           these
  mcpx import ~/old/mcp.json --dry-run     any client's file, or another config: what would change
  mcpx import openapi https://api.example.com/openapi.json --tag pets -o pets.yaml
  mcpx import curl 'curl https://api.example.com/v1/pets?limit=5 -H "Authorization: Bearer $TOKEN"'

'clients' is what is meant where no kind is named. It adds to your config and changes nothing in a client's own
file; 'mcpx connect' does. Commands made of OpenAPI or curl go to standard output, or to a file with -o."""

SECRETS = ("env", "keyring", "config")


def options(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    clients = kinds.add_parser(
        "clients",
        help=(
            "client programs, or a config file of any shape (this is meant where no kind is named)"
        ),
        description="Take over the servers of client programs, or of a config file of any shape.",
    )
    _clients(clients)
    if isinstance(parser, Parser):
        parser.otherwise = "clients", cast(Parser, clients)
    openapi = kinds.add_parser(
        "openapi",
        help="an OpenAPI document, 3.0 or 3.1",
        description="The operations of an OpenAPI document.",
    )
    openapi.add_argument(
        "document", metavar="DOCUMENT", help="a file, or an http or https address; JSON or YAML"
    )
    for name, told in (
        ("only", "take operations whose id, name or 'METHOD /path' match this pattern (* and ?)"),
        ("skip", "leave out operations that match this pattern"),
        ("tag", "take operations with this tag"),
        ("method", "take operations with this method"),
    ):
        openapi.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar=name.upper(),
            help=f"{told}; repeatable",
        )
    openapi.add_argument(
        "--deprecated", action="store_true", help="take deprecated operations, too"
    )
    openapi.add_argument(
        "--server", metavar="URL", help="where the API is, instead of what the document says"
    )
    openapi.add_argument("--prefix", default="", metavar="P", help="begin every name with this")
    openapi.add_argument(
        "--list", action="store_true", help="show the operations and write nothing"
    )
    curl = kinds.add_parser(
        "curl", help="a curl command line", description="One curl command line as a command."
    )
    curl.add_argument(
        "line", metavar="LINE", nargs="*", help="the command line in quotes, or its words after --"
    )
    curl.add_argument("--name", metavar="N", help="the command's name")
    curl.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME",
        help=(
            "make an argument of this query parameter, field or header, and keep the rest as it "
            "is; repeatable"
        ),
    )
    for each in (openapi, curl):
        each.add_argument(
            "--auth", metavar="NAME", help="use this auth config of yours, and write none"
        )
        each.add_argument(
            "--allow-private", action="store_true", help="let private addresses be reached"
        )
        each.add_argument(
            "-o", "--output", metavar="FILE", help="write a new file instead of standard output"
        )
        each.add_argument("--force", action="store_true", help="overwrite FILE")
        each.add_argument(
            "--json", action="store_true", help="one JSON object that says everything"
        )


def _clients(parser: argparse.ArgumentParser) -> None:
    told = (
        "a client program (cursor, claude-desktop, …), a config file, or - for standard input; "
        "none: every program"
    )
    parser.add_argument("what", metavar="CLIENT | FILE", nargs="*", help=told)
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="take servers of this name (* and ?)",
    )
    parser.add_argument(
        "--skip", action="append", default=[], metavar="NAME", help="leave out servers of this name"
    )
    parser.add_argument(
        "--into",
        "--config",
        dest="config",
        metavar="FILE",
        help="write into this config, instead of the one in use",
    )
    parser.add_argument(
        "--env", metavar="NAME", help="the environment whose files lie over the config"
    )
    parser.add_argument(
        "--replace", action="store_true", help="replace servers of the same name that differ"
    )
    parser.add_argument(
        "--secrets",
        choices=SECRETS,
        help="where secrets go that stand in the files: a .env file beside the config (what is "
        "done where nobody can "
        "be asked), the system's keyring, or the config itself",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would change, and write nothing"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="write without asking")
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    if options.kind == "clients":
        from mcpx.cli.importing import run as take_over

        return take_over(options)
    from mcpx.cli.imports import run as work

    return work(options)
