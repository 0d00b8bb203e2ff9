"""`mcpx import`: commands of an OpenAPI document or a curl command line (SRC-7)."""

import argparse

EPILOG = """\
  mcpx import openapi https://api.example.com/openapi.json --tag pets -o pets.yaml
  mcpx import openapi openapi.yaml --list
  mcpx import curl 'curl https://api.example.com/v1/pets?limit=5 -H "Authorization: Bearer $TOKEN"'
  mcpx import curl -- curl https://api.example.com/v1/pets

Without -o the YAML goes to standard output. A config may be a folder of files: put the new one beside the others."""


def options(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    openapi = kinds.add_parser(
        "openapi", help="an OpenAPI document, 3.0 or 3.1", description="The operations of an OpenAPI document."
    )
    openapi.add_argument("document", metavar="DOCUMENT", help="a file, or an http or https address; JSON or YAML")
    for name, told in (
        ("only", "take operations whose id, name or 'METHOD /path' match this pattern (* and ?)"),
        ("skip", "leave out operations that match this pattern"),
        ("tag", "take operations with this tag"),
        ("method", "take operations with this method"),
    ):
        openapi.add_argument(f"--{name}", action="append", default=[], metavar=name.upper(), help=f"{told}; repeatable")
    openapi.add_argument("--deprecated", action="store_true", help="take deprecated operations, too")
    openapi.add_argument("--server", metavar="URL", help="where the API is, instead of what the document says")
    openapi.add_argument("--prefix", default="", metavar="P", help="begin every name with this")
    openapi.add_argument("--list", action="store_true", help="show the operations and write nothing")
    curl = kinds.add_parser("curl", help="a curl command line", description="One curl command line as a command.")
    curl.add_argument("line", metavar="LINE", nargs="*", help="the command line in quotes, or its words after --")
    curl.add_argument("--name", metavar="N", help="the command's name")
    curl.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME",
        help="make an argument of this query parameter, field or header, and keep the rest as it is; repeatable",
    )
    for each in (openapi, curl):
        each.add_argument("--auth", metavar="NAME", help="use this auth config of yours, and write none")
        each.add_argument("--allow-private", action="store_true", help="let private addresses be reached")
        each.add_argument("-o", "--output", metavar="FILE", help="write a new file instead of standard output")
        each.add_argument("--force", action="store_true", help="overwrite FILE")
        each.add_argument("--json", action="store_true", help="one JSON object that says everything")


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.imports import run as work

    return work(options)
