"""The gateway at work: overview, activity, statistics, savings, clients, tools, and events.

`GET /api/events` sends one JSON object for each event:

    id: <run>-<number>    (`Last-Event-ID` resumes after it, or `reset` comes first)
    event: <name>
    data: <one line of JSON>

With several replicas, each replica sends the events of all of them; `replica` says where an event
happened. A comment line comes every 15 seconds, so that both sides notice a dead connection.
"""

from typing import Any, Literal

from pydantic import Field

from mcpx.admin.shapes.common import Given, Outcome, Spoken, Status, Told
from mcpx.admin.shapes.config import RevisionRow


class ClientRow(Spoken):
    SENTENCES = ("why",)

    name: str
    version: str | None = None
    principal: str | None = None
    profile: str | None = None
    sessions: int = 0
    mode: str | None = None
    why: str | None = None
    """Of the mode, in words."""
    calls_per_minute: float = 0
    last_seen: str | None = None
    protocol: str | None = None


class ServerRate(Told):
    name: str
    status: Status
    quarantined: bool = False
    calls_per_minute: float = 0


class GatewayRow(Told):
    url: str | None = None
    mode: str
    calls_per_minute: float
    p95_ms: float | None = None
    in_flight: int
    tools: int
    tools_tokens: int
    """Of all definitions, as `direct` lists them; estimated."""
    menu_mode: str | None = None
    """Of the menu: the configured one, or what `auto` may choose."""
    menu_tools: int | None = None
    menu_tokens: int | None = None


class RecentError(Spoken):
    SENTENCES = ("what",)

    at: str
    server: str
    name: str | None = None
    what: str
    count: int = 1
    number: int | None = None
    """Of the latest such call in the activity."""


class Waiting(Spoken):
    SENTENCES = ("detail",)

    kind: Literal["call", "definition", "server", "sign_in"]
    title: str
    detail: str
    count: int | None = None
    """Definitions that wait, of a server."""
    expires: str | None = None


class Overview(Told):
    clients: list[ClientRow]
    sessions: int
    gateway: GatewayRow
    servers: list[ServerRate]
    local: ServerRate | None = None
    """The local commands as one more target beside servers; absent where there are none."""
    commands: int
    waiting: list[Waiting]
    errors: list[RecentError]
    errors_last_hour: int
    revisions: list[RevisionRow]
    config_loaded: str
    config_path: str | None = None
    config_refused: bool = False
    """The files on disk have mistakes and were not taken up; the last revision runs on."""
    first_run: bool = False
    """Nothing is configured yet: the built-in demo runs."""


class Point(Told):
    at: int
    """Seconds since 1970, begin of the step."""
    calls: int
    errors: int
    p50_ms: float | None = None
    p95_ms: float | None = None


class Statistics(Told):
    range: Literal["15m", "1h", "24h", "7d"]
    step: int
    """Seconds."""
    since: str
    """Counting began then."""
    points: list[Point]


class CallRow(Spoken):
    SENTENCES = ("error", "rule")

    number: int
    time: str
    principal: str = ""
    profile: str | None = None
    client: str | None = None
    method: str
    server: str
    name: str
    public_name: str | None = None
    outcome: Outcome
    code: int | None = None
    error: str | None = None
    """One line."""
    rule: str | None = None
    ms: float
    bytes_in: int | None = None
    bytes_out: int | None = None
    tokens_out: int | None = None


class Activity(Told):
    calls: list[CallRow]
    """The latest last."""
    last: int
    kept: int
    """How many are kept at most."""


class CallDetail(CallRow):
    arguments: Any = None
    """Secrets blotted out; shortened where it is long."""
    result: Any = None
    shortened: bool = False
    kept: bool
    """Whether arguments and result are there to be seen: kept while somebody looks."""
    replayable: bool = False
    trace: str | None = None


class ToolCost(Told):
    name: str
    server: str
    tokens: int
    calls: int


class ServerCost(Told):
    server: str
    tools: int
    tokens: int
    calls: int = 0


class ClientSaving(Told):
    client: str
    mode: str
    lists: int
    tokens_shown: int
    tokens_direct: int


class Savings(Spoken):
    """Estimated without a tokenizer; against showing every definition in each list that was asked
    for."""

    SENTENCES = ("method",)

    method: str
    since: str
    catalog_tools: int
    catalog_tokens: int
    menus: dict[str, int]
    """Tokens of the menu in each mode."""
    lists: int
    tokens_shown: int
    tokens_direct: int
    result_tokens_raw: int
    result_tokens_given: int
    by_client: list[ClientSaving]
    by_server: list[ServerCost]
    top_tools: list[ToolCost]


class Snippet(Told):
    label: str
    language: Literal["json", "toml", "yaml", "shell", "text", "url"]
    text: str
    path: str | None = None
    """Of the file it belongs into."""


class ClientProgram(Spoken):
    SENTENCES = ("name", "why", "notes")

    id: str
    name: str
    transport: Literal["http", "stdio"]
    why: str = ""
    snippets: list[Snippet]
    deeplink: str | None = None
    notes: list[str] = []
    seen: bool = False
    """It has connected since the start."""


class ClientPrograms(Told):
    clients: list[ClientProgram]
    url: str | None
    profiles: list[str] = []


class ReplicaRow(Told):
    id: str
    name: str
    """Of the machine, mostly."""
    me: bool = False
    """The one that answers."""
    state: Literal["serving", "leaving"]
    version: str
    revision: int
    """Of the configuration that it runs."""
    etag: str
    """Of that; the same on two replicas: they run the same."""
    shared: bool
    """Whether that is the newest of all replicas, or its own."""
    sessions: int
    started_at: str
    """When, RFC 3339."""


class ReplicasTold(Told):
    replicas: list[ReplicaRow]
    """By name; none where there is no store."""


class About(Told):
    version: str
    python: str
    transport: Literal["stdio", "http"]
    url: str | None = None
    admin_url: str
    started: str
    config: str | None = None
    state: str | None = None
    env: str | None = None
    pid: int
    memory_mb: float | None = None
    mode: str
    auth: Literal["none", "bearer", "jwt"] = "none"
    links: dict[str, str] = {}
    """Health and metrics pages."""


class ToolRow(Told):
    name: str
    """As clients know it."""
    server: str
    """`commands` for local ones."""
    tool: str
    """Its name at its own server."""
    title: str | None = None
    description: str = ""
    """At most 300 characters."""
    read_only: bool | None = None
    destructive: bool | None = None
    tokens: int
    """What its definition costs, estimated."""
    held: bool = False
    """Waits for approval: clients do not see it."""
    parameters: list[str] = []


class Tools(Told):
    tools: list[ToolRow]
    total: int
    tokens: int
    """Of all of them, estimated."""


class ToolDetail(ToolRow):
    definition: dict[str, Any]
    """As clients get it in `direct`."""
    signature: str
    """As compact modes show it."""
    signature_tokens: int


class Hit(Told):
    name: str
    server: str
    tool: str
    description: str
    score: float


class SearchResult(Told):
    query: str
    hits: list[Hit]
    total: int
    model_sees: str
    """The text a model gets for this query in `search`."""
    model_tokens: int


class CallGiven(Given):
    arguments: dict[str, Any] = {}
    profile: str | None = None
    """Through which view; absent: everything."""
    call_id: str | None = Field(default=None, max_length=64, pattern="^[A-Za-z0-9_-]+$")
    """To cancel it by."""


class ModelSees(Told):
    """The result as a compact mode hands it to a model."""

    mode: Literal["search", "inspect", "describe"]
    text: str
    tokens: int
    raw_tokens: int
    content: list[dict[str, Any]] = []


class CallResult(Told):
    ok: bool
    ms: float
    result: dict[str, Any] | None = None
    """As the server gave it; secrets blotted out."""
    error: dict[str, Any] | None = None
    """A JSON-RPC error: code, message, data."""
    shortened: bool = False
    """The result was too large to be answered whole."""
    model: ModelSees | None = None


class CallProgress(Told):
    """`progress`: how far a running call is."""

    progress: float
    total: float | None = None
    message: str | None = None


class CallMessage(Told):
    """`message`: what its server says meanwhile."""

    level: str
    text: str


class CallQuestion(Told):
    """`question`: its server asked something; it was answered so, for nobody can be asked here."""

    server: str
    method: str
    message: str = ""
    answer: Literal["decline"] = "decline"


class CallEvents(Told):
    """What comes as server-sent events, by the name of the event; `result` is the last."""

    progress: CallProgress
    message: CallMessage
    question: CallQuestion
    result: CallResult


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
