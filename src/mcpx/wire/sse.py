"""Server-sent events into bytes and back, under the same promises as `wire.framing`."""

import re
from collections.abc import Callable
from typing import NamedTuple

from mcpx.wire.framing import BOM, HEAD, Outlet

__all__ = ["SseEvent", "SseReader", "sse_frame"]


class SseEvent(NamedTuple):
    """One server-sent event. `data` is None when it had only an id or a retry; `id` is that event's own."""

    data: bytes | None
    event: str
    id: str | None
    retry: int | None


class SseReader:
    """Splits a byte stream into events. An event that the stream breaks off is dropped, as browsers do."""

    __slots__ = (
        *("_cr", "_data", "_event", "_id", "_kept", "_limit", "_out", "_partial", "_retry", "_size"),
        *("_beginning", "_skipped", "_start"),
    )

    def __init__(
        self, on_event: Callable[[SseEvent], None], *, limit: int, on_skipped: Callable[[int, str, bytes], None]
    ) -> None:
        self._out = Outlet(on_event, on_skipped)
        self._limit = limit
        self._kept = bytearray()  # the line so far
        self._cr = False  # the last chunk ended with \r: a \n that follows belongs to it
        self._start: bytes | None = b""  # what may be a byte order mark; None once that is settled
        self._skipped = 0  # bytes of the present event when it is over the limit, else 0
        self._partial = False  # ... and its present line is not empty
        self._beginning = b""  # ... and what its data began with
        self._clear()

    def _clear(self) -> None:
        self._size = 0
        self._data: bytes | bytearray | None = None
        self._event = ""
        self._id: str | None = None
        self._retry: int | None = None

    def feed(self, data: bytes) -> None:
        if self._start is not None:
            data = self._start + data
            if len(data) < len(BOM) and BOM.startswith(data):
                self._start = data
                return
            self._start = None
            data = data.removeprefix(BOM)
        if self._cr and data.startswith(b"\n"):
            data = data[1:]
            self._cr = False
        if not data:
            return
        self._cr = data.endswith(b"\r")
        lines = data.splitlines()
        tail = b"" if data.endswith((b"\n", b"\r")) else lines.pop()
        for line in lines:
            self._line(line)
        if tail:
            self._keep(tail)
        self._out.settle()

    def _keep(self, piece: bytes) -> None:
        if not self._skipped:
            self._kept += piece
            if self._kept.startswith(b":"):
                self._kept = bytearray(b":")  # a comment, of any length
            elif self._size + len(self._kept) > self._limit:
                self._skip(self._size + len(self._kept), self._kept[: 2 * HEAD])
        else:
            self._skipped += len(piece)
        self._partial = True

    def _skip(self, size: int, line: bytes | bytearray) -> None:
        self._beginning = bytes(self._data or line.removeprefix(b"data:").lstrip())[:HEAD]
        self._skipped, self._kept = size, bytearray()
        self._clear()

    def _line(self, line: bytes) -> None:
        if self._kept:
            self._kept += line
            line, self._kept = bytes(self._kept), bytearray()
        partial, self._partial = self._partial, False
        if self._skipped:
            self._skipped += len(line)
            if not line and not partial:
                size, self._skipped = self._skipped, 0
                self._out.skipped(size, f"an event of more than {self._limit} bytes", self._beginning)
        elif not line:
            self._dispatch()
        elif not line.startswith(b":"):
            self._size += len(line)
            if self._size > self._limit:
                self._skip(self._size, line[: 2 * HEAD])
            else:
                self._field(line)

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            if self._data is None:
                self._data = value
            else:
                # Joined at once: many empty lines must not become many objects.
                self._data = self._data if isinstance(self._data, bytearray) else bytearray(self._data)
                self._data += b"\n" + value
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 16:
            self._retry = int(value)

    def _dispatch(self) -> None:
        data, id, retry, event = self._data, self._id, self._retry, self._event
        self._clear()
        if data is None and id is None and retry is None:
            return
        self._out.message(SseEvent(None if data is None else bytes(data), event or "message", id, retry))


def sse_frame(data: bytes, *, id: str | None = None, event: str | None = None, retry: int | None = None) -> bytes:
    """One server-sent event as it goes out. An id or event name with a line break in it is a ValueError."""
    head = b""
    for name, value in ((b"id", id), (b"event", event)):
        if value is not None:
            if any(c in value for c in "\r\n\0"):
                raise ValueError(f"a line break in an SSE {name.decode()}")
            head += b"%b: %b\n" % (name, value.encode("utf-8", "replace"))
    if retry is not None:
        head += b"retry: %d\n" % retry
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(re.split(rb"\r\n|\r|\n", data))
    return b"%bdata: %b\n\n" % (head, data)
