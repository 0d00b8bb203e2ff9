"""Logging in and out, for browsers. Scripts send the token with each request and need none of
this."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from mcpx import __version__
from mcpx.admin.door import Door, Entry, no_session, session_cookie, the_door, the_entry
from mcpx.admin.errors import ALWAYS
from mcpx.admin.shapes.session import Login, LoginResult, SessionTold

router = APIRouter(prefix="/api", tags=["Session"], responses=ALWAYS)


async def _door(request: Request) -> Door:
    return the_door(request)


async def _entry(request: Request) -> Entry:
    return the_entry(request)


AtDoor = Annotated[Door, Depends(_door)]
Comer = Annotated[Entry, Depends(_entry)]


@router.post("/login")
async def log_in(login: Login, response: Response, door: AtDoor, entry: Comer) -> LoginResult:
    """Start a browser session with the admin token, or with the token of a login URL.

    The response sets a cookie and contains a secret. Each request of the session needs the cookie
    and the header `X-Mcpx-Session` with the secret.
    """
    token = login.token.encode()
    if not door.keys.passes.spend(token):
        door.check(token, entry.visit)
    if entry.session is not None:
        door.keys.sessions.end(entry.session)
    credentials = door.keys.sessions.begin_in_browser()
    response.headers["set-cookie"] = session_cookie(entry.visit, credentials.id)
    return LoginResult(signed_in=True, by="cookie", version=__version__, secret=credentials.secret)


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
