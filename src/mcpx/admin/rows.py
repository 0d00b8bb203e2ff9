"""What goes on, put into the shapes of the API."""

from mcpx.admin import waiting
from mcpx.admin.desk import Desk
from mcpx.admin.people import People
from mcpx.admin.shapes.events import RatesEvent, StatusEvent
from mcpx.admin.shapes.watching import CallRow, ServerRate
from mcpx.admin.wording import plain, told_at
from mcpx.core.gateway import Gateway
from mcpx.model.call import Json

LONGEST_ERROR = 500
"""Characters."""


def call_row(row: Json) -> CallRow:
    return CallRow(**plain({**row, "time": told_at(row["time"])}))


def status_of(gateway: Gateway, name: str) -> StatusEvent:
    upstream = gateway.generation.upstreams.get(name)
    if upstream is None:
        return StatusEvent(name=plain(name), status="disabled", since=told_at(0), gone=True)
    problem = upstream.connection.problem
    return StatusEvent(
        name=plain(name),
        status=upstream.status.state,
        since=told_at(upstream.status.since),
        last_error=None
        if problem is None
        else plain(gateway.redactor.redact(problem))[:LONGEST_ERROR],
        tools_count=gateway.catalog.count(name, "tools"),
    )


def in_flight(gateway: Gateway) -> int:
    """Calls that a server or command has not answered yet."""
    generation = gateway.generation
    running = sum(upstream.calls.running for upstream in generation.upstreams.values())
    return running + (
        0 if generation.local is None else sum(tool.running for tool in generation.local.tools)
    )


def server_rates(desk: Desk) -> list[ServerRate]:
    per_minute = {} if desk.statistics is None else desk.statistics.per_minute()
    return [
        ServerRate(
            name=plain(name),
            status=upstream.status.state,
            quarantined=waiting.is_quarantined(desk.gateway, name),
            calls_per_minute=per_minute.get(name, 0),
        )
        for name, upstream in desk.gateway.generation.upstreams.items()
    ]


def local_rate(desk: Desk) -> ServerRate | None:
    """The local commands as one more target; None where there are none."""
    local = desk.gateway.generation.local
    if local is None:
        return None
    per_minute = {} if desk.statistics is None else desk.statistics.per_minute()
    return ServerRate(
        name=local.name, status="connected", calls_per_minute=per_minute.get(local.name, 0)
    )


def rates(desk: Desk, people: People) -> RatesEvent | None:
    if desk.statistics is None:
        return None
    calls, p95 = desk.statistics.minute()
    return RatesEvent(
        calls_per_minute=calls,
        p95_ms=p95,
        in_flight=in_flight(desk.gateway),
        servers=[rate for rate in server_rates(desk) if rate.calls_per_minute],
        local=local_rate(desk),
        clients=[row for row in people.rows() if row.calls_per_minute],
    )
