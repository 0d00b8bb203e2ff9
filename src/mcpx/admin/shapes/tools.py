"""Tools: what there is, finding them, calling one."""

from typing import Any, Literal

from pydantic import Field

from mcpx.admin.shapes.common import Given, Told


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
