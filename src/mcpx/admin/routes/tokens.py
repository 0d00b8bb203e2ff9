"""Tokens over the admin API."""

from fastapi import APIRouter

from mcpx.admin.routes.given import AtDesk, Name, not_yet
from mcpx.admin.shapes.common import Done
from mcpx.admin.shapes.guarding import MadeToken, NewToken, Tokens

router = APIRouter(prefix="/api/tokens", tags=["Tokens"])


@router.get("")
async def list_tokens(desk: AtDesk) -> Tokens:
    """Who may come in over HTTP; never the tokens themselves."""
    raise not_yet()


@router.post("", status_code=201)
async def make_token(desk: AtDesk, wanted: NewToken) -> MadeToken:
    """Make one; it is shown this once."""
    raise not_yet()


@router.delete("/{name}")
async def revoke_token(desk: AtDesk, name: Name) -> Done:
    """Revoke one; its sessions end."""
    raise not_yet()
