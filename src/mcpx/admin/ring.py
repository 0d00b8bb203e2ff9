"""The latest events, shared by all who listen: numbered, bounded in number and in bytes.

Each event is made into bytes once. Whoever listens remembers only how far they have read, so that a
slow one costs nothing: when what it needs next is gone, it is told so.
"""

import secrets
from collections import deque
from itertools import islice

from mcpx.admin.shapes.common import Told
from mcpx.admin.streaming import frame

MOST = 1_000
MOST_BYTES = 1 << 20


class Ring:
    def __init__(self) -> None:
        self.run = secrets.token_hex(4)
        """Which run of the gateway the numbers belong to."""
        self.last: int = 0
        self._frames: deque[bytes] = deque()
        self._size = 0

    def id(self, number: int) -> str:
        return f"{self.run}-{number}"

    def number(self, id: str) -> int | None:
        """Of an event of this run that may be resumed after; None: what came since is not known."""
        run, _, number = id.partition("-")
        if run != self.run or not (number.isascii() and number.isdigit()) or len(number) > 15:
            return None
        return int(number) if self.knows(int(number)) else None

    def knows(self, number: int) -> bool:
        """Whether all that came after it is here."""
        return self.last - len(self._frames) <= number <= self.last

    def add(self, event: str, data: Told) -> None:
        self.last += 1
        self._append(frame(event, data, self.id(self.last)))

    def _append(self, made: bytes) -> None:
        self._frames.append(made)
        self._size += len(made)
        while len(self._frames) > MOST or self._size > MOST_BYTES:
            self._size -= len(self._frames.popleft())

    def after(self, number: int, most: int = 64 << 10) -> tuple[int, bytes]:
        """What comes after a number, as much as is sent in one go, and up to where; ask `knows`
        first."""
        begin, size, some = len(self._frames) - (self.last - number), 0, list[bytes]()
        for made in islice(self._frames, begin, None):
            some.append(made)
            size += len(made)
            if size >= most:
                break
        return number + len(some), b"".join(some)

    def clear(self) -> None:
        """Nobody listened for long: what happened meanwhile is not known."""
        self.last += 1
        self._frames.clear()
        self._size = 0
