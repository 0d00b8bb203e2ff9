"""The plain tree between a file's text and a `Config`: mappings, lists and scalars, and paths into
it.

Promised: nothing here fails, whatever the tree holds. Not done here: reading, judging.
"""

from collections.abc import Iterable
from typing import Any, cast

KeyPath = tuple[str | int, ...]
"""The way to a value from the top of the tree: keys and list positions."""
Tree = dict[str, Any]


class Expanded(str):
    """Text that came, in part or whole, from a variable or a file.

    It may stand where a number or a boolean is wanted (`port: ${PORT:-8000}`), and it may be a
    secret.
    """

    __slots__ = ()


class Unresolved(str):
    """Text of a disabled entry, its references left alone; absent where anything but text is
    wanted."""

    __slots__ = ()


def as_map(value: object) -> Tree | None:
    return cast(Tree, value) if isinstance(value, dict) else None


def as_list(value: object) -> list[Any] | None:
    return cast("list[Any]", value) if isinstance(value, list) else None


def maps_in(value: object) -> list[tuple[int, Tree]]:
    """The mappings of a list with their positions; nothing for anything else."""
    items = enumerate(as_list(value) or ())
    return [(index, cast(Tree, item)) for index, item in items if isinstance(item, dict)]


def children(value: object) -> Iterable[Any]:
    return (as_map(value) or {}).values() or as_list(value) or ()


def is_deeper(value: object, levels: int) -> bool:
    """Whether anything in it stands further down than that."""
    row = [value]
    for _ in range(levels + 1):
        row = [child for each in row for child in children(each)]
    return bool(row)


def is_extra(key: str) -> bool:
    """Keys that are always allowed and never read: an editor's schema reference and the user's
    own."""
    return key == "$schema" or key.startswith("x-")


def as_bool(value: object) -> bool | None:
    """A boolean, also one that a variable spelled out."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Expanded):
        return {"true": True, "false": False}.get(value.lower())
    return None


def plain(value: object) -> Any:
    """The same tree without our marks on its text."""
    if isinstance(value, str):
        return str(value)
    if (table := as_map(value)) is not None:
        return {key: plain(item) for key, item in table.items()}
    if (items := as_list(value)) is not None:
        return [plain(item) for item in items]
    return value


def spell(path: KeyPath) -> str:
    """`mcp_servers[1].connection.env.HOME`, as people write it."""
    words: list[str] = []
    for step in path:
        if isinstance(step, int):
            words.append(f"[{step}]")
        elif step.replace("-", "_").replace("$", "_").isidentifier():
            words.append(f".{shorten(step)}" if words else shorten(step))
        else:
            words.append(f"[{shorten(step)!r}]")
    return "".join(words)


def shorten(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
