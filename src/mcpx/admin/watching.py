"""What goes on, put together for the screens that watch: overview, activity, savings."""

import time
from collections.abc import Iterable
from heapq import nlargest

from mcpx.admin import configuring, waiting
from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError
from mcpx.admin.people import People
from mcpx.admin.rows import in_flight, local_rate, server_rates
from mcpx.admin.shapes.common import Outcome
from mcpx.admin.shapes.watching import (
    ClientSaving,
    GatewayRow,
    Overview,
    RecentError,
    Savings,
    ServerCost,
    ToolCost,
)
from mcpx.admin.watched import Recording, SavingsCount, Statistics
from mcpx.admin.weights import Weights
from mcpx.admin.wording import plain, told_at
from mcpx.model.call import Json, as_object
from mcpx.model.offer import Offer
from mcpx.model.slices import Pace

HOUR = 3600.0
MOST_ERRORS = 10
MOST_REVISIONS = 5
MOST_TOOLS = 50
FAILED = ("error", "tool_error", "denied")
AUTO = "search"
"""The menu that `auto` falls back to."""
METHOD = (
    "Lists: every tools/list that a client was really sent, in the mode it was sent in, against "
    "all definitions "
    "that this client may see, as direct mode lists them. Results: the text of tool results as "
    "servers gave it against "
    "the text that compact modes showed. Tokens are estimated without a tokenizer (ASCII "
    "characters / 4, other "
    "characters 1 each). Not counted: what clients keep, cache or resend, and tools that were "
    "never listed."
)


def needed(statistics: Statistics | None) -> Statistics:
    if statistics is None:
        raise _uncounted()
    return statistics


def kept(recording: Recording | None) -> Recording:
    if recording is None:
        raise _uncounted()
    return recording


def counted(savings: SavingsCount | None) -> SavingsCount:
    if savings is None:
        raise _uncounted()
    return savings


def _uncounted() -> ApiError:
    return ApiError(503, None, "nothing is counted in this gateway")


async def overview(desk: Desk, people: People, weights: Weights) -> Overview:
    gateway, about = desk.gateway, desk.about()
    config = gateway.generation.config
    catalog, _, tokens = await weights.costs()
    mode = AUTO if config.mode == "auto" else config.mode
    menu = (await weights.menus()).get(mode)
    statistics = needed(desk.statistics)
    calls, p95 = statistics.minute()
    clients = people.rows()
    history = [
        configuring.row(desk, revision) for revision in desk.store.revisions()[:MOST_REVISIONS]
    ]
    return Overview(
        clients=clients,
        sessions=people.sessions,
        gateway=GatewayRow(
            url=about.url,
            mode=config.mode,
            calls_per_minute=calls,
            p95_ms=p95,
            in_flight=in_flight(gateway),
            tools=len(catalog.offers["tools"]),
            tools_tokens=tokens,
            menu_mode=mode if menu else None,
            menu_tools=menu[0] if menu else None,
            menu_tokens=menu[1] if menu else None,
        ),
        servers=server_rates(desk),
        local=local_rate(desk),
        commands=sum(command.enabled for command in config.commands),
        waiting=waiting.everything(gateway),
        errors=recent_errors(kept(desk.recording)),
        errors_last_hour=statistics.errors_last_hour(),
        revisions=history,
        config_loaded=history[0].at if history else told_at(about.started),
        config_path=None if about.config is None else plain(str(about.config)),
        config_refused=as_object(desk.store.status()["last_reload"]).get("ok") is False,
        first_run=about.config is None,
    )


def recent_errors(recording: Recording) -> list[RecentError]:
    """Those of the last hour that are still known, alike ones together, the latest first."""
    since = time.time() - HOUR
    found: dict[tuple[str, str, str], RecentError] = {}
    for row in reversed(recording.failed()):
        if row["outcome"] not in FAILED or row["time"] < since:
            continue
        what = row.get("error") or (f"{row['outcome']} {row.get('code', '')}").strip()
        key = (row["server"], row["name"], what)
        known = found.get(key)
        if known is not None:
            known.count += 1
        elif len(found) < MOST_ERRORS:
            told = {
                "server": row["server"],
                "name": row.get("public_name") or row["name"],
                "what": what,
            }
            found[key] = RecentError(at=told_at(row["time"]), number=row["number"], **plain(told))
    return list(found.values())


def chosen(
    rows: Iterable[Json],
    server: str | None,
    client: str | None,
    outcome: Outcome | None,
    query: str | None,
) -> list[Json]:
    """Those that fit all that was asked for; `query` stands in a name, an error, a principal or a
    client."""
    words = query.casefold().strip() if query else ""

    def fits(row: Json) -> bool:
        if server is not None and row["server"] != server:
            return False
        if client is not None and client not in (row.get("client"), row["principal"]):
            return False
        if outcome is not None and row["outcome"] != outcome:
            return False
        fields = (
            "server",
            "name",
            "public_name",
            "error",
            "principal",
            "client",
            "method",
            "profile",
        )
        return not words or any(
            words in text.casefold() for key in fields if isinstance(text := row.get(key), str)
        )

    return [row for row in rows if fits(row)]


async def savings(desk: Desk, weights: Weights) -> Savings:
    count, statistics = counted(desk.savings), needed(desk.statistics)
    catalog, costs, total = await weights.costs()
    servers: dict[str, ServerCost] = {}
    tools: list[tuple[int, int, Offer]] = []
    pace = Pace()  # there may be thousands
    for offer in catalog.offers["tools"]:
        cost = costs.get(id(offer), 0)
        called = statistics.tool(offer.server, offer.name)
        calls = 0 if called is None else called.calls
        its = servers.get(offer.server)
        if its is None:
            its = servers[offer.server] = ServerCost(server=plain(offer.server), tools=0, tokens=0)
        its.tools += 1
        its.tokens += cost
        its.calls += calls
        tools.append((cost, calls, offer))
        await pace.step()
    dearest = nlargest(MOST_TOOLS, tools, key=lambda tool: tool[0])
    lists = count.lists()
    return Savings(
        method=METHOD,
        since=told_at(count.since),
        catalog_tools=len(catalog.offers["tools"]),
        catalog_tokens=total,
        menus={mode: cost for mode, (_, cost) in (await weights.menus()).items()},
        lists=sum(each.lists for each in lists),
        tokens_shown=sum(each.shown for each in lists),
        tokens_direct=sum(each.direct for each in lists),
        result_tokens_raw=count.raw,
        result_tokens_given=count.given,
        by_client=[
            ClientSaving(
                client=plain(each.client),
                mode=each.mode,
                lists=each.lists,
                tokens_shown=each.shown,
                tokens_direct=each.direct,
            )
            for each in lists
        ],
        by_server=sorted(servers.values(), key=lambda its: its.tokens, reverse=True),
        top_tools=[
            ToolCost(
                **plain({"name": offer.public, "server": offer.server}), tokens=cost, calls=calls
            )
            for cost, calls, offer in dearest
        ],
    )
