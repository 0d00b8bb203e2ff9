"""Tools over the admin API."""

from typing import Annotated

from pydantic import Field

from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.routes.given import Name, Profile, Text
from mcpx.admin.shapes.common import Done
from mcpx.admin.shapes.watching import (
    CallEvents,
    CallGiven,
    CallResult,
    SearchResult,
    ToolDetail,
    Tools,
)
from mcpx.admin.streaming import EventStream

router = Router("/api", "Tools")


@router.get("/tools", 404, model=Tools)
async def list_tools(request: ApiRequest, profile: Profile = None, server: Text = None) -> bytes:
    """Every tool, in the order of the configuration; those that are held back come last."""
    return await request.live.toolbox.tools(profile, server)


@router.get("/tools/{name}", 404)
async def show_tool(request: ApiRequest, name: Name, profile: Profile = None) -> ToolDetail:
    """One tool, whole."""
    return await request.live.toolbox.detail(name, profile)


@router.post(
    "/tools/{name}/call",
    *(404, 408, 409, 429),
    model=CallResult,
    events=(
        CallEvents,
        "The result; with `Accept: text/event-stream`, events while it runs and the result last.",
    ),
)
async def call_tool(request: ApiRequest, name: Name, given: CallGiven) -> CallResult | EventStream:
    """Call it as the owner; rules, limits and the audit trail count as for anybody (principal
    `admin`). A server that asks something meanwhile is declined. With `Accept: text/event-stream`
    progress comes as events, the result last."""
    calling = request.live.calling
    if request.wants_events:
        return EventStream(*calling.frames(name, given))
    return await calling.answer(name, given, request.gone)


@router.delete("/calls/{id}", 404)
async def cancel_call(request: ApiRequest, id: Annotated[str, Field(max_length=64)]) -> Done:
    """Cancel a call that was begun with this `call_id`."""
    request.live.calling.cancel(id)
    return Done()


@router.get("/search", 404)
async def search_tools(
    request: ApiRequest,
    q: Annotated[str, Field(max_length=1_000)],
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
    profile: Profile = None,
) -> SearchResult:
    """With the ranking, and the words, that models get in `search`."""
    return await request.live.toolbox.search(q, limit, profile)
