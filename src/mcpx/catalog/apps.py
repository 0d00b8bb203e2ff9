"""MCP Apps (`io.modelcontextprotocol/ui`) in the catalog: URIs of app pages, and tools that only
apps use.

An app page is a resource with a `ui://` URI, which tools name in `_meta`. Clients accept no other
scheme for a page, so the public URI names the server inside the scheme: `ui://clock/app.html` of
the server `time` is `ui://time/clock/app.html`. A page then cannot be read from another server that
uses the same URI.
"""

import re
from hashlib import sha256
from typing import Any, cast

from mcpx.model.call import Json, as_list, as_object

SCHEME = "ui://"
_LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_NOT_IN_LABEL = re.compile(r"[^a-z0-9._-]+")
_FLAT_KEYS = ("ui/resourceUri", "openai/outputTemplate")
"""Older keys of `_meta` that name a page. `_meta.ui.resourceUri` is the current one."""


def is_page(uri: str) -> bool:
    return uri.startswith(SCHEME) and len(uri) > len(SCHEME)


def page_label(server: str) -> str:
    """The name of a server in public page URIs. It is lower case because clients may normalize the
    authority."""
    if _LABEL.fullmatch(server):
        return server
    readable = _NOT_IN_LABEL.sub("-", server.lower()).strip("._-")[:50]
    tag = sha256(server.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{readable}-{tag}" if readable else tag


def public_page(server: str, uri: str) -> str:
    """The public URI of a page."""
    return f"{SCHEME}{page_label(server)}/{uri.removeprefix(SCHEME)}"


def split_page(uri: str) -> tuple[str, str]:
    """The label and the server's own URI in a public page URI; ("", "") if the URI has no such
    form."""
    label, _, rest = uri.removeprefix(SCHEME).partition("/")
    return (label, SCHEME + rest) if rest else ("", "")


def with_public_pages(server: str, meta: Json) -> Json:
    """`_meta` of a tool or a result with public page URIs. The given object is not changed."""
    changed: Json = {}
    ui = as_object(meta.get("ui"))
    if _names_page(ui.get("resourceUri")):
        changed["ui"] = {**ui, "resourceUri": public_page(server, ui["resourceUri"])}
    for key in _FLAT_KEYS:
        if _names_page(meta.get(key)):
            changed[key] = public_page(server, meta[key])
    return {**meta, **changed} if changed else meta


def result_with_public_pages(server: str, result: Json) -> Json:
    """A result of a server with public page URIs in `_meta`, and in `_meta` of its content
    blocks."""
    changed: Json = {}
    if isinstance(meta := result.get("_meta"), dict):
        changed["_meta"] = with_public_pages(server, cast(Json, meta))
    content: Any = result.get("content")
    if isinstance(content, list):
        blocks = cast(list[Any], content)
        for block in blocks:  # A generator would cost two more calls for each result.
            if isinstance(block, dict) and "_meta" in block:
                changed["content"] = [_block_with_public_pages(server, each) for each in blocks]
                break
    if not changed:
        return result
    return {**result, **changed}


def _block_with_public_pages(server: str, block: Any) -> Any:
    fields = as_object(block)
    meta = as_object(fields.get("_meta"))
    return {**fields, "_meta": with_public_pages(server, meta)} if meta else block


def _names_page(value: object) -> bool:
    return isinstance(value, str) and is_page(value)


def is_app_only(definition: Json) -> bool:
    """Whether `_meta.ui.visibility` of a tool is present and lacks `model`."""
    ui = as_object(as_object(definition.get("_meta")).get("ui"))
    return isinstance(ui.get("visibility"), list) and "model" not in as_list(ui["visibility"])
