"""What lets a modern client come back to a call that somebody was asked about.

A client of that era is asked by a result and calls again, with the answer and with a state it was given. Ours is sealed
by a key of this process, holds for one call only (caller, profile, target, exact arguments), for a while, and once.

A server that was reached then may ask something itself. Its state comes back with the next call, which is the same call
going on, not another: `Goings` know it by that state, for the same call only, and once.
"""

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from mcpx.policy.approvals import Binding

PREFIX = "mcpx-ask."
OPEN_FOR = 300.0
"""Seconds a question can be answered, and a server's own question after it."""
MOST = 1_024
"""Questions that are open at a time; of more the oldest are asked again."""


class Seals:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock
        self._open: OrderedDict[bytes, float] = OrderedDict()
        """What was given out and not come back, and until when it may."""

    @staticmethod
    def ours(state: object) -> bool:
        return isinstance(state, str) and state.startswith(PREFIX)

    def seal(self, binding: Binding) -> str:
        nonce, now = secrets.token_bytes(16), self._clock()
        while self._open and (len(self._open) >= MOST or next(iter(self._open.values())) <= now):
            self._open.popitem(last=False)
        self._open[nonce] = now + OPEN_FOR
        return PREFIX + base64.urlsafe_b64encode(nonce + self._mac(nonce, binding)).decode()

    def redeem(self, state: str, binding: Binding) -> bool:
        """Whether it was given out for this very call; it is used up then."""
        try:
            raw = base64.urlsafe_b64decode(state.removeprefix(PREFIX).encode())
        except ValueError:
            return False
        nonce, mac = raw[:16], raw[16:]
        if not hmac.compare_digest(mac, self._mac(nonce, binding)):
            return False
        until = self._open.pop(nonce, None)
        return until is not None and self._clock() < until

    def _mac(self, nonce: bytes, binding: Binding) -> bytes:
        return hmac.digest(self._key, nonce + binding, "sha256")


class Goings:
    """Calls that were let through, and of which the server has asked something."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: OrderedDict[tuple[Binding, bytes], float] = OrderedDict()

    def goes_on(self, binding: Binding, state: object) -> None:
        """The server wants to be called again, with that state."""
        now = self._clock()
        while self._known and (len(self._known) >= MOST or next(iter(self._known.values())) <= now):
            self._known.popitem(last=False)
        key = (binding, _digest(state))
        self._known.pop(key, None)
        self._known[key] = now + OPEN_FOR

    def take(self, binding: Binding, state: object) -> bool:
        """Whether this is such a call, which goes on now."""
        until = self._known.pop((binding, _digest(state)), None)
        return until is not None and self._clock() < until


def _digest(state: object) -> bytes:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).digest()
