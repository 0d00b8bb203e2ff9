"""Keeps files in the state folders of all replicas the same, through the store.

A file that a replica or a command changes is the same at all replicas within a second. Changes at
the same time are merged by the rule of the folder. A new replica has all files before `ready` is
set. While the store is away, each replica works on its files, and all are merged afterwards. A
store that lost its data gets all files again. Values in the store are encrypted, and expire after
the last replica has gone. Files beyond the bounds of a rule are not shared, which is logged once.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from mcpx.base.aio import Tasks
from mcpx.replicas.local_files import ATTEMPTS, LocalFiles, NotShared
from mcpx.replicas.members import Members
from mcpx.replicas.merge_rules import Rule
from mcpx.replicas.store import Script, StoreDown

if TYPE_CHECKING:
    from mcpx.replicas.replicas import Replicas

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.2
"""Between two looks at the folders, of one `stat` each."""
POLL_SECONDS: Final = 0.8
"""Between two looks at the store, if a notification is missed."""
KEPT_SECONDS: Final = 30 * 86_400
"""How long the store keeps a file after the last replica has gone."""
TOUCH_SECONDS: Final = 3_600.0
MAX_FILES: Final = 4_096
BATCH: Final = 64
CLOSE_SECONDS: Final = 1.0

# KEYS: epoch, files by number of their last change. ARGV: new epoch, last number, batch, seconds.
_CHANGES = Script("""
redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', ARGV[4])
local since, limit = '(' .. ARGV[2], ARGV[3]
return {redis.call('GET', KEYS[1]),
        redis.call('ZRANGEBYSCORE', KEYS[2], since, '+inf', 'WITHSCORES', 'LIMIT', 0, limit)}
""")
# KEYS: files by number, value. ARGV: name.
_FIND = Script("""
local found = redis.call('GET', KEYS[2])
if not found then redis.call('ZREM', KEYS[1], ARGV[1]) return {0, false} end
return {redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0, found}
""")
# KEYS: files by number, value, last number, epoch.
# ARGV: name, expected number, value, seconds, most.
# Answer: new number, or 0 and the present number and value, or -1 if there are too many files.
_PUT = Script("""
local number = redis.call('ZSCORE', KEYS[1], ARGV[1])
if tonumber(number or 0) ~= tonumber(ARGV[2]) then
  return {0, number or 0, redis.call('GET', KEYS[2])}
end
if not number and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[5]) then return {-1, 0, false} end
local next = redis.call('INCR', KEYS[3])
redis.call('ZADD', KEYS[1], next, ARGV[1])
redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[4])
for _, key in ipairs({KEYS[1], KEYS[3], KEYS[4]}) do redis.call('EXPIRE', key, ARGV[4]) end
return {next, 0, false}
""")


class FileSync:
    def __init__(self, replicas: "Replicas", state: Path, rules: Iterable[Rule]) -> None:
        self._replicas = replicas
        self._store = replicas.store
        self._files = LocalFiles(state, rules, replicas.seals)
        self._locks = {folder: asyncio.Lock() for folder in self._files.rules}
        self._pending: set[str] = set()
        """Files to settle in the next round."""
        self._life: tuple[bytes, int] | None = None
        """The store's epoch, and how often the store went away."""
        self._last_number = 0
        self._polled_at = self._touched_at = 0.0
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self._wake = asyncio.Event()
        self._tasks = Tasks("file sync")
        self.ready = asyncio.Event()
        """Set when this replica has all files of the store."""
        self._store.hear("files", lambda _: self._wake.set())

    def hear(self, folder: str, changed: Callable[[], None]) -> None:
        """`changed` is called after a change of another replica."""
        self._listeners.setdefault(folder, []).append(changed)

    async def start(self) -> None:
        await asyncio.to_thread(self._files.known.load)
        self._tasks.start(self._run())

    async def complete(self, within: float) -> None:
        """Wait until this replica has all files, at most so many seconds."""
        try:
            async with asyncio.timeout(within):
                await self.ready.wait()
        except TimeoutError:
            log.warning("files of other replicas are not here yet: this one continues without them")

    async def settle(self, name: str) -> None:
        """Merge a file with the store now, if the store is there."""
        if self._is_reachable:
            try:
                await self._settle(name)
            except StoreDown:
                pass

    async def close(self) -> None:
        """Share the last changes."""
        await self._tasks.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._round()
        except TimeoutError:
            pass

    @property
    def _is_reachable(self) -> bool:
        return self._store.up and self._replicas.joined.is_set()

    async def _run(self) -> None:
        await self._replicas.joined.wait()
        while True:
            await self._round()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _round(self) -> None:
        if not self._is_reachable:
            return
        try:
            await self._sync()
        except StoreDown:
            pass
        except Exception:
            log.exception("files cannot be shared with other replicas")
        try:
            await asyncio.to_thread(self._files.known.save)
        except OSError as error:
            self._files.report(f"what is shared with other replicas cannot be saved: {error}")

    async def _sync(self) -> None:
        for rule in self._files.changed_folders():
            self._pending |= await asyncio.to_thread(self._files.changed_files, rule)
        if self._wake.is_set() or monotonic() - self._polled_at > POLL_SECONDS:
            self._wake.clear()
            await self._poll()
        for name in sorted(self._pending):
            if await self._settle(name):
                self._notify(name)
        self.ready.set()

    async def _poll(self) -> None:
        """Add the files that others have changed to the pending ones."""
        self._polled_at = monotonic()
        keys, count = [self._key("epoch"), self._key("log")], BATCH
        while count == BATCH:
            words = [Members.new_id(), self._last_number, BATCH, KEPT_SECONDS]
            epoch, changes = await self._store.run(_CHANGES, keys, words)
            life = (epoch, self._store.failures)
            if life != self._life:  # The store may have lost changes: settle all files.
                self._life, self._last_number = life, 0
                self._pending |= self._files.forget_marks()
                for rule in self._files.rules.values():
                    self._pending |= await asyncio.to_thread(self._files.changed_files, rule)
                continue
            names, numbers = changes[::2], changes[1::2]
            count = len(names)
            self._pending.update(name.decode() for name in names)
            if numbers:
                self._last_number = int(numbers[-1])
        if monotonic() - self._touched_at > TOUCH_SECONDS:
            self._touched_at = monotonic()
            files = [f"file:{name}" for name in self._files.lasting()]
            for key in ("epoch", "log", "count", *files):
                self._store.later("EXPIRE", self._key(key), KEPT_SECONDS)

    async def _settle(self, name: str) -> bool:
        """Merge a file with the store. Return whether the local file was changed."""
        rule = self._files.rule(name)
        if rule is None:
            self._pending.discard(name)
            return False
        async with self._locks[rule.folder]:
            self._pending.add(name)  # Until it is merged.
            try:
                was_changed = await self._merge(rule, name)
            except NotShared as problem:
                self._files.report(f"{name} is not shared with other replicas: {problem}")
                was_changed = False
            except OSError as problem:
                self._files.report(f"{name} is not shared with other replicas for now: {problem}")
                return False
            self._pending.discard(name)
            return was_changed

    async def _merge(self, rule: Rule, name: str) -> bool:
        keys = [self._key("log"), self._key("file", name), self._key("count"), self._key("epoch")]
        number, theirs = await self._store.run(_FIND, keys[:2], [name])
        was_changed = False
        for _ in range(ATTEMPTS):
            changed, mine = await asyncio.to_thread(self._files.meet, rule, name, theirs)
            was_changed = was_changed or changed
            if mine is None:
                return was_changed
            words = [name, int(number), mine, KEPT_SECONDS, MAX_FILES]
            written, number, theirs = await self._store.run(_PUT, keys, words)
            if int(written) < 0:
                raise NotShared(f"the store has {MAX_FILES} files")
            if int(written) > 0:
                self._store.tell("files")
                return was_changed
        raise OSError("other replicas change it all the time")

    def _notify(self, name: str) -> None:
        for changed in self._listeners.get(name.partition("/")[0], ()):
            changed()

    def _key(self, *parts: str) -> str:
        return self._store.key("files", *parts)
