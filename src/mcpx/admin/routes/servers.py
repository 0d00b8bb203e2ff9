"""MCP servers over the admin API."""

import asyncio
import shlex
import time
from typing import Annotated, Any, get_args

from pydantic import Field

from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError, moment, plain, told_at
from mcpx.admin.routes import given
from mcpx.admin.routes.given import TRIALS, Name
from mcpx.admin.shapes.common import Transport
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
from mcpx.admin.shapes.watching import Tools
from mcpx.admin.streaming import attended
from mcpx.base.aio import Pace
from mcpx.config import Server
from mcpx.config.edits import PutEntry
from mcpx.config.masking import MASK
from mcpx.config.written import Entry, Written
from mcpx.core.causes import Cause, cause_of
from mcpx.core.chronicle import Span
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.secret_rules import hide_secrets
from mcpx.upstreams.upstream import Upstream

LINES = 20
"""Of standard error that are looked at for a cause."""


async def _server_rows(desk: Desk, written: Written) -> list[ServerRow]:
    """In the order of the configuration; what stands in the file only comes last."""
    await desk.gateway.catalogs.ready()
    entries = {entry.name: entry for entry in written.entries("mcp_servers")}
    rows: list[ServerRow] = []
    pace = Pace()  # there may be hundreds
    for name, upstream in _upstreams(desk).items():
        rows.append(ServerRow.model_validate(plain(_row(desk, upstream, entries.pop(name, None)))))
        await pace.step()
    return [
        *rows,
        *(ServerRow.model_validate(plain(_waiting(entry))) for entry in entries.values()),
    ]


async def _server_row(desk: Desk, written: Written, name: str) -> ServerRow:
    await desk.gateway.catalogs.ready()
    return ServerRow.model_validate(plain(_one(desk, written, name)))


async def _detail(desk: Desk, written: Written, name: str) -> ServerDetail:
    await desk.gateway.catalogs.ready()
    told, upstream = _one(desk, written, name), _upstreams(desk).get(name)
    entry = written.entry("mcp_servers", name)
    value = {"name": name, "connection": told["connection"]} if entry is None else entry.value
    if upstream is None:
        return ServerDetail.model_validate(plain({**told, "entry": value}))
    about, terms = upstream.describe(), upstream.connection.terms
    held, notes = upstream.describe_held()
    cause = await _why(desk, upstream)
    more: Json = {
        "links": about["links"],
        "notes": [*notes, *about["notes"]],
        "instructions": upstream.instructions or None,
        "protocol": None if terms is None else terms.version,
        "server_info": None if terms is None else dict(terms.server),
        "sign_in": None if upstream.signing is None else upstream.signing.describe(),
        **({} if cause is None else cause.told()),
    }
    told["entry"] = value
    return ServerDetail.model_validate(
        plain({**told, **desk.gateway.redactor.redact_values(more), "held": held})
    )


async def _why(desk: Desk, upstream: Upstream) -> Cause | None:
    """Of what is wrong with it now."""
    problem = upstream.connection.problem
    if problem is None or upstream.status.state in ("connected", "sleeping"):
        return None
    lines = desk.chronicle.tail(upstream.name, LINES)
    bare = problem.removeprefix(f"{upstream.name}: ")
    return await asyncio.to_thread(cause_of, upstream.server, bare, lines, desk.gateway.environ)


def _upstream_of(desk: Desk, name: str) -> Upstream:
    """Raises a 404."""
    upstreams = _upstreams(desk)
    if name not in upstreams:
        raise given.unknown("mcp_servers", name, list(upstreams))
    return upstreams[name]


def _upstreams(desk: Desk) -> dict[str, Upstream]:
    return dict(desk.gateway.generation.upstreams)


def _one(desk: Desk, written: Written, name: str) -> Json:
    entry, upstream = written.entry("mcp_servers", name), _upstreams(desk).get(name)
    if upstream is not None:
        return _row(desk, upstream, entry)
    if entry is None:
        names = [each.name for each in written.entries("mcp_servers")]
        raise given.unknown("mcp_servers", name, list(dict.fromkeys([*_upstreams(desk), *names])))
    return _waiting(entry)


def _row(desk: Desk, upstream: Upstream, entry: Entry | None) -> Json:
    server, status = upstream.server, upstream.status
    connection = _connection(server) if entry is None else as_object(entry.value.get("connection"))
    about = upstream.describe()
    started = upstream.connection.phase_seconds
    problem = upstream.connection.problem
    return {
        "name": server.name,
        "description": upstream.description,
        "enabled": server.enabled,
        "status": status.state,
        "since": moment(status.since),
        "last_error": None if problem is None else problem.removeprefix(f"{server.name}: "),
        "phase": about["phase"],
        "phase_since": None if started is None else moment(time.time() - started),
        "next_try": moment(upstream.connection.next_try)
        if status.state in ("disconnected", "needs_auth")
        else None,
        "tools_count": desk.gateway.catalog.count(server.name, "tools"),
        "held": upstream.describe_held()[0],
        "quarantined": server.enabled and not upstream.enabled,
        "transport": _transport(server.connection.type),
        "connection": connection,
        "command_line": _command_line(connection),
        "trust": server.trust,
        "lazy": server.lazy,
        "restarts": about["restarts"],
        "processes": about["processes"],
        "latency_ms": about["latency_ms"],
        "auth_url": upstream.auth_url,
        "source": given.place_of(entry),
        **given.figures_of(desk, server.name),
    }


def _waiting(entry: Entry) -> Json:
    """What the file has and the gateway has not."""
    connection = as_object(entry.value.get("connection"))
    return {
        "name": entry.name,
        "description": str(entry.value.get("description") or ""),
        "enabled": entry.value.get("enabled") is not False,
        "status": "disconnected",
        "since": moment(time.time()),
        "last_error": given.NOT_TAKEN_UP,
        "tools_count": 0,
        "transport": _transport(str(connection.get("type"))),
        "connection": connection,
        "command_line": _command_line(connection),
        "source": given.place_of(entry),
    }


def _transport(kind: str) -> Any:
    return kind if kind in get_args(Transport) else "other"


def _connection(server: Server) -> Json:
    """Of one that no file has: how it is reached, without what may be secret."""
    spec = server.connection
    told: Json = {"type": spec.type}
    for key in ("command", "url"):
        if (value := getattr(spec, key, None)) is not None:
            told[key] = hide_secrets(value, ("connection", key), MASK)
    return told


def _command_line(connection: Json) -> str | None:
    command = connection.get("command")
    if not isinstance(command, str):
        return None
    words = [command, *(str(each) for each in as_list(connection.get("args")))]
    return shlex.join(words).replace("'••••••••'", "••••••••")


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
    return Servers(servers=await _server_rows(request.desk, await given.look(request)))


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
    return await _detail(request.desk, await given.look(request), name)


@router.post("/{name}/test", *TRIALS)
async def try_server(request: ApiRequest, name: Name) -> TrialResult:
    """Connect to it once more, beside what runs."""
    desk = request.desk
    written = await desk.store.look()
    if written.entry(SECTION, name) is None and name in desk.gateway.generation.upstreams:
        told = f"{name} stands in no file: there is nothing to try it by"
        raise ApiError(409, "not_possible", told)
    return await _try(request, name, given.entry_of(written, SECTION, name).value)


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
    return await request.live.toolbox.of_server(_upstream_of(request.desk, name))


@router.post("/{name}/reconnect", 404, 409)
async def reconnect(request: ApiRequest, name: Name) -> ServerRow:
    """Connect anew, now; calls that run may fail."""
    desk = request.desk
    if not _upstream_of(desk, name).server.enabled:
        hint = "switch it on: that connects it"
        raise ApiError(409, "disabled", f"{name} is switched off", hint=hint)
    await desk.gateway.reconnect(name)
    return await _server_row(desk, await desk.store.look(), name)


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
    _upstream_of(request.desk, name)
    lines, last = request.desk.chronicle.lines(name, after, limit)
    told = [
        LogLine(number=line.number, time=told_at(line.at), text=line.text, stream=line.stream)
        for line in lines
    ]
    return Logs(lines=told, last=last)


@router.get("/{name}/health", 404)
async def server_health(request: ApiRequest, name: Name) -> Health:
    """Its states over the last 24 hours."""
    _upstream_of(request.desk, name)
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
    _upstream_of(request.desk, name)
    return _signed(await request.desk.sign_ins.login(name))


@router.delete("/{name}/sign-in", 404, 409)
async def sign_out(request: ApiRequest, name: Name) -> SignIn:
    """Forget what was signed in with."""
    if _upstream_of(request.desk, name).signing is None:
        raise ApiError(409, "not_needed", f"nobody signs in to {name}")
    return _signed(await request.desk.sign_ins.logout(name))


def _signed(told: Json) -> SignIn:
    problem = told.get("error") or told.get("problem")
    state = told.get("state", "unknown")
    return SignIn(
        name=str(told.get("name", "")), state=state, auth_url=told.get("auth_url"), problem=problem
    )
