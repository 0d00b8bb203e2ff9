"""`mcpx token`: tokens that network clients present, kept below the state folder (SEC-1).

A running gateway notices new and revoked tokens by itself. Revoking and listing need no config, so
a broken one does not prevent it.
"""

import argparse
import os
import re
import sys
import time
from datetime import UTC, datetime

from mcpx.cli.codes import DONE
from mcpx.cli.output import Output, Table, plain, print_json, say, text_of
from mcpx.cli.parsing import suggestion
from mcpx.cli.running import mistake, warn
from mcpx.cli.target import found, load
from mcpx.config import Config
from mcpx.config.checks import MAX_NAME
from mcpx.front.identity.bearer import moment
from mcpx.front.identity.store import Stored, TokenStore, Unreadable
from mcpx.model.state import state_folder

SYNTAX = {"new": "NAME [CONFIG]", "list": "", "revoke": "NAME"}
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def run(options: argparse.Namespace) -> int:
    action, words, name = options.action, list[str](options.words), ""
    if action != "list" and words:
        name = words.pop(0)
    if len(words) > (action == "new") or (action != "list" and not name):
        raise mistake(f"say: mcpx token {action} {SYNTAX[action]}".rstrip())
    options.config_file = next(iter(words), None)
    store = TokenStore(state_folder(os.environ))
    try:
        if action == "list":
            return _list(store.read(), options.json)
        if action == "revoke":
            return _revoke(store, name, Output(options.json))
        path = found(options)
        return _new(store, name, options, path and load(path, options))
    except Unreadable as problem:
        raise mistake(f"{problem}") from None
    except OSError as error:
        raise mistake(f"the tokens cannot be kept: {error}") from None


def _new(store: TokenStore, name: str, options: argparse.Namespace, config: Config | None) -> int:
    _check_new(name, options.profile, config)
    expires: float | None = None
    if options.expires is not None:
        expires = _end_of(options.expires)
    try:
        token = store.add(name, options.profile, expires)
    except KeyError:
        hint = f"revoke it first (mcpx token revoke {name}), or choose another name"
        raise mistake(f"there is a token {name!r} already; {hint}") from None
    facts = {"name": name, "token": token, "profile": options.profile, "expires": _stamp(expires)}
    try:
        Output(options.json).result(facts, token)
        sys.stdout.flush()
    except OSError:  # The token was not shown, and cannot be shown again.
        store.revoke(name)
        raise
    ends = ""
    if expires is not None:
        ends = f", good until {_stamp(expires)}"
    warn(
        f"{plain(name)}: made{ends}. It is shown this once; clients send 'Authorization: Bearer …'"
    )
    if config is not None and (config.server.auth is None or config.server.auth.type != "bearer"):
        warn(f"It counts once {config.path} says server.auth: {{type: bearer}}")
    return DONE


def _check_new(name: str, profile: str | None, config: Config | None) -> None:
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
        raise mistake(
            f"not a possible name: 1 to {MAX_NAME} characters, no line breaks, no spaces around"
        )
    if config is None:
        return
    auth = config.server.auth
    if auth is not None and any(token.name == name for token in auth.tokens):
        raise mistake(f"{config.path} names a token {name!r} already; choose another name")
    profiles = [known.name for known in config.profiles]
    if profile is not None and profile not in profiles:
        hint = suggestion(profile, profiles, f"known: {', '.join(profiles) or 'none'}")
        raise mistake(f"no profile named {profile!r}; {hint}")


def _end_of(text: str) -> float:
    """A time span from now, or a date."""
    span = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip().lower(), re.ASCII)
    try:
        if span is not None:
            end = time.time() + int(span[1]) * UNITS[span[2]]
        else:
            end = moment(text)
        stamp = _stamp(end)
    except (ValueError, OverflowError, OSError):
        hint = "say how long (30d, 12h, 45m) or until when (2027-01-31, 2027-01-31T12:00Z)"
        raise mistake(f"--expires {text[:40]!r} is not understood; {hint}") from None
    if end <= time.time():
        raise mistake(f"--expires {text[:40]!r} is over already ({stamp})")
    return float(int(end))


def _stamp(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _list(tokens: list[Stored], as_json: bool) -> int:
    rows = [
        {
            "name": token.name,
            "profile": token.profile,
            "created": _stamp(token.created),
            "expires": _stamp(token.expires),
            "expired": token.expires is not None and token.expires <= time.time(),
        }
        for token in tokens
    ]
    if as_json:
        print_json({"tokens": rows})
    elif not tokens:
        say("no tokens; make one: mcpx token new NAME")
    else:
        table = Table("NAME", "PROFILE", "CREATED", "EXPIRES")
        for row in rows:
            expires = str(row["expires"] or "never") + " (over)" * bool(row["expired"])
            profile = plain(str(row["profile"] or "-"))
            table.add(text_of(row, "name"), profile, str(row["created"]), expires)
        table.print()
    return DONE


def _revoke(store: TokenStore, name: str, out: Output) -> int:
    if store.revoke(name):
        line = f"{plain(name)}: revoked; a running gateway ends its sessions within a second"
        out.result({"revoked": name}, line)
        return DONE
    names = [token.name for token in store.read()]
    hint = suggestion(name, names, "mcpx token list shows those there are")
    raise mistake(
        f"no kept token named {name!r}; {hint} (one in a config is revoked by removing it)"
    )
