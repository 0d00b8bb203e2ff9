"""What lets a modern client come back to a call that somebody was asked about.

A client of that era is asked by a result and calls again, with the answer and with a state it was
given. Ours is sealed by a key of this process (of all replicas, where there are some:
`shared_book`), holds for one call only (caller, profile, target, exact arguments), for a while, and
once.

A server that was reached then may ask something itself. Its state comes back with the next call,
which is the same call going on, not another: `Goings` know it by that state, for the same call
only, and once.
"""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Hashable

from mcpx.policy.approvals import Binding

PREFIX = "mcpx-ask."
OPEN_FOR = 300.0
"""Seconds a question can be answered, and a server's own question after it."""
MOST = 4_096
"""Questions that are open at a time; of more, the oldest of who has most of them is asked again."""
MOST_EACH = 64
"""Those of one caller; of more, the caller's oldest is asked again, and nobody else's."""


class _Open:
    """What may come back, once and for a while, by who is to bring it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, dict[Hashable, float]] = {}
        """Of each caller the oldest first. Nobody is here who has none."""
        self._number = 0

    def add(self, whose: str, what: Hashable) -> None:
        self.take(whose, what)
        now = self._clock()
        own = self._until.setdefault(whose, {})
        while own and (len(own) >= MOST_EACH or next(iter(own.values())) <= now):
            self._drop_oldest(whose)
        if self._number >= MOST:
            self._forget_old(now)
        while self._number >= MOST:
            self._drop_oldest(max(self._until, key=lambda each: len(self._until[each])))
        self._until.setdefault(whose, {})[what] = now + OPEN_FOR
        self._number += 1

    def take(self, whose: str, what: Hashable) -> bool:
        """Whether it was there, and not too old; it is there no more."""
        own = self._until.get(whose)
        until = None if own is None else own.pop(what, None)
        if own is not None and until is not None:
            self._number -= 1
            if not own:
                del self._until[whose]
        return until is not None and self._clock() < until

    def _forget_old(self, now: float) -> None:
        for whose in list(self._until):
            while (own := self._until.get(whose)) and next(iter(own.values())) <= now:
                self._drop_oldest(whose)

    def _drop_oldest(self, whose: str) -> None:
        own = self._until[whose]
        del own[next(iter(own))]
        self._number -= 1
        if not own:
            del self._until[whose]


class Seals:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._key = secrets.token_bytes(32)
        self._open = _Open(clock)
        """What was given out and not come back."""

    @staticmethod
    def ours(state: object) -> bool:
        return isinstance(state, str) and state.startswith(PREFIX)

    def seal(self, whose: str, binding: Binding) -> str:
        """`whose`: of which caller the call is."""
        nonce = secrets.token_bytes(16)
        self._open.add(whose, nonce)
        return PREFIX + base64.urlsafe_b64encode(nonce + self._mac(nonce, binding)).decode()

    def redeem(self, whose: str, state: str, binding: Binding) -> bool:
        """Whether it was given out for this very call; it is used up then."""
        try:
            raw = base64.urlsafe_b64decode(state.removeprefix(PREFIX).encode())
        except ValueError:
            return False
        nonce, mac = raw[:16], raw[16:]
        if not hmac.compare_digest(mac, self._mac(nonce, binding)):
            return False
        return self._open.take(whose, nonce)

    def _mac(self, nonce: bytes, binding: Binding) -> bytes:
        return hmac.digest(self._key, nonce + binding, "sha256")


class Goings:
    """Calls that were let through, and of which the server has asked something."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._known = _Open(clock)

    def goes_on(self, whose: str, binding: Binding, state: object) -> None:
        """The server wants to be called again, with that state."""
        self._known.add(whose, (binding, _digest(state)))

    def take(self, whose: str, binding: Binding, state: object) -> bool:
        """Whether this is such a call, which goes on now."""
        return self._known.take(whose, (binding, _digest(state)))


def _digest(state: object) -> bytes:
    try:
        return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).digest()
    except (ValueError, RecursionError):  # like nothing else
        return secrets.token_bytes(32)


def digest(binding: Binding, state: object) -> str:
    """Stands for one call that goes on with a state."""
    return hashlib.sha256(binding + _digest(state)).hexdigest()
