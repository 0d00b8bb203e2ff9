"""What `GET /api/events` tells: one JSON object an event, under the names below.

    id: <run>-<number>          resumes after it with `Last-Event-ID`; where too much was missed, `reset` comes first
    event: <name>
    data: <one line of JSON>

With several replicas, what happens at any of them is told at each, under the same ids; `replica`
says where.

A comment line comes every 15 seconds, so that both sides notice a dead connection.
"""

from typing import Literal

from mcpx.admin.shapes.common import Spoken, Status, Told
from mcpx.admin.shapes.watching import CallRow, ClientRow, ServerRate

Name = Literal[
    "hello", "reset", "status", "catalog", "call", "config", "approvals", "clients", "rates"
]


Replica = str | None
"""Of several replicas the one that it happened at."""


class Hello(Told):
    """`hello`, first on every stream."""

    version: str
    run: str
    revision: int
    etag: str
    replica: str | None = None
    """Of several replicas the one that tells."""


class Reset(Told):
    """`reset`: what happened meanwhile is not known any more; read everything again."""

    reason: str = ""


class StatusEvent(Spoken):
    """`status`: a server is in another state, came or went."""

    SENTENCES = ("last_error",)

    name: str
    status: Status
    since: str
    last_error: str | None = None
    tools_count: int = 0
    gone: bool = False
    replica: Replica = None


class CatalogEvent(Told):
    """`catalog`: the tools, prompts, resources or templates of a server changed."""

    server: str | None = None
    kinds: list[str]
    tools: int
    replica: Replica = None


class CallEvent(CallRow):
    """`call`: one is over. Many a second come together: at most 50 a second are told, `skipped`
    counts the others."""

    skipped: int = 0
    replica: Replica = None


class ConfigEvent(Spoken):
    """`config`: a configuration was taken up, or refused."""

    SENTENCES = ("summary",)

    ok: bool
    revision: int
    etag: str
    by: str
    summary: str
    problems: int = 0
    replica: Replica = None


class ApprovalsEvent(Told):
    """`approvals`: what waits for somebody is not what it was."""

    pending: int
    replica: Replica = None


class ClientsEvent(Told):
    """`clients`: one came or went, or changed."""

    clients: list[ClientRow]
    sessions: int


class RatesEvent(Told):
    """`rates`: once a second while something is called, and once when nothing is any more. Servers
    and clients that are not in it were not called for a minute."""

    calls_per_minute: float
    p95_ms: float | None
    in_flight: int
    servers: list[ServerRate]
    local: ServerRate | None = None
    """The local commands; absent where there are none."""
    clients: list[ClientRow]


class EventShapes(Told):
    """The data of each event, by its name. `clients` and `rates` have no id: only the latest
    counts."""

    hello: Hello
    reset: Reset
    status: StatusEvent
    catalog: CatalogEvent
    call: CallEvent
    config: ConfigEvent
    approvals: ApprovalsEvent
    clients: ClientsEvent
    rates: RatesEvent
