"""What lets somebody into the admin API: the token, one-time passes, sessions; and how often one
may guess.

Promise: nothing that lets in is kept as it is, only its digest, and is compared in constant time.
Passes and ids of sessions are 256 random bits, and cannot be guessed; a token that somebody chose
may be, so wrong ones are counted. A pass is good once and for ten minutes. A session ends with its
owner's word, after twelve hours without a request, and with the token it came from. Everything is
bounded in number.

Who holds the right token is not shut out by somebody who guesses: a long token is always let in, a
short one waits its turn, but only for attempts from its own address once it was let in from there;
sessions and passes are not limited at all, and `mcpx admin` gives a pass to whoever started the
gateway.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from mcpx.base.aio import TokenBucket
from mcpx.base.caching import Lru, TtlCache

LONG: Final = 22
"""Characters from which a token cannot be guessed by trying: 128 bits, if it is random."""
IDLE: Final = 12 * 3600.0
"""Seconds without a request after which a session ends; one that is still being answered counts."""
MOST_SESSIONS: Final = 100
PASS_LIFE: Final = 600.0
MOST_PASSES: Final = 16
MOST_ADDRESSES: Final = 1024

Clock = Callable[[], float]


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _digest_of(token: str | None) -> bytes | None:
    return None if token is None else _digest(token.encode("utf-8", "surrogateescape"))


def _browser_digest(id: bytes, secret: bytes) -> bytes:
    return _digest(id + b"\0" + secret)


class BrowserCredentials(NamedTuple):
    """Credentials of a browser's session. Each request needs both.

    Browsers send cookies to every port of a host. The secret is kept by the page, and only its
    origin can read it.
    """

    id: str
    """Value of the cookie."""
    secret: str
    """Value of the header X-Mcpx-Session."""


class Grant:
    """The requests in progress that one credential allowed. They end with the grant."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: set[asyncio.Event] = set()
        """One event for each request; it ends the request."""

    def end(self) -> None:
        for gone in self.open:
            gone.set()


class Session(Grant):
    __slots__ = ("digest", "used")

    def __init__(self, digest: bytes, now: float) -> None:
        super().__init__()
        self.digest = digest
        self.used = now


class Sessions:
    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._held: OrderedDict[bytes, Session] = OrderedDict()
        """The least recently used one first."""

    def __len__(self) -> int:
        return len(self._held)

    def begin_in_browser(self) -> BrowserCredentials:
        id, secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._begin(_browser_digest(id.encode(), secret.encode()))
        return BrowserCredentials(id, secret)

    def begin_with_token(self, token: str) -> Session:
        """Start the session of a script whose bearer token is the token of a login URL."""
        return self._begin(_digest(token.encode()))

    def _begin(self, digest: bytes) -> Session:
        """If there are too many sessions, the least recently used one ends."""
        while len(self._held) >= MOST_SESSIONS:
            self.end(next(iter(self._held.values())))
        session = Session(digest, self._clock())
        self._held[session.digest] = session
        return session

    def find_in_browser(self, id: bytes, secret: bytes) -> Session | None:
        return self._find(_browser_digest(id, secret))

    def find_with_token(self, token: bytes) -> Session | None:
        return self._find(_digest(token))

    def _find(self, digest: bytes) -> Session | None:
        """Look up by digest, so that the time of the lookup reveals nothing about the
        credentials."""
        session = self._held.get(digest)
        if session is None:
            return None
        now = self._clock()
        if now - session.used > IDLE and not session.open:
            self.end(session)
            return None
        self.touch(session)
        return session

    def touch(self, session: Session) -> None:
        if session.digest in self._held:
            session.used = self._clock()
            self._held.move_to_end(session.digest)

    def end(self, session: Session) -> None:
        self._held.pop(session.digest, None)
        session.end()

    def end_all(self) -> None:
        for session in list(self._held.values()):
            self.end(session)


class Passes:
    """Single-use tokens of login URLs."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._made: TtlCache[bytes, bool] = TtlCache(MOST_PASSES, PASS_LIFE, clock)

    def make(self) -> str:
        made = secrets.token_urlsafe(32)
        self._made.put(_digest(made.encode()), True)
        return made

    def spend(self, given: bytes) -> bool:
        """Whether it was valid. It is not valid afterwards."""
        return self._made.pop(_digest(given)) is not None

    def clear(self) -> None:
        self._made.clear()


class Attempts:
    """Wrong tokens, of each address and of all together."""

    EACH: Final = (10, 1 / 6)
    ALL: Final = (100, 1.0)
    """Burst, and further attempts per second."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._all = TokenBucket(*self.ALL, clock)
        self._each: Lru[str, TokenBucket] = Lru(MOST_ADDRESSES)
        self._known: Lru[str, bool] = Lru(MOST_ADDRESSES)
        """Addresses that once sent the right token. Attempts of other addresses do not delay
        them."""

    def wait(self, address: str) -> float:
        """Seconds until the next attempt."""
        place, wait = _place(address), 0.0
        if place in self._each:
            wait = self._each[place].seconds_until()
        if place in self._known:
            return wait
        return max(wait, self._all.seconds_until())

    def wrong(self, address: str) -> None:
        place = _place(address)
        bucket = self._each.get(place) or TokenBucket(*self.EACH, self._clock)
        self._each[place] = bucket
        for each in (bucket, self._all):
            each.take(min(1.0, each.tokens))

    def right(self, address: str) -> None:
        self._known[_place(address)] = True


@lru_cache(MOST_ADDRESSES)
def _place(address: str) -> str:
    """Somebody with IPv6 has 2^64 addresses at least."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return str(IPv6Address(int(found) >> 64 << 64))
    return str(found)


class Keys:
    """The token, and all that was handed out to whoever had it."""

    def __init__(self, token: str | None, clock: Clock = time.monotonic) -> None:
        """Without a token one is made that nobody is told: passes let in."""
        self.sessions = Sessions(clock)
        self.passes = Passes(clock)
        self.attempts = Attempts(clock)
        self.by_token = Grant()
        """Requests with the token, and requests without a credential."""
        self._set(token)

    def has(self, token: str | None) -> bool:
        """Whether it is the one there is; None: nobody was told of any."""
        return _digest_of(token) == self._given

    def _set(self, token: str | None) -> None:
        self._given = _digest_of(token)
        self._digest = self._given or secrets.token_bytes(32)
        self._long = token is None or len(token) >= LONG

    def take_up(self, token: str | None) -> None:
        """Another token ends all that came from the one before."""
        if self.has(token):
            return
        self._set(token)
        self.end_all()

    def end_all(self) -> None:
        """Whatever anybody was let in by is over."""
        self.sessions.end_all()
        self.passes.clear()
        self.by_token.end()

    def wait(self, token: bytes, address: str) -> float | None:
        """None: it is the right one. Else how long to wait before another attempt; 0: it was only
        wrong."""
        right = hmac.compare_digest(_digest(token), self._digest)
        wait = self.attempts.wait(address)
        if right and (self._long or not wait):
            self.attempts.right(address)
            return None
        if not right:
            self.attempts.wrong(address)
        return wait
