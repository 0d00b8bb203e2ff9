"""Tokens over the admin API: those that were made, and by name those that stand in the
configuration (SEC-1).

The front looks at the store itself: a token counts within a second, and the sessions of one that is
revoked end then.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TypeVar

from mcpx.admin.api import ApiRequest, Router
from mcpx.admin.desk import Desk, StoredToken, TokenStore
from mcpx.admin.errors import ApiError, moment
from mcpx.admin.routes.given import Name
from mcpx.admin.shapes.common import Done
from mcpx.admin.shapes.guarding import MadeToken, NewToken, TokenRow, Tokens
from mcpx.config import FrontAuth, Token
from mcpx.config.checks import DOTS, MAX_NAME
from mcpx.model.errors import McpxError

router = Router("/api/tokens", "Tokens")

DAY = 86_400.0
T = TypeVar("T")


@router.get("", 503)
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


@router.post("", 409, 503, status=201)
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


@router.delete("/{name}", 404, 409, 503)
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
