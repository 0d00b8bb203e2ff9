"""Local commands and auth configs."""

from typing import Any, Literal

from pydantic import Field

from mcpx.admin.shapes.common import Entry, Given, Place, Spoken, Told
from mcpx.admin.shapes.servers import Operation, Recognised


class CommandRow(Spoken):
    SENTENCES = ("last_error",)

    name: str
    description: str = ""
    type: str
    enabled: bool
    last_error: str | None = None
    """Why it is switched off, if it is not by `enabled`."""
    summary: str = ""
    parameters: list[str] = []
    read_only: bool | None = None
    auth: str | None = None
    calls: int = 0
    errors: int = 0
    p95_ms: float | None = None
    last_call: str | None = None
    tokens: int = 0
    """What its definition costs, estimated."""
    source: Place | None = None


class Commands(Told):
    commands: list[CommandRow]


class CommandDetail(CommandRow):
    entry: Entry
    tool: dict[str, Any] | None = None
    """As clients get it listed."""


class CommandTrial(Given):
    entry: Entry | None = None
    """Absent: as it is saved under `stored`."""
    stored: str | None = Field(None, max_length=200)
    """The saved one whose masked values are meant."""
    arguments: dict[str, Any] = {}
    dry: bool = False
    """Only tell what would be sent or run."""


class SavedCommandTrial(Given):
    arguments: dict[str, Any] = {}
    dry: bool = False


class Resolved(Told):
    """What is sent or run, secrets masked."""

    method: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}
    body: str | None = None
    argv: list[str] | None = None
    cwd: str | None = None
    env: dict[str, str] = {}


class CommandTrialResult(Spoken):
    SENTENCES = ("error",)

    ok: bool
    resolved: Resolved | None = None
    tool: dict[str, Any] | None = None
    tokens: int = 0
    """What its definition costs, estimated."""
    ms: float | None = None
    result: dict[str, Any] | None = None
    """As a client gets it."""
    error: str | None = None
    path: str | None = None
    """Of what is wrong."""


class CommandImport(Given):
    kind: Literal["openapi", "curl"]
    text: str | None = Field(None, max_length=4_000_000)
    url: str | None = None
    """Of an OpenAPI document."""
    allow_private: bool = False
    pick: list[str] | None = None
    """Ids of operations; absent: only list them."""
    prefix: str = Field("", max_length=32, pattern=r"^[A-Za-z0-9_-]*$")
    server: str | None = Field(None, max_length=2000)
    """Where the API is, instead of what the document says."""
    name: str | None = None
    """Of the command that is made of a curl line."""


class CommandImportResult(Spoken):
    SENTENCES = ("title", "warnings")

    title: str = ""
    operations: list[Operation] = []
    entries: list[Recognised] = []
    warnings: list[str] = []


class AuthRow(Spoken):
    SENTENCES = ("detail",)

    name: str
    type: str
    state: Literal["ready", "expires", "sign_in_needed", "failed", "unused"] = "ready"
    detail: str = ""
    """Of the state, in words."""
    expires: str | None = None
    used_by: list[str] = []
    """`server:name` and `command:name`."""
    kept_in: str = ""
    """Where its secrets come from."""
    entry: Entry
    source: Place | None = None


class AuthConfigs(Told):
    auth_configs: list[AuthRow]


class AuthType(Told):
    type: str
    fields: dict[str, Any]
    """JSON Schema of its fields."""


class AuthTypes(Told):
    types: list[AuthType]
