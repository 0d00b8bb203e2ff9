"""A byte-pair encoder for counting tokens, small enough to read. Ranks come from a file in
js-tiktoken's format.

Checked against js-tiktoken itself (tests/bench). Special tokens are plain text here: nothing that
is counted is one.
"""

import base64
import json
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

RANKS = (
    Path(__file__).parents[1] / "tests" / "npm" / "node_modules" / "js-tiktoken" / "dist" / "ranks"
)


class Encoder:
    def __init__(self, name: str, pattern: str, ranks: dict[bytes, int]) -> None:
        import regex  # `re` knows no \p{L}

        self.name = name
        self._split = regex.compile(pattern).finditer
        self._ranks = ranks
        self._piece = lru_cache(100_000)(self._merge)

    @classmethod
    def load(cls, file: Path) -> "Encoder":
        """From JSON, or from the JavaScript module around it as npm delivers it."""
        text = file.read_text(encoding="utf-8")
        table: dict[str, Any] = json.loads(text[text.index('{"') : text.rindex("}") + 1])
        ranks: dict[bytes, int] = {}
        for line in table["bpe_ranks"].splitlines():
            _, first, *tokens = line.split(" ")
            ranks.update(
                (base64.b64decode(token), int(first) + n) for n, token in enumerate(tokens)
            )
        return cls(file.stem, table["pat_str"], ranks)

    def encode(self, text: str) -> list[int]:
        return [token for match in self._split(text) for token in self._piece(match.group())]

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def _merge(self, piece: str) -> tuple[int, ...]:
        """Join the neighbours of the lowest rank until no two neighbours have one."""
        whole = piece.encode()
        if whole in self._ranks:
            return (self._ranks[whole],)
        parts = [whole[n : n + 1] for n in range(len(whole))]
        while len(parts) > 1:
            pairs = [self._ranks.get(left + right) for left, right in pairwise(parts)]
            lowest = min((rank for rank in pairs if rank is not None), default=None)
            if lowest is None:
                break
            at = pairs.index(lowest)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return tuple(self._ranks[part] for part in parts)


def default_ranks(name: str) -> Path | None:
    """The ranks that `npm ci` in tests/npm brings, if it has been run."""
    file = RANKS / f"{name}.cjs"
    return file if file.exists() else None
