"""Requests that belong to another replica, handed to it; its answer goes back as it comes, streams
too.

Promised: a request is handed over once. If the other one is found gone before anything was sent,
takes no connection, says that it has no such session, or does not prove that it is that replica,
whoever handed it over is told (`Again`) and may try another way; that others wait for a connection
in vain is no reason to give up what is under way there already. If it goes while it answers, the
client is told that the call was cut off, unless the request has no effect and nothing was answered
yet; where half a message was told the connection is broken off, and it may come back for it. A
client that leaves is a client that leaves there, and one that does not read is not read for: the
other one notices, and does what it does about slow readers. Not promised: anything about what the
other one does with it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Final

from mcpx.base.aio import Tasks
from mcpx.front.neighbours.papers import PAPER, Papers
from mcpx.front.notices import encoded
from mcpx.front.streams import refuse
from mcpx.front.visitor import Visitor
from mcpx.model.errors import RpcError, cut_off, gateway_ending, overloaded
from mcpx.model.idempotent import REPEATABLE
from mcpx.replicas import channel
from mcpx.replicas.members import Member
from mcpx.replicas.seals import Seals
from mcpx.wire import codec, jsonrpc
from mcpx.wire.exchange import Exchange, Headers
from mcpx.wire.http_client import Abortable, ConnectionLost, Crowded, Pool
from mcpx.wire.sse import sse_frame

log = logging.getLogger(__name__)

MOST_CALLS: Final = 1024
MOST_STREAMS: Final = 3072
"""Connections to one replica: each GET stream of a client takes one, and however many there are,
calls have theirs."""
CONNECTING: Final = 2.0
"""Seconds in which a running replica accepts a connection and finishes the handshake, unless this
process stood still."""
LATE: Final = 3
"""So many connections, one tried after the other, are not made in time before a replica counts as
gone for it."""
IN_A_ROW: Final = 3 * CONNECTING
"""Seconds between two of those that count together."""
NOT_HERE: Final = 421
"""What a replica answers that has no such session."""
TAKE: Final = "mcpx-take"
"""The header by which a replica asks another to look for a session in the store, and to take it
up."""

_NEEDED: Final = frozenset(
    (
        *(
            b"accept",
            b"content-type",
            b"last-event-id",
            b"mcp-session-id",
            b"mcp-protocol-version",
            b"mcp-method",
        ),
        *(b"mcp-name", b"x-request-id", b"traceparent", b"tracestate", b"baggage"),
    )
)
_ARGUMENT: Final = b"mcp-param-"
"""Headers that mean something to whoever answers; the rest is about the client's own connection, or
a secret."""
_OURS: Final = frozenset(
    (b"connection", b"content-length", b"transfer-encoding", b"keep-alive", b"content-type")
)
"""Headers of an answer that are made anew."""
_PAPER: Final = PAPER.encode() + b": %b\r\n"
_TAKE: Final = TAKE.encode() + b": 1\r\n"

Again = Callable[[], None]
"""Tries another way; called when certainly nothing came of the request, or it has no effect."""


class Passing:
    def __init__(self, papers: Papers, seals: Seals, lost: Callable[[str], None]) -> None:
        """`lost` is called for a replica that refuses connections or does not prove its
        identity."""
        self._papers = papers
        self._seals = seals
        self._lost = lost
        self._pools: dict[tuple[str, bool], Pool] = {}
        """For each replica one for GET streams, and one for the rest."""
        self._under_way: dict[str, set[_Passed]] = {}
        self._late: dict[str, tuple[int, float]] = {}
        """How often in a row a replica took no connection in time, and when that was seen last."""
        self._finished: asyncio.Event | None = None
        """Set when no call is under way, where somebody waits for that."""
        self.tasks = Tasks("passing")
        self.counts: Counter[str] = Counter()
        """Requests that were handed over, by how that ended: `answered`, `again`, `cut_off`,
        `left`."""

    def hand(
        self,
        exchange: Exchange,
        visitor: Visitor,
        target: str,
        member: Member,
        again: Again,
        *,
        take: bool = False,
    ) -> None:
        """`target`: the path and query that it asks for there. `take`: the other one shall take the
        session up."""
        listens = exchange.method == "GET"
        pool = self._pools.get((member.id, listens))
        if pool is None:
            if ":" in member.host:
                host = f"[{member.host}]"
            else:
                host = member.host
            url, most = f"http://{host}:{member.port}", MOST_STREAMS if listens else MOST_CALLS
            secure = channel.connecting_to(member.id, self._seals)
            pool = Pool(url, connect_timeout=CONNECTING, most=most, secure=secure)
            self._pools[member.id, listens] = pool
        passed = _Passed(self, exchange, member.id, again)
        self._under_way.setdefault(member.id, set()).add(passed)
        headers = exchange.headers
        lines = [_PAPER % self._papers.write(visitor)]
        for fields in (headers.first.items(), headers.more):
            lines += [
                b"%b: %b\r\n" % pair
                for pair in fields
                if pair[0] in _NEEDED or pair[0].startswith(_ARGUMENT)
            ]
        if take:
            lines.append(_TAKE)
        exchange.on_disconnect = passed.left
        passed.request = pool.start(exchange.method, target, b"".join(lines), exchange.body, passed)

    def over(self, passed: "_Passed") -> None:
        others = self._under_way.get(passed.member)
        if others is not None:
            others.discard(passed)
            if not others:
                del self._under_way[passed.member]
        if self._finished is not None and not self._calls():
            self._finished.set()

    def _calls(self) -> "list[_Passed]":
        return [
            passed
            for some in self._under_way.values()
            for passed in some
            if passed.exchange.method != "GET"
        ]

    async def finish(self, grace: float) -> None:
        """This replica is about to end: calls that wait for others have so long; then all is told
        so."""
        if self._calls():
            self._finished = asyncio.Event()
            try:
                async with asyncio.timeout(grace):
                    await self._finished.wait()
            except TimeoutError:
                pass
            self._finished = None
        for passed in [each for some in self._under_way.values() for each in some]:
            passed.part()

    def unreachable(self, member: str) -> None:
        self._lost(member)

    def late(self, member: str, since: float) -> None:
        """It took no connection in time: that may be our own fault, so it is gone only if that
        happens again and again. `since`: when it was to take it; what was tried side by side counts
        once."""
        now = monotonic()
        times, last = self._late.get(member, (0, -IN_A_ROW))
        if since < last:
            return
        if now - last < IN_A_ROW:
            times = times + 1
        else:
            times = 1
        self._late[member] = times, now
        if times >= LATE:
            self._lost(member)

    def there(self, member: str) -> None:
        """It has answered."""
        self._late.pop(member, None)

    def retire(self, member: str) -> None:
        """Nothing more is handed to that one; it answers what it has."""
        self._late.pop(member, None)
        for listens in (False, True):
            if (pool := self._pools.pop((member, listens), None)) is not None:
                pool.retire()

    def gone(self, member: str) -> None:
        """That replica is no more: whoever waits for its answer waits in vain."""
        self.retire(member)
        for passed in list(self._under_way.pop(member, ())):
            passed.give_up()

    async def close(self) -> None:
        await self.tasks.close()
        for pool in self._pools.values():
            await pool.close()


class _Passed:
    """One request at another replica (`wire.http_client.Sink`)."""

    __slots__ = (
        *(
            "_again",
            "_began",
            "_body",
            "_headers",
            "_held",
            "_passing",
            "_status",
            "_streams",
            "_tail",
        ),
        *("exchange", "member", "request"),
    )

    def __init__(self, passing: Passing, exchange: Exchange, member: str, again: Again) -> None:
        self._passing = passing
        self._again = again
        self._began = monotonic()
        self.exchange = exchange
        self.member = member
        self.request: Abortable | None = None
        self._status = 0
        self._headers: Headers | None = None
        self._streams = False
        self._held = False
        """Its client does not read; nothing is read for it."""
        self._body: list[bytes] = []
        self._tail = b""
        """How what was told of a stream ends: with an empty line, where it is a whole message."""

    def _ends(self, outcome: str) -> None:
        self.exchange.on_disconnect = None
        self._passing.counts[outcome] += 1
        self._passing.over(self)

    # --- from the client

    def left(self) -> None:
        if self.request is not None:
            self.request.abort()
        self._ends("left")

    # --- from the other replica

    def head(self, status: int, headers: Headers) -> None:
        self._passing.there(self.member)
        self._status, self._headers = status, headers
        kind = headers.get("content-type") or ""
        if kind.startswith("text/event-stream"):
            self._streams = True
            told = [(name, value) for name, value in headers.items() if name.encode() not in _OURS]
            self.exchange.stream(status, [("content-type", kind), *told])

    def body(self, data: bytes) -> None:
        if not self._streams:
            self._body.append(data)
            return
        exchange = self.exchange
        exchange.write(data)
        if len(data) > 1:
            self._tail = data[-2:]
        else:
            self._tail = self._tail[-1:] + data
        if exchange.congested and self.request is not None and not self._held:
            self._held = True
            self.request.hold(True)
            self._passing.tasks.start(self._go_on_when_read())

    async def _go_on_when_read(self) -> None:
        await self.exchange.drain()
        self._held = False
        if self.request is not None:
            self.request.hold(False)

    def trusted(self) -> bool:
        return True

    def end(self) -> None:
        exchange = self.exchange
        if self._status == NOT_HERE and not self._streams:
            self._try_again()
            return
        self._ends("answered")
        if self._streams:
            exchange.end()
        elif self._headers is not None:
            fields = self._headers.first
            kind = fields.get(b"content-type", b"application/json").decode("latin-1")
            told = [
                b"%b: %b\r\n" % pair
                for pair in (*fields.items(), *self._headers.more)
                if pair[0] not in _OURS
            ]
            exchange.reply(self._status, b"".join(self._body), kind, line=b"".join(told))

    def failed(self, error: Exception) -> None:
        self._passing.over(self)  # it is not given up together with the others that wait there
        if isinstance(error, Crowded):
            self._turn_away(
                "crowded", "too much waits for another replica already; try again later"
            )
        elif isinstance(error, ConnectionLost) and error.ours:
            self._turn_away(
                "crowded",
                "no connection to another replica can be made at the moment; try again later",
            )
        elif isinstance(error, ConnectionLost) and not error.sent:
            if error.vague:
                self._passing.late(self.member, self._began)
            else:
                self._passing.unreachable(self.member)
            self._try_again()
        else:
            self._cut_off()

    def give_up(self) -> None:
        """For `Passing`: the other one is gone."""
        sent = self.request is not None and self.request.sent
        if self.request is not None:
            self.request.abort()
        if sent:
            self._cut_off()
        else:
            self._try_again()

    def _try_again(self) -> None:
        self._ends("again")
        if not self.exchange.closed:
            self._again()

    def _turn_away(self, outcome: str, text: str) -> None:
        self._ends(outcome)
        denied = overloaded(text, status=503, retry_after=1)
        refuse(self.exchange, jsonrpc.failure(asked(self.exchange)[0], denied), denied)

    def _cut_off(self) -> None:
        """It was sent, and nobody knows what became of it."""
        exchange = self.exchange
        if exchange.closed:
            self._ends("left")
            return
        rid, repeatable = asked(exchange)
        if repeatable and not self._streams:
            self._try_again()
            return
        self._tell(rid, cut_off())

    def part(self) -> None:
        """For `Passing`: this replica is about to end."""
        if self.request is not None:
            self.request.abort()
        rid, _ = asked(self.exchange)
        if rid is None and not self._streams:
            self._turn_away("cut_off", "the gateway is ending; try again")
        else:
            self._tell(rid, gateway_ending())

    def _tell(self, rid: str | int | None, error: RpcError) -> None:
        """Instead of the answer."""
        exchange = self.exchange
        self._ends("cut_off")
        if not self._streams:
            exchange.reply(200, encoded(jsonrpc.failure(rid, error)))
        elif exchange.congested or self._tail not in (b"", b"\n\n"):
            # Perhaps a slow reader that the other one has cut off: it comes back for what is kept.
            # And nothing can be said behind half a message.
            exchange.abort()
        else:
            if rid is not None:
                exchange.write(sse_frame(encoded(jsonrpc.failure(rid, error))))
            exchange.end()


def asked(exchange: Exchange) -> tuple[str | int | None, bool]:
    """The id of a request, if an answer is waited for; and whether it may be made a second time."""
    if exchange.method != "POST":
        return None, True
    try:
        message = codec.load(exchange.body)
    except codec.BadJson:
        return None, True
    if jsonrpc.classify(message) != "request":
        return None, True
    return message["id"], message["method"] in REPEATABLE
