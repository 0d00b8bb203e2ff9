"""uvicorn's HTTP connection, with the bounds that it lacks: of heads, of waiting in every phase, of
how many there are.

Promise: a client that sends its head or body slowly, too much of either, nothing at all, or does
not read its answers, is closed; times hold for the whole phase, so that dripping bytes gains
nothing. When there are too many connections, the one makes room that waits for its client for
longest; only when all are being answered, a newcomer is refused.
"""

import asyncio
import logging
import time
from dataclasses import dataclass

import orjson
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from mcpx.admin.headers import PLAIN

_quiet = logging.Logger("mcpx.admin.uvicorn", logging.CRITICAL + 1)
"""uvicorn's own lines hold addresses with their query; the door says what there is to say."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds and for the whole phase."""

    head_bytes: int = 65536
    headers: int = 100
    unread_bytes: int = 16 * 2**20
    """Of a body: what is not wanted is passed over so far, so that its sender can read the
    answer."""
    head_timeout: float = 10.0
    body_timeout: float = 35.0
    """A little more than what the door waits: it has a better answer."""
    keep_alive: float = 75.0
    write_timeout: float = 30.0
    connections: int = 256
    sweep: float = 1.0
    """Between two looks at all connections, while there are any."""


class State(ServerState):
    """What all connections share."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.held: dict[Connection, None] = {}
        """The oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def admit(self, connection: "Connection") -> bool:
        if len(self.held) >= self.limits.connections and not self._make_room():
            return False
        self.held[connection] = None
        if self._timer is None:
            self._look()
        return True

    def _make_room(self) -> bool:
        spare = next((each for each in self.held if each.is_spare), None)
        if spare is None:
            return False
        self.forget(spare)
        spare.abort()
        return True

    def forget(self, connection: "Connection") -> None:
        self.held.pop(connection, None)

    def _look(self) -> None:
        self._timer = None
        now = time.monotonic()
        for connection in list(self.held):
            connection.look(now)
        if self.held:
            self._timer = asyncio.get_running_loop().call_later(self.limits.sweep, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Enough(Exception):
    """Stops the parser."""


class Connection(HttpToolsProtocol):
    def __init__(self, config: Config, state: State) -> None:
        super().__init__(config, state, {})
        self.logger, self.access_log = _quiet, False
        self._state = state
        self._limits = state.limits
        self._since = time.monotonic()
        """When the present phase began."""
        self._phase = "head"
        """Of reading: `head`, `body`, or `idle` between two requests."""
        self._seen = 0
        """Bytes of the present phase."""
        self._stuck: float | None = None
        """Since when the client does not read what it is sent."""
        self._refused = False
        self._cycles: list[RequestResponseCycle] = []
        """Requests that are not answered yet, one after the other."""
        self._last = False
        """The client wants no more than this answer."""

    @property
    def _is_answering(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete

    @property
    def is_spare(self) -> bool:
        """Nothing is being answered."""
        return not self._is_answering

    # What happens on it
    # ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._state.admit(self):
            self._refuse(503, "unavailable", "too many connections", b"retry-after: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.forget(self)
        self._tell_all()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused or self.parser is None:  # pyright: ignore[reportUnnecessaryComparison] - it is, once lost
            return
        if self._phase == "idle":
            self._enter("head")
        if self._phase == "head":
            self._seen += len(data)
        super().data_received(data)
        if self._phase == "head" and self._seen > self._limits.head_bytes:  # no end of it in sight
            self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._phase != "head":
            self._enter("head")

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.head_bytes or len(self.headers) > self._limits.headers:
            self._refuse_head()
            raise _Enough
        self._enter("body")
        super().on_headers_complete()
        # A socket that is closed before all was read resets: the answer to a body that was refused
        # would be lost.
        self._last = not self.cycle.keep_alive
        self.cycle.keep_alive = True
        self._cycles = [cycle for cycle in self._cycles if not cycle.response_complete]
        self._cycles.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._seen += len(body)
        if self._seen > self._limits.unread_bytes:
            self.transport.close()
            raise _Enough
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._enter("idle")
        super().on_message_complete()
        self._close_if_over()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._close_if_over()

    def _close_if_over(self) -> None:
        if self._last and self._phase == "idle" and not self._is_answering:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "bad_request", "this is not HTTP as it should be")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = time.monotonic()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck = None

    # What does not happen
    # ---------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        limits, waited = self._limits, now - self._since
        if self._stuck is not None and now - self._stuck > limits.write_timeout:
            self.abort()
        elif self._refused:
            if waited > 2 * limits.sweep:
                self.abort()
        elif self._phase == "head" and waited > limits.head_timeout:
            if self._seen:
                self._refuse(408, "too_slow", "the head of the request did not arrive in time")
            else:
                self.transport.close()
        elif self._phase == "body" and waited > limits.body_timeout and not self.flow.read_paused:
            self.abort()
        elif self._phase == "idle" and self.is_spare and self._answered(now) > limits.keep_alive:
            self.transport.close()

    def _answered(self, now: float) -> float:
        """Seconds since the last answer was whole."""
        if not self._at_rest:
            self._at_rest, self._since = True, now
        return now - self._since

    _at_rest = False

    def _enter(self, phase: str) -> None:
        self._phase, self._since, self._seen, self._at_rest = phase, time.monotonic(), 0, False

    # How it ends
    # ----------------------------------------------------------------------------------------------

    def _refuse_head(self) -> None:
        self._refuse(431, "headers_too_large", "the head of the request is too large")

    def _refuse(self, status: int, code: str, message: str, more: bytes = b"") -> None:
        """The last answer on this connection. What still comes is not looked at."""
        if self._refused or self.transport.is_closing():
            return
        self._refused, self._since = True, time.monotonic()
        body = orjson.dumps(
            {"error": {"code": code, "message": message, "path": None, "hint": None}}
        )
        phrase = {
            400: b"Bad Request",
            408: b"Request Timeout",
            431: b"Request Header Fields Too Large",
        }
        lines = b"".join(b"%s: %s\r\n" % pair for pair in PLAIN) + more
        head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n" % (
            status,
            phrase.get(status, b"Unavailable"),
        )
        self.transport.write(
            head + lines + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        if self.transport.can_write_eof():
            # and read on for a moment: a reset would take the answer with it
            self.transport.write_eof()
        else:
            self.transport.close()

    def wind_down(self) -> None:
        """What is being answered is the last."""
        self._last = True
        if self._phase != "body" or not self._is_answering:
            self._phase = "idle"
        self._close_if_over()

    def abort(self) -> None:
        """Whatever is being answered is told that nobody is there any more."""
        self._tell_all()
        self.flow.resume_writing()
        self.transport.abort()

    def _tell_all(self) -> None:
        """uvicorn tells the latest request only; before it others may be waiting."""
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
