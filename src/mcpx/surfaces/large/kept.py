"""Large results, kept for whoever got them until they have read enough (SUR-11).

Promise: a result is read back by its owner only; to anybody else its handle reads as unknown, by the same path and
without a difference. They are kept in memory, compressed, and nowhere else: `total_bytes` in all and `owner_bytes`
of one owner, whose oldest go first; beyond the total it is whoever has most that loses the oldest. Nothing outlives
`seconds`, counted from the moment it was kept. `keep` never fails.

No promise: that a result which takes more than `owner_bytes` is whole; its first part is kept, and its last line says
so. Not for use from two threads.
"""

import secrets
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

SMALLEST = 4096
"""What a result counts at least: it bounds their number."""


@dataclass(frozen=True, slots=True)
class Kept:
    packed: bytes
    size: int
    """Bytes of the text itself."""
    until: float = 0.0

    @property
    def cost(self) -> int:
        return max(len(self.packed), SMALLEST)

    def text(self) -> bytes:
        return zlib.decompress(self.packed)


class KeptResults(Protocol):
    """Where large results wait. In this process by default; a store that several processes share fits as well."""

    def keep(self, owner: str, text: bytes) -> str:
        """Keep `text` for `owner`; the handle to read it by."""
        ...

    def get(self, owner: str, handle: str) -> Kept | None:
        """What was kept; `None` when the handle is unknown, too old, or somebody else's, whichever it is."""
        ...


class ResultStore:
    def __init__(
        self,
        *,
        total_bytes: int = 64 << 20,
        owner_bytes: int = 16 << 20,
        seconds: float = 900.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total_bytes = total_bytes
        self._owner_bytes = owner_bytes
        self._seconds = seconds
        self._clock = clock
        # By owner and handle together, so that another's handle is exactly as unknown as an invented one. Oldest first.
        self._kept: dict[tuple[str, str], Kept] = {}
        self._cost = Counter[str]()

    def keep(self, owner: str, text: bytes) -> str:
        self._forget_old()
        kept = self._packed(text)
        handle = secrets.token_urlsafe(9)
        self._kept[owner, handle] = kept
        self._cost[owner] += kept.cost
        while self._cost[owner] > self._owner_bytes:
            self._drop_oldest(owner)
        while self._cost.total() > self._total_bytes:
            self._drop_oldest(max(self._cost, key=self._cost.__getitem__))
        return handle

    def get(self, owner: str, handle: str) -> Kept | None:
        self._forget_old()
        return self._kept.get((owner, handle))

    def close(self) -> None:
        self._kept.clear()
        self._cost.clear()

    def _packed(self, text: bytes) -> Kept:
        packed = zlib.compress(text, 1)
        if len(packed) > self._owner_bytes:
            text = _cut(text, self._owner_bytes - self._owner_bytes // 100)  # what cannot be packed grows a little
            packed = zlib.compress(text, 1)
        return Kept(packed, len(text), self._clock() + self._seconds)

    def _forget_old(self) -> None:
        now = self._clock()
        while self._kept and self._kept[oldest := next(iter(self._kept))].until <= now:
            self._drop(oldest)

    def _drop_oldest(self, owner: str) -> None:
        self._drop(next(key for key in self._kept if key[0] == owner))

    def _drop(self, key: tuple[str, str]) -> None:
        self._cost[key[0]] -= self._kept.pop(key).cost
        if not self._cost[key[0]]:
            del self._cost[key[0]]


def _cut(text: bytes, most: int) -> bytes:
    """As much of the beginning of `text` as `most` allows, whole characters only, and a line that says so."""
    end = max(most - 100, 0)
    while end and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[:end] + f"\n[cut by mcpx: the first {end:,} of {len(text):,} bytes were kept]".encode()
