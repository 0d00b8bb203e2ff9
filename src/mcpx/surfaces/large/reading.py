"""Reading a kept result bit by bit: the tool `result` of the built-in server `mcpx` (SUR-11).

What is read is counted in rows (a JSON array), keys (a JSON object), lines (a text) or characters
(a text with very long lines). First `jmespath` selects, then `grep` filters, then `offset` and
`limit` (or `head`, the same as `limit`) page through what is left. Values are rendered like
results.

Promise: whatever the arguments, an answer of at most `limit_bytes` (`LEAST` if that is more) or a
`BadReading`. Without `jmespath` the work is linear in the result. No promise: that an expression
ends soon (`worker` sees to that); the spelling of JSON: what is shown is the value, not the
server's text.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from mcpx.formats.writing import value_writer
from mcpx.model.call import Json
from mcpx.surfaces.large.excerpt import NotJson, cut, weigh
from mcpx.surfaces.large.loss import is_too_deep
from mcpx.surfaces.large.marks import marked, own
from mcpx.surfaces.large.pages import (
    NOTE_BYTES,
    Asked,
    BadReading,
    Page,
    page_of_keys,
    page_of_rows,
    page_of_text,
)
from mcpx.surfaces.large.preview import LONG_LINE, NOT_JSON, shape_of
from mcpx.surfaces.large.querying import LONGEST, query
from mcpx.wire.codec import BadJson, load

__all__ = ["LEAST", "PARAMETERS", "ROOMY", "TOOL", "BadReading", "read"]

LEAST = 700
"""Bytes below which an answer would be all explanation."""
ROOMY = LONG_LINE + NOTE_BYTES + 20
"""Limit from which on a text is paged by lines, or by characters, as its preview counts them."""
PARAMETERS = "{handle, offset?, limit?, jmespath?, grep?}"
"""What the tool takes, in a word: for the description of the tool it is called through."""
_GREP_LONGEST = 500
_LARGEST = 10**15
_COUNT = re.compile(r"[0-9]{1,15}")

TOOL: Json = {
    "name": "result",
    "description": (
        "Reads on in a large result that was kept (15 minutes). Counted in rows of a JSON array, "
        "keys of a JSON "
        "object, lines of a text, or characters where its lines are very long. jmespath selects "
        "first, then grep "
        "filters, then offset and limit page. The last line of an answer says what to read next."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "handle": {
                "type": "string",
                "description": "The handle that stands below the kept result",
            },
            "offset": {"type": "integer", "minimum": 0, "description": "Skip so many (default 0)"},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "description": "At most so many (default: as many as fit)",
            },
            "jmespath": {
                "type": "string",
                "maxLength": LONGEST,
                "description": (
                    'JSON only: what to select, e.g. "items[?size > `10`].name", or keys(@)'
                ),
            },
            "grep": {
                "type": "string",
                "maxLength": _GREP_LONGEST,
                "description": (
                    "Only lines (or rows, as compact JSON) that contain this: a plain substring, "
                    "not a regular "
                    "expression; upper and lower case are the same unless it has capitals"
                ),
            },
            "head": {"type": "integer", "minimum": 1, "description": "Only the first so many"},
        },
        "required": ["handle"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}


def read(
    text: bytes,
    arguments: Mapping[str, Any],
    *,
    limit_bytes: int,
    write: Callable[[object], str] | None = None,
) -> Page:
    """The part of a kept result that was asked for; `write`: how values are shown, else as TOON."""
    asked = asked_for(arguments)
    whole = _parsed(text)
    value = whole if asked.jmespath is None else _selected(asked.jmespath, whole)
    room = max(limit_bytes, LEAST) - NOTE_BYTES

    written = write or value_writer("toon")

    def show(part: object) -> str:
        return marked(written(part))

    try:
        if value is NOT_JSON or isinstance(value, str):
            return page_of_text(
                text.decode("utf-8", "replace") if value is NOT_JSON else str(value), asked, room
            )
        if isinstance(value, list) and value:
            return page_of_rows(cast(list[object], value), asked, room, show)
        if isinstance(value, dict) and value:
            return page_of_keys(cast(dict[str, object], value), asked, room, show)
        small = cast(object, value)  # a number or the like, or nothing at all
        weigh(small, room)
    except NotJson:
        why = "jmespath: an expression that begins with & only goes into a function"
        raise BadReading(f"{why}; {_what_it_is(whole)}") from None
    nothing = small is None or small == [] or small == {}
    if asked.jmespath is None or not nothing:
        return Page(cut(show(small), room), small)
    return Page(f"{show(small)}\n{own(f'jmespath found nothing; {_what_it_is(whole)}')}", small)


def _parsed(text: bytes) -> object:
    """An array, an object or a string; a text that says only a number is as good as a text."""
    if text[:64].lstrip(b" \t\r\n\xef\xbb\xbf")[:1] not in (b"{", b"[", b'"', b""):
        return NOT_JSON
    try:
        value = load(text)
    except BadJson:
        return NOT_JSON
    if not isinstance(value, (dict, list, str)):
        return NOT_JSON
    whole = cast(object, value)
    return NOT_JSON if is_too_deep(text, whole) else whole


def _selected(expression: str, whole: object) -> object:
    if whole is NOT_JSON:
        raise BadReading(
            "jmespath needs JSON, and this result is text; use grep, or offset and limit"
        )
    try:
        return query(expression, whole)
    except BadReading as error:
        raise BadReading(f"{error}; {_what_it_is(whole)}") from None


def _what_it_is(whole: object) -> str:
    return f"the result is: {cut(shape_of(whole), 300)}"


def asked_for(arguments: Mapping[str, Any]) -> Asked:
    """What the arguments say; a schema may not have judged them before."""
    for name in arguments:
        if name not in TOOL["inputSchema"]["properties"]:
            raise BadReading(
                f"result has no argument {_quoted(name)}; use offset, limit, jmespath, grep, head"
            )
    jmespath, grep = (
        _words(arguments, "jmespath", LONGEST),
        _words(arguments, "grep", _GREP_LONGEST),
    )
    limits = [
        n for n in (_count(arguments, "limit", 1), _count(arguments, "head", 1)) if n is not None
    ]
    return Asked(
        offset=_count(arguments, "offset", 0) or 0,
        limit=min(limits) if limits else None,
        jmespath=jmespath,
        grep=grep,
        handle=str(arguments.get("handle")),
    )


def _count(arguments: Mapping[str, Any], name: str, least: int) -> int | None:
    given = arguments.get(name)
    if given is None:
        return None
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if isinstance(given, str) and _COUNT.fullmatch(given.strip()):
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= _LARGEST:
        raise BadReading(f"{name} must be a whole number from {least} on, not {_quoted(given)}")
    return given


def _words(arguments: Mapping[str, Any], name: str, longest: int) -> str | None:
    given = arguments.get(name)
    if given is None:
        return None
    if isinstance(given, (int, float)) and not isinstance(given, bool) and name == "grep":
        given = str(given)
    if not isinstance(given, str) or not given:
        raise BadReading(f"{name} must be a text that is not empty, not {_quoted(given)}")
    if len(given) > longest:
        raise BadReading(f"{name} has {len(given):,} characters; at most {longest:,} are allowed")
    return given


def _quoted(given: object) -> str:
    """What was given, in a few characters."""
    if isinstance(given, str):
        return repr(given if len(given) <= 60 else f"{given[:60]}…")
    if given is None or isinstance(given, (int, float)):
        return str(given) if given is None or abs(given) <= _LARGEST else "a number that large"
    return "an array" if isinstance(given, list) else "an object"
