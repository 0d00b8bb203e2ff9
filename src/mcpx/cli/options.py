"""The building blocks of the command table: commands, options, and options of several commands.

The bridge imports this module, so it imports neither asyncio nor dataclasses.
"""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

MAX_SECONDS = 86_400
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
SECRETS = ("env", "keyring", "config")
OUTCOMES = ("ok", "tool_error", "error", "cancelled", "denied", "unfinished")
"""How a call ends in the audit log. `unfinished`: the call runs, or a crash cut it off."""


# The classes are no dataclasses: the import of `dataclasses` costs a bridge two megabytes.
class Option(NamedTuple):
    names: str
    """Separated by spaces. A positional argument has one name without dashes."""
    settings: Mapping[str, Any]
    """For `add_argument`."""
    completes: str = ""
    """What shell completion offers: lists of names, separated by spaces. See `completion`."""


class Command(NamedTuple):
    name: str
    arguments: str
    summary: str
    function: str
    """`module:function` below `mcpx.cli`."""
    options: tuple[Option, ...]
    epilog: str = ""
    kinds: "tuple[Command, ...]" = ()
    """Subcommands. The first one is meant if no subcommand is named."""


def flag(names: str, help: str, **settings: Any) -> Option:
    return Option(names, {"action": "store_true", "help": help, **settings})


def value(
    names: str, metavar: str | None, help: str, completes: str = "", **settings: Any
) -> Option:
    return Option(names, {"metavar": metavar, "help": help, **settings}, completes)


def repeated(names: str, metavar: str, help: str) -> Option:
    return value(names, metavar, f"{help}; repeatable", action="append", default=[])


def word(
    name: str, metavar: str, help: str, nargs: str | None = None, completes: str = ""
) -> Option:
    return value(name, metavar, help, completes, nargs=nargs)


def choice(names: str, help: str, *choices: str, **settings: Any) -> Option:
    return value(names, None, help, choices=choices, **settings)


def action(*choices: str) -> Option:
    return choice("action", "what to do", *choices)


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if 0 < number <= MAX_SECONDS:
        return number
    raise argparse.ArgumentTypeError(
        f"{text!r} is no number of seconds (more than 0, a day at most)"
    )


class Modes:
    """The names of the modes. They are looked up when a mode is checked or shown."""

    def __contains__(self, name: object) -> bool:
        from mcpx.surfaces import SURFACES

        return name in SURFACES  # Also finds modes of other packages.

    def __iter__(self) -> Iterator[str]:
        from mcpx.surfaces import SURFACES

        return iter(SURFACES)


ENV = value("--env", "NAME", "lay the files of an environment over it (mcpx.NAME.yaml)", "overlays")
CONFIG_FILE = value("--config", "FILE", "the config file", "files")
CONFIG = (CONFIG_FILE, ENV)
CONFIG_WORD = (
    word("config_file", "CONFIG", "the config file, or a folder of them", "?", "files"),
    value("--config", "FILE", "the same, as an option", "files"),
    ENV,
)
JSON = flag("--json", "one JSON object instead of text")
JSON_LINES = flag("--json", "one JSON object a line")
USE = (
    *CONFIG,
    value("--profile", "NAME", "see and call only what this profile may", "profiles"),
    JSON,
)
TIMEOUT = value("--timeout", "S", "give up after so many seconds", type=seconds)
DRY_RUN = flag("--dry-run", "show what would change, and write nothing")
YES = flag("-y --yes", "ask nothing")
OUTPUT = value("-o --output", "FILE", "write a new file instead of standard output", "files")
FORCE = flag("--force", "overwrite FILE")
ALLOW_PRIVATE = flag("--allow-private", "let documents be fetched from private addresses")
SERVER = word("words", "SERVER", "the server; then the config file", "*", "servers")
NAMES = word("names", "NAME", "what it is called; several do", "+", "servers commands")
SWITCH = (
    NAMES,
    *CONFIG,
    choice("--kind", "which of two that have the name", "server", "command"),
    DRY_RUN,
    JSON,
)
CLIENTS = (
    word(
        "clients",
        "CLIENT",
        "claude-code, cursor, vscode, … ('--all --print' has all)",
        "*",
        "clients",
    ),
    flag("--all", "every client that is found"),
    flag("--project", "the file of the project in this folder, not your own"),
)
FROM_API = (
    value("--auth", "NAME", "use this auth config of yours, and write none"),
    flag("--allow-private", "let private addresses be reached"),
    OUTPUT,
    FORCE,
    flag("--json", "one JSON object that says everything"),
)
