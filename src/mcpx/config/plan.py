"""From one configuration to the next: what goes on, what ends, what begins (CFG-5).

Promised: pure; every server that runs before or after stands in exactly one list; a plan is empty
when there is nothing to do. Not done here: doing it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

from mcpx.config.schema import Config, Server
from mcpx.config.sections import Admin, AuthConfig, Command
from mcpx.config.tree import shorten

RESTARTS = frozenset({"connection", "isolation", "auth", "lazy", "max_message"})
"""Keys of a server that its connections are made with; all others can be changed while they
live."""
NEEDS_RESTART = frozenset({"global.log_file", "global.max_request"})
"""What only a new process takes up, beside `server`."""
LIVE = frozenset(
    f"server.{key}"
    for key in (
        *("auth", "allowed_hosts", "allowed_origins", "trusted_proxies", "limits", "metrics"),
        *("admin_token", "admin.allowed_hosts", "admin.allowed_ips", "admin.cors_origins"),
    )
)
"""What of `server` is taken up while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Servers by name in the order of the configuration, settings by key path."""

    kept: tuple[str, ...] = ()
    """The same before and after."""
    updated: tuple[str, ...] = ()
    """Changed in what a living server can take up."""
    started: tuple[str, ...] = ()
    """New or switched on."""
    restarted: tuple[str, ...] = ()
    """Changed in what its connections are made with."""
    stopped: tuple[str, ...] = ()
    """Removed or switched off."""
    commands: tuple[str, ...] = ()
    """Commands that came, went, or changed in themselves or in what they prove themselves with."""
    settings: tuple[str, ...] = ()
    """What else changed and can be taken up now."""
    needs_restart: tuple[str, ...] = ()
    """What else changed and only a new process takes up."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Of those that stop and start: which only change their name, and to what."""

    @property
    def empty(self) -> bool:
        servers = self.updated or self.started or self.restarted or self.stopped or self.renamed
        return not (servers or self.commands or self.settings or self.needs_restart)

    def __str__(self) -> str:
        if self.empty:
            return "nothing changed"
        words = ("started", "restarted", "updated", "stopped")
        changed = [(word, getattr(self, word)) for word in words]
        servers = [f"{len(names)} {word} ({_listed(names)})" for word, names in changed if names]
        if self.kept:
            servers.append(f"{len(self.kept)} kept")
        others = {
            "commands": self.commands,
            "settings": self.settings,
            "needs a restart": self.needs_restart,
        }
        parts = [f"{word}: {_listed(names)}" for word, names in others.items() if names]
        return "; ".join(filter(None, [", ".join(servers), *parts]))


def plan(old: Config, new: Config) -> Plan:
    before, after = _running(old), _running(new)
    changes = {name: _changes(before[name], after[name]) for name in after if name in before}
    settings = list(_settings(old, new))
    return Plan(
        kept=tuple(name for name, changed in changes.items() if not changed),
        updated=tuple(
            name for name, changed in changes.items() if changed and not changed & RESTARTS
        ),
        restarted=tuple(name for name, changed in changes.items() if changed & RESTARTS),
        started=tuple(name for name in after if name not in before),
        stopped=tuple(name for name in before if name not in after),
        commands=tuple(_changed_commands(old, new)),
        settings=tuple(key for key in settings if not _is_fixed(key)),
        needs_restart=tuple(key for key in settings if _is_fixed(key)),
        renamed=tuple(_renamed(before, after)),
    )


Running = dict[str, tuple[Server, AuthConfig | None]]


def _running(config: Config) -> Running:
    """The servers that run under a configuration, each with what its `auth` refers to."""
    auths = {auth.name: auth for auth in config.auth_configs}
    return {
        server.name: (server, auths.get(server.auth or ""))
        for server in config.mcp_servers
        if server.enabled
    }


def _renamed(before: Running, after: Running) -> Iterator[tuple[str, str]]:
    coming = {
        name: (replace(server, name=""), auth)
        for name, (server, auth) in after.items()
        if name not in before
    }
    for name, (server, auth) in before.items():
        if name not in after:
            new = next(
                (other for other, its in coming.items() if its == (replace(server, name=""), auth)),
                None,
            )
            if new is not None:
                del coming[new]
                yield name, new


def _changes(
    old: tuple[Server, AuthConfig | None], new: tuple[Server, AuthConfig | None]
) -> set[str]:
    return {*_differing(old[0], new[0]), *(["auth"] if old[1] != new[1] else [])}


def _changed_commands(old: Config, new: Config) -> list[str]:
    before, after = _callable(old), _callable(new)
    return [name for name in {**before, **after} if not same(before.get(name), after.get(name))]


def _callable(config: Config) -> dict[str, tuple[Command, AuthConfig | None]]:
    auths = {auth.name: auth for auth in config.auth_configs}
    return {
        each.name: (each, auths.get(each.auth or "")) for each in config.commands if each.enabled
    }


def _settings(old: Config, new: Config) -> Iterator[str]:
    """Key paths of what differs beside the servers that run."""
    for key in _differing(old, new):
        if key == "mcp_servers" and _at_rest(old, new) == _at_rest(new, old):
            continue
        if key == "commands" and [c.name for c in old.commands] == [c.name for c in new.commands]:
            continue  # each is told by its name
        before, after = getattr(old, key), getattr(new, key)
        parts = _differing(before, after) if is_dataclass(before) else []
        if key == "server" and "admin" in parts:
            parts.remove("admin")
            parts += [
                f"admin.{part}"
                for part in _differing(old.server.admin or Admin(), new.server.admin or Admin())
            ]
        yield from [f"{key.rstrip('_')}.{part}" for part in parts] or [key]


def _at_rest(config: Config, other: Config) -> tuple[list[str], dict[str, Server]]:
    """The order of the servers that run under both configurations, and those that run under
    neither."""
    mine, others = _running(config), _running(other)
    order = [name for name in mine if name in others]
    return order, {
        s.name: s for s in config.mcp_servers if s.name not in mine and s.name not in others
    }


def _differing(old: Any, new: Any) -> list[str]:
    """Keys in which two values of one dataclass differ."""
    keys = [field.name for field in fields(old) if field.metadata.get("in_file", True)]
    return [key for key in keys if getattr(old, key) != getattr(new, key)]


def _is_fixed(key: str) -> bool:
    return (key.startswith("server.") and key not in LIVE) or key in NEEDS_RESTART


def _listed(names: tuple[str, ...]) -> str:
    return shorten(", ".join(names), 200)


def same(one: Any, other: Any) -> bool:
    """Compare two values of a configuration as JSON does: 1, 1.0, and true differ."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if is_dataclass(one):
        return all(
            same(getattr(one, each.name), getattr(other, each.name))
            for each in fields(one)
            if each.compare
        )
    if isinstance(one, Mapping):
        mine, its = cast(Mapping[Any, Any], one), cast(Mapping[Any, Any], other)
        # Keys too: 1 and true are different fields. Their order is nobody's, as before.
        return {(type(key), key) for key in mine} == {(type(key), key) for key in its} and all(
            same(value, its[key]) for key, value in mine.items()
        )
    if isinstance(one, list | tuple):
        pairs = zip(cast(list[Any], one), cast(list[Any], other), strict=False)
        return len(cast(list[Any], one)) == len(other) and all(same(*pair) for pair in pairs)
    return bool(one == other)
