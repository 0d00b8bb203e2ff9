"""`mcpx token`: tokens that clients over the network show, kept under the state folder (SEC-1).

A running gateway notices what was made or revoked by itself. Revoking and listing need no config:
one that is broken must not keep anybody from it.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from mcpx.cli.terminal import plain
from mcpx.config import Config
from mcpx.config.checks import MAX_NAME
from mcpx.config.problems import nearest
from mcpx.front.identity.bearer import moment
from mcpx.front.identity.store import Stored, TokenStore, Unreadable
from mcpx.model.errors import ConfigError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def run(options: argparse.Namespace, load: Callable[[], Config | None], state: Path) -> int:
    action, words = options.action, list[str](options.words)
    name = words.pop(0) if action != "list" and words else ""
    if (action != "list" and not name) or len(words) > (action == "new"):
        wanted = {"new": "NAME [CONFIG]", "list": "", "revoke": "NAME"}[action]
        raise ConfigError([f"error: say: mcpx token {action} {wanted}".rstrip()])
    store = TokenStore(state)
    try:
        if action == "list":
            return _list(store.read(), options.json)
        if action == "revoke":
            return _revoke(store, name, options.json)
        options.config_file = words[0] if words else None
        return _new(store, name, options, load())
    except Unreadable as problem:
        raise ConfigError([f"error: {problem}"]) from None
    except OSError as error:
        raise ConfigError([f"error: the tokens cannot be kept: {error}"]) from None


def _new(store: TokenStore, name: str, options: argparse.Namespace, config: Config | None) -> int:
    profile: str | None = options.profile
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
        raise ConfigError(
            [
                f"error: not a possible name: 1 to {MAX_NAME} characters, no line breaks, no "
                "spaces around"
            ]
        )
    auth = None if config is None else config.server.auth
    if config is not None:
        if auth is not None and any(token.name == name for token in auth.tokens):
            raise ConfigError(
                [f"error: {config.path} names a token {name!r} already; choose another name"]
            )
        _require_profile(profile, [known.name for known in config.profiles])
    until = None if options.expires is None else _when(options.expires)
    try:
        token = store.add(name, profile, until)
    except KeyError:
        hint = f"revoke it first (mcpx token revoke {name}), or choose another name"
        raise ConfigError([f"error: there is a token {name!r} already; {hint}"]) from None
    facts = {
        "name": name,
        "token": token,
        "profile": profile,
        "expires": None if until is None else _told(until),
    }
    try:
        sys.stdout.write((json.dumps(facts, indent=2) if options.json else token) + "\n")
        sys.stdout.flush()
    except OSError:  # nobody has seen it, and nobody ever will
        store.revoke(name)
        raise
    ends = "" if until is None else f", good until {_told(until)}"
    sys.stderr.write(
        f"{plain(name)}: made{ends}. It is shown this once; clients send 'Authorization: Bearer "
        "…'\n"
    )
    if config is not None and (auth is None or auth.type != "bearer"):
        sys.stderr.write(f"It counts once {config.path} says server.auth: {{type: bearer}}\n")
    return 0


def _require_profile(profile: str | None, known: list[str]) -> None:
    if profile is None or profile in known:
        return
    meant = nearest(profile, known)
    hint = f"did you mean {meant!r}?" if meant else f"known: {', '.join(known) or 'none'}"
    raise ConfigError([f"error: no profile named {profile!r}; {hint}"])


def _when(text: str) -> float:
    """When it ends, as somebody wrote it: how long from now, or a date."""
    span = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip().lower(), re.ASCII)
    try:
        until = time.time() + int(span[1]) * UNITS[span[2]] if span is not None else moment(text)
        told = _told(until)
    except (ValueError, OverflowError, OSError):
        hint = "say how long (30d, 12h, 45m) or until when (2027-01-31, 2027-01-31T12:00Z)"
        raise ConfigError([f"error: --expires {text[:40]!r} is not understood; {hint}"]) from None
    if until <= time.time():
        raise ConfigError([f"error: --expires {text[:40]!r} is over already ({told})"])
    return float(int(until))


def _told(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _list(tokens: list[Stored], as_json: bool) -> int:
    if as_json:
        told = [
            {
                "name": token.name,
                "profile": token.profile,
                "created": _told(token.created),
                "expires": None if token.expires is None else _told(token.expires),
                "expired": _is_over(token),
            }
            for token in tokens
        ]
        sys.stdout.write(json.dumps({"tokens": told}, indent=2) + "\n")
        return 0
    if not tokens:
        sys.stdout.write("no tokens; make one: mcpx token new NAME\n")
        return 0
    rows = [("NAME", "PROFILE", "CREATED", "EXPIRES"), *map(_row, tokens)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        sys.stdout.write(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            + "\n"
        )
    return 0


def _row(token: Stored) -> tuple[str, str, str, str]:
    expires = (
        "never"
        if token.expires is None
        else _told(token.expires) + (" (over)" if _is_over(token) else "")
    )
    return plain(token.name), plain(token.profile or "-"), _told(token.created), expires


def _is_over(token: Stored) -> bool:
    return token.expires is not None and token.expires <= time.time()


def _revoke(store: TokenStore, name: str, as_json: bool) -> int:
    if store.revoke(name):
        told = f"{plain(name)}: revoked; a running gateway ends its sessions within a second"
        sys.stdout.write((json.dumps({"revoked": name}) if as_json else told) + "\n")
        return 0
    names = [token.name for token in store.read()]
    meant = nearest(name, names)
    hint = f"did you mean {meant!r}?" if meant else "mcpx token list shows those there are"
    raise ConfigError(
        [f"error: no kept token named {name!r}; {hint} (one in a config is revoked by removing it)"]
    )
