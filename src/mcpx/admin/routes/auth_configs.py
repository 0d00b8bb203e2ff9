"""Auth configs over the admin API."""

from typing import Annotated

from fastapi import APIRouter, Body, Response

from mcpx.admin.entries import auths
from mcpx.admin.errors import ALWAYS, ApiError
from mcpx.admin.routes import given
from mcpx.admin.routes.given import READS, WRITES, AtDesk, Name, Writing
from mcpx.admin.shapes.commands import AuthConfigs, AuthRow, AuthTypes
from mcpx.admin.shapes.common import Entry, Preview, Written

router = APIRouter(prefix="/api", tags=["Auth configs"], responses=ALWAYS)

SECTION = "auth_configs"

AuthEntry = Annotated[
    Entry,
    Body(
        examples=[
            {
                "name": "github",
                "type": "bearer_token",
                "bearer_token": {"token": "${GITHUB_TOKEN}"},
            },
            {
                "name": "maps",
                "type": "api_key",
                "api_key": {"name": "X-Api-Key", "value": "${MAPS_KEY}"},
            },
        ]
    ),
]


@router.get("/auth-configs")
async def list_auth_configs(desk: AtDesk, response: Response) -> AuthConfigs:
    """Every auth config; secrets are masked."""
    return AuthConfigs(auth_configs=auths.rows(desk, await given.look(desk, response)))


@router.get("/auth-types")
async def auth_types(desk: AtDesk) -> AuthTypes:
    """What kinds there are, and their fields."""
    return AuthTypes(types=auths.types())


@router.post(
    "/auth-configs",
    status_code=201,
    responses={200: {"model": Preview, "description": "A dry run."}, **WRITES},
)
async def add_auth_config(
    desk: AtDesk, response: Response, entry: AuthEntry, change: Writing
) -> Written | Preview:
    """Add one."""
    return await given.put(desk, response, change, SECTION, entry)


@router.get("/auth-configs/{name}", responses=READS)
async def show_auth_config(desk: AtDesk, response: Response, name: Name) -> AuthRow:
    """One of them."""
    return auths.row(desk, await given.look(desk, response), name)


@router.put("/auth-configs/{name}", responses=WRITES)
async def change_auth_config(
    desk: AtDesk, response: Response, name: Name, entry: AuthEntry, change: Writing
) -> Written | Preview:
    """Replace it; a masked secret stays what it is. Another `name` in it renames it, once nothing
    refers to it."""
    return await given.put(desk, response, change, SECTION, entry, name)


@router.delete("/auth-configs/{name}", responses=WRITES)
async def remove_auth_config(
    desk: AtDesk, response: Response, name: Name, change: Writing
) -> Written | Preview:
    """Remove it; 409 while something refers to it."""
    users = auths.users_of(await desk.store.look()).get(name)
    if users:
        hint = f"take it out of {', '.join(users[:10])} first"
        raise ApiError(
            409,
            "in_use",
            f"{name!r} is referred to by {len(users)} of the configuration",
            hint=hint,
        )
    return await given.remove(desk, response, change, SECTION, name)
