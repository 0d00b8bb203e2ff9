"""The web UI as it was built: files of one folder, known by name when it starts.

Promise: a path is looked up among the names of the files there are and never made into a path of
the file system. The page is served with a fresh nonce (`PLACE` in it) and the policy that goes with
it; files with a hash in their name are kept by browsers for good, all others are asked for again,
with an ETag. What was compressed beforehand (`.gz`) is sent so to whoever takes it.
"""

import hashlib
import mimetypes
import secrets
from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mcpx.admin.errors import ApiError
from mcpx.admin.headers import page_policy

SITE: Final = Path(__file__).parent / "site"
INDEX: Final = "index.html"
PLACE: Final = b"__CSP_NONCE__"
"""Stands in the page where the nonce comes."""
ASSETS: Final = "/assets/"
"""Files below it have a hash of what is in them in their names."""

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
"""Not asked of the system: its table may say anything."""


class Pages:
    def __init__(self, folder: Path = SITE) -> None:
        files = [found for found in folder.rglob("*") if found.is_file()] if folder.is_dir() else []
        self._files = {
            "/" + found.relative_to(folder).as_posix(): found
            for found in files
            if found.suffix != ".gz"
        }
        self._packed = {
            "/" + found.relative_to(folder).as_posix()[:-3]
            for found in files
            if found.suffix == ".gz"
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            return ApiError(
                405, None, "pages are only read", headers={"allow": "GET, HEAD"}
            ).answer()
        path = "/" + INDEX if scope["path"] == "/" else scope["path"]
        file = self._files.get(path)
        if file is None and path == "/" + INDEX:
            hint = "the API under /api works without; a release of mcpx has it"
            return ApiError(404, "no_ui", "this installation has no web UI", hint=hint).answer()
        if file is None:
            return ApiError(404, None, "there is no such path").answer()
        try:
            return self._page(file) if path == "/" + INDEX else self._file(path, file, scope)
        except OSError:
            return ApiError(
                404, None, "this file is not there any more", hint="start mcpx again"
            ).answer()

    def _page(self, file: Path) -> Response:
        nonce = secrets.token_urlsafe(16)
        headers = {
            "content-security-policy": page_policy(nonce).decode(),
            "cache-control": "no-store",
        }
        return Response(
            file.read_bytes().replace(PLACE, nonce.encode()),
            headers=headers,
            media_type=_type(file),
        )

    def _file(self, path: str, file: Path, scope: Scope) -> Response:
        given = dict[bytes, bytes](scope["headers"])
        packed = path in self._packed and _takes_gzip(given.get(b"accept-encoding", b""))
        body = (file.with_name(file.name + ".gz") if packed else file).read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
        lasting = "public, max-age=31536000, immutable" if path.startswith(ASSETS) else "no-cache"
        headers = {"etag": tag, "cache-control": lasting}
        if path in self._packed:
            headers["vary"] = "accept-encoding"
        known = (
            given.get(b"if-none-match", b"")
            .decode("latin-1")
            .replace("W/", "")
            .replace(" ", "")
            .split(",")
        )
        if tag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        if packed:
            headers["content-encoding"] = "gzip"
        return Response(body, headers=headers, media_type=_type(file))


def _type(file: Path) -> str:
    return (
        _TYPES.get(file.suffix)
        or mimetypes.types_map.get(file.suffix)
        or "application/octet-stream"
    )


def _takes_gzip(accepted: bytes) -> bool:
    for each in accepted.decode("latin-1").lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
