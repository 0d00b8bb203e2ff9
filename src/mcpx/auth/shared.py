"""What replicas renew once for all of them: sign-ins, and tokens of client credentials.

Promised: while the store is there, one replica at a time renews a thing, and whoever waited finds
what it got. In the store a token can be read only by a replica that has the secret it was got with.
While the store is away each replica renews for itself.
"""

import hashlib
import hmac
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mcpx.auth.callback import PORTS
from mcpx.auth.vault import FOLDER, LARGEST, TURN, name_of
from mcpx.model.call import as_object
from mcpx.replicas.merge_rules import Whole
from mcpx.replicas.seals import Seals
from mcpx.replicas.store import Script, StoreDown
from mcpx.wire import codec

if TYPE_CHECKING:
    from mcpx.replicas.replicas import Replicas

HELD: Final = 4.0
"""Seconds after which another replica renews where the one that began to is gone."""
LONGEST: Final = 86_400.0
"""Seconds for which the store keeps a token that never ends, or much later."""
LARGEST_TOKEN: Final = 128 << 10

SIGN_INS: Final = Whole(
    FOLDER,
    re.compile(r"[0-9a-f]{32}\.json"),
    1_024,
    LARGEST,
    but=frozenset({name_of(PORTS)}),  # each replica has its own
    lock=lambda: TURN,
)

_GET = Script("return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])}")


@dataclass(frozen=True, slots=True)
class Kept:
    """A token that another replica got."""

    token: str = field(repr=False)
    life: float | None
    """Seconds from its beginning to its end; None: it has none."""
    left: float
    """Seconds until the store forgets it: its end, where it has one within a day."""


class Shared:
    def __init__(self, replicas: "Replicas") -> None:
        self._replicas, self._store = replicas, replicas.store

    @property
    def _in_reach(self) -> bool:
        return self._store.up and self._replicas.joined.is_set()

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncGenerator[None]:
        """While something is renewed."""
        if not self._in_reach:
            yield
            return
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:32]
        async with self._replicas.turns.turn(f"renew:{digest}", HELD, extended=True):
            yield

    # Sign-ins
    # ----------------------------------------------------------------------------------------------

    async def settle(self, key: str) -> None:
        """What is kept under a key of the vault is what the others have, and the other way
        round."""
        if self._replicas.files is not None:
            await self._replicas.files.settle(f"{FOLDER}/{name_of(key)}")

    async def renewed_for(self, key: str, seconds: float | None = None) -> bool:
        """Whether one was renewed lately because it was refused; with `seconds`: it was just now,
        and that counts for so long."""
        if not self._in_reach:
            return False
        place = self._store.key("renewed", name_of(key))
        try:
            if seconds is not None:
                await self._store.ask("SET", place, 1, "PX", int(seconds * 1000))
                return True
            return bool(await self._store.ask("EXISTS", place))
        except StoreDown:
            return False

    # Tokens of client credentials
    # ------------------------------------------------------------------------------

    def place(self, secret: str, *what: str) -> "Place":
        """Where the token is kept that was got with a secret; takes a moment, for a thread: a
        secret that is easily guessed is not to be found out from it."""
        about = codec.dump(list(what))
        salt = hashlib.sha256(b"mcpx client credentials " + about).digest()
        given = secret.encode(errors="surrogatepass")
        key = hashlib.scrypt(given, salt=salt, dklen=32, maxmem=64 * 2**20, n=2**14, r=8, p=1)
        return Place(
            hmac.digest(key, b"name", "sha256").hex()[:32],
            Seals(hmac.digest(key, b"key", "sha256")),
        )

    async def read(self, place: "Place") -> Kept | None:
        if not self._in_reach:
            return None
        try:
            sealed, left = await self._store.run(_GET, [self._store.key("token", place.name)])
        except StoreDown:
            return None
        where = place.name.encode()
        outer = None if not sealed else self._replicas.seals.decrypt(sealed, where)
        plain = None if outer is None else place.seals.decrypt(outer, where)
        if plain is None:
            return None
        about = as_object(codec.load(plain))
        life = about.get("life")
        return Kept(
            str(about.get("token")),
            life if isinstance(life, int | float) else None,
            int(left) / 1000,
        )

    async def write(self, place: "Place", token: str, life: float | None, left: float) -> None:
        if not self._in_reach or len(token) > LARGEST_TOKEN or left <= 0:
            return
        where = place.name.encode()
        sealed = self._replicas.seals.encrypt(
            place.seals.encrypt(codec.dump({"token": token, "life": life}), where), where
        )
        try:
            key = self._store.key("token", place.name)
            await self._store.ask("SET", key, sealed, "PX", max(1, int(min(left, LONGEST) * 1000)))
        except StoreDown:
            pass


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    seals: Seals = field(repr=False)
