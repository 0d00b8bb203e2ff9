"""MCP servers over the admin API."""

from typing import Annotated, Any

from pydantic import Field

from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.entries import entry_of, servers
from mcpx.admin.errors import ApiError, moment, plain, told_at
from mcpx.admin.routes import given
from mcpx.admin.routes.given import TRIALS, Name
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
from mcpx.config.edits import PutEntry
from mcpx.core.chronicle import Span
from mcpx.model.call import Json

router = Router("/api/mcp-servers", "MCP servers")

SECTION = "mcp_servers"
UNNAMED = "new-server"
"""The name of an entry that is tried before it has one."""
WELL = ("connected", "degraded", "sleeping")

given.add_entry_routes(
    router,
    "",
    SECTION,
    "server",
    documented=(
        "Add a server; it is started at once.",
        "Replace its entry; another `name` in it renames it.",
        "Remove it.",
        "Switch it on or off.",
    ),
)


@router.get("")
async def list_servers(request: ApiRequest) -> Servers:
    """Every configured server and how it is (ADM-3)."""
    return Servers(servers=await servers.rows(request.desk, await given.look(request)))


@router.post("/test", *TRIALS)
async def try_entry(request: ApiRequest, trial: Trial) -> TrialResult:
    """Connect to a server that is not saved, once, and tell what it offers."""
    name = trial.entry.get("name") or UNNAMED
    if not isinstance(name, str):
        raise ApiError(422, "invalid", "a name is text", "entry.name")
    return await _try(request, trial.stored or name, {**trial.entry, "name": name})


@router.get("/{name}", 404)
async def show_server(request: ApiRequest, name: Name) -> ServerDetail:
    """One server, with its entry as written."""
    return await servers.detail(request.desk, await given.look(request), name)


@router.post("/{name}/test", *TRIALS)
async def try_server(request: ApiRequest, name: Name) -> TrialResult:
    """Connect to it once more, beside what runs."""
    desk = request.desk
    written = await desk.store.look()
    if written.entry(SECTION, name) is None and name in desk.gateway.generation.upstreams:
        told = f"{name} stands in no file: there is nothing to try it by"
        raise ApiError(409, "not_possible", told)
    return await _try(request, name, entry_of(written, SECTION, name).value)


async def _try(request: ApiRequest, stored: str, entry: Json) -> TrialResult:
    desk, name = request.desk, str(entry["name"])
    # Enabled, because the variables of a disabled entry are not looked up.
    config = await given.imagine(desk, PutEntry(SECTION, stored, {**entry, "enabled": True}))
    tried = await attended(desk.trials.server(config, name), request.gone)
    running, auth_url = desk.gateway.generation.upstreams.get(name), None
    if tried.needs_auth and running is not None:
        auth_url = running.auth_url
    diagnosis: dict[str, Any] = {}
    if tried.cause is not None:
        diagnosis = plain(tried.cause.told())
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


@router.get("/{name}/tools", 404, model=Tools)
async def server_tools(request: ApiRequest, name: Name) -> bytes:
    """What it offers, held definitions included."""
    return await request.live.toolbox.of_server(servers.upstream_of(request.desk, name))


@router.post("/{name}/reconnect", 404, 409)
async def reconnect(request: ApiRequest, name: Name) -> ServerRow:
    """Connect anew, now; calls that run may fail."""
    desk = request.desk
    if not servers.upstream_of(desk, name).server.enabled:
        hint = "switch it on: that connects it"
        raise ApiError(409, "disabled", f"{name} is switched off", hint=hint)
    await desk.gateway.reconnect(name)
    return await servers.row(desk, await desk.store.look(), name)


@router.get("/{name}/logs", 404)
async def server_logs(
    request: ApiRequest,
    name: Name,
    after: Annotated[
        int, Field(ge=0, le=2**53, description="The number of the last line that is known.")
    ] = 0,
    limit: Annotated[int, Field(ge=1, le=1000)] = 200,
) -> Logs:
    """What it said on standard error, and what happened to it."""
    servers.upstream_of(request.desk, name)
    lines, last = request.desk.chronicle.lines(name, after, limit)
    told = [
        LogLine(number=line.number, time=told_at(line.at), text=line.text, stream=line.stream)
        for line in lines
    ]
    return Logs(lines=told, last=last)


@router.get("/{name}/health", 404)
async def server_health(request: ApiRequest, name: Name) -> Health:
    """Its states over the last 24 hours."""
    servers.upstream_of(request.desk, name)
    chronicle = request.desk.chronicle
    spans, now = chronicle.spans(name), chronicle.now()
    known = [(span, (span.end or now) - span.start) for span in spans if span.state != "disabled"]
    whole = sum(seconds for _, seconds in known)
    well = sum(seconds for span, seconds in known if span.state in WELL)
    told = Health(spans=[_span(each) for each in spans])
    if whole > 0:
        told.ready_share = round(well / whole, 4)
    return told


def _span(span: Span) -> HealthSpan:
    return HealthSpan(
        start=told_at(span.start), end=moment(span.end), status=span.state, error=span.error
    )


@router.post("/{name}/sign-in", 404)
async def sign_in(request: ApiRequest, name: Name) -> SignIn:
    """Where to sign in; opening `auth_url` in a browser finishes it."""
    servers.upstream_of(request.desk, name)
    return _signed(await request.desk.sign_ins.login(name))


@router.delete("/{name}/sign-in", 404, 409)
async def sign_out(request: ApiRequest, name: Name) -> SignIn:
    """Forget what was signed in with."""
    if servers.upstream_of(request.desk, name).signing is None:
        raise ApiError(409, "not_needed", f"nobody signs in to {name}")
    return _signed(await request.desk.sign_ins.logout(name))


def _signed(told: Json) -> SignIn:
    problem = told.get("error") or told.get("problem")
    state = told.get("state", "unknown")
    return SignIn(
        name=str(told.get("name", "")), state=state, auth_url=told.get("auth_url"), problem=problem
    )
