"""The bridge at work: one client on standard input and output, one gateway after another behind it.

Promise: messages pass as they came, both framings, both eras. When the gateway ends, in order or
not, another is found or started, told who the client is, and the conversation goes on: requests
without effect are asked again, a tool call that may have run is answered with an error and never
repeated, the client hears once that lists may have changed. Requests wait while there is no
gateway, bounded in time, number and bytes. What one side does not read is not read from the other:
nothing here grows without bound.

One thread, one loop; only the search for a gateway has a thread of its own.
"""

import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from mcpx.bridge import gateways
from mcpx.bridge.gateways import Attachment, Refused, Wanted
from mcpx.bridge.ledger import LISTEN, SUBSCRIPTION_KEY, Entry, Ledger
from mcpx.bridge.link import Link
from mcpx.bridge.messages import Id, Json, answered, is_id, read, table, write
from mcpx.bridge.standard import Standard
from mcpx.model.errors import GATEWAY_ENDING, INVALID_REQUEST, SERVER_DOWN, RpcError, gateway_ending
from mcpx.wire.framing import Framing, MessageReader, frame

CHUNK = 65536
HIGH = 1 << 20
"""Bytes that wait for one side before nothing more is taken from the other."""
MOST_HELD = 1_000
HELD_BYTES = 16 << 20
HELD_FOR = 60.0
"""What waits for a gateway: so many messages, so many bytes, so many seconds."""
GRACE = 3.0
"""Seconds calls may take to finish once the client has left; the gateway has the same."""
LAST_WORDS = 2.0
"""Seconds after that in which the gateway says what became of the rest, and the client takes it."""
PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds between two searches for a gateway."""
BACK_SOON = 0.5
"""Seconds in which a gateway that somebody started may be started again before one is started in
the background."""
MOVING = "notifications/mcpx/moving"
DIED = (
    "the gateway ended while this request was running; it may have had an effect, and is not "
    "repeated"
)


class _Held:
    __slots__ = ("deadline", "entry", "raw")

    def __init__(self, raw: bytes, entry: Entry | None, deadline: float) -> None:
        self.raw = raw
        self.entry = entry
        """The request; None: a notification, or nothing that is understood here."""
        self.deadline = deadline


class Relay:
    def __init__(self, wanted: Wanted, first: Attachment, say: Callable[[str], None]) -> None:
        self._wanted = wanted
        self._say = say
        self._standard = Standard()
        self._ledger = Ledger()
        self._questions: dict[str, tuple[Link, Any]] = {}
        """What the client is being asked: the id it knows -> by whom, under which id."""
        self._generation = 0
        self._link: Link | None = None
        self._old: list[Link] = []
        """Gateways that end, and what still runs there."""
        self._held: deque[_Held] = deque()
        self._held_bytes = 0
        self._out = bytearray()
        self._reading = True
        self._ending: float | None = None
        """Since the client left: when it is over at the latest."""
        self._signals = 0
        self._searching = False
        self._failures = 0
        self._again_at: float | None = None
        self._why = "no gateway runs"
        self._found: deque[Attachment | Refused | None] = deque()
        self._wake, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._watched: dict[Any, int] = {}
        limit = first.about.get("max_request")
        self._reader = MessageReader(
            self._from_client,
            self._skipped,
            limit=limit if isinstance(limit, int) else 4 << 20,
            framing="detect",
        )
        self._take_up(first)

    # The loop
    # ----------------------------------------------------------------------------------------------

    def run(self) -> int:
        for end in (self._wake, self._waker):
            end.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)
        if hasattr(signal, "SIGHUP"):
            signal.signal(
                signal.SIGHUP, signal.SIG_IGN
            )  # a terminal that closes closes our input, too
        try:
            while not self._is_over():
                self._watch()
                ready = self._selector.select(self._patience())
                # The client last: what it says is not said to a gateway of whose end we could know.
                for key, events in sorted(
                    ready, key=lambda each: each[0].fileobj == self._standard.source
                ):
                    key.data(events)
                self._on_time()
            return 0
        finally:
            signal.set_wakeup_fd(-1)
            for link in (*self._old, *((self._link,) if self._link is not None else ())):
                link.close()
            self._standard.close()

    def _is_over(self) -> bool:
        if self._signals > 1:
            return True
        if self._ending is None:
            return False
        nothing_left = self._link is None and not self._old and not self._held and not self._out
        return nothing_left or time.monotonic() > self._ending + LAST_WORDS

    def _patience(self) -> float | None:
        times = [held.deadline for held in (self._held[0],)] if self._held else []
        times += [self._again_at] if self._again_at is not None else []
        times += [self._ending, self._ending + LAST_WORDS] if self._ending is not None else []
        now = time.monotonic()
        ahead = [at - now for at in times if at > now]
        return max(0.0, min(ahead) + 0.001) if ahead else (0.0 if times else None)

    def _watch(self) -> None:
        """What is waited for depends on what waits."""
        full = (
            len(self._out) > HIGH or len(self._held) >= MOST_HELD or self._held_bytes >= HELD_BYTES
        )
        full = full or (self._link is not None and self._link.waiting > HIGH)
        standard, read, write = self._standard, selectors.EVENT_READ, selectors.EVENT_WRITE
        wishes: dict[Any, tuple[int, Callable[[int], None]]] = {self._wake: (read, self._woken)}
        if self._reading and not full:
            wishes[standard.source] = (read, self._read_client)
        if self._out and standard.watches_output:
            wishes[standard.sink] = (write, self._write_client)
        for link in (*self._old, *((self._link,) if self._link is not None else ())):
            events = (read if len(self._out) <= HIGH else 0) | (write if link.waiting else 0)
            if events:
                wishes[link.connected] = (
                    events,
                    lambda events, link=link: self._serve_link(link, events),
                )
        for what in [what for what in self._watched if what not in wishes]:
            self._selector.unregister(what)
            del self._watched[what]
        for what, (events, act) in wishes.items():
            if what not in self._watched:
                self._selector.register(what, events, act)
            elif self._watched[what] != events:
                self._selector.modify(what, events, act)
            self._watched[what] = events

    def _forget(self, what: Any) -> None:
        if self._watched.pop(what, None) is not None:
            self._selector.unregister(what)

    def _on_time(self) -> None:
        now = time.monotonic()
        while self._held and self._held[0].deadline <= now:
            held = self._held.popleft()
            self._held_bytes -= len(held.raw)
            if held.entry is not None:
                self._ledger.end(held.entry.id, False)
                self._answer(
                    held.entry.id,
                    RpcError(SERVER_DOWN, f"no gateway within {HELD_FOR:.0f} s: {self._why}"),
                )
        if self._again_at is not None and now >= self._again_at:
            self._again_at = None
            self._search()
        if self._ending is not None and now > self._ending:
            self._give_up()

    def _woken(self, events: int) -> None:
        try:
            while self._wake.recv(4096):
                pass
        except BlockingIOError:
            pass
        while self._found:
            self._have_found(self._found.popleft())
        if self._signals:
            self._client_left()

    def _signalled(self, number: int, frame: Any) -> None:
        self._signals += 1

    # The client
    # ----------------------------------------------------------------------------------------------

    def _read_client(self, events: int) -> None:
        try:
            data = self._standard.read()
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._reader.feed(data)
        else:
            self._reader.finish()
            self._client_left()
        self._flush()

    def _flush(self) -> None:
        """Say what was gathered in this turn."""
        if (link := self._link) is not None and link.waiting and not link.flush():
            self._lost(link)
        if self._out:
            self._write_client(0)

    def _from_client(self, raw: bytes) -> None:
        message = read(raw)
        if b"\n" in raw or b"\r" in raw:  # between words; inside of a text there is none
            raw = raw.replace(b"\r", b" ").replace(b"\n", b" ")
        if not message:
            self._send(raw)  # the gateway says what is wrong with it
            return
        method, id = message.get("method"), message.get("id")
        if not isinstance(method, str):
            self._answered(message, id, raw)
        elif "id" not in message:
            self._notified(method, message, raw)
        elif is_id(id):
            if id in self._ledger.open:
                self._answer(
                    id, RpcError(INVALID_REQUEST, f"Request id {id!r} is already in flight")
                )
            else:
                self._send(raw, self._ledger.begin(id, method, message, raw))
        else:
            self._send(raw)

    def _answered(self, message: Json, id: Any, raw: bytes) -> None:
        """The client answers a question."""
        asked = self._questions.pop(id, None) if isinstance(id, str) else None
        if asked is None:
            if not ("result" in message or "error" in message):
                self._send(raw)  # not even an answer
            return  # to a gateway that is gone
        link, own = asked
        link.say(raw if own == id else write({**message, "id": own}))
        self._push(link)

    def _notified(self, method: str, message: Json, raw: bytes) -> None:
        if method == "notifications/initialized":
            self._ledger.greeted = True
        elif method == "notifications/cancelled":
            id = table(message.get("params")).get("requestId")
            entry = self._ledger.end(id, False) if is_id(id) else None
            if entry is None:
                return  # answered by now
            if entry.link is None:
                self._drop_held(entry)
            else:
                entry.link.say(raw)
                self._push(entry.link)
            return
        self._send(raw)

    def _push(self, link: Link) -> None:
        if link is not self._link and not link.flush():
            self._lost(link)

    def _send(self, raw: bytes, entry: Entry | None = None) -> None:
        """To the gateway; or to wait for one."""
        link = self._link
        if link is None:
            self._hold(raw, entry)
            return
        end = link.say(raw)
        if entry is not None:
            entry.link, entry.end = link, end
        if link.waiting > HIGH:
            self._flush()

    def _hold(self, raw: bytes, entry: Entry | None, *, first: bool = False) -> None:
        held = _Held(raw, entry, time.monotonic() + HELD_FOR)
        self._held.appendleft(held) if first else self._held.append(held)
        self._held_bytes += len(raw)

    def _drop_held(self, entry: Entry) -> None:
        for held in self._held:
            if held.entry is entry:
                self._held.remove(held)
                self._held_bytes -= len(held.raw)
                return

    def _skipped(self, size: int, reason: str, head: bytes) -> None:
        self._answer(None, RpcError(INVALID_REQUEST, f"skipped {size:,} bytes of input: {reason}"))

    def _answer(self, id: Id | None, error: RpcError) -> None:
        self._tell(write({"jsonrpc": "2.0", "id": id, "error": error.to_json()}))

    def _tell(self, raw: bytes) -> None:
        framing: Framing = (
            "content-length" if self._reader.framing == "content-length" else "newline"
        )
        self._out += frame(raw, framing)

    def _write_client(self, events: int) -> None:
        try:
            while self._out:
                count = self._standard.write(memoryview(self._out)[:CHUNK])
                del self._out[:count]
        except BlockingIOError:
            pass
        except OSError:  # the client is gone, and with it who would want to know
            self._out.clear()
            self._client_left()
            self._ending = 0.0

    def _client_left(self) -> None:
        """It said its last word, or we were told to end: what runs finishes within the grace
        (LIF-8)."""
        if self._ending is not None:
            return
        self._ending = time.monotonic() + GRACE
        self._reading = False
        for link in (*self._old, *((self._link,) if self._link is not None else ())):
            if not link.say_no_more():
                self._lost(link)

    def _give_up(self) -> None:
        """What is not answered by now is not."""
        for held in self._held:
            if held.entry is not None:
                self._ledger.end(held.entry.id, False)
                self._answer(
                    held.entry.id,
                    RpcError(SERVER_DOWN, f"no gateway, and it was not sent: {self._why}"),
                )
        self._held.clear()
        if self._link is None and not self._old:
            for id in list(self._ledger.open):
                self._ledger.end(id, False)
                self._answer(id, gateway_ending())

    # The gateway
    # ----------------------------------------------------------------------------------------------

    def _serve_link(self, link: Link, events: int) -> None:
        if link is not self._link and link not in self._old:
            return  # lost in this very turn
        good = link.flush() if events & selectors.EVENT_WRITE else True
        if good and events & selectors.EVENT_READ:
            good = link.read()
        if not good:
            self._lost(link)
        self._flush()

    def _from_gateway(self, link: Link, raw: bytes) -> None:
        if (id := answered(raw)) is not None:
            self._replied(link, id, None, raw)
            return
        message = read(raw)
        method, id = message.get("method"), message.get("id")
        if method is None:
            self._replied(link, id, message.get("error"), raw)
        elif "id" in message:
            own, id = (
                id,
                id if link.generation == 1 and isinstance(id, str) else f"{link.generation}/{id}",
            )
            self._questions[id] = (link, own)
            self._tell(raw if own == id else write({**message, "id": id}))
        elif method == MOVING:
            self._move(link)
        elif method == "notifications/cancelled":
            self._question_over(link, message, raw)
        elif method == "notifications/subscriptions/acknowledged" and link.acknowledged:
            which = table(table(message.get("params")).get("_meta")).get(SUBSCRIPTION_KEY)
            if which in link.acknowledged:
                link.acknowledged.discard(which)
            else:
                self._tell(raw)
        else:
            self._tell(raw)

    def _question_over(self, link: Link, message: Json, raw: bytes) -> None:
        params = table(message.get("params"))
        own = params.get("requestId")
        for id, asked in list(self._questions.items()):
            if asked == (link, own):
                del self._questions[id]
                changed = {**message, "params": {**params, "requestId": id}}
                self._tell(raw if own == id else write(changed))

    def _replied(self, link: Link, id: Any, error: Any, raw: bytes) -> None:
        entry = self._ledger.open.get(id) if is_id(id) else None
        if entry is None:
            if not (
                isinstance(id, str) and id.startswith(_prefix(link))
            ):  # to what was said in the client's name
                self._tell(raw)
            return
        if entry.link is not link:
            return  # asked again elsewhere
        cut = table(error).get("code") == GATEWAY_ENDING
        if (
            link.moving
            and self._ending is None
            and entry.raw is not None
            and (cut or entry.method == LISTEN)
        ):
            self._ask_again(entry, entry.raw)
            return
        self._ledger.end(entry.id, error is None)
        self._tell(raw)
        if entry.method == "shutdown" and error is None:
            self._client_left()

    def _ask_again(self, entry: Entry, raw: bytes) -> None:
        """At the next gateway."""
        entry.link = None
        if entry.method == LISTEN:
            entry.begun = True
        if self._link is not None:
            self._put(self._link, entry, raw)
        else:
            self._hold(raw, entry, first=True)

    def _put(self, link: Link, entry: Entry, raw: bytes) -> None:
        if entry.begun:
            link.acknowledged.add(entry.id)
        entry.link, entry.end = link, link.say(raw)

    def _move(self, link: Link) -> None:
        """Its gateway ends; what runs there finishes there, all else goes to the next."""
        link.moving = True
        if link is self._link:
            self._link = None
            self._old.append(link)
            if self._ending is None:
                self._search(patient=self._role != "background")

    def _lost(self, link: Link) -> None:
        self._forget(link.connected)
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
                told = {"requestId": id, "reason": "the gateway that asked has ended"}
                self._tell(
                    write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": told})
                )
        for entry in reversed(self._ledger.of(link)):
            self._unanswered(entry)
        if link.own is not None:
            link.own.poll()
        if self._ending is None and self._link is None and not link.moving:
            self._search(patient=link.own is None and self._role != "background")

    def _unanswered(self, entry: Entry) -> None:
        if self._ending is not None:
            self._ledger.end(entry.id, False)
            self._answer(entry.id, gateway_ending())
        elif (raw := entry.text()) is not None:
            self._ask_again(entry, raw)
        else:
            self._ledger.end(entry.id, False)
            self._answer(entry.id, RpcError(GATEWAY_ENDING, DIED))

    # Another gateway
    # ----------------------------------------------------------------------------------------------

    def _search(self, *, patient: bool = False) -> None:
        """In a thread: it may take a while, and the client may say meanwhile that it does not
        matter any more. `patient`: somebody may be about to start one."""
        if self._searching:
            return
        self._searching = True
        from threading import Thread

        def search() -> None:
            found: Attachment | Refused | None = None
            try:
                until = time.monotonic() + (BACK_SOON if patient else 0.0)
                while True:
                    found = gateways.find_running(self._wanted)
                    if found is not None or time.monotonic() >= until:
                        break
                    time.sleep(gateways.PAUSE)
                if found is None:
                    found = gateways.find(self._wanted)
                if isinstance(found, Refused) and found.reason not in (
                    "start",
                    "state",
                    *gateways.SAID_SO,
                ):
                    if self._failures == 0:
                        self._say(f"{found.error}; this client gets a gateway of its own")
                    found = gateways.own(self._wanted)
            except Exception as error:  # noqa: BLE001 - whatever it is, the client is answered
                found = Refused("start", f"{type(error).__name__}: {error}")
            self._found.append(found)
            try:
                self._waker.send(b"\0")
            except BlockingIOError:
                pass

        Thread(target=search, daemon=True).start()

    def _have_found(self, found: Attachment | Refused | None) -> None:
        self._searching = False
        if isinstance(found, Attachment):
            if self._ending is not None and not self._held:
                found.connected.close()
                return
            self._failures, self._again_at = 0, None
            self._take_up(found)
            return
        self._why = found.error if found is not None else "no gateway could be started"
        pause = PAUSES[min(self._failures, len(PAUSES) - 1)]
        if self._failures == 0:
            self._say(f"no gateway: {self._why}")
        self._failures += 1
        self._again_at = time.monotonic() + pause

    def _take_up(self, found: Attachment) -> None:
        self._generation += 1
        self._link = link = Link(found.connected, self._generation, self._from_gateway)
        link.own = found.own
        self._role = found.about.get("role")
        if self._generation == 1:
            return
        for raw in self._ledger.replay(_prefix(link)):
            link.say(raw)
        for message in self._ledger.changes():
            self._tell(write(message))
        held, self._held, self._held_bytes = self._held, deque(), 0
        for each in held:
            if each.entry is None:
                link.say(each.raw)
            else:
                self._put(link, each.entry, each.raw)
        if self._ending is not None:
            link.say_no_more()
        self._flush()


def _prefix(link: Link) -> str:
    """Of the ids under which a gateway is told who the client is."""
    return f"mcpx-bridge/{link.generation}/"
