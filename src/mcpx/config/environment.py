"""References in values: `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${file:path}`, and `$$` for a plain `$`.

Promised: values only, never keys; what a variable or a file holds is text and is not looked into again; an
unset variable without default is a finding, never a literal; the references of a disabled entry are left
alone. The process environment wins over the `.env` file beside the config. In a client's file a server that needs
`${input:…}`, which VS Code asks its user for, is switched off with a warning: the other servers can do without it.
Not done here: what values mean.
"""

import os
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from mcpx.config import dotenv
from mcpx.config.problems import Findings, Spot
from mcpx.config.source import UnreadableError, read_text
from mcpx.config.tree import (
    Expanded,
    KeyPath,
    Tree,
    Unresolved,
    as_bool,
    as_list,
    as_map,
    children,
    is_extra,
    shorten,
)

ENTRY_SECTIONS = ("mcp_servers", "commands")
"""Top keys whose entries can be switched off."""
MAX_SECRET_FILE = 64 * 1024
MAX_DOTENV = 1024 * 1024
MAX_NESTING = 10
"""Defaults within defaults."""
MAX_FAILURES = 5
"""Bad references told of one text."""

_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_BRACES = re.compile(r"\$\$|\$\{|\}")
_NOT_YET = ("input", "keyring", "command")
_INPUT = re.compile(r"(?<!\$)(?:\$\$)*\$\{input:")


class Environment:
    """Where variables are looked up."""

    def __init__(
        self, environ: Mapping[str, str], folder: Path, words: Mapping[str, str], looked_for: list[Path]
    ) -> None:
        """`words`: names a client program gives a meaning of its own; `looked_for` takes the files asked for values."""
        self._environ = environ
        self._folder = folder
        self._looked_for = looked_for
        self.words = words
        self.warnings: list[str] = []

    def get(self, name: str) -> str | None:
        value = self._environ.get(name)
        return self._dotenv.get(name) if value is None else value

    def file(self, name: str) -> str:
        path = self._folder / os.path.expanduser(name)
        self._looked_for.append(path)
        return read_text(path, MAX_SECRET_FILE)

    @cached_property
    def _dotenv(self) -> dict[str, str]:
        path = self._folder / ".env"
        self._looked_for.append(path)
        if not os.path.isfile(path):  # some people's virtual environment has this name
            return {}
        try:
            text = read_text(path, MAX_DOTENV)
        except UnreadableError as error:
            self.warnings.append(f"{path} {error}; it is passed over")
            return {}
        values, odd = dotenv.parse(text)
        self.warnings += [f"{path}:{line}: not understood, passed over" for line in odd[:3]]
        return values


def client_words(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """What Cursor, VS Code and their kin replace beside variables."""
    return {
        "userHome": environ.get("HOME") or os.path.expanduser("~"),
        "workspaceFolder": str(folder),
        "workspaceFolderBasename": folder.name,
        "cwd": str(folder),
        "pathSeparator": "/",
        "/": "/",
    }


def expand(tree: Tree, environment: Environment, findings: Findings) -> Tree:
    """The native tree with its references replaced."""
    expander = _Expander(environment, findings)
    return {key: value if is_extra(key) else _section(expander, key, value) for key, value in tree.items()}


def peek(environment: Environment, spot: Callable[[KeyPath], Spot], value: Any) -> Any:
    """What a text will be once it is expanded, `Unresolved` where that will be reported; anything else as it is."""
    unheard = Findings(spot)
    return _Expander(environment, unheard).text(value, ()) if isinstance(value, str) else value


def _section(expander: "_Expander", key: str, value: Any) -> Any:
    entries = as_list(value) if key in ENTRY_SECTIONS else None
    if entries is None:
        return expander.value(value, (key,))
    return [expander.entry(item, (key, index)) for index, item in enumerate(entries)]


class _Expander:
    def __init__(self, environment: Environment, findings: Findings) -> None:
        self._environment = environment
        self._findings = findings

    def entry(self, value: Any, path: KeyPath) -> Any:
        table = as_map(value)
        if table is None:
            return self.value(value, path)
        enabled = self.value(table.get("enabled"), (*path, "enabled"))
        of_client = self._environment.words and path[0] == "mcp_servers"
        if of_client and as_bool(enabled) is not False and _asks(table):
            name = shorten(str(table.get("name")))
            advice = "write ${VAR} or ${file:path} instead of ${input:…}, which only the client itself can ask for"
            self._environment.warnings.append(f"server {name!r} is switched off: {advice}")
            enabled = False
        return {**_leave(table), "enabled": enabled} if as_bool(enabled) is False else self.value(table, path)

    def value(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, str):
            return self.text(value, path)
        if (table := as_map(value)) is not None:
            return {key: self.value(item, (*path, key)) for key, item in table.items()}
        if (items := as_list(value)) is not None:
            return [self.value(item, (*path, index)) for index, item in enumerate(items)]
        return value

    def text(self, text: str, path: KeyPath, depth: int = 0) -> str:
        """The text with its references replaced; `Unresolved` when one of them was reported."""
        if "$" not in text:
            return text
        parts: list[str] = []
        at, replaced, failures = 0, False, 0
        while (dollar := text.find("$", at)) >= 0:
            parts.append(text[at:dollar])
            follows = text[dollar + 1 : dollar + 2]
            if follows != "{":
                parts.append("$")
                at = dollar + (2 if follows == "$" else 1)
                continue
            end = _closing_brace(text, dollar + 2)
            if end < 0:
                self._findings.add("'${' without '}'", path, hint="a literal $ is written $$")
                return Unresolved(text)
            found = self._reference(text[dollar + 2 : end], path, depth)
            failures += isinstance(found, Unresolved)
            if failures > MAX_FAILURES:
                break
            parts.append(found)
            at, replaced = end + 1, True
        parts.append(text[at:])
        result = "".join(parts)
        return Unresolved(text) if failures else Expanded(result) if replaced else result

    def _reference(self, body: str, path: KeyPath, depth: int) -> str:
        if body in self._environment.words:
            return self._environment.words[body]
        if depth > MAX_NESTING:
            return self._fail(f"defaults nested more than {MAX_NESTING} deep", path)
        if match := _VARIABLE.fullmatch(body):
            return self._variable(match[1], match[2], path, depth)
        kind, colon, rest = body.partition(":")
        if kind == "file" and colon:
            return self._file(self.text(rest, path, depth + 1), path)
        if kind in _NOT_YET and colon:
            return self._fail(f"'${{{kind}:…}}' is not supported yet", path, "use ${VAR} or ${file:path}")
        hint = "write ${VAR}, ${VAR:-default} or ${file:path}; a literal $ is $$"
        return self._fail("a '${…}' that is not understood", path, hint)

    def _variable(self, name: str, default: str | None, path: KeyPath, depth: int) -> str:
        value = self._environment.get(name)
        if value or (value is not None and default is None):
            return value
        if default is not None:
            return self.text(default, path, depth + 1)
        name = shorten(name)
        looked = "neither in the environment nor in a .env file beside the config"
        return self._fail(f"variable {name} is not set", path, f"{looked}; a default is written ${{{name}:-…}}")

    def _file(self, name: str, path: KeyPath) -> str:
        if isinstance(name, Unresolved):
            return name
        try:
            return self._environment.file(name).rstrip("\r\n")
        except UnreadableError as error:
            return self._fail(f"file {shorten(name)!r} {error}", path)

    def _fail(self, message: str, path: KeyPath, hint: str = "") -> Unresolved:
        self._findings.add(message, path, hint=hint)
        return Unresolved()


def _leave(value: Any) -> Any:
    """The same with its references left as they are."""
    if isinstance(value, str):
        return Unresolved(value) if "${" in value else value.replace("$$", "$")
    if (table := as_map(value)) is not None:
        return {key: _leave(item) for key, item in table.items()}
    if (items := as_list(value)) is not None:
        return [_leave(item) for item in items]
    return value


def _asks(value: Any) -> bool:
    return bool(_INPUT.search(value)) if isinstance(value, str) else any(map(_asks, children(value)))


def _closing_brace(text: str, start: int) -> int:
    level = 1
    for match in _BRACES.finditer(text, start):
        level += {"${": 1, "}": -1}.get(match[0], 0)
        if level == 0:
            return match.start()
    return -1
