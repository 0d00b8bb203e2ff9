"""What goes on: overview, activity, statistics, savings, clients, about."""

from typing import Any, Literal

from mcpx.admin.shapes.common import Outcome, Spoken, Status, Told
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
