"""`/leave?to=URL`: opens a third-party address without the session cookie.

Browsers send cookies to every port of a host, and `SameSite=Strict` does not separate ports. A link
to another port of this host would therefore carry the session cookie. The response of this path is
a sandboxed document with an opaque origin. A navigation that starts there is cross-site, so the
browser sends no `SameSite=Strict` cookie.
"""

from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.responses import Response
from starlette.types import Scope

from mcpx.admin.errors import ApiError
from mcpx.admin.visit import values

LEAVE: Final = "/leave"
_FROM_OUR_PAGES: Final = (b"same-origin", b"none")


def leave(scope: Scope) -> Response:
    """Raises ApiError unless a page of the admin UI requests an HTTP address."""
    if scope["method"] != "GET":
        raise ApiError(405, None, "this is a page", headers={"allow": "GET"})
    if any(site not in _FROM_OUR_PAGES for site in values(scope, b"sec-fetch-site")):
        raise ApiError(403, "cross_site", "a page of another site asked for this")
    given = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=10).get("to", [])
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
        "cache-control": "no-store",
    }
    return Response(b"", headers=headers, media_type="text/html")


def _is_http_address(text: str) -> bool:
    if not text.isascii() or not text.isprintable():
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
