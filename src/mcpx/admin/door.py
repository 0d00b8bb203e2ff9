"""Who may come in: the first thing every request to the admin port meets, and the last its answer
passes.

Promise: nothing under `/api` is reached without the token or a session, but for logging in and
asking whether one is logged in; this is decided by the very path the routes are found by. A
browser's session needs the cookie and the session's secret, which other origins cannot read, and is
not accepted from other pages at all (`visit`); no GET changes anything. Tokens are in no log, no
address that stays, no answer. A session that ended takes the streams with it that it opened.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcpx.admin.bodies import LARGEST, LARGEST_UNKNOWN, Bodies, Gone, require_json
from mcpx.admin.errors import ApiError
from mcpx.admin.headers import PLAIN, Headers, adding
from mcpx.admin.keys import Keys, Session
from mcpx.admin.leaving import LEAVE, leave
from mcpx.admin.visit import PREFLIGHT, Rules, Visit, values
from mcpx.config import Admin, Config

log = logging.getLogger(__name__)

SESSION_SECRET: Final = b"x-mcpx-session"
SAFE: Final = ("GET", "HEAD", "OPTIONS")
PUBLIC: Final = {("POST", "/api/login"), ("GET", "/api/session"), ("HEAD", "/api/session")}
"""What is answered to somebody who is not in."""
LOGIN: Final = "/login"
LOGIN_SCREEN: Final = "/#/login"
"""Browsers do not send the fragment in requests, so the token in it reaches only the page."""
ENTRY: Final = "mcpx.entry"
"""Key of a scope."""

_SAYING: Final = {
    "forbidden_address": "server.admin.allowed_ips",
    "forbidden_host": "server.admin.allowed_hosts",
    "forbidden_origin": "server.admin.cors_origins",
}
"""Which part of a configuration refuses so."""
_CORS: Final[Headers] = [
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, if-match, if-none-match, last-event-id",
    ),
    (b"access-control-max-age", b"600"),
]


@dataclass(frozen=True, slots=True)
class Entry:
    """Somebody at the door, and what let them in."""

    visit: Visit
    by: Literal["cookie", "token"] | None = None
    """None: nothing did."""
    session: Session | None = None


class Objection(NamedTuple):
    """What somebody should know before they change who may come in."""

    message: str
    path: str
    """In the configuration."""
    shuts_out: bool = True
    """Them; else they have to log in again."""


def the_entry(request: Request) -> Entry:
    """For `Depends`."""
    return request.scope[ENTRY]


def the_door(request: Request) -> "Door":
    return request.app.state.door


class Door:
    def __init__(
        self, host: str, admin: Admin, keys: Keys, token_of: Callable[[Config], str | None]
    ) -> None:
        """`host` is the address bound to; `token_of` a configuration, what would let in."""
        self._host = host
        self._token_of = token_of
        self._admin = admin
        self._rules = Rules(host, admin)
        self._bodies = Bodies()
        self.keys = keys
        self.api: ASGIApp = _nothing
        self.pages: ASGIApp = _nothing

    def take_up(self, admin: Admin, token: str | None) -> None:
        """What a changed configuration says."""
        if admin != self._admin:
            self._admin, self._rules = admin, Rules(self._host, admin)
        self.keys.take_up(token)

    def objection(self, scope: Scope, config: Config) -> Objection | None:
        """What a configuration would do to whoever sent this request; None: they would come in as
        they do now."""
        try:
            Rules(self._host, config.server.admin or Admin()).judge(scope)
        except ApiError as error:
            return Objection(
                f"you could not come in any more: {error.message}",
                _SAYING.get(error.code, "server.admin"),
            )
        token = self._token_of(config)
        if self.keys.has(token):
            return None
        if token is None:
            gone = "you could not come in any more: there would be no token, and all sessions end"
            return Objection(gone, "server.admin_token")
        again = "the admin token changes: all sessions end, log in with the new one"
        return Objection(again, "server.admin_token", shuts_out=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_api = _is_api(scope["path"])
        send = adding(_logged(scope, send), PLAIN)
        try:
            visit = self._rules.judge(scope)
            if visit.foreign is not None:
                send = adding(send, _for_page(visit.foreign))
            if scope["path"] == LOGIN:
                await self._login(scope, visit)(scope, receive, send)
            elif scope["path"] == LEAVE:
                await leave(scope)(scope, receive, send)
            elif not is_api:
                await self.pages(scope, receive, send)
            elif _is_preflight(scope, visit):
                await Response(status_code=204, headers=_decoded(_CORS))(scope, receive, send)
            else:
                await self._let_in(scope, receive, send, self._entry(scope, visit))
        except Gone:
            pass
        except ApiError as error:
            await error(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send, entry: Entry) -> None:
        session, body = entry.session, b""
        ended = session.ended if session is not None else self.keys.changed
        if scope["method"] not in SAFE:
            body = await self._bodies.read(scope, receive, LARGEST if entry.by else LARGEST_UNKNOWN)
        scope[ENTRY] = entry
        if session is not None:
            session.open += 1
        try:
            require_json(scope, body)
            await self.api(scope, _receiving(scope, body, receive, ended), send)
        finally:
            self._bodies.done(len(body))
            if session is not None:
                session.open -= 1
                self.keys.sessions.touch(session)

    # Who it is
    # ----------------------------------------------------------------------------------------------

    def _entry(self, scope: Scope, visit: Visit) -> Entry:
        shown = values(scope, b"authorization")
        public = (scope["method"], scope["path"]) in PUBLIC
        if shown and not (public and scope["method"] == "POST"):
            return self._by_token(shown, visit)
        session = self._session(scope, visit)
        if session is None:
            if public:
                return Entry(visit)
            raise _unknown()
        return Entry(visit, "cookie", session)

    def _by_token(self, shown: list[bytes], visit: Visit) -> Entry:
        kind, _, token = shown[0].partition(b" ")
        token = token.strip()
        if len(shown) > 1 or kind.lower() != b"bearer" or not token:
            raise _unknown()
        if (session := self.keys.sessions.find_with_token(token)) is not None:
            return Entry(visit, "token", session)
        if self.keys.passes.spend(
            token
        ):  # a script that took it from the login URL goes on with it as its token
            return Entry(visit, "token", self.keys.sessions.begin_with_token(token.decode("ascii")))
        self.check(token, visit)
        return Entry(visit, "token")

    def check(self, token: bytes, visit: Visit) -> None:
        """Raises ApiError for a token that is not the right one."""
        wait = self.keys.wait(token, visit.address)
        if wait is None:
            return
        if wait > 0:
            seconds = str(int(wait) + 1)
            hint = f"come again in {seconds} s; `mcpx admin` gives a login URL meanwhile"
            raise ApiError(
                429, None, "too many wrong tokens", hint=hint, headers={"retry-after": seconds}
            )
        log.warning("admin: a wrong token from %s", visit.address)
        raise _unknown("this token is not known")

    def _session(self, scope: Scope, visit: Visit) -> Session | None:
        if visit.foreign is not None:  # another page brings the token, or nothing
            return None
        secrets = values(scope, SESSION_SECRET)
        if len(secrets) != 1:
            return None
        # Another port of this host can set a cookie with the same name. Such a cookie must not hide
        # the valid one.
        for id in _cookies(values(scope, b"cookie"), cookie_name(visit)):
            session = self.keys.sessions.find_in_browser(id, secrets[0])
            if session is not None:
                return session
        return None

    # Coming and going
    # ----------------------------------------------------------------------------------------------

    def _login(self, scope: Scope, visit: Visit) -> Response:
        """Redirect a login URL to the login screen, which posts the token to `/api/login`."""
        if scope["method"] not in ("GET", "HEAD"):
            raise ApiError(405, None, "this is a page", headers={"allow": "GET, HEAD"})
        looks_ahead = any(
            b"prefetch" in said or b"prerender" in said for said in values(scope, b"sec-purpose")
        )
        if scope["method"] == "HEAD" or looks_ahead or visit.foreign is not None:
            return Response(status_code=204, headers={"cache-control": "no-store"})
        given = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=10).get(
            "token", []
        )
        location = LOGIN_SCREEN
        if len(given) == 1:
            location = f"{LOGIN_SCREEN}?{urlencode({'token': given[0]})}"
        return Response(
            status_code=303, headers={"location": location, "cache-control": "no-store"}
        )


def session_cookie(visit: Visit, id: str) -> str:
    return (
        f"{cookie_name(visit)}={id}; Path=/; HttpOnly; SameSite=Strict{'; Secure' * visit.secure}"
    )


def cookie_name(visit: Visit) -> str:
    """Cookies know no ports: several gateways on one machine would take each other's."""
    return f"{'__Host-' * visit.secure}mcpx-admin-{visit.port}"


def no_session(visit: Visit) -> str:
    """The cookie that takes a session's place."""
    secure = "; Secure" * visit.secure
    return f"{cookie_name(visit)}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict{secure}"


def _is_api(path: str) -> bool:
    return path == "/api" or path.startswith("/api/")


def _is_preflight(scope: Scope, visit: Visit) -> bool:
    return (
        visit.foreign is not None
        and scope["method"] == "OPTIONS"
        and bool(values(scope, PREFLIGHT[0]))
    )


def _for_page(origin: str) -> Headers:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"etag, retry-after"),
        (b"cross-origin-resource-policy", b"cross-origin"),
        (b"vary", b"origin"),
    ]


def _decoded(headers: Headers) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in headers}


def _unknown(message: str = "this needs the admin token, or a login") -> ApiError:
    hint = "send Authorization: Bearer TOKEN, or log in with the URL that `mcpx admin` prints"
    return ApiError(
        401, None, message, hint=hint, headers={"www-authenticate": 'Bearer realm="mcpx admin"'}
    )


def _cookies(given: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The values of all cookies of a name. Their number is limited by the size of the request's
    head."""
    for line in given:
        for pair in line.split(b";"):
            key, _, value = pair.strip().partition(b"=")
            if key == name.encode():
                yield value


def _receiving(scope: Scope, body: bytes, receive: Receive, ended: asyncio.Event) -> Receive:
    """The body that was read already; then nothing until the client is gone, or what let it in has
    ended."""
    unread = scope["method"] not in SAFE

    async def receiving() -> Message:
        nonlocal unread
        if unread:
            unread = False
            return {"type": "http.request", "body": body, "more_body": False}
        gone, over = asyncio.ensure_future(receive()), asyncio.ensure_future(ended.wait())
        try:
            await asyncio.wait((gone, over), return_when=asyncio.FIRST_COMPLETED)
            return gone.result() if gone.done() else {"type": "http.disconnect"}
        finally:
            gone.cancel()
            over.cancel()

    return receiving


def _logged(scope: Scope, send: Send) -> Send:
    """Says what was asked and answered, for whoever looks for it; never what stood behind the
    `?`."""
    if not log.isEnabledFor(logging.DEBUG):
        return send

    async def logged(message: Message) -> None:
        if message["type"] == "http.response.start":
            log.debug("admin: %s %s: %d", scope["method"], scope["path"], message["status"])
        await send(message)

    return logged


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    raise ApiError(404, None, "there is no such path")
