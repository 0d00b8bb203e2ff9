"""MCP servers: the list, one of them, trying one out, signing in."""

from typing import Any, Literal

from pydantic import Field

from mcpx.admin.shapes.common import Entry, Given, Place, Spoken, Status, Told, Transport


class ServerRow(Spoken):
    SENTENCES = ("last_error",)

    name: str
    description: str = ""
    enabled: bool
    status: Status
    since: str
    """When it came to be so, RFC 3339."""
    last_error: str | None = None
    phase: str | None = None
    """What a connecting server is at."""
    phase_since: str | None = None
    """When its start began, while it starts, RFC 3339."""
    next_try: str | None = None
    """Of one that is down, when it is tried again, RFC 3339."""
    tools_count: int
    held: int = 0
    """Definitions that wait for approval."""
    quarantined: bool = False
    transport: Transport
    connection: dict[str, Any]
    """As written, secrets masked."""
    command_line: str | None = None
    """Of a stdio server, to read and copy; secrets masked."""
    trust: Literal["open", "pin", "quarantine"] = "open"
    lazy: bool = False
    calls_per_minute: float = 0
    """Over the last minute."""
    calls: int = 0
    """In the last hour."""
    errors: int = 0
    """In the last hour."""
    p50_ms: float | None = None
    p95_ms: float | None = None
    last_call: str | None = None
    restarts: int = 0
    processes: int = 0
    latency_ms: float | None = None
    """Of the last probe."""
    auth_url: str | None = None
    """Where to sign in, if somebody has to."""
    source: Place | None = None


class Servers(Told):
    servers: list[ServerRow]


class Diagnosis(Told):
    """Why something does not work, where that is known."""

    cause: str | None = None
    """Of the last error, in plain words."""
    fix: str | None = None
    """What to do about it."""
    repair: dict[str, Any] | None = None
    """Fields of the entry that would mend it, where that is clear; a dotted name goes deeper."""
    searched: list[str] = []
    """Folders in which its program was looked for."""


class ServerDetail(ServerRow, Diagnosis):
    SENTENCES = ("last_error", "notes", "cause", "fix", "links.use", "links.why")

    entry: Entry
    links: list[dict[str, Any]] = []
    notes: list[str] = []
    instructions: str | None = None
    protocol: str | None = None
    server_info: dict[str, Any] | None = None
    sign_in: dict[str, Any] | None = None


class Trial(Given):
    """An entry to try out, before it is saved or after."""

    entry: Entry
    stored: str | None = Field(None, max_length=200)
    """The saved one whose masked values are meant, if renamed."""


class TrialResult(Spoken, Diagnosis):
    SENTENCES = ("error", "cause", "fix")

    ok: bool
    seconds: float
    protocol: str | None = None
    server_info: dict[str, Any] | None = None
    tools: list[str] = []
    prompts: int = 0
    resources: int = 0
    stderr: list[str] = []
    """The last lines of a process."""
    error: str | None = None
    auth_url: str | None = None


class LogLine(Told):
    number: int
    time: str
    text: str
    """Plain text; secrets blotted out."""
    stream: Literal["stderr", "mcpx"] = "stderr"


class Logs(Told):
    lines: list[LogLine]
    last: int
    """The number of the last line there is: give it as `after` to go on."""


class HealthSpan(Spoken):
    SENTENCES = ("error",)

    start: str
    end: str | None = None
    """None: it is still so."""
    status: Status
    error: str | None = None


class Health(Told):
    spans: list[HealthSpan]
    ready_share: float | None = None
    """Of the time that is known, 0 to 1."""


class SignIn(Spoken):
    SENTENCES = ("problem",)

    name: str
    state: Literal["signed_in", "sign_in_needed", "not_needed", "configured", "unknown"]
    auth_url: str | None = None
    problem: str | None = None


class Pasted(Given):
    text: str = Field(max_length=1000000)
    """A client's JSON or TOML, native YAML, a command line, a URL, an OpenAPI document, a curl
    line."""


class Recognised(Told):
    section: Literal["mcp_servers", "commands", "auth_configs"]
    entry: Entry
    yaml: str
    """As it would stand in the file."""
    taken: bool = False
    """An entry of this name is there already."""
    free_name: str | None = None
    """If it is taken: one like it that is not."""


class Operation(Told):
    id: str
    method: str
    path: str
    summary: str = ""
    tags: list[str] = []
    read_only: bool = False


class PasteResult(Spoken):
    SENTENCES = ("title", "warnings")

    kind: Literal["servers", "command_line", "url", "openapi", "curl", "nothing"]
    title: str
    """What it was taken for, in words."""
    entries: list[Recognised] = []
    operations: list[Operation] = []
    """Of an OpenAPI document, to pick from."""
    warnings: list[str] = []
