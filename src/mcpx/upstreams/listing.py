"""Reads what a link is offered: all pages of each kind, bounded, and only what can be passed on."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, cast

from mcpx.model.call import Json, as_object
from mcpx.model.errors import METHOD_NOT_FOUND, RpcError
from mcpx.model.offer import Kind, Offers
from mcpx.upstreams.link import Link
from mcpx.wire import codec, era

log = logging.getLogger(__name__)

PAGES = 1000
ITEMS = 100_000
"""A server that pages for ever is stopped here (NAM-6)."""

LISTS: Mapping[Kind, tuple[str, str, str]] = {
    "tools": ("tools/list", "tools", "tools"),
    "prompts": ("prompts/list", "prompts", "prompts"),
    "resources": ("resources/list", "resources", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates", "resources"),
}
"""Kind -> method, key of the result, capability that offers it."""


async def read(link: Link, kinds: Iterable[Kind], capabilities: Mapping[str, Any] | None = None) -> Offers:
    """A list that cannot be read is left out, and does not cost the server its others.

    `capabilities`: what a modern server offers to a client with these, instead of to us."""
    kinds = tuple(kinds)
    lists = await asyncio.gather(*(_all_of(link, kind, capabilities) for kind in kinds), return_exceptions=True)
    found: Offers = {}
    for kind, listed in zip(kinds, lists, strict=True):
        if isinstance(listed, RpcError) and link.alive:
            log.warning("[%s] its %s could not be listed: %s", link.name, kind, listed.message)
        elif isinstance(listed, BaseException):
            raise listed
        else:
            found[kind] = _writable(link, kind, listed)
    return found


async def _all_of(link: Link, kind: Kind, capabilities: Mapping[str, Any] | None) -> list[Json]:
    """Everything of one kind. Junk is kept here and dropped where names are given."""
    method, key, capability = LISTS[kind]
    if capability not in link.terms.capabilities:
        return []
    found: list[Json] = []
    cursors: set[str] = set()
    params: Json = {}
    for _ in range(PAGES):
        try:
            result = await link.ask(method, params, capabilities=capabilities)
        except RpcError as error:
            if error.code == METHOD_NOT_FOUND:
                return found  # declared resources, but has no templates; or declared what it lacks
            raise
        page: Any = result.get(key)
        if isinstance(page, list):
            found.extend(cast(list[Json], page))
        cursor = result.get("nextCursor")
        if not isinstance(cursor, str) or cursor in cursors or len(found) > ITEMS:
            break
        cursors.add(cursor)
        params = {"cursor": cursor}
    else:
        log.warning("[%s] %s does not end; stopped after %d pages", link.name, method, PAGES)
    return found[:ITEMS]


def _writable(link: Link, kind: Kind, found: list[Json]) -> list[Json]:
    """Without what no list could carry: one infinity in one definition must not cost anybody the whole list."""
    if codec.is_writable(found):
        return found
    kept = [definition for definition in found if codec.is_writable(definition)]
    log.warning("[%s] %d of its %s left out: they cannot be written as JSON", link.name, len(found) - len(kept), kind)
    return kept


def with_headers(link: Link, tools: list[Json], annotations: dict[str, era.ParamHeaders]) -> list[Json]:
    """Note which arguments travel as headers; the modern era drops tools that ask for it wrongly."""
    if not link.modern:
        return tools
    kept: list[Json] = []
    for tool in tools:
        wanted = era.param_headers(as_object(tool).get("inputSchema"))
        if wanted is None:
            log.warning("[%s] tool %r left out: an x-mcp-header in it is invalid", link.name, tool.get("name"))
            continue
        if isinstance(name := as_object(tool).get("name"), str):
            annotations.pop(name, None)
            if wanted:
                annotations[name] = wanted
        kept.append(tool)
    return kept
