"""Watching over the admin API."""

from typing import Annotated, Any

from pydantic import Field

from mcpx.admin import connecting, diagnosing, watching
from mcpx.admin.api import HEADER, ApiRequest, Query, Router
from mcpx.admin.errors import ApiError
from mcpx.admin.routes.given import Text
from mcpx.admin.rows import call_row
from mcpx.admin.shapes.common import Outcome
from mcpx.admin.shapes.events import EventShapes
from mcpx.admin.shapes.tools import CallGiven, CallResult
from mcpx.admin.shapes.watching import (
    About,
    Activity,
    CallDetail,
    CallRow,
    ClientPrograms,
    Overview,
    Point,
    ReplicasTold,
    Savings,
    Statistics,
)
from mcpx.admin.streaming import EventStream
from mcpx.admin.watched import Range
from mcpx.admin.wording import plain, told_at
from mcpx.model.slices import Pace

router = Router("/api", "Watching")

Number = Annotated[int, Field(ge=0, le=2**53)]
MOST = 500
"""Calls that are kept."""


@router.get("/overview", 503)
async def overview(request: ApiRequest) -> Overview:
    """Clients, the gateway and servers, with what needs somebody."""
    return await watching.overview(request.desk, request.live.people, request.live.weights)


@router.get("/statistics", 404, 503)
async def statistics(request: ApiRequest, range: Range = "1h", server: Text = None) -> Statistics:
    """Calls and errors over time; of one server, or of everything."""
    desk = request.desk
    if server is not None and desk.gateway.generation.source(server) is None:
        raise ApiError(404, None, f"there is no server {plain(server)!r}", "query.server")
    counts = watching.needed(desk.statistics)
    step, points = counts.points(range, server)
    told = [
        Point(at=one.at, calls=one.calls, errors=one.errors, p50_ms=one.p50_ms, p95_ms=one.p95_ms)
        for one in points
    ]
    return Statistics(range=range, step=step, since=told_at(counts.since), points=told)


@router.get("/activity", 503)
async def list_activity(
    request: ApiRequest,
    after: Number = 0,
    limit: Annotated[int, Field(ge=1, le=MOST)] = 200,
    server: Text = None,
    client: Text = None,
    outcome: Outcome | None = None,
    q: Text = None,
) -> Activity:
    """The latest calls."""
    recording = watching.kept(request.desk.recording)
    rows = watching.chosen(recording.rows(after), server, client, outcome, q)
    calls: list[CallRow] = []
    pace, last = Pace(), recording.last
    for row in rows[-limit:]:
        calls.append(call_row(row))
        await pace.step()
    return Activity(calls=calls, last=last, kept=MOST)


@router.get("/activity/{number}", 404, 503)
async def show_call(request: ApiRequest, number: Number) -> CallDetail:
    """One call, with what was said in it as far as that is kept."""
    found = watching.kept(request.desk.recording).detail(number)
    if found is None:
        raise _forgotten(number)
    return CallDetail(**plain({**found, "time": told_at(found["time"])}))


@router.post("/activity/{number}/replay", *(404, 408, 409, 429, 503))
async def replay(request: ApiRequest, number: Number) -> CallResult:
    """Make the call again, as the owner, with the very same arguments; rules, limits and the audit
    trail count."""
    recording = watching.kept(request.desk.recording)
    again = recording.again(number)
    if again is None:
        if recording.detail(number) is None:
            raise _forgotten(number)
        hint = "only calls of tools whose arguments are kept whole can be"
        raise ApiError(409, "not_replayable", "this call cannot be made again", hint=hint)
    name, arguments = again
    calling = request.live.calling
    return await calling.answer(name, CallGiven(arguments=arguments), request.gone)


def _forgotten(number: int) -> ApiError:
    hint = f"the latest {MOST} are kept, until the gateway ends"
    return ApiError(404, None, f"call {number} is not known, or not any more", "number", hint)


@router.get("/savings", 503)
async def savings(request: ApiRequest) -> Savings:
    """What compact modes spare, as it was counted."""
    return await watching.savings(request.desk, request.live.weights)


@router.get("/clients", 404)
async def clients(
    request: ApiRequest,
    profile: Annotated[
        str | None, Field(max_length=200, description="Connect through this profile.")
    ] = None,
) -> ClientPrograms:
    """How to connect each client program."""
    return connecting.programs(request.desk, request.live.people, profile)


@router.get("/about")
async def about(request: ApiRequest) -> About:
    """Version, addresses, places."""
    return diagnosing.about(request.desk)


@router.get("/replicas")
async def replicas(request: ApiRequest) -> ReplicasTold:
    """All replicas that share a store, and which configuration each runs."""
    return diagnosing.replicas(request.desk)


@router.get("/diagnostics")
async def diagnostics(request: ApiRequest) -> dict[str, Any]:
    """All there is to know for a report of a problem, without secrets and without what was said in
    calls."""
    return await diagnosing.diagnostics(request.desk, request.live.people)


@router.get("/events", 503, events=(EventShapes, "The data of each event, by its name."))
async def events(
    request: ApiRequest,
    last_event_id: Annotated[
        str | None, HEADER, Field(max_length=100, description="Resumes after this event.")
    ] = None,
    after: Annotated[
        str | None,
        Query("last_event_id"),
        Field(max_length=100, description="The same, where no header can be sent."),
    ] = None,
) -> EventStream:
    """Everything that happens, as server-sent events (ADM-4); `Last-Event-ID` resumes."""
    return request.live.events.listen(last_event_id or after)
