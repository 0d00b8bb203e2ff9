"""The one shape of an error."""

from typing import Annotated

from pydantic import BaseModel, Field

from mcpx.admin.shapes.common import Problem, Spoken


class ErrorDetail(Spoken):
    SENTENCES = ("message", "hint")

    code: Annotated[
        str, Field(description="What it is, for programs: `not_found`, `invalid`, `stale` …")
    ]
    message: Annotated[str, Field(description="What is wrong, for people.")]
    path: Annotated[
        str | None, Field(description="Where in what was sent, or in the configuration.")
    ] = None
    hint: Annotated[str | None, Field(description="What to do about it.")] = None
    errors: Annotated[
        list[Problem] | None, Field(description="All mistakes, where there may be several.")
    ] = None


class ErrorAnswer(BaseModel):
    error: ErrorDetail
