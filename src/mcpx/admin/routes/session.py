"""Logging in and out, for browsers. Scripts send the token with each request and need none of this."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from mcpx import __version__
from mcpx.admin.door import Door, Entry, no_session, the_door, the_entry
from mcpx.admin.errors import ALWAYS
from mcpx.admin.shapes.session import Login, SessionTold

router = APIRouter(prefix="/api", tags=["Session"], responses=ALWAYS)

AtDoor = Annotated[Door, Depends(the_door)]
Comer = Annotated[Entry, Depends(the_entry)]


@router.post("/login")
async def log_in(login: Login, response: Response, door: AtDoor, entry: Comer) -> SessionTold:
    """Begin a session with the admin token, or with the one of a login URL; the answer sets a cookie."""
    token = login.token.encode()
    if not door.keys.passes.spend(token):
        door.check(token, entry.visit)
    if entry.session is not None:
        door.keys.sessions.end(entry.session)
    response.headers["set-cookie"] = door.new_session(entry.visit)
    return SessionTold(signed_in=True, by="cookie", version=__version__)


@router.post("/logout", status_code=204)
async def log_out(response: Response, door: AtDoor, entry: Comer) -> None:
    """End the session, and what it has open."""
    if entry.session is not None:
        door.keys.sessions.end(entry.session)
    response.headers["set-cookie"] = no_session(entry.visit)


@router.get("/session")
async def session(entry: Comer) -> SessionTold:
    """Whether you are in, and by what; to be asked by anybody."""
    signed_in = entry.by is not None
    return SessionTold(signed_in=signed_in, by=entry.by, version=__version__ if signed_in else None)
