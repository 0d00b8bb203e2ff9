"""References in values: `${VAR}`, `${VAR:-default}`, `${env:VAR}`, `${file:path}`,
`${keyring:name}`, and `$$` for a plain `$`; and values that are encrypted as a whole (`enc:v1:…`).

Promised: values only, never keys; what a variable or a file holds is text and is not looked into
again. What cannot be had (an unset variable without default, a file or an entry that is not there,
no key to decrypt with, `${input:…}`, which VS Code asks its user for) is never a literal: it
switches off the server or command it stands in, and anywhere else, or when strict, it is a finding.
The references of a disabled entry are left alone. The process environment wins over the `.env` file
beside the config. What may be a secret is noted (`Environment.secrets`). Not done here: what values
mean.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcpx.config.problems import Findings, GaveUpError, Spot, brief
from mcpx.config.source import UnreadableError, read_text
from mcpx.config.tree import (
    Expanded,
    KeyPath,
    Tree,
    Unresolved,
    as_bool,
    as_list,
    as_map,
    is_extra,
    map_leaves,
    shorten,
)
from mcpx.model.redaction import is_secret_name

if TYPE_CHECKING:
    from mcpx.auth.keychain import NoKeyring

ENTRY_SECTIONS = {"mcp_servers": "server", "commands": "command"}
"""Top keys whose entries can be switched off, and what one of them is called."""
ENV_FILE = "envFile"
"""Key of a connection in a client's file: variables for that server, which its `env` wins over."""
PROJECT_FOLDERS = (
    *(
        ".vscode",
        ".cursor",
        ".zed",
        ".gemini",
        ".codex",
        ".kiro",
        ".junie",
        ".roo",
        ".devin",
        ".opencode",
    ),
    *(".goose", ".grok", ".kimi-code", ".amp", ".air", ".continue", ".github"),
)
"""Where clients keep the settings of one project."""
MAX_SECRET_FILE = 64 * 1024
MAX_DOTENV = 1024 * 1024
MAX_NESTING = 10
"""Defaults within defaults."""
MAX_FAILURES = 5
"""Bad references told of one text, and reasons of an entry that is switched off."""

_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_BRACES = re.compile(r"\$\$|\$\{|\}")
_NOT_YET = ("input", "command")
_SEALED = re.compile(r"enc:v\d+:")
MOST_SEALED = 500
"""Encrypted values of one configuration: opening one may take 40 ms."""


class Environment:
    """Where variables are looked up."""

    def __init__(
        self,
        environ: Mapping[str, str],
        folder: Path,
        words: Mapping[str, str],
        looked_for: list[Path],
    ) -> None:
        """`words`: names a client program gives a meaning of its own; `looked_for` takes the files
        asked for values."""
        self._environ = environ
        self._folder = folder
        self._looked_for = looked_for
        self.words = words
        self.warnings: list[str] = []
        self.secrets: set[str] = set()
        """What was looked up and may be a secret."""
        self.looked_up: set[str] = set()
        """Names of variables that were asked for, whatever came of it."""
        self._kept: dict[str, str | None] = {}
        self._opened: dict[str, str] = {}
        self._no_keyring: NoKeyring | None = None

    def get(self, name: str) -> str | None:
        self.looked_up.add(name)
        value = self._environ.get(name)
        return self._dotenv.get(name) if value is None else value

    def file(self, name: str) -> str:
        path = self._folder / os.path.expanduser(name)
        self._looked_for.append(path)
        return read_text(path, MAX_SECRET_FILE)

    def keyring(self, name: str) -> str | None:
        """What the system's keyring has under this name, each asked for once. Raises
        `NoKeyring`."""
        from mcpx.auth import keychain  # only who keeps something there pays for it

        if self._no_keyring is not None:
            raise self._no_keyring
        if name not in self._kept:
            try:
                self._kept[name] = keychain.look_up(name)
            except keychain.NoKeyring as error:
                self._no_keyring = error
                raise
        return self._kept[name]

    def decrypted(self, text: str) -> str:
        """What an encrypted value holds. Raises `BadSeal`."""
        from mcpx.auth import sealing

        if text not in self._opened:
            if len(self._opened) >= MOST_SEALED:
                raise sealing.BadSeal(f"more than {MOST_SEALED} encrypted values")
            self.looked_up.add("MCPX_KEY")
            self._opened[text] = sealing.decrypt(text, self._environ)
        return self._opened[text]

    def note(self, value: str, name: str, path: KeyPath) -> None:
        """A value that came from a variable or a file, if its name or its place says that it is a
        secret."""
        place = [step for step in path if isinstance(step, str)]
        named = is_secret_name(name) or (bool(place) and is_secret_name(place[-1]))
        # A header may have any name; what is only a word or a number there is no secret.
        in_header = (
            "headers" in place and len(value) >= 12 and not value.isalpha() and not value.isdigit()
        )
        if named or in_header:
            self.secrets.add(value)

    def assignments(self, name: str) -> dict[str, str]:
        """Those of a file that is read like `.env`."""
        path = Path(self.words.get("workspaceFolder", self._folder), os.path.expanduser(name))
        self._looked_for.append(path)
        values, odd = parse_dotenv(read_text(path, MAX_DOTENV))
        self.warnings += [f"{path}:{line}: not understood, passed over" for line in odd[:3]]
        return values

    @cached_property
    def _dotenv(self) -> dict[str, str]:
        path = self._folder / ".env"
        self._looked_for.append(path)
        if not os.path.isfile(path):  # some people's virtual environment has this name
            return {}
        try:
            return self.assignments(str(path))
        except UnreadableError as error:
            self.warnings.append(f"{path} {error}; it is passed over")
            return {}


def client_words(environ: Mapping[str, str], workspace: Path) -> dict[str, str]:
    """What Cursor, VS Code and their kin replace beside variables."""
    return {
        "userHome": environ.get("HOME") or os.path.expanduser("~"),
        "workspaceFolder": str(workspace),
        "workspaceFolderBasename": workspace.name,
        "cwd": str(workspace),
        "pathSeparator": "/",
        "/": "/",
    }


def workspace_of(folder: Path) -> Path:
    """The project a client's file in this folder belongs to: `.vscode/mcp.json` lies one below
    it."""
    hidden = next((part for part in (folder, folder.parent) if part.name in PROJECT_FOLDERS), None)
    return hidden.parent if hidden else folder


Off = dict[KeyPath, str]
"""Entries that were switched off for want of something, and of what."""


def expand(
    tree: Tree, environment: Environment, findings: Findings, *, strict: bool = False
) -> tuple[Tree, Off]:
    """The native tree with its references replaced. `strict`: what cannot be had is a finding
    everywhere."""
    whole, off = _Expander(environment, findings, findings), Off()

    def section(key: str, value: Any) -> Any:
        entries = as_list(value) if key in ENTRY_SECTIONS else None
        if is_extra(key):
            return value
        if entries is None:
            return whole.value(value, (key,))
        return [entry(item, (key, index)) for index, item in enumerate(entries)]

    def entry(value: Any, path: KeyPath) -> Any:
        table = as_map(value)
        if table is None:
            return whole.value(value, path)
        missing = Findings(findings.spot)
        own = _Expander(environment, findings, missing)
        connection = as_map(table.get("connection")) or {}
        env_file = connection.get(ENV_FILE) if environment.words else None
        if env_file is not None:
            table = {
                **table,
                "connection": {key: item for key, item in connection.items() if key != ENV_FILE},
            }
        enabled = own.value(table.get("enabled"), (*path, "enabled"))
        if as_bool(enabled) is False:
            return {**_leave(table), "enabled": enabled}
        # Without a name nobody could say what is off: it is looked up with the rest of the file.
        name = {
            key: whole.value(item, (*path, key)) for key, item in table.items() if key == "name"
        }
        table = {key: item for key, item in table.items() if key != "name" and not is_extra(key)}
        try:
            expanded: Tree = {**own.value(table, path), **name}
            if env_file is not None:
                own.env_file(env_file, expanded["connection"], (*path, "connection"))
        except GaveUpError:
            if findings.full:
                raise
            expanded = {**_leave(table), **name}
        if missing and strict:
            findings.include(missing)
        elif missing:
            expanded["enabled"] = False
            off[path] = "; ".join(brief(found) for found in list(missing)[:MAX_FAILURES])
            hint = next(iter(missing)).hint
            what = f"{ENTRY_SECTIONS[str(path[0])]} {shorten(str(name.get('name')))!r}"
            reason = "; ".join(filter(None, (off[path], hint)))
            environment.warnings.append(f"{what} is switched off: {reason}")
        return expanded

    return {key: section(key, value) for key, value in tree.items()}, off


def peek(environment: Environment, spot: Callable[[KeyPath], Spot], value: Any) -> Any:
    """What a text will be once it is expanded, `Unresolved` where that will be reported; anything
    else as it is."""
    unheard = Findings(spot)
    return (
        _Expander(environment, unheard, unheard).text(value, ())
        if isinstance(value, str)
        else value
    )


class _Expander:
    def __init__(self, environment: Environment, findings: Findings, missing: Findings) -> None:
        """`missing` takes what cannot be had, `findings` what is written wrong."""
        self._environment = environment
        self._findings = findings
        self._missing = missing

    def env_file(self, given: Any, connection: Tree, path: KeyPath) -> None:
        """The variables of a client's `envFile`, for all that `env` does not say itself."""
        name, env = self.value(given, (*path, ENV_FILE)), as_map(connection.get("env") or {})
        if not isinstance(name, str):
            self._findings.add("expected the name of a file", (*path, ENV_FILE))
        elif not isinstance(name, Unresolved) and env is not None:
            try:
                values = self._environment.assignments(name)
            except UnreadableError as error:
                self._fail(f"{ENV_FILE} {shorten(name)!r} {error}", (*path, ENV_FILE))
            else:
                connection["env"] = {
                    **{key: Expanded(value) for key, value in values.items()},
                    **env,
                }

    def value(self, value: Any, path: KeyPath) -> Any:
        return map_leaves(value, self._leaf, path)

    def _leaf(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, str):
            return self.text(value, path)
        return value

    def text(self, text: str, path: KeyPath, depth: int = 0) -> str:
        """The text with its references replaced; `Unresolved` when one of them was reported."""
        if depth == 0 and text.startswith("enc:v") and is_encrypted(text):
            return self._decrypted(text, path)
        if "$" not in text:
            return text
        parts: list[str] = []
        at, replaced, failures = 0, False, 0
        while (dollar := text.find("$", at)) >= 0:
            parts.append(text[at:dollar])
            follows = text[dollar + 1 : dollar + 2]
            if follows != "{":
                parts.append("$")
                at = dollar + 1 + (follows == "$")
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
        if failures:
            return Unresolved(text)
        if replaced:
            return Expanded(result)
        return result

    def _reference(self, body: str, path: KeyPath, depth: int) -> str:
        if body in self._environment.words:
            return self._environment.words[body]
        if depth > MAX_NESTING:
            return self._wrong(f"defaults nested more than {MAX_NESTING} deep", path)
        if match := _VARIABLE.fullmatch(body):
            return self._variable(match[1], match[2], path, depth)
        kind, colon, rest = body.partition(":")
        if kind == "file" and colon:
            return self._file(self.text(rest, path, depth + 1), path)
        if kind == "keyring" and colon:
            return self._keyring(self.text(rest, path, depth + 1), path)
        if kind in _NOT_YET and colon:
            hint = "write ${VAR} or ${file:path} instead"
            return self._fail(f"'${{{kind}:…}}' is not supported yet", path, hint)
        hint = "write ${VAR}, ${VAR:-default}, ${file:path} or ${keyring:name}; a literal $ is $$"
        # In a client's file it may be a word of that client.
        refuse = self._fail if self._environment.words else self._wrong
        return refuse("a '${…}' that is not understood", path, hint)

    def _variable(self, name: str, default: str | None, path: KeyPath, depth: int) -> str:
        value = self._environment.get(name)
        if value or (value is not None and default is None):
            self._environment.note(value, name, path)
            return value
        if default is not None:
            return self.text(default, path, depth + 1)
        name = shorten(name)
        looked = "neither in the environment nor in a .env file beside the config"
        return self._fail(
            f"variable {name} is not set", path, f"{looked}; a default is written ${{{name}:-…}}"
        )

    def _file(self, name: str, path: KeyPath) -> str:
        if isinstance(name, Unresolved):
            return name
        try:
            value = self._environment.file(name).rstrip("\r\n")
        except UnreadableError as error:
            return self._fail(f"file {shorten(name)!r} {error}", path)
        if value.isprintable() and " " not in value:
            self._environment.secrets.add(
                value
            )  # hardly anything else is kept in a file of its own
        self._environment.note(value, os.path.basename(name), path)
        return value

    def _keyring(self, name: str, path: KeyPath) -> str:
        from mcpx.auth import keychain

        if isinstance(name, Unresolved):
            return name
        shown = shorten(name)
        if not keychain.is_name(name):
            hint = "letters, digits and _ - . / make a name"
            return self._wrong(f"'${{keyring:{shown}}}' is no name of a secret", path, hint)
        try:
            value = self._environment.keyring(name)
        except keychain.NoKeyring as error:
            return self._fail(
                f"${{keyring:{shown}}} cannot be looked up: {error}",
                path,
                "or write ${VAR} instead",
            )
        if not value:
            return self._fail(
                f"the keyring has no secret {shown!r}",
                path,
                f"set it with: mcpx secret set {shown}",
            )
        self._environment.secrets.add(value)
        return value

    def _decrypted(self, text: str, path: KeyPath) -> str:
        from mcpx.auth import sealing

        try:
            value = self._environment.decrypted(text)
        except sealing.NoKey as error:
            return self._fail(str(error), path, "the key is what 'mcpx secret encrypt' used")
        except sealing.BadSeal as error:
            return self._wrong(str(error), path, "make it anew with: mcpx secret encrypt")
        self._environment.secrets.add(value)
        return Expanded(value)

    def _fail(self, message: str, path: KeyPath, hint: str = "") -> Unresolved:
        self._missing.add(message, path, hint=hint)
        return Unresolved()

    def _wrong(self, message: str, path: KeyPath, hint: str = "") -> Unresolved:
        self._findings.add(message, path, hint=hint)
        return Unresolved()


def _leave(value: Any) -> Any:
    """The same with its references left as they are."""

    def left(value: Any, path: KeyPath) -> Any:
        if not isinstance(value, str):
            return value
        if "${" in value or is_encrypted(value):
            return Unresolved(value)
        return value.replace("$$", "$")

    return map_leaves(value, left)


def is_encrypted(text: str) -> bool:
    """Whether a value is one that `mcpx secret encrypt` made, or is meant to be."""
    return _SEALED.match(text) is not None


def _closing_brace(text: str, start: int) -> int:
    level = 1
    for match in _BRACES.finditer(text, start):
        level += {"${": 1, "}": -1}.get(match[0], 0)
        if level == 0:
            return match.start()
    return -1


# .env files

_ASSIGNMENT = r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)"
_CLOSING = {"'": "'", '"': r'(?<!\\)(?:\\\\)*"'}
_COMMENT = r"(?:^|\s)#.*"
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def parse_dotenv(text: str) -> tuple[dict[str, str], list[int]]:
    """The variables, and the numbers of the lines that could not be read."""
    values: dict[str, str] = {}
    odd: list[int] = []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(_ASSIGNMENT, line)
        if not match:
            odd.append(number)
        elif match[2][:1] in _CLOSING:
            value = _quoted(match[2], (more for _, more in lines))
            if value is None:
                odd.append(number)
            else:
                values[match[1]] = value
        else:
            values[match[1]] = re.sub(_COMMENT, "", match[2]).rstrip()
    return values, odd


def _quoted(value: str, more: Iterator[str]) -> str | None:
    """The text between the quotes; keys and certificates go on over several lines."""
    quote, part = value[0], value[1:]
    parts: list[str] = []
    while (end := re.search(_CLOSING[quote], part)) is None:
        parts.append(part)
        following = next(more, None)
        if following is None:
            return None
        part = following
    whole = "\n".join([*parts, part[: end.end() - 1]])
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), whole) if quote == '"' else whole
