"""docs/cli.md: every command with its options, examples and exit codes, from the parsers of the
program itself.

Examples stand here, since the help of a command is read in a hurry; those of this page are run by
tests/docs.
"""

import argparse
import os
import re
import textwrap
from collections.abc import Iterator, Mapping

from mcpx.cli import codes
from mcpx.cli.command_table import COMMANDS, GROUPS
from mcpx.cli.parsing import parser_of

INTRO = """\
# Command line

*Generated from the program by `scripts/references.py`. What the commands are for, in their context: [Using mcpx](usage.md).*

`mcpx [CONFIG]` serves; `mcpx COMMAND …` does the rest; a first word that is no command is taken for the config. `mcpx help`
lists the commands, `mcpx COMMAND --help` the options of one. Tables are for people and fit the terminal; `--json` prints one
object for programs, and a mistake is then `{"error": {"code", "message", …}}` on stderr. `NO_COLOR` switches colours off.
"""

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "serve": ("mcpx serve mcpx.yaml --port 8000",),
    "servers": ("mcpx servers mcpx.yaml", "mcpx servers mcpx.yaml --json"),
    "check": ("mcpx check mcpx.yaml",),
    "explain": ("mcpx explain readers read_graph mcpx.yaml",),
    "token": ("mcpx token new ann --expires 90d", "mcpx token list", "mcpx token revoke ann"),
    "audit": ("mcpx audit mcpx.yaml --since 1h --outcome denied",),
    "pins": ("mcpx pins --config mcpx.yaml",),
    "approve": ("mcpx approve --config mcpx.yaml",),
    "secret": ("mcpx secret key",),
    "import": ("mcpx import curl 'curl https://api.example.com/v1/items?limit=5'",),
    "auth": ("mcpx auth status mcpx.yaml",),
    "reload": ("mcpx reload mcpx.yaml",),
    "status": ("mcpx status mcpx.yaml",),
    "logs": ("mcpx logs memory --config mcpx.yaml",),
    "add": ("mcpx add 'uvx mcp-server-time' --name time --yes",),
    "disable": ("mcpx disable files",),
    "enable": ("mcpx enable files",),
    "remove": ("mcpx remove time --yes",),
    "export": ("mcpx export mcpx.yaml",),
    "tools": ("mcpx tools memory", "mcpx tools --json"),
    "search": ("mcpx search 'read the graph'",),
    "call": ("mcpx call memory.search_nodes query=mcpx",),
    "read": ("mcpx read",),
    "prompt": ("mcpx prompt",),
    "connect": ("mcpx connect", "mcpx connect cursor --dry-run"),
    "disconnect": ("mcpx disconnect cursor --dry-run",),
    "doctor": ("mcpx doctor",),
    "migrate": ("mcpx migrate mcpx.yaml",),
    "completion": ("mcpx completion bash",),
    "version": ("mcpx version",),
}


def pages() -> Mapping[str, str]:
    os.environ["COLUMNS"] = "100"  # whoever writes the page: it is the same
    parts = [INTRO, *_codes(), *_index()]
    for group, commands in GROUPS.items():
        listed = [command for command in commands if command.name in COMMANDS]
        if listed:
            parts.append(f"## {group[:1].upper()}{group[1:]}\n")
        for command in listed:
            parts += _command(command.name, command.arguments, command.summary, parser_of(command))
    return {"cli.md": "\n".join(parts).rstrip() + "\n"}


def _codes() -> Iterator[str]:
    yield "| exit code | meaning |\n|---|---|"
    for code, meaning in sorted(codes.MEANINGS.items()):
        yield f"| {code} | {meaning} |"
    yield ""


def _index() -> Iterator[str]:
    yield "| command | what it does |\n|---|---|"
    for command in COMMANDS.values():
        yield f"| [`mcpx {command.name}`](#mcpx-{command.name}) | {_plain(command.summary)} |"
    yield ""


def _command(
    name: str, arguments: str, summary: str, parser: argparse.ArgumentParser
) -> Iterator[str]:
    yield f"### mcpx {name}\n\n{_plain(summary)}\n\n```\n{' '.join(f'mcpx {name} {arguments} [options]'.split())}\n```\n"
    rows = list(_rows(parser))
    if rows:
        yield "| word or option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"
    if parser.epilog and name != "serve":  # that of `mcpx` itself lists all commands once more
        yield f"```\n{textwrap.dedent(parser.epilog.strip(chr(10))).rstrip()}\n```\n"
    if examples := EXAMPLES.get(name):
        yield "```console\n" + "\n".join(f"$ {line}" for line in examples) + "\n```\n"


def _rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    # `_actions` is where argparse keeps what was added; nothing public tells it.
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield f"| `{word}` | {_plain(inner.description or '')} |"
                yield from (row.replace("| `", f"| `{word} … ", 1) for row in _rows(inner))
            continue
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        choices = ", ".join(map(str, action.choices or ()))
        told = (action.help or "") % {
            "default": action.default,
            "choices": choices,
            "prog": parser.prog,
        }
        yield f"| {_name(action)} | {_plain(told)} |"


def _name(action: argparse.Action) -> str:
    value = action.metavar or (
        "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    )
    value = value if isinstance(value, str) else " ".join(value)
    value = "" if action.nargs == 0 else value
    if not action.option_strings:
        return f"`{value}`".replace("|", "\\|")
    return ", ".join(
        f"`{option} {value}`".replace(" `", "`") for option in action.option_strings
    ).replace("|", "\\|")


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").strip()
