"""Rules between fields of a configuration, and warnings about what is odd but not wrong.

The rules look at the native tree, so that their mistakes are reported together with those of
`validate`. They skip values of the wrong type, and the contents of disabled servers and commands.
Rules of single fields are in `fields`.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from mcpx.config.entries import RESERVED
from mcpx.config.fields import address_mistakes, header_mistakes
from mcpx.config.problems import Findings
from mcpx.config.tree import (
    KeyPath,
    Tree,
    Unresolved,
    as_bool,
    as_list,
    as_map,
    maps_in,
    shorten,
    spell,
)
from mcpx.model.kinds import Mistake
from mcpx.model.secret_rules import find_secrets, replace_secrets
from mcpx.wire.address import BadAddress, parse
from mcpx.wire.fields import FRAMING, OURS

MAX_NAME = 64
DOTS = (".", "..")
"""Not possible as names: browsers remove them from URLs of the admin API."""

_SCHEMES = {"http": ("http", "https"), "sse": ("http", "https"), "websocket": ("ws", "wss")}
_BEARER_KEYS = ("tokens",)
_JWT_KEYS = ("issuer", "audience", "jwks_url", "scopes")
_NAMED_SECTIONS = {
    "mcp_servers": "server",
    "commands": "command",
    "auth_configs": "auth config",
    "profiles": "profile",
}


def check(tree: Tree, findings: Findings, environ: Mapping[str, str]) -> list[str]:
    """Report mistakes, and return warnings."""
    separator = _map_at(tree, "naming").get("separator")
    for section, noun in _NAMED_SECTIONS.items():
        is_split = separator == "::" and section != "profiles"
        _check_names(tree.get(section), (section,), noun, findings, "::" * is_split)
    _check_client_auth(_map_at(tree, "server", "auth"), ("server", "auth"), findings)
    for index, server in _enabled(tree.get("mcp_servers")):
        _check_server(server, ("mcp_servers", index), tree, findings, environ)
    for index, command in maps_in(tree.get("commands")):
        _check_command(command, ("commands", index), tree, findings)
    return [*_command_warnings(tree), *_rule_warnings(_map_at(tree, "policy"))]


def _check_names(
    section: Any, path: KeyPath, noun: str, findings: Findings, separator: str = ""
) -> None:
    seen: dict[str, KeyPath] = {}
    for index, entry in maps_in(section):
        name, at = _text(entry.get("name")), (*path, index, "name")
        if name is None:
            continue
        first = seen.setdefault(name, at)
        if first is not at:
            what, hint = f"two {noun}s are named {shorten(name)!r}", "names must be unique"
            findings.add(what, at, hint=hint, rival=findings.spot(first))
        if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
            hint = f"1 to {MAX_NAME} characters, no line breaks, no spaces around"
            findings.add(f"not a possible {noun} name", at, hint=hint)
        elif name in DOTS:
            hint = "browsers take dots out of addresses"
            findings.add(f"not a possible {noun} name", at, hint=hint)
        elif separator and separator in name:
            findings.add(f"a name must not hold '{separator}', the separator", at)
        elif noun == "server" and name in RESERVED:
            what, hint = f"the server name '{name}' is reserved", "give it another one"
            findings.add(what, at, hint=hint)


def _check_client_auth(auth: Tree, path: KeyPath, findings: Findings) -> None:
    _check_names(auth.get("tokens"), (*path, "tokens"), "token", findings)
    secrets: dict[str, KeyPath] = {}
    for index, token in maps_in(auth.get("tokens")):
        text, at = _text(token.get("token")), (*path, "tokens", index, "token")
        if text is not None and (first := secrets.setdefault(text, at)) is not at:
            hint = "each must have its own, or nobody knows whose it is"
            findings.add("two tokens are the same", at, hint=hint, rival=findings.spot(first))
    kind = str(auth.get("type") or "bearer").lower()
    foreign = {"bearer": ("jwt", _JWT_KEYS), "jwt": ("bearer", _BEARER_KEYS)}
    other, keys = foreign.get(kind, ("", ()))
    for key in keys:
        if auth.get(key) is not None:
            what, hint = f"'{key}' goes with 'type: {other}'", f"this one is 'type: {kind}'"
            findings.add(what, (*path, key), hint=hint, at="key")
    if kind == "jwt" and auth.get("issuer") is None:
        findings.add("missing key 'issuer'", path, hint="it goes with 'type: jwt'")


# Servers


def _check_server(
    server: Tree, path: KeyPath, tree: Tree, findings: Findings, environ: Mapping[str, str]
) -> None:
    connection = as_map(server.get("connection"))
    if connection is None:
        return
    kind = str(connection.get("type")).lower()
    _check_server_auth(server, kind, path, tree, findings)
    for wrong in _connection_mistakes(connection, kind, environ):
        at = (*path, "connection", *wrong.path)
        findings.add(wrong.what, at, hint=wrong.hint, at=wrong.at)


def _connection_mistakes(
    connection: Tree, kind: str, environ: Mapping[str, str]
) -> Iterator[Mistake]:
    url = _text(connection.get("url"))
    if kind in _SCHEMES and url is not None:
        scheme = _scheme(url)
        other = next((name for name, schemes in _SCHEMES.items() if scheme in schemes), None)
        hint = f"it goes with 'type: {other}'" * (other is not None)
        for wrong in address_mistakes(url, environ, schemes=_SCHEMES[kind], hint=hint):
            yield wrong.below("url")
    for wrong in header_mistakes(as_map(connection.get("headers")) or {}, environ):
        yield wrong.below("headers")
    for key, value in (as_map(connection.get("env")) or {}).items():
        if not key or "=" in key or "\0" in key:
            yield Mistake("not a possible variable name", ("env", key), at="key")
        yield from _nul_mistakes(value, "env", key)
    for index, value in enumerate(as_list(connection.get("args")) or ()):
        yield from _nul_mistakes(value, "args", index)
    for key in ("command", "cwd"):
        yield from _nul_mistakes(connection.get(key), key)
    if _text(connection.get("command")) == "":
        yield Mistake("must not be empty", ("command",))


def _nul_mistakes(value: Any, *path: str | int) -> Iterator[Mistake]:
    if "\0" in (_text(value) or ""):
        yield Mistake("holds a NUL character", path)


def _auth_of(section: Tree, path: KeyPath, tree: Tree) -> tuple[Tree, KeyPath]:
    """The auth config to which a section refers, or an empty map, and the path of the reference."""
    given, at = section.get("auth"), (*path, "auth")
    if (table := as_map(given)) is not None:
        given, at = table.get("ref"), (*at, "ref")
    if _text(given) is not None:
        for _, entry in maps_in(tree.get("auth_configs")):
            if entry.get("name") == given:
                return entry, at
    return {}, at


def _check_server_auth(
    server: Tree, kind: str, path: KeyPath, tree: Tree, findings: Findings
) -> None:
    entry, at = _auth_of(server, path, tree)
    if not entry:
        return
    if kind == "stdio":
        hint = "leave it out; what the program needs goes into 'env'"
        what = "a stdio server is a program that is started, nobody signs in to it"
        findings.add(what, at, hint=hint)
    chosen = str(entry.get("type")).lower()
    section = as_map(entry.get(chosen)) or {}
    location = str(section.get("location")).lower()
    names: list[Any] = []
    if chosen == "custom_header":
        names = list(as_map(section.get("headers")) or ())
    elif chosen == "api_key" and location == "body":
        hint = "send it as a header or in the query"
        findings.add("an api_key in the body cannot be sent to an MCP server", at, hint=hint)
    elif chosen == "api_key" and location != "query":
        names = [section.get("name")]
    for name in filter(None, map(_text, names)):
        is_framing = re.fullmatch(FRAMING, name)  # Reported for the auth config.
        if re.fullmatch(OURS, name) and not is_framing:
            what = (
                f"the header {shorten(name)!r} of this auth config is set by mcpx on the way to a "
                "server"
            )
            findings.add(what, at, hint="use another auth config there")


# Commands


def _check_command(command: Tree, path: KeyPath, tree: Tree, findings: Findings) -> None:
    _check_names(command.get("parameters"), (*path, "parameters"), "parameter", findings)
    kind = str(command.get("type")).lower()
    entry, at = _auth_of(as_map(command.get(kind)) or {}, (*path, kind), tree)
    if str(entry.get("type")).lower() == "oauth":
        hint = "use an oauth2, bearer_token or api_key there"
        what = "an auth config of type oauth signs in to MCP servers only"
        findings.add(what, at, hint=hint)


def _command_warnings(tree: Tree) -> Iterator[str]:
    unreachable: dict[str, list[str]] = {}
    for _, command in _enabled(tree.get("commands")):
        name, kind = str(command.get("name")), command.get("type")
        section = as_map(command.get(str(kind).lower())) or {}
        if _has_idle_cache(command, section):
            what = f"the 'cache_ttl' of command {name!r} has no effect: it may change something"
            yield f"{what}; if it does not, say 'read_only: true'"
        if kind == "http":
            if host := _private_host(section):
                names = unreachable.setdefault(host, [])
                names.append(name)
            yield from _body_warnings(section, name)
        script = as_map(command.get("script")) or {}
        file = _text(script.get("path"))
        if file and "\0" not in file:
            folders = as_list(_map_at(tree, "global").get("script_paths")) or []
            yield from _script_warnings(file, name, folders)
    for host, names in unreachable.items():  # An imported file may have hundreds of commands.
        more = f" and {len(names) - 1} more" * (len(names) > 1)
        what = f"command {names[0]!r}{more} will not reach {host}, which is not public"
        yield f"{what}, without 'allow_private: true' in the 'http' section"


def _has_idle_cache(command: Tree, section: Tree) -> bool:
    """Return True if results are not cached, although `cache_ttl` is set."""
    if command.get("cache_ttl") is None or command.get("read_only") is not None:
        return False
    method = str(section.get("method") or "GET").upper()
    if command.get("type") == "http":
        return method not in ("GET", "HEAD", "OPTIONS")
    return command.get("type") == "script"


def _private_host(http: Tree) -> str | None:
    """The host of a request that the gateway refuses. Other names are resolved by the request."""
    from mcpx.wire.reach import is_public

    try:
        url = _text(http.get("url")) or ""
        host = parse(url.partition("{")[0]).host
    except BadAddress:
        return None
    if as_bool(http.get("allow_private")):
        return None
    try:
        is_private = not is_public(ip_address(host))
    except ValueError:
        is_private = host == "localhost"
    return host * is_private or None


def _body_warnings(http: Tree, name: str) -> Iterator[str]:
    body = (_text(http.get("body")) or "").strip()
    headers = {str(name).lower() for name in as_map(http.get("headers")) or {}}
    has_type = http.get("body_format") is not None or "content-type" in headers
    if body.startswith(("{", "[")) and '"' in body and not has_type:
        what = f"the 'body' of command {name!r} looks like JSON and is sent as plain text"
        yield f"{what}: write it as a mapping, or say 'body_format: json'"


def _script_warnings(file: str, name: str, folders: list[Any]) -> Iterator[str]:
    if not os.path.isfile(file):
        yield f"the script of command {name!r} is not there: {file}"
        return
    texts = [text for text in map(_text, folders) if text and "\0" not in text]
    allowed = tuple(os.path.join(os.path.realpath(text), "") for text in texts)
    if not os.path.realpath(file).startswith(allowed):
        what = f"the script of command {name!r} is outside of 'global.script_paths'"
        yield f"{what} and will not be run: {file}"


# Rules of the policy

_LISTS = ("profiles", "principals", "servers", "tools")
_CONDITIONS = (*_LISTS, "read_only", "destructive", "arguments")
_MAX_COMPARED = 200
"""Rules with which later rules are compared."""


def _rule_warnings(policy: Tree) -> Iterator[str]:
    earlier: list[tuple[int, Tree]] = []
    for index, rule in maps_in(policy.get("rules")):
        number = index + 1
        if as_bool(rule.get("read_only")) and as_bool(rule.get("destructive")):
            what = f"rule {number} of the policy can never hold: what is read-only destroys nothing"
            yield f"{what}; two rules are needed where either is meant"
        cover = next(((at, each) for at, each in earlier if _covers(each, rule)), None)
        if cover is not None:
            calls = "every call"
            if any(cover[1].get(key) is not None for key in _CONDITIONS):
                calls = "every call that it could hold for"
            what = f"rule {number} of the policy is never reached"
            yield f"{what}: rule {cover[0]} holds for {calls}"
        elif len(earlier) < _MAX_COMPARED and rule.get("arguments") is None:
            earlier.append((number, rule))


def _covers(earlier: Tree, later: Tree) -> bool:
    """Return True if the earlier rule holds whenever the later one does.

    Rules apply to the gateway's tools only if they name them.
    """
    is_own = "mcpx" in (as_list(later.get("servers")) or ()) and earlier.get("servers") is None
    return not is_own and all(earlier.get(key) in (None, later.get(key)) for key in _CONDITIONS)


# Secrets


def secret_warnings(tree: Tree, path: Path) -> list[str]:
    """Warn if other users can read a file with a literal secret. `tree`: with its references."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:  # Removed since it was read.
        return []
    if os.name != "posix" or not mode & 0o077 or (found := _literal_secret(tree)) is None:
        return []
    advice = (
        "chmod 600 it, or keep the secret in ${VAR}, ${file:path}, ${keyring:name} or as 'enc:'"
    )
    what = f"{path.name} holds a secret ({spell(found)})"
    return [f"{what} and others may read it (mode {mode:04o}): {advice}"]


def _literal_secret(tree: Tree) -> KeyPath | None:
    places: list[KeyPath] = []

    def note(secret: str, path: KeyPath, presumed: bool) -> str:
        if "custom_header" in path:
            # All headers of an auth config are masked, but a header such as X-Tenant is no reason
            # for a warning.
            presumed = all(each.presumed for each in find_secrets(secret, path[-2:]))
        if not presumed:
            places.append(path)
        return secret

    replace_secrets(tree, (), note)
    return next(iter(places), None)


# Helpers


def _enabled(section: Any) -> Iterator[tuple[int, Tree]]:
    return (
        (i, entry) for i, entry in maps_in(section) if as_bool(entry.get("enabled")) is not False
    )


def _map_at(tree: Tree, *path: str) -> Tree:
    for key in path:
        tree = as_map(tree.get(key)) or {}
    return tree


def _text(value: Any) -> str | None:
    if isinstance(value, str) and not isinstance(value, Unresolved):
        return value
    return None


def _scheme(url: str) -> str:
    scheme, found, _ = url.partition("://")
    return scheme.lower() * bool(found)
