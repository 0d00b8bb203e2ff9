"""Response to one request of `wire.fetch`, within its limits.

A response has at most `limit` bytes as it was sent, and at most `limit` bytes after it was
unpacked. Unpacking gives up the event loop every `TURN_SECONDS`, however much a small body expands.
"""

import asyncio
import time
import zlib
from io import BytesIO
from typing import Final

from mcpx.wire.exchange import Headers, whole_number
from mcpx.wire.http_reply import Abortable

ACCEPTED: Final = "gzip, deflate"
TURN_SECONDS: Final = 0.001
INPUT_BYTES: Final = 65_536
OUTPUT_BYTES: Final = 131_072
"""Sizes of one step of unpacking."""
MAX_MEMBERS: Final = 10_000
"""Of one gzip body. Empty members make no bytes that the limit counts."""
MAX_REDIRECT_BODY_BYTES: Final = 16_384
"""The body of a redirect is read up to this size, so that its connection can be used again."""
REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))


class BadBody(ConnectionError):
    """The body does not fit the header `content-encoding`."""


class TooLarge(BadBody):
    """The body has more bytes than the limit."""

    def __init__(self, limit: int, how: str = "") -> None:
        super().__init__(f"the answer is larger than {limit:,} bytes{how}")


class Receipt:
    """A `Sink`. After `done` was set, `error` has the reason of a failure."""

    __slots__ = (
        *("_body", "_encoding", "_follow", "_is_bare", "_limit", "_size", "call"),
        *("done", "error", "headers", "status", "timed_out"),
    )

    def __init__(self, done: "asyncio.Future[None]", limit: int, bare: bool, follow: bool) -> None:
        """`bare`: the response has no body, whatever its head says. `follow`: the body of a
        redirect is not needed."""
        self.done = done
        self.call: Abortable | None = None
        self.status = 0
        self.headers = Headers({})
        self.error: Exception | None = None
        self.timed_out = False
        self._limit = limit
        self._is_bare = bare
        self._follow = follow
        self._encoding = ""
        self._body = BytesIO()
        self._size = 0

    @property
    def redirects(self) -> bool:
        return self._follow and self.status in REDIRECTS and "location" in self.headers

    def give_up(self, error: Exception | None = None) -> None:
        """Drop the request and its connection."""
        if self.call is not None:
            self.call.abort()
        self._finish(error)

    def expire(self) -> None:
        self.timed_out = True
        self.give_up()

    async def unpacked(self, deadline: float) -> bytes:
        """Return the whole body. Raises BadBody, TimeoutError."""
        packed = self._body.getvalue()
        if not packed or not self._encoding:
            return packed
        return await unpack(packed, self._encoding, self._limit, deadline)

    # Sink

    def head(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
        if self._is_bare or status in (204, 304):
            return
        length = whole_number((headers.get("content-length") or "").lstrip("0"))
        if self.redirects:
            self._limit = MAX_REDIRECT_BODY_BYTES
            if length is not None and length > self._limit:
                self.give_up()
        elif length is not None and length > self._limit:
            self.give_up(TooLarge(self._limit))
        else:
            self._read_encoding(headers)

    def _read_encoding(self, headers: Headers) -> None:
        names = ",".join(headers.all("content-encoding")).lower()
        encoding = names.replace("identity", "").strip(" ,").removeprefix("x-")
        if encoding in ("", "gzip", "deflate"):
            self._encoding = encoding
            return
        shown = "in an unknown way"
        if encoding.isprintable():
            shown = f"'{encoding[:40]}'"
        what = f"the body is packed {shown}, which was not asked for: {ACCEPTED} are known"
        self.give_up(BadBody(what))

    def body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= self._limit:
            self._body.write(data)
        elif self.redirects:
            self.give_up()
        else:
            self.give_up(TooLarge(self._limit))

    def trusted(self) -> bool:
        return True

    def end(self) -> None:
        self._finish(None)

    def failed(self, error: Exception) -> None:
        self._finish(error)

    def _finish(self, error: Exception | None) -> None:
        if not self.done.done():
            self.error = error
            self.done.set_result(None)


async def unpack(packed: bytes, encoding: str, limit: int, deadline: float) -> bytes:
    """Unpack a body. Raises BadBody, TimeoutError at the loop time `deadline`."""
    loop = asyncio.get_running_loop()
    unpacker = _Unpacker(packed, encoding)
    began = time.perf_counter()
    made = BytesIO()
    while unpacker.has_input:
        made.write(unpacker.step())
        if made.tell() > limit:
            raise TooLarge(limit, " unpacked")
        if time.perf_counter() - began > TURN_SECONDS:
            if loop.time() > deadline:
                raise TimeoutError
            await asyncio.sleep(0)
            began = time.perf_counter()
    return made.getvalue()


class _Unpacker:
    def __init__(self, packed: bytes, encoding: str) -> None:
        self._packed = memoryview(packed)
        self._is_gzip = encoding == "gzip"
        self._window_bits = 16 + zlib.MAX_WBITS
        if not self._is_gzip:
            self._window_bits = zlib.MAX_WBITS
            if not _has_zlib_header(packed):  # Some servers send deflate without the header.
                self._window_bits = -zlib.MAX_WBITS
        self._stream = zlib.decompressobj(self._window_bits)
        self._input: bytes = b""
        self._members = 1
        self.has_input = True

    def step(self) -> bytes:
        """Return some of the body. Sets `has_input` to False at the end."""
        if not self._input:
            self._input = bytes(self._packed[:INPUT_BYTES])
            self._packed = self._packed[INPUT_BYTES:]
        try:
            made = self._stream.decompress(self._input, OUTPUT_BYTES)
        except zlib.error:
            raise BadBody("the body is not packed as its head says") from None
        if self._stream.eof:
            self._end_member()
            return made
        self._input = self._stream.unconsumed_tail
        is_at_end = not self._input and not self._packed
        if is_at_end and len(made) < OUTPUT_BYTES:
            raise BadBody("the packed body ends too early")
        return made

    def _end_member(self) -> None:
        """A gzip body may have several members, and zeros after the last one."""
        self._input = self._stream.unused_data
        next_byte = self._input[:1] or bytes(self._packed[:1])
        if not next_byte:
            self.has_input = False
        elif not self._is_gzip:
            raise BadBody("the body goes on behind its end")
        elif next_byte == b"\0":
            self.has_input = False
            if self._input.strip(b"\0") or bytes(self._packed).strip(b"\0"):
                raise BadBody("the body goes on behind its end")
        else:
            self._members += 1
            if self._members > MAX_MEMBERS:
                raise BadBody("the body is packed in too many pieces")
            self._stream = zlib.decompressobj(self._window_bits)


def _has_zlib_header(packed: bytes) -> bool:
    """RFC 1950, section 2.2."""
    header = int.from_bytes(packed[:2], "big")
    return header >> 8 & 0x0F == 8 and header % 31 == 0
