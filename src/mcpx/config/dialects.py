"""Other shapes of configuration, turned into the native one.

Promised: each shape keeps the default mode and the naming of its own document; every part of the native tree
knows where it stood in the user's file. In a client's file keys that are not ours are passed over and named;
in the shapes of our own documents they are mistakes. References stay unexpanded, so that what an overlay
replaces is never looked up. Not done here: judging the native tree.

To add a dialect: one function here, its row in `_DIALECTS`, and a golden file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcpx.config.origins import Origins
from mcpx.config.problems import Findings, nearest
from mcpx.config.schema import Config, Dialect, Global, Mode, Server
from mcpx.config.source import Source
from mcpx.config.tree import KeyPath, Tree, as_bool, as_list, as_map, is_extra, maps_in
from mcpx.config.validate import keys_of
from mcpx.transports import TRANSPORTS

TOP_KEYS = frozenset(keys_of(Config))
CLIENT_DIALECTS: tuple[Dialect, ...] = ("mcpServers", "vscode")

_GLOBAL_KEYS = frozenset(keys_of(Global))
_CONNECTION_KEYS = frozenset({"type"}.union(*(keys_of(transport) for transport in TRANSPORTS.values())))

Targets = dict[str, tuple[str, ...]]
"""For each key of an entry where it stands in a native server."""

_FLAT: Targets = {
    **{key: (key,) for key in [*keys_of(Server), "default_timeout"]},
    **{key: ("connection", key) for key in _CONNECTION_KEYS},
}
_PROXY: Targets = {**_FLAT, "id": ("name",), "timeouts": ("timeouts",)}
_CLIENT: Targets = {
    **_FLAT,
    "serverUrl": ("connection", "url"),
    "httpUrl": ("connection", "url"),
    "transport": ("connection", "type"),
    "disabled": ("disabled",),
    "timeout": ("call_timeout",),  # what clients call so bounds a request, not the start
}
del _CLIENT["trust"]  # Gemini's says whether to ask before a call

_TYPES = {
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "ws": "websocket",
}
"""Other names of our connection types, in lower case."""


@dataclass(slots=True)
class Translation:
    dialect: Dialect
    tree: Tree
    """The native shape."""
    origins: Origins
    mode: Mode = "direct"
    """Default mode of this shape."""
    naming: Mapping[str, str] = field(default_factory=dict[str, str])
    """Default naming of this shape."""
    passed_over: list[str] = field(default_factory=list[str])
    """Keys of another program."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How one file is read."""

    findings: Findings
    peek: Callable[[Any], Any]
    """What a value will be once its references are replaced."""
    over: Dialect | None = None
    """The shape an overlay lies over; its entries need not be whole."""


def detect(tree: Tree, over: Dialect | None = None) -> Dialect:
    if "mcpServers" in tree:
        return "mcpServers"
    if "servers" in tree and "mcp_servers" not in tree:
        return "proxy" if as_map(tree["servers"]) is None else "vscode"
    entries = maps_in(tree.get("mcp_servers"))
    spread = not any("connection" in entry for _, entry in entries)
    return "flat" if spread and (over == "flat" if over else entries) else "native"


def translate(tree: Tree, source: Source, reading: Reading) -> Translation:
    rivals = [key for key in ("mcp_servers", "mcpServers", "servers") if key in tree]
    for extra in rivals[1:]:
        hint = "keep one of them"
        reading.findings.add(f"'{rivals[0]}' and '{extra}' in one file", (extra,), hint=hint, at="key")
    dialect = detect(tree, reading.over)
    result = Translation(dialect, {}, Origins(source))
    _DIALECTS[dialect](tree, result, reading)
    return result


def _native(tree: Tree, result: Translation, reading: Reading) -> None:
    result.tree = tree


def _flat(tree: Tree, result: Translation, reading: Reading) -> None:
    """S0 and S1: connections spread over their servers, and the words of `global` at the top."""
    result.mode = "describe"
    findings = reading.findings
    words: Tree = {}
    for key, value in tree.items():
        if key in TOP_KEYS or is_extra(key):
            result.tree[key] = value
            continue
        meant = key if key in _GLOBAL_KEYS else findings.unknown_key(key, (), TOP_KEYS | _GLOBAL_KEYS)
        if meant in _GLOBAL_KEYS:
            words[meant] = value
            result.origins["global", meant] = (key,)
    section = as_map(tree.get("global") or {})
    if words and section is not None:
        for key in words.keys() & section.keys():
            findings.add(f"'{key}' stands here and under 'global'", (key,), hint="keep one of them", at="key")
        result.tree["global"] = {**words, **section}
    _Entries(result, "mcp_servers", _FLAT, reading).translate(tree.get("mcp_servers"))


def _proxy(tree: Tree, result: Translation, reading: Reading) -> None:
    """S3: `servers: [{id, command: […], env, timeout | timeouts {init, call}}]`."""
    result.naming = {"separator": "::", "prefix": "always"}
    result.tree = {key: value for key, value in tree.items() if key != "servers"}
    _Entries(result, "servers", _PROXY, reading).translate(tree["servers"])


def _client(tree: Tree, result: Translation, reading: Reading) -> None:
    """The servers by name in the files of Claude, Cursor, VS Code and their kin; our own keys may stand beside."""
    result.mode, result.naming = "auto", {"prefix": "always"}
    section = "servers" if result.dialect == "vscode" else "mcpServers"
    result.tree = {key: value for key, value in tree.items() if key in TOP_KEYS}
    result.passed_over += [
        key for key in tree if key not in result.tree and key not in (section, "inputs") and not is_extra(key)
    ]
    _Entries(result, section, _CLIENT, reading, lenient=True).translate(tree[section])


_DIALECTS: dict[Dialect, Callable[[Tree, Translation, Reading], None]] = {
    "native": _native,
    "flat": _flat,
    "proxy": _proxy,
    "mcpServers": _client,
    "vscode": _client,
}


class _Entries:
    """The servers of one section, one after the other, as native ones."""

    def __init__(
        self,
        result: Translation,
        section: str,
        targets: Mapping[str, tuple[str, ...]],
        reading: Reading,
        *,
        lenient: bool = False,
    ) -> None:
        self._result = result
        self._origins = result.origins
        self._section = section
        self._targets = targets
        self._findings = reading.findings
        self._peek = reading.peek
        self._whole = reading.over is None
        self._lenient = lenient

    def translate(self, value: Any) -> None:
        self._origins[("mcp_servers",)] = (self._section,)
        named, listed = as_map(value), as_list(value)
        if self._lenient and named is None and listed is None:
            self._findings.add("expected servers by name", (self._section,))
            return
        if named is None and listed is None:
            self._result.tree["mcp_servers"] = value
            return
        entries = named.items() if named is not None else enumerate(listed or ())
        self._result.tree["mcp_servers"] = [
            self._server(entry, ("mcp_servers", index), (self._section, step))
            for index, (step, entry) in enumerate(entries)
        ]

    def _server(self, value: Any, native: KeyPath, written: KeyPath) -> Any:
        self._origins[native] = self._origins[(*native, "connection")] = written
        entry = as_map(value)
        if entry is None:
            return value
        server: Tree = {}
        connection: Tree = {}
        for key, item in entry.items():
            target = self._target(key, entry, written)
            if target:
                (connection if len(target) == 2 else server)[target[-1]] = item
                self._origins[native + target] = (*written, key)
        if isinstance(name := written[-1], str):
            server["name"] = name
            self._origins[(*native, "name")] = written
        self._timeouts(server, native, written)
        if self._lenient:
            self._client_words(server, entry, native, written)
        self._split_command(connection, native, written)
        if self._whole or connection:
            self._settle_type(connection, entry, written, as_bool(self._peek(server.get("enabled"))) is not False)
            server["connection"] = connection
        return server

    def _target(self, key: str, entry: Tree, written: KeyPath) -> tuple[str, ...] | None:
        if key in self._targets or is_extra(key):
            return self._targets.get(key)
        if self._lenient:
            self._result.passed_over.append(key)
            return None
        # As if it had been spelled right, so that nothing is reported missing because of it.
        meant = self._findings.unknown_key(key, written, self._targets)
        return self._targets[meant] if meant and meant not in entry else None

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
            server["enabled"] = value if off is None else not off
            self._origins[(*native, "enabled")] = (*written, "disabled")
        timeout = entry.get("timeout")
        if isinstance(timeout, int) and timeout >= 1000:  # Claude and Gemini count milliseconds, Cline seconds
            server["call_timeout"] = timeout / 1000
        if "ref" not in (as_map(server.get("auth")) or {"ref": None}):  # Cursor's own
            self._result.passed_over.append("auth")
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

    def _settle_type(self, connection: Tree, entry: Tree, written: KeyPath, enabled: bool) -> None:
        given, url = connection.get("type"), connection.get("url")
        if enabled:
            given, url = self._peek(given), self._peek(url)
        kind = given.lower() if isinstance(given, str) else ""
        if kind in _TYPES:
            connection["type"] = kind = _TYPES[kind]
        elif given is None and "command" in connection:
            connection["type"] = kind = "stdio"
        elif given is None and isinstance(url, str):
            connection["type"] = kind = "http" if "httpUrl" in entry else _type_of(url)
        elif given is None and self._whole:
            typo = next((key for key in entry if self._lenient and nearest(key, ["command", "url"])), None)
            hint = f"did you mean one of them by '{typo}'?" if typo else "a program to start, or an address"
            self._findings.add("neither 'command' nor 'url'", written, hint=hint)
            connection.update(type="stdio", command="-")
        transport = TRANSPORTS.get(kind)
        if self._lenient and transport:
            for key in connection.keys() - {"type", *keys_of(transport)}:
                self._result.passed_over.append(key)
                del connection[key]


def _type_of(url: str) -> str:
    if url.lower().startswith(("ws://", "wss://")):
        return "websocket"
    path = url.split("?", 1)[0].rstrip("/")
    return "sse" if path.endswith("/sse") else "http"
