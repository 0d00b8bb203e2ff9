"""The clients of a gateway, as rows: those with sessions, and modern ones by what they called
lately.

Sessions are gathered by who they are (name, principal, profile): however many there are, the rows
are bounded.
"""

import time
from dataclasses import dataclass

from mcpx.admin.desk import Desk
from mcpx.admin.shapes.watching import ClientRow
from mcpx.admin.watched import ClientKey
from mcpx.admin.wording import moment, plain
from mcpx.model.call import Caller

MOST = 200
"""Rows."""
LATELY = 3600.0
"""Seconds for which a client without a session is told of after its last word."""
LONGEST = 100
"""Characters of what a client says of itself."""
OWNER = "admin"
"""The principal of whoever calls through the admin API; no client of the gateway."""
NAMELESS = "unnamed client"


@dataclass(slots=True)
class _Group:
    caller: Caller
    """The one that came last."""
    sessions: int = 0
    since: float = 0.0
    """When it came, by the monotonic clock."""


class People:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._groups: dict[ClientKey, _Group] = {}
        self._edition: int | None = None
        self.sessions = 0

    @property
    def changes(self) -> int:
        """Another number when somebody came or went."""
        audience, statistics = self._desk.audience, self._desk.statistics
        came = 0 if audience is None else audience.changes
        return came + (0 if statistics is None else statistics.changes)

    def rows(self) -> list[ClientRow]:
        """The busiest first."""
        statistics = self._desk.statistics
        if statistics is None:
            return []
        self._gather()
        seen = {one.key: one for one in statistics.clients()}
        now, monotonic = time.time(), time.monotonic()
        rows: list[tuple[float, float, ClientRow]] = []
        for key, group in list(self._groups.items())[:MOST]:
            one = seen.pop(key, None)
            rate = 0.0 if one is None else one.calls_per_minute
            last = max(now - (monotonic - group.since), 0.0 if one is None else one.last_seen)
            rows.append((rate, last, self._row(key, group.caller, group.sessions, rate, last)))
        for key, one in seen.items():
            if one.modern and key.principal != OWNER and now - one.last_seen <= LATELY:
                client = {"name": key.name, "version": one.version}
                caller = Caller(
                    key.principal, key.profile, client=client, version=one.protocol, modern=True
                )
                row = self._row(key, caller, 0, one.calls_per_minute, one.last_seen)
                rows.append((one.calls_per_minute, one.last_seen, row))
        rows.sort(key=lambda row: row[:2], reverse=True)
        return [row for _, _, row in rows[:MOST]]

    def _gather(self) -> None:
        audience, statistics = self._desk.audience, self._desk.statistics
        if audience is None or statistics is None or audience.changes == self._edition:
            return
        self._edition = audience.changes
        callers = audience.callers()
        self.sessions = len(callers)
        groups: dict[ClientKey, _Group] = {}
        self._groups = groups
        for caller in callers:
            key = statistics.key_of(caller)
            group = groups.get(key)
            if group is None:
                group = groups[key] = _Group(caller)
            group.sessions += 1
            if caller.since >= group.since:
                group.caller, group.since = caller, caller.since

    def _row(
        self, key: ClientKey, caller: Caller, sessions: int, rate: float, last: float
    ) -> ClientRow:
        mode, why = self._desk.gateway.shown_mode(caller)
        version = caller.client.get("version")
        return ClientRow(
            **plain(
                {
                    "name": key.name or NAMELESS,
                    "version": version[:LONGEST] if isinstance(version, str) else None,
                    "principal": key.principal,
                    "profile": key.profile,
                    "mode": mode,
                    "why": why or None,
                    "protocol": caller.version,
                }
            ),
            sessions=sessions,
            calls_per_minute=rate,
            last_seen=moment(last),
        )

    def names(self) -> set[str]:
        """What programs that have come so far say of themselves."""
        statistics = self._desk.statistics
        if statistics is None:
            return set()
        self._gather()
        return {key.name for key in self._groups} | {one.key.name for one in statistics.clients()}
