"""Profiles and policy over the admin API."""

from mcpx.admin import simulating
from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.entries import guarding
from mcpx.admin.routes import given
from mcpx.admin.routes.given import WRITES, Change
from mcpx.admin.shapes.common import Preview, Written
from mcpx.admin.shapes.guarding import PolicyGiven, PolicyTold, Profiles, Question, Verdict
from mcpx.config.edits import SetSection

router = Router("/api", "Profiles and policy")


@router.get("/profiles")
async def list_profiles(request: ApiRequest) -> Profiles:
    """Every profile, and what is seen through it."""
    # A profile that is being applied would show nothing.
    async with request.desk.store.at_rest() as written:
        await given.prepare(written, request)
        return await guarding.profiles(request.desk, written)


given.add_entry_routes(
    router,
    "/profiles",
    "profiles",
    "profile",
    documented=("Add one.", "Replace it; another `name` in it renames it.", "Remove it."),
)


@router.get("/policy")
async def show_policy(request: ApiRequest) -> PolicyTold:
    """The rules, in order."""
    return guarding.policy(request.desk, await given.look(request))


@router.put("/policy", *WRITES)
async def change_policy(
    request: ApiRequest, policy: PolicyGiven, change: Change
) -> Written | Preview:
    """Replace them."""
    return await given.write(request, change, SetSection("policy", policy.entry))


@router.post("/policy/simulate", 404, 409)
async def simulate(request: ApiRequest, question: Question) -> Verdict:
    """Whether somebody could call something, and what decides it."""
    return await simulating.simulate(request.desk, question)
