"""Shapes that several subjects share."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mcpx.admin.sentences import said

Entry = dict[str, Any]
"""As the configuration has it, in the native shape; `${VAR}` as written, secrets as `••••••••`."""
ONE_LINE = r"^[^\u0000-\u001f\u007f-\u009f]*$"
"""Without control characters: it is shown in lists and on terminals."""
Message = Annotated[str, Field(max_length=500, pattern=ONE_LINE)]
"""For the history."""
Status = Literal[
    "connecting", "connected", "degraded", "sleeping", "disconnected", "needs_auth", "disabled"
]
Outcome = Literal["ok", "tool_error", "error", "cancelled", "denied"]
Transport = Literal["stdio", "http", "sse", "websocket", "other"]


class Told(BaseModel):
    """Something the API answers."""


class Given(BaseModel):
    """Something the API is given: what it does not know is a mistake."""

    model_config = ConfigDict(extra="forbid")


class SentenceTold(Told):
    """A sentence of the gateway's own, for whoever says it in another language."""

    model_config = ConfigDict(from_attributes=True)

    code: str
    values: dict[str, "str | SentenceTold"] = {}
    """What stands in its gaps."""


class Spoken(Told):
    """Something with sentences of the gateway's own in it."""

    SENTENCES: ClassVar[tuple[str, ...]] = ()
    """Fields that may hold some: texts, lists of texts, or (`links.why`) of objects."""

    said: dict[str, SentenceTold] | None = None
    """Codes of sentences, by the field they stand in, or by `field.0` in a list."""

    @model_validator(mode="after")
    def _say(self) -> Self:
        found = said({name: getattr(self, name.partition(".")[0]) for name in self.SENTENCES})
        self.said = {
            name: SentenceTold.model_validate(sentence) for name, sentence in found.items()
        } or None
        return self


class Problem(Spoken):
    """One mistake in a configuration, or in what was sent."""

    SENTENCES = ("message", "hint")

    message: str
    path: str | None = None
    file: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None
    severity: Literal["error", "warning"] = "error"


class Place(Told):
    file: str
    line: int | None = None


class PlanTold(Spoken):
    """What a configuration does to what is running."""

    SENTENCES = ("summary",)

    summary: str
    kept: list[str] = []
    updated: list[str] = []
    started: list[str] = []
    restarted: list[str] = []
    stopped: list[str] = []
    commands: list[str] = []
    settings: list[str] = []
    needs_restart: list[str] = []


class Written(Spoken):
    """A change that was made."""

    SENTENCES = ("warnings",)

    revision: int
    etag: str
    """Of the configuration as it is now, as the `ETag` header has it."""
    file: str
    """That was written."""
    plan: PlanTold
    warnings: list[str] = []


class Preview(Told):
    """What a change would do; nothing was changed."""

    ok: bool
    text: str
    """Of the file as it would be, secrets masked."""
    file: str
    diff: str
    """Unified, secrets masked."""
    plan: PlanTold | None = None
    """Absent if it has mistakes."""
    problems: list[Problem] = []


class Toggle(Given):
    enabled: bool | None = None
    """Absent: the other one of the two."""


class Done(Told):
    ok: Literal[True] = True


class ErrorDetail(Spoken):
    SENTENCES = ("message", "hint")

    code: str
    """What it is, for programs: `not_found`, `invalid`, `stale` …"""
    message: str
    """What is wrong, for people."""
    path: str | None = None
    """Where in what was sent, or in the configuration."""
    hint: str | None = None
    """What to do about it."""
    errors: list[Problem] | None = None
    """All mistakes, where there may be several."""


class ErrorAnswer(BaseModel):
    error: ErrorDetail


class Login(Given):
    token: str = Field(min_length=1, max_length=1024)


class SessionTold(Told):
    signed_in: bool
    by: str | None = None
    version: str | None = None


class LoginResult(SessionTold):
    secret: str
    """Value of the header `X-Mcpx-Session`; each request of the session needs it."""
