"""Translates the servers of another shape to native servers.

Words of client programs get their meaning. A reserved name is changed in a client's file, and
reported. Every part knows its position. `dialects` finds the servers in a file.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from mcpx.config.environment import ENV_FILE
from mcpx.config.problems import Findings, Origins, nearest
from mcpx.config.schema import Dialect, Server
from mcpx.config.tool_filters import hidden_tools
from mcpx.config.tree import (
    KeyPath,
    Tree,
    as_bool,
    as_list,
    as_map,
    is_extra,
    map_leaves,
    shorten,
)
from mcpx.config.validate import keys_of
from mcpx.transports import TRANSPORTS

RESERVED = ("mcpx", "commands")
"""Server names of the gateway: its built-in server, and the local commands."""

Target = tuple[str, ...]
"""The place of a key of an entry in a native server."""

FLAT: dict[str, Target] = {
    **{key: (key,) for key in [*keys_of(Server), "default_timeout"]},
    **{
        key: ("connection", key)
        for transport in TRANSPORTS.values()
        for key in ["type", *keys_of(transport)]
    },
}
PROXY: dict[str, Target] = {**FLAT, "id": ("name",), "timeouts": ("timeouts",)}
CLIENT: dict[str, Target] = {
    **FLAT,
    "serverUrl": ("connection", "url"),
    "httpUrl": ("connection", "url"),
    "transport": ("connection", "type"),
    ENV_FILE: ("connection", ENV_FILE),
    "disabled": ("disabled",),
    "timeout": ("call_timeout",),  # In clients, it limits a request, not the start.
}
del CLIENT["trust"]  # Gemini's says whether to ask before a call.
OPENCODE_TIMEOUT = 1_000
"""opencode counts milliseconds for the start."""


@dataclass(frozen=True, slots=True)
class _Words:
    """What a client program writes differently."""

    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """Keys of entries, with the keys that most clients use."""
    moved: Mapping[str, tuple[tuple[str, str], str]] = field(
        default_factory=dict[str, tuple[tuple[str, str], str]]
    )
    """Keys whose values become parts of another value: its path, and the new value with `{}` for
    the old one. `*` in the path is each key or item of the old value."""
    reference: re.Pattern[str] | None = None
    """References to variables."""


_VARIABLE = "${{{}}}"
_WORDS: dict[Dialect, _Words] = {
    "mcpServers": _Words(  # Continue's.
        reference=re.compile(r"\$\{\{\s*(?:secrets|inputs)\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
    ),
    "gemini": _Words(reference=re.compile(r"(?<![\\$])\$([A-Za-z_][A-Za-z0-9_]*)")),
    "codex": _Words(
        {
            "http_headers": "headers",
            "env_vars": "inherit_env",
            "startup_timeout_sec": "default_timeout",
            "tool_timeout_sec": "call_timeout",
        },
        {
            "env_http_headers": (("headers", "*"), _VARIABLE),
            "bearer_token_env_var": (("headers", "Authorization"), f"Bearer {_VARIABLE}"),
        },
    ),
    "opencode": _Words(
        {"environment": "env", "timeout": "default_timeout"},
        reference=re.compile(r"(?<!\$)\{((?:env|file):[^{}]+)\}"),
    ),
    "goose": _Words(
        {"cmd": "command", "envs": "env", "uri": "url"}, {"env_keys": (("env", "*"), _VARIABLE)}
    ),
}
_TYPES = {
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "ws": "websocket",
    "local": "stdio",
}
"""Other names of connection types, in lower case."""
_BUILT_IN = ("builtin", "platform", "frontend", "inline_python")
"""Types of Goose's extensions that are parts of Goose."""


def targets_of(dialect: Dialect) -> dict[str, Target]:
    """The meaning of each key that an entry of this shape may have."""
    if dialect in ("flat", "proxy"):
        return {"flat": FLAT, "proxy": PROXY}[dialect]
    words = _WORDS.get(dialect, _Words()).keys
    return {**CLIENT, **{word: _target_of(usual) for word, usual in words.items()}}


def word_of(dialect: Dialect, target: Target) -> str:
    """The key for a native value in a shape."""
    for word, usual in _WORDS.get(dialect, _Words()).keys.items():
        if _target_of(usual) == target:
            return word
    if target == ("timeout",) and dialect not in ("flat", "proxy"):
        return "default_timeout"
    return target[-1]


def _target_of(usual: str) -> Target:
    if usual == "default_timeout":
        return ("timeout",)
    return CLIENT[usual]


Usual = tuple[Tree, dict[KeyPath, KeyPath]]
"""An entry with the keys that most clients use, and the positions of what was moved."""


def _usual(entry: Tree, dialect: Dialect) -> Usual:
    words = _WORDS.get(dialect, _Words())
    usual = {words.keys.get(key, key): value for key, value in entry.items()}
    moved: dict[KeyPath, KeyPath] = {
        (new,): (old,) for old, new in words.keys.items() if old in entry
    }
    for key, ((table_key, name), template) in words.moved.items():
        given = usual.pop(key, None)
        table = as_map(usual.get(table_key) or {})
        if given is None or table is None:
            continue
        values: Tree = {name: given}
        if name == "*":
            names = [each for each in as_list(given) or () if isinstance(each, str)]
            values = as_map(given) or dict(zip(names, names, strict=True))
        added = {each: template.format(value) for each, value in values.items()}
        for each in added.keys() - table.keys():
            below = (each,) * (as_map(given) is not None)
            moved[table_key, each] = (key, *below)
        if as_list(given) is not None:
            table = {**added, **table}  # Names precede the values of the table.
        usual[table_key] = {**table, **added, **table}
    if dialect == "opencode" and isinstance(seconds := usual.get("default_timeout"), int | float):
        usual["default_timeout"] = seconds / OPENCODE_TIMEOUT
    if dialect == "zed":
        usual.pop("source", None)
        _flatten(usual, "command", {"path": "command"}, moved)
    if dialect == "mcpServers" and "headers" not in usual:
        _flatten(usual, "requestOptions", {"headers": "headers"}, moved)
    return usual, moved


def _flatten(
    usual: Tree, key: str, words: Mapping[str, str], moved: dict[KeyPath, KeyPath]
) -> None:
    """Move parts of a map to the entry: of Zed's former `command: {path, args, env}`, and of
    Continue's `requestOptions: {headers}`."""
    table = as_map(usual.get(key))
    if table is None:
        return
    del usual[key]
    for part, value in table.items():
        if part not in words and key != "command":
            usual.setdefault(key, {})[part] = value
            continue
        word = words.get(part, part)
        usual[word] = value
        moved[(word,)] = (key, part)


class Entries:
    def __init__(
        self,
        dialect: Dialect,
        origins: Origins,
        findings: Findings,
        peek: Callable[[Any], Any],
        whole: bool,
    ) -> None:
        """`peek`: what a value will be once expanded. `whole`: not an overlay, whose entries may be
        parts."""
        self._dialect: Dialect = dialect
        self._origins = origins
        self._targets = CLIENT
        if dialect in ("flat", "proxy"):
            self._targets = targets_of(dialect)
        self._findings = findings
        self._peek = peek
        self._whole = whole
        self._lenient = dialect not in ("flat", "proxy")
        self._taken: set[str] = set()
        self.passed_over: list[str] = []
        self.renamed: dict[str, str] = {}
        self.warnings: list[str] = []
        self.references: list[tuple[str, str]] = []
        self.hidden_tools: dict[str, tuple[str, ...]] = {}

    def translate(self, section: KeyPath, value: Any, more: Mapping[KeyPath, Tree]) -> Any:
        """Native servers; None when that was reported. `more`: servers by name that stand elsewhere
        and win."""
        self._origins[("mcp_servers",)] = section
        named, listed = as_map(value), as_list(value)
        if named is None and listed is None:
            if not self._lenient:
                return value
            self._findings.add("expected servers by name", section)
            return None
        entries: list[tuple[KeyPath, Any]] = [
            ((*section, index), entry) for index, entry in enumerate(listed or ())
        ]
        by_name = {name: ((*section, name), entry) for name, entry in (named or {}).items()}
        for path, others in more.items():
            by_name |= {name: ((*path, name), entry) for name, entry in others.items()}
        entries += by_name.values()
        self._taken = {str(_name_of(written, entry)) for written, entry in entries}
        servers: list[Any] = []
        for written, entry in entries:
            if self._from_extension(written, entry) or self._is_built_in(written, entry):
                continue
            servers.append(self._server(entry, ("mcp_servers", len(servers)), written))
        return servers

    def _from_extension(self, written: KeyPath, value: Any) -> bool:
        """Zed starts some servers from its extensions; its file does not say how."""
        entry = as_map(value) or {}
        if (
            not self._lenient
            or {"command", "url"} & entry.keys()
            or not {"source", "settings"} & entry.keys()
        ):
            return False
        name = shorten(str(_name_of(written, value)))
        self.warnings.append(
            f"server {name!r} is left out: it comes with an extension, the file does not say how "
            "it runs"
        )
        return True

    def _is_built_in(self, written: KeyPath, value: Any) -> bool:
        if self._dialect != "goose" or (as_map(value) or {}).get("type") not in _BUILT_IN:
            return False
        self.warnings.append(
            f"extension {shorten(str(written[-1]))!r} is left out: it is a part of Goose"
        )
        return True

    def _referring(self, value: Any, pattern: re.Pattern[str]) -> Any:
        """With what another program writes for a variable written as here."""

        def refer(found: re.Match[str]) -> str:
            self.references.append((found[0], f"${{{found[1]}}}"))
            return f"${{{found[1]}}}"

        def replaced(value: Any, path: KeyPath) -> Any:
            return pattern.sub(refer, value) if isinstance(value, str) else value

        return map_leaves(value, replaced)

    def _server(self, value: Any, native: KeyPath, written: KeyPath) -> Any:
        self._origins[native] = self._origins[(*native, "connection")] = written
        entry = as_map(value)
        if entry is None:
            return value
        if (pattern := _WORDS.get(self._dialect, _Words()).reference) is not None:
            entry = as_map(self._referring(entry, pattern)) or {}
        entry, moved = _usual(entry, self._dialect)
        server: Tree = {}
        connection: Tree = {}
        for key, item in entry.items():
            if target := self._target(key, entry, written):
                tables = {1: server, 2: connection}
                tables[len(target)][target[-1]] = item
                self._origins[native + target] = (*written, key)
        for (key, *below), there in moved.items():
            if target := self._targets.get(str(key)):
                self._origins[(*native, *target, *below)] = (*written, *there)
        if isinstance(written[-1], str):
            server["name"] = written[-1]
            self._origins[(*native, "name")] = written
        self._timeouts(server, native, written)
        if self._lenient:
            self._rename(server)
            self._client_words(server, entry, native, written)
            if patterns := hidden_tools(entry):
                self.hidden_tools[str(server.get("name"))] = patterns
        self._split_command(connection, native, written)
        if self._whole or connection:
            self._decide_type(
                connection, entry, written, as_bool(self._peek(server.get("enabled"))) is not False
            )
            server["connection"] = connection
        return server

    def _rename(self, server: Tree) -> None:
        name = server.get("name")
        if name in RESERVED:
            free = next(other for n in count(2) if (other := f"{name}-{n}") not in self._taken)
            server["name"] = free
            self.renamed[free] = name

    def _target(self, key: str, entry: Tree, written: KeyPath) -> tuple[str, ...] | None:
        if key in self._targets or is_extra(key):
            return self._targets.get(key)
        if self._lenient:
            self.passed_over.append(key)
            return None
        # As if it had been spelled right, so that nothing is reported missing because of it.
        meant = self._findings.unknown_key(key, written, self._targets)
        if not meant or meant in entry:
            return None
        return self._targets[meant]

    def _timeouts(self, server: Tree, native: KeyPath, written: KeyPath) -> None:
        """S3's pair: to start, and for a call."""
        given = server.pop("timeouts", None)
        if given is None:
            return
        pair = {"init": "timeout", "call": "call_timeout"}
        table = as_map(given)
        if table is None:
            self._findings.add("expected 'init' and 'call'", (*written, "timeouts"))
            return
        for key, value in table.items():
            if key in pair:
                server[pair[key]] = value
                self._origins[(*native, pair[key])] = (*written, "timeouts", key)
            elif not is_extra(key):
                self._findings.unknown_key(key, (*written, "timeouts"), pair)

    def _client_words(self, server: Tree, entry: Tree, native: KeyPath, written: KeyPath) -> None:
        if "disabled" in server:
            value = server.pop("disabled")
            off = as_bool(self._peek(value))
            server["enabled"] = value
            if off is not None:
                server["enabled"] = not off
            self._origins[(*native, "enabled")] = (*written, "disabled")
        timeout = entry.get("timeout")
        # Claude and Gemini count milliseconds, Cline and Goose seconds.
        if isinstance(timeout, int) and timeout >= 1000 and self._dialect != "goose":
            server["call_timeout"] = timeout / 1000
        if "ref" not in (as_map(server.get("auth")) or {"ref": None}):  # Cursor's own
            self.passed_over.append("auth")
            del server["auth"]

    def _split_command(self, connection: Tree, native: KeyPath, written: KeyPath) -> None:
        """A whole command line as a list, its first word the program."""
        words = as_list(connection.get("command"))
        if not words:
            return
        rest = as_list(connection.get("args")) or []
        origins: list[KeyPath] = [(*written, "command", index) for index in range(len(words))]
        origins += [(*written, "args", index) for index in range(len(rest))]
        connection["command"], *connection["args"] = words + rest
        self._origins[(*native, "connection", "command")] = origins[0]
        for index, origin in enumerate(origins[1:]):
            self._origins[(*native, "connection", "args", index)] = origin

    def _decide_type(self, connection: Tree, entry: Tree, written: KeyPath, enabled: bool) -> None:
        given, url = connection.get("type"), connection.get("url")
        if enabled:
            given, url = self._peek(given), self._peek(url)
        kind = str(given or "").lower()
        if (
            kind == "remote" and self._lenient
        ):  # opencode's and others': how is for the address to say
            given = connection.pop("type") and None
        if kind in _TYPES:
            connection["type"] = kind = _TYPES[kind]
        elif given is None and "command" in connection:
            connection["type"] = kind = "stdio"
        elif given is None and isinstance(url, str):
            connection["type"] = kind = self._type_of(url, "httpUrl" in entry)
        elif given is None and self._whole:
            typo = next(
                (key for key in entry if self._lenient and nearest(key, ["command", "url"])), None
            )
            hint = "a program to start, or an address"
            if typo:
                hint = f"did you mean one of them by '{typo}'?"
            self._findings.add("neither 'command' nor 'url'", written, hint=hint)
            connection.update(type="stdio", command="-")
        transport = TRANSPORTS.get(kind)
        if self._lenient and transport:
            known = {"type", *keys_of(transport)}
            if kind == "stdio":
                known.add(ENV_FILE)
            for key in connection.keys() - known:
                self.passed_over.append(key)
                del connection[key]

    def _type_of(self, url: str, is_http: bool) -> str:
        if url.lower().startswith(("ws://", "wss://")):
            return "websocket"
        path = url.split("?", 1)[0].rstrip("/")
        if not is_http and (self._dialect == "gemini" or path.endswith("/sse")):
            return "sse"
        return "http"


def _name_of(written: KeyPath, entry: Any) -> Any:
    if isinstance(written[-1], str):
        return written[-1]
    return (as_map(entry) or {}).get("name")
