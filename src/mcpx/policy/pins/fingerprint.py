"""Which definition it is: the same fingerprint exactly if a client would be shown the same.

All of a definition counts, fields we do not know too: clients are shown those as well. The order of
keys and of `required` does not: servers that keep them in sets send them in another order each
time.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from mcpx.model.call import Json, as_object
from mcpx.model.offer import Offers

PinnedKind = Literal["tools", "prompts", "instructions"]
LISTED: tuple[Literal["tools", "prompts"], ...] = ("tools", "prompts")
"""The kinds that are lists."""
INSTRUCTIONS = "instructions"
"""What a server says about itself is one more definition: its key, and its name."""
NOUNS: dict[PinnedKind, str] = {"tools": "tool", "prompts": "prompt", "instructions": "its"}

Key = tuple[PinnedKind, str]
"""Kind and the server's own name of it."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that is approved or not."""

    kind: PinnedKind
    name: str
    fingerprint: str
    definition: Json

    @property
    def key(self) -> Key:
        return self.kind, self.name

    @property
    def called(self) -> str:
        return called(self.key)


def called(key: Key) -> str:
    """As people are told of it."""
    if key[0] == "instructions":
        return "its instructions"
    return f"{NOUNS[key[0]]} {key[1]!r}"


def fingerprint(definition: Json) -> str:
    """Never fails: what cannot be written down is like nothing else, not even itself."""
    try:
        text = json.dumps(
            _settled(definition), sort_keys=True, separators=(",", ":"), ensure_ascii=True
        )
    except (TypeError, ValueError, RecursionError):
        return ""
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _settled(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _settled(part, name) for name, part in cast(Json, value).items()}
    if isinstance(value, list):
        parts = [_settled(part) for part in cast(list[Any], value)]
        plain = key == "required" and all(isinstance(part, str) for part in parts)
        if plain:
            return sorted(parts)
        return parts
    return value


def instructions_item(text: str) -> Item:
    definition: Json = {INSTRUCTIONS: text}
    return Item("instructions", INSTRUCTIONS, fingerprint(definition), definition)


def named(offers: Offers) -> Iterator[tuple[Literal["tools", "prompts"], str, Json]]:
    """What of the lists can be approved: all that has a name; nothing else is shown to clients."""
    for kind in LISTED:
        for definition in offers.get(kind, ()):
            if isinstance(name := as_object(definition).get("name"), str):
                yield kind, name, definition
