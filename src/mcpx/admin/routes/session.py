"""Login and logout of browsers. Scripts send the token with each request and need neither."""

from mcpx import __version__
from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.door import no_session, session_cookie
from mcpx.admin.shapes.session import Login, LoginResult, SessionTold

router = Router("/api", "Session")


@router.post("/login")
async def log_in(request: ApiRequest, login: Login) -> LoginResult:
    """Start a browser session with the admin token, or with the token of a login URL.

    The response sets a cookie and contains a secret. Each request of the session needs the cookie
    and the header `X-Mcpx-Session` with the secret.
    """
    door, entry = request.door, request.entry
    token = login.token.encode()
    if not door.keys.passes.spend(token):
        door.check(token, entry.visit)
    if entry.session is not None:
        door.keys.sessions.end(entry.session)
    credentials = door.keys.sessions.begin_in_browser()
    request.headers["set-cookie"] = session_cookie(entry.visit, credentials.id)
    return LoginResult(signed_in=True, by="cookie", version=__version__, secret=credentials.secret)


@router.post("/logout", status=204)
async def log_out(request: ApiRequest) -> None:
    """End the session, and what it has open."""
    entry = request.entry
    if entry.session is not None:
        request.door.keys.sessions.end(entry.session)
    request.headers["set-cookie"] = no_session(entry.visit)


@router.get("/session")
async def session(request: ApiRequest) -> SessionTold:
    """Whether you are in, and by what; to be asked by anybody."""
    if request.entry.by is None:
        return SessionTold(signed_in=False)
    return SessionTold(signed_in=True, by=request.entry.by, version=__version__)
