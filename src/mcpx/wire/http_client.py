"""HTTP/1.1 towards one origin: keep-alive connections, one request on each at a time, replies to a
`Sink`.

Promise: a request is sent at most once; whatever happens, its sink gets exactly one `end` or
`failed` as the last call, and none after `abort`. A connection goes back to the pool before `end`
is called, so that a reply that causes the next request finds it there; one that brought anything
nobody asked for does not go back. A sink that raises is logged and fails its own call only. So many
connections and no more are open at a time; who finds none waits in order.

No promise: redirects (the caller sees the 3xx), compression (refused, or the sink's), limits on the
size or the time of a reply, or on the wait for a connection (the sink's: `abort`), HTTP/2.
"""

import asyncio
import errno
import functools
import select
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, cast

from mcpx.wire import descriptors
from mcpx.wire.address import parse, proxy_for
from mcpx.wire.flow import Intake
from mcpx.wire.http_dial import Resolve, Secured, default_context, dial, proxy_authorization
from mcpx.wire.http_reply import (
    Abortable,
    BadResponse,
    ConnectionLost,
    Crowded,
    Forbidden,
    Request,
    Sink,
)

if TYPE_CHECKING:
    import ssl

__all__ = [
    "Abortable",
    "BadResponse",
    "ConnectionLost",
    "Crowded",
    "Forbidden",
    "Pool",
    "Sink",
    "header_lines",
]

MOST_CONNECTIONS: Final = 256
FEWEST_CONNECTIONS: Final = 16
"""Calls that a pool carries at a time, the more the more descriptors the system allows."""
FEW: Final = 4
"""Connections that every pool may have, however many all of them have together."""
BRIEF: Final = 8
"""Places beside those for calls, for what takes no time unless the server has none."""
WANTS: Final = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
)
"""What keeps us from connecting to anybody: no descriptors, memory or ports."""
MOST_WAITING: Final = 10_000
MOST_BYTES_WAITING: Final = 64 * 2**20
"""Requests that wait for a connection."""


class _Everywhere:
    """Sockets of all pools together."""

    open = 0


class _Connection(asyncio.Protocol):
    """One socket: idle, or with one call."""

    __slots__ = (
        "_call",
        "_clean",
        "_intake",
        "_poll",
        "_pool",
        "_transport",
        "data_received",
        "idle_since",
    )

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._call: Request | None = None
        self._clean = False
        self._intake = Intake(self._feed)
        self.data_received = self._intake.take
        self._poll: Callable[[int], object] | None = None
        self.idle_since = 0.0

    @property
    def usable(self) -> bool:
        """Whether it stands, and nothing came that nobody asked for: also nothing that is yet to be
        read."""
        transport, poll = self._transport, self._poll
        return (
            transport is not None and not transport.is_closing() and (poll is None or not poll(0))
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._intake.read_from(self._transport)
        own = transport.get_extra_info("socket")
        if own is not None and hasattr(select, "poll"):
            poll = select.poll()
            poll.register(own.fileno(), select.POLLIN)
            self._poll = poll.poll

    def send(self, call: Request) -> None:
        assert self._transport is not None
        self._call = call
        request = call.request
        call.sent_on(self)
        self._transport.write(request)

    def _feed(self, data: bytes) -> None:
        call = self._call
        if call is None:
            self.drop()  # nobody asked
        else:
            call.feed(data)

    def eof_received(self) -> None:
        self._clean = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._pool.gone(self)
        call, self._call = self._call, None
        if call is not None:
            call.lost(self._clean and exc is None)

    def release(self, keep: bool) -> None:
        self._call = None
        standing = self._transport is not None and not self._transport.is_closing()
        if not keep or not standing or self._intake.waiting or not self._pool.put(self):
            self.drop()
        else:
            self._intake.hold(False)

    def hold(self, held: bool) -> None:
        self._intake.hold(held)

    def drop(self) -> None:
        self._call = None
        self._intake.clear()
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as `Pool.start` takes them; who sends the same ones with every request keeps them so.
    A line break would let a value write headers of its own: ValueError."""
    made = [b"%b: %b\r\n" % header for header in headers]
    lines = b"".join(made)
    if lines.count(b"\n") != len(made) or lines.count(b"\r") != len(made) or b"\0" in lines:
        raise ValueError("a line break in a header")
    return lines


class _Places:
    """So many requests at a time; the others in line."""

    __slots__ = ("_bytes", "most", "taken", "waiting")

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self.waiting: OrderedDict[Request, None] = OrderedDict()
        self._bytes = 0

    def stand_in_line(self, call: Request) -> bool:
        """False: too much does already."""
        size = self._bytes + len(call.request)
        if len(self.waiting) >= MOST_WAITING or (size > MOST_BYTES_WAITING and self.waiting):
            return False
        self._bytes = size
        self.waiting[call] = None
        return True

    def leave_line(self, call: Request) -> None:
        del self.waiting[call]
        self._bytes -= len(call.request)

    def first(self) -> Request:
        call = next(iter(self.waiting))
        self.leave_line(call)
        return call


class Pool:
    """The connections to one origin, or to the proxy in front of it."""

    def __init__(
        self,
        url: str,
        *,
        idle: float = 4.0,
        connect_timeout: float = 10.0,
        ssl_context: "ssl.SSLContext | None" = None,
        environ: Mapping[str, str] | None = None,
        resolve: Resolve | None = None,
        packed: bool = False,
        most: int | None = None,
        secure: Callable[[asyncio.Protocol], Secured] | None = None,
    ) -> None:
        """`idle` is below the five seconds after which Node and uvicorn close: a request sent at
        that moment is lost, and it must not be sent again. `environ` may name proxies; without it
        there are none. `packed`: who calls says which encodings he takes, and unpacks. `most`:
        connections at a time, as far as there are descriptors. `secure`: adds a handshake and
        encryption to each connection. Raises BadAddress."""
        self._address = address = parse(url)
        self.host, self.port, self.tls = address.host, address.port, address.tls
        self.authority = address.authority
        self.target = address.target
        """Path and query of the URL, for `start`."""
        self._proxy = proxy_for(address, environ or {})
        self._prefix = b""
        self._resolve, self._packed = resolve, packed
        self._secure = secure
        self._common = b" HTTP/1.1\r\nhost: %b\r\n" % self.authority.encode()
        if not packed:
            self._common += b"accept-encoding: identity\r\n"
        if self._proxy is not None and not self.tls:
            self._prefix = b"http://" + self.authority.encode()
            self._common += proxy_authorization(self._proxy)
        self._checked = ""
        """The last target found to be in order: nearly always the next one too."""
        self._ssl_context = ssl_context
        self._connect_timeout = connect_timeout
        self._idle_limit = idle
        self._idle: list[_Connection] = []
        """The one used last at the end."""
        self._open: set[_Connection] = set()
        """Those that are being made too."""
        allowed = descriptors.soft_limit()
        self._calls = _Places(max(FEWEST_CONNECTIONS, min(most or MOST_CONNECTIONS, allowed // 4)))
        self._brief = _Places(BRIEF)
        self._most_in_all = allowed // 3
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._empty = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Kept, for asking for it is a system call (getpid) in Python 3.11."""

    def start(
        self,
        method: str,
        target: str,
        headers: bytes,
        body: bytes,
        sink: Sink,
        *,
        brief: bool = False,
    ) -> Abortable:
        """Send a request; `headers` as `header_lines` makes them. The sink is never called from in
        here. `brief`: it asks for nothing that takes time, so it does not wait for the calls that
        do."""
        if target != self._checked:
            if (
                not target.startswith("/")
                or not target.isascii()
                or not target.isprintable()
                or " " in target
            ):
                raise ValueError("the target of a request must be a path in printable ASCII")
            self._checked = target
        verb, where, common = method.encode(), target.encode(), self._common
        if body or method not in ("GET", "HEAD", "DELETE", "OPTIONS"):
            parts = (verb, self._prefix, where, common, headers, len(body), body)
            request = b"%b %b%b%b%bcontent-length: %d\r\n\r\n%b" % parts
        else:
            request = b"%b %b%b%b%b\r\n" % (verb, self._prefix, where, common, headers)
        call = Request(request, sink, method == "HEAD", brief, self._packed)
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        if self._closed:
            loop.call_soon(call.fail, ConnectionLost("the pool is closed", sent=False))
            return call
        places = self._brief if brief else self._calls
        if not places.waiting and self._has_room(places):
            self._begin(call, places, loop)
        elif places.stand_in_line(call):
            call.keeper = self
        else:
            loop.call_soon(
                call.fail, Crowded(f"too much waits for a connection to {self.authority} already")
            )
        return call

    @property
    def busy(self) -> bool:
        """Whether anything is under way, or waits."""
        return any(places.taken or places.waiting for places in (self._calls, self._brief))

    def _has_room(self, places: _Places) -> bool:
        if places.taken >= places.most:
            return False
        return places.taken < FEW or _Everywhere.open < self._most_in_all or bool(self._idle)

    def _begin(self, call: Request, places: _Places, loop: asyncio.AbstractEventLoop) -> None:
        places.taken += 1
        call.keeper = self
        while self._idle:
            connection = self._idle.pop()
            if loop.time() - connection.idle_since < self._idle_limit and connection.usable:
                connection.send(call)
                return
            connection.drop()
        connection = _Connection(self)
        self._open.add(connection)
        _Everywhere.open += 1
        call.task = task = loop.create_task(self._connect(call, connection))
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._connected, call, connection))

    def retire(self) -> None:
        """Take no more calls; what is under way goes on, and each connection ends with its call.
        What waits for one is not under way."""
        self._closed = True
        for places in (self._calls, self._brief):
            while places.waiting:
                call = places.first()
                call.keeper = None
                call.fail(ConnectionLost("the pool is closed", sent=False))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            self._idle.pop().drop()

    async def close(self) -> None:
        """Drop every connection; calls under way fail."""
        self.retire()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self._open):
            connection.abort()
        if self._open:
            try:
                async with asyncio.timeout(1.0):  # aborting takes a turn of the loop
                    await self._empty.wait()
            except TimeoutError:
                pass

    # --- for the connections

    def over(self, request: Request) -> None:
        """A request has ended, or was given up while it stood in line: its place is the next
        one's."""
        places = self._brief if request.brief else self._calls
        if places.waiting:
            if request in places.waiting:
                places.leave_line(request)
                return
            places.taken -= 1
            if self._loop is not None:
                self._loop.call_soon(
                    self._serve, places
                )  # a server that closes behind its reply is seen to by then
        else:
            places.taken -= 1

    def _serve(self, places: _Places) -> None:
        """Those who wait, as far as there are places."""
        while (
            places.waiting
            and not self._closed
            and self._loop is not None
            and self._has_room(places)
        ):
            self._begin(places.first(), places, self._loop)

    def put(self, connection: _Connection) -> bool:
        """Take back a connection that can be used again."""
        loop = self._loop
        if self._closed or loop is None:
            return False
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._timer is None:
            self._timer = loop.call_later(self._idle_limit, self._expire)
        return True

    def gone(self, connection: _Connection) -> None:
        if connection in self._open:
            self._open.discard(connection)
            _Everywhere.open -= 1
        if connection in self._idle:
            self._idle.remove(connection)
        if self._closed and not self._open:
            self._empty.set()

    def _expire(self) -> None:
        # One timer for all: the oldest stand first, since connections are taken and put back at the
        # end.
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._idle:
            left = self._idle[0].idle_since + self._idle_limit - loop.time()
            if left > 0.001:
                self._timer = loop.call_later(left, self._expire)
                break
            self._idle.pop(0).drop()

    # --- connecting

    async def _dial(self, connection: _Connection) -> None:
        """Raises OSError, ValueError."""
        context = (self._ssl_context or default_context()) if self.tls else None
        if self._secure is None:
            await dial(self._address, context, self._proxy, self._resolve, connection)
            return
        secured = self._secure(connection)
        try:
            await dial(self._address, context, self._proxy, self._resolve, secured)
            await secured.ready
        except BaseException:
            secured.abort()
            raise

    async def _connect(self, call: Request, connection: _Connection) -> None:
        error = f"no connection to {self.authority}"
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._dial(connection)
        except BaseException as e:
            connection.drop()
            self.gone(connection)  # uvloop does not tell of the loss when connecting is cancelled
            if isinstance(e, TimeoutError):
                call.fail(
                    ConnectionLost(
                        f"{error} in {self._connect_timeout:g} s", sent=False, vague=True
                    )
                )
            elif isinstance(e, Forbidden):
                call.fail(e)
            elif isinstance(e, (OSError, ValueError)):
                ours = isinstance(e, OSError) and e.errno in WANTS
                why = f"{error}: {e.args[-1] if e.args else e}"
                call.fail(
                    ConnectionLost(why, sent=False, ours=ours, vague=isinstance(e, socket.gaierror))
                )
            else:
                raise
        else:
            if call.sink is None:
                connection.drop()
            else:
                connection.send(call)

    def _connected(self, call: Request, connection: _Connection, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # perhaps before it began to run; an aborted call hears nothing of it
            self.gone(connection)
            call.fail(ConnectionLost("the pool is closed", sent=False))
