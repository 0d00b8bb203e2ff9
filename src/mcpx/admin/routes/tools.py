"""Tools over the admin API."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from mcpx.admin.errors import ALWAYS, responses
from mcpx.admin.routes.given import AtLive, Name
from mcpx.admin.shapes.common import Done
from mcpx.admin.shapes.tools import (
    CallEvents,
    CallGiven,
    CallResult,
    SearchResult,
    ToolDetail,
    Tools,
)
from mcpx.admin.streaming import STREAM, EventStream, streams

router = APIRouter(prefix="/api", tags=["Tools"], responses=ALWAYS)

Profile = Annotated[
    str | None, Query(max_length=200, description="Through which view; absent: everything.")
]

_STREAMED = streams(
    CallEvents,
    "The result; with `Accept: text/event-stream`, events while it runs and the result last.",
)


@router.get("/tools", response_model=Tools, responses=responses(404))
async def list_tools(
    live: AtLive,
    profile: Profile = None,
    server: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Every tool, in the order of the configuration; those that are held back come last."""
    return Response(await live.toolbox.tools(profile, server), media_type="application/json")


@router.get("/tools/{name}", responses=responses(404))
async def show_tool(live: AtLive, name: Name, profile: Profile = None) -> ToolDetail:
    """One tool, whole."""
    return await live.toolbox.detail(name, profile)


@router.post(
    "/tools/{name}/call",
    responses={**responses(404, 408, 409, 429), **_STREAMED},
    response_model=CallResult,
)
async def call_tool(
    live: AtLive, request: Request, name: Name, given: CallGiven
) -> CallResult | Response:
    """Call it as the owner; rules, limits and the audit trail count as for anybody (principal
    `admin`). A server that asks something meanwhile is declined. With `Accept: text/event-stream`
    progress comes as events, the result last."""
    if STREAM in request.headers.get("accept", ""):
        return EventStream(*live.calling.frames(name, given))
    return await live.calling.answer(name, given, request.receive)


@router.delete("/calls/{id}", responses=responses(404))
async def cancel_call(live: AtLive, id: Annotated[str, Path(max_length=64)]) -> Done:
    """Cancel a call that was begun with this `call_id`."""
    live.calling.cancel(id)
    return Done()


@router.get("/search", responses=responses(404))
async def search_tools(
    live: AtLive,
    q: Annotated[str, Query(max_length=1_000)],
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    profile: Profile = None,
) -> SearchResult:
    """With the ranking, and the words, that models get in `search`."""
    return await live.toolbox.search(q, limit, profile)
