"""The lines around a result that is kept back: what it is, and how to read on (SUR-11).

Promise: one line before and one after what is shown, each `[mcpx: …]`. The last is a call as it has
to be made, with arguments that give something; only what applies to this result is told, and each
number once.
"""

import json
from collections.abc import Callable

from mcpx.surfaces.large.marks import own
from mcpx.surfaces.large.preview import Preview, counted


def quoted(text: str) -> str:
    """As JSON spells it; what cannot be seen is spelled out."""
    written = json.dumps(text, ensure_ascii=False)
    return written if written.isprintable() else json.dumps(text)


def arguments(**given: str | int | None) -> str:
    """An object as a model has to say it."""
    pairs = (
        f'"{name}": {quoted(value) if isinstance(value, str) else value}'
        for name, value in given.items()
        if value is not None
    )
    return f"{{{', '.join(pairs)}}}"


def opening(size: int, begins: Preview) -> str:
    """What it is, and what is shown of it."""
    count = f"{size:,}"
    told = "" if f" {count} " in f" {begins.shape} " else f"{count} bytes, "
    if begins.unit == "key":
        shown = "Abridged"
    elif begins.count:
        shown = (
            f"The first {counted(begins.count, begins.unit)}"
            if begins.count > 1
            else f"The first {begins.unit}"
        )
    else:
        shown = "It begins"
    return own(f"kept back: {told}{begins.shape}. {shown}:")


def closing(handle: str, begins: Preview, call: Callable[[str], str], *, by_offset: bool) -> str:
    """How to go on. `call` makes a whole call of arguments; `by_offset`: whether an offset counts
    what is shown."""
    is_text = begins.unit in ("line", "character")
    counts = by_offset if is_text else bool(begins.count) and begins.rows is not None
    following = arguments(
        handle=handle,
        jmespath=begins.rows or None,
        offset=begins.count if counts and begins.count else None,
    )
    if is_text:
        found = arguments(handle=handle, grep=begins.find)
        more = (
            f"; to find a word (in lower case it finds any case): arguments {found}"
            if begins.find
            else ""
        )
        return own(f"the next {begins.unit}s: {call(following)}{more}")
    select = call(arguments(handle=handle, jmespath=begins.find))
    return own(
        f"to select: {select}" + (f"; the next rows: arguments {following}" if counts else "")
    )
