"""Large results, kept for whoever got them until they have read enough (SUR-11).

Promise: a result is read back by its owner only; to anybody else its handle reads as unknown, by
the same path and without a difference. They are kept in memory, compressed, and nowhere else (with
replicas in their store too, see `large.shared`): `total_bytes` in all and `owner_bytes` of one
owner. What was not read for longest goes first; beyond the total it is whoever has most that loses.
Nothing outlives `seconds`, counted from the moment it was kept. `keep` never fails.

No promise: that a result which takes more than `owner_bytes` is whole; its first part is kept, and
its last line says so. Not for use from two threads.
"""

import secrets
import time
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from mcpx.surfaces.large.measure import character_start, own

SMALLEST = 4096
"""What a result counts at least: it bounds their number."""


OWNER_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    packed: bytes
    size: int
    """Bytes of the text itself."""

    @property
    def cost(self) -> int:
        return max(len(self.packed), SMALLEST)

    def text(self) -> bytes:
        return zlib.decompress(self.packed)


def pack(text: bytes, most: int = OWNER_BYTES) -> Kept:
    """A text as it is kept, in at most `most` bytes: what takes more loses its end, and says so."""
    packed = zlib.compress(text, 1)
    if len(packed) > most:
        text = _cut(text, most - most // 100)  # what cannot be packed grows a little
        packed = zlib.compress(text, 1)
    return Kept(packed, len(text))


Key = tuple[str, str]
"""Owner and handle together, so that another's handle is exactly as unknown as an invented one."""


class ResultStore:
    def __init__(
        self,
        *,
        total_bytes: int = 64 << 20,
        owner_bytes: int = OWNER_BYTES,
        seconds: float = 900.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total_bytes = total_bytes
        self._owner_bytes = owner_bytes
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        """Read longest ago first."""
        self._ends: dict[Key, float] = {}
        """When each is too old, the oldest first."""
        self._cost = Counter[str]()
        self._total = 0

    def keep(self, owner: str, kept: Kept) -> str:
        handle = secrets.token_urlsafe(9)
        self._put((owner, handle), kept, self._seconds)
        return handle

    def _put(self, key: Key, kept: Kept, seconds: float) -> None:
        self._forget_old()
        owner = key[0]
        self._kept[key] = kept
        self._ends[key] = self._clock() + seconds
        self._cost[owner] += kept.cost
        self._total += kept.cost
        while self._cost[owner] > self._owner_bytes:
            self._drop_first(owner)
        while self._total > self._total_bytes:
            self._drop_first(max(self._cost, key=self._cost.__getitem__))

    async def find(self, owner: str, handle: str) -> Kept | None:
        return self.get(owner, handle)

    def get(self, owner: str, handle: str) -> Kept | None:
        self._forget_old()
        key = (owner, handle)
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def forget(self, owner: str) -> None:
        """It is gone, and nobody else may read what was kept for it."""
        if owner in self._cost:
            for key in [key for key in self._kept if key[0] == owner]:
                self._drop(key)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        """Bytes that are taken, as they are counted."""
        return self._total

    def let_go(self) -> None:
        """Of everything: nobody may read it any more."""
        self._kept.clear()
        self._ends.clear()
        self._cost.clear()
        self._total = 0

    async def close(self) -> None:
        self.let_go()

    def _forget_old(self) -> None:
        now = self._clock()
        while self._ends and self._ends[oldest := next(iter(self._ends))] <= now:
            self._drop(oldest)

    def _drop_first(self, owner: str) -> Key:
        """For want of room."""
        key = next(key for key in self._kept if key[0] == owner)
        self._drop(key)
        return key

    def _drop(self, key: Key) -> None:
        del self._ends[key]
        cost = self._kept.pop(key).cost
        self._total -= cost
        self._cost[key[0]] -= cost
        if not self._cost[key[0]]:
            del self._cost[key[0]]


def _cut(text: bytes, most: int) -> bytes:
    """As much of the beginning of `text` as `most` allows, whole characters only, and a line that
    says so."""
    end = character_start(text, max(most - 100, 0))
    return text[:end] + f"\n{own(f'the first {end:,} of {len(text):,} bytes were kept')}".encode()
