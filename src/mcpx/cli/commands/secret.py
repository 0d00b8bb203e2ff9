"""`mcpx secret`: values for a config file that nobody can read there, and secrets in the system's
keyring."""

import argparse

EPILOG = """\
  mcpx secret encrypt       read a secret, print it encrypted, for any value of a config file: token: enc:v1:…
                            (by MCPX_KEY, else by a key in the system's keyring)
  mcpx secret key           make a key for MCPX_KEY and print it, once
  mcpx secret set NAME      read a secret into the system's keyring; a config refers to it by ${keyring:NAME}
  mcpx secret list          the names that were set
  mcpx secret remove NAME   take one out again

A secret is read from standard input (echo … | mcpx secret encrypt) or asked for."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=("encrypt", "key", "set", "list", "remove"), help="what to do"
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="set, remove: what it is called")
    parser.add_argument(
        "--json", action="store_true", help="list: one JSON object instead of lines"
    )


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.secret import run as work

    return work(options)
