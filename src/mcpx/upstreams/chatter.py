"""Throttles notifications that an upstream server sends outside a call.

Log messages beyond the burst and rate limits are dropped and counted. Resource updates are merged
per URI and never dropped.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from mcpx.base.aio import TokenBucket
from mcpx.model.call import Json
from mcpx.wire import codec

log = logging.getLogger(__name__)

BURST, RATE = 500.0, 100.0
"""Messages at once, and per second."""
BURST_BYTES, RATE_BYTES = 4.0 * 2**20, 2.0**20
REPORT_SECONDS = 10.0
"""Between two log lines about dropped messages."""
LATE = 0.25
"""Seconds after which updates of resources are sent that came too fast."""

Update = Callable[[Json, frozenset[str]], None]


class Chatter:
    def __init__(
        self, server: str, update: Update, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`update` sends an update of a resource to its subscribers."""
        self._server = server
        self._update = update
        self._clock = clock
        self._messages = TokenBucket(BURST, RATE, clock)
        self._bytes = TokenBucket(BURST_BYTES, RATE_BYTES, clock)
        self._dropped = 0
        self._reported_at = float("-inf")
        self._late: dict[object, tuple[Json, frozenset[str]]] = {}
        """By URI. At most one per subscription."""
        self._timer: asyncio.TimerHandle | None = None

    def admits(self, params: Json) -> bool:
        """Whether a message may be sent to clients."""
        if self._fits(params):
            return True
        self._dropped += 1
        now = self._clock()
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            told = "[%s] says too much at once: %d messages left out"
            log.warning(told, self._server, self._dropped)
            self._dropped = 0
        return False

    def updated(self, params: Json, to: frozenset[str]) -> None:
        """A resource has changed. Sends the update now, or with others a little later."""
        if not self._late and self._fits(params):
            self._update(params, to)
            return
        uri = params.get("uri")
        if uri in self._late:
            to |= self._late.pop(uri)[1]
        self._late[uri] = params, to
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LATE, self._catch_up)

    def _catch_up(self) -> None:
        self._timer = None
        late, self._late = self._late, {}
        for params, to in late.values():
            self._update(params, to)

    def _fits(self, params: Json) -> bool:
        if self._messages.tokens < 1:
            return False
        try:
            size = len(codec.dump(params))
        except codec.Unencodable:
            return False
        return self._bytes.take(size) and self._messages.take()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._late.clear()
