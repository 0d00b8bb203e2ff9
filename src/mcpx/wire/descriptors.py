"""How many files and sockets this process may have open at once.

Promise: `raise_limit` lifts the soft limit towards the hard one, at most to `MOST`; a child started
inside `as_found` gets the limit that mcpx was started with (programs that walk over all possible
descriptors, or use `select`, count on a small one). Nothing here fails: where there is no such
limit, or it cannot be changed, things stay as they are.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Generator
from typing import TypeVar

try:
    import resource
except ImportError:  # Windows knows no such limit
    resource = None

T = TypeVar("T")

MOST = 65_536
FEW = 256
"""Below it a gateway soon has no room: each client takes one, each server three to five."""
SPARE = 32
"""So many must be free below the old limit before it is put back for the moment of a start."""

_found: int | None = None
"""The soft limit at the start, once it was raised."""


def soft_limit() -> int:
    """How many may be open at once."""
    if resource is None:
        return MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int:
    """Raise the soft limit as far as is sensible and allowed; what it is now."""
    global _found
    if resource is None:
        return MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    while soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            wanted //= 2  # macOS has a further limit of its own, and does not tell
        else:
            _found = soft if _found is None else _found
            break
    return soft_limit()


@contextlib.contextmanager
def as_found() -> Generator[None]:
    """In it, the soft limit is what it was at the start, for a child to inherit; nothing may be
    awaited in it. When so many are open that starting would fail, the limit stays: see
    `give_back`."""
    if resource is None or _found is None or _in_use() + SPARE > _found:
        yield
        return
    raised = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_found, raised[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, raised)


def give_back(pid: int) -> None:
    """The old limit for a child that was just started without it. Where it must be done so, the
    child may have seen the raised one for a moment."""
    prlimit = getattr(resource, "prlimit", None)  # Linux
    if resource is None or prlimit is None or _found is None:
        return
    with contextlib.suppress(OSError, ValueError):
        soft, hard = prlimit(pid, resource.RLIMIT_NOFILE)
        if soft != _found:
            prlimit(pid, resource.RLIMIT_NOFILE, (min(_found, hard) if hard >= 0 else _found, hard))


def ran_out(error: BaseException | None) -> bool:
    """Whether it failed because no more may be open, here or on the whole machine."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class Reserve:
    """A few descriptors put aside, so that something can still be looked at when no more may be
    opened."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: list[int] = []
        self._turn = threading.Lock()

    def fill(self) -> None:
        with self._turn, contextlib.suppress(OSError):
            while len(self._held) < self._size:
                self._held.append(os.open(os.devnull, os.O_RDONLY))

    def use(self, opening: Callable[[], T]) -> T:
        """What `opening` gives, at the cost of the reserve if need be."""
        while True:
            try:
                return opening()
            except OSError as error:
                with self._turn:
                    if not ran_out(error) or not self._held:
                        raise
                    os.close(self._held.pop())


def _in_use() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return MOST
