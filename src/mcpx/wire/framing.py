"""Bytes into messages and back: lines and Content-Length blocks. Server-sent events (`wire.sse`)
are made of the same lines.

Promise: the same messages whatever the chunking, time linear in the input, memory bounded by the
limit and one chunk, and no input raises. What is too large or makes no sense is skipped and
reported once it is over, and reading goes on at the next thing that can be a message. An exception
from a callback is raised by `feed` after the chunk is worked off (the first one, if several): no
message is lost to its neighbour's bug.

No promise: that a message is JSON; that is the codec's business.
"""

import re
import time
from collections.abc import Callable
from typing import Generic, Literal, TypeVar

__all__ = ["BOM", "HEAD", "Framing", "MessageReader", "Outlet", "Patience", "Splitter", "frame"]

Framing = Literal["newline", "content-length"]

HEADER_LIMIT = 8192
"""Bytes of headers before a Content-Length body. Real ones have 20 to 80; it only stops endless
ones."""
HEAD = 256
"""Bytes of a skipped message that are reported with it: enough to tell which request it
answered."""
LONGEST_BODY = 2**32
"""A declared length beyond this is nonsense: nobody waits for its end, the next header is sought at
once."""

NOISE_TIME = 3600.0
"""Seconds in which `Patience` is lost: signs of life that come for days are none of the noise it is
about."""

BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb"[A-Za-z][A-Za-z0-9-]{0,63}")
_OURS = re.compile(rb"content-(?:length|type)[ \t]{0,16}:", re.IGNORECASE)


def frame(body: bytes, framing: Framing) -> bytes:
    """One message as it goes out."""
    if framing == "newline":
        return body + b"\n"
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Patience:
    """What a peer may send that is no message: so many bytes, and as many again with every message
    or every hour."""

    __slots__ = ("_began", "_most", "_size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._began = time.monotonic()

    def message(self) -> None:
        """One came."""
        self._size = 0

    def lost(self, arrived: int, pending: int) -> bool:
        """Whether with so many bytes more it is enough; `pending` of them and those before may yet
        be a message."""
        self._size += arrived
        if self._size - pending <= self._most:
            return False
        now = time.monotonic()
        lasted, self._began, self._size = now - self._began, now, pending
        return lasted < NOISE_TIME


T = TypeVar("T")


class Outlet(Generic[T]):
    """The callbacks of a reader, and the first exception one of them raised during a chunk."""

    __slots__ = ("_error", "_on_message", "_on_skipped")

    def __init__(
        self, on_message: Callable[[T], None], on_skipped: Callable[[int, str, bytes], None]
    ) -> None:
        self._on_message = on_message
        self._on_skipped = on_skipped
        self._error: Exception | None = None

    def message(self, body: T) -> None:
        try:
            self._on_message(body)
        except Exception as e:  # noqa: BLE001 - raised by `reraise`
            self._error = self._error or e

    def skipped(self, size: int, why: str, head: bytes = b"") -> None:
        try:
            self._on_skipped(size, why, head)
        except Exception as e:  # noqa: BLE001 - raised by `reraise`
            self._error = self._error or e

    def reraise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error


class Splitter:
    """Splits bytes into lines. A line that is too long is not kept but counted, and told with its
    first bytes."""

    __slots__ = ("_any_end", "_cr", "_head", "_kept", "_on_line", "_on_long", "_size", "limit")

    def __init__(
        self,
        on_line: Callable[[bytes], None],
        on_long: Callable[[int, bytes], None],
        limit: int,
        *,
        any_end: bool,
    ) -> None:
        """`any_end`: a line ends with CR, LF or both (server-sent events), else with LF, a CR
        before it left out. The callbacks must not raise."""
        self._on_line = on_line
        self._on_long = on_long
        self._any_end = any_end
        self._cr = False  # the last chunk ended with \r: a \n that follows belongs to it
        self._kept = bytearray()
        """The line so far; a bytearray because a list of one-byte chunks weighs forty times its
        content."""
        self._size = 0  # bytes of the present line when it is too long, else 0
        self._head = b""
        self.limit = limit
        """Bytes a line may have; it may be changed between two lines."""

    def feed(self, data: bytes) -> None:
        if self._any_end:
            if self._cr:
                data = data.removeprefix(b"\n")
            self._cr = data.endswith(b"\r")
            lines = data.splitlines()
            tail = lines.pop() if lines and not data.endswith((b"\n", b"\r")) else b""
        else:
            lines = data.split(b"\n")
            tail = lines.pop()
        for line in lines:
            self._end(line)
        if tail:
            self._keep(tail)

    @property
    def unfinished(self) -> int:
        """Bytes of the present line."""
        return self._size or len(self._kept)

    def starts_with(self, start: bytes) -> bool:
        """Of the present line."""
        return self._head.startswith(start) if self._size else self._kept.startswith(start)

    @property
    def head(self) -> bytes:
        """What the present line begins with."""
        return self._head if self._size else bytes(self._kept[:HEAD])

    def finish(self) -> None:
        """A last line without an end is a line too."""
        if self._size or self._kept:
            self._end(b"")

    def _keep(self, piece: bytes) -> None:
        if (
            not self._size and len(self._kept) + len(piece) <= self.limit + 1
        ):  # the last may yet be the \r of \r\n
            self._kept += piece
            return
        if not self._size:
            self._size, self._head = len(self._kept), bytes(self._kept[:HEAD])
            self._kept = bytearray()
        self._size += len(piece)
        if len(self._head) < HEAD:
            self._head += piece[: HEAD - len(self._head)]

    def _end(self, line: bytes) -> None:
        if self._size:
            self._keep(line)
            size, self._size = self._size, 0
            self._on_long(size, self._head)
            return
        if self._kept:
            self._kept += line
            line = bytes(self._kept)
            self._kept = bytearray()
        ended = line.endswith(b"\r")
        if len(line) - ended > self.limit:
            self._on_long(len(line), line[:HEAD])
        else:
            self._on_line(line[:-1] if ended else line)


class _Blocks:
    """Headers, a blank line, a body of the declared length. Nothing ends a body, so that after a
    wrong length the next header may begin in the middle of a line."""

    __slots__ = (
        "_head",
        "_kept",
        "_left",
        "_length",
        "_limit",
        "_lost",
        "_out",
        "_skipped",
        "_too_large",
    )

    def __init__(self, out: Outlet[bytes], limit: int) -> None:
        self._out = out
        self._limit = limit
        self._kept = bytearray()  # of a header line, or of the body
        self._left = 0  # bytes of the body still to come; 0: among the headers
        self._too_large = False  # the body is only counted, and its head kept
        self._head = 0  # bytes of complete header lines
        self._length: int | None = None
        self._lost: str | None = None  # why headers are being looked for
        self._skipped = 0

    @property
    def unfinished(self) -> int:
        """Bytes of the present body."""
        if not self._left:
            return 0
        return self._skipped if self._too_large else len(self._kept)

    @property
    def head(self) -> bytes:
        return bytes(self._kept[:HEAD]) if self._left else b""

    def feed(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            at = self._body(data, at) if self._left else self._line(data, at)

    def finish(self) -> None:
        size = self._skipped + self._head + (0 if self._too_large else len(self._kept))
        head = bytes(self._kept[:HEAD]) if self._left else b""
        self._skipped = self._head = self._left = 0
        self._kept = bytearray()
        if size:
            self._out.skipped(size, self._lost or "the stream ended inside a message", head)

    def _body(self, data: bytes, at: int) -> int:
        piece = data[at : at + self._left]
        self._left -= len(piece)
        if self._too_large:
            self._skipped += len(piece)
            self._kept += piece[: HEAD - len(self._kept)]
            if not self._left:
                size, self._skipped, self._too_large = self._skipped, 0, False
                head, self._kept = bytes(self._kept), bytearray()
                self._out.skipped(size, f"a body of more than {self._limit} bytes", head)
        elif self._left:
            self._kept += piece
        else:
            if self._kept:
                self._kept += piece
                body, self._kept = bytes(self._kept), bytearray()
            else:
                body = piece
            if not body.isspace():
                self._out.message(body)
        return at + len(piece)

    def _line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at) + 1
        self._kept += data[at:end] if end else data[at:]
        if len(self._kept) > HEADER_LIMIT:
            self._lose("a header line without end")
            self._trim()
        if end:
            if self._lost is not None:
                self._trim()
            line, self._kept = bytes(self._kept), bytearray()
            (self._header if self._lost is None else self._find_header)(line)
        return end or len(data)

    def _trim(self) -> None:
        # A real header line is short: whatever could be one is in the part that stays.
        if (extra := len(self._kept) - HEADER_LIMIT // 2) > 0:
            self._skipped += extra
            del self._kept[:extra]

    def _header(self, line: bytes) -> None:
        if not line.strip():
            if self._head:
                self._end_head(len(line))
            return
        name, colon, value = line.partition(b":")
        name, value = name.rstrip().lower(), value.strip()
        if not colon or not _TOKEN.fullmatch(name):
            self._lose("neither a header nor a body")
            self._find_header(line)
            return
        self._head += len(line)
        if self._head > HEADER_LIMIT:
            self._lose("too many headers")
        elif name == b"content-length":
            length = int(value) if value.isdigit() and len(value) < 16 else LONGEST_BODY + 1
            if length > LONGEST_BODY or self._length not in (None, length):
                self._lose("a bad Content-Length")
            else:
                self._length = length

    def _end_head(self, blank: int) -> None:
        if self._length is None:
            self._lose("headers without Content-Length")
            self._skipped += blank
            return
        self._left, self._length, self._head = self._length, None, 0
        self._too_large = self._left > self._limit

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why
        self._skipped += self._head
        self._head, self._length = 0, None

    def _find_header(self, line: bytes) -> None:
        at = -1
        for match in _OURS.finditer(line):
            at = match.start()
        if at < 0:
            self._skipped += len(line)
            return
        size, why = self._skipped + at, self._lost or ""
        self._skipped, self._lost = 0, None
        if size:
            self._out.skipped(size, why)
        self._header(line[at:])


class MessageReader:
    """Splits a byte stream into messages; `detect` decides by the first bytes that are not
    blank."""

    __slots__ = ("_inner", "_kept", "_limit", "_out", "framing")

    def __init__(
        self,
        on_message: Callable[[bytes], None],
        on_skipped: Callable[[int, str, bytes], None],
        *,
        limit: int,
        framing: Framing | Literal["detect"] = "newline",
    ) -> None:
        self._out = Outlet(on_message, on_skipped)
        self._limit = limit
        self._kept = b""
        self.framing: Framing | Literal["detect"] = framing
        self._inner = self._reader(framing) if framing != "detect" else None

    def feed(self, data: bytes) -> None:
        if self._inner is None:
            self._detect(data)
        else:
            self._inner.feed(data)
        self._out.reraise()

    @property
    def unfinished(self) -> int:
        """Bytes of what may become a message, or is too large to become one, and is not over."""
        return len(self._kept) if self._inner is None else self._inner.unfinished

    @property
    def head(self) -> bytes:
        """What that begins with."""
        return self._kept[:HEAD] if self._inner is None else self._inner.head

    def finish(self) -> None:
        """End of the stream: a last line without newline is still a message."""
        if self._inner is None:
            self._take("newline")
        if self._inner is not None:
            self._inner.finish()
        self._out.reraise()

    def _reader(self, framing: Framing) -> Splitter | _Blocks:
        if framing == "content-length":
            return _Blocks(self._out, self._limit)
        return Splitter(self._line, self._long, self._limit, any_end=False)

    def _line(self, line: bytes) -> None:
        if line and not line.isspace():
            self._out.message(line)

    def _long(self, size: int, head: bytes) -> None:
        self._out.skipped(size, f"a line of more than {self._limit} bytes", head)

    def _take(self, framing: Framing) -> None:
        self.framing = framing
        self._inner = self._reader(framing)
        kept, self._kept = self._kept, b""
        self._inner.feed(kept)

    def _detect(self, data: bytes) -> None:
        self._kept = (self._kept + data).lstrip()
        start = self._kept.removeprefix(BOM)[:32].lower()
        if _OURS.match(start):
            self._kept = self._kept.removeprefix(BOM)
            self._take("content-length")
        elif not _may_become_header(start):
            self._take("newline")


def _may_become_header(start: bytes) -> bool:
    if len(start) < len(BOM) and BOM.startswith(start):
        return True
    if len(start) >= 32:
        return False
    word = start.rstrip(b" \t")
    return any(
        name.startswith(start) or name == word for name in (b"content-length", b"content-type")
    )
