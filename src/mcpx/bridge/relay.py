"""The bridge: one client on standard input and output, and one gateway after another.

Messages pass unchanged, in both framings and both eras. When the gateway ends, the bridge finds or
starts another one, repeats the client's introduction there, and continues the conversation. It
repeats requests without effect. It answers a tool call that may have run with an error, and never
repeats it. It tells the client once that lists may have changed.

Without a gateway, requests wait, up to limits of time, number, and bytes. If one side does not
read, the bridge stops reading from the other side.

The bridge has one thread and one loop. Only the search for a gateway has another thread.
"""

import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from mcpx.bridge.gateway_search import GatewaySearch
from mcpx.bridge.gateways import Attachment, Wanted
from mcpx.bridge.ledger import LISTEN, SUBSCRIPTION_KEY, Entry, Ledger
from mcpx.bridge.link import Link
from mcpx.bridge.messages import Json, answered, is_id, read, table, write
from mcpx.bridge.standard import ClientSide
from mcpx.model.errors import GATEWAY_ENDING, INVALID_REQUEST, SERVER_DOWN, RpcError, gateway_ending

MAX_BUFFERED_BYTES = 1 << 20  # For one side. Above it, nothing is read from the other side.
MAX_HELD = 1_000
MAX_HELD_BYTES = 16 << 20
HELD_SECONDS = 60.0
GRACE_SECONDS = 3.0  # The gateway gives running calls the same time after the client has left.
LAST_REPLIES_SECONDS = 2.0
MOVING = "notifications/mcpx/moving"
DIED = (
    "the gateway ended while this request was running; it may have had an effect, and is not "
    "repeated"
)

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
Handler = Callable[[int], None]


class _Held(NamedTuple):
    raw: bytes
    entry: Entry | None
    """The request. None for a notification or an invalid message."""
    deadline: float


class _HeldMessages:
    """Messages that wait for a gateway, the oldest first."""

    def __init__(self) -> None:
        self._messages: deque[_Held] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def is_full(self) -> bool:
        return len(self._messages) >= MAX_HELD or self._size >= MAX_HELD_BYTES

    @property
    def deadline(self) -> float | None:
        return self._messages[0].deadline if self._messages else None

    def add(self, raw: bytes, entry: Entry | None, *, first: bool = False) -> None:
        held = _Held(raw, entry, time.monotonic() + HELD_SECONDS)
        if first:
            self._messages.appendleft(held)
        else:
            self._messages.append(held)
        self._size += len(raw)

    def remove(self, entry: Entry) -> None:
        for held in self._messages:
            if held.entry is entry:
                self._messages.remove(held)
                self._size -= len(held.raw)
                return

    def take_expired(self, now: float) -> list[_Held]:
        expired: list[_Held] = []
        while self._messages and self._messages[0].deadline <= now:
            held = self._messages.popleft()
            self._size -= len(held.raw)
            expired.append(held)
        return expired

    def take_all(self) -> list[_Held]:
        messages = list(self._messages)
        self._messages.clear()
        self._size = 0
        return messages


class _Poller:
    """Waits for files and sockets."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._events: dict[Any, int] = {}

    def watch(self, wanted: dict[Any, tuple[int, Handler]]) -> None:
        """Wait for these and for nothing else."""
        for file in self._events.keys() - wanted.keys():
            self.forget(file)
        for file, (events, handler) in wanted.items():
            if file not in self._events:
                self._selector.register(file, events, handler)
            elif self._events[file] != events:
                self._selector.modify(file, events, handler)
            self._events[file] = events

    def forget(self, file: Any) -> None:
        if self._events.pop(file, None) is not None:
            self._selector.unregister(file)

    def select(self, timeout: float | None, last: Any) -> None:
        """Handle what is ready, the file `last` after all others."""
        ready = self._selector.select(timeout)
        ready.sort(key=lambda each: each[0].fileobj == last)
        for key, events in ready:
            key.data(events)


class Relay:
    def __init__(self, wanted: Wanted, first: Attachment, say: Callable[[str], None]) -> None:
        self._wake, self._waker = socket.socketpair()
        self._client = ClientSide(first.about.get("max_request"), self._from_client)
        self._search = GatewaySearch(wanted, say, self._waker)
        self._poller = _Poller()
        self._ledger = Ledger()
        self._held = _HeldMessages()
        self._questions: dict[str, tuple[Link, Any]] = {}
        """Requests to the client, by the id that it knows: the gateway and the gateway's id."""
        self._generation = 0
        self._link: Link | None = None
        self._old: list[Link] = []
        """Gateways that are ending while requests run there."""
        self._role: object = None
        self._end_at: float | None = None
        """When running requests must have finished, once the client has left."""
        self._signals = 0
        self._attach(first)

    # Loop
    # ----------------------------------------------------------------------------------------------

    def run(self) -> int:
        for end in (self._wake, self._waker):
            end.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)
        if hasattr(signal, "SIGHUP"):
            # A terminal that closes also closes the input.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            while not self._is_over():
                self._poller.watch(self._files())
                # The client last, so that nothing is sent to a gateway that is known to have ended.
                self._poller.select(self._timeout(), self._client.standard.source)
                self._on_time()
            return 0
        finally:
            signal.set_wakeup_fd(-1)
            for link in self._links():
                link.close()
            self._client.standard.close()

    def _links(self) -> list[Link]:
        if self._link is None:
            return list(self._old)
        return [*self._old, self._link]

    def _is_over(self) -> bool:
        if self._signals > 1:
            return True
        if self._end_at is None:
            return False
        if not self._links() and not self._held and not self._client.waiting:
            return True
        return time.monotonic() > self._end_at + LAST_REPLIES_SECONDS

    def _timeout(self) -> float | None:
        times = [self._held.deadline, self._search.retry_at, self._end_at]
        if self._end_at is not None:
            times.append(self._end_at + LAST_REPLIES_SECONDS)
        pending = [at for at in times if at is not None]
        if not pending:
            return None
        now = time.monotonic()
        ahead = [at - now for at in pending if at > now]
        return min(ahead) + 0.001 if ahead else 0.0

    def _files(self) -> dict[Any, tuple[int, Handler]]:
        """What to wait for. It depends on the buffers."""
        client, standard = self._client, self._client.standard
        client_is_slow = client.waiting > MAX_BUFFERED_BYTES
        gateway_is_slow = self._link is not None and self._link.waiting > MAX_BUFFERED_BYTES
        files: dict[Any, tuple[int, Handler]] = {self._wake: (READ, self._woken)}
        if client.is_reading and not (client_is_slow or gateway_is_slow or self._held.is_full):
            files[standard.source] = (READ, self._read_client)
        if client.waiting and standard.watches_output:
            files[standard.sink] = (WRITE, self._write_client)
        for link in self._links():
            events = 0
            if not client_is_slow:
                events |= READ
            if link.waiting:
                events |= WRITE
            if events:
                files[link.connected] = (events, partial(self._serve_link, link))
        return files

    def _on_time(self) -> None:
        now = time.monotonic()
        for held in self._held.take_expired(now):
            reason = f"no gateway within {HELD_SECONDS:.0f} s: {self._search.problem}"
            self._refuse(held.entry, RpcError(SERVER_DOWN, reason))
        self._search.start_if_due(now)
        if self._end_at is not None and now > self._end_at:
            self._give_up()

    def _woken(self, events: int) -> None:
        try:
            while self._wake.recv(4096):
                pass
        except BlockingIOError:
            pass
        found = self._search.result()
        if found is not None:
            if self._end_at is not None and not self._held:
                found.connected.close()
            else:
                self._attach(found)
        if self._signals:
            self._client_left()

    def _signalled(self, number: int, frame: Any) -> None:
        self._signals += 1

    # Client
    # ----------------------------------------------------------------------------------------------

    def _read_client(self, events: int) -> None:
        if not self._client.read():
            self._client_left()
        self._flush()

    def _write_client(self, events: int) -> None:
        if not self._client.flush():
            self._client_left()
            self._end_at = 0.0

    def _flush(self) -> None:
        link = self._link
        if link is not None and link.waiting and not link.flush():
            self._lost(link)
        if self._client.waiting:
            self._write_client(0)

    def _from_client(self, raw: bytes) -> None:
        message = read(raw)
        if b"\n" in raw or b"\r" in raw:  # Between tokens, because texts escape them.
            raw = raw.replace(b"\r", b" ").replace(b"\n", b" ")
        method, id = message.get("method"), message.get("id")
        if not message:
            self._send(raw)  # The gateway reports what is wrong.
        elif not isinstance(method, str):
            self._response_from_client(message, id, raw)
        elif "id" not in message:
            self._notification_from_client(method, message, raw)
        elif not is_id(id):
            self._send(raw)
        elif id in self._ledger.open:
            error = RpcError(INVALID_REQUEST, f"Request id {id!r} is already in flight")
            self._client.send_error(id, error)
        else:
            self._send(raw, self._ledger.begin(id, method, message, raw))

    def _response_from_client(self, message: Json, id: Any, raw: bytes) -> None:
        asked = self._questions.pop(id, None) if isinstance(id, str) else None
        if asked is not None:
            link, gateway_id = asked
            if gateway_id != id:
                raw = write({**message, "id": gateway_id})
            link.say(raw)
            self._push(link)
        elif "result" not in message and "error" not in message:
            self._send(raw)  # The gateway reports what is wrong.

    def _notification_from_client(self, method: str, message: Json, raw: bytes) -> None:
        if method == "notifications/initialized":
            self._ledger.greeted = True
        if method != "notifications/cancelled":
            self._send(raw)
            return
        id = table(message.get("params")).get("requestId")
        entry = self._ledger.end(id, False) if is_id(id) else None
        if entry is None:
            return  # Answered already.
        if entry.link is None:
            self._held.remove(entry)
        else:
            entry.link.say(raw)
            self._push(entry.link)

    def _push(self, link: Link) -> None:
        if link is not self._link and not link.flush():
            self._lost(link)

    def _send(self, raw: bytes, entry: Entry | None = None) -> None:
        """Send a message to the gateway, or hold it until a gateway is found."""
        link = self._link
        if link is None:
            self._held.add(raw, entry)
            return
        end = link.say(raw)
        if entry is not None:
            entry.link, entry.end = link, end
        if link.waiting > MAX_BUFFERED_BYTES:
            self._flush()

    def _client_left(self) -> None:
        """The input or the bridge ends. Running requests get some time to finish (LIF-8)."""
        if self._end_at is not None:
            return
        self._end_at = time.monotonic() + GRACE_SECONDS
        self._client.is_reading = False
        for link in self._links():
            if not link.say_no_more():
                self._lost(link)

    def _give_up(self) -> None:
        for held in self._held.take_all():
            reason = f"no gateway, and it was not sent: {self._search.problem}"
            self._refuse(held.entry, RpcError(SERVER_DOWN, reason))
        if not self._links():
            for entry in list(self._ledger.open.values()):
                self._refuse(entry, gateway_ending())

    def _refuse(self, entry: Entry | None, error: RpcError) -> None:
        if entry is not None:
            self._ledger.end(entry.id, False)
            self._client.send_error(entry.id, error)

    # Gateway
    # ----------------------------------------------------------------------------------------------

    def _serve_link(self, link: Link, events: int) -> None:
        if link not in self._links():
            return  # Lost in this turn of the loop.
        is_open = True
        if events & WRITE:
            is_open = link.flush()
        if is_open and events & READ:
            is_open = link.read()
        if not is_open:
            self._lost(link)
        self._flush()

    def _from_gateway(self, link: Link, raw: bytes) -> None:
        answered_id = answered(raw)
        if answered_id is not None:
            self._replied(link, answered_id, None, raw)
            return
        message = read(raw)
        method, id = message.get("method"), message.get("id")
        if method is None:
            self._replied(link, id, message.get("error"), raw)
        elif "id" in message:
            self._question_from_gateway(link, id, message, raw)
        elif method == MOVING:
            self._move(link)
        elif method == "notifications/cancelled":
            self._question_cancelled(link, message, raw)
        elif method == "notifications/subscriptions/acknowledged" and link.acknowledged:
            meta = table(table(message.get("params")).get("_meta"))
            subscription = meta.get(SUBSCRIPTION_KEY)
            if subscription in link.acknowledged:
                link.acknowledged.discard(subscription)
            else:
                self._client.send(raw)
        else:
            self._client.send(raw)

    def _question_from_gateway(self, link: Link, id: Any, message: Json, raw: bytes) -> None:
        """Pass a request to the client. Ids of different gateways must not be the same."""
        if link.generation == 1 and isinstance(id, str):
            client_id = id
        else:
            client_id = f"{link.generation}/{id}"
            raw = write({**message, "id": client_id})
        self._questions[client_id] = (link, id)
        self._client.send(raw)

    def _question_cancelled(self, link: Link, message: Json, raw: bytes) -> None:
        params = table(message.get("params"))
        gateway_id = params.get("requestId")
        for id, asked in list(self._questions.items()):
            if asked == (link, gateway_id):
                del self._questions[id]
                if gateway_id != id:
                    raw = write({**message, "params": {**params, "requestId": id}})
                self._client.send(raw)

    def _replied(self, link: Link, id: Any, error: Any, raw: bytes) -> None:
        entry = self._ledger.open.get(id) if is_id(id) else None
        if entry is None:
            if not isinstance(id, str) or not id.startswith(_replay_prefix(link)):
                self._client.send(raw)
            return
        if entry.link is not link:
            return  # Repeated at another gateway.
        is_cut_off = entry.method == LISTEN or table(error).get("code") == GATEWAY_ENDING
        if link.moving and self._end_at is None and entry.raw is not None and is_cut_off:
            self._repeat(entry, entry.raw)
            return
        self._ledger.end(entry.id, error is None)
        self._client.send(raw)
        if entry.method == "shutdown" and error is None:
            self._client_left()

    def _repeat(self, entry: Entry, raw: bytes) -> None:
        """Send a request to the next gateway."""
        entry.link = None
        if entry.method == LISTEN:
            entry.begun = True
        if self._link is not None:
            _put(self._link, entry, raw)
        else:
            self._held.add(raw, entry, first=True)

    def _move(self, link: Link) -> None:
        """The gateway ends. Its requests finish there, and new ones go to the next gateway."""
        link.moving = True
        if link is self._link:
            self._link = None
            self._old.append(link)
            if self._end_at is None:
                self._search.start(wait_for_restart=self._role != "background")

    def _lost(self, link: Link) -> None:
        self._poller.forget(link.connected)
        link.close()
        if link is self._link:
            self._link = None
        elif link in self._old:
            self._old.remove(link)
        else:
            return
        for id, (asker, _) in list(self._questions.items()):
            if asker is link:
                del self._questions[id]
                params = {"requestId": id, "reason": "the gateway that asked has ended"}
                cancelled = {"method": "notifications/cancelled", "params": params}
                self._client.send(write({"jsonrpc": "2.0", **cancelled}))
        for entry in reversed(self._ledger.of(link)):
            self._unanswered(entry)
        if link.own is not None:
            link.own.poll()
        if self._end_at is None and self._link is None and not link.moving:
            was_started_by_user = link.own is None and self._role != "background"
            self._search.start(wait_for_restart=was_started_by_user)

    def _unanswered(self, entry: Entry) -> None:
        """Decide about a request whose gateway has ended."""
        if self._end_at is not None:
            self._refuse(entry, gateway_ending())
            return
        raw = entry.text()
        if raw is None:
            self._refuse(entry, RpcError(GATEWAY_ENDING, DIED))
        else:
            self._repeat(entry, raw)

    def _attach(self, found: Attachment) -> None:
        """Continue the conversation at a gateway."""
        self._generation += 1
        link = Link(found.connected, self._generation, self._from_gateway)
        link.own = found.own
        self._link = link
        self._role = found.about.get("role")
        if self._generation == 1:
            return
        for raw in self._ledger.replay(_replay_prefix(link)):
            link.say(raw)
        for message in self._ledger.changes():
            self._client.send(write(message))
        for held in self._held.take_all():
            if held.entry is None:
                link.say(held.raw)
            else:
                _put(link, held.entry, held.raw)
        if self._end_at is not None:
            link.say_no_more()
        self._flush()


def _put(link: Link, entry: Entry, raw: bytes) -> None:
    if entry.begun:
        link.acknowledged.add(entry.id)
    entry.link, entry.end = link, link.say(raw)


def _replay_prefix(link: Link) -> str:
    """Prefix of the ids of messages that the bridge sends in the client's name."""
    return f"mcpx-bridge/{link.generation}/"
