"""One peer's share of what all have in common: turns of the event loop on the way in, memory on the
way out.

Promise, for whoever reads a socket or a pipe through an `Intake`: whatever the peer pours in, and
however many small things are in it, each turn of the loop gives it a small piece; what is left
waits, bounded, while nothing more is read. All who have more than a piece share one slice of each
turn, so that many of them take no more than one. An ordinary message is handed on at once, for the
price of two looks at the clock.

Promise, for whoever writes through an `Outflow`: a peer that does not read, or reads a few bytes
now and then, holds a bounded amount of memory for a bounded time, and all such peers together hold
no more than a `Budget`. Then it is cut.

No promise: that one piece is worked off in time; the protocols above bound what a single message
may cost.
"""

import asyncio
import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakKeyDictionary

__all__ = ["Budget", "Intake", "Outflow"]

log = logging.getLogger(__name__)

clock = time.perf_counter

FORGETFUL: Final = (3, 12) <= sys.version_info < (3, 12, 9) or (3, 13) <= sys.version_info < (
    3,
    13,
    2,
)
"""Pythons in which `writelines` of asyncio never says that the peer does not read
(CVE-2024-12254)."""
SLICE: Final = 0.001
"""Seconds of a turn for all who have more than one piece."""
LONG: Final = 0.0005
"""Seconds after which a piece was a long one: its peer waits in line with the next."""
TOO_LONG: Final = 0.01
"""Seconds after which the line rests for as long as it took: so those in it have half of the time
at most, even with messages that cannot be cut into pieces."""
SHORT: Final = 0.0001
"""Seconds below which the next piece may be larger."""
SMALLEST: Final = 256
FIRST: Final = 4096
LARGEST: Final = 65536
"""Bytes of a piece: the smaller, the more work there was in the last one."""
READ_AHEAD: Final = 65536
"""Bytes that are read, not worked off, from a peer that has to wait: the end of its connection is
seen behind them."""

MOST_WAITING: Final = 16 * 2**20
"""Bytes that may wait for one peer when another message comes to it."""
LEAST_TAKEN: Final = 65536
"""Bytes a peer for which something waits has to take in the time it is given."""


class Readable(Protocol):
    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool: ...

    def close(self) -> None: ...


class _Line:
    """Those with more than one piece, in turn. One for each loop."""

    __slots__ = ("_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Intake] = deque()

    def join(self, intake: "Intake") -> None:
        if not self._waiting:
            self._loop.call_soon(self._turn)
        self._waiting.append(intake)

    def _turn(self) -> None:
        began = clock()
        while self._waiting:
            intake = self._waiting[0]
            more = intake.work()
            # not before: whoever joins meanwhile must not ask for a second turn
            self._waiting.popleft()
            if more:
                self._waiting.append(intake)
            if clock() - began > SLICE:
                break
        if self._waiting:
            took = clock() - began
            if took > TOO_LONG:
                self._loop.call_later(took, self._turn)
            else:
                self._loop.call_soon(self._turn)


_lines: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Line]" = WeakKeyDictionary()


def _unheard(data: bytes) -> None:
    """What a peer that is gone has sent."""


class Intake:
    """What one peer sends, on its way to `feed`, which gets the same bytes in the same order in
    pieces of any size."""

    __slots__ = (
        *(
            "_at",
            "_feed",
            "_held",
            "_in_line",
            "_largest",
            "_line",
            "_paused",
            "_piece",
            "_read_ahead",
            "_rest",
        ),
        *("_slow", "_source"),
    )

    def __init__(
        self, feed: Callable[[bytes], None], *, largest: int = LARGEST, read_ahead: int = READ_AHEAD
    ) -> None:
        """`largest`: bytes of a piece; for protocols in which few bytes can be much work.
        `read_ahead`: bytes that are read while it is held; with none the end of the stream is not
        seen before all of it was worked off."""
        self._feed = feed
        self._source: Readable | None = None
        self._largest = largest
        self._read_ahead = read_ahead
        self._piece = min(largest, FIRST)
        self._rest = b""
        self._at = 0  # of the rest, the first byte that is not worked off
        self._held = False
        self._paused = False
        self._slow = (
            False  # its last piece took long: it waits in line, though it has little to say
        )
        self._in_line = False
        self._line: _Line | None = None

    def read_from(self, source: Readable) -> None:
        """What to pause while there is more than can be worked off."""
        self._source = source

    @property
    def waiting(self) -> int:
        """Bytes that are read but not worked off."""
        return len(self._rest) - self._at

    def take(self, data: bytes) -> None:
        """What was read. As much of it as is little work is handed on at once, the rest in line
        with others."""
        if self._rest or self._held or self._slow:
            self._put(data)
            return
        began = clock()
        if len(data) <= self._piece:
            self._feed(data)
            if clock() - began > LONG:
                self._slow = True
            return
        self._rest, self._at = data, 0
        while self._rest and not self._held and clock() - began < LONG:
            self._step()
        if self._rest:
            self._wait()

    def hold(self, held: bool) -> None:
        """Whether `feed` wants nothing for the moment."""
        if held is self._held:
            return
        self._held = held
        if held:
            if self._rest:
                self._pause(self.waiting >= self._read_ahead)
        elif self._rest:
            self._queue()
        else:
            self._pause(False)

    def clear(self) -> None:
        """Nothing of it is wanted any more."""
        self._rest, self._at = b"", 0

    def end(self) -> None:
        """The peer is gone."""
        self.clear()
        self._feed = _unheard

    def let_go(self) -> bytes:
        """Somebody else reads from here on: what was read and not worked off."""
        rest = self._rest[self._at :]
        self.clear()
        self._pause(False)
        self._source = None
        return rest

    def _put(self, data: bytes) -> None:
        self._rest = self._rest[self._at :] + data if self._rest else data
        self._at = 0
        self._wait()

    def _wait(self) -> None:
        if self._held:
            self._pause(self.waiting >= self._read_ahead)
        else:
            self._pause(True)
            self._queue()

    def _queue(self) -> None:
        if not self._in_line:
            line = self._line
            if line is None:
                loop = asyncio.get_running_loop()
                line = _lines.get(loop)
                if line is None:
                    line = _lines[loop] = _Line(loop)
                self._line = line
            self._in_line = True
            line.join(self)

    def work(self) -> bool:
        """For the line: one piece. Whether there is more."""
        if self._rest and not self._held:
            try:
                self._step()
            except Exception:
                log.exception("what a peer sent could not be worked off")
                self.clear()
                if self._source is not None:
                    self._source.close()
        if self._rest and not self._held:
            return True
        self._in_line = False
        self._pause(self._held and self.waiting >= self._read_ahead)
        return False

    def _step(self) -> None:
        rest, at = self._rest, self._at
        piece = rest[at : at + self._piece]
        if at + len(piece) < len(rest):
            self._at = at + len(piece)
        else:
            self._rest, self._at = b"", 0
        began = clock()
        self._feed(piece)
        took = clock() - began
        if took > LONG:
            self._slow = True
            self._piece = max(SMALLEST, self._piece // 2)
        elif took < SHORT:
            self._slow = False
            self._piece = min(self._largest, self._piece * 2)

    def _pause(self, paused: bool) -> None:
        if (
            paused is not self._paused
            and self._source is not None
            and not self._source.is_closing()
        ):
            self._paused = paused
            self._source.pause_reading() if paused else self._source.resume_reading()


class Budget:
    """The bytes that may wait for all peers of one kind together. Beyond it whoever has most
    waiting is cut."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._holders: set[Outflow] = set()
        self.total = 0

    def hold(self, flow: "Outflow", held: int) -> None:
        self.total += held - flow.held
        flow.held = held
        if held:
            self._holders.add(flow)
        else:
            self._holders.discard(flow)
        if self.total > self._most:
            max(self._holders, key=lambda holder: holder.held).cut(
                "it does not read, and too much waits for it"
            )


class Outflow:
    """What one peer is sent. `write` never waits; whoever has much to say asks for `congested` or
    waits in `drain`."""

    __slots__ = (
        "_budget",
        "_since",
        "_taken",
        "_transport",
        "_waiters",
        "_written",
        "congested",
        "held",
        "why",
    )

    def __init__(self, transport: asyncio.WriteTransport, budget: Budget | None = None) -> None:
        self._transport = transport
        self._budget = budget
        self._written = 0
        self._taken = 0
        self._since: float | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.congested = False
        self.held = 0
        """Bytes counted in the budget."""
        self.why = ""
        """Why it was cut."""

    @property
    def waiting(self) -> int:
        """Bytes that the peer has not taken yet."""
        return self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)
        if self.congested:
            self._count(len(data))

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def write_both(self, data: bytes, more: bytes) -> None:
        """Two buffers at once, without copying them together."""
        self._written += len(data) + len(more)
        if FORGETFUL:
            self._transport.write(data)
            self._transport.write(more)
        else:
            self._transport.writelines((data, more))
        if self.congested:
            self._count(len(data) + len(more))

    def _count(self, latest: int) -> None:
        waiting = self.waiting
        if waiting - latest > MOST_WAITING:
            self.cut("it does not read what it is sent")
        elif self._budget is not None:
            self._budget.hold(self, waiting)

    async def drain(self) -> None:
        """Wait until the buffer is below its mark, or the connection is gone."""
        while self.congested and not self._transport.is_closing():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def pause(self) -> None:
        """The transport's `pause_writing`."""
        self.congested = True

    def resume(self) -> None:
        """The transport's `resume_writing`, or its end."""
        self.congested = False
        if self.held and self._budget is not None:
            self._budget.hold(self, 0)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def sweep(self, now: float, timeout: float) -> None:
        """Called now and then: cut a peer that in `timeout` seconds took next to nothing of what
        waits for it."""
        waiting = self.waiting
        taken = self._written - waiting
        if not waiting or self._since is None or taken - self._taken >= LEAST_TAKEN:
            self._taken, self._since = taken, now
        elif now - self._since > timeout:
            self.cut("it does not read what it is sent")

    def cut(self, why: str) -> None:
        """End the connection; what waits for it is thrown away."""
        self.why = self.why or why
        if self.held and self._budget is not None:
            self._budget.hold(self, 0)
        self._transport.abort()
