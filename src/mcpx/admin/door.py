"""Authentication in front of the admin API.

Nothing under `/api` is reached without the token or a session, except logging in and asking whether
the client is logged in. The decision uses the same decoded path by which the routes are found. A
browser's session needs the cookie and the session's secret, which other origins cannot read, and is
not accepted from other pages at all (`visit`). No GET changes anything. Tokens are never logged.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import orjson

from mcpx.admin import pages
from mcpx.admin.api import Api
from mcpx.admin.errors import CODES, ApiError
from mcpx.admin.keys import Keys, Session
from mcpx.admin.pages import PLAIN, Headers, Pages, Reply, error_reply
from mcpx.admin.visit import AdminRequest, Rules, Visit
from mcpx.config import Admin, Config
from mcpx.wire.exchange import Exchange, encode_headers, status_line

log = logging.getLogger(__name__)

MAX_ANONYMOUS_BODY_BYTES: Final = 4096
SESSION_SECRET: Final = "x-mcpx-session"
SAFE: Final = ("GET", "HEAD", "OPTIONS")
PUBLIC: Final = {("POST", "/api/login"), ("GET", "/api/session"), ("HEAD", "/api/session")}
"""Routes that need no credential."""

_SAYING: Final = {
    "forbidden_address": "server.admin.allowed_ips",
    "forbidden_host": "server.admin.allowed_hosts",
    "forbidden_origin": "server.admin.cors_origins",
}
"""The configuration key behind a refusal."""
_CORS: Final = {
    "access-control-allow-methods": "GET, POST, PUT, PATCH, DELETE",
    "access-control-allow-headers": (
        "authorization, content-type, if-match, if-none-match, last-event-id"
    ),
    "access-control-max-age": "600",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A request and its credential."""

    request: AdminRequest
    visit: Visit
    by: Literal["cookie", "token"] | None = None
    """None: without a credential."""
    session: Session | None = None


class Objection(NamedTuple):
    """A warning to a client before it changes who has access."""

    message: str
    path: str
    """In the configuration."""
    shuts_out: bool = True
    """The client loses its access. Otherwise it has to log in again."""


class Door:
    def __init__(
        self,
        host: str,
        admin: Admin,
        keys: Keys,
        token_of: Callable[[Config], str | None],
        api: Api,
    ) -> None:
        """`host` is the bound address. `token_of` returns the admin token under a configuration."""
        self._host = host
        self._token_of = token_of
        self._rules = Rules(host, admin)
        self.keys = keys
        self.api = api
        self.pages = Pages()

    def take_up(self, admin: Admin) -> None:
        """Apply a changed configuration."""
        self._rules = Rules(self._host, admin)

    def objection(self, request: AdminRequest, config: Config) -> Objection | None:
        """Returns a warning if a configuration would end the access of this request's sender."""
        try:
            Rules(self._host, config.server.admin or Admin()).judge(request)
        except ApiError as error:
            told = f"you could not come in any more: {error.message}"
            return Objection(told, _SAYING.get(error.code, "server.admin"))
        token = self._token_of(config)
        if self.keys.has(token):
            return None
        if token is None:
            gone = "you could not come in any more: there would be no token, and all sessions end"
            return Objection(gone, "server.admin_token")
        again = "the admin token changes: all sessions end, log in with the new one"
        return Objection(again, "server.admin_token", shuts_out=False)

    # Requests
    # ----------------------------------------------------------------------------------------------

    def handle(self, exchange: Exchange) -> None:
        more = PLAIN
        try:
            request = AdminRequest.of(exchange)
            visit = self._rules.judge(request)
            if visit.foreign is not None:
                more = _for_page(visit.foreign)
            if request.is_api and not _is_preflight(request, visit):
                self._enter(exchange, self._entry(request, visit), more)
                return
            reply = self._page(request, visit)
        except ApiError as error:
            reply = error_reply(error)
        log.debug("admin: %s %s: %d", exchange.method, exchange.path, reply.status)
        reply.send(exchange, more)

    def forestall(self, exchange: Exchange) -> int | None:
        """Refuse a large body of a client without a credential before it is read."""
        try:
            request = AdminRequest.of(exchange)
            entry = self._entry(request, self._rules.judge(request))
        except ApiError as error:
            return error.status
        return 413 if entry.by is None else None

    def _page(self, request: AdminRequest, visit: Visit) -> Reply:
        if request.is_api:
            return Reply(204, headers=_CORS)
        if request.path == pages.LOGIN:
            return pages.login(request, foreign=visit.foreign is not None)
        if request.path == pages.LEAVE:
            return pages.leave(request)
        return self.pages.answer(request)

    def _enter(self, exchange: Exchange, entry: Entry, more: Headers) -> None:
        if exchange.method in SAFE:
            exchange.body = b""
        if entry.by is None and len(exchange.body) > MAX_ANONYMOUS_BODY_BYTES:
            told = f"the body is larger than {MAX_ANONYMOUS_BODY_BYTES} bytes"
            raise ApiError(413, None, told)
        body = None
        if exchange.body:
            body = _json_of(exchange)
        grant = entry.session or self.keys.by_token
        gone = self.api.begin(
            exchange, self, entry, body, more, lambda gone: self._left(entry, gone)
        )
        grant.open.add(gone)

    def _left(self, entry: Entry, gone: asyncio.Event) -> None:
        grant = entry.session or self.keys.by_token
        grant.open.discard(gone)
        if entry.session is not None:
            self.keys.sessions.touch(entry.session)

    # Credentials
    # ----------------------------------------------------------------------------------------------

    def _entry(self, request: AdminRequest, visit: Visit) -> Entry:
        shown = request.headers.all("authorization")
        public = (request.method, request.path) in PUBLIC
        if shown and not (public and request.method == "POST"):
            return Entry(request, visit, "token", self._by_token(shown, visit))
        session = self._session(request, visit)
        if session is None and public:
            return Entry(request, visit)
        if session is None:
            raise _unknown()
        return Entry(request, visit, "cookie", session)

    def _by_token(self, shown: list[str], visit: Visit) -> Session | None:
        kind, _, text = shown[0].partition(" ")
        token = text.strip().encode("latin-1")
        if len(shown) > 1 or kind.lower() != "bearer" or not token:
            raise _unknown()
        if (session := self.keys.sessions.find_with_token(token)) is not None:
            return session
        if self.keys.passes.spend(token):
            # A script that took the token from a login URL continues with it as its bearer token.
            return self.keys.sessions.begin_with_token(token.decode("ascii"))
        self.check(token, visit)
        return None

    def check(self, token: bytes, visit: Visit) -> None:
        """Raises ApiError for a wrong token."""
        wait = self.keys.wait(token, visit.address)
        if wait is None:
            return
        if wait > 0:
            seconds = str(int(wait) + 1)
            hint = f"come again in {seconds} s; `mcpx admin` gives a login URL meanwhile"
            again = {"retry-after": seconds}
            raise ApiError(429, None, "too many wrong tokens", hint=hint, headers=again)
        log.warning("admin: a wrong token from %s", visit.address)
        raise _unknown("this token is not known")

    def _session(self, request: AdminRequest, visit: Visit) -> Session | None:
        if visit.foreign is not None:  # Another page sends the token, or nothing.
            return None
        secrets = request.headers.all(SESSION_SECRET)
        if len(secrets) != 1:
            return None
        secret = secrets[0].encode("latin-1")
        # Another port of this host can set a cookie with the same name. Such a cookie must not hide
        # the valid one.
        for id in _cookies(request.headers.all("cookie"), cookie_name(visit)):
            session = self.keys.sessions.find_in_browser(id.encode("latin-1"), secret)
            if session is not None:
                return session
        return None


def refusal(status: int) -> bytes:
    """The last response of a connection, for `HttpServer`."""
    code, message = CODES.get(status, CODES[400])
    error = ApiError(status, code, message)
    if status == 401:
        error = _unknown()
    body = error.body()
    headers = [*PLAIN, *error.headers.items()]
    headers += [("content-type", "application/json"), ("connection", "close")]
    if status == 503:
        headers.append(("retry-after", "1"))
    head = status_line(status, None) + encode_headers(headers)
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def session_cookie(visit: Visit, id: str) -> str:
    secure = "; Secure" * visit.secure
    return f"{cookie_name(visit)}={id}; Path=/; HttpOnly; SameSite=Strict{secure}"


def cookie_name(visit: Visit) -> str:
    """Browsers send cookies to all ports: the name keeps those of several gateways apart."""
    return f"{'__Host-' * visit.secure}mcpx-admin-{visit.port}"


def no_session(visit: Visit) -> str:
    """The cookie that removes a session's cookie."""
    secure = "; Secure" * visit.secure
    return f"{cookie_name(visit)}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict{secure}"


def _is_preflight(request: AdminRequest, visit: Visit) -> bool:
    asks = "access-control-request-method" in request.headers
    return visit.foreign is not None and request.method == "OPTIONS" and asks


def _for_page(origin: str) -> Headers:
    headers = {
        **dict(PLAIN),
        "access-control-allow-origin": origin,
        "access-control-expose-headers": "etag, retry-after",
        "cross-origin-resource-policy": "cross-origin",
        "vary": "origin",
    }
    return list(headers.items())


def _unknown(message: str = "this needs the admin token, or a login") -> ApiError:
    hint = "send Authorization: Bearer TOKEN, or log in with the URL that `mcpx admin` prints"
    headers = {"www-authenticate": 'Bearer realm="mcpx admin"'}
    return ApiError(401, None, message, hint=hint, headers=headers)


def _cookies(given: Iterable[str], name: str) -> Iterator[str]:
    """The values of all cookies of a name. Their number is limited by the size of the request's
    head."""
    for line in given:
        for pair in line.split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                yield value


def _json_of(exchange: Exchange) -> Any:
    """The parsed body. Text that is not strict JSON (half surrogates, NaN) is refused.

    Raises ApiError.
    """
    given = ",".join(exchange.headers.all("content-type"))
    kind = given.partition(";")[0].strip().lower()
    is_json = kind == "application/json"
    if not is_json and not (kind.startswith("application/") and kind.endswith("+json")):
        hint = "send it with Content-Type: application/json"
        raise ApiError(415, None, "the body has to be JSON", hint=hint)
    try:
        return orjson.loads(exchange.body)
    except orjson.JSONDecodeError as problem:
        raise ApiError(400, "bad_json", f"the body is not JSON: {problem}"[:300]) from None
