"""Which parts of one tree are those of another: for changing a text, and for finding what a mask
stands for.

Promised: pure. Not done here: what a difference means.
"""

import json
from typing import Any

from mcpx.config.tree import as_list, as_map

TEXTUAL = frozenset({"env", "headers", "params", "args"})
"""Keys below which every value is text, however it is spelled: `PORT: 8080`."""
_NAMES = ("name", "id")


def alike(one: Any, other: Any) -> bool:
    """The same as JSON sees it; 30 and 30.0 are one number."""
    if (table := as_map(one)) is not None:
        its = as_map(other)
        return (
            its is not None
            and table.keys() == its.keys()
            and all(alike(table[key], its[key]) for key in table)
        )
    if (items := as_list(one)) is not None:
        others = as_list(other)
        return others is not None and len(items) == len(others) and all(map(alike, items, others))
    if (
        isinstance(one, bool)
        or isinstance(other, bool)
        or isinstance(one, str)
        or isinstance(other, str)
    ):
        return type(one) is type(other) and one == other
    return bool(one == other)


def matches(old: list[Any], new: list[Any]) -> list[int | None]:
    """For each new item the old one that it is or was: the same, or of the same name, or else the
    one that is left when others are accounted for."""
    found: list[int | None] = [None] * len(new)
    left = set(range(len(old)))
    by_value: dict[str, list[int]] = {}
    by_name: dict[str, list[int]] = {}
    for index in reversed(range(len(old))):
        by_value.setdefault(_key(old[index]), []).append(index)
        if (name := name_of(old[index])) is not None:
            by_name.setdefault(name, []).append(index)
    for key, where in ((_key, by_value), (name_of, by_name)):
        for index, item in enumerate(new):
            candidates = where.get(key(item) or "", []) if found[index] is None else []
            while candidates:
                if (at := candidates.pop()) in left:
                    found[index] = at
                    left.discard(at)
                    break
    open_ = [index for index, at in enumerate(found) if at is None]
    if len(open_) == len(left):
        for index, at in zip(open_, sorted(left), strict=True):
            if _kind(old[at]) == _kind(new[index]):
                found[index] = at
    return found


def name_of(value: Any) -> str | None:
    table = as_map(value) or {}
    return next((name for key in _NAMES if isinstance(name := table.get(key), str)), None)


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _kind(value: Any) -> str:
    return "map" if isinstance(value, dict) else "list" if isinstance(value, list) else "scalar"
