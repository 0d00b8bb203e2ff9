"""MCP servers over the admin API."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response

from mcpx.admin.entries import entry_of, servers
from mcpx.admin.errors import ALWAYS, ApiError, responses
from mcpx.admin.routes import given
from mcpx.admin.routes.given import READS, TRIALS, WRITES, AtDesk, AtLive, Name, Writing
from mcpx.admin.shapes.common import Entry, Preview, Toggle, Written
from mcpx.admin.shapes.servers import (
    Health,
    HealthSpan,
    LogLine,
    Logs,
    ServerDetail,
    ServerRow,
    Servers,
    SignIn,
    Trial,
    TrialResult,
)
from mcpx.admin.shapes.tools import Tools
from mcpx.admin.streaming import attended
from mcpx.admin.wording import moment, plain, told_at
from mcpx.config.edits import PutEntry
from mcpx.core.chronicle import Line, Span
from mcpx.core.trying import Tried
from mcpx.model.call import Json

router = APIRouter(prefix="/api/mcp-servers", tags=["MCP servers"], responses=ALWAYS)

SECTION = "mcp_servers"
UNNAMED = "new-server"
"""What an entry is called that is tried out before it has a name."""
WELL = ("connected", "degraded", "sleeping")

ServerEntry = Annotated[
    Entry,
    Body(
        examples=[
            {
                "name": "time",
                "connection": {"type": "stdio", "command": "uvx", "args": ["mcp-server-time"]},
            },
            {
                "name": "docs",
                "connection": {"type": "http", "url": "https://mcp.example.com/mcp"},
                "timeout": 20,
            },
        ]
    ),
]


@router.get("")
async def list_servers(desk: AtDesk, response: Response) -> Servers:
    """Every configured server and how it is (ADM-3)."""
    return Servers(servers=await servers.rows(desk, await given.look(desk, response)))


@router.post(
    "", status_code=201, responses={200: {"model": Preview, "description": "A dry run."}, **WRITES}
)
async def add_server(
    desk: AtDesk, response: Response, entry: ServerEntry, change: Writing
) -> Written | Preview:
    """Add a server; it is started at once."""
    return await given.put(desk, response, change, SECTION, entry)


@router.post("/test", responses=TRIALS)
async def try_entry(desk: AtDesk, request: Request, trial: Trial) -> TrialResult:
    """Connect to a server that is not saved, once, and tell what it offers."""
    name = trial.entry.get("name") or UNNAMED
    if not isinstance(name, str):
        raise ApiError(422, "invalid", "a name is text", "entry.name")
    return await _try(desk, request, trial.stored or name, {**trial.entry, "name": name})


@router.get("/{name}", responses=READS)
async def show_server(desk: AtDesk, response: Response, name: Name) -> ServerDetail:
    """One server, with its entry as written."""
    return await servers.detail(desk, await given.look(desk, response), name)


@router.put("/{name}", responses=WRITES)
async def change_server(
    desk: AtDesk, response: Response, name: Name, entry: ServerEntry, change: Writing
) -> Written | Preview:
    """Replace its entry; another `name` in it renames it."""
    return await given.put(desk, response, change, SECTION, entry, name)


@router.delete("/{name}", responses=WRITES)
async def remove_server(
    desk: AtDesk, response: Response, name: Name, change: Writing
) -> Written | Preview:
    """Remove it."""
    return await given.remove(desk, response, change, SECTION, name)


@router.patch("/{name}/toggle", responses=WRITES)
async def toggle_server(
    desk: AtDesk, response: Response, name: Name, change: Writing, toggle: Toggle | None = None
) -> Written | Preview:
    """Switch it on or off."""
    return await given.toggle(
        desk, response, change, SECTION, name, None if toggle is None else toggle.enabled
    )


@router.post("/{name}/test", responses=TRIALS)
async def try_server(desk: AtDesk, request: Request, name: Name) -> TrialResult:
    """Connect to it once more, beside what runs."""
    written = await desk.store.look()
    if written.entry(SECTION, name) is None and name in desk.gateway.generation.upstreams:
        raise ApiError(
            409, "not_possible", f"{name} stands in no file: there is nothing to try it by"
        )
    return await _try(desk, request, name, entry_of(written, SECTION, name).value)


async def _try(desk: AtDesk, request: Request, stored: str, entry: Json) -> TrialResult:
    name = str(entry["name"])
    # On, or else its variables would not be looked up.
    config = await given.imagine(desk, PutEntry(SECTION, stored, {**entry, "enabled": True}))
    tried = await attended(desk.trials.server(config, name), request.receive)
    running = desk.gateway.generation.upstreams.get(name)
    auth_url = running.auth_url if tried.needs_auth and running is not None else None
    return _result(tried, auth_url)


def _result(tried: Tried, auth_url: str | None) -> TrialResult:
    diagnosis: dict[str, Any] = {} if tried.cause is None else plain(tried.cause.told())
    return TrialResult(
        ok=tried.ok,
        seconds=tried.seconds,
        protocol=tried.protocol,
        server_info=plain(tried.server_info),
        tools=plain(list(tried.tools)),
        prompts=tried.prompts,
        resources=tried.resources,
        stderr=plain(list(tried.stderr)),
        error=plain(tried.error),
        auth_url=auth_url,
        **diagnosis,
    )


@router.get("/{name}/tools", response_model=Tools, responses=READS)
async def server_tools(desk: AtDesk, live: AtLive, name: Name) -> Response:
    """What it offers, held definitions included."""
    listed = await live.toolbox.of_server(servers.upstream_of(desk, name))
    return Response(listed, media_type="application/json")


@router.post("/{name}/reconnect", responses=responses(404, 409))
async def reconnect(desk: AtDesk, name: Name) -> ServerRow:
    """Connect anew, now; calls that run may fail."""
    if not servers.upstream_of(desk, name).server.enabled:
        raise ApiError(
            409, "disabled", f"{name} is switched off", hint="switch it on: that connects it"
        )
    await desk.gateway.reconnect(name)
    return await servers.row(desk, await desk.store.look(), name)


@router.get("/{name}/logs", responses=READS)
async def server_logs(
    desk: AtDesk,
    name: Name,
    after: Annotated[
        int, Query(ge=0, le=2**53, description="The number of the last line that is known.")
    ] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Logs:
    """What it said on standard error, and what happened to it."""
    servers.upstream_of(desk, name)
    lines, last = desk.chronicle.lines(name, after, limit)
    return Logs(lines=[_line(each) for each in lines], last=last)


def _line(line: Line) -> LogLine:
    return LogLine(number=line.number, time=told_at(line.at), text=line.text, stream=line.stream)


@router.get("/{name}/health", responses=READS)
async def server_health(desk: AtDesk, name: Name) -> Health:
    """Its states over the last 24 hours."""
    servers.upstream_of(desk, name)
    spans, now = desk.chronicle.spans(name), desk.chronicle.now()
    known = [(span, (span.end or now) - span.start) for span in spans if span.state != "disabled"]
    whole = sum(seconds for _, seconds in known)
    well = sum(seconds for span, seconds in known if span.state in WELL)
    return Health(
        spans=[_span(each) for each in spans],
        ready_share=round(well / whole, 4) if whole > 0 else None,
    )


def _span(span: Span) -> HealthSpan:
    return HealthSpan(
        start=told_at(span.start), end=moment(span.end), status=span.state, error=span.error
    )


@router.post("/{name}/sign-in", responses=READS)
async def sign_in(desk: AtDesk, name: Name) -> SignIn:
    """Where to sign in; opening `auth_url` in a browser finishes it."""
    servers.upstream_of(desk, name)
    return _signed(await desk.sign_ins.login(name))


@router.delete("/{name}/sign-in", responses=responses(404, 409))
async def sign_out(desk: AtDesk, name: Name) -> SignIn:
    """Forget what was signed in with."""
    if servers.upstream_of(desk, name).signing is None:
        raise ApiError(409, "not_needed", f"nobody signs in to {name}")
    return _signed(await desk.sign_ins.logout(name))


def _signed(told: Json) -> SignIn:
    problem = told.get("error") or told.get("problem")
    state = told.get("state", "unknown")
    return SignIn(
        name=str(told.get("name", "")), state=state, auth_url=told.get("auth_url"), problem=problem
    )
