"""Kept results that every replica can read (SUR-11, SCA-1).

A result is kept in memory, and written to the store in the background with one command: compressed,
encrypted, under a digest of owner and handle, until it expires. A replica that does not have it
asks the store for it. Results above `MAX_SHARED_BYTES`, and those kept while the store is down, are
read only at the replica that has them.
"""

import asyncio
import hashlib
import time
from typing import Any, Final

from mcpx.base.aio import Tasks
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import StoreDown
from mcpx.surfaces.large.kept import Kept, Key, ResultStore

MAX_SHARED_BYTES: Final = 4 << 20
RETRY_SECONDS: Final = (0.02, 0.1, 0.4)
"""Pauses before an unknown handle is looked up again: it may be on its way."""
CLOSE_SECONDS: Final = 1.0
"""Time for writes in progress when the replica ends."""
JOIN_SECONDS: Final = 2.0
_HANDLE_CHARACTERS: Final = 12
_NUMBER_BYTES: Final = 8


class SharedResults(ResultStore):
    def __init__(self, replicas: Replicas, **bounds: Any) -> None:
        super().__init__(**bounds)
        self._seals = replicas.seals
        self._store = replicas.store
        self._joined = replicas.joined
        self._tasks = Tasks("kept results")
        self._writes: set[asyncio.Task[None]] = set()
        self._oldest_ms = 0
        """Unix time of the last `let_go`. Results that another replica wrote before are not
        read."""

    def _put(self, key: Key, kept: Kept, seconds: float) -> None:
        super()._put(key, kept, seconds)
        if len(kept.packed) <= MAX_SHARED_BYTES and not self._tasks.closed:
            task = self._tasks.start(self._write(key, kept, seconds), apart=True)
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def _write(self, key: Key, kept: Kept, seconds: float) -> None:
        await self._joined.wait()
        name = self._name(key)
        numbers = (kept.size, time.time_ns() // 1_000_000)
        head = b"".join(number.to_bytes(_NUMBER_BYTES, "big") for number in numbers)
        sealed = await asyncio.to_thread(self._seals.encrypt, head + kept.packed, name.encode())
        if self._kept.get(key) is not kept:
            return
        try:
            await self._store.ask("SET", name, sealed, "PX", int(seconds * 1000))
        except StoreDown:
            return
        if self._kept.get(key) is not kept:  # Forgotten while it was written.
            self._store.later("DEL", name)

    def _drop(self, key: Key) -> None:
        super()._drop(key)
        self._store.later("DEL", self._name(key))

    def let_go(self) -> None:
        self._oldest_ms = time.time_ns() // 1_000_000
        for key in list(self._kept):
            self._drop(key)

    async def close(self) -> None:
        """What was written stays in the store: its owner may read it elsewhere."""
        if self._writes:
            await asyncio.wait(self._writes, timeout=CLOSE_SECONDS)
        await self._tasks.close()

    async def find(self, owner: str, handle: str) -> Kept | None:
        kept = self.get(owner, handle)
        if kept is not None or len(handle) != _HANDLE_CHARACTERS or not self._store.up:
            return kept
        name = self._name((owner, handle))
        try:
            async with asyncio.timeout(JOIN_SECONDS):
                await self._joined.wait()
            sealed = await self._store.ask("GET", name)
            for pause in RETRY_SECONDS:
                if sealed is not None:
                    break
                await asyncio.sleep(pause)
                sealed = await self._store.ask("GET", name)
        except (StoreDown, TimeoutError):
            return None
        if sealed is None:
            return None
        opened = await asyncio.to_thread(self._seals.decrypt, sealed, name.encode())
        if opened is None:
            return None
        size = int.from_bytes(opened[:_NUMBER_BYTES], "big")
        written_ms = int.from_bytes(opened[_NUMBER_BYTES : 2 * _NUMBER_BYTES], "big")
        if written_ms <= self._oldest_ms:
            return None
        return Kept(opened[2 * _NUMBER_BYTES :], size)

    def _name(self, key: Key) -> str:
        """Each word with its length, so that no letter moves from one to the other."""
        digest = hashlib.sha256()
        for word in key:
            raw = word.encode("utf-8", "surrogatepass")
            digest.update(len(raw).to_bytes(4, "big") + raw)
        return self._store.key("result", digest.hexdigest()[:40])
