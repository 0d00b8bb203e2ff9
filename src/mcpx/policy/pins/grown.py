"""What a new or changed definition may do that the approved one may not, as far as it says so."""

from collections.abc import Iterator
from typing import Any

from mcpx.model.call import Json, as_list, as_object
from mcpx.policy.pins.marks import one_line

FAR = (
    "path",
    "file",
    "dir",
    "folder",
    "url",
    "uri",
    "host",
    "command",
    "cmd",
    "shell",
    "script",
    "code",
    "sql",
    "exec",
)
"""Parts of the names of parameters that reach beyond a tool's own data."""
HINTS: dict[str, tuple[bool, str]] = {
    "readOnlyHint": (False, "no longer says that it changes nothing"),
    "destructiveHint": (True, "says that it may destroy"),
    "openWorldHint": (True, "says that it reaches the outside world"),
    "idempotentHint": (False, "no longer says that it may be repeated without harm"),
}
"""By default, and what to say when it comes to that; as the protocol has them."""


def grown(before: Json | None, after: Json) -> tuple[str, ...]:
    """`before` None: nothing was approved, and of parameters all are new."""
    if before is None:
        return tuple(_hints({}, after))
    return tuple(_hints(before, after)) + tuple(_parameters(before, after))


def _hints(before: Json, after: Json) -> Iterator[str]:
    was, now = as_object(before.get("annotations")), as_object(after.get("annotations"))
    for hint, (worse, words) in HINTS.items():
        old, new = was.get(hint), now.get(hint)
        appears = new is worse and old is not worse
        goes = worse is False and old is True and new is not True
        opens = worse is True and old is False and new is not False  # absent means true
        if (appears and not (worse is False and old is None)) or goes or opens:
            yield words


def _parameters(before: Json, after: Json) -> Iterator[str]:
    was, now = as_object(before.get("inputSchema")), as_object(after.get("inputSchema"))
    old, new = as_object(was.get("properties")), as_object(now.get("properties"))
    required = {str(name) for name in as_list(now.get("required"))}
    for name in new:
        if name not in old:
            far = any(part in name.lower() for part in FAR)
            yield (
                (
                    f"takes a new {'required' if name in required else 'optional'} parameter "
                    f"{one_line(name)[:80]!r}"
                )
                + (", which may reach far" if far else "")
            )
    if _is_closed(was) and not _is_closed(now):
        yield "takes parameters that are not named"
    for name in old:
        if (
            name in new
            and _is_closed(as_object(old[name]))
            and not _is_closed(as_object(new[name]))
        ):
            yield f"takes anything in {one_line(name)[:80]!r}"


def _is_closed(schema: Json) -> bool:
    more: Any = schema.get("additionalProperties")
    return more is False
