"""Whether two values of a configuration are the same, as JSON sees it.

Python says that 1, 1.0 and true are equal; whoever changed one into the other meant to change
something.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

__all__ = ["same"]


def same(one: Any, other: Any) -> bool:
    """Of frozen dataclasses, mappings, sequences and plain values."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if is_dataclass(one):
        return all(
            same(getattr(one, each.name), getattr(other, each.name))
            for each in fields(one)
            if each.compare
        )
    if isinstance(one, Mapping):
        mine, its = cast(Mapping[Any, Any], one), cast(Mapping[Any, Any], other)
        # Keys too: 1 and true are different fields. Their order is nobody's, as before.
        return {(type(key), key) for key in mine} == {(type(key), key) for key in its} and all(
            same(value, its[key]) for key, value in mine.items()
        )
    if isinstance(one, list | tuple):
        pairs = zip(cast(list[Any], one), cast(list[Any], other), strict=False)
        return len(cast(list[Any], one)) == len(other) and all(same(*pair) for pair in pairs)
    return bool(one == other)
