"""What must hold between the fields of a configuration, or of a value beyond its type.

Promised: looks at the native tree, so that its mistakes are told together with wrong types
elsewhere; whatever has the wrong type is passed over, `validate` tells that. What is odd but not
wrong is a warning. The connection of a disabled server and the body of a disabled command are not
looked at.
"""

import os
import re
import stat
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from mcpx.config.entries import RESERVED
from mcpx.config.exposure import is_loopback
from mcpx.config.problems import Findings, nearest
from mcpx.config.rule_checks import PADDED, check_rules, is_padded
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
from mcpx.model.origin import Origin
from mcpx.model.secret_rules import find_secrets, replace_secrets
from mcpx.wire.address import BadAddress, parse, proxy_for
from mcpx.wire.fields import FRAMING, OURS, headers_mistakes

MAX_NAME = 64
DOTS = (".", "..")
"""No names: a browser takes them out of an address, so that nothing of the admin API could be asked
about them."""

_SINK_SCHEMES = ("http", "https", "syslog", "syslog+tcp")
_SCHEMES = {"http": ("http", "https"), "sse": ("http", "https"), "websocket": ("ws", "wss")}
_HOST_NAME = r"(?i)(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|\[?[0-9a-f:.]*:[0-9a-f:.]*\]?"
_SHOWABLE = re.compile(r"(?! )[^\x00-\x1f\x7f\ud800-\udfff]+(?<! )")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


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
        self._unreached: dict[str, list[str]] = {}
        """Hosts that are not public, and the commands that would be refused there."""

    def run(self) -> list[str]:
        separator = (as_map(self._tree.get("naming")) or {}).get("separator")
        forbidden = "::" if separator == "::" else None
        for section, noun in (
            ("mcp_servers", "server"),
            ("commands", "command"),
            ("auth_configs", "auth config"),
        ):
            self._unique(self._tree.get(section), (section,), noun, forbidden)
        self._unique(self._tree.get("profiles"), ("profiles",), "profile")
        self._front_auth(
            as_map((as_map(self._tree.get("server")) or {}).get("auth")) or {}, ("server", "auth")
        )
        self._visitors(as_map(self._tree.get("server")) or {})
        global_ = as_map(self._tree.get("global")) or {}
        self._traces(as_map(global_.get("traces")) or {}, ("global", "traces"))
        self._audit(as_map(global_.get("audit")) or {}, ("global", "audit"))
        for index, server in maps_in(self._tree.get("mcp_servers")):
            self._server(server, ("mcp_servers", index))
        for index, command in maps_in(self._tree.get("commands")):
            self._command(command, ("commands", index))
        for host, names in self._unreached.items():  # an imported file may have hundreds
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            what = f"command {names[0]!r}{more} will not reach {host}, which is not public"
            self._warnings.append(f"{what}, without 'allow_private: true' in the 'http' section")
        known = [*_names(self._tree.get("mcp_servers")), "commands"]
        for index, profile in maps_in(self._tree.get("profiles")):
            self._patterns(profile, ("profiles", index))
            for position, pattern in enumerate(as_list(profile.get("servers")) or ()):
                if (name := _text(pattern)) is not None and not re.search(r"[*?\[]", name):
                    path = ("profiles", index, "servers", position)
                    self._known(name.removeprefix("!"), known, "server", path)
        if (policy := as_map(self._tree.get("policy"))) is not None:
            self._policy(policy, [*known, "mcpx"])
        return self._warnings

    def _visitors(self, front: Tree) -> None:
        """Who may come to the front and to the admin's part of it, and by which names."""
        admin = as_map(front.get("admin")) or {}
        for section, path, key, judge in (
            (front, ("server",), "allowed_origins", self._origin),
            (front, ("server",), "allowed_hosts", self._host_name),
            (front, ("server",), "trusted_proxies", self._network),
            (admin, ("server", "admin"), "cors_origins", self._origin),
            (admin, ("server", "admin"), "allowed_hosts", self._host_name),
            (admin, ("server", "admin"), "allowed_ips", self._network),
        ):
            for index, text in enumerate(as_list(section.get(key)) or ()):
                judge(text, (*path, key, index))

    def _policy(self, policy: Tree, servers: list[str]) -> None:
        for index, rule in maps_in(policy.get("rules")):
            for position, name in enumerate(as_list(rule.get("profiles")) or ()):
                self._known(
                    name,
                    self._profiles,
                    "profile",
                    ("policy", "rules", index, "profiles", position),
                )
            for position, pattern in enumerate(as_list(rule.get("servers")) or ()):
                if (name := _text(pattern)) and not re.search(r"[*?\[]", name) and name != "!":
                    path = ("policy", "rules", index, "servers", position)
                    self._known(name.removeprefix("!"), servers, "server", path)
        self._warnings += check_rules(policy, self._findings)

    def _patterns(self, profile: Tree, path: KeyPath) -> None:
        """What matches nothing, and would hide everything without a word."""
        for key in ("servers", "tools", "prompts", "resources"):
            for position, pattern in enumerate(as_list(profile.get(key)) or ()):
                if _text(pattern) in ("", "!"):
                    self._findings.add(
                        "not a pattern: it matches nothing",
                        (*path, key, position),
                        hint="'*' is all",
                    )
                elif is_padded(pattern):
                    self._findings.add(
                        "a pattern with spaces around it", (*path, key, position), hint=PADDED
                    )

    def _traces(self, traces: Tree, path: KeyPath) -> None:
        self._url(traces.get("endpoint"), _SCHEMES["http"], (*path, "endpoint"), dialled=True)
        self._headers(traces.get("headers"), (*path, "headers"))

    def _audit(self, audit: Tree, path: KeyPath) -> None:
        sink = _text(audit.get("sink"))
        if sink is not None and not sink.startswith("syslog+unix:///"):
            self._url(sink, _SINK_SCHEMES, (*path, "sink"), dialled=True)
        self._headers(audit.get("sink_headers"), (*path, "sink_headers"))

    def _front_auth(self, auth: Tree, path: KeyPath) -> None:
        self._unique(auth.get("tokens"), (*path, "tokens"), "token")
        secrets: dict[str, int] = {}
        for index, token in maps_in(auth.get("tokens")):
            self._known(
                token.get("profile"), self._profiles, "profile", (*path, "tokens", index, "profile")
            )
            text = _text(token.get("token"))
            if text and re.search(r"\s", text):
                hint = (
                    "it is the token alone, without 'Bearer'"
                    if text[:7].lower() == "bearer "
                    else ""
                )
                self._findings.add(
                    "a token has no spaces", (*path, "tokens", index, "token"), hint=hint
                )
            if text is not None and (first := secrets.setdefault(text, index)) != index:
                rival, at = (
                    self._findings.spot((*path, "tokens", first, "token")),
                    (*path, "tokens", index, "token"),
                )
                hint = "each must have its own, or nobody knows whose it is"
                self._findings.add("two tokens are the same", at, hint=hint, rival=rival)
            if text is not None and not _SHOWABLE.fullmatch(text):
                hint = "no line breaks or other control characters, no spaces around"
                self._findings.add(
                    "no client could show this token", (*path, "tokens", index, "token"), hint=hint
                )
        for scope, profile in (as_map(auth.get("scopes")) or {}).items():
            if not _SCOPE.fullmatch(scope):
                hint = "visible ASCII characters, no spaces, quotes or backslashes (RFC 6749)"
                self._findings.add(
                    "not a possible scope", (*path, "scopes", scope), hint=hint, at="key"
                )
            self._known(profile, self._profiles, "profile", (*path, "scopes", scope))
        kind = str(auth.get("type") or "bearer").lower()
        signed = ("issuer", "audience", "jwks_url", "scopes")
        for key, goes_with in (("tokens", "bearer"), *((key, "jwt") for key in signed)):
            if kind in ("bearer", "jwt") and kind != goes_with and auth.get(key) is not None:
                hint = f"this one is 'type: {kind}'"
                self._findings.add(
                    f"'{key}' goes with 'type: {goes_with}'", (*path, key), hint=hint, at="key"
                )
        if kind == "jwt" and auth.get("issuer") is None:
            self._findings.add("missing key 'issuer'", path, hint="it goes with 'type: jwt'")
        for key in ("issuer", "jwks_url"):
            self._url(auth.get(key), _SCHEMES["http"], (*path, key))
            self._protected(auth.get(key), (*path, key))

    def _unique(self, section: Any, path: KeyPath, noun: str, forbidden: str | None = None) -> None:
        seen: dict[str, KeyPath] = {}
        for index, entry in maps_in(section):
            name, at = _text(entry.get("name")), (*path, index, "name")
            if name is None:
                continue
            if (first := seen.setdefault(name, at)) is not at:
                rival, hint = self._findings.spot(first), "names must be unique"
                self._findings.add(
                    f"two {noun}s are named {shorten(name)!r}", at, hint=hint, rival=rival
                )
            if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
                hint = f"1 to {MAX_NAME} characters, no line breaks, no spaces around"
                self._findings.add(f"not a possible {noun} name", at, hint=hint)
            elif name in DOTS:
                self._findings.add(
                    f"not a possible {noun} name", at, hint="browsers take dots out of addresses"
                )
            elif forbidden and forbidden in name:
                self._findings.add(f"a name must not hold '{forbidden}', the separator", at)
            elif noun == "server" and name in RESERVED:
                self._findings.add(
                    f"the server name '{name}' is reserved", at, hint="give it another one"
                )

    def _known(self, name: Any, known: list[str], noun: str, path: KeyPath) -> None:
        text = _text(name)
        if text is None or text in known:
            return
        meant = nearest(text, known)
        hint = (
            f"did you mean '{meant}'?" if meant else f"known: {shorten(', '.join(known) or 'none')}"
        )
        self._findings.add(f"no {noun} named {shorten(text)!r}", path, hint=hint)

    def _auth_ref(self, section: Tree, path: KeyPath) -> None:
        given, at = section.get("auth"), (*path, "auth")
        if (table := as_map(given)) is not None:
            given, at = table.get("ref"), (*at, "ref")
        self._known(given, self._auth_names, "auth config", at)

    def _referred(self, section: Tree, path: KeyPath) -> tuple[Tree | None, KeyPath]:
        """The auth config that a section's `auth` refers to, and where it does."""
        given, at = section.get("auth"), (*path, "auth")
        if (table := as_map(given)) is not None:
            given, at = table.get("ref"), (*at, "ref")
        entries = (
            entry
            for _, entry in maps_in(self._tree.get("auth_configs"))
            if entry.get("name") == given
        )
        return (None if _text(given) is None else next(entries, None)), at

    def _auth_fits(self, server: Tree, kind: str, path: KeyPath) -> None:
        """Whether what a server's `auth` refers to can be sent there."""
        entry, at = self._referred(server, path)
        if entry is None:
            return
        if kind == "stdio":
            hint = "leave it out; what the program needs goes into 'env'"
            self._findings.add(
                "a stdio server is a program that is started, nobody signs in to it", at, hint=hint
            )
        chosen = str(entry.get("type")).lower()
        section = as_map(entry.get(chosen)) or {}
        location = str(section.get("location")).lower()
        if chosen == "api_key" and location == "body":
            hint = "send it as a header or in the query"
            self._findings.add(
                "an api_key in the body cannot be sent to an MCP server", at, hint=hint
            )
        names = (
            list(as_map(section.get("headers")) or ())
            if chosen == "custom_header"
            else [section.get("name")]
        )
        if chosen in ("custom_header", "api_key") and location not in ("query", "body"):
            for name in filter(None, map(_text, names)):
                if re.fullmatch(OURS, name) and not re.fullmatch(
                    FRAMING, name
                ):  # else it is told where it stands
                    what = (
                        f"the header {shorten(name)!r} of this auth config is set by mcpx on "
                        "the way to a server"
                    )
                    self._findings.add(what, at, hint="use another auth config there")

    def _server(self, server: Tree, path: KeyPath) -> None:
        self._auth_ref(server, path)
        connection = as_map(server.get("connection"))
        if connection is None or as_bool(server.get("enabled")) is False:
            return
        at = (*path, "connection")
        self._auth_fits(server, str(connection.get("type")).lower(), path)
        schemes = _SCHEMES.get(str(connection.get("type")).lower())
        if schemes:
            other = next(
                (name for name in _SCHEMES if _scheme(connection.get("url")) in _SCHEMES[name]),
                None,
            )
            hint = f"it goes with 'type: {other}'" if other else ""
            self._url(connection.get("url"), schemes, (*at, "url"), hint, dialled=True)
        self._headers(connection.get("headers"), (*at, "headers"))
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
        for key in ("command", "cwd"):
            self._no_nul(section.get(key), (*path, key))

    def _no_nul(self, value: Any, path: KeyPath) -> None:
        if "\0" in (_text(value) or ""):
            self._findings.add("holds a NUL character", path)

    def _headers(self, headers: Any, path: KeyPath) -> None:
        given = {
            key: text
            for key, value in (as_map(headers) or {}).items()
            if (text := _text(value)) is not None
        }
        for wrong in headers_mistakes(given, *path, ours=OURS):
            self._findings.add(wrong.what, wrong.path, hint=wrong.hint, at=wrong.at)

    def _url(
        self,
        value: Any,
        schemes: tuple[str, ...],
        path: KeyPath,
        hint: str = "",
        *,
        dialled: bool = False,
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

    def _protected(self, value: Any, path: KeyPath) -> None:
        """Over http, another program on the way could send its own keys."""
        url = _text(value) or ""
        if _scheme(url) != "http":
            return
        try:
            host = parse(url).host
        except BadAddress:
            return  # Reported already.
        if not is_loopback(host):
            hint = "http is possible for loopback addresses only (127.0.0.1, ::1, localhost)"
            self._findings.add(
                "must begin with https://: keys that come over http can be forged", path, hint=hint
            )

    def _origin(self, value: Any, path: KeyPath) -> None:
        text = _spelled(value)
        if text is not None and Origin.parse(text) is None:
            hint = (
                "http:// or https://, a name, a port where it is not the usual one: "
                "https://app.example:8443"
            )
            self._findings.add("not the origin of a web page", path, hint=hint)

    def _host_name(self, value: Any, path: KeyPath) -> None:
        text = _spelled(value)
        if text is not None and not re.fullmatch(_HOST_NAME, text):
            hint = (
                "a name or address without scheme, port or path; '*.' before a name stands for "
                "all below it"
            )
            self._findings.add("not the name of a host", path, hint=hint)

    def _network(self, value: Any, path: KeyPath) -> None:
        text = _spelled(value)
        try:
            if text is not None:
                ip_network(text.strip(), strict=False)
        except ValueError:
            self._findings.add(
                "not an address or network", path, hint="as in 10.0.0.7, 172.16.0.0/12 or fd00::/8"
            )

    def _command(self, command: Tree, path: KeyPath) -> None:
        self._unique(command.get("parameters"), (*path, "parameters"), "parameter")
        section = as_map(command.get(str(command.get("type")).lower()))
        if section is not None:
            below = (*path, str(command.get("type")).lower())
            self._auth_ref(section, below)
            entry, at = self._referred(section, below)
            if entry is not None and str(entry.get("type")).lower() == "oauth":
                hint = "use an oauth2, bearer_token or api_key there"
                self._findings.add(
                    "an auth config of type oauth signs in to MCP servers only", at, hint=hint
                )
            if as_bool(command.get("enabled")) is not False:
                self._idle_cache(command, section)
                if command.get("type") == "http":
                    self._request(section, str(command.get("name")))
        script = as_map(command.get("script"))
        if script is not None and as_bool(command.get("enabled")) is not False:
            file = _text(script.get("path"))
            if file and "\0" not in file:
                self._script_file(file, str(command.get("name")))

    def _idle_cache(self, command: Tree, section: Tree) -> None:
        """Answers of what may change something are not kept, which nobody would notice."""
        method = str(section.get("method") or "GET").upper()
        reads = command.get("type") == "http" and method in ("GET", "HEAD", "OPTIONS")
        known = command.get("type") in ("http", "script")
        if (
            known
            and not reads
            and command.get("cache_ttl") is not None
            and command.get("read_only") is None
        ):
            what = f"the 'cache_ttl' of command {command.get('name')!r} has no effect"
            self._warnings.append(
                f"{what}: it may change something; if it does not, say 'read_only: true'"
            )

    def _request(self, http: Tree, name: str) -> None:
        """What a call would find out: that it is refused, or sent otherwise than it looks."""
        try:
            host = parse((_text(http.get("url")) or "").partition("{")[0]).host
        except BadAddress:
            host = ""
        if host and not as_bool(http.get("allow_private")) and _is_private(host):
            self._unreached.setdefault(host, []).append(name)
        body = (_text(http.get("body")) or "").strip()
        headers = {str(name).lower() for name in as_map(http.get("headers")) or {}}
        told = http.get("body_format") is not None or "content-type" in headers
        if body[:1] in ("{", "[") and '"' in body and not told:
            advice = "write it as a mapping, or say 'body_format: json'"
            self._warnings.append(
                f"the 'body' of command {name!r} looks like JSON and is sent as plain text: "
                f"{advice}"
            )

    def _script_file(self, file: str, name: str) -> None:
        if not os.path.isfile(file):
            self._warnings.append(f"the script of command {name!r} is not there: {file}")
            return
        folders = as_list((as_map(self._tree.get("global")) or {}).get("script_paths")) or ()
        real = os.path.realpath(file)
        allowed = [
            os.path.join(os.path.realpath(item), "")
            for item in map(_text, folders)
            if item and "\0" not in item
        ]
        if not any(map(real.startswith, allowed)):
            what = (
                f"the script of command {name!r} is outside of 'global.script_paths' and will "
                "not be run"
            )
            self._warnings.append(f"{what}: {file}")


def secret_warnings(tree: Tree, path: Path) -> list[str]:
    """A warning when others may read a file that holds a literal secret. `tree` is the file's,
    unexpanded."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:  # gone since it was read
        return []
    found = _literal_secret(tree) if os.name == "posix" and mode & 0o077 else None
    if found is None:
        return []
    advice = (
        "chmod 600 it, or keep the secret in ${VAR}, ${file:path}, ${keyring:name} or as 'enc:'"
    )
    return [
        f"{path.name} holds a secret ({spell(found)}) and others may read it (mode {mode:04o}): "
        f"{advice}"
    ]


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
    return places[0] if places else None


def _is_private(host: str) -> bool:
    """Of a name only what every machine agrees on; the rest is known when it is dialled."""
    from ipaddress import ip_address

    from mcpx.wire.reach import is_public  # only a file with such a command pays for it

    try:
        return not is_public(ip_address(host))
    except ValueError:
        return host == "localhost"


def _spelled(value: Any) -> str | None:
    """An item of a list of texts, where a number or a boolean is taken as text, too."""
    return str(value) if isinstance(value, bool | int | float) else _text(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and not isinstance(value, Unresolved) else None


def _scheme(value: Any) -> str:
    scheme, found, _ = (_text(value) or "").partition("://")
    return scheme.lower() if found else ""


def _names(section: Any) -> list[str]:
    return [name for _, entry in maps_in(section) if (name := _text(entry.get("name")))]
