"""The one shape of an error."""

from pydantic import BaseModel

from mcpx.admin.shapes.common import Problem, Spoken


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
