"""Shapes that several subjects share."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Entry = Annotated[
    dict[str, Any],
    Field(description="As the configuration has it, in the native shape; `${VAR}` as written, secrets as `••••••••`."),
]
ONE_LINE = r"^[^\u0000-\u001f\u007f-\u009f]*$"
"""Without control characters: it is shown in lists and on terminals."""
Message = Annotated[str, Field(max_length=500, pattern=ONE_LINE, description="For the history.")]
Status = Literal["connecting", "connected", "degraded", "sleeping", "disconnected", "needs_auth", "disabled"]
Outcome = Literal["ok", "tool_error", "error", "cancelled", "denied"]
Transport = Literal["stdio", "http", "sse", "websocket", "other"]


class Told(BaseModel):
    """Something the API answers."""


class Given(BaseModel):
    """Something the API is given: what it does not know is a mistake."""

    model_config = ConfigDict(extra="forbid")


class Problem(Told):
    """One mistake in a configuration, or in what was sent."""

    message: str = Field(examples=["unknown key 'comand'; did you mean 'command'?"])
    path: str | None = Field(None, examples=["mcp_servers[0].connection.comand"])
    file: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None
    severity: Literal["error", "warning"] = "error"


class Place(Told):
    file: str = Field(examples=["/home/ada/config.yaml"])
    line: int | None = Field(None, examples=[12])


class PlanTold(Told):
    """What a configuration does to what is running."""

    summary: str = Field(examples=["1 started (github), 4 kept"])
    kept: list[str] = []
    updated: list[str] = []
    started: list[str] = []
    restarted: list[str] = []
    stopped: list[str] = []
    commands: list[str] = []
    settings: list[str] = []
    needs_restart: list[str] = []


class Written(Told):
    """A change that was made."""

    revision: int = Field(examples=[15])
    etag: str = Field(description="Of the configuration as it is now, as the `ETag` header has it.")
    file: str = Field(description="That was written.")
    plan: PlanTold
    warnings: list[str] = []


class Preview(Told):
    """What a change would do; nothing was changed."""

    ok: bool
    text: str = Field(description="Of the file as it would be, secrets masked.")
    file: str
    diff: str = Field(description="Unified, secrets masked.")
    plan: PlanTold | None = Field(None, description="Absent if it has mistakes.")
    problems: list[Problem] = []


class Toggle(Given):
    enabled: bool | None = Field(None, description="Absent: the other one of the two.")


class Done(Told):
    ok: Literal[True] = True
