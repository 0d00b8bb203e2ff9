"""One tool, prompt, resource or resource template as one server offers it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from mcpx.model.call import Json

Kind = Literal["tools", "prompts", "resources", "templates"]
KINDS: tuple[Kind, ...] = ("tools", "prompts", "resources", "templates")


@dataclass(frozen=True, slots=True)
class Offer:
    kind: Kind
    server: str
    name: str
    """What the server itself calls it: a name, a URI or a URI template."""
    public: str
    """What clients call it."""
    definition: Json
    """As shown to clients: public name and `_meta.proxy` put in, everything else as the server sent
    it."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """How long and where clients may cache a list (`ttlMs` and `cacheScope` of revision
    2026-07-28)."""

    ttl_ms: int
    public: bool

    @classmethod
    def of(cls, result: Json) -> "Freshness":
        """The hints of a page of a list. Hints that are missing or malformed do not allow
        caching."""
        ttl: Any = result.get("ttlMs")
        if not isinstance(ttl, int) or isinstance(ttl, bool) or not 0 <= ttl <= LONGEST_TTL_MS:
            ttl = 0
        return cls(ttl, result.get("cacheScope") == "public")

    @classmethod
    def of_all(cls, lists: Iterable["Freshness"]) -> "Freshness":
        """The hints of a list that is merged from these lists."""
        found = tuple(lists)
        if not found:
            return STALE
        return cls(min(one.ttl_ms for one in found), all(one.public for one in found))

    def to_json(self) -> Json:
        return {"ttlMs": self.ttl_ms, "cacheScope": "public" if self.public else "private"}


LONGEST_TTL_MS = 2**53 - 1
"""The largest integer that all JSON implementations read exactly (RFC 8259, section 6)."""
STALE = Freshness(0, False)
"""The hints of a list that must not be cached."""

Offers = dict[Kind, list[Json]]
"""What a source offers, as it says it itself."""
