"""Auth configs over the admin API."""

from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.entries import auths
from mcpx.admin.errors import ApiError
from mcpx.admin.routes import given
from mcpx.admin.routes.given import Name
from mcpx.admin.shapes.commands import AuthConfigs, AuthRow, AuthTypes
from mcpx.config.written import Written

router = Router("/api", "Auth configs")


@router.get("/auth-configs")
async def list_auth_configs(request: ApiRequest) -> AuthConfigs:
    """Every auth config; secrets are masked."""
    return AuthConfigs(auth_configs=auths.rows(request.desk, await given.look(request)))


@router.get("/auth-types")
async def auth_types(request: ApiRequest) -> AuthTypes:
    """What kinds there are, and their fields."""
    return AuthTypes(types=auths.types())


@router.get("/auth-configs/{name}", 404)
async def show_auth_config(request: ApiRequest, name: Name) -> AuthRow:
    """One of them."""
    return auths.row(request.desk, await given.look(request), name)


def _check_unused(written: Written, name: str) -> None:
    users = auths.users_of(written).get(name)
    if users:
        hint = f"take it out of {', '.join(users[:10])} first"
        told = f"{name!r} is referred to by {len(users)} of the configuration"
        raise ApiError(409, "in_use", told, hint=hint)


given.add_entry_routes(
    router,
    "/auth-configs",
    "auth_configs",
    "auth_config",
    documented=(
        "Add one.",
        "Replace it; a masked secret stays what it is. Another `name` in it renames it, once "
        "nothing refers to it.",
        "Remove it; 409 while something refers to it.",
    ),
    check_removal=_check_unused,
)
