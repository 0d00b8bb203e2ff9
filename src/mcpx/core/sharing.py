"""The newest configuration of all replicas in their store, replaced by compare-and-set.

Each revision has a higher number than all before. If two replicas put a revision at the same time,
one of them fails. The texts are encrypted, because they may contain secrets. The entry does not
expire, because replicas may start from it (`--config store:`). The store also has the etags of the
last `MOST` revisions. `joint` applies the revisions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, cast

from mcpx.config.written import etag_of
from mcpx.core.config_files import MOST, Revision, Via
from mcpx.model.call import as_object
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script
from mcpx.wire import codec

TOPIC: Final = "config"


@dataclass(frozen=True, slots=True)
class Shared:
    """One revision of the configuration of all replicas."""

    number: int
    etag: str
    texts: Mapping[str, str] = field(repr=False)
    """By the names of the files, in the configuration's folder."""
    by: str = ""
    plan: str = ""
    via: Via = "api"
    author: str = ""
    message: str = ""
    first: bool = False
    """A replica has put the configuration that it started with into an empty store."""

    @property
    def made(self) -> Revision:
        """For the history of a replica that applies it."""
        return Revision(self.number, "", self.by, self.plan, self.via, self.author, self.message)


def etag_of_texts(texts: Mapping[str, str]) -> str:
    """The same for files in different folders, and with or without a byte order mark."""
    return etag_of({name: text.encode(errors="surrogatepass") for name, text in texts.items()})


_PUT = Script(
    """
if (redis.call('HGET', KEYS[1], 'number') or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'number', ARGV[2], 'etag', ARGV[3], 'sealed', ARGV[4])
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[3])
for at = 6, #ARGV, 2 do redis.call('ZADD', KEYS[2], 'NX', ARGV[at], ARGV[at + 1]) end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - ARGV[5])
redis.call('HINCRBY', KEYS[3], 'config', 1)
return 1
"""
)


class Sharing:
    """All methods raise `StoreDown`."""

    def __init__(self, replicas: Replicas) -> None:
        self._seals = replicas.seals
        self._store = replicas.store
        self._key = self._store.key(TOPIC)
        self._etags_key = self._store.key(TOPIC, "etags")

    async def head(self) -> tuple[int, str] | None:
        """Number and etag of the newest revision."""
        number, etag = await self._store.ask("HMGET", self._key, "number", "etag")
        return None if number is None or etag is None else (int(number), etag.decode())

    async def read(self) -> Shared | None:
        """The newest revision. None if it does not exist or has another key."""
        sealed: bytes | None = await self._store.ask("HGET", self._key, "sealed")
        plain = sealed and self._seals.decrypt(sealed, TOPIC.encode())
        if not plain:
            return None
        found = as_object(codec.load(plain))
        texts = {str(name): str(text) for name, text in as_object(found.get("texts")).items()}
        words = {
            key: str(found.get(key, "")) for key in ("etag", "by", "plan", "author", "message")
        }
        via = cast(Via, found.get("via", "api"))
        first = bool(found.get("first"))
        return Shared(int(found.get("number", 0)), texts=texts, via=via, first=first, **words)

    async def put(
        self, shared: Shared, instead_of: int | None, past: Iterable[tuple[int, str]] = ()
    ) -> bool:
        """Make it the newest revision, unless the newest is not `instead_of` (None: empty).

        `past`: numbers and etags of earlier revisions that an emptied store has forgotten. After
        `StoreDown` it may have been put, and is then found like that of another replica.
        """
        expected = "" if instead_of is None else instead_of
        sealed = self._seals.encrypt(codec.dump(asdict(shared)), TOPIC.encode())
        earlier = [word for number, etag in past for word in (number, etag)]
        words = [expected, shared.number, shared.etag, sealed, MOST, *earlier]
        keys = [self._key, self._etags_key, self._store.key("numbers")]
        done = bool(await self._store.run(_PUT, keys, words))
        if done:
            self._store.tell("numbers")
        return done

    async def was(self, etag: str) -> bool:
        """Whether an earlier revision had this etag."""
        return await self._store.ask("ZSCORE", self._etags_key, etag) is not None
