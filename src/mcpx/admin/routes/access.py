"""Access over the admin API: login and logout of browsers, and the tokens of clients (SEC-1).

Scripts send the admin token with each request and need no login. The front reads the token store
itself: a new token is valid within a second, and the sessions of a revoked one end then.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TypeVar

from mcpx import __version__
from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.desk import Desk, StoredToken, TokenStore
from mcpx.admin.door import no_session, session_cookie
from mcpx.admin.errors import ApiError, moment
from mcpx.admin.routes.given import Name
from mcpx.admin.shapes.common import Done, Login, LoginResult, SessionTold
from mcpx.admin.shapes.guarding import MadeToken, NewToken, TokenRow, Tokens
from mcpx.config import FrontAuth, Token
from mcpx.config.checks import DOTS, MAX_NAME
from mcpx.model.errors import McpxError

sessions = Router("/api", "Session")


@sessions.post("/login")
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


@sessions.post("/logout", status=204)
async def log_out(request: ApiRequest) -> None:
    """End the session, and what it has open."""
    entry = request.entry
    if entry.session is not None:
        request.door.keys.sessions.end(entry.session)
    request.headers["set-cookie"] = no_session(entry.visit)


@sessions.get("/session")
async def session(request: ApiRequest) -> SessionTold:
    """Whether you are in, and by what; to be asked by anybody."""
    if request.entry.by is None:
        return SessionTold(signed_in=False)
    return SessionTold(signed_in=True, by=request.entry.by, version=__version__)


tokens = Router("/api/tokens", "Tokens")

DAY = 86_400.0
T = TypeVar("T")


@tokens.get("", 503)
async def list_tokens(request: ApiRequest) -> Tokens:
    """Who may come in over HTTP; never the tokens themselves."""
    desk = request.desk
    auth = _auth(desk)
    kept: Sequence[StoredToken] = () if desk.tokens is None else await _asked(desk.tokens.read)
    now = time.time()
    rows = [_of_config(token, now) for token in (() if auth is None else auth.tokens)]
    rows += [_of_store(token, now) for token in kept]
    required = auth is not None and desk.about().transport == "http"
    return Tokens(tokens=rows, required=required, type="none" if auth is None else auth.type)


@tokens.post("", 409, 503, status=201)
async def make_token(request: ApiRequest, wanted: NewToken) -> MadeToken:
    """Make one; it is shown this once."""
    desk = request.desk
    store, name = _store(desk), wanted.name
    if len(name) > MAX_NAME or not name.isprintable() or name != name.strip() or name in DOTS:
        hint = f"1 to {MAX_NAME} characters, no line breaks, no spaces around, not only dots"
        raise ApiError(422, None, "not a possible name of a token", "name", hint)
    auth = _auth(desk)
    if auth is not None and any(token.name == name for token in auth.tokens):
        raise ApiError(
            409,
            "exists",
            "the configuration has a token of this name",
            "name",
            "choose another name",
        )
    profiles = [profile.name for profile in desk.gateway.generation.config.profiles]
    if wanted.profile is not None and wanted.profile not in profiles:
        near = get_close_matches(wanted.profile[:100], profiles, 1, 0.6)
        hint = (
            f"did you mean {near[0]!r}?"
            if near
            else "the profiles of the configuration are those there are"
        )
        raise ApiError(422, None, "there is no profile of this name", "profile", hint)
    days = wanted.expires_in_days
    expires = None if days is None else float(int(time.time() + days * DAY) + 1)
    try:
        token = await _asked(lambda: store.add(name, wanted.profile, expires))
    except KeyError:
        hint = "revoke it first, or choose another name"
        raise ApiError(409, "exists", "there is a token of this name", "name", hint) from None
    return MadeToken(name=name, token=token)


@tokens.delete("/{name}", 404, 409, 503)
async def revoke_token(request: ApiRequest, name: Name) -> Done:
    """Revoke one; its sessions end."""
    desk = request.desk
    store, auth = _store(desk), _auth(desk)
    if not await _asked(lambda: store.revoke(name)):
        if auth is not None and any(token.name == name for token in auth.tokens):
            hint = "remove it from server.auth.tokens"
            raise ApiError(
                409, "in_config", "this token stands in the configuration", "path.name", hint
            )
        raise ApiError(404, None, "there is no token of this name", "path.name")
    return Done()


def _auth(desk: Desk) -> FrontAuth | None:
    return desk.gateway.generation.config.server.auth


def _store(desk: Desk) -> TokenStore:
    if desk.tokens is None:
        has_file = desk.about().config is not None
        hint = (
            "start mcpx again: there is a config file now"
            if has_file
            else "add a server, then start mcpx again"
        )
        raise ApiError(
            409, "not_kept", "mcpx was started as the demo, which keeps no tokens", hint=hint
        )
    return desk.tokens


async def _asked(question: Callable[[], T]) -> T:
    """In a thread: another process may be at the file."""
    try:
        return await asyncio.to_thread(question)
    except (McpxError, OSError) as problem:
        raise ApiError(503, "tokens_unreadable", f"the tokens cannot be used: {problem}") from None


def _of_config(token: Token, now: float) -> TokenRow:
    expires = None if token.expires is None else _seconds(token.expires)
    return TokenRow(
        name=token.name,
        profile=token.profile,
        expires=moment(expires),
        kept_in="config",
        expired=expires is not None and expires <= now,
    )


def _of_store(token: StoredToken, now: float) -> TokenRow:
    return TokenRow(
        name=token.name,
        profile=token.profile,
        created=moment(token.created),
        expires=moment(token.expires),
        kept_in="state",
        expired=token.expires is not None and token.expires <= now,
    )


def _seconds(text: str) -> float:
    """As the configuration has it, which was checked; without a zone it is UTC."""
    read = datetime.fromisoformat(text)
    return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()
