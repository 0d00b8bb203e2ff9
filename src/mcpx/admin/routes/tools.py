"""Tools over the admin API."""

from fastapi import APIRouter

from mcpx.admin.routes.given import AtDesk, Name, not_yet
from mcpx.admin.shapes.common import Done
from mcpx.admin.shapes.tools import CallGiven, CallResult, SearchResult, ToolDetail, Tools

router = APIRouter(prefix="/api", tags=["Tools"])


@router.get("/tools")
async def list_tools(desk: AtDesk, profile: str | None = None, server: str | None = None) -> Tools:
    """Every tool, in the order of the configuration."""
    raise not_yet()


@router.get("/tools/{name}")
async def show_tool(desk: AtDesk, name: Name, profile: str | None = None) -> ToolDetail:
    """One tool, whole."""
    raise not_yet()


@router.post("/tools/{name}/call")
async def call_tool(desk: AtDesk, name: Name, given: CallGiven) -> CallResult:
    """Call it. With `Accept: text/event-stream` progress comes as events, the result last."""
    raise not_yet()


@router.delete("/calls/{id}")
async def cancel_call(desk: AtDesk, id: str) -> Done:
    """Cancel a call that was begun with this `call_id`."""
    raise not_yet()


@router.get("/search")
async def search_tools(desk: AtDesk, q: str, limit: int = 20, profile: str | None = None) -> SearchResult:
    """With the ranking that models get."""
    raise not_yet()
