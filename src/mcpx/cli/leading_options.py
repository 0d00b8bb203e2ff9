"""Options before a command: `mcpx --config FILE tools` is read as `mcpx tools --config FILE`.

A command line that starts a gateway is not changed. No parser is built for it.
"""

import argparse
from collections.abc import Sequence

from mcpx.cli.table import COMMANDS


def command_first(arguments: Sequence[str]) -> list[str]:
    """The same command line with the options behind the command that follows them, if one does."""
    words = list(arguments)
    if not words or not words[0].startswith("-") or not {*COMMANDS, "help"}.intersection(words):
        return words
    count = _leading(words)
    if count is None or count == len(words):
        return words
    options, command, rest = words[:count], words[count], words[count + 1 :]
    if command == "help":
        return [command, *rest]
    if command not in COMMANDS:
        return words
    kinds = _kinds(COMMANDS[command].parser())
    if rest and rest[0] in kinds:
        return [command, rest[0], *options, *rest[1:]]
    return [command, *options, *rest]


def _leading(words: Sequence[str]) -> int | None:
    """Count the options and their values at the beginning. Returns None if an option is unknown."""
    takes_value = _options()
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, has_value, _ = words[at].partition("=")
        if name not in takes_value:
            return None
        at += 2 if takes_value[name] and not has_value else 1
    return min(at, len(words))


def _options() -> dict[str, bool]:
    """The options that are possible before a command. The value tells whether the option has a
    value."""
    found = {"--json": False}
    for action in COMMANDS["serve"].parser()._actions:  # pyright: ignore[reportPrivateUsage]
        if action.dest not in ("help", "version"):
            found |= dict.fromkeys(action.option_strings, action.nargs is None)
    return found


def _kinds(parser: argparse.ArgumentParser) -> list[str]:
    """Names of the subcommands of a parser. A subcommand must be the first word."""
    actions = parser._actions  # pyright: ignore[reportPrivateUsage]
    return [
        str(name)
        for action in actions
        if action.nargs == argparse.PARSER
        for name in action.choices or ()
    ]
