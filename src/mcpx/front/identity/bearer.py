"""Bearer tokens: those that the configuration names, and those of the store.

Promised: a request costs one digest and one look-up, however many tokens there are, and not even
that where the last one brought the same; what is compared are digests, or all of it, so time tells
nothing of a token. A name that both places have is the configuration's. A store that cannot be
trusted lets nobody in; one that cannot be read at the moment counts as it was.
"""

import hashlib
import hmac
import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from mcpx.config import Token
from mcpx.front.identity.badge import LONGEST, NEVER, NO_TOKEN, WRONG_TOKEN, Badge, Refusal, shown
from mcpx.front.identity.doors import Doors
from mcpx.front.identity.store import TokenStore, Unreadable
from mcpx.model.call import Json
from mcpx.wire.exchange import Exchange

log = logging.getLogger(__name__)

UNMET: Final = (b"\0", None)
"""No header has a zero byte."""


def moment(text: str) -> float:
    """A date, or a date and time, as seconds since 1970; without a zone it is UTC. Raises
    ValueError."""
    read = datetime.fromisoformat(text)
    return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()


class Bearer:
    def __init__(self, tokens: Iterable[Token], doors: Doors, store: TokenStore | None) -> None:
        self._doors = doors
        self._store = store
        self._named = [
            Badge(
                token.name,
                doors.of_token(token.name, token.profile),
                NEVER if token.expires is None else moment(token.expires),
                hashlib.sha256(token.token.encode()).digest(),
            )
            for token in tokens
        ]
        self._names = {badge.principal for badge in self._named}
        """Those that are the configuration's, until the next one is taken up."""
        self._kept: list[Badge] = []
        self._mark: object = None
        self._met: tuple[bytes, Badge | None] = UNMET
        """What the last one brought who was let in: nearly always what the next one brings."""
        self._good: dict[bytes, Badge] = {}
        self._ends = NEVER
        """When the first of those who are here must leave; it matters to nobody else."""
        self._gather()
        self._read_store()

    def __len__(self) -> int:
        return len(self._good)

    def admit(self, exchange: Exchange) -> Badge | Refusal:
        headers = exchange.headers
        raw = headers.first.get(b"authorization", b"")
        if not headers.more and hmac.compare_digest(raw, self._met[0]):
            badge = self._met[1]
        else:
            token = shown(headers)
            if token is None:
                return NO_TOKEN
            if len(token) <= LONGEST:
                badge = self._good.get(hashlib.sha256(token).digest())
            else:
                badge = None
            if badge is not None:
                self._met = (raw, badge)
        if badge is None:
            return WRONG_TOKEN
        if badge.expires != NEVER:
            if badge.expires <= time.time():
                return WRONG_TOKEN
            self._ends = min(self._ends, badge.expires)
        return badge

    def current(self, badge: Badge) -> Badge | None:
        found = self._good.get(badge.digest)
        if found is None or found.principal != badge.principal:
            return None
        if found.expires <= time.time():
            return None
        return found

    def expect(self, ends: float) -> None:
        self._ends = min(self._ends, ends)

    def knows(self, principal: str) -> bool:
        now = time.time()
        return any(
            badge.principal == principal and badge.expires > now for badge in self._good.values()
        )

    def keep_only(self, tokens: Iterable[Token]) -> None:
        """Those that the next configuration has too, as it has them; the rest comes when it is
        taken up."""
        coming = {
            (token.name, hashlib.sha256(token.token.encode()).digest()): token for token in tokens
        }
        staying: list[Badge] = []
        for badge in self._named:
            token = coming.get((badge.principal, badge.digest))
            if token is not None:
                staying.append(
                    badge
                    if token.expires is None
                    else replace(badge, expires=moment(token.expires))
                )
        self._named = staying
        self._gather()

    def look(self) -> bool:
        return self._read_store() or self._ends <= time.time()

    def looked(self, ends: float) -> None:
        self._ends = ends

    def metadata(self, resource: str) -> Json | None:
        return None

    def _read_store(self) -> bool:
        """Whether it has changed since it was last looked at; its tokens are taken up."""
        if self._store is None or (mark := self._store.mark()) == self._mark:
            return False
        try:
            found = self._store.read()
        except Unreadable as problem:
            log.error("no kept token is let in: %s", problem)
            found = []
        except OSError as problem:  # no descriptor left, say: the next look may do better
            log.warning("the kept tokens cannot be read: %s", problem)
            return False
        self._mark = mark
        for stored in found:
            if stored.name in self._names:
                log.warning(
                    "the token %r is in the config and in the store: the config's counts",
                    stored.name,
                )
        self._kept = [
            Badge(
                stored.name,
                self._doors.of_token(stored.name, stored.profile),
                NEVER if stored.expires is None else stored.expires,
                bytes.fromhex(stored.digest),
            )
            for stored in found
            if stored.name not in self._names
        ]
        self._gather()
        return True

    def _gather(self) -> None:
        self._met = UNMET
        self._good = {badge.digest: badge for badge in (*self._kept, *self._named)}
