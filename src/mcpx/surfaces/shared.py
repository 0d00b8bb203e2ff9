"""What `auto` chose for clients without a session, the same at every replica (SUR-5, SCA-1).

Promised: a call at a replica that has not listed for this client goes by the last list that another
gave it, once that is written, which is behind. A later list with another outcome is heard of by
all: they forget what they had, and look again at the next call. On the store's return everybody
looks again, too, for news may have been missed; what was chosen while it was away is written then.
Without the store each replica chooses for itself, as alone.

What stands in the store is encrypted, lives for `LIFE`, and is at most `REMEMBERED` choices of each
replica. Sessions have their choice with them, wherever they go; they are none of this module's.
"""

import asyncio
import hashlib
from dataclasses import asdict
from importlib import import_module
from typing import Final

from mcpx.base.aio import Tasks
from mcpx.model.call import as_object
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import PATIENCE, StoreDown
from mcpx.surfaces.choices import REMEMBERED, Choice, Choices, read
from mcpx.wire import codec

LIFE: Final = 24 * 3_600.0
"""Seconds for which others find a choice."""
LOOKS: Final = 3
"""Looks for a choice that others change meanwhile."""
_TOPIC: Final = "choice"


class SharedChoices(Choices):
    def __init__(self, replicas: Replicas) -> None:
        super().__init__()
        self._seals = replicas.seals
        self._store = replicas.store
        self._owners: dict[str, str] = {}
        """Who has no session, by what it is called in the store."""
        self._missed: set[str] = set()
        """Names of those who were shown something elsewhere while it was being looked for here, or
        chosen."""
        self._mine: dict[str, bool] = {}
        """Who was listed for here, and whether the store was told."""
        self._joined = asyncio.Event()
        self._tasks = Tasks("choices")
        self._tasks.start(self._join(replicas.joined), apart=True)

    async def _join(self, joined: asyncio.Event) -> None:
        await joined.wait()
        await asyncio.to_thread(
            import_module, "cryptography.hazmat.primitives.ciphers.aead"
        )  # 50 ms
        self._store.hear(_TOPIC, self._heard)
        self._store.on_return(self._returned)
        self._joined.set()

    async def _returned(self, fresh: bool) -> None:
        for key in list(self._owners.values()):
            choice = self._made.get(key)
            if key in self._mine and choice is not None and (fresh or not self._mine[key]):
                self._write(key, choice, first=self._mine[key])
            else:
                self.forget(key)

    def _heard(self, news: bytes) -> None:
        """Somebody was shown something by another replica."""
        name, _, told = news.decode(errors="replace").partition(":")
        key = self._owners.get(name)
        if key is None:
            return
        known = self._made.get(key)
        if known is None:
            self._missed.add(name)
        elif _told(known) != told:
            self.forget(key)

    def keep(self, key: str, choice: Choice, *, everywhere: bool = False) -> None:
        if self._missed and (name := _name(key)) in self._missed:
            self._missed.discard(name)
            if not everywhere:
                return  # the next call looks for what was shown meanwhile
        super().keep(key, choice, everywhere=everywhere)
        if everywhere:
            self._owners[_name(key)] = key
            self._write(key, choice)

    def _write(self, key: str, choice: Choice, *, first: bool = False) -> None:
        """`first`: unless another replica wrote one."""
        self._mine[key] = told = self._joined.is_set() and self._store.up
        if told:
            name = _name(key)
            where = self._store.key("choice", name)
            sealed = self._seals.encrypt(codec.dump(asdict(choice)), where.encode())
            self._store.later(
                "SET", where, sealed, "PX", int(LIFE * 1000), *(("NX",) if first else ())
            )
            self._store.tell(_TOPIC, f"{name}:{_told(choice)}".encode())

    def _drop(self, key: str) -> None:
        if self._mine.get(key):
            self._store.later("DEL", self._store.key("choice", _name(key)))
        self.forget(key)

    def forget(self, key: str) -> None:
        super().forget(key)
        self._mine.pop(key, None)
        name = _name(key)
        self._owners.pop(name, None)
        self._missed.discard(name)

    async def find(self, key: str) -> Choice | None:
        if not self._store.up:
            return self.of(key)
        name = _name(key)
        where = self._store.key("choice", name)
        if len(self._owners) < 2 * REMEMBERED:
            self._owners[name] = (
                key  # whatever is chosen at this call, a list at another replica counts more
            )
        try:
            async with asyncio.timeout(PATIENCE):
                await self._joined.wait()
            sealed = await self._store.ask("GET", where)
            for _ in range(LOOKS):
                if name not in self._missed:
                    break
                self._missed.discard(name)
                sealed = await self._store.ask("GET", where)
        except (StoreDown, TimeoutError):
            return self.of(key)
        if (here := self.of(key)) is not None:
            return here  # listed for meanwhile
        opened = None if sealed is None else self._seals.decrypt(sealed, where.encode())
        if opened is None:
            return None
        try:
            choice = read(as_object(codec.load(opened)))
        except codec.BadJson:
            return None
        if choice is not None:
            self.keep(key, choice)
        return choice

    async def close(self) -> None:
        await self._tasks.close()


def _name(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _told(choice: Choice) -> str:
    """Tells one choice for somebody from another."""
    return _name(f"{choice.mode} {choice.reason}")[:16]
