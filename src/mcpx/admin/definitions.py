"""Definitions that wait for somebody's word, as a person can judge them: before, after, what
differs, what to mark.

Promised: nothing in it is unseen (`marks.visible`), and it takes no longer than is bearable
whatever servers send: what is too much is said to be left out. Made in a thread: a thousand
definitions are a second's work.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, cast

from mcpx.admin.shapes.guarding import HeldDefinition, Mark
from mcpx.base.text_diff import unified_diff
from mcpx.model.call import Json, as_list, as_object
from mcpx.policy.pins.review import HINTS, PHRASES, UNSEEN, grown, place_of, visible

MOST_LETTERS = 2_000_000
"""Characters of definitions in one answer; of the rest it is told that they are there."""
MOST_PLACES = 200
"""Marks of one answer whose place is looked for."""
CONTEXT = 3
HEADS = ("approved", "offered now")
LEFT_OUT = (
    "too much waits to be shown at once: approve some of it first, or look with `mcpx approve`"
)
_BROKEN = re.compile(r"(?<!\\)((?:\\\\)*)\\n")
_KINDS: dict[str, Literal["tool", "prompt", "instructions"]] = {
    "tools": "tool",
    "prompts": "prompt",
    "instructions": "instructions",
}
_WORDS: dict[str, Literal["destructive", "open_world"]] = {
    HINTS["readOnlyHint"][1]: "destructive",
    HINTS["destructiveHint"][1]: "destructive",
    HINTS["openWorldHint"][1]: "open_world",
}


def held(servers: Iterable[Json]) -> list[HeldDefinition]:
    """Of the answer to `pins.waiting`, with definitions."""
    return list(_Telling().of(servers))


class _Telling:
    def __init__(self) -> None:
        self._letters = MOST_LETTERS
        self._places = MOST_PLACES

    def of(self, servers: Iterable[Json]) -> Iterator[HeldDefinition]:
        for server in servers:
            name = str(server["name"])
            if server["state"] in ("quarantine", "damaged"):
                yield _whole(name, server)
            for entry in map(as_object, as_list(server["waiting"])):
                yield self._one(name, entry)

    def _one(self, server: str, entry: Json) -> HeldDefinition:
        before = None if entry["before"] is None else as_object(entry["before"])
        after = as_object(entry["after"])
        old, new = "" if before is None else as_text(before), as_text(after)
        self._letters -= len(old) + len(new)
        told = HeldDefinition(
            server=server,
            kind=_KINDS[str(entry["kind"])],
            name=str(entry["name"]),
            change="changed" if entry["how"] == "changed" else "new",
            fingerprint=str(entry["fingerprint"]),
            for_some=entry["for_some"] is True,
        )
        if self._letters < 0:
            told.diff = LEFT_OUT
            return told
        told.before = None if before is None else seen(before)
        told.after = seen(after)
        told.diff = unified(old, new)
        told.marks = [*self._hints(entry, after), *_says(before, after)]
        return told

    def _hints(self, entry: Json, after: Json) -> Iterator[Mark]:
        for hint in map(str, as_list(entry.get("hints"))):
            self._places -= 1
            place = place_of(hint, after) if self._places >= 0 else ()
            where = ".".join(visible(step)[:80] for step in place)
            yield Mark(kind=_kind_of(hint), where=where, text=hint)


def _whole(name: str, server: Json) -> HeldDefinition:
    """Of a server nothing of which is shown."""
    facts: dict[str, Any] = {"state": server["state"], "also": as_list(server.get("also"))}
    if server.get("problem"):
        facts["problem"] = str(server["problem"])
    return HeldDefinition(server=name, kind="server", name=name, change="new", after=seen(facts))


def _says(before: Json | None, after: Json) -> Iterator[Mark]:
    for words in grown(before, after):
        kind = _WORDS.get(words)
        yield Mark(kind=kind or "other", where="annotations" if kind else "inputSchema", text=words)


def _kind_of(hint: str) -> Literal["invisible", "phrase", "other"]:
    if hint.startswith(UNSEEN):
        return "invisible"
    return "phrase" if hint.startswith(tuple(PHRASES)) else "other"


def seen(value: Any) -> Any:
    """The same with nothing in it that cannot be seen."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key): seen(item) for key, item in cast("dict[str, Any]", value).items()}
    return [seen(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def as_text(definition: Json) -> str:
    """As JSON that people read: a text of several lines has them; those that follow stand further
    in, and a quote in them is escaped, so that no text passes for a field."""
    try:
        written = json.dumps(definition, indent=2, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "a definition that cannot be written"
    return visible("\n".join(_lines(written)))


def _lines(written: str) -> Iterator[str]:
    for line in written.split("\n"):
        yield _BROKEN.sub(rf"\1\\n\n{' ' * (len(line) - len(line.lstrip()) + 4)}", line)


def unified(old: str, new: str) -> str:
    """The diff of two definitions as text. A new definition is shown whole."""
    before = old.split("\n") if old else []
    return "\n".join(unified_diff(before, new.split("\n"), *HEADS, context=CONTEXT))
