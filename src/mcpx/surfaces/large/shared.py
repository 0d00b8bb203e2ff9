"""Large results that any replica can read (SUR-11, SCA-1): kept here as ever, and written behind
into the store.

Promised: a handle that one replica gave out is read at every other by its owner, and by nobody
else: where it stands in the store is a digest of both, and what stands there is encrypted. It lives
no longer there than here. What a replica lets go of for want of room goes from the store too, so
that each holds `total_bytes` there at most; that of one which died goes by its time. A session that
ends takes what it had along, whichever replica wrote it. After `let_go` nothing that was written
before is read by anybody. The store away: what is kept here is read here; on its return it is
written.

A result travels in parts, one at a time: other commands wait for one part at most. Its first part
says how many there are, so that a reader who comes early waits a moment for the rest. What was read
from the store is kept here, in a room of its own (`COPIES`), so that reading on costs nothing.

No promise: that a handle is good elsewhere in the very moment it was given; a reader looks again
for `LOOKS` seconds.
"""

import asyncio
import hashlib
import secrets
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from time import monotonic
from typing import Any, Final

from mcpx.base.aio import Tasks
from mcpx.model.call import as_object
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script, StoreDown
from mcpx.surfaces.large.kept import OWNER_BYTES, Kept, Key, ResultStore
from mcpx.wire import codec

PART: Final = 256 << 10
"""Bytes that are sent in one command: 2 ms of a network of 1 Gbit/s, and 0.2 ms of the loop to
encrypt them."""
COPIES: Final = OWNER_BYTES
"""Bytes of what others wrote and was read here."""
LOOKS: Final = (0.02, 0.05, 0.1, 0.2)
"""Seconds until a handle that is not known is looked for again: it may be on its way."""
LATE: Final = 2.0
"""Seconds for the rest of a result whose first part is there."""
AT_A_TIME: Final = 4
"""Results that are put together at a time."""
ENDING: Final = 1.0
"""Seconds that a replica which ends takes to write what is not written yet."""
_HANDLE: Final = 12
"""Characters of a handle; others are not asked for."""
_EPOCHS: Final = 4
"""Times the life of a result: so long is an epoch remembered after the last result of it."""

_BEGIN = Script(
    """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local epoch = redis.call('GET', KEYS[2])
if epoch then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
redis.call('HSET', KEYS[1], 'epoch', epoch or '', 'head', ARGV[2], '0', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
redis.call('ZADD', KEYS[3], now + ARGV[1], KEYS[1])
if redis.call('PTTL', KEYS[3]) < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[3], ARGV[1]) end
return 1
"""
)
_GO_ON = Script(
    "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) "
    "return 1 end return 0"
)
"""A result that was forgotten meanwhile does not come back without an end."""
_HEAD = Script(
    """
local found = redis.call('HMGET', KEYS[1], 'epoch', 'head', '0')
if not found[2] or found[1] ~= (redis.call('GET', KEYS[2]) or '') then return false end
return {found[2], found[3], redis.call('PTTL', KEYS[1])}
"""
)
_DROP = Script("redis.call('ZREM', KEYS[2], KEYS[1]) return redis.call('DEL', KEYS[1])")
_FORGET = Script(
    "for _, key in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do redis.call('DEL', key) end "
    "return redis.call('DEL', KEYS[1])"
)


class _Copies(ResultStore):
    """What others wrote; each has an end of its own."""

    def put(self, key: Key, kept: Kept, seconds: float) -> None:
        if key not in self._kept:
            self._put(key, kept, seconds)

    def get(self, owner: str, handle: str) -> Kept | None:
        key = (owner, handle)
        if key in self._ends and self._ends[key] <= self._clock():
            self._drop(key)
        return super().get(owner, handle)


class SharedResults(ResultStore):
    def __init__(self, replicas: Replicas, **bounds: Any) -> None:
        super().__init__(**bounds)
        self._seals = replicas.seals
        self._store = replicas.store
        self._epoch = self._store.key("kept-epoch")
        self._copies = _Copies(total_bytes=COPIES, clock=self._clock)
        self._reading = asyncio.Semaphore(AT_A_TIME)
        self._waiting: deque[Key] = deque()
        """To be written; what is not kept any more when its turn comes is not."""
        self._written: set[Key] = set()
        self._let_go_at: float | None = None
        self._forgotten = 0
        """How often something was let go of; what was being read at that time is not kept."""
        self._begins_epoch = False
        """It is written behind that one begins: what belongs to it is not written before."""
        self._writing: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()
        self._tasks = Tasks("kept results")
        self._tasks.start(self._join(replicas.joined), apart=True)

    async def _join(self, joined: asyncio.Event) -> None:
        await joined.wait()
        await asyncio.to_thread(
            import_module, "cryptography.hazmat.primitives.ciphers.aead"
        )  # 50 ms
        self._joined.set()
        self._store.on_return(self._returned)

    async def _returned(self, fresh: bool) -> None:
        if self._let_go_at is not None and monotonic() - self._let_go_at < self._seconds:
            self._begin_epoch()  # it may not have been heard
            fresh = True
        if fresh:
            self._written.clear()
        queued = set(self._waiting)
        self._waiting.extend(
            key for key in self._kept if key not in self._written and key not in queued
        )
        self._go_on()

    # Keeping
    # ----------------------------------------------------------------------------------------------

    def _put(self, key: Key, kept: Kept, seconds: float) -> None:
        super()._put(key, kept, seconds)
        if self._joined.is_set() and self._store.up:
            self._waiting.append(key)
            self._go_on()

    def _go_on(self) -> None:
        if self._waiting and self._writing is None and not self._tasks.closed:
            self._writing = self._tasks.start(self._write_all(), apart=True)

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                key = self._waiting.popleft()
                if (kept := self._kept.get(key)) is not None:
                    try:
                        while self._begins_epoch:
                            self._begins_epoch = False
                            await self._store.settled()
                        await self._write(key, kept)
                    except StoreDown:
                        if not self._store.up:
                            self._waiting.clear()  # whatever is not written is found on its return
        finally:
            self._writing = None

    async def _write(self, key: Key, kept: Kept) -> None:
        where, of_owner = self._place(*key), self._index(key[0])
        left = int((self._ends[key] - self._clock()) * 1000)
        if left <= 0:
            return
        parts = -(-len(kept.packed) // PART) or 1
        head = self._seals.encrypt(
            codec.dump({"size": kept.size, "parts": parts}), f"{where}:head".encode()
        )
        for at in range(parts):
            part = self._seals.encrypt(
                kept.packed[at * PART : (at + 1) * PART], f"{where}:{at}".encode()
            )
            if at == 0:
                longest = int(self._seconds * 1000) * _EPOCHS
                await self._store.run(
                    _BEGIN, [where, self._epoch, of_owner], [left, head, part, longest]
                )
            elif not await self._store.run(_GO_ON, [where], [at, part]):
                return
            if self._kept.get(key) is not kept:  # let go of meanwhile
                self._store.run_later(_DROP, [where, of_owner])
                return
        self._written.add(key)

    def _drop(self, key: Key) -> None:
        super()._drop(key)
        self._written.discard(key)

    def _drop_first(self, owner: str) -> Key:
        key = super()._drop_first(owner)
        self._store.run_later(_DROP, [self._place(*key), self._index(owner)])
        return key

    def forget(self, owner: str) -> None:
        super().forget(owner)
        self._copies.forget(owner)
        self._forgotten += 1
        self._store.run_later(_FORGET, [self._index(owner)])

    def let_go(self) -> None:
        self._let_go_at = monotonic()
        self._forgotten += 1
        self._begin_epoch()
        for key in self._written:
            self._store.run_later(_DROP, [self._place(*key), self._index(key[0])])
        self._written.clear()
        self._waiting.clear()
        self._copies.let_go()
        super().let_go()

    def _begin_epoch(self) -> None:
        milliseconds = int(self._seconds * 1000) * _EPOCHS
        self._store.later("SET", self._epoch, secrets.token_hex(8), "PX", milliseconds)
        self._begins_epoch = True

    async def close(self) -> None:
        """What was given out stays in the store: its owner may read it elsewhere."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=ENDING)
        await self._tasks.close()

    # Reading
    # ----------------------------------------------------------------------------------------------

    async def find(self, owner: str, handle: str) -> Kept | None:
        kept = self.get(owner, handle) or self._copies.get(owner, handle)
        if kept is not None or len(handle) != _HANDLE or not self._store.up:
            return kept
        let_go_at, forgotten = self._let_go_at, self._forgotten
        try:
            async with asyncio.timeout(LATE):
                await self._joined.wait()
            found = await self._looked_for(owner, handle)
            if found is None:
                return None
            async with self._reading:
                if (kept := self._copies.get(owner, handle)) is not None:
                    return kept
                kept = await self._put_together(owner, handle, *found[:2])
        except (StoreDown, TimeoutError):
            return None
        left = found[2]
        if kept is None or let_go_at != self._let_go_at:
            return None
        if left > 0 and forgotten == self._forgotten:
            self._copies.put((owner, handle), kept, left)
        return kept

    async def _looked_for(self, owner: str, handle: str) -> tuple[bytes, bytes, float] | None:
        """The head, the first part, and how many seconds it has."""
        for pause in (*LOOKS, None):
            found = await self._store.run(_HEAD, [self._place(owner, handle), self._epoch])
            if found:
                head, first, left = found
                return head, first, int(left) / 1000
            if pause is not None:
                await asyncio.sleep(pause)
        return None

    async def _put_together(
        self, owner: str, handle: str, head: bytes, first: bytes
    ) -> Kept | None:
        where = self._place(owner, handle)
        opened = self._seals.decrypt(head, f"{where}:head".encode())
        try:
            about = as_object(codec.load(opened)) if opened is not None else {}
        except codec.BadJson:
            return None
        size, parts = about.get("size"), about.get("parts")
        if (
            not isinstance(size, int)
            or not isinstance(parts, int)
            or not 0 < parts <= OWNER_BYTES // PART + 1
        ):
            return None
        pieces: list[bytes] = []
        pauses = self._patience()
        for at in range(parts):
            sealed = first if at == 0 else await self._store.ask("HGET", where, at)
            while sealed is None:
                if (pause := next(pauses, None)) is None:
                    return None
                await asyncio.sleep(pause)
                sealed = await self._store.ask("HGET", where, at)
            piece = self._seals.decrypt(sealed, f"{where}:{at}".encode())
            if piece is None:
                return None
            pieces.append(piece)
        return Kept(b"".join(pieces), size)

    @staticmethod
    def _patience() -> Iterator[float]:
        """Pauses between looks for a part that is on its way."""
        end = monotonic() + LATE
        while monotonic() < end:
            yield LOOKS[0]

    # Where things stand
    # ----------------------------------------------------------------------------------------

    def _place(self, owner: str, handle: str) -> str:
        return self._store.key("kept", _digest(owner, handle))

    def _index(self, owner: str) -> str:
        """What all replicas have written for one owner."""
        return self._store.key("kept-of", _digest(owner))


def _digest(*words: str) -> str:
    """Of each with its length, so that no letter moves from one to the other."""
    told = hashlib.sha256()
    for word in words:
        raw = word.encode("utf-8", "surrogatepass")
        told.update(len(raw).to_bytes(4) + raw)
    return told.hexdigest()[:40]
