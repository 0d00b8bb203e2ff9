"""What a server says outside of any call, in measure: log messages and the like may be many, and
each goes to many.

A server may say a good deal at once and then so much a second; what is more is left out and
counted. That a resource has changed is never left out: of several changes of one resource the
latest is told, a little later.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from mcpx.model.call import Json
from mcpx.wire import codec

log = logging.getLogger(__name__)

BURST, RATE = 500.0, 100.0
"""Messages at once, and a second."""
BURST_BYTES, RATE_BYTES = 4.0 * 2**20, 2.0**20
"""Bytes of them."""
COUNTED = 10.0
"""Seconds between two lines of the log that say how many were left out."""
LATE = 0.25
"""Seconds after which changes of resources are told that came too fast."""

Update = Callable[[Json, frozenset[str]], None]


class Chatter:
    def __init__(
        self, server: str, update: Update, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`update` tells whoever is subscribed that a resource has changed."""
        self._server = server
        self._update = update
        self._clock = clock
        self._messages, self._bytes = BURST, BURST_BYTES
        self._at = clock()
        self._left_out = 0
        self._said_at = float("-inf")
        self._late: dict[object, tuple[Json, frozenset[str]]] = {}
        """By URI. No more than there are subscriptions."""
        self._timer: asyncio.TimerHandle | None = None

    def admits(self, params: Json) -> bool:
        """Whether a message may be passed on."""
        if self._fits(params):
            return True
        self._left_out += 1
        if self._at - self._said_at >= COUNTED:
            self._said_at = self._at
            log.warning(
                "[%s] says too much at once: %d messages left out", self._server, self._left_out
            )
            self._left_out = 0
        return False

    def updated(self, params: Json, to: frozenset[str]) -> None:
        """A resource has changed: now, or together with what changes meanwhile."""
        if not self._late and self._fits(params):
            self._update(params, to)
            return
        uri = params.get("uri")
        before = self._late.pop(uri, None)
        self._late[uri] = (params, to if before is None else to | before[1])
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LATE, self._catch_up)

    def _catch_up(self) -> None:
        self._timer = None
        late, self._late = self._late, {}
        for params, to in late.values():
            self._update(params, to)

    def _fits(self, params: Json) -> bool:
        now = self._clock()
        passed, self._at = now - self._at, now
        self._messages = min(BURST, self._messages + passed * RATE)
        self._bytes = min(BURST_BYTES, self._bytes + passed * RATE_BYTES)
        if self._messages < 1 or self._bytes <= 0:
            return False
        try:
            size = len(codec.dump(params))
        except codec.Unencodable:
            return False  # nor could it be passed on
        if size > BURST_BYTES:
            return False
        self._messages -= 1
        self._bytes -= size
        return True

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._late.clear()
