"""The gateway at work over the admin API: overview, statistics, calls, clients, and diagnostics."""

import os
import platform
import sys
from importlib import metadata
from typing import Annotated, Any, Final
from urllib.parse import quote, urlsplit

from pydantic import Field

from mcpx.admin import watching
from mcpx.admin.api import HEADER, ApiRequest, Query, Router
from mcpx.admin.desk import About as Facts
from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError, plain, quoted, told_at
from mcpx.admin.routes.given import Text
from mcpx.admin.shapes.common import Outcome
from mcpx.admin.shapes.watching import (
    About,
    Activity,
    CallDetail,
    CallGiven,
    CallResult,
    CallRow,
    ClientProgram,
    ClientPrograms,
    EventShapes,
    Overview,
    Point,
    ReplicaRow,
    ReplicasTold,
    Savings,
    Statistics,
)
from mcpx.admin.streaming import EventStream
from mcpx.base.aio import Pace
from mcpx.model.call import Json
from mcpx.telemetry.call_statistics import Range
from mcpx.wire import descriptors

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
    step, points = desk.counts.points(range, server)
    told = [Point(**each._asdict()) for each in points]
    return Statistics(range=range, step=step, since=told_at(desk.counts.since), points=told)


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
    recording = request.desk.calls
    rows = watching.chosen(recording.rows(after), server, client, outcome, q)
    calls: list[CallRow] = []
    pace, last = Pace(), recording.last
    for row in rows[-limit:]:
        calls.append(watching.call_row(row))
        await pace.step()
    return Activity(calls=calls, last=last, kept=MOST)


@router.get("/activity/{number}", 404, 503)
async def show_call(request: ApiRequest, number: Number) -> CallDetail:
    """One call, with what was said in it as far as that is kept."""
    found = request.desk.calls.detail(number)
    if found is None:
        raise _forgotten(number)
    return CallDetail(**plain({**found, "time": told_at(found["time"])}))


@router.post("/activity/{number}/replay", *(404, 408, 409, 429, 503))
async def replay(request: ApiRequest, number: Number) -> CallResult:
    """Make the call again, as the owner, with the very same arguments; rules, limits and the audit
    trail count."""
    recording = request.desk.calls
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


# Clients
# --------------------------------------------------------------------------------------------------


@router.get("/clients", 404)
async def clients(
    request: ApiRequest,
    profile: Annotated[
        str | None, Field(max_length=200, description="Connect through this profile.")
    ] = None,
) -> ClientPrograms:
    """How to connect each client program."""
    desk = request.desk
    facts, config = desk.about(), desk.gateway.generation.config
    url = facts.url
    desk.check_profile(profile, "query.profile")
    if profile is not None and url is not None:
        url = f"{url.removesuffix('/mcp')}/p/{quote(profile, safe='')}/mcp"
    names = request.live.people.names()
    told = ClientPrograms(clients=[], url=url, profiles=desk.profiles)
    command, has_token = _command_line(facts, profile), config.server.auth is not None
    for program in desk.programs(url=url, command=command, token=has_token):
        row = ClientProgram.model_validate(program, from_attributes=True)
        row.seen = any(map(program.is_called, names))
        told.clients.append(row)
    return told


def _command_line(facts: Facts, profile: str | None) -> list[str]:
    """The command that starts a gateway with this configuration over stdio, from any folder."""
    words = list(facts.launcher)
    if facts.config is not None:
        words.append(str(facts.config.absolute()))
    words += ["--transport", "stdio"]
    if facts.env is not None:
        words += ["--env", facts.env]
    if profile is not None:
        words += ["--profile", profile]
    return words


# The gateway itself
# --------------------------------------------------------------------------------------------------

PACKAGES: Final = ("mcpx-gateway", "pydantic", "orjson", "uvloop", "httptools")


@router.get("/about")
async def about(request: ApiRequest) -> About:
    """Version, addresses, places."""
    return _about(request.desk)


def _about(desk: Desk) -> About:
    facts, config = desk.about(), desk.gateway.generation.config
    told = About(
        version=facts.version,
        python=platform.python_version(),
        transport=facts.transport,
        url=facts.url,
        admin_url=facts.admin_url or "",
        started=told_at(facts.started),
        env=facts.env,
        pid=os.getpid(),
        memory_mb=_memory(),
        mode=config.mode,
    )
    if facts.config is not None:
        told.config = plain(str(facts.config))
    if facts.state is not None:
        told.state = plain(str(facts.state))
    if config.server.auth is not None:
        told.auth = config.server.auth.type
    if facts.url is not None:
        parts = urlsplit(facts.url)
        pages = ["health", "ready", *(["metrics"] * config.server.metrics)]
        told.links = {page: f"{parts.scheme}://{parts.netloc}/{page}" for page in pages}
    return told


def _memory() -> float | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


@router.get("/replicas")
async def replicas(request: ApiRequest) -> ReplicasTold:
    """All replicas that share a store, and which configuration each runs."""
    rows: list[ReplicaRow] = []
    for each in request.desk.store.replicas():
        etag = quoted(each["etag"]) if each["etag"] else ""
        started = told_at(each["started_at"])
        rows.append(ReplicaRow(**plain({**each, "etag": etag, "started_at": started})))
    return ReplicasTold(replicas=rows)


@router.get("/diagnostics")
async def diagnostics(request: ApiRequest) -> dict[str, Any]:
    """All there is to know for a report of a problem, without secrets and without what was said in
    calls."""
    desk = request.desk
    gateway = desk.gateway
    settings = gateway.generation.config.global_
    told: Json = {
        "about": _about(desk).model_dump(),
        "platform": {
            "system": platform.platform(),
            "python": sys.version,
            "machine": platform.machine(),
            "processors": os.cpu_count(),
            "open_files_limit": descriptors.soft_limit(),
        },
        "packages": {name: _version(name) for name in PACKAGES},
        "status": await gateway.describe(),
        "health": gateway.health(),
        "figures": gateway.figures(),
        "refused": dict(gateway.refusals()),
        "replicas": desk.store.replicas(),
        "config": {**desk.store.status(), "files": await _files(desk)},
        "log": {
            "level": settings.log_level,
            "format": settings.log_format,
            "file": settings.log_file,
        },
        "clients": [row.model_dump() for row in request.live.people.rows()],
    }
    if desk.statistics is not None:
        _, points = desk.statistics.points("1h")
        told["calls_last_hour"] = sum(point.calls for point in points)
        told["errors_last_hour"] = desk.statistics.errors_last_hour()
    return plain(gateway.redactor.redact_values(told))


async def _files(desk: Desk) -> list[Json]:
    """The configuration without comments, values of environments, and arguments; other secrets are
    masked."""
    written = await desk.store.look()
    return [
        {
            "path": str(document.path),
            "format": document.format,
            "content": "(unreadable)" if tree is None else tree,
        }
        for document, tree in written.outlines()
    ]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


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
