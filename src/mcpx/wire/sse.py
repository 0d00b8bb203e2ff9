"""Server-sent events into bytes and back, under the same promises as `wire.framing`."""

import re
from collections.abc import Callable
from typing import NamedTuple

from mcpx.wire.framing import BOM, HEAD, Outlet, Splitter

__all__ = ["LONGEST_ID", "SseEvent", "SseReader", "sse_frame"]

LONGEST_ID = 1024
"""Bytes of an event's id; a longer one is dropped, for it would be kept, and sent back in a
header."""


class SseEvent(NamedTuple):
    """One server-sent event. `data` is None when it had only an id or a retry; `id` is that event's
    own."""

    data: bytes | None
    event: str
    id: str | None
    retry: int | None


class SseReader:
    """Splits a byte stream into events. An event that the stream breaks off is dropped, as browsers
    do."""

    __slots__ = (
        *(
            "_data",
            "_event",
            "_head",
            "_id",
            "_limit",
            "_lines",
            "_out",
            "_retry",
            "_size",
            "_skipping",
            "_start",
        ),
        "_told",
    )

    def __init__(
        self,
        on_event: Callable[[SseEvent], None],
        *,
        limit: int,
        on_skipped: Callable[[int, str, bytes], None],
    ) -> None:
        self._out = Outlet(on_event, on_skipped)
        self._limit = limit
        self._lines = Splitter(self._line, self._long, limit, any_end=True)
        self._start: bytes | None = b""  # what may be a byte order mark; None once that is known
        self._clear()

    def _clear(self) -> None:
        self._size = 0
        self._told = 0  # of it, bytes of data
        self._skipping = False  # the present event is over the limit: its lines are only counted
        self._head = b""  # ... and this is what its data began with
        self._lines.limit = self._limit
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
        self._lines.feed(data)
        self._out.reraise()

    @property
    def unfinished(self) -> int:
        """Bytes of data of an event that is not over."""
        if self._skipping:
            return self._size + self._lines.unfinished
        return self._told + (self._lines.unfinished if self._lines.starts_with(b"data") else 0)

    def _line(self, line: bytes) -> None:
        if not line:
            if self._size:  # else it ends nothing
                self._dispatch()
        elif not line.startswith(b":"):  # comments are free
            self._size += len(line)
            self._lines.limit = self._limit - self._size
            self._field(line)

    def _long(self, size: int, head: bytes) -> None:
        """A line that does not fit into the event any more."""
        if head.startswith(b":") and not self._skipping:
            return
        if not self._skipping:
            begin = self._data or head.removeprefix(b"data:").lstrip()
            self._head = bytes(begin[:HEAD])
            self._skipping, self._data = True, None
            self._lines.limit = 0
        self._size += size

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._told += len(line) + 2  # and its end
            if self._data is None:
                self._data = value
            else:
                # Joined at once: many empty lines must not become many objects.
                self._data = (
                    self._data if isinstance(self._data, bytearray) else bytearray(self._data)
                )
                self._data += b"\n" + value
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value and len(value) <= LONGEST_ID:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 16:
            self._retry = int(value)

    def _dispatch(self) -> None:
        data, id, retry, event = self._data, self._id, self._retry, self._event
        size, head, skipping = self._size, self._head, self._skipping
        self._clear()
        if skipping:
            self._out.skipped(size, f"an event of more than {self._limit} bytes", head)
        elif data is not None or id is not None or retry is not None:
            self._out.message(
                SseEvent(None if data is None else bytes(data), event or "message", id, retry)
            )


def sse_frame(
    data: bytes, *, id: str | None = None, event: str | None = None, retry: int | None = None
) -> bytes:
    """One server-sent event as it goes out. An id or event name with a line break in it is a
    ValueError."""
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
