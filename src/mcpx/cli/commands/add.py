"""`mcpx add`: whatever somebody has of a server, into the config."""

import argparse

from mcpx.cli.where import json_option

EPILOG = """\
  mcpx add npx -y @modelcontextprotocol/server-filesystem .     a command line; also after --
  mcpx add -e API_KEY=VALUE npx -y example-mcp                  a variable for the program
  mcpx add example -e API_KEY=VALUE -- npx -y example-mcp       with a name, as in 'claude mcp add'
  mcpx add https://example.com/mcp --header 'Authorization=Bearer ${TOKEN}'
  mcpx add claude_desktop_config.json                           a client's file; - reads standard input
  mcpx add '{"mcpServers": {"a": {"command": "npx", "args": ["-y", "a"]}}}'
  mcpx add openapi.yaml --tag pets                              HTTP commands of an API
  mcpx add 'curl https://api.example.com/v1/pets'
  mcpx add server.mcpb --set api_key='${API_KEY}'               a bundle; it is unpacked below the state folder
  mcpx add io.github.owner/name                                 a name in a registry (MCPX_REGISTRY), or a server.json

Options of mcpx go before a command line, and before or after anything else. A server is tried before it is written."""


def options(parser: argparse.ArgumentParser) -> None:
    def several(name: str, told: str, value: str = "KEY=VALUE", letter: str = "") -> None:
        names = [f"-{letter}"] * bool(letter) + [f"--{name}"]
        parser.add_argument(
            *names, metavar=value, action="append", default=[], help=f"{told}; repeatable"
        )

    parser.add_argument(
        "words", metavar="ANYTHING", nargs=argparse.REMAINDER, help="what there is of the server"
    )
    parser.add_argument(
        "--config", metavar="FILE", help="the config file; one that is not there is made"
    )
    parser.add_argument("--name", metavar="N", help="what it is called")
    several("env", "a variable for its program", letter="e")
    several("header", "a header for its address")
    parser.add_argument("--prefix", metavar="P", help="begin the names of its tools with this")
    parser.add_argument("--description", metavar="TEXT", help="what it is for")
    parser.add_argument("--disabled", action="store_true", help="add it switched off")
    parser.add_argument(
        "--trust",
        choices=("open", "pin", "quarantine"),
        help="how its tools' definitions are guarded",
    )
    parser.add_argument(
        "--secrets",
        choices=("env", "keyring", "config"),
        help="where secrets are kept; default: env",
    )
    several("set", "a setting of a bundle, a registry entry, or an OpenAPI document")
    parser.add_argument("--into", metavar="FOLDER", help="bundles: unpack it here")
    kinds = ("remote", "npm", "pypi", "oci", "nuget", "mcpb")
    parser.add_argument(
        "--package", choices=kinds, help="registries: which of several ways to run it"
    )
    several(
        "only",
        "OpenAPI: take operations whose id, name or 'METHOD /path' match this pattern",
        "ONLY",
    )
    several("skip", "OpenAPI: leave out operations that match this pattern", "SKIP")
    several("tag", "OpenAPI: take operations with this tag", "TAG")
    parser.add_argument(
        "--allow-private",
        action="store_true",
        help="let documents be fetched from private addresses",
    )
    parser.add_argument(
        "--replace", action="store_true", help="in the place of one that has its name"
    )
    parser.add_argument("--no-test", action="store_true", help="add it without trying it")
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be written, and do nothing"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="ask nothing")
    parser.add_argument(
        "--force", action="store_true", help="add a server although its trial start failed"
    )
    json_option(parser)
    parser.set_defaults(parser=parser)


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.add import run as work

    return work(options)
