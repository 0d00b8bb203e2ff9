"""How replicas share tokens: each token on its own. A revoked token does not come back."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from mcpx.front.identity.store import FILE, FOLDER, LARGEST, TokenStore, parsed, text_of
from mcpx.model.call import Json, as_object

MOST_REVOKED: Final = 10_000
"""Revoked tokens that are known as such; the latest. They are known by half of their digest."""
_HALF: Final = 32


@dataclass(frozen=True)
class SharedTokens:
    """Implements `replicas.merge_rules.Rule`.

    A state has `live` (tokens by digest) and `gone` (times of revocations).
    """

    folder: str = FOLDER
    most: int = 1
    largest: int = LARGEST
    lasting: bool = True

    def owns(self, name: str) -> bool:
        return name == FILE

    def taken(self, raw: bytes | None, at: float, known: Json) -> Json | None:
        gone: dict[str, float] = dict(as_object(known.get("gone")))
        if raw is None:  # that is no way to revoke tokens: it was lost
            return {"live": {}, "gone": gone}
        there = {stored.digest: asdict(stored) for stored in parsed(raw)}
        for digest in known.get("live", ()):
            if digest not in there:
                gone[digest[:_HALF]] = at
        return {
            "live": {digest: one for digest, one in there.items() if digest[:_HALF] not in gone},
            "gone": gone,
        }

    def merged(self, mine: Json, theirs: Json) -> Json:
        gone: dict[str, float] = {**mine["gone"], **theirs["gone"]}
        if len(gone) > MOST_REVOKED:
            gone = dict(sorted(gone.items(), key=lambda one: (one[1], one[0]))[-MOST_REVOKED:])
        both = {**mine["live"], **theirs["live"]}
        return {
            "live": {digest: one for digest, one in both.items() if digest[:_HALF] not in gone},
            "gone": gone,
        }

    def rendered(self, state: Json, raw: bytes | None) -> bytes | None:
        live = state["live"]
        if raw is None:
            there = []
        else:
            there = [stored.digest for stored in parsed(raw)]
        if len(there) == len(live) and live.keys() == set(there):
            return raw
        return text_of(
            sorted(live.values(), key=lambda one: (one["created"], one["name"], one["digest"]))
        )

    def remembered(self, state: Json) -> Json:
        return {"live": list(state["live"]), "gone": state["gone"]}

    @contextmanager
    def alone(self, file: Path) -> Generator[None]:
        with TokenStore(file.parent.parent).lock():
            yield
