"""Files under the state folder that all replicas have: each has its own, and they are kept in step
through the store.

Promised: a file that is changed here (by this process or by a command) is the same everywhere
within a second, and changes made at once are merged by the rule of its folder (`rules`). What was
removed is brought back by nobody's old copy. A replica that comes has everything before `ready`.
While the store is away each works on its files, and all is merged when it is back; one that was
emptied gets everything anew from whoever is there. In the store values are encrypted, and end some
time after the last replica has gone. Not promised: that what is larger or more than its bounds is
shared; it is said once.

Rooms need not know of this: they look at their files as they do where several gateways share a
folder. Who wants to know at once is told (`hear`), and who must not wait for the next look settles
a file himself (`settle`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from mcpx.base.aio import Tasks
from mcpx.replicas.members import Members
from mcpx.replicas.rules import Rule
from mcpx.replicas.shelf import TRIES, Odd, Shelf
from mcpx.replicas.store import Script, StoreDown

if TYPE_CHECKING:
    from mcpx.replicas.replicas import Replicas

log = logging.getLogger(__name__)

LOOK: Final = 0.2
"""Seconds between looks at the folders: one `stat` each."""
ASK: Final = 0.8
"""Seconds between looks at the store, should news be missed or it be emptied."""
KEPT: Final = 30 * 86_400
"""Seconds for which the store keeps a file after the last replica has gone."""
TOUCH: Final = 3_600.0
"""Seconds between two times that this is put off."""
MOST: Final = 4_096
"""Files in the store."""
TOGETHER: Final = 64
"""Files that are told of at a time."""
LAST_PUSH: Final = 1.0
"""Seconds for what was changed at the very end."""

_NEWS = Script(
    """
redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[4])
return {redis.call('GET', KEYS[1]), redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[2], '+inf', 'WITHSCORES',
        'LIMIT', 0, ARGV[3])}
"""
)
_FIND = Script(
    """
local found = redis.call('GET', KEYS[2])
if not found then redis.call('ZREM', KEYS[1], ARGV[1]) return {0, false} end
return {redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0, found}
"""
)
_PUT = Script(
    """
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
if tonumber(score or 0) ~= tonumber(ARGV[2]) then return {0, score or 0, redis.call('GET', KEYS[2])} end
if not score and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[5]) then return {-1, 0, false} end
local number = redis.call('INCR', KEYS[3])
redis.call('ZADD', KEYS[1], number, ARGV[1])
redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[4])
for _, key in ipairs({KEYS[1], KEYS[3], KEYS[4]}) do redis.call('EXPIRE', key, ARGV[4]) end
return {number, 0, false}
"""
)
"""Only where nobody else has put something there since; who did not see it merges, and tries
again."""

Heard = Callable[[], None]


class Mirror:
    def __init__(self, replicas: "Replicas", state: Path, rules: Iterable[Rule]) -> None:
        self._replicas, self._store = replicas, replicas.store
        self._shelf = Shelf(state, rules, replicas.seals)
        self._locks = {folder: asyncio.Lock() for folder in self._shelf.rules}
        self._numbers: dict[str, int] = {}
        """The change of a file in the store that was last seen."""
        self._due: set[str] = set()
        """Files that were changed here."""
        self._again: set[str] = set()
        """Those that could not be settled; tried with the next look at the store."""
        self._epoch: tuple[bytes, int] | None = None
        self._seen = 0
        self._asked = self._touched = 0.0
        self._heard: dict[str, list[Heard]] = {}
        self._now = asyncio.Event()
        self._news = True
        self._tasks = Tasks("mirror")
        self.ready = asyncio.Event()
        """Set once everything that the store has is here."""
        self._store.hear("mirror", self._told)

    def hear(self, folder: str, heard: Heard) -> None:
        """Called when something came into a folder from elsewhere."""
        self._heard.setdefault(folder, []).append(heard)

    def _told(self, _: bytes) -> None:
        self._news = True
        self._now.set()

    # Life
    # ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await asyncio.to_thread(self._shelf.read_known)
        self._tasks.start(self._run())

    async def complete(self, within: float) -> None:
        """Returns once everything is here, and after so many seconds in any case."""
        try:
            async with asyncio.timeout(within):
                await self.ready.wait()
        except TimeoutError:
            log.warning(
                "what other replicas have is not here yet: this one goes on with what it has"
            )

    async def _run(self) -> None:
        await self._replicas.joined.wait()
        while True:
            self._now.clear()
            await self._round()
            try:
                async with asyncio.timeout(LOOK):
                    await self._now.wait()
            except TimeoutError:
                pass

    async def _round(self) -> None:
        if not self._in_reach:
            return
        try:
            await self._look()
            if self._news or monotonic() - self._asked > ASK:
                await self._ask()
            due, self._due = self._due, set()
            self._again |= due
            for name in sorted(due):
                await self._settle(name)
            self.ready.set()
        except StoreDown:
            pass
        except Exception:
            log.exception("what replicas share could not be kept in step")
        if self._shelf.unwritten:
            await asyncio.to_thread(self._shelf.write_known)

    @property
    def _in_reach(self) -> bool:
        return self._store.up and self._replicas.joined.is_set()

    async def close(self) -> None:
        """With what was changed last."""
        await self._tasks.close()
        try:
            async with asyncio.timeout(LAST_PUSH):
                await self._round()
        except TimeoutError:
            pass

    # What was changed
    # ------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        for rule in self._shelf.stirred():
            self._due |= await asyncio.to_thread(self._shelf.changed, rule)

    async def _ask(self) -> None:
        self._news = False
        self._asked = monotonic()
        keys = [self._key("epoch"), self._key("log")]
        while True:
            words = [Members.new_id(), self._seen, TOGETHER, KEPT]
            epoch, listed = cast(
                "tuple[bytes, list[bytes]]", await self._store.run(_NEWS, keys, words)
            )
            if (epoch, self._store.failures) != self._epoch:
                # The first time, or it was away or emptied, and may have lost what it had:
                # everything is told anew.
                self._epoch, self._seen = (epoch, self._store.failures), 0
                self._numbers.clear()
                self._due |= self._shelf.forget_looks()
                await self._look()
                continue
            for name, number in zip(
                (one.decode() for one in listed[::2]), map(int, listed[1::2]), strict=True
            ):
                if self._numbers.get(name) != number:
                    await self._settle(name)
                    self._due.discard(name)
                self._seen = number
            if len(listed) < 2 * TOGETHER:
                break
        again, self._again = self._again, set()
        self._due |= again
        if monotonic() - self._touched > TOUCH:
            self._touched = monotonic()
            for key in ("epoch", "log", "count", *(f"file:{name}" for name in self._shelf.lasting)):
                self._store.later("EXPIRE", self._key(key), KEPT)

    # One file
    # ----------------------------------------------------------------------------------------------

    async def settle(self, name: str) -> None:
        """This file, by its name under the state folder, is from now on what the store has of it,
        and the other way round. While the store is away: once it is back."""
        if self._in_reach:
            try:
                await self._settle(name, tell=False)
            except StoreDown:
                pass

    async def _settle(self, name: str, *, tell: bool = True) -> None:
        rule = self._shelf.rule(name)
        if rule is None:
            return
        log_, file = self._key("log"), self._key("file", name)
        changed = False
        async with self._locks[rule.folder]:
            self._again.add(name)  # until it is
            found, theirs = await self._store.run(_FIND, [log_, file], [name])
            number = int(found)
            for _ in range(TRIES):
                try:
                    written, mine = await asyncio.to_thread(self._shelf.meet, rule, name, theirs)
                except Odd as problem:
                    self._shelf.say(f"{name} is not shared with other replicas: {problem}")
                    self._numbers[name] = number  # until it has changed
                    break
                except OSError as problem:
                    self._shelf.say(f"{name} is not shared with other replicas for now: {problem}")
                    return
                changed = changed or written
                if mine is None:
                    self._numbers[name] = number
                    break
                keys = [log_, file, self._key("count"), self._key("epoch")]
                put, found, theirs = await self._store.run(
                    _PUT, keys, [name, number, mine, KEPT, MOST]
                )
                if int(put) > 0:
                    self._numbers[name] = int(put)
                    self._store.tell("mirror")
                    break
                if int(put) < 0:
                    self._shelf.say(
                        f"{name} is not shared with other replicas: the store has {MOST} files"
                    )
                    break
                number = int(found)
            else:
                return
            self._again.discard(name)
        if changed and tell:
            for heard in self._heard.get(rule.folder, ()):
                heard()

    def _key(self, *parts: str) -> str:
        return self._store.key("mirror", *parts)
