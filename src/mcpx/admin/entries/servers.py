"""Servers as the admin API tells of them."""

import asyncio
import shlex
import time
from typing import Any, get_args

from mcpx.admin.desk import Desk
from mcpx.admin.entries import NOT_TAKEN_UP, figures_of, place_of, unknown
from mcpx.admin.errors import moment, plain
from mcpx.admin.shapes.common import Transport
from mcpx.admin.shapes.servers import ServerDetail, ServerRow
from mcpx.config import Server
from mcpx.config.masking import MASK
from mcpx.config.written import Entry, Written
from mcpx.core.causes import Cause, cause_of
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.secret_rules import hide_secrets
from mcpx.model.slices import Pace
from mcpx.upstreams.upstream import Upstream

LINES = 20
"""Of standard error that are looked at for a cause."""


async def rows(desk: Desk, written: Written) -> list[ServerRow]:
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


async def row(desk: Desk, written: Written, name: str) -> ServerRow:
    await desk.gateway.catalogs.ready()
    return ServerRow.model_validate(plain(_one(desk, written, name)))


async def detail(desk: Desk, written: Written, name: str) -> ServerDetail:
    await desk.gateway.catalogs.ready()
    told, upstream = _one(desk, written, name), _upstreams(desk).get(name)
    entry = written.entry("mcp_servers", name)
    value = {"name": name, "connection": told["connection"]} if entry is None else entry.value
    if upstream is None:
        return ServerDetail.model_validate(plain({**told, "entry": value}))
    about, terms = upstream.describe(), upstream.connection.terms
    held, notes = upstream.describe_held()
    cause = await why(desk, upstream)
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


async def why(desk: Desk, upstream: Upstream) -> Cause | None:
    """Of what is wrong with it now."""
    problem = upstream.connection.problem
    if problem is None or upstream.status.state in ("connected", "sleeping"):
        return None
    lines = desk.chronicle.tail(upstream.name, LINES)
    bare = problem.removeprefix(f"{upstream.name}: ")
    return await asyncio.to_thread(cause_of, upstream.server, bare, lines, desk.gateway.environ)


def upstream_of(desk: Desk, name: str) -> Upstream:
    """Raises a 404."""
    upstreams = _upstreams(desk)
    if name not in upstreams:
        raise unknown("mcp_servers", name, list(upstreams))
    return upstreams[name]


def _upstreams(desk: Desk) -> dict[str, Upstream]:
    return dict(desk.gateway.generation.upstreams)


def _one(desk: Desk, written: Written, name: str) -> Json:
    entry, upstream = written.entry("mcp_servers", name), _upstreams(desk).get(name)
    if upstream is not None:
        return _row(desk, upstream, entry)
    if entry is None:
        names = [each.name for each in written.entries("mcp_servers")]
        raise unknown("mcp_servers", name, list(dict.fromkeys([*_upstreams(desk), *names])))
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
        "source": place_of(entry),
        **figures_of(desk, server.name),
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
        "last_error": NOT_TAKEN_UP,
        "tools_count": 0,
        "transport": _transport(str(connection.get("type"))),
        "connection": connection,
        "command_line": _command_line(connection),
        "source": place_of(entry),
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
