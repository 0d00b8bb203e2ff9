"""The plain tree between a file's text and a `Config`: mappings, lists and scalars, and paths into
it.

Promised: nothing here fails, whatever the tree holds. Not done here: reading, judging.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

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


def is_map(value: object) -> TypeGuard[Tree]:
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def as_map(value: object) -> Tree | None:
    return value if is_map(value) else None


def as_list(value: object) -> list[Any] | None:
    return value if is_list(value) else None


def maps_in(value: object) -> list[tuple[int, Tree]]:
    """The mappings of a list with their positions; nothing for anything else."""
    items = as_list(value) or ()
    return [(index, item) for index, item in enumerate(items) if is_map(item)]


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


def map_leaves(value: Any, change: Callable[[Any, KeyPath], Any], path: KeyPath = ()) -> Any:
    """Return a copy of the tree in which `change` has replaced each scalar."""
    if is_map(value):
        return {key: map_leaves(item, change, (*path, key)) for key, item in value.items()}
    if is_list(value):
        return [map_leaves(item, change, (*path, index)) for index, item in enumerate(value)]
    return change(value, path)


def plain(value: Any) -> Any:
    """Return a copy of the tree without `Expanded` and `Unresolved`."""
    if isinstance(value, str):
        return str(value)
    if is_map(value):
        return {key: plain(item) for key, item in value.items()}
    if is_list(value):
        return [plain(item) for item in value]
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
