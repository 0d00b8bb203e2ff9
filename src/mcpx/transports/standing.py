"""The stream of an older server over streamable HTTP that belongs to no request, for
`transports.http`.

Promise: it is opened again however it ended, at the server's pace within bounds, and with another
proof if the server did not take the first; a server that offers none is asked once. What it carries
that is no message is bounded in bytes.
"""

import asyncio
from typing import TYPE_CHECKING

from mcpx.model.call import Json
from mcpx.model.errors import RpcError, Unavailable
from mcpx.transports.refusals import BODY, about_us, refusal
from mcpx.transports.replies import LONGEST_RETRY_MS, NOISE, RETRY_MS, bounded_retry, is_stream
from mcpx.wire.exchange import Headers
from mcpx.wire.framing import Patience
from mcpx.wire.http_client import Abortable, ConnectionLost
from mcpx.wire.sse import SseEvent, SseReader

if TYPE_CHECKING:
    from mcpx.transports.http import HttpConversation


class StandingStream:
    """The stream of an older server that belongs to no request. `ended` tells whether the server
    offers one."""

    meanwhile = None

    def __init__(self, talk: "HttpConversation", patience: Patience) -> None:
        self._talk = talk
        self._patience = patience
        self._reader: SseReader | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answer = 0
        self.carrier: Abortable | None = None
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.last_id: str | None = None
        self.retry_ms: int | None = None
        self.heard = False
        """There was an event,"""
        self.spoke = False
        """... with a message in it."""
        self.spoiled = ""
        """Why it was cut off."""
        self.refused: RpcError | None = None
        """How the server said that it does not take what proves us."""
        self._passing = (
            False  # the server has a trouble of its own; whether it offers the stream is not said
        )

    def head(self, status: int, headers: Headers) -> None:
        if is_stream(status, headers):
            self._reader = SseReader(self._event, limit=self._talk.limit, on_skipped=self._skipped)
            return
        self._timer = asyncio.get_running_loop().call_later(self._talk.timeout, self.end)
        if status == 404 and self._talk.in_session:
            self._talk.end_session()
        self._passing = status >= 500 or status in (408, 429)
        if about_us(error := refusal(self._talk.name, status, headers, b"")):
            self.refused = error

    def body(self, data: bytes) -> None:
        reader = self._reader
        if reader is None:
            self._answer += len(data)
            if self._answer > BODY:
                self.end()
        elif not self.spoiled:
            reader.feed(data)
            pending = reader.unfinished
            if pending > self._talk.limit:
                self._skipped(pending, "", b"")
            elif self._patience.lost(len(data), pending):
                self._spoil("carries nothing but noise")

    def _event(self, event: SseEvent) -> None:
        if self.spoiled:
            return
        self.heard = True
        self.last_id = event.id or self.last_id
        if event.retry is not None:
            self.retry_ms = bounded_retry(event.retry)
        if event.data and event.event == "message" and self._talk.hear(event.data, self):
            self.spoke = True
            self._patience.message()

    def _skipped(self, size: int, reason: str, head: bytes) -> None:
        self._spoil(f"carries an event of more than {self._talk.limit:,} bytes")

    def answered(self, message: Json) -> None:
        """A response came, and there is no request here that it could answer."""
        self._talk.waiting.strays += 1
        self._spoil("carries answers, which belong on the streams of their requests")

    def _spoil(self, why: str) -> None:
        self.spoiled = self.spoiled or why
        self.end()

    def trusted(self) -> bool:
        return True

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(self._reader is not None or self._passing)
        self.leave()

    def failed(self, error: Exception) -> None:
        if isinstance(error, ConnectionLost) and not error.sent:
            self._talk.unreachable(error)
        if not self.ended.done():
            self.ended.set_result(True)
        self.leave()

    def leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.carrier is not None:
            self.carrier.abort()


async def listen(talk: "HttpConversation", ready: asyncio.Future[None] | None) -> None:
    """Keep the stream open on which an older server sends what belongs to no request."""
    proving = talk.proving
    last_id: str | None = None
    delay = RETRY_MS / 1000
    patience = Patience(NOISE)
    noisy = False
    if ready is not None:
        await asyncio.shield(ready)
    renewed = False
    while not talk.lost:
        try:
            if proving is not None and not proving.ready():
                await proving.get()
            proof = None if proving is None else proving.proof
            stream = StandingStream(talk, patience)
            stream.carrier = talk.get(last_id, stream)
            try:
                offered = await stream.ended
            finally:
                stream.leave()
            if (
                stream.refused is not None
                and proving is not None
                and proof is not None
                and not renewed
            ):
                renewed = await proving.renewed(proof, stream.refused)
                if renewed:
                    continue
        except Unavailable:  # there is no proof for now
            delay = min(delay * 2, LONGEST_RETRY_MS / 1000)
            await asyncio.sleep(delay)
            continue
        if not offered:
            return
        renewed = False
        last_id = stream.last_id or last_id
        if stream.spoiled:
            talk.warn(
                f"its stream of notifications {stream.spoiled}; it is opened again, now and then"
            )
        noisy = bool(stream.spoiled) or (noisy and not stream.spoke)
        fine = stream.heard and not noisy
        delay = RETRY_MS / 1000 if fine else min(delay * 2, LONGEST_RETRY_MS / 1000)
        await asyncio.sleep(
            stream.retry_ms / 1000 if stream.retry_ms is not None and fine else delay
        )
