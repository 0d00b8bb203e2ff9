"""What the screens that watch show: the overview, clients, calls, rates, and savings."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Final

from mcpx.admin.desk import Desk
from mcpx.admin.errors import moment, plain, told_at
from mcpx.admin.shapes.common import Outcome
from mcpx.admin.shapes.watching import (
    CallRow,
    ClientRow,
    ClientSaving,
    GatewayRow,
    Overview,
    RatesEvent,
    RecentError,
    RevisionRow,
    Savings,
    ServerCost,
    ServerRate,
    StatusEvent,
    ToolCost,
    Waiting,
)
from mcpx.admin.toolbox import Weights, calls_waiting, is_quarantined
from mcpx.base.aio import Pace
from mcpx.core.gateway import Gateway
from mcpx.core.missing import pinned_servers
from mcpx.core.store import Revision
from mcpx.model.call import Caller, Json, as_object
from mcpx.model.offer import Offer
from mcpx.telemetry.call_statistics import ClientKey, client_key

MAX_CLIENTS: Final = 200
RECENT_SECONDS: Final = 3600.0
"""A client without a session is shown for so long after its last request."""
MAX_CLIENT_CHARACTERS: Final = 100
MAX_ERROR_CHARACTERS: Final = 500
MAX_ERRORS: Final = 10
MAX_REVISIONS: Final = 5
MAX_TOOLS: Final = 50
MAX_WAITING: Final = 50
OWNER: Final = "admin"
"""The principal of calls through the admin API. It is no client of the gateway."""
NAMELESS: Final = "unnamed client"
FAILED: Final = ("error", "tool_error", "denied")
SEARCHED: Final = (
    *("server", "name", "public_name", "error", "principal", "client", "method", "profile"),
)
AUTO: Final = "search"
"""The menu that `auto` falls back to."""
METHOD: Final = (
    "Lists: every tools/list that a client was really sent, in the mode it was sent in, against "
    "all definitions that this client may see, as direct mode lists them. Results: the text of "
    "tool results as servers gave it against the text that compact modes showed. Tokens are "
    "estimated without a tokenizer (ASCII characters / 4, other characters 1 each). Not counted: "
    "what clients keep, cache or resend, and tools that were never listed."
)


# Clients
# --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    caller: Caller
    """The one that connected last."""
    sessions: int = 0
    since: float = 0.0
    """When it connected, in monotonic time."""


class People:
    """The clients of a gateway: those with sessions, grouped by name, principal, and profile, and
    modern ones with a recent call."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._groups: dict[ClientKey, _Group] = {}
        self._edition: int | None = None
        self.sessions = 0

    def rows(self) -> list[ClientRow]:
        """The busiest first."""
        statistics = self._desk.statistics
        if statistics is None:
            return []
        self._gather()
        seen = {one.key: one for one in statistics.clients()}
        now, monotonic = time.time(), time.monotonic()
        rows: list[tuple[float, float, ClientRow]] = []
        for key, group in list(self._groups.items())[:MAX_CLIENTS]:
            rate, last = 0.0, now - (monotonic - group.since)
            if (one := seen.pop(key, None)) is not None:
                rate, last = one.calls_per_minute, max(last, one.last_seen)
            rows.append((rate, last, self._row(key, group.caller, group.sessions, rate, last)))
        for key, one in seen.items():
            if one.modern and key.principal != OWNER and now - one.last_seen <= RECENT_SECONDS:
                client = {"name": key.name, "version": one.version}
                caller = Caller(
                    key.principal, key.profile, client=client, version=one.protocol, modern=True
                )
                row = self._row(key, caller, 0, one.calls_per_minute, one.last_seen)
                rows.append((one.calls_per_minute, one.last_seen, row))
        rows.sort(key=lambda row: row[:2], reverse=True)
        return [row for _, _, row in rows[:MAX_CLIENTS]]

    def names(self) -> set[str]:
        """The names of all programs that have connected."""
        statistics = self._desk.statistics
        if statistics is None:
            return set()
        self._gather()
        return {key.name for key in self._groups} | {one.key.name for one in statistics.clients()}

    def _gather(self) -> None:
        audience, statistics = self._desk.audience, self._desk.statistics
        if audience is None or statistics is None or audience.changes == self._edition:
            return
        self._edition = audience.changes
        callers = audience.callers()
        self.sessions = len(callers)
        self._groups = {}
        for caller in callers:
            group = self._groups.setdefault(client_key(caller), _Group(caller))
            group.sessions += 1
            if caller.since >= group.since:
                group.caller, group.since = caller, caller.since

    def _row(
        self, key: ClientKey, caller: Caller, sessions: int, rate: float, last: float
    ) -> ClientRow:
        mode, why = self._desk.gateway.access.shown_mode(caller)
        version = caller.client.get("version")
        if isinstance(version, str):
            version = version[:MAX_CLIENT_CHARACTERS]
        else:
            version = None
        return ClientRow(
            name=plain(key.name or NAMELESS),
            version=plain(version),
            principal=plain(key.principal),
            profile=plain(key.profile),
            mode=mode,
            why=why or None,
            protocol=caller.version,
            sessions=sessions,
            calls_per_minute=rate,
            last_seen=moment(last),
        )


# Servers and calls
# --------------------------------------------------------------------------------------------------


def call_row(row: Json) -> CallRow:
    return CallRow(**plain({**row, "time": told_at(row["time"])}))


def status_of(gateway: Gateway, name: str) -> StatusEvent:
    upstream = gateway.generation.upstreams.get(name)
    if upstream is None:
        return StatusEvent(name=plain(name), status="disabled", since=told_at(0), gone=True)
    problem = upstream.connection.problem
    if problem is not None:
        problem = plain(gateway.redactor.redact(problem))[:MAX_ERROR_CHARACTERS]
    return StatusEvent(
        name=plain(name),
        status=upstream.status.state,
        since=told_at(upstream.status.since),
        last_error=problem,
        tools_count=gateway.catalog.count(name, "tools"),
    )


def _in_flight(gateway: Gateway) -> int:
    """Calls that a server or command has not answered yet."""
    generation = gateway.generation
    running = sum(upstream.calls.running for upstream in generation.upstreams.values())
    if generation.local is not None:
        running += sum(tool.running for tool in generation.local.tools)
    return running


def _server_rates(desk: Desk) -> list[ServerRate]:
    per_minute = _calls_per_minute(desk)
    return [
        ServerRate(
            name=plain(name),
            status=upstream.status.state,
            quarantined=is_quarantined(desk.gateway, name),
            calls_per_minute=per_minute.get(name, 0),
        )
        for name, upstream in desk.gateway.generation.upstreams.items()
    ]


def _local_rate(desk: Desk) -> ServerRate | None:
    """The local commands as one more target. None: there are none."""
    local = desk.gateway.generation.local
    if local is None:
        return None
    rate = _calls_per_minute(desk).get(local.name, 0)
    return ServerRate(name=local.name, status="connected", calls_per_minute=rate)


def _calls_per_minute(desk: Desk) -> dict[str, int]:
    return {} if desk.statistics is None else desk.statistics.per_minute()


def rates(desk: Desk, people: People) -> RatesEvent | None:
    if desk.statistics is None:
        return None
    calls, p95 = desk.statistics.minute()
    return RatesEvent(
        calls_per_minute=calls,
        p95_ms=p95,
        in_flight=_in_flight(desk.gateway),
        servers=[rate for rate in _server_rates(desk) if rate.calls_per_minute],
        local=_local_rate(desk),
        clients=[row for row in people.rows() if row.calls_per_minute],
    )


def chosen(
    rows: Iterable[Json],
    server: str | None,
    client: str | None,
    outcome: Outcome | None,
    query: str | None,
) -> list[Json]:
    """The calls that match all filters. `query` is part of a name, an error, a principal, or a
    client."""
    words = (query or "").casefold().strip()

    def fits(row: Json) -> bool:
        if server not in (None, row["server"]) or outcome not in (None, row["outcome"]):
            return False
        if client not in (None, row.get("client"), row["principal"]):
            return False
        return any(words in str(row.get(key) or "").casefold() for key in SEARCHED)

    return [row for row in rows if fits(row)]


def recent_errors(desk: Desk) -> list[RecentError]:
    """Errors of the last hour, the latest first. Equal ones are one row."""
    since = time.time() - RECENT_SECONDS
    found: dict[tuple[str, str, str], RecentError] = {}
    for row in reversed(desk.calls.failed()):
        if row["outcome"] not in FAILED or row["time"] < since:
            continue
        what = row.get("error") or (f"{row['outcome']} {row.get('code', '')}").strip()
        key = (row["server"], row["name"], what)
        if key in found:
            found[key].count += 1
        elif len(found) < MAX_ERRORS:
            name = row.get("public_name") or row["name"]
            told = plain({"server": row["server"], "name": name, "what": what})
            found[key] = RecentError(at=told_at(row["time"]), number=row["number"], **told)
    return list(found.values())


# What waits for a person
# --------------------------------------------------------------------------------------------------


def count_waiting(gateway: Gateway) -> int:
    """Calls and definitions that wait."""
    held = sum(its.held for its in pinned_servers(gateway).values())
    return len(calls_waiting(gateway)) + held


def _waiting(gateway: Gateway) -> Iterator[dict[str, Any]]:
    for call in calls_waiting(gateway):
        detail = f"{call.principal}: {call.arguments}"[:300]
        title = f"{call.server}: {call.tool}"
        yield {"kind": "call", "title": title, "detail": detail, "expires": moment(call.expires_at)}
    for name, its in pinned_servers(gateway).items():
        if is_quarantined(gateway, name):
            detail = f"in quarantine; {its.held} definitions to look at"
            yield {"kind": "server", "title": name, "detail": detail, "count": its.held}
        elif its.held:
            some = ", ".join(held.item.name[:100] for held in list(its.kept.held.values())[:3])
            detail = f"{its.held} held back: {some}"
            yield {"kind": "definition", "title": name, "detail": detail, "count": its.held}
    for name, upstream in gateway.generation.upstreams.items():
        if upstream.status.state == "needs_auth":
            problem = upstream.connection.problem or "somebody has to sign in"
            problem = gateway.redactor.redact(problem)
            detail = problem.removeprefix(f"{name}: ")[:300]
            yield {"kind": "sign_in", "title": name, "detail": detail}


# Screens
# --------------------------------------------------------------------------------------------------


def revision_row(desk: Desk, revision: Revision) -> RevisionRow:
    return RevisionRow(
        number=revision.number,
        at=revision.at,
        author=revision.author,
        via=revision.via,
        message=revision.message,
        plan=revision.plan,
        restorable=desk.store.texts.keeps(revision.number),
    )


async def overview(desk: Desk, people: People, weights: Weights) -> Overview:
    gateway, about = desk.gateway, desk.about()
    config = gateway.generation.config
    catalog, _, tokens = await weights.costs()
    mode = AUTO if config.mode == "auto" else config.mode
    menu = (await weights.menus()).get(mode)
    calls, p95 = desk.counts.minute()
    row = GatewayRow(
        url=about.url,
        mode=config.mode,
        calls_per_minute=calls,
        p95_ms=p95,
        in_flight=_in_flight(gateway),
        tools=len(catalog.offers["tools"]),
        tools_tokens=tokens,
    )
    if menu is not None:
        row.menu_mode = mode
        row.menu_tools, row.menu_tokens = menu
    waiting = [Waiting(**plain(told)) for told in _waiting(gateway)]
    told = Overview(
        clients=people.rows(),
        sessions=people.sessions,
        gateway=row,
        servers=_server_rates(desk),
        local=_local_rate(desk),
        commands=sum(command.enabled for command in config.commands),
        waiting=waiting[:MAX_WAITING],
        errors=recent_errors(desk),
        errors_last_hour=desk.counts.errors_last_hour(),
        revisions=[revision_row(desk, each) for each in desk.store.revisions()[:MAX_REVISIONS]],
        config_loaded=told_at(about.started),
        config_refused=as_object(desk.store.status()["last_reload"]).get("ok") is False,
        first_run=about.config is None,
    )
    if told.revisions:
        told.config_loaded = told.revisions[0].at
    if about.config is not None:
        told.config_path = plain(str(about.config))
    return told


async def savings(desk: Desk, weights: Weights) -> Savings:
    count, statistics = desk.savings, desk.counts
    assert count is not None
    catalog, costs, total = await weights.costs()
    servers: dict[str, ServerCost] = {}
    tools: list[tuple[int, int, Offer]] = []
    pace = Pace()  # A catalog may have thousands of tools.
    for offer in catalog.offers["tools"]:
        cost, calls = costs.get(id(offer), 0), 0
        if (called := statistics.tool(offer.server, offer.name)) is not None:
            calls = called.calls
        empty = ServerCost(server=plain(offer.server), tools=0, tokens=0)
        its = servers.setdefault(offer.server, empty)
        its.tools += 1
        its.tokens += cost
        its.calls += calls
        tools.append((cost, calls, offer))
        await pace.step()
    dearest = nlargest(MAX_TOOLS, tools, key=lambda tool: tool[0])
    lists = [
        ClientSaving(
            client=plain(each.client),
            mode=each.mode,
            lists=each.lists,
            tokens_shown=each.shown,
            tokens_direct=each.direct,
        )
        for each in count.lists()
    ]
    return Savings(
        method=METHOD,
        since=told_at(count.since),
        catalog_tools=len(catalog.offers["tools"]),
        catalog_tokens=total,
        menus={mode: cost for mode, (_, cost) in (await weights.menus()).items()},
        lists=sum(each.lists for each in lists),
        tokens_shown=sum(each.tokens_shown for each in lists),
        tokens_direct=sum(each.tokens_direct for each in lists),
        result_tokens_raw=count.raw,
        result_tokens_given=count.given,
        by_client=lists,
        by_server=sorted(servers.values(), key=lambda its: its.tokens, reverse=True),
        top_tools=[
            ToolCost(name=plain(offer.public), server=plain(offer.server), tokens=cost, calls=calls)
            for cost, calls, offer in dearest
        ],
    )
