"""Profiles and policy over the admin API."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from mcpx.admin import simulating
from mcpx.admin.entries import guarding
from mcpx.admin.errors import ALWAYS, responses
from mcpx.admin.routes import given
from mcpx.admin.routes.given import WRITES, AtDesk, Name, Writing
from mcpx.admin.shapes.common import Entry, Preview, Written
from mcpx.admin.shapes.guarding import PolicyGiven, PolicyTold, Profiles, Question, Verdict
from mcpx.config.edits import SetSection

router = APIRouter(prefix="/api", tags=["Profiles and policy"], responses=ALWAYS)

SECTION = "profiles"

ProfileEntry = Annotated[
    Entry,
    Body(
        examples=[
            {
                "name": "dev",
                "servers": ["github", "!prod-*"],
                "tools": ["!*delete*"],
                "mode": "search",
            }
        ]
    ),
]


@router.get("/profiles")
async def list_profiles(desk: AtDesk, response: Response) -> Profiles:
    """Every profile, and what is seen through it."""
    async with (
        desk.store.at_rest() as written
    ):  # or a profile that is just being taken up would show nothing
        await given.prepare(written, response)
        return await guarding.profiles(desk, written)


@router.post(
    "/profiles",
    status_code=201,
    responses={200: {"model": Preview, "description": "A dry run."}, **WRITES},
)
async def add_profile(
    desk: AtDesk, response: Response, entry: ProfileEntry, change: Writing
) -> Written | Preview:
    """Add one."""
    return await given.put(desk, response, change, SECTION, entry)


@router.put("/profiles/{name}", responses=WRITES)
async def change_profile(
    desk: AtDesk, response: Response, name: Name, entry: ProfileEntry, change: Writing
) -> Written | Preview:
    """Replace it; another `name` in it renames it."""
    return await given.put(desk, response, change, SECTION, entry, name)


@router.delete("/profiles/{name}", responses=WRITES)
async def remove_profile(
    desk: AtDesk, response: Response, name: Name, change: Writing
) -> Written | Preview:
    """Remove it."""
    return await given.remove(desk, response, change, SECTION, name)


@router.get("/policy")
async def show_policy(desk: AtDesk, response: Response) -> PolicyTold:
    """The rules, in order."""
    return guarding.policy(desk, await given.look(desk, response))


@router.put("/policy", responses=WRITES)
async def change_policy(
    desk: AtDesk, response: Response, policy: PolicyGiven, change: Writing
) -> Written | Preview:
    """Replace them."""
    return await given.write(desk, response, change, SetSection("policy", policy.entry))


@router.post("/policy/simulate", responses=responses(404, 409))
async def simulate(desk: AtDesk, question: Question) -> Verdict:
    """Whether somebody could call something, and what decides it."""
    return await simulating.simulate(desk, question)
