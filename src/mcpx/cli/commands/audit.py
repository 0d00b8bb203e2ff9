"""`mcpx audit`: who called what, from the audit trail."""

import argparse
import os

from mcpx.cli import where
from mcpx.cli.state import state_folder

OUTCOMES = ("ok", "tool_error", "error", "cancelled", "denied")
"""How a call ends, as the audit trail has it."""


def options(parser: argparse.ArgumentParser) -> None:
    where.config_options(parser)
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


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.audit import audit

    path = where.required(options, "audit")
    return audit(where.load(path, options), state_folder(os.environ), where.overlay(options), options)
