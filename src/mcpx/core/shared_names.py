"""Public names that are the same at every replica (NAM-1, NAM-5, SCA-1).

Servers may connect in another order at each replica, so that the same tool could get two names.
When a replica first shows a name, it claims the name in the store for its owner. The first claim
counts. A replica that loses a claim builds its catalogs with the claimed names and announces the
change, within a second while the store is available. A name belongs to its owner as long as the
owner's server is in the configuration with the same prefix, even if the server does not run. Other
servers, prefixes, or naming settings are another table in the store, and each replica claims again
the names that it has shown and that stay valid.

At the start, calls wait for the claimed names, at most `FIRST_WAIT` seconds. While the store is
away, each replica gives names alone. Then the first claim counts. The replicas fill an emptied
store with the names that they know. At most `MOST` names are shared, and a table is deleted `LIFE`
seconds after its last use.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any, Final, cast

from mcpx.base.aio import Tasks
from mcpx.catalog.catalog import Catalog
from mcpx.catalog.naming import Naming
from mcpx.core.generation import Source
from mcpx.model.offer import Kind
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script, StoreDown, Word
from mcpx.wire import codec

log = logging.getLogger(__name__)

Owner = tuple[Kind, str, str]
"""Kind, server, native name."""
Names = dict[Owner, str]

FIRST_WAIT: Final = 1.0
MOST: Final = 100_000
LONGEST: Final = 1_024
"""Characters of a native name."""
LIFE: Final = 7 * 24 * 3_600.0
TOUCH_EVERY: Final = 6 * 3_600.0
"""Seconds between two uses of the table without a new name."""
BATCH: Final = 500
"""Names in one command."""

_CLAIM = Script(
    """
local new = 0
for i = 3, #ARGV, 2 do
  local owner, name = ARGV[i], ARGV[i + 1]
  if redis.call('HEXISTS', KEYS[1], owner) == 0
    and redis.call('HLEN', KEYS[1]) < tonumber(ARGV[2])
    and redis.call('HSETNX', KEYS[2], name, owner) == 1 then
    redis.call('HSET', KEYS[1], owner, name)
    new = new + 1
  end
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[1]) end
return new
"""
)


class SharedNames:
    """`settled` and `held` are replaced, never changed, because a catalog is built in slices."""

    def __init__(
        self,
        replicas: Replicas,
        sources: Callable[[], Iterable[Source]],
        naming: Callable[[], Naming],
        given: Callable[[], Names],
        changed: Callable[[], None],
    ) -> None:
        """`given`: the names that this replica has shown. `changed` is called when other names
        count than before."""
        self.settled: Names = {}
        """The name of each owner."""
        self.held: dict[tuple[Kind, str], tuple[str, str]] = {}
        """The server and the native name of each name."""
        self._store, self._members = replicas.store, replicas.members
        self._sources, self._naming = sources, naming
        self._given, self._changed = given, changed
        self._table: list[str] = []
        """The keys of the table that has all names that are known here."""
        self._pending: dict[Owner, str] = {}
        """Names that were shown and not claimed yet."""
        self._due = asyncio.Event()
        self._loaded = asyncio.Event()
        self._tasks = Tasks("names")
        self._tasks.start(self._follow(replicas.joined), apart=True)
        self.loading: asyncio.Task[None] | None = self._tasks.start(self._load(), apart=True)
        """What calls wait for at the start."""
        replicas.preparations.append(self._load)

    async def close(self) -> None:
        await self._tasks.close()

    async def _load(self) -> None:
        try:
            async with asyncio.timeout(FIRST_WAIT):
                await self._loaded.wait()
        except TimeoutError:
            if self._store.up:
                log.warning("the names that other replicas gave are not known yet")
        finally:
            self.loading = None

    @property
    def is_settled(self) -> bool:
        """Whether all shown names are claimed and the claims of the other replicas are known."""
        return self.loading is None and not self._pending and not self._due.is_set()

    def show(self, catalog: Catalog) -> None:
        """Claim the names of a catalog that a client receives."""
        names = catalog.names()
        new = {owner: names[owner] for owner in names if owner not in self.settled}
        self._claim_soon(new)

    def forget(self, renamed: Iterable[str] | None) -> None:
        """The configuration has changed, and with it the names of these servers. None: all."""
        if renamed is None:
            self._set({})
            self._pending = {}
        else:
            gone = set(renamed)
            self._set({key: name for key, name in self.settled.items() if key[1] not in gone})
            self._pending = {k: name for k, name in self._pending.items() if k[1] not in gone}
        self._due.set()

    def _claim_soon(self, names: Names) -> None:
        for owner, name in islice(names.items(), MOST - len(self._pending)):
            if len(owner[2]) <= LONGEST:
                self._pending[owner] = name
        if self._pending:
            self._due.set()

    async def _returned(self, fresh: bool) -> None:
        if fresh:
            self._table = []
        self._due.set()

    async def _follow(self, joined: asyncio.Event) -> None:
        await joined.wait()
        self._members.watch("names", lambda _: self._due.set())
        self._store.on_return(self._returned)
        self._due.set()
        while True:
            try:
                async with asyncio.timeout(TOUCH_EVERY):
                    await self._due.wait()
            except TimeoutError:
                pass
            try:
                await self._sync()
            except StoreDown:
                pass  # `_returned` sets `_due`.

    async def _sync(self) -> None:
        """Claim what was shown, and read all claims."""
        self._due.clear()
        keys = self._keys()
        if keys != self._table:  # Another configuration, or an emptied store.
            servers = {source.name for source in self._sources() if source.enabled}
            known = {**self._given(), **self.settled}
            self._claim_soon({key: known[key] for key in known if key[1] in servers})
            self._table = keys
        claims, new = dict(self._pending), 0
        owners = list(claims)
        for start in range(0, max(len(owners), 1), BATCH):
            words: list[Word] = [int(LIFE * 1000), MOST]
            for owner in owners[start : start + BATCH]:
                words += _field(owner, claims[owner])
            new += await self._store.run(_CLAIM, keys, words)
        if new:
            self._members.changed("names")
        settled = await self._read(keys[0])
        if keys != self._keys():
            self._due.set()  # The configuration has changed.
            return
        for owner, name in claims.items():
            if self._pending.get(owner) == name:
                del self._pending[owner]
        known = {**claims, **self.settled}
        is_news = any(known.get(owner) != name for owner, name in settled.items())
        self._set(settled)
        self._loaded.set()
        if is_news:
            self._changed()

    def _set(self, settled: Names) -> None:
        self.settled = settled
        self.held = {
            (kind, name): (server, native) for (kind, server, native), name in settled.items()
        }

    async def _read(self, key: str) -> Names:
        settled: dict[Owner, str] = {}
        cursor: Any = 0
        while True:
            cursor, found = await self._store.ask("HSCAN", key, cursor, "COUNT", 4 * BATCH)
            for field, name in cast(Mapping[bytes, bytes], found).items():
                kind, server, native = _text(field).split("\0", 2)
                settled[cast(Kind, kind), server, native] = _text(name).partition("\0")[2]
            if not int(cursor):
                return settled

    def _keys(self) -> list[str]:
        """The table for the names of the current configuration."""
        sources = sorted((each.name, each.prefix or "") for each in self._sources() if each.enabled)
        told = codec.dump([asdict(self._naming()), sources])
        digest = hashlib.sha256(told).hexdigest()[:16]
        return [self._store.key("names2", digest, part) for part in ("owners", "names")]


def _field(owner: Owner, name: str) -> tuple[bytes, bytes]:
    return _raw("\0".join(owner)), _raw(f"{owner[0]}\0{name}")


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")
