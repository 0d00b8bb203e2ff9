"""The options of commands that need much to run: `--help` must not wait for all of that."""

import argparse

OUTCOMES = ("ok", "tool_error", "error", "cancelled", "denied")
"""How a call ends, as the audit trail has it."""

_TOKEN = """\
  mcpx token new NAME [CONFIG]   make one and print it, once: TOKEN=$(mcpx token new laptop)
  mcpx token list                those that were made; a config's own are not among them
  mcpx token revoke NAME         end it, and everything it has opened

A config that has server.auth: {type: bearer} lets them in, a running gateway within a second."""


def token_parser(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mcpx token",
        description=description,
        epilog=_TOKEN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=("new", "list", "revoke"), help="what to do")
    parser.add_argument("words", metavar="NAME", nargs="*", help="the token's name; for 'new' then the config file")
    parser.add_argument("--config", metavar="FILE", help="new: the config file, as an option")
    parser.add_argument("--env", metavar="NAME", help="new: lay the files of an environment over it (mcpx.NAME.yaml)")
    parser.add_argument("--profile", metavar="P", help="new: the profile its bearer finds at /mcp")
    parser.add_argument("--expires", metavar="WHEN", help="new: 30d, 12h, 2027-01-31 or 2027-01-31T12:00Z; else never")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    return parser


def audit_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="NAME", help="only calls of this server")
    parser.add_argument("--tool", metavar="NAME", help="only calls of this tool or prompt, as its server names it")
    parser.add_argument("--principal", metavar="NAME", help="only what this one did")
    parser.add_argument(
        "--outcome", choices=OUTCOMES, metavar="OUTCOME", help="ok, tool_error, error, cancelled or denied"
    )
    parser.add_argument("--since", metavar="WHEN", help="1h, 30m, 2d, or a date or time (UTC): 2026-01-31T12:00")
    parser.add_argument("--limit", metavar="N", default=50, help="most rows that are shown (default 50)")
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="the rows as they are, one JSON object a line")
