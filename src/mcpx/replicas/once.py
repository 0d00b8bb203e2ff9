"""Work that is done by one replica for all: a lock that ends by itself, and news when it is given
back.

Promised: two replicas never hold it at a time while the store lives and the work takes less than
`seconds`. Whoever cannot have it waits until it is given back or has ended. Without the store
everybody works for itself. Whoever gave up before it was his does not keep it from others, nor does
a store that took what it was sent and did not say so.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from mcpx.base.aio import Tasks
from mcpx.replicas.store import Script, Store, StoreDown

LOOK: Final = 0.2
"""Seconds between looks, should the news be missed."""

_GIVE_BACK = Script(
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)

_EXTEND = Script(
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) "
    "end return 0"
)


class Turns:
    """Locks by name, in one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._unsure: list[tuple[str, str]] = []
        """Keys, and what may stand there of us: the store went away before it said so, or before it
        was taken out."""
        self._tasks = Tasks("turns")
        store.hear("turn", self._given_back)
        store.on_return(self._returned)

    async def close(self) -> None:
        await self._tasks.close()

    def _given_back(self, name: bytes) -> None:
        for event in self._waiting.get(name.decode(errors="replace"), ()):
            event.set()

    async def _returned(self, fresh: bool) -> None:
        unsure, self._unsure = self._unsure, []
        for key, mine in unsure:
            self._give_back(key, mine)

    def _give_back(self, key: str, mine: str) -> None:
        if self._store.up:
            self._store.run_later(_GIVE_BACK, [key], [mine])
        else:
            self._unsure.append((key, mine))

    async def _take(self, key: str, mine: str, seconds: float) -> bool:
        """Raises `StoreDown`."""
        if not self._store.up:
            raise StoreDown(self._store.problem)
        answer = self._store.ask("SET", key, mine, "NX", "PX", int(seconds * 1000))
        try:
            return await asyncio.shield(answer) is not None
        except asyncio.CancelledError:
            answer.add_done_callback(lambda _: self._give_back(key, mine))
            raise
        except StoreDown:  # one that was paused does it once it goes on
            self._give_back(key, mine)
            raise

    async def _extend(self, key: str, mine: str, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds / 4)
            self._store.run_later(_EXTEND, [key], [mine, int(seconds * 1000)])

    @asynccontextmanager
    async def turn(
        self, name: str, seconds: float, *, extended: bool = False
    ) -> AsyncGenerator[bool]:
        """Hold it. True: somebody else held it meanwhile, and may have done the work. `extended`:
        for as long as the work takes; `seconds` are for the others then, should this replica die of
        it."""
        key, mine = self._store.key("turn", name), secrets.token_hex(8)
        waited = False
        held = False
        event = asyncio.Event()
        self._waiting.setdefault(name, set()).add(event)
        try:
            while not held:
                event.clear()
                try:
                    held = await self._take(key, mine, seconds)
                except StoreDown:
                    break
                if not held:
                    waited = True
                    try:
                        async with asyncio.timeout(LOOK):
                            await event.wait()
                    except TimeoutError:
                        pass
        finally:
            waiting = self._waiting[name]
            waiting.discard(event)
            if not waiting:
                del self._waiting[name]
        if held and extended:
            extending = self._tasks.start(self._extend(key, mine, seconds), apart=True)
        else:
            extending = None
        try:
            yield waited
        finally:
            if extending is not None:
                extending.cancel()
            if held:
                self._give_back(key, mine)
                self._store.tell("turn", name.encode())
                self._given_back(name.encode())  # those of this replica hear no news of its own
