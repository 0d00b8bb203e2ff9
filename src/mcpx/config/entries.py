"""The servers of another shape, one after the other, as native ones.

Promised: what clients call differently means the same; a name that is reserved here is changed in a
client's file, and told; every part knows where it stood. Not done here: where in a file the servers
stand (`dialects`).
"""

import re
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from mcpx.config.environment import ENV_FILE
from mcpx.config.origins import Origins
from mcpx.config.problems import Findings, nearest
from mcpx.config.schema import Dialect, Server
from mcpx.config.tool_filters import hidden_tools
from mcpx.config.tree import KeyPath, Tree, as_bool, as_list, as_map, is_extra, shorten
from mcpx.config.validate import keys_of
from mcpx.transports import TRANSPORTS

RESERVED = ("mcpx", "commands")
"""Server names that are ours: the built-in server that keeps large results, and the local
commands."""

Targets = dict[str, tuple[str, ...]]
"""For each key of an entry where it stands in a native server."""

FLAT: Targets = {
    **{key: (key,) for key in [*keys_of(Server), "default_timeout"]},
    **{
        key: ("connection", key)
        for transport in TRANSPORTS.values()
        for key in ["type", *keys_of(transport)]
    },
}
PROXY: Targets = {**FLAT, "id": ("name",), "timeouts": ("timeouts",)}
CLIENT: Targets = {
    **FLAT,
    "serverUrl": ("connection", "url"),
    "httpUrl": ("connection", "url"),
    "transport": ("connection", "type"),
    ENV_FILE: ("connection", ENV_FILE),
    "disabled": ("disabled",),
    "timeout": ("call_timeout",),  # what clients call so bounds a request, not the start
}
del CLIENT["trust"]  # Gemini's says whether to ask before a call

_TYPES = {
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "ws": "websocket",
    "local": "stdio",
}
"""Other names of our connection types, in lower case."""

Usual = tuple[Tree, dict[KeyPath, KeyPath]]
"""An entry in the words most clients use, and where what was moved stood in it."""

_CODEX_WORDS = {
    "http_headers": "headers",
    "env_vars": "inherit_env",
    "startup_timeout_sec": "default_timeout",
    "tool_timeout_sec": "call_timeout",
}


def _of_codex(entry: Tree) -> Usual:
    """Codex names variables instead of referring to them."""
    usual, moved = _with_words(entry, _CODEX_WORDS)
    named: dict[str, tuple[str, KeyPath]] = {}
    for header, variable in (as_map(usual.pop("env_http_headers", None)) or {}).items():
        named[header] = f"${{{variable}}}", ("env_http_headers", header)
    if (variable := usual.pop("bearer_token_env_var", None)) is not None:
        named["Authorization"] = f"Bearer ${{{variable}}}", ("bearer_token_env_var",)
    if named and (headers := as_map(usual.get("headers") or {})) is not None:
        usual["headers"] = {**headers, **{header: value for header, (value, _) in named.items()}}
        moved |= {("headers", header): written for header, (_, written) in named.items()}
    return usual, moved


def _of_opencode(entry: Tree) -> Usual:
    """opencode counts milliseconds for the start."""
    usual, moved = _with_words(entry, {"environment": "env", "timeout": "default_timeout"})
    if isinstance(timeout := usual.get("default_timeout"), int | float):
        usual["default_timeout"] = timeout / 1000
    return usual, moved


_REFERENCES: dict[Dialect, re.Pattern[str]] = {
    "opencode": re.compile(r"(?<!\$)\{((?:env|file):[^{}]+)\}"),
    "gemini": re.compile(r"(?<![\\$])\$([A-Za-z_][A-Za-z0-9_]*)"),
    "mcpServers": re.compile(
        r"\$\{\{\s*(?:secrets|inputs)\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}"
    ),  # Continue's
}
"""How some programs write what is `${…}` here."""


def _of_zed(entry: Tree) -> Usual:
    """Zed's older form: `command: {path, args, env}`."""
    command = as_map(entry.get("command"))
    usual = {key: value for key, value in entry.items() if key != "source"}
    if command is None:
        return usual, {}
    words = {"command" if key == "path" else key: key for key in command}
    moved: dict[KeyPath, KeyPath] = {(word,): ("command", key) for word, key in words.items()}
    return {**usual, "command": None, **{word: command[key] for word, key in words.items()}}, moved


def _with_words(entry: Tree, words: Mapping[str, str]) -> Usual:
    moved: dict[KeyPath, KeyPath] = {(new,): (old,) for old, new in words.items() if old in entry}
    return {words.get(key, key): value for key, value in entry.items()}, moved


def _of_continue(entry: Tree) -> Usual:
    """Continue's headers stand among what it says of requests."""
    options = as_map(entry.get("requestOptions")) or {}
    if "headers" not in options or "headers" in entry:
        return entry, {}
    left = {key: value for key, value in options.items() if key != "headers"}
    usual = {key: value for key, value in entry.items() if key != "requestOptions"}
    usual |= {"headers": options["headers"], **({"requestOptions": left} if left else {})}
    return usual, {("headers",): ("requestOptions", "headers")}


def _of_goose(entry: Tree) -> Usual:
    """Goose has words of its own, and names variables that it keeps in its keyring."""
    usual, moved = _with_words(entry, {"cmd": "command", "envs": "env", "uri": "url"})
    keys = [key for key in as_list(usual.pop("env_keys", None)) or () if isinstance(key, str)]
    if keys and (env := as_map(usual.get("env") or {})) is not None:
        usual["env"] = {**{key: f"${{{key}}}" for key in keys}, **env}
        moved |= {("env", key): ("env_keys",) for key in keys if key not in env}
    return usual, moved


_USUAL: dict[Dialect, Callable[[Tree], Usual]] = {
    "mcpServers": _of_continue,
    "codex": _of_codex,
    "opencode": _of_opencode,
    "zed": _of_zed,
    "goose": _of_goose,
}
_BUILT_IN = ("builtin", "platform", "frontend", "inline_python")
"""Kinds of Goose's extensions that are parts of itself."""


class Entries:
    def __init__(
        self,
        dialect: Dialect,
        origins: Origins,
        targets: Mapping[str, tuple[str, ...]],
        findings: Findings,
        peek: Callable[[Any], Any],
        whole: bool,
    ) -> None:
        """`peek`: what a value will be once expanded. `whole`: not an overlay, whose entries may be
        parts."""
        self._dialect: Dialect = dialect
        self._usual = _USUAL.get(dialect)
        self._origins = origins
        self._targets = targets
        self._findings = findings
        self._peek = peek
        self._whole = whole
        self._lenient = targets is CLIENT
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
            if self._lenient:
                self._findings.add("expected servers by name", section)
            return None if self._lenient else value
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

        if isinstance(value, str):
            return pattern.sub(refer, value)
        if (table := as_map(value)) is not None:
            return {key: self._referring(item, pattern) for key, item in table.items()}
        items = as_list(value)
        return value if items is None else [self._referring(item, pattern) for item in items]

    def _server(self, value: Any, native: KeyPath, written: KeyPath) -> Any:
        self._origins[native] = self._origins[(*native, "connection")] = written
        entry = as_map(value)
        if entry is None:
            return value
        if (pattern := _REFERENCES.get(self._dialect)) is not None:
            entry = as_map(self._referring(entry, pattern)) or {}
        entry, moved = self._usual(entry) if self._usual else (entry, {})
        server: Tree = {}
        connection: Tree = {}
        for key, item in entry.items():
            target = self._target(key, entry, written)
            if target:
                (connection if len(target) == 2 else server)[target[-1]] = item
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
        kind = given.lower() if isinstance(given, str) else ""
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
            hint = (
                f"did you mean one of them by '{typo}'?"
                if typo
                else "a program to start, or an address"
            )
            self._findings.add("neither 'command' nor 'url'", written, hint=hint)
            connection.update(type="stdio", command="-")
        transport = TRANSPORTS.get(kind)
        if self._lenient and transport:
            known = {"type", *keys_of(transport), *([ENV_FILE] if kind == "stdio" else ())}
            for key in connection.keys() - known:
                self.passed_over.append(key)
                del connection[key]

    def _type_of(self, url: str, is_http: bool) -> str:
        if url.lower().startswith(("ws://", "wss://")):
            return "websocket"
        path = url.split("?", 1)[0].rstrip("/")
        is_sse = self._dialect == "gemini" or path.endswith("/sse")
        return "sse" if is_sse and not is_http else "http"


def _name_of(written: KeyPath, entry: Any) -> Any:
    return written[-1] if isinstance(written[-1], str) else (as_map(entry) or {}).get("name")
