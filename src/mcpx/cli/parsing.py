"""Parsers of the commands: argparse with the error messages of mcpx.

Options may stand before a command: `mcpx --config FILE tools` is read as
`mcpx tools --config FILE`.
"""

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, cast

from mcpx import __version__
from mcpx.cli import codes
from mcpx.cli.command_table import COMMANDS, GROUPS, SERVE_RULES
from mcpx.cli.options import Command, Option
from mcpx.cli.running import mistake

_WORD = "\0"
"""Marks a word after `--` that begins like an option. No program argument can contain it."""


class Parser(argparse.ArgumentParser):
    """Reads options between positional arguments. A mistake raises `ConfigError` with a hint."""

    default_kind: "tuple[str, Parser] | None" = None
    """The subcommand that is meant if no subcommand is named."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.completes: dict[str, str] = {}
        """What shell completion offers, by the name of the argument."""

    @property
    def actions(self) -> list[argparse.Action]:
        return self._actions

    @property
    def kinds(self) -> "dict[str, Parser]":
        for action in self._actions:
            if action.nargs == argparse.PARSER:
                return cast("dict[str, Parser]", action.choices)
        return {}

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        if self.default_kind is not None and not {*arguments[:1]} & {*self.kinds, "-h", "--help"}:
            kind, parser = self.default_kind
            return argparse.Namespace(**{**vars(parser.read(arguments)), "kind": kind})
        whole = (argparse.PARSER, argparse.REMAINDER)  # They take all arguments after them.
        if any(action.nargs in whole for action in self._actions):
            return self.parse_args(arguments)
        for action in self._actions:
            if action.nargs == argparse.ZERO_OR_MORE:
                action.required = False  # Up to Python 3.13, it was reported as missing.
        return _unmarked(self.parse_intermixed_args(_marked(arguments)))

    def error(self, message: str) -> NoReturn:
        text = message[:1].lower() + message[1:]
        unknown = re.match(r"unrecognized arguments: (--?[a-zA-Z][\w-]*)", message)
        if unknown is not None:
            text = f"unknown option {unknown[1]}{self._meant(unknown[1])}"
        elif message.startswith("unrecognized arguments: "):
            text = f"too many words: {message.removeprefix('unrecognized arguments: ')}"
        # argparse quotes some values and not others.
        text = text.replace(_WORD, "").replace(repr(_WORD)[1:-1], "")
        raise mistake(f"{text}\n  {self.prog} --help says what there is")

    def _meant(self, option: str) -> str:
        known = [name for action in self._actions for name in action.option_strings]
        # A single letter is similar to every other one.
        close = near(option, known) if option.startswith("--") else None
        return f"; did you mean {close}?" if close else ""

    def add(self, option: Option) -> None:
        action = self.add_argument(*option.names.split(), **_settings(option))
        self.completes[action.dest] = option.completes


def parser_of(command: Command) -> Parser:
    name, epilog = f"mcpx {command.name}", command.epilog
    if command.name == "serve":
        name, epilog = "mcpx", _serve_epilog()
    parser = Parser(
        prog=name,
        description=command.summary,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _fill(parser, command)
    if command.kinds:
        kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
        for kind in command.kinds:
            # argparse makes it of the class of its parent.
            below: Any = kinds.add_parser(kind.name, help=kind.arguments, description=kind.summary)
            _fill(below, kind)
        first = command.kinds[0].name
        parser.default_kind = first, parser.kinds[first]
    return parser


def _fill(parser: Parser, command: Command) -> None:
    for option in command.options:
        parser.add(option)
    parser.set_defaults(parser=parser, command=command.name, function=command.function)


def _settings(option: Option) -> dict[str, Any]:
    settings = dict(option.settings)
    if settings.get("metavar", "") is None:
        del settings["metavar"]
    if option.names == "--version":
        settings["version"] = f"mcpx {__version__}"
    return settings


def _serve_epilog() -> str:
    from textwrap import fill

    lines: list[str] = []
    for title, group in GROUPS.items():
        lines.append(f"{title}:")
        lines += [_help_line(f"{each.name} {each.arguments}", each.summary) for each in group]
    lines += [_help_line("help [COMMAND]", "This, or more about a command."), "", SERVE_RULES]
    meanings = ", ".join(f"{code} {meaning}" for code, meaning in codes.MEANINGS.items())
    return "\n".join([*lines, fill(f"Exit codes: {meanings}.", 100)])


def _help_line(call: str, summary: str) -> str:
    return f"  mcpx {call:30} {summary}"


def _marked(arguments: Sequence[str]) -> list[str]:
    """Mark the words after `--`. Python versions differ in what argparse makes of them."""
    if "--" not in arguments:
        return list(arguments)
    start = arguments.index("--") + 1
    words = [_WORD + word if word.startswith("-") else word for word in arguments[start:]]
    return [*arguments[:start], *words]


def _unmarked(options: argparse.Namespace) -> argparse.Namespace:
    for name, value in vars(options).items():
        if isinstance(value, str):
            setattr(options, name, value.removeprefix(_WORD))
        elif isinstance(value, list):
            setattr(options, name, [word.removeprefix(_WORD) for word in cast("list[str]", value)])
    return options


def near(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=0.5)), None)


def suggestion(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint with the name that was probably meant, or `otherwise`."""
    close = near(word, known)
    return f"did you mean {close!r}?" if close else otherwise


def command_first(arguments: Sequence[str]) -> list[str]:
    """The same command line with leading options moved behind the command that follows them.

    A command line that starts a gateway is not changed, and no parser is built for it."""
    words = list(arguments)
    if not words or not words[0].startswith("-") or not {*COMMANDS, "help"}.intersection(words):
        return words
    count = _count_leading(words)
    if count is None or count >= len(words):
        return words
    options, command, rest = words[:count], words[count], words[count + 1 :]
    if command == "help":
        return [command, *rest]
    if command not in COMMANDS:
        return words
    kinds = [kind.name for kind in COMMANDS[command].kinds]
    if rest and rest[0] in kinds:
        return [command, rest[0], *options, *rest[1:]]
    return [command, *options, *rest]


def _count_leading(words: Sequence[str]) -> int | None:
    """Count the options and their values at the beginning. Returns None if an option is unknown."""
    takes_value = {"--json": False}
    for action in parser_of(COMMANDS["serve"]).actions:
        if action.dest not in ("help", "version"):
            takes_value |= dict.fromkeys(action.option_strings, action.nargs is None)
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, has_value, _ = words[at].partition("=")
        if name not in takes_value:
            return None
        at += 1
        if takes_value[name] and not has_value:
            at += 1
    return at
