"""Auth configs over the admin API."""

from fastapi import APIRouter

from mcpx.admin.routes.given import AtDesk, Name, Writing, not_yet
from mcpx.admin.shapes.commands import AuthConfigs, AuthRow, AuthTypes
from mcpx.admin.shapes.common import Entry, Preview, Written

router = APIRouter(prefix="/api", tags=["Auth configs"])


@router.get("/auth-configs")
async def list_auth_configs(desk: AtDesk) -> AuthConfigs:
    """Every auth config; secrets are masked."""
    raise not_yet()


@router.get("/auth-types")
async def auth_types(desk: AtDesk) -> AuthTypes:
    """What kinds there are, and their fields."""
    raise not_yet()


@router.post("/auth-configs", status_code=201)
async def add_auth_config(desk: AtDesk, entry: Entry, change: Writing) -> Written | Preview:
    """Add one."""
    raise not_yet()


@router.get("/auth-configs/{name}")
async def show_auth_config(desk: AtDesk, name: Name) -> AuthRow:
    """One of them."""
    raise not_yet()


@router.put("/auth-configs/{name}")
async def change_auth_config(desk: AtDesk, name: Name, entry: Entry, change: Writing) -> Written | Preview:
    """Replace it; a masked secret stays what it is."""
    raise not_yet()


@router.delete("/auth-configs/{name}")
async def remove_auth_config(desk: AtDesk, name: Name, change: Writing) -> Written | Preview:
    """Remove it; 409 while something refers to it."""
    raise not_yet()
