"""Profiles and policy over the admin API."""

from fastapi import APIRouter

from mcpx.admin import simulating
from mcpx.admin.errors import responses
from mcpx.admin.routes.given import AtDesk, Name, Writing, not_yet
from mcpx.admin.shapes.common import Entry, Preview, Written
from mcpx.admin.shapes.guarding import PolicyGiven, PolicyTold, Profiles, Question, Verdict

router = APIRouter(prefix="/api", tags=["Profiles and policy"])


@router.get("/profiles")
async def list_profiles(desk: AtDesk) -> Profiles:
    """Every profile, and what is seen through it."""
    raise not_yet()


@router.post("/profiles", status_code=201)
async def add_profile(desk: AtDesk, entry: Entry, change: Writing) -> Written | Preview:
    """Add one."""
    raise not_yet()


@router.put("/profiles/{name}")
async def change_profile(desk: AtDesk, name: Name, entry: Entry, change: Writing) -> Written | Preview:
    """Replace it."""
    raise not_yet()


@router.delete("/profiles/{name}")
async def remove_profile(desk: AtDesk, name: Name, change: Writing) -> Written | Preview:
    """Remove it."""
    raise not_yet()


@router.get("/policy")
async def show_policy(desk: AtDesk) -> PolicyTold:
    """The rules, in order."""
    raise not_yet()


@router.put("/policy")
async def change_policy(desk: AtDesk, given: PolicyGiven, change: Writing) -> Written | Preview:
    """Replace them."""
    raise not_yet()


@router.post("/policy/simulate", responses=responses(404, 409))
async def simulate(desk: AtDesk, question: Question) -> Verdict:
    """Whether somebody could call something, and what decides it."""
    return await simulating.simulate(desk, question)
