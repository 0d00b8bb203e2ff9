"""`mcpx audit`: who called what, from the audit log. `mcpx audit verify`: whether rows are missing
or were changed."""

import argparse
import os

from mcpx.cli import where
from mcpx.cli.state import state_folder
from mcpx.model.errors import ConfigError

OUTCOMES = ("ok", "tool_error", "error", "cancelled", "denied", "unfinished")
"""How a call ends, as the audit trail has it. `unfinished`: it runs, or a crash cut it off."""
EPILOG = """\
  mcpx audit [CONFIG]             the latest calls
  mcpx audit verify [CONFIG]      whether rows are missing or were changed (exit code 1)"""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="[verify] [CONFIG]", nargs="*", help="check the rows; the config file"
    )
    where.config_options(parser, positional=False)
    parser.add_argument("--server", metavar="NAME", help="only calls of this server")
    parser.add_argument(
        "--tool", metavar="NAME", help="only calls of this tool or prompt, as its server names it"
    )
    parser.add_argument("--principal", metavar="NAME", help="only what this one did")
    parser.add_argument(
        "--outcome",
        choices=OUTCOMES,
        metavar="OUTCOME",
        help="ok, tool_error, error, cancelled, denied or unfinished",
    )
    parser.add_argument(
        "--since", metavar="WHEN", help="1h, 30m, 2d, or a date or time (UTC): 2026-01-31T12:00"
    )
    parser.add_argument(
        "--limit", metavar="N", default=50, help="most rows that are shown (default 50)"
    )
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until Ctrl-C")
    parser.add_argument(
        "--json", action="store_true", help="the rows as they are, one JSON object a line"
    )


def run(options: argparse.Namespace) -> int:
    from mcpx.cli.audit import audit, verify

    verifies = options.words[:1] == ["verify"]
    files = options.words[1:] if verifies else options.words
    if len(files) > 1:
        raise ConfigError([f"error: mcpx audit takes one config file, not {len(files)}"])
    options.config_file = files[0] if files else None
    path = where.required(options, "audit")
    work = verify if verifies else audit
    return work(
        where.load(path, options), state_folder(os.environ), where.overlay(options), options
    )
