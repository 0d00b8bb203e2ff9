"""Standard input and output as a bridge uses them: what can be watched is watched, and never blocks.

Where a pipe cannot be watched (Windows), two threads carry it to and from a pair of sockets, which can.
"""

import os
import socket
import stat
import sys

CHUNK = 65536


def can_be_watched() -> bool:
    """Whether standard input can: not a file, nor the null device."""
    if os.name != "posix":
        return True
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(0)


class Standard:
    """Our own copies of 0 and 1; what would print by mistake goes to stderr, never between messages."""

    def __init__(self) -> None:
        self.source, self.sink = os.dup(0), os.dup(1)
        self._before: dict[int, bool] = {}
        os.dup2(2, 1)
        if os.name != "posix":
            self.source, self.sink = _carried(self.source, self.sink)
        self.watches_output = _is_stream(self.sink)
        """A file or a terminal is simply written."""
        for handle in (self.source, self.sink) if self.watches_output else (self.source,):
            self._before[handle] = os.get_blocking(handle)
            os.set_blocking(handle, False)

    def close(self) -> None:
        """Leave them as they were: others may hold them too."""
        for handle, blocking in self._before.items():
            try:
                os.set_blocking(handle, blocking)
            except OSError:
                pass
        for handle in (self.source, self.sink):
            try:
                os.close(handle)
            except OSError:
                pass


def _is_stream(handle: int) -> bool:
    mode = os.fstat(handle).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _carried(source: int, sink: int) -> tuple[int, int]:  # pragma: no cover - where pipes cannot be watched
    from threading import Thread

    here_in, there_in = socket.socketpair()
    here_out, there_out = socket.socketpair()

    def bring() -> None:
        while data := os.read(source, CHUNK):
            there_in.sendall(data)
        there_in.shutdown(socket.SHUT_WR)

    def take() -> None:
        while data := there_out.recv(CHUNK):
            os.write(sink, data)

    for work in (bring, take):
        Thread(target=work, daemon=True).start()
    sys.stdout.flush()
    return here_in.detach(), here_out.detach()
