"""What must hold between the fields of a configuration, or of a value beyond its type.

Promised: looks at the native tree, so that its mistakes are told together with wrong types elsewhere; whatever
has the wrong type is passed over, `validate` tells that. What is odd but not wrong is a warning. The
connection of a disabled server and the body of a disabled command are not looked at.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcpx.config.entries import RESERVED
from mcpx.config.problems import Findings, nearest
from mcpx.config.tree import KeyPath, Tree, Unresolved, as_bool, as_list, as_map, maps_in, shorten, spell
from mcpx.model.origin import Origin
from mcpx.wire.address import BadAddress, parse, proxy_for

MAX_NAME = 64

_SCHEMES = {"http": ("http", "https"), "sse": ("http", "https"), "websocket": ("ws", "wss")}
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_FRAMING = r"(?i)content-length|transfer-encoding|host|connection|keep-alive|proxy-connection|te|trailer|upgrade|expect"
"""Headers that say where a message goes and ends: whoever could write them could write requests of his own."""
_OURS = rf"{_FRAMING}|mcp-.*|mcpx-via|last-event-id|sec-websocket-.*"
"""The same, and those of the protocol."""
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_SECRET_NAME = r"(?i)(?:token|secret|passw(?:or)?d|passphrase|api[-_]?key|authorization|credential|cookie)s?\Z"


def check(tree: Tree, findings: Findings, environ: Mapping[str, str]) -> list[str]:
    """Reports mistakes; gives warnings. `environ` may name proxies."""
    return _Checks(tree, findings, environ).run()


class _Checks:
    def __init__(self, tree: Tree, findings: Findings, environ: Mapping[str, str]) -> None:
        self._tree = tree
        self._findings = findings
        self._environ = environ
        self._auth_names = _names(tree.get("auth_configs"))
        self._profiles = _names(tree.get("profiles"))
        self._warnings: list[str] = []

    def run(self) -> list[str]:
        separator = (as_map(self._tree.get("naming")) or {}).get("separator")
        forbidden = "::" if separator == "::" else None
        for section, noun in (("mcp_servers", "server"), ("commands", "command"), ("auth_configs", "auth config")):
            self._unique(self._tree.get(section), (section,), noun, forbidden)
        self._unique(self._tree.get("profiles"), ("profiles",), "profile")
        self._front_auth(as_map((as_map(self._tree.get("server")) or {}).get("auth")) or {}, ("server", "auth"))
        for index, origin in enumerate(as_list((as_map(self._tree.get("server")) or {}).get("allowed_origins")) or ()):
            self._origin(origin, ("server", "allowed_origins", index))
        for index, server in maps_in(self._tree.get("mcp_servers")):
            self._server(server, ("mcp_servers", index))
        for index, command in maps_in(self._tree.get("commands")):
            self._command(command, ("commands", index))
        for index, auth in maps_in(self._tree.get("auth_configs")):
            self._auth_config(auth, ("auth_configs", index))
        known = _names(self._tree.get("mcp_servers"))
        for index, profile in maps_in(self._tree.get("profiles")):
            for position, name in enumerate(as_list(profile.get("servers")) or ()):
                self._known(name, known, "server", ("profiles", index, "servers", position))
        rules = (as_map(self._tree.get("policy")) or {}).get("rules")
        for index, rule in maps_in(rules):
            for position, name in enumerate(as_list(rule.get("profiles")) or ()):
                self._known(name, self._profiles, "profile", ("policy", "rules", index, "profiles", position))
        return self._warnings

    def _front_auth(self, auth: Tree, path: KeyPath) -> None:
        self._unique(auth.get("tokens"), (*path, "tokens"), "token")
        for index, token in maps_in(auth.get("tokens")):
            self._known(token.get("profile"), self._profiles, "profile", (*path, "tokens", index, "profile"))
        kind = str(auth.get("type") or "bearer").lower()
        for key, goes_with in (("tokens", "bearer"), ("issuer", "jwt"), ("audience", "jwt"), ("jwks_url", "jwt")):
            if kind in ("bearer", "jwt") and kind != goes_with and auth.get(key) is not None:
                hint = f"this one is 'type: {kind}'"
                self._findings.add(f"'{key}' goes with 'type: {goes_with}'", (*path, key), hint=hint, at="key")
        if kind == "jwt" and auth.get("issuer") is None:
            self._findings.add("missing key 'issuer'", path, hint="it goes with 'type: jwt'")
        for key in ("issuer", "jwks_url"):
            self._url(auth.get(key), _SCHEMES["http"], (*path, key))

    def _unique(self, section: Any, path: KeyPath, noun: str, forbidden: str | None = None) -> None:
        seen: dict[str, KeyPath] = {}
        for index, entry in maps_in(section):
            name, at = _text(entry.get("name")), (*path, index, "name")
            if name is None:
                continue
            if (first := seen.setdefault(name, at)) is not at:
                rival, hint = self._findings.spot(first), "names must be unique"
                self._findings.add(f"two {noun}s are named {shorten(name)!r}", at, hint=hint, rival=rival)
            if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
                hint = f"1 to {MAX_NAME} characters, no line breaks, no spaces around"
                self._findings.add(f"not a possible {noun} name", at, hint=hint)
            elif forbidden and forbidden in name:
                self._findings.add(f"a name must not hold '{forbidden}', the separator", at)
            elif noun == "server" and name in RESERVED:
                self._findings.add(f"the server name '{name}' is reserved", at, hint="give it another one")

    def _known(self, name: Any, known: list[str], noun: str, path: KeyPath) -> None:
        text = _text(name)
        if text is None or text in known:
            return
        meant = nearest(text, known)
        hint = f"did you mean '{meant}'?" if meant else f"known: {shorten(', '.join(known) or 'none')}"
        self._findings.add(f"no {noun} named {shorten(text)!r}", path, hint=hint)

    def _auth_ref(self, section: Tree, path: KeyPath) -> None:
        given, at = section.get("auth"), (*path, "auth")
        if (table := as_map(given)) is not None:
            given, at = table.get("ref"), (*at, "ref")
        self._known(given, self._auth_names, "auth config", at)

    def _server(self, server: Tree, path: KeyPath) -> None:
        self._auth_ref(server, path)
        connection = as_map(server.get("connection"))
        if connection is None or as_bool(server.get("enabled")) is False:
            return
        at = (*path, "connection")
        schemes = _SCHEMES.get(str(connection.get("type")).lower())
        if schemes:
            other = next((name for name in _SCHEMES if _scheme(connection.get("url")) in _SCHEMES[name]), None)
            hint = f"it goes with 'type: {other}'" if other else ""
            self._url(connection.get("url"), schemes, (*at, "url"), hint, dialled=True)
        self._headers(connection.get("headers"), (*at, "headers"), _OURS)
        self._child(connection, at)
        if _text(connection.get("command")) == "":
            self._findings.add("must not be empty", (*at, "command"))

    def _child(self, section: Tree, path: KeyPath) -> None:
        """What a program is given: no NUL can be passed to it."""
        for key, value in (as_map(section.get("env")) or {}).items():
            if not key or "=" in key or "\0" in key:
                self._findings.add("not a possible variable name", (*path, "env", key), at="key")
            self._no_nul(value, (*path, "env", key))
        for index, value in enumerate(as_list(section.get("args")) or ()):
            self._no_nul(value, (*path, "args", index))
        for key in ("command", "cwd", "interpreter", "path"):
            self._no_nul(section.get(key), (*path, key))

    def _no_nul(self, value: Any, path: KeyPath) -> None:
        if "\0" in (_text(value) or ""):
            self._findings.add("holds a NUL character", path)

    def _one_line(self, value: Any, path: KeyPath) -> None:
        text = _text(value) or ""
        if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", text):
            self._findings.add("holds a line break or NUL or the like, which a header cannot", path)
        elif not text.isascii() and any(ord(char) > 255 for char in text):
            hint = "a header takes latin-1 only; encode it"
            self._findings.add("holds a character that a header cannot", path, hint=hint)

    def _headers(self, headers: Any, path: KeyPath, ours: str = _FRAMING) -> None:
        """`ours`: names that only mcpx may set there."""
        for key, value in (as_map(headers) or {}).items():
            if not re.fullmatch(_HEADER_NAME, key):
                hint = "letters, digits and - only"
                self._findings.add("not a possible header name", (*path, key), hint=hint, at="key")
            elif re.fullmatch(ours, key):
                hint = "leave it out"
                self._findings.add(f"the header '{shorten(key)}' is set by mcpx", (*path, key), hint=hint, at="key")
            self._one_line(value, (*path, key))

    def _url(
        self, value: Any, schemes: tuple[str, ...], path: KeyPath, hint: str = "", *, dialled: bool = False
    ) -> None:
        """`dialled`: through a proxy, if the environment names one."""
        url = _text(value)
        if url is None:
            return
        try:
            found = parse(url, schemes)
            if dialled and found.scheme in ("http", "https"):  # a WebSocket goes without
                proxy_for(found, self._environ)
        except BadAddress as problem:
            self._findings.add(problem.what, path, hint=problem.hint or hint)

    def _origin(self, value: Any, path: KeyPath) -> None:
        text = _text(value)
        if text is not None and Origin.parse(text) is None:
            hint = "http:// or https://, a name, a port where it is not the usual one: https://app.example:8443"
            self._findings.add("not the origin of a web page", path, hint=hint)

    def _command(self, command: Tree, path: KeyPath) -> None:
        self._unique(command.get("parameters"), (*path, "parameters"), "parameter")
        for index, parameter in maps_in(command.get("parameters")):
            self._parameter(parameter, (*path, "parameters", index))
        self._section_of_type(command, ("http", "script"), path)
        http, script = as_map(command.get("http")), as_map(command.get("script"))
        if http is not None:
            self._auth_ref(http, (*path, "http"))
        if as_bool(command.get("enabled")) is False:
            return
        if http is not None:
            url = re.sub(r"\{[^{}]*\}", "0", _text(http.get("url")) or "")  # what a parameter fills in
            self._url(url if url else http.get("url"), _SCHEMES["http"], (*path, "http", "url"))
            self._headers(http.get("headers"), (*path, "http", "headers"))
        if script is not None:
            self._child(script, (*path, "script"))
            file = _text(script.get("path"))
            if file and "\0" not in file and not os.path.isfile(file):
                self._warnings.append(f"the script of command {command.get('name')!r} is not there: {file}")

    def _section_of_type(self, entry: Tree, sections: tuple[str, ...], path: KeyPath) -> None:
        """`type: http` comes with a section `http` and no other."""
        kind = str(entry.get("type")).lower()
        if kind not in sections:
            return
        if entry.get(kind) is None:
            self._findings.add(f"missing key '{kind}'", path, hint=f"it goes with 'type: {kind}'")
        for other in sections:
            if other != kind and entry.get(other) is not None:
                hint = f"this one is 'type: {kind}'"
                self._findings.add(f"'{other}' goes with 'type: {other}'", (*path, other), hint=hint, at="key")

    def _parameter(self, parameter: Tree, path: KeyPath) -> None:
        kind = str(parameter.get("type") or "string").lower()
        wanted = _JSON_TYPES.get(kind)
        if wanted is None:
            return
        allowed = as_list(parameter.get("enum"))
        given: list[tuple[Any, KeyPath]] = [
            (value, (*path, "enum", index)) for index, value in enumerate(allowed or ())
        ]
        if (default := parameter.get("default")) is not None:
            given.append((default, (*path, "default")))
            if allowed is not None and default not in allowed and not isinstance(default, Unresolved):
                self._findings.add("the default is not in 'enum'", (*path, "default"))
        for value, at in given:
            if isinstance(value, Unresolved):
                continue
            if not isinstance(value, wanted) or (isinstance(value, bool) and kind != "boolean"):
                self._findings.add(f"not of type {kind}", at)

    def _auth_config(self, auth: Tree, path: KeyPath) -> None:
        kinds = ("api_key", "bearer_token", "basic_auth", "oauth2", "custom_header")
        self._section_of_type(auth, kinds, path)
        for kind, keys in (("api_key", ("name", "value")), ("bearer_token", ("token",))):
            section = as_map(auth.get(kind)) or {}
            for key in keys:
                self._one_line(section.get(key), (*path, kind, key))
        custom = as_map(auth.get("custom_header")) or {}
        self._headers(custom.get("headers"), (*path, "custom_header", "headers"))
        oauth = as_map(auth.get("oauth2")) or {}
        self._url(oauth.get("token_url"), _SCHEMES["http"], (*path, "oauth2", "token_url"))


def secret_warnings(tree: Tree, path: Path) -> list[str]:
    """A warning when others may read a file that holds a literal secret. `tree` is the file's, unexpanded."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:  # gone since it was read
        return []
    found = _literal_secret(tree, ()) if os.name == "posix" and mode & 0o077 else None
    if found is None:
        return []
    advice = "chmod 600 it, or keep the secret in ${VAR} or ${file:path}"
    return [f"{path.name} holds a secret ({spell(found)}) and others may read it (mode {mode:04o}): {advice}"]


def _literal_secret(value: Any, path: KeyPath) -> KeyPath | None:
    children = list((as_map(value) or {}).items()) or list(enumerate(as_list(value) or ()))
    found = (_literal_secret(item, (*path, key)) for key, item in children)
    if first := next(filter(None, found), None):
        return first
    text = _text(value) or ""
    literal = text and not text.isdigit() and "${" not in text and not text.startswith("{")
    named = [step for step in path if isinstance(step, str)]
    secret = named and (re.search(_SECRET_NAME, named[-1]) or named[-2:] == ["api_key", "value"])
    return path if literal and secret else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and not isinstance(value, Unresolved) else None


def _scheme(value: Any) -> str:
    scheme, found, _ = (_text(value) or "").partition("://")
    return scheme.lower() if found else ""


def _names(section: Any) -> list[str]:
    return [name for _, entry in maps_in(section) if (name := _text(entry.get("name")))]
