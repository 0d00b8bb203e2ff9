"""Public names that were given to clients, the same at every replica (NAM-1, NAM-5, SCA-1).

Servers may come up in another order at each replica, so that the same tool could get two names.
Promised: a name that a client was shown at one replica is the name at all of them. Catalogs are
built and shown by what is known, and nobody waits for the store; what was shown is proposed to it,
each name atomically, and what was there first counts. Whoever proposed something else takes that
up, and tells its clients, within a second while the store is there. A name is kept for its owner as
long as its server is configured with the same prefix, whether it is there or not: another tool of
that name, which came up first elsewhere, gets a name of its own. Another naming begins anew; so
does a server with another prefix. At the start clients and calls wait for what is known, at most
`FIRST_WAIT`.

While the store is away each replica gives names by itself; on its return the first to propose wins.
A store that was emptied learns all that anybody knows.

Bounds: `MOST` names are shared, none longer than `LONGEST`; a name that no replica has had for
`LIFE` is let go.
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
from mcpx.core.source import Source
from mcpx.model.offer import Kind
from mcpx.model.slices import Work, in_slices
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script, StoreDown
from mcpx.wire import codec

log = logging.getLogger(__name__)

Owner = tuple[Kind, str, str]
"""Kind, server, native name."""

FIRST_WAIT: Final = 1.0
"""Seconds after the start for which calls wait for the names that others gave."""
MOST: Final = 100_000
LONGEST: Final = 1_024
"""Characters of a server's own name for a thing."""
LIFE: Final = 7 * 24 * 3_600.0
TOLD_EVERY: Final = 6 * 3_600.0
"""Seconds after which it is said again what is still had."""
TOGETHER: Final = 500
"""Names in one command."""
_PIECE: Final = 500
_TAG: Final = 16
_KINDS: Final[dict[bytes, Kind]] = {b"tools": "tools", b"prompts": "prompts"}

_PROPOSE = Script(
    """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local life, most, tags = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local function place(field, public) return string.match(string.sub(field, 17), '^(%a+):') .. ':' .. public end
local function drop(field)
  local public = redis.call('HGET', KEYS[1], field)
  redis.call('ZREM', KEYS[3], field)
  if public then
    redis.call('HDEL', KEYS[1], field)
    redis.call('HDEL', KEYS[2], place(field, public))
  end
end
for _, field in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now - life, 'LIMIT', 0, 1000)) do drop(field) end
local live = {}
for i = 4, 3 + tags do live[ARGV[i]] = true end
local count, answers, new = redis.call('HLEN', KEYS[1]), {}, 0
for i = 4 + tags, #ARGV, 2 do
  local field, public = ARGV[i], ARGV[i + 1]
  local name, holder = redis.call('HGET', KEYS[1], field), ''
  if name then
    redis.call('ZADD', KEYS[3], now, field)
  else
    local held = redis.call('HGET', KEYS[2], place(field, public))
    if held and live[string.sub(held, 1, 16)] then
      name, holder = '', held
    else
      name = public
      if held then drop(held) count = count - 1 end
      if count < most then
        redis.call('HSET', KEYS[1], field, public)
        redis.call('HSET', KEYS[2], place(field, public), field)
        redis.call('ZADD', KEYS[3], now, field)
        count, new = count + 1, new + 1
      end
    end
  end
  answers[#answers + 1] = name
  answers[#answers + 1] = holder
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, life) end
return {new, answers}
"""
)
"""What counts for each that is proposed: a name; or none, and who holds that which was proposed.
Who holds it counts only if its server is configured where the question comes from."""


class SharedNames:
    """`settled` and `held` are replaced, never changed: whoever builds a catalog in slices may hold
    on to them."""

    def __init__(
        self,
        replicas: Replicas,
        sources: Callable[[], Iterable[Source]],
        naming: Callable[[], Naming],
        given: Callable[[], Mapping[Owner, str]],
        catalogs: Callable[[], list[Catalog]],
        changed: Callable[[], None],
    ) -> None:
        """`given`: what this replica has shown; `catalogs`: what is found here now; `changed`:
        these are to be built anew, for other names count."""
        self.settled: dict[Owner, str] = {}
        """What counts everywhere."""
        self.held: dict[tuple[Kind, str], tuple[str, str]] = {}
        """Whose a name is, be it not there."""
        self._store, self._members = replicas.store, replicas.members
        self._sources, self._naming, self._given = sources, naming, given
        self._catalogs, self._changed = catalogs, changed
        self._proposed: dict[Owner, str] = {}
        """Shown to somebody, and not settled."""
        self._due = asyncio.Event()
        self._look = True
        """Whether the store has to be looked at."""
        self._edition = 0
        """Of the configuration."""
        self._looked = asyncio.Event()
        self._tasks = Tasks("names")
        self._tasks.start(self._follow(replicas.joined), apart=True)
        self.loading: asyncio.Task[None] | None = self._tasks.start(self._first(), apart=True)
        """What calls wait for at the start."""
        replicas.preparations.append(self._first)

    async def close(self) -> None:
        await self._tasks.close()

    async def _first(self) -> None:
        try:
            async with asyncio.timeout(FIRST_WAIT):
                await self._looked.wait()
        except TimeoutError:
            if self._store.up:
                log.warning("the names that other replicas gave are not known yet")
        finally:
            self.loading = None

    # What happens
    # ----------------------------------------------------------------------------------------------

    def show(self, catalog: Catalog) -> None:
        """From here on clients know these names."""
        new = {
            key: name
            for key, name in catalog.names().items()
            if key not in self.settled and len(key[2]) <= LONGEST
        }
        if new and len(self._proposed) + len(new) <= MOST:
            self._proposed.update(new)
            self._due.set()

    def forget(self, renamed: Iterable[str] | None) -> None:
        """The configuration is another one; names of these servers begin anew. None: all names
        do."""
        self._edition += 1
        gone = None if renamed is None else frozenset(renamed)

        def stays(server: str) -> bool:
            return gone is not None and server not in gone

        self.settled = {key: name for key, name in self.settled.items() if stays(key[1])}
        self.held = {place: owner for place, owner in self.held.items() if stays(owner[0])}
        self._proposed = {key: name for key, name in self._proposed.items() if stays(key[1])}
        self._look_again()

    def _look_again(self, number: int = 0) -> None:
        self._look = True
        self._due.set()

    async def _returned(self, fresh: bool) -> None:
        if fresh:
            known = {**self._given(), **self.settled}
            self._proposed |= {
                key: known[key] for key in islice(known, MOST) if len(key[2]) <= LONGEST
            }
        self._look_again()

    # Following the store
    # ---------------------------------------------------------------------------------------

    async def _follow(self, joined: asyncio.Event) -> None:
        await joined.wait()
        self._members.watch("names", self._look_again)
        self._store.on_return(self._returned)
        while True:
            try:
                async with asyncio.timeout(TOLD_EVERY):
                    await self._due.wait()
            except TimeoutError:
                for catalog in self._catalogs():
                    self._proposed |= {
                        key: name for key, name in catalog.names().items() if len(key[2]) <= LONGEST
                    }
            self._due.clear()
            try:
                await self._settle()
            except StoreDown:
                pass  # on its return everything is looked at

    async def _settle(self) -> None:
        edition, space = self._edition, self._space()
        if self._look:
            self._look = False
            try:
                settled, held = await self._known(space)
            except StoreDown:
                self._look = True
                raise
            if edition != self._edition:
                return  # which said that it is to be looked at again
            await self._take_up(settled, held)
            self._looked.set()
        if self._proposed and edition == self._edition:
            settled, held = dict(self.settled), dict(self.held)
            try:
                await self._propose(edition, space, settled, held)
            finally:
                if edition == self._edition:
                    await self._take_up(settled, held)

    async def _take_up(
        self, settled: dict[Owner, str], held: dict[tuple[Kind, str], tuple[str, str]]
    ) -> None:
        if (settled, held) != (
            self.settled,
            self.held,
        ):  # else nobody has to build anew what they build with these
            self.settled, self.held = settled, held
        for catalog in self._catalogs():
            if await in_slices(self._contradicting(catalog)):
                self._changed()
                return

    async def _known(
        self, space: "_Space"
    ) -> tuple[dict[Owner, str], dict[tuple[Kind, str], tuple[str, str]]]:
        settled: dict[Owner, str] = {}
        held: dict[tuple[Kind, str], tuple[str, str]] = {}
        cursor: Any = 0
        while True:
            cursor, found = await self._store.ask(
                "HSCAN", space.given, cursor, "COUNT", 4 * TOGETHER
            )
            for field, name in cast(Mapping[bytes, bytes], found).items():
                if (owner := space.owner(field)) is not None:
                    kind, server, native = owner
                    public = name.decode(errors="replace")
                    settled[owner] = public
                    held[kind, public] = (server, native)
            if not int(cursor):
                return settled, held

    async def _propose(
        self,
        edition: int,
        space: "_Space",
        settled: dict[Owner, str],
        held: dict[tuple[Kind, str], tuple[str, str]],
    ) -> None:
        while self._proposed and edition == self._edition:
            some = dict(islice(self._proposed.items(), TOGETHER))
            fields = {key: field for key in some if (field := space.field(key)) is not None}
            words = [word for key, field in fields.items() for word in (field, some[key])]
            if words:
                told = [int(LIFE * 1000), MOST, len(space.servers), *space.servers, *words]
                new, answers = await self._store.run(_PROPOSE, space.keys, told)
                self._take(space, list(fields), some, answers, settled, held)
                if new:
                    self._members.changed("names")
            if edition == self._edition:
                for key, name in some.items():
                    if self._proposed.get(key) == name:
                        del self._proposed[key]

    @staticmethod
    def _take(
        space: "_Space",
        keys: list[Owner],
        proposed: Mapping[Owner, str],
        answers: list[bytes],
        settled: dict[Owner, str],
        held: dict[tuple[Kind, str], tuple[str, str]],
    ) -> None:
        for key, name, holder in zip(keys, answers[::2], answers[1::2], strict=True):
            if name:
                public = name.decode(errors="replace")
                settled[key] = public
                held[key[0], public] = (key[1], key[2])
            elif (owner := space.owner(holder)) is not None:
                held[key[0], proposed[key]] = (owner[1], owner[2])

    def _contradicting(self, catalog: Catalog) -> Work[bool]:
        """Whether something is found there under another name than the one that counts."""
        settled, held = self.settled, self.held
        for index, ((kind, server, native), public) in enumerate(catalog.names().items()):
            if index % _PIECE == 0:
                yield
            mine = (server, native)
            if (
                settled.get((kind, server, native), public) != public
                or held.get((kind, public), mine) != mine
            ):
                return True
        return False

    def _space(self) -> "_Space":
        servers = {_tag(source): source.name for source in self._sources() if source.enabled}
        naming = hashlib.sha256(codec.dump(asdict(self._naming()))).hexdigest()[:_TAG]
        return _Space(
            tuple(self._store.key("names", naming, part) for part in ("given", "held", "had")),
            servers,
        )


class _Space:
    """Names of one naming, and the servers whose names count here."""

    def __init__(self, keys: tuple[str, ...], servers: Mapping[bytes, str]) -> None:
        self.keys = keys
        self.given = keys[0]
        self.servers = servers
        """By what they and their prefix are called in the store."""
        self._tags = {name: tag for tag, name in servers.items()}

    def field(self, owner: Owner) -> bytes | None:
        kind, server, native = owner
        tag = self._tags.get(server)
        return None if tag is None else tag + f"{kind}:{native}".encode("utf-8", "surrogatepass")

    def owner(self, field: bytes) -> Owner | None:
        server = self.servers.get(field[:_TAG])
        word, _, native = field[_TAG:].partition(b":")
        kind = _KINDS.get(word)
        if server is None or kind is None:
            return None
        return kind, server, native.decode("utf-8", "surrogatepass")


def _tag(source: Source) -> bytes:
    told = codec.dump([source.name, source.prefix])
    return hashlib.sha256(told).hexdigest()[:_TAG].encode()
