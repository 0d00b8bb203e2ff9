"""The answer to one request as it comes in, for `wire.fetch`: counted, unpacked, and given up where
it is too much.

Promise: it holds no more than `limit` bytes packed and as many unpacked; what it does with one
piece of a body takes about a millisecond, however much that piece stands for. The rest is done by
whoever awaits `unpacked`.
"""

import asyncio
import time
from io import BytesIO
from typing import Final

from mcpx.wire.exchange import Headers, whole_number
from mcpx.wire.http_reply import Abortable
from mcpx.wire.unpack import BadPacking, Unpacking, packings

__all__ = ["BadBody", "Receipt"]

TURN: Final = 0.001
"""Seconds of unpacking before others have their turn."""
SMALL: Final = 16_384
"""Bytes of a redirect's body that are worth reading, to keep the connection."""
FOLLOWED: Final = frozenset((301, 302, 303, 307, 308))


class BadBody(ConnectionError):
    """Not packed as its head says."""


class TooLarge(BadBody):
    """Larger than was allowed, as it came or unpacked."""


class Receipt:
    """A `Sink`. `done` is set when there is nothing more to come; then `error` says whether all of
    it came."""

    __slots__ = (
        *(
            "_bare",
            "_body",
            "_follow",
            "_limit",
            "_packed",
            "_size",
            "_unpacking",
            "call",
            "done",
            "error",
        ),
        *("headers", "status", "timed_out"),
    )

    def __init__(self, done: "asyncio.Future[None]", limit: int, bare: bool, follow: bool) -> None:
        """`bare`: there is no body, whatever the head says. `follow`: nobody wants the body of a
        redirect."""
        self.done = done
        self.call: Abortable | None = None
        self.status = 0
        self.headers = Headers({})
        self.error: Exception | None = None
        self.timed_out = False
        self._limit = limit
        self._bare = bare
        self._follow = follow
        self._body: bytes | BytesIO = b""
        self._size = 0
        self._packed = 0
        self._unpacking: Unpacking | None = None

    @property
    def redirects(self) -> bool:
        return self._follow and self.status in FOLLOWED and "location" in self.headers

    def give_up(self, error: Exception | None = None) -> None:
        """Drop the request and its connection."""
        if self.call is not None:
            self.call.abort()
        self._unpacking = None
        self._over(error)

    def expire(self) -> None:
        self.timed_out = True
        self.give_up()

    async def unpacked(self, deadline: float) -> bytes:
        """All of it. Raises BadBody, TimeoutError."""
        unpacking = self._unpacking
        if (
            unpacking is not None and self._packed
        ):  # nothing is nothing, whatever it says to be packed in
            try:
                while unpacking.more:
                    self._work(unpacking)
                    if unpacking.more:
                        if asyncio.get_running_loop().time() > deadline:
                            raise TimeoutError
                        await asyncio.sleep(0)
                if not unpacking.complete:
                    raise BadBody("the packed body ends too early")
            except BadPacking as error:
                raise BadBody(str(error)) from None
        return self._body if isinstance(self._body, bytes) else self._body.getvalue()

    # --- the sink

    def head(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
        if self._bare or status in (204, 304):
            return
        length = whole_number((headers.get("content-length") or "").lstrip("0"))
        if self.redirects:
            self._limit = SMALL
            if length is not None and length > SMALL:
                self.give_up()
        elif length is not None and length > self._limit:
            self.give_up(self._too_large())
        elif "content-encoding" in headers:
            try:
                names = packings(headers)
            except BadPacking as error:
                self.give_up(BadBody(str(error)))
            else:
                self._unpacking = Unpacking(names) if names else None

    def body(self, data: bytes) -> None:
        self._packed += len(data)
        if self._packed > self._limit:
            self.give_up(None if self.redirects else self._too_large())
        elif self._unpacking is not None:
            self._unpacking.give(data)
            try:
                self._work(self._unpacking)
            except TooLarge as error:
                self.give_up(error)
            except BadPacking as error:
                self.give_up(BadBody(str(error)))
        else:
            self._add(data)

    def trusted(self) -> bool:
        return True

    def end(self) -> None:
        self._over(None)

    def failed(self, error: Exception) -> None:
        self._over(error)

    # --- what it does

    def _work(self, unpacking: Unpacking) -> None:
        began = time.perf_counter()
        while unpacking.more:
            made = unpacking.step()
            if self._size + len(made) > self._limit:
                raise self._too_large(" unpacked")
            if made:
                self._add(made)
            if time.perf_counter() - began > TURN:
                return

    def _add(self, data: bytes) -> None:
        self._size += len(data)
        if not self._body:
            self._body = data
            return
        if isinstance(
            self._body, bytes
        ):  # many tiny pieces, kept each, would take many times their size
            whole = BytesIO()
            whole.write(self._body)
            self._body = whole
        self._body.write(data)  # and what it holds is taken from it without a copy

    def _too_large(self, how: str = "") -> TooLarge:
        return TooLarge(f"the answer is larger than {self._limit:,} bytes{how}")

    def _over(self, error: Exception | None) -> None:
        if not self.done.done():
            self.error = error
            self.done.set_result(None)
