"""Responses of the admin port outside of the API: the web UI, login URLs, and `/leave`.

The files of the web UI are found by their names in a dictionary: no path of a request becomes a
path of the file system. The page is served with a fresh nonce (`PLACE` in it) and the policy that
belongs to the nonce. Files with a hash in their name are cached permanently, all others by ETag. A
file that was compressed at build time (`.gz`) is sent compressed to clients that accept it.
"""

import hashlib
import secrets
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from mcpx.admin.errors import ApiError
from mcpx.admin.visit import AdminRequest
from mcpx.wire.exchange import Exchange

Headers = list[tuple[str, str]]

SITE: Final = Path(__file__).parent / "site"
INDEX: Final = "/index.html"
PLACE: Final = b"__CSP_NONCE__"
"""Replaced by the nonce in the page."""
ASSETS: Final = "/assets/"
"""The names of files below it contain a hash of their content."""
LOGIN: Final = "/login"
LOGIN_SCREEN: Final = "/#/login"
"""Browsers do not send the fragment in requests, so the token in it reaches only the page."""
LEAVE: Final = "/leave"
_FROM_OUR_PAGES: Final = ("same-origin", "none")

PLAIN: Final[Headers] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
    (
        "permissions-policy",
        "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), "
        "microphone=(), midi=(), "
        "payment=(), publickey-credentials-get=(), usb=()",
    ),
    (
        "content-security-policy",
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("cache-control", "no-store"),
]
"""Headers of each response that does not set them itself. The page and its files do."""

_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
    ".ico": "image/x-icon",
    ".txt": "text/plain; charset=utf-8",
}
"""The system's table is not used: it differs between machines."""


class Reply(NamedTuple):
    """A complete response."""

    status: int
    body: bytes = b""
    content_type: str | None = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never written to

    def send(self, exchange: Exchange, more: Headers) -> None:
        """`more` are headers of each response that does not set them itself."""
        headers = completed(self.headers, more)
        exchange.reply(self.status, self.body, self.content_type, headers)


def completed(own: dict[str, str], more: Headers) -> Headers:
    return [*own.items(), *[pair for pair in more if pair[0] not in own]]


def error_reply(error: ApiError) -> Reply:
    return Reply(error.status, error.body(), "application/json", dict(error.headers))


class Pages:
    def __init__(self, folder: Path = SITE) -> None:
        files = [found for found in folder.rglob("*") if found.is_file()]
        names = {"/" + found.relative_to(folder).as_posix(): found for found in files}
        self._files = {name: file for name, file in names.items() if file.suffix != ".gz"}
        self._packed = {name[:-3] for name, file in names.items() if file.suffix == ".gz"}

    def answer(self, request: AdminRequest) -> Reply:
        """Raises ApiError."""
        _only_read(request)
        path = request.path
        if path == "/":
            path = INDEX
        file = self._files.get(path)
        if file is None and path == INDEX:
            hint = "the API under /api works without; a release of mcpx has it"
            raise ApiError(404, "no_ui", "this installation has no web UI", hint=hint)
        if file is None:
            raise ApiError(404, None, "there is no such path")
        try:
            if path == INDEX:
                return _page(file)
            return self._file(path, file, request)
        except OSError:
            hint = "start mcpx again"
            raise ApiError(404, None, "this file is not there any more", hint=hint) from None

    def _file(self, path: str, file: Path, request: AdminRequest) -> Reply:
        accepted = request.headers.get("accept-encoding") or ""
        headers = {"cache-control": "no-cache"}
        if path.startswith(ASSETS):
            headers["cache-control"] = "public, max-age=31536000, immutable"
        packed = path in self._packed and _takes_gzip(accepted)
        source = file
        if packed:
            source = file.with_name(file.name + ".gz")
        body = source.read_bytes()
        headers["etag"] = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
        if path in self._packed:
            headers["vary"] = "accept-encoding"
        known = (request.headers.get("if-none-match") or "").replace("W/", "").replace(" ", "")
        if {headers["etag"], "*"}.intersection(known.split(",")):
            return Reply(304, headers=headers)
        if packed:
            headers["content-encoding"] = "gzip"
        return Reply(200, body, _type(file), headers)


def _page(file: Path) -> Reply:
    nonce = secrets.token_urlsafe(16)
    body = file.read_bytes().replace(PLACE, nonce.encode())
    headers = {"content-security-policy": _page_policy(nonce), "cache-control": "no-store"}
    return Reply(200, body, _type(file), headers)


def _page_policy(nonce: str) -> str:
    """Styles that scripts create need the nonce. Scripts are files of the web UI, and no others."""
    return (
        "default-src 'none'; script-src 'self'; "
        f"style-src 'self' 'nonce-{nonce}'; img-src 'self' data: blob:; media-src data: blob:; "
        "font-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    )


def _type(file: Path) -> str:
    return _TYPES.get(file.suffix, "application/octet-stream")


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def login(request: AdminRequest, *, foreign: bool) -> Reply:
    """Redirect a login URL to the login screen, which posts the token to `/api/login`."""
    _only_read(request)
    looks_ahead = any(
        "prefetch" in purpose or "prerender" in purpose
        for purpose in request.headers.all("sec-purpose")
    )
    if request.method == "HEAD" or looks_ahead or foreign:
        return Reply(204)
    given = parse_qs(request.query, max_num_fields=10).get("token", [])
    location = LOGIN_SCREEN
    if len(given) == 1:
        location = f"{LOGIN_SCREEN}?{urlencode({'token': given[0]})}"
    return Reply(303, headers={"location": location})


def leave(request: AdminRequest) -> Reply:
    """`/leave?to=URL` opens a third-party address without the session cookie.

    Browsers send cookies to every port of a host, and `SameSite=Strict` does not separate ports. A
    link to another port of this host would therefore carry the session cookie. This response is a
    sandboxed document with an opaque origin. A navigation that starts there is cross-site, so the
    browser sends no `SameSite=Strict` cookie.

    Raises ApiError unless a page of the admin UI requests an HTTP address.
    """
    if request.method != "GET":
        raise ApiError(405, None, "this is a page", headers={"allow": "GET"})
    if any(site not in _FROM_OUR_PAGES for site in request.headers.all("sec-fetch-site")):
        raise ApiError(403, "cross_site", "a page of another site asked for this")
    given = parse_qs(request.query, max_num_fields=10).get("to", [])
    if len(given) != 1 or not _is_http_address(given[0]):
        raise ApiError(400, None, "the parameter `to` must be one http or https address")
    headers = {
        "refresh": f"0;url={given[0]}",
        # The Refresh header has no effect in a sandbox without `allow-scripts`. `default-src` still
        # blocks scripts.
        "content-security-policy": (
            "sandbox allow-scripts; default-src 'none'; frame-ancestors 'none'"
        ),
        # Browsers refuse a sandboxed document with another opener policy.
        "cross-origin-opener-policy": "unsafe-none",
        "content-type": "text/html; charset=utf-8",
    }
    return Reply(200, headers=headers)


def _only_read(request: AdminRequest) -> None:
    if request.method not in ("GET", "HEAD"):
        raise ApiError(405, None, "pages are only read", headers={"allow": "GET, HEAD"})


def _is_http_address(text: str) -> bool:
    if not text.isascii() or not text.isprintable():
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
