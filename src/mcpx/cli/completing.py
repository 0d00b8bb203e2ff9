"""What may come next on a command line, for the scripts of `mcpx completion`: `mcpx __complete
SHELL LINE`.

Promised: an answer within a second, and never an error text; nothing is started, and no value of a
config is told. One candidate a line, `VALUE<TAB>DESCRIPTION`; the last line begins with a tab and
says what else there is to know: `:files` (files fit, too), `:nospace` (it goes on behind the
value), or `:`.
"""

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from mcpx.cli.leading_options import command_first
from mcpx.cli.places import Place
from mcpx.cli.table import COMMANDS, Command
from mcpx.cli.terminal import plain
from mcpx.model.call import Json

MOST = 500
"""Candidates that are told."""
BREAKS = ":="
"""Where bash begins a new word: what stands before is not to be said again."""
FILES = (".yaml", ".yml", ".json", ".jsonc", ".toml")


@dataclass(slots=True)
class Answer:
    found: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    files: bool = False
    goes_on: bool = False

    def add(self, values: Iterable[str | tuple[str, str]]) -> None:
        self.found += [(value, "") if isinstance(value, str) else value for value in values]


def complete(arguments: Sequence[str]) -> int:
    with contextlib.suppress(Exception, SystemExit):
        shell, line = (
            arguments[0],
            arguments[1] if len(arguments) > 1 else os.environ["MCPX_COMPLETE_LINE"],
        )
        words, word, quote = split(line)
        answer = answer_to(words[1:], word)
        _print(answer, word, quote, shell)
    return 0


# The line as the shell has it
# ------------------------------------------------------------------------------------


def split(line: str) -> tuple[list[str], str, str]:
    """The words before the last one, the last one, and the quote it stands in; what is unfinished
    is no mistake."""
    words: list[str] = []
    word, quote, begun = "", "", False
    at = 0
    while at < len(line):
        c = line[at]
        if quote == "'":
            quote, word = ("", word) if c == "'" else (quote, word + c)
        elif c == "\\" and at + 1 < len(line) and (not quote or line[at + 1] in '"\\$`'):
            word, begun, at = word + line[at + 1], True, at + 1
        elif quote == '"':
            quote, word = ("", word) if c == '"' else (quote, word + c)
        elif c in "'\"":
            quote, begun = c, True
        elif c in " \t\n":
            if begun:
                words.append(word)
            word, begun = "", False
        else:
            word, begun = word + c, True
        at += 1
    return words, word, quote


def _print(answer: Answer, word: str, quote: str, shell: str) -> None:
    found = [
        (value, about) for value, about in dict.fromkeys(answer.found) if value.startswith(word)
    ]
    if not found and word:  # letters in the wrong case, or a part from the middle
        found = [
            (value, about)
            for value, about in answer.found
            if value.lower().startswith(word.lower())
        ]
    cut = 0
    if shell == "bash" and not quote:
        cut = max((word.rfind(c) + 1 for c in BREAKS), default=0)
    lines: list[str] = []
    for value, about in found[:MOST]:
        spelled = value[cut:]
        if not spelled or not value.isprintable():
            continue
        if shell == "bash":
            spelled = _quoted(spelled, quote)
        lines.append(f"{spelled}\t{' '.join(plain(about).split())}")
    end = "\t:files" if answer.files else "\t:nospace" if answer.goes_on else "\t:"
    sys.stdout.write("\n".join([*lines, end]) + "\n")


def _quoted(value: str, quote: str) -> str:
    """As bash has to be told it: it takes what it gets as if it were typed, also within quotes."""
    if not quote:
        return re.sub(r"([^\w@%+=:,./-])", r"\\\1", value)
    if quote == "'":
        spelled = value.replace("'", "'\\''")
    else:  # where a ! cannot be spelled
        spelled = re.sub(r'([$`"\\])', r"\\\1", value).replace("!", '"\\!"')
    # A word that ends in a quote is not closed by bash.
    return spelled + quote if spelled.endswith(quote) else spelled


# What fits
# --------------------------------------------------------------------------------------------------


def answer_to(words: Sequence[str], word: str) -> Answer:
    answer = Answer()
    words = command_first(words)
    if not words or (words[0] == "help" and len(words) == 1):
        _commands(answer, word, with_files=not words)
        return answer
    command = COMMANDS.get(words[0])
    if command is None:  # `mcpx CONFIG …` serves
        command, words = COMMANDS["serve"], ["serve", *words]
    Completing(command, list(words[1:]), word, answer).work()
    return answer


def _commands(answer: Answer, word: str, with_files: bool) -> None:
    if word.startswith("-"):
        Completing(COMMANDS["serve"], [], word, answer).work()
        return
    answer.add((command.name, command.summary) for command in COMMANDS.values())
    answer.add([("help", "This, or more about a command.")])
    if with_files and word:
        answer.add(_configs(word))


class Completing:
    """One word of one command."""

    def __init__(self, command: Command, words: list[str], word: str, answer: Answer) -> None:
        self._command = command.name
        self._word = word
        self._answer = answer
        self._parser: argparse.ArgumentParser = command.parser()
        self._given: dict[str, str] = {}
        """Values of options that matter: `--config`, `--env`."""
        self._words = self._walk(words)
        """Those that are no options."""

    def work(self) -> None:
        if self._pending is not None:
            self._value_of(self._pending)
        elif self._word.startswith("--") and "=" in self._word:
            name, _, value = self._word.partition("=")
            action = self._option(name)
            if action is not None:
                self._value_of(action)
                self._answer.found = [
                    (f"{name}={each}", about) for each, about in self._answer.found
                ]
                self._answer.files = self._answer.files and not value
        elif self._word.startswith("-") and self._word != "-":
            self._options()
        else:
            self._positional(len(self._words))

    # Words before
    # ----------------------------------------------------------------------------------------------

    def _walk(self, words: list[str]) -> list[str]:
        self._pending: argparse.Action | None = None
        found: list[str] = []
        for word in words:
            if self._pending is not None:
                self._given[self._pending.dest] = word
                self._pending = None
            elif word.startswith("-") and word != "-":
                name, equals, value = word.partition("=")
                action = self._option(name)
                if action is None or not _takes_value(action):
                    continue
                if equals:
                    self._given[action.dest] = value
                else:
                    self._pending = action
            else:
                found.append(word)
                self._enter(word)
        return found

    def _enter(self, word: str) -> None:
        """`import openapi …` goes on with the options of `openapi`."""
        for action in self._parser._actions:  # pyright: ignore[reportPrivateUsage]
            if action.nargs == argparse.PARSER and word in (action.choices or ()):
                self._parser = cast("dict[str, argparse.ArgumentParser]", action.choices)[word]
                return

    def _option(self, name: str) -> argparse.Action | None:
        return self._parser._option_string_actions.get(name)  # pyright: ignore[reportPrivateUsage]

    # What fits
    # ----------------------------------------------------------------------------------------------

    def _options(self) -> None:
        for action in self._parser._actions:  # pyright: ignore[reportPrivateUsage]
            if action.help is not argparse.SUPPRESS:
                about = (action.help or "").replace("%(choices)s", "").strip()
                self._answer.add(
                    (name, about) for name in action.option_strings if name.startswith(self._word)
                )

    def _value_of(self, action: argparse.Action) -> None:
        by: dict[str, Callable[[], None]] = {
            "config": lambda: self._files(),
            "output": lambda: self._files(),
            "profile": lambda: self._named("profiles"),
            "env": lambda: self._answer.add(self._overlays()),
            "server": lambda: self._named("servers"),
            "tool": lambda: self._answer.add(
                name.partition(".")[2] for name, *_ in self._all("tools")
            ),
        }
        if action.choices is not None:
            self._answer.add(str(choice) for choice in action.choices)
        elif (known := by.get(action.dest)) is not None:
            known()
        elif action.metavar in ("FILE", "DOCUMENT"):
            self._files()

    def _positional(self, at: int) -> None:
        answer, first = self._answer, self._words[0] if self._words else ""
        match self._command:
            case "tools" | "logs" | "pins" | "doctor" if at == 0:
                self._named("servers")
                answer.add([("mcpx", "the gateway's own log")] if self._command == "logs" else [])
            case "remove" | "enable" | "disable" if at == 0:
                self._named("servers")
                self._named("commands")
            case "approve" if at == 0:
                self._named("servers")
                self._tools()
            case "auth" if at == 1 and first in ("login", "logout"):
                self._named("servers")
            case "call":
                self._call(first)
            case "prompt":
                self._prompt(first)
            case "read" if at == 0:
                answer.add((uri, about) for uri, about in self._all("resources"))
            case "explain" if at == 0:
                self._named("profiles")
                answer.add([("-", "without a profile")])
            case "explain" if at == 1:
                self._tools()
            case "connect" | "disconnect" | "import" if at == 0:
                answer.add(_clients())
                self._choices(at)
            case "search" | "add":
                answer.files = self._command == "add"
            case _:
                self._choices(at)

    def _choices(self, at: int) -> None:
        """What argparse knows of the word in this place; else it may be a config."""
        places = [a for a in self._parser._actions if not a.option_strings]  # pyright: ignore[reportPrivateUsage]
        action = places[min(at, len(places) - 1)] if places else None
        if action is None or (at >= len(places) and action.nargs not in ("*", "+")):
            return
        if action.choices is not None and at < len(places):
            self._answer.add(str(choice) for choice in action.choices)
        else:
            self._files()

    def _files(self) -> None:
        self._answer.files = True

    def _named(self, kind: str) -> None:
        self._answer.add(str(name) for name in self._all(kind))

    def _tools(self) -> None:
        self._answer.add((name, about) for name, about, _ in self._all("tools"))

    def _call(self, tool: str) -> None:
        if tool:
            self._arguments("tools", tool)
        elif "." in self._word:
            self._tools()
        else:  # one step at a time: the servers first, where there are many tools
            tools = self._all("tools")
            if len(tools) <= 40:
                self._tools()
            else:
                servers = dict.fromkeys(name.partition(".")[0] for name, *_ in tools)
                self._answer.add(f"{server}." for server in servers)
                self._answer.goes_on = True

    def _prompt(self, prompt: str) -> None:
        if prompt:
            self._arguments("prompts", prompt)
        else:
            self._answer.add((name, about) for name, about, _ in self._all("prompts"))

    def _arguments(self, kind: str, name: str) -> None:
        found = next((arguments for each, _, arguments in self._all(kind) if each == name), Json())
        key, equals, _ = self._word.partition("=")
        if equals:
            self._answer.add(f"{key}={value}" for value in found.get(key, [False, "", []])[2])
            return
        said = {word.partition("=")[0].removesuffix(":") for word in self._words[1:]}
        needed = sorted(found.items(), key=lambda each: not each[1][0])
        for argument, (is_needed, about, _) in needed:
            if argument not in said:
                told = f"{'' if is_needed else 'optional. '}{about}".strip()
                self._answer.add([(f"{argument}=", told)])
        self._answer.goes_on = True

    def _overlays(self) -> list[str]:
        path = self._place.path
        folder = None if path is None else path if path.is_dir() else path.parent
        stems = (
            [Path(name).stem for name in os.listdir(folder) if name.endswith(FILES)]
            if folder
            else []
        )
        return sorted({stem.rpartition(".")[2] for stem in stems if "." in stem.strip(".")})

    # Names
    # ----------------------------------------------------------------------------------------------

    @cached_property
    def _place(self) -> Place:
        from mcpx.cli.places import glance

        named = self._given.get("config")
        words = [
            word
            for word in self._words
            if word.endswith(FILES) and os.path.exists(os.path.expanduser(word))
        ]
        return glance(
            named or (words[-1] if words and self._command != "call" else None),
            self._given.get("env"),
        )

    @cached_property
    def _names(self) -> Json:
        from mcpx.cli.names import names

        return names(self._place)

    def _all(self, kind: str) -> list[Any]:
        return self._names.get(kind) or []


def _takes_value(action: argparse.Action) -> bool:
    return action.nargs != 0


def _configs(word: str) -> list[str]:
    folder, _, begun = word.rpartition("/")
    with contextlib.suppress(OSError):
        names = os.listdir(os.path.expanduser(folder) or ".")
        there = [name for name in sorted(names) if name.startswith(begun) and name.endswith(FILES)]
        return [f"{folder}/{name}" if folder or word.startswith("/") else name for name in there]
    return []


def _clients() -> list[tuple[str, str]]:
    """Ids and names of client programs, from their data file alone."""
    try:
        text = (Path(__file__).parents[1] / "clients" / "programs.toml").read_text(encoding="utf-8")
    except OSError:
        return []
    return re.findall(r'^\[\[client\]\]\nid = "([^"]+)"\nname = "([^"]*)"', text, re.MULTILINE)
