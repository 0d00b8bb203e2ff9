"""How much all clients together may have begun: the gateway's own measure, whatever the
configuration says (SEC-6).

Promise: while few requests run, one more is begun at once, for the price of a look at a number.
Beyond that requests are begun in the order in which they came, a few in each turn of the loop, so
that turns stay short and whoever asks how the gateway is hears it soon. Who has left meanwhile is
not served. Where the first has waited for long, newcomers are refused at once: who waits already is
served in time, and nothing is spent on what would come too late. So is what would be too much to
remember. Where more clients give up than are answered, fewer are let in, until those are answered
in the time that they wait: else all would be begun, and none would be in time.

No promise: fairness between clients; limits of one client stand elsewhere.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from mcpx.front.notices import encoded
from mcpx.front.streams import refuse
from mcpx.front.visitor import Visitor
from mcpx.model.call import Json
from mcpx.model.errors import REQUEST_CANCELLED, Denied, RpcError, overloaded
from mcpx.wire import jsonrpc
from mcpx.wire.exchange import Exchange

AT_ONCE: Final = 64
"""Requests in flight below which nobody waits in line."""
PER_TURN: Final = 16
"""Of those in line, begun in one turn of the loop."""
LONGEST_WAIT: Final = 5.0
"""Seconds in line of the first one, from which on nobody else is let in."""
IN_ALL: Final = 10_000
"""Requests in flight of all clients together."""
LOOK: Final = 0.25
"""Seconds between two looks at how many gave up."""
MANY: Final = 200
"""Who give up between two looks, from which on it is no chance."""
LONG_AGO: Final = 5.0
"""Seconds after which nothing is known of how it was."""

Begin = Callable[[], object]
_Entry = tuple[float, Exchange, Json, Begin, Visitor]


class Admission:
    def __init__(self, refused: "Counter[str]") -> None:
        """`refused`: where it is noted how many were."""
        self._refused = refused
        self._line: deque[_Entry] = deque()
        self.running = 0
        """Requests that are being answered, on whichever carrier; those that listen until the end
        are none."""
        self._answered = 0
        self._gave_up = 0
        """Clients since the last look."""
        self._looked = 0.0
        self._most = IN_ALL
        """Requests in flight, as far as is known of what comes in time."""

    @property
    def waiting(self) -> int:
        """Requests that were read and are not begun yet."""
        return len(self._line)

    @property
    def calm(self) -> bool:
        """Whether one more is begun at once."""
        return self.running < AT_ONCE and not self._line

    def enter(self) -> None:
        """A request is begun that came on a carrier of its own; `leave` when it is over. Raises
        `Denied`."""
        if self.running >= IN_ALL or self._is_late():
            raise self._too_much()
        self.running += 1

    def leave(self) -> None:
        self.running -= 1
        self._answered += 1

    def gave_up(self) -> None:
        """A client did not wait for the answer to a request that was begun; `leave` follows."""
        self._gave_up += 1
        self._answered -= 1

    def line_up(self, exchange: Exchange, message: Json, visitor: Visitor, begin: Begin) -> None:
        """Begin it when its turn comes, or refuse it now."""
        self._look()
        if self.running + len(self._line) >= self._most or self._is_late():
            denied = self._too_much()
            refuse(exchange, jsonrpc.failure(message["id"], denied), denied)
            return
        loop = asyncio.get_running_loop()
        if not self._line:
            loop.call_soon(self._turn)
        self._line.append((loop.time(), exchange, message, begin, visitor))

    def _look(self) -> None:
        """Half as many where most gave up, twice as many where hardly anybody did."""
        now = asyncio.get_running_loop().time()
        since = now - self._looked
        if since < LOOK:
            return
        if since > LONG_AGO:
            self._most = IN_ALL
        elif self._gave_up >= MANY and self._gave_up > self._answered:
            self._most = max(AT_ONCE, min(self._most, self.running + len(self._line)) // 2)
        elif self._gave_up * 10 <= self._answered:
            self._most = min(IN_ALL, 2 * self._most)
        self._looked, self._answered, self._gave_up = now, 0, 0

    def _is_late(self) -> bool:
        return (
            bool(self._line) and asyncio.get_running_loop().time() - self._line[0][0] > LONGEST_WAIT
        )

    def _too_much(self) -> Denied:
        self._refused["gateway.in_flight"] += 1
        text = (
            f"the gateway is at its limit: {self.running:,} requests are being answered and "
            f"{len(self._line):,} wait"
        )
        return overloaded(f"{text}; try again in a moment", status=503, limit="gateway")

    def _turn(self) -> None:
        begun = 0
        while self._line and begun < PER_TURN:
            _, exchange, _, begin, _ = self._line.popleft()
            if exchange.closed:
                self._gave_up += 1
            else:
                begun += 1
                begin()
        if self._line:
            asyncio.get_running_loop().call_soon(self._turn)

    def cancel(self, session: str, request: str | int) -> None:
        """A session's client does not want the answer to that request any more; it may stand in
        line."""
        for entry in [each for each in self._line if each[2]["id"] == request]:
            if entry[1].headers.get("mcp-session-id") == session:
                self._line.remove(entry)
                self._answer(entry, RpcError(REQUEST_CANCELLED, "Request cancelled"))

    def see_off(self, leaves: Callable[[Visitor], bool], error: RpcError) -> None:
        """Nothing is begun any more for whoever lost their token while they stood in line."""
        line, self._line = self._line, deque()
        for entry in line:
            self._answer(entry, error) if leaves(entry[4]) else self._line.append(entry)

    def close(self, error: RpcError) -> None:
        """Nobody else is begun; who waits is told so."""
        while self._line:
            self._answer(self._line.popleft(), error)

    def _answer(self, entry: _Entry, error: RpcError) -> None:
        _, exchange, message, _, _ = entry
        exchange.reply(200, encoded(jsonrpc.failure(message["id"], error)))
