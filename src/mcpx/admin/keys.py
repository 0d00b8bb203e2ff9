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
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

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
        """The one that was used last stands last."""

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
    """Tokens of login URLs."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._held: OrderedDict[bytes, float] = OrderedDict()
        """When each was made, the latest last."""

    def make(self) -> str:
        while len(self._held) >= MOST_PASSES:
            self._held.popitem(last=False)
        made = secrets.token_urlsafe(32)
        self._held[_digest(made.encode())] = self._clock()
        return made

    def spend(self, given: bytes) -> bool:
        """Whether it was good; it is not any more."""
        made = self._held.pop(_digest(given), None)
        return made is not None and self._clock() - made <= PASS_LIFE

    def clear(self) -> None:
        self._held.clear()


class _Bucket:
    """Fills up with time; each wrong guess takes one out."""

    __slots__ = ("_at", "_left", "_most", "_seconds")

    def __init__(self, most: int, seconds: float, now: float) -> None:
        self._most = most
        self._seconds = seconds
        self._left = float(most)
        self._at = now

    def wait(self, now: float) -> float:
        """Seconds until one may be taken."""
        self._left = min(self._most, self._left + (now - self._at) / self._seconds)
        self._at = now
        return 0.0 if self._left >= 1 else (1 - self._left) * self._seconds

    def take(self) -> None:
        self._left = max(self._left - 1, 0.0)


class Attempts:
    """Wrong guesses, of each address and of all together."""

    EACH: Final = (10, 6.0)
    """So many at once, and another one each so many seconds."""
    ALL: Final = (100, 1.0)

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._all = _Bucket(*self.ALL, clock())
        self._each: OrderedDict[str, _Bucket] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()
        """Addresses that once had the right token: what others do elsewhere does not hold them
        up."""

    def wait(self, address: str) -> float:
        now, place = self._clock(), _place(address)
        bucket = self._each.get(place)
        own = bucket.wait(now) if bucket is not None else 0.0
        return own if place in self._known else max(own, self._all.wait(now))

    def wrong(self, address: str) -> None:
        place = _place(address)
        bucket = self._each.pop(place, None) or _Bucket(*self.EACH, self._clock())
        bucket.take()
        self._all.take()
        self._each[place] = bucket
        while len(self._each) > MOST_ADDRESSES:
            self._each.popitem(last=False)

    def right(self, address: str) -> None:
        self._known[_place(address)] = None
        while len(self._known) > MOST_ADDRESSES:
            self._known.popitem(last=False)


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
