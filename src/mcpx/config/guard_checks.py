"""What of the guard will not do what its writer believes: tokens, profiles, limits, the trail.

Promised: only warnings; a configuration in which everything is as it reads gets none. `odd` needs
the configuration alone and is said at each start too, `missing` looks at this machine and is for
`mcpx check`.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import urlsplit

from mcpx.config.checks import MAX_NAME
from mcpx.config.fields import is_loopback
from mcpx.config.problems import nearest
from mcpx.config.schema import Config
from mcpx.config.sections import Limits
from mcpx.model.errors import ConfigError

GRPC = 4317
"""Where collectors take OTLP in a form that mcpx does not speak."""
SHORTEST = 16
"""Characters of a token that nobody guesses."""


def odd(config: Config) -> Iterator[str]:
    server, policy = config.server, config.policy
    yield from _expired(config)
    for profile in config.profiles:
        if profile.tokens and server.auth is None:
            what = f"over HTTP nobody is let in to profile {profile.name!r}: it wants a token"
            yield f"{what}, and tokens count only with 'server.auth: {{type: bearer}}'"
        offers = (profile.tools, profile.prompts, profile.resources)
        if profile.servers == () or offers == ((), (), ()):
            yield (
                f"profile {profile.name!r} shows nothing: its lists are empty; leave a key out "
                "where all are meant"
            )
        for pattern in profile.resources or ():
            if ":" not in pattern and not any(sign in pattern for sign in "*?["):
                yield (
                    f"profile {profile.name!r}: the resource {pattern!r} is no URI, and "
                    "resources match by their URI"
                )
    if policy.default == "deny" and all(rule.effect == "deny" for rule in policy.rules):
        yield "the policy hides everything: it has 'default: deny', and no rule allows anything"
    for place, limits in _limits(config):
        if limits.queue is not None and limits.in_flight is None:
            yield f"'queue' of {place} has no effect without 'in_flight': nothing has to wait"
    for network in server.trusted_proxies:
        if ip_network(network.strip(), strict=False).prefixlen == 0:
            yield (
                f"server.trusted_proxies has {network}: anybody may say which address they come "
                "from"
            )


def missing(config: Config, kept: Iterable[str], trail: Path | None) -> Iterator[str]:
    """`kept`: names of tokens that were made by `mcpx token new`; `trail`: where the audit trail is
    to be."""
    auth = config.server.auth
    if auth is not None and auth.type == "bearer":
        names = [*(token.name for token in auth.tokens), *kept]
        for profile in config.profiles:
            for name in profile.tokens or ():
                if name not in names:
                    yield f"profile {profile.name!r} lets in {_absent(name, names)}"
        for number, rule in enumerate(config.policy.rules, 1):
            for name in (pattern.removeprefix("!") for pattern in rule.principals or ()):
                if name not in (*names, "anonymous") and not any(sign in name for sign in "*?["):
                    yield f"rule {number} of the policy names {_absent(name, names)}"
        for token in auth.tokens:
            if len(token.token) < SHORTEST:
                what = f"the token of {token.name!r} is short enough to be guessed"
                yield f"{what}: `mcpx token new {token.name}` makes one that is not"
    traces = config.global_.traces
    if traces is not None and urlsplit(traces.endpoint).port == GRPC:
        yield (
            f"global.traces.endpoint has port {GRPC}, which is usually gRPC's; OTLP over HTTP "
            "is at 4318"
        )
    if trail is not None and (why := _unwritable(trail)) is not None:
        yield f"the audit trail {trail} cannot be written: {why}; calls would go on, unrecorded"


def _expired(config: Config) -> Iterator[str]:
    for token in config.server.auth.tokens if config.server.auth is not None else ():
        if token.expires is not None:
            at = datetime.fromisoformat(token.expires)
            if (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() <= time.time():
                yield (
                    f"the token of {token.name!r} is over since {token.expires}: nobody is let "
                    "in by it"
                )


def _limits(config: Config) -> Iterator[tuple[str, Limits]]:
    if config.server.limits is not None:
        yield "server.limits", config.server.limits
    for entry in (*config.mcp_servers, *config.profiles):
        if entry.limits is not None:
            yield f"the limits of {entry.name!r}", entry.limits


def _absent(name: str, names: list[str]) -> str:
    if name.startswith("mcpx_") or len(name) > MAX_NAME:
        return "what looks like a token itself; names of tokens are wanted there"
    meant = nearest(name, names)
    hint = f"did you mean {meant!r}?" if meant else f"make it with: mcpx token new {name}"
    return f"{name!r}, and there is no such token; {hint}"


def _unwritable(file: Path) -> str | None:
    try:
        os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        folder = next(each for each in file.parents if os.path.exists(each))
        if not os.path.isdir(folder):
            return f"{folder} is a file"
        return None if os.access(folder, os.W_OK | os.X_OK) else f"no leave to write to {folder}"
    except (
        OSError
    ) as error:  # a name too long, a folder that is closed: `Path.exists` raises it in some Pythons
        return error.strerror or str(error)
    if os.path.isdir(file):
        return "it is a folder"
    return None if os.access(file, os.W_OK) else "no leave to write to it"


# Exposure to other machines (SEC-1)


def refuse_exposure(host: str, config: Config, kept: Callable[[], bool] | None = None) -> None:
    """Raises when other machines could reach the tools without a token, or nobody could. Over stdio
    nothing is bound: do not ask. `kept`: whether the store has tokens; None: while it runs, when a
    last token may go."""
    auth = config.server.auth
    if auth is not None and auth.type == "jwt":
        _require_audience(host, config)
        return
    if is_loopback(host) or (auth is not None and (kept is None or auth.tokens or kept())):
        return
    if auth is None:
        what, then = (
            "no token protects the tools behind it",
            "set server.auth to {type: bearer} in the config and run",
        )
    else:
        what, then = "nobody could come in: there is no token yet", "run"
    raise ConfigError(
        [
            f"error: {host} can be reached from other machines, and {what}\n"
            f"  Bind 127.0.0.1, or {then} `mcpx token new NAME`, or name at least one token in "
            "server.auth.tokens.\n"
            "  (With --transport stdio nothing is bound.)"
        ]
    )


def refuse_admin_exposure(host: str, token: str | None) -> None:
    """Raises when other machines could reach the admin API, and only a token that nobody chose
    would be asked for."""
    if token is None and not is_loopback(host):
        raise ConfigError(
            [
                f"error: the admin UI would be reached from other machines at {host}, and no "
                "token is set for it\n"
                "  Set MCPX_ADMIN_TOKEN or server.admin_token, or leave server.admin.host out: it "
                "is 127.0.0.1 then."
            ]
        )


def _require_audience(host: str, config: Config) -> None:
    """A token for somebody else must not be good here; what a client calls us by is only its
    word."""
    server = config.server
    named = any(not name.startswith("*") for name in server.allowed_hosts)
    if (
        server.auth is None
        or server.auth.audience is not None
        or named
        or host not in ("0.0.0.0", "::", "")
    ):
        return
    raise ConfigError(
        [
            f"error: {host or 'every address'} is bound, so mcpx does not know by which address "
            "tokens name it\n"
            "  Set server.auth.audience, or name the hosts it is called by in server.allowed_hosts."
        ]
    )
