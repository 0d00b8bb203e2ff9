"""`$ref` inside one JSON Schema: where it points, and which targets get a name instead of being
written in place.

Promised: a target is written in place only where that ends and repeats nothing: it is referred to
once, or it is tiny. All others, the recursive ones among them, are named. One bounded pass over
what the root can reach; nothing is looked up outside the document. Not promised: `$anchor`, `$id`
and `$dynamicRef`; they resolve to nothing.
"""

import re
from collections.abc import Iterator
from urllib.parse import unquote

from mcpx.model.call import Json, as_list, as_object, is_array, is_object

MAX_NODES = 1_500
"""Schemas looked at for references. A document with more gets a name for every target."""
_MAX_HOPS = 8  # a reference to a reference to …
_MAX_POINTER = 256
_MAX_STEPS = 24
_MAX_NAMES = 100
_TINY = 40  # characters of all the values of an enum that is repeated rather than named

SCHEMA_MAPS = ("properties", "patternProperties")
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
SCHEMAS = ("items", "additionalProperties", "additionalItems")

# What a definition may not be called: these words mean something else in a type.
_TAKEN = frozenset(
    ("string", "number", "boolean", "null", "object", "unknown", "never", "Record", "type")
)


def children(schema: Json) -> Iterator[object]:
    """Every schema directly inside this one that a type is written from."""
    for key in SCHEMA_MAPS:
        yield from as_object(schema.get(key)).values()
    for key in SCHEMA_LISTS:
        yield from as_list(schema.get(key))
    for key in SCHEMAS:
        if is_object(schema.get(key)):
            yield schema[key]


class Refs:
    """The references of one document."""

    __slots__ = ("_counts", "_found", "_names", "_nodes", "_recursive", "_root", "used")

    def __init__(self, root: object) -> None:
        self._root = root
        self._found: dict[str, tuple[str, object] | None] = {}
        self._counts: dict[str, int] | None = None
        self._recursive: set[str] = set()
        self._names: dict[str, str] = {}
        self._nodes = MAX_NODES
        self.used: list[tuple[str, object]] = []
        """Names that were asked for, in that order, with what they stand for."""

    def follow(self, schema: Json) -> tuple[str, object] | None:
        """The pointer and the schema at the end of this schema's `$ref`; None when it leads
        nowhere."""
        pointer = schema.get("$ref")
        if not isinstance(pointer, str):
            return None
        if pointer not in self._found:
            self._found[pointer] = self._walk(pointer)
        return self._found[pointer]

    def is_named(self, pointer: str, target: object) -> bool:
        counts = self._survey()
        if self._nodes <= 0 or pointer in self._recursive:
            return True
        return counts.get(pointer, 0) > 1 and not _is_tiny(target)

    def root_is_recursive(self) -> bool:
        self._survey()
        return "#" in self._recursive

    def name(self, pointer: str, target: object) -> str:
        """The name of a definition, an identifier that no other has; `unknown` for one definition
        too many."""
        name = self._names.get(pointer)
        if name is None:
            if len(self._names) == _MAX_NAMES:
                return "unknown"
            wanted = re.sub(r"\W+", "_", unquote(pointer[-80:].rpartition("/")[2]))[:40].strip("_")
            if not wanted or wanted[0].isdigit():
                wanted = f"Type{wanted}" if wanted else "Root"
            name, number = wanted, 1
            taken = _TAKEN.union(self._names.values())
            while name in taken:
                number += 1
                name = f"{wanted}{number}"
            self._names[pointer] = name
            self.used.append((name, target))
        return name

    def _walk(self, pointer: str) -> tuple[str, object] | None:
        for _ in range(_MAX_HOPS):
            found = self._at(pointer)
            if found is None:
                return None
            target = found[0]
            onward = as_object(target).get("$ref")
            if not isinstance(onward, str):
                return pointer, target
            if next(children(as_object(target)), None) is not None:
                return pointer, target
            pointer = onward
        return None

    def _at(self, pointer: str) -> tuple[object] | None:
        if pointer == "#":
            return (self._root,)
        if (
            not pointer.startswith("#/")
            or len(pointer) > _MAX_POINTER
            or pointer.count("/") > _MAX_STEPS
        ):
            return None
        here: object = self._root
        for step in unquote(pointer[2:]).split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            if is_object(here) and key in here:
                here = here[key]
            elif is_array(here) and re.fullmatch("[0-9]{1,6}", key) and int(key) < len(here):
                here = here[int(key)]
            else:
                return None
        return (here,)

    def _survey(self) -> dict[str, int]:
        """Count the references that the root can reach, and find in each circle one target that
        breaks it."""
        if self._counts is not None:
            return self._counts
        counts = self._counts = {}
        open_targets = {"#"}
        trail = [("#", iter(self._leads_to(self._root)))]
        while trail:
            here, onward = trail[-1]
            for pointer, target in onward:
                seen = counts.get(pointer, 0)
                counts[pointer] = seen + 1
                if pointer in open_targets:
                    self._recursive.add(pointer)
                elif not seen:
                    open_targets.add(pointer)
                    trail.append((pointer, iter(self._leads_to(target))))
                    break
            else:
                open_targets.discard(here)
                trail.pop()
        return counts

    def _leads_to(self, schema: object) -> list[tuple[str, object]]:
        """Every reference in this schema, without going through it."""
        found: list[tuple[str, object]] = []
        waiting = [schema]
        while waiting and self._nodes > 0:
            self._nodes -= 1
            node = as_object(waiting.pop())
            target = self.follow(node)
            if target is not None:
                found.append(target)
            # Width counts too: a list of a million schemas is not copied to be looked at.
            for child, _ in zip(children(node), range(self._nodes), strict=False):
                waiting.append(child)
        return found


def _is_tiny(target: object) -> bool:
    schema = as_object(target)
    if next(children(schema), None) is not None:
        return False
    values = as_list(schema.get("enum"))
    return (
        len(values) <= 8
        and sum(len(str(value)) if isinstance(value, str) else 4 for value in values) <= _TINY
    )
