"""References that stand in a client program's file, as they are written here.

Promised: what that program would have replaced is a reference here, or the value itself where it is
known (a folder); what it takes for plain text stays plain text; every change is told. What can be
neither (a question to the user of an editor, a word of a program that is not known here) stays as
it stands and is told as what keeps the server off. Not done here: looking anything up.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcpx.config.tree import KeyPath, Tree, as_list, as_map, map_leaves

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE = re.compile(rf"(?:env:)?({_NAME})(?::-(.*))?", re.DOTALL)
_TABLES = ("env", "headers")


@dataclass(frozen=True, slots=True)
class Input:
    """A question that an editor asks its user (VS Code's `inputs`)."""

    kind: str = "promptString"
    description: str = ""
    default: str | None = None


@dataclass(slots=True)
class Rewriting:
    """What a file's references mean, and what became of them."""

    expands: bool = True
    """Whether that program replaces anything at all; in a file of one that does not, `$` is a
    letter like others."""
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names with a value of their own: `userHome`."""
    missing: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names that mean something to that program alone, and what."""
    inputs: Mapping[str, Input] = field(default_factory=dict[str, Input])
    rewritten: dict[str, str] = field(default_factory=dict[str, str])
    """As it stood, and as it is written here."""
    wanted: dict[str, str] = field(default_factory=dict[str, str])
    """Variables that took the place of a question, each with what it is for."""

    def server(self, entry: Tree) -> tuple[Tree, str | None]:
        """A native server with its references as they are written here, and why it has to stay off,
        if it has to."""
        problems: list[str] = []
        told = self._value(entry, (), problems)
        return told, "; ".join(dict.fromkeys(problems)) or None

    def _value(self, value: Any, path: KeyPath, problems: list[str]) -> Any:
        def rewritten(value: Any, path: KeyPath) -> Any:
            if isinstance(value, str):
                return self._text(value, path, problems)
            return value

        return map_leaves(value, rewritten, path)

    def _text(self, text: str, path: KeyPath, problems: list[str]) -> str:
        if "$" not in text:
            return text
        if not self.expands and not _is_meant(text, path):
            told = _literal(text)
            if told != text:
                self.rewritten[text if len(text) <= 60 else "$"] = told if len(text) <= 60 else "$$"
            return told
        parts: list[str] = []
        at = 0
        for start, end in _references(text):
            body = text[start + 2 : end - 1]
            new = self._reference(body, problems)
            parts += [_literal(text[at:start], before=new), new]
            if new != text[start:end]:
                self.rewritten[text[start:end]] = new
            at = end
        return "".join([*parts, _literal(text[at:])])

    def _reference(self, body: str, problems: list[str]) -> str:
        if body in self.words:
            return _literal(self.words[body])
        if body in self.missing:
            problems.append(f"${{{body}}} is {self.missing[body]}: write it out")
            return f"${{{body}}}"
        kind, colon, rest = body.partition(":")
        if kind == "input" and colon:
            return self._input(rest, problems)
        if (found := _VARIABLE.fullmatch(body)) is not None:
            default = "" if found[2] is None else f":-{self._text(found[2], (), problems)}"
            return f"${{{found[1]}{default}}}"
        if kind in ("file", "keyring") and colon:
            return f"${{{body}}}"
        problems.append(f"${{{body}}} is not known here: write a value or ${{VAR}} in its place")
        return f"${{{body}}}"

    def _input(self, name: str, problems: list[str]) -> str:
        """A question becomes a variable: whoever sets it has answered for good."""
        asked = self.inputs.get(name, Input())
        if asked.kind == "command":
            problems.append(
                f"${{input:{name}}} is what a command of the editor gives: write a value in its "
                "place"
            )
            return f"${{input:{name}}}"
        variable = variable_name(name)
        default = "" if asked.default is None else f":-{_literal(asked.default)}"
        if asked.default is None:
            self.wanted.setdefault(
                variable, asked.description or f"what the editor asks for as {name!r}"
            )
        return f"${{{variable}{default}}}"


def variable_name(text: str) -> str:
    """A name for a variable."""
    word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").upper()
    if word[:1].isdigit():
        return f"_{word}"
    return word or "SECRET"


def inputs_of(tree: Tree) -> dict[str, Input]:
    """The questions of a file of VS Code's."""
    found: dict[str, Input] = {}
    for each in as_list(tree.get("inputs")) or ():
        asked = as_map(each) or {}
        if isinstance(name := asked.get("id"), str):
            default = asked.get("default")
            told = str(asked.get("description") or "")
            found[name] = Input(
                str(asked.get("type")), told, default if isinstance(default, str) else None
            )
    return found


def _is_meant(text: str, path: KeyPath) -> bool:
    """Whether somebody meant a variable, though that program knows none: it is all that a variable
    or header is."""
    whole = re.fullmatch(rf"(?:Bearer )?\$\{{(?:env:)?{_NAME}\}}", text)
    return whole is not None and len(path) > 1 and path[-2] in _TABLES


def _references(text: str) -> list[tuple[int, int]]:
    """Where the outermost `${…}` stand; one that is never closed is text."""
    begun: list[int] = []
    closed: list[tuple[int, int]] = []
    for found in re.finditer(r"\$\{|\}", text):
        if found[0] == "${":
            begun.append(found.start())
        elif begun:
            closed.append((begun.pop(), found.end()))
    outermost: list[tuple[int, int]] = []
    for start, end in sorted(closed):
        if not outermost or start >= outermost[-1][1]:
            outermost.append((start, end))
    return outermost


def _literal(text: str, before: str = "") -> str:
    """Text that is read as itself here, `before` following it."""
    doubled = re.sub(r"\$\$+|\$(?=\{)", lambda run: run[0] * 2, text)
    alone = re.search(r"(?<!\$)\$$", text) is not None
    return f"{doubled}$" if alone and before.startswith("$") else doubled
