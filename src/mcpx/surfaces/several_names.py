"""Several servers or tools at once: each is told as it would be alone, beside the others (SUR-12).

A list may come as a list, as a JSON text of one, or as names with commas between them. What is
wrong with one entry is told in its place; only where all are wrong the whole is an error.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from mcpx.model.call import Json, is_array
from mcpx.model.errors import RpcError
from mcpx.surfaces.large.measure import cut as shortened
from mcpx.surfaces.large.measure import size_of
from mcpx.surfaces.mistakes import Mistake
from mcpx.surfaces.results import said, text_of
from mcpx.surfaces.text import cut, exact, fair_share
from mcpx.surfaces.view import View
from mcpx.wire import codec

if TYPE_CHECKING:
    from mcpx.surfaces.compact import Compact

MOST = 20
"""Entries of one list."""
LONGEST_LIST = 20_000
"""Characters of a text that may be a list."""

NAMES: Json = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
"""The schema of an argument that names one thing or several."""

Tell = Callable[[str, int | None], Awaitable[Json]]
"""Tells of one entry, in about so many characters (None: in as many as if it were alone)."""


def wanted(value: Any, argument: str, is_name: Callable[[str], bool]) -> str | list[str]:
    """What an argument names: one thing, or several."""
    if isinstance(value, str) and value.strip():
        text = value.strip()
        value = _parts(text, is_name)
        if value is None:
            return text
    if value in ("", []):
        raise Mistake(f"{argument} must not be empty")
    if not is_array(value):
        got = "" if value is None else f", not {_short(value)}"
        raise Mistake(f"{argument} must be a string or a list of strings{got}")
    if len(value) > MOST:
        raise Mistake(f"{argument} may name {MOST} at once, not {len(value):,}")
    names: dict[str, None] = {}
    for each in value:
        if not isinstance(each, str) or not each.strip():
            told = "must be a string or a list of strings, not a list with"
            raise Mistake(f"{argument} {told} {_short(each)}")
        names[each.strip()] = None
    return list(names)


def _parts(text: str, is_name: Callable[[str], bool]) -> list[Any] | None:
    """What a text lists: as JSON, or as known names with commas between them."""
    if len(text) > LONGEST_LIST or is_name(text):
        return None
    if text[0] == "[" and text[-1] == "]":
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return value if is_array(value) else None
    names = [part.strip() for part in text.split(",")]
    if len(names) > 1 and all(map(is_name, names)):
        return names
    return None


async def tell_each(surface: "Compact", view: View, names: Sequence[str], tell: Tell) -> Json:
    """All of them in one answer. If it is too long, the longest are told shorter."""
    room = surface.settings.common.result_limit
    told: list[Json] = []
    for name in names:
        told.append(await _told(surface, view, name, tell, None))
        await asyncio.sleep(0)  # Twenty searches are long.
    sizes = [size_of(_text(each)) + 2 for each in told]
    if sum(sizes) > room:
        most = fair_share(sizes, room) - 2
        for at, each in enumerate(told):
            if size_of(_text(each)) > most:
                shorter = await _told(surface, view, names[at], tell, most // 2)
                told[at] = _cut(shorter, names[at], most)
    texts = "\n\n".join(map(_text, told))
    result = surface.reply(texts, {"results": [each.get("structuredContent", {}) for each in told]})
    if all(each.get("isError") for each in told):
        result["isError"] = True
    return result


def _cut(reply: Json, name: str, most: int) -> Json:
    """The reply in at most so many bytes, to the end of a line if possible."""
    text = _text(reply)
    if size_of(text) <= most:
        return reply
    note = f"... (ask for {exact(name)} alone to read the rest)"
    head = shortened(text, most - size_of(note) - 1)
    head = head.rpartition("\n")[0] or head
    return {**reply, "content": [said(f"{head}\n{note}")]}


async def _told(surface: "Compact", view: View, name: str, tell: Tell, room: int | None) -> Json:
    try:
        return await tell(name, room)
    except Mistake as mistake:
        return surface.failure(await surface.guide.explained(view, mistake))
    except RpcError as error:
        return surface.failure(error.message)


def _text(reply: Json) -> str:
    return text_of(reply["content"][0]) or ""


def _short(value: object) -> str:
    try:
        return cut(codec.dump(value).decode(), 60)
    except codec.Unencodable:
        return type(value).__name__
