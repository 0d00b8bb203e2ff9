"""What several routes are given alike: names in paths, and what comes with a change."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Path, Query

from mcpx.admin.desk import Desk, the_desk
from mcpx.admin.errors import ApiError

AtDesk = Annotated[Desk, Depends(the_desk)]
Name = Annotated[str, Path(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class Change:
    """What comes with a write: against which state it was made, by whom, and whether it is meant yet."""

    if_match: str | None
    message: str
    dry_run: bool
    via: str
    author: str


def _change(
    if_match: Annotated[
        str | None, Header(description="The `ETag` of the configuration the change was made to.")
    ] = None,
    message: Annotated[str, Query(max_length=500, description="For the history.")] = "",
    dry_run: Annotated[bool, Query(description="Only tell what it would do: the answer is a preview.")] = False,
    x_mcpx_via: Annotated[str, Header(pattern="^(ui|api|cli)$", description="Where it comes from.")] = "api",
    x_mcpx_author: Annotated[str, Header(max_length=100, description="Who made it, for the history.")] = "",
) -> Change:
    return Change(if_match, message, dry_run, x_mcpx_via, x_mcpx_author)


Writing = Annotated[Change, Depends(_change)]


def not_yet() -> ApiError:
    return ApiError(503, "not_yet", "this part of the API is not there yet")
