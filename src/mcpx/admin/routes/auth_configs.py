"""Auth configs over the admin API: their users and their state."""

import re
import time
from collections.abc import Iterator
from typing import Any, Literal, cast

from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.desk import Desk
from mcpx.admin.errors import ApiError, moment, plain
from mcpx.admin.routes import given
from mcpx.admin.routes.given import Name
from mcpx.admin.shapes.commands import AuthConfigs, AuthRow, AuthType, AuthTypes
from mcpx.auth import AUTHS
from mcpx.config.environment import is_encrypted
from mcpx.config.json_schema import part_schema
from mcpx.config.masking import MASK
from mcpx.config.written import Entry, Written
from mcpx.model.call import Json, as_object

State = Literal["ready", "expires", "sign_in_needed", "failed", "unused"]
SOON = 300.0
"""Seconds before its end from which what nobody renews is said to expire."""
_KINDS = ((r"\$\{keyring:", "keyring"), (r"\$\{file:", "file"), (r"\$\{", "environment"))


def _auth_rows(desk: Desk, written: Written) -> list[AuthRow]:
    users = _users_of(written)
    return [
        _row(desk, entry, users.get(entry.name, [])) for entry in written.entries("auth_configs")
    ]


def _auth_row(desk: Desk, written: Written, name: str) -> AuthRow:
    return _row(
        desk, given.entry_of(written, "auth_configs", name), _users_of(written).get(name, [])
    )


def _users_of(written: Written) -> dict[str, list[str]]:
    """By auth config what refers to it, as it is written: `server:name`, `command:name`."""
    found: dict[str, list[str]] = {}
    for entry in written.entries("mcp_servers"):
        if name := _ref(entry.value.get("auth")):
            found.setdefault(name, []).append(f"server:{entry.name}")
    for entry in written.entries("commands"):
        kind = entry.value.get("type")
        if name := _ref(
            as_object(entry.value.get(kind) if isinstance(kind, str) else None).get("auth")
        ):
            found.setdefault(name, []).append(f"command:{entry.name}")
    return found


def _types() -> list[AuthType]:
    return [AuthType(type=name, fields=part_schema(AUTHS[name])) for name in AUTHS if name in AUTHS]


def _ref(value: Any) -> str | None:
    """`auth: {ref: name}`, or the name alone."""
    name = as_object(value).get("ref") if isinstance(value, dict) else value
    return name if isinstance(name, str) else None


def _row(desk: Desk, entry: Entry, users: list[str]) -> AuthRow:
    state, detail, expires = _state(desk, entry.name, users)
    return AuthRow(
        name=entry.name,
        type=str(entry.value.get("type") or ""),
        state=state,
        detail=detail,
        expires=moment(expires),
        used_by=users,
        kept_in=_kept_in(entry.value),
        entry=plain(entry.value),
        source=given.place_of(entry),
    )


def _state(desk: Desk, name: str, users: list[str]) -> tuple[State, str, float | None]:
    if not users:
        return "unused", "nothing refers to it", None
    upstreams = desk.gateway.generation.upstreams
    waiting = [
        each
        for each in upstreams.values()
        if each.server.auth == name and each.status.state == "needs_auth"
    ]
    if any(each.signing is not None for each in waiting):
        return (
            "sign_in_needed",
            f"somebody has to sign in to {', '.join(each.name for each in waiting)}",
            None,
        )
    if waiting:
        return "failed", desk.gateway.redactor.redact(f"refused by {waiting[0].name}"), None
    told = [
        cast(Any, each).describe()
        for each in desk.gateway.credentials(name)
        if hasattr(each, "describe")
    ]
    problem = next((each["problem"] for each in told if each.get("problem")), None)
    if problem is not None:
        return "failed", desk.gateway.redactor.redact(str(problem)), None
    ends = min((each["expires"] for each in told if each.get("expires")), default=None)
    if ends is None:
        return "ready", "", None
    renewed = all(each.get("renewable", True) for each in told)
    if not renewed and ends - time.time() < SOON:
        return "expires", "nobody renews it: sign in again", ends
    return "ready", "renewed by itself" if renewed else "", ends


def _kept_in(value: Json) -> str:
    """Where its secrets come from, in a word or two."""
    if value.get("type") == "oauth":
        return "sign-in"
    kind = value.get("type")
    found: dict[str, None] = {}
    for text in _texts(value.get(kind) if isinstance(kind, str) else None):
        where = next((name for pattern, name in _KINDS if re.search(pattern, text)), None)
        if where is None and is_encrypted(text):
            where = "config file, encrypted"
        if where is None and MASK in text:
            where = "config file"
        if where is not None:
            found[where] = None
    return ", ".join(found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in cast(Json, value).values():
            yield from _texts(item)


router = Router("/api", "Auth configs")


@router.get("/auth-configs")
async def list_auth_configs(request: ApiRequest) -> AuthConfigs:
    """Every auth config; secrets are masked."""
    return AuthConfigs(auth_configs=_auth_rows(request.desk, await given.look(request)))


@router.get("/auth-types")
async def auth_types(request: ApiRequest) -> AuthTypes:
    """What kinds there are, and their fields."""
    return AuthTypes(types=_types())


@router.get("/auth-configs/{name}", 404)
async def show_auth_config(request: ApiRequest, name: Name) -> AuthRow:
    """One of them."""
    return _auth_row(request.desk, await given.look(request), name)


def _check_unused(written: Written, name: str) -> None:
    users = _users_of(written).get(name)
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
