"""Tools: what there is, finding them, calling one."""

from typing import Any, Literal

from pydantic import Field

from mcpx.admin.shapes.common import Given, Told


class ToolRow(Told):
    name: str = Field(examples=["github_create_issue"], description="As clients know it.")
    server: str = Field(description="`commands` for local ones.")
    tool: str = Field(description="Its name at its own server.")
    title: str | None = None
    description: str = Field(default="", description="At most 300 characters.")
    read_only: bool | None = None
    destructive: bool | None = None
    tokens: int = Field(description="What its definition costs, estimated.")
    held: bool = Field(default=False, description="Waits for approval: clients do not see it.")
    parameters: list[str] = []


class Tools(Told):
    tools: list[ToolRow]
    total: int
    tokens: int = Field(description="Of all of them, estimated.")


class ToolDetail(ToolRow):
    definition: dict[str, Any] = Field(description="As clients get it in `direct`.")
    signature: str = Field(description="As compact modes show it.")
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
    model_sees: str = Field(description="The text a model gets for this query in `search`.")
    model_tokens: int


class CallGiven(Given):
    arguments: dict[str, Any] = {}
    profile: str | None = Field(default=None, description="Through which view; absent: everything.")
    call_id: str | None = Field(
        default=None, max_length=64, pattern=r"^[A-Za-z0-9_-]+$", description="To cancel it by."
    )


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
    result: dict[str, Any] | None = Field(
        default=None, description="As the server gave it; secrets blotted out."
    )
    error: dict[str, Any] | None = Field(
        default=None, description="A JSON-RPC error: code, message, data."
    )
    shortened: bool = Field(
        default=False, description="The result was too large to be answered whole."
    )
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
    method: str = Field(examples=["elicitation/create"])
    message: str = ""
    answer: Literal["decline"] = "decline"


class CallEvents(Told):
    """What comes as server-sent events, by the name of the event; `result` is the last."""

    progress: CallProgress
    message: CallMessage
    question: CallQuestion
    result: CallResult
