"""Watching over the admin API."""

from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from mcpx.admin.routes.given import AtDesk, not_yet
from mcpx.admin.shapes.common import Outcome
from mcpx.admin.shapes.tools import CallResult
from mcpx.admin.shapes.watching import About, Activity, CallDetail, ClientPrograms, Overview, Savings, Statistics

router = APIRouter(prefix="/api", tags=["Watching"])


@router.get("/overview")
async def overview(desk: AtDesk) -> Overview:
    """Clients, the gateway and servers, with what needs somebody."""
    raise not_yet()


@router.get("/statistics")
async def statistics(
    desk: AtDesk, range: Literal["15m", "1h", "24h", "7d"] = "1h", server: str | None = None
) -> Statistics:
    """Calls and errors over time."""
    raise not_yet()


@router.get("/activity")
async def list_activity(
    desk: AtDesk,
    after: int = 0,
    limit: int = 200,
    server: str | None = None,
    client: str | None = None,
    outcome: Outcome | None = None,
    q: str | None = None,
) -> Activity:
    """The latest calls."""
    raise not_yet()


@router.get("/activity/{number}")
async def show_call(desk: AtDesk, number: int) -> CallDetail:
    """One call."""
    raise not_yet()


@router.post("/activity/{number}/replay")
async def replay(desk: AtDesk, number: int) -> CallResult:
    """Make the call again, as the owner."""
    raise not_yet()


@router.get("/savings")
async def savings(desk: AtDesk) -> Savings:
    """What compact modes spare, measured."""
    raise not_yet()


@router.get("/clients")
async def clients(desk: AtDesk) -> ClientPrograms:
    """How to connect each client program."""
    raise not_yet()


@router.get("/about")
async def about(desk: AtDesk) -> About:
    """Version, addresses, places."""
    raise not_yet()


@router.get("/diagnostics")
async def diagnostics(desk: AtDesk) -> dict[str, Any]:
    """All there is to know for a report of a problem, without secrets."""
    raise not_yet()


@router.get("/events", response_class=StreamingResponse)
async def events(desk: AtDesk) -> StreamingResponse:
    """Everything that happens, as server-sent events (ADM-4); `Last-Event-ID` resumes."""
    raise not_yet()
