"""Approvals over the admin API."""

from fastapi import APIRouter

from mcpx.admin.routes.given import AtDesk, not_yet
from mcpx.admin.shapes.common import Done
from mcpx.admin.shapes.guarding import Approvals, Decision, DefinitionDecision

router = APIRouter(prefix="/api/approvals", tags=["Approvals"])


@router.get("")
async def list_approvals(desk: AtDesk) -> Approvals:
    """Calls that wait for somebody, and definitions that are held back."""
    raise not_yet()


@router.post("/calls/{id}")
async def decide_call(desk: AtDesk, id: str, decision: Decision) -> Done:
    """Let a waiting call pass, once, or refuse it."""
    raise not_yet()


@router.post("/definitions")
async def approve_definitions(desk: AtDesk, decision: DefinitionDecision) -> Done:
    """Approve what is held of a server."""
    raise not_yet()
