"""Replies that become event streams only when they must, and can be taken up again; over a real
socket."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.http_pair import HttpClient, StreamedReply, serving_http
from kit.loop import run, yield_to_loop
from kit.until import until
from mcpx.front import streams
from mcpx.front.notices import Parcel, encoded
from mcpx.front.streams import EventLog, PostStream, PushStream, Shelf
from mcpx.model.call import Json
from mcpx.model.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RpcError,
)
from mcpx.wire import codec, jsonrpc
from mcpx.wire.exchange import Exchange, Headers

NOTICE = jsonrpc.notification("notifications/x", {"n": 1})
RESULT = jsonrpc.result(1, {"done": True})


class Door:
    """Requests of the client, one `Exchange` after the other."""

    def __init__(self, web: HttpClient, waiting: "asyncio.Queue[Exchange]") -> None:
        self._web = web
        self._waiting = waiting

    async def knock(self, method: str = "POST") -> tuple[Exchange, StreamedReply]:
        reply = self._web.send(method, "/mcp", b"{}" if method == "POST" else b"")
        return await self._waiting.get(), reply


@asynccontextmanager
async def door() -> AsyncGenerator[Door]:
    waiting: asyncio.Queue[Exchange] = asyncio.Queue()
    async with serving_http(waiting.put_nowait) as web:
        yield Door(web, waiting)


async def ids(reply: StreamedReply) -> list[tuple[str | None, Any]]:
    """All events up to the end of the stream, as (id, message)."""
    await reply.over.wait()
    found: list[tuple[str | None, Any]] = []
    while (event := await reply.events.get()) is not None:
        found.append((event.id, json.loads(event.data) if event.data else None))
    return found


# --- one POST


@pytest.mark.parametrize("name", ["", "s1"])
def test_a_reply_with_nothing_before_it_is_plain_json(name: str) -> None:
    async def main() -> None:
        async with door() as at:
            exchange, reply = await at.knock()
            PostStream(exchange, name, primed=bool(name)).finish(RESULT)
            assert await reply.json() == RESULT
            assert reply.status == 200
            assert reply.headers.get("content-type") == "application/json"

    run(main())


@pytest.mark.parametrize(
    ("code", "status"),
    [(METHOD_NOT_FOUND, 404), (INVALID_PARAMS, 400), (HEADER_MISMATCH, 400), (-32603, 200)],
)
def test_an_error_has_a_status_of_its_own_in_the_modern_era_only(code: int, status: int) -> None:
    async def main() -> None:
        async with door() as at:
            for name, expected in (("", status), ("s1", 200)):
                exchange, reply = await at.knock()
                PostStream(exchange, name).finish(jsonrpc.failure(1, RpcError(code, "no")))
                assert (await reply.json())["error"]["code"] == code
                assert reply.status == expected

    run(main())


def test_something_before_the_reply_makes_it_a_stream() -> None:
    async def main() -> None:
        async with door() as at:
            exchange, reply = await at.knock()
            stream = PostStream(exchange, "")
            stream.send(NOTICE)
            assert await reply.message() == NOTICE  # before there is a result
            stream.finish(RESULT)
            assert await ids(reply) == [(None, RESULT)]
            assert reply.headers.get("content-type") == "text/event-stream"
            assert "no-transform" in (reply.headers.get("cache-control") or "")

    run(main())


def test_only_a_primed_stream_begins_with_an_empty_event() -> None:
    """Clients before 2025-11-25 choke on it."""

    async def main() -> None:
        async with door() as at:
            for primed in (True, False):
                exchange, reply = await at.knock()
                stream = PostStream(exchange, "s1", primed=primed)
                stream.send(NOTICE)
                stream.finish(RESULT)
                priming = [("s1-0", None)] if primed else []
                assert await ids(reply) == [*priming, ("s1-1", NOTICE), ("s1-2", RESULT)]

    run(main())


def test_the_priming_event_says_when_to_come_back() -> None:
    async def main() -> None:
        async with door() as at:
            exchange, reply = await at.knock()
            PostStream(exchange, "s1", primed=True).send(NOTICE)
            event = await reply.event()
            assert (event.id, event.retry, event.data or b"") == ("s1-0", streams.RETRY_MS, b"")

    run(main())


def test_nothing_is_said_after_the_reply() -> None:
    async def main() -> None:
        async with door() as at:
            exchange, reply = await at.knock()
            stream = PostStream(exchange, "s1")
            stream.send(NOTICE)
            stream.finish(RESULT)
            stream.send(NOTICE)
            stream.finish(RESULT)
            stream.ping()
            stream.pause(1)
            assert len(await ids(reply)) == 2

    run(main())


def test_a_sign_of_life_turns_a_silent_call_into_a_stream() -> None:
    async def main() -> None:
        async with door() as at:
            exchange, reply = await at.knock()
            stream = PostStream(exchange, "s1", primed=True)
            stream.ping()
            assert (await reply.event()).id == "s1-0"
            stream.ping()
            stream.finish(RESULT)
            assert await ids(reply) == [("s1-1", RESULT)]  # comments are no events

    run(main())


def test_what_cannot_be_written_as_json_becomes_an_error_with_the_same_id() -> None:
    infinite = codec.load(b'{"x":1e400}')
    reply = json.loads(encoded(jsonrpc.result("a", infinite)))
    assert (reply["id"], reply["error"]["code"]) == ("a", INTERNAL_ERROR)


# --- a client that goes and comes back


def test_a_client_that_went_away_finds_the_rest_when_it_comes_back() -> None:
    async def main() -> None:
        async with door() as at:
            exchange, reply = await at.knock()
            stream = PostStream(exchange, "s1", primed=True)
            exchange.on_disconnect = stream.detach
            stream.send(NOTICE)
            await reply.message()
            reply.abort()
            await until(lambda: not stream.attached)
            stream.send(NOTICE)  # nobody is there
            exchange, again = await at.knock("GET")
            stream.resume(exchange, 1)
            assert (await again.event()).id == "s1-2"
            stream.finish(RESULT)  # and now somebody is
            assert await ids(again) == [("s1-3", RESULT)]

    run(main())


@pytest.mark.parametrize(
    ("position", "expected"), [(0, 3), (1, 2), (2, 1), (3, 0), (99, 0), (-1, 3)]
)
def test_a_finished_stream_is_told_from_any_position(position: int, expected: int) -> None:
    async def main() -> None:
        async with door() as at:
            exchange, reply = await at.knock()
            stream = PostStream(exchange, "s1")
            stream.send(NOTICE)
            stream.send(NOTICE)
            stream.finish(RESULT)
            await reply.over.wait()
            exchange, again = await at.knock("GET")
            stream.resume(exchange, position)
            assert len(await ids(again)) == expected

    run(main())


def test_a_pause_closes_the_stream_and_the_rest_waits_for_the_client() -> None:
    async def main() -> None:
        async with door() as at:
            exchange, reply = await at.knock()
            stream = PostStream(exchange, "s1", primed=True)
            stream.send(NOTICE)
            stream.pause(70)
            assert await ids(reply) == [("s1-0", None), ("s1-1", NOTICE)]
            stream.send(NOTICE)
            stream.finish(RESULT)
            exchange, again = await at.knock("GET")
            stream.resume(exchange, 1)
            assert await ids(again) == [("s1-2", NOTICE), ("s1-3", RESULT)]

    run(main())


def test_a_pause_before_anything_was_said_begins_and_ends_the_stream() -> None:
    async def main() -> None:
        async with door() as at:
            exchange, reply = await at.knock()
            stream = PostStream(exchange, "s1", primed=True)
            stream.pause(70)
            event = await reply.event()
            assert (event.id, event.retry) == ("s1-0", 70)
            await reply.over.wait()
            stream.finish(RESULT)
            exchange, again = await at.knock("GET")
            stream.resume(exchange, 0)
            assert await ids(again) == [("s1-1", RESULT)]

    run(main())


@pytest.mark.parametrize("name", ["s1", ""])
def test_who_does_not_know_pauses_is_not_paused(name: str) -> None:
    async def main() -> None:
        async with door() as at:
            exchange, reply = await at.knock()
            stream = PostStream(exchange, name)
            stream.pause(70)
            stream.finish(RESULT)
            assert await reply.json() == RESULT

    run(main())


def test_the_newest_reader_of_a_stream_wins() -> None:
    async def main() -> None:
        async with door() as at:
            exchange, first = await at.knock()
            stream = PostStream(exchange, "s1")
            exchange.on_disconnect = stream.detach
            stream.send(NOTICE)
            exchange, second = await at.knock("GET")
            exchange.on_disconnect = stream.detach
            stream.resume(exchange, 0)
            assert await ids(first) == [("s1-1", NOTICE)]
            first.abort()
            await yield_to_loop()
            stream.finish(RESULT)
            assert await ids(second) == [("s1-1", NOTICE), ("s1-2", RESULT)]

    run(main())


class Owner:
    """Keeps nothing, and notes who asked (a `Keeper`)."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        self.started: list[PostStream] = []
        self.ended: list[PostStream] = []

    def begun(self, stream: PostStream) -> None:
        self.started.append(stream)

    def finished(self, stream: PostStream) -> None:
        self.ended.append(stream)

    def noted(self, stream: PostStream, number: int, parcel: Parcel) -> None:
        pass


def test_a_stream_that_begins_tells_its_owner_once_whatever_began_it() -> None:
    """Who has seen an event id may come back with it."""

    async def main() -> None:
        async with door() as at:
            for begin in (
                lambda stream: stream.send(NOTICE),
                lambda stream: stream.ping(),
                lambda stream: stream.pause(1),
            ):
                exchange, _ = await at.knock()
                owner = Owner()
                stream = PostStream(exchange, "s1", primed=True, keeper=owner)
                begin(stream)
                stream.ping()
                stream.finish(RESULT)
                assert (owner.started, owner.ended) == ([stream], [stream])
            exchange, _ = await at.knock()
            owner = Owner()
            PostStream(exchange, "s1", primed=True, keeper=owner).finish(RESULT)
            assert (owner.started, owner.ended) == ([], [])

    run(main())


# --- what is kept


def parcel(size: int = 10, droppable: bool = False) -> Parcel:
    return Parcel(b"x" * size, droppable)


def numbers(log: EventLog, position: int = 0) -> list[int]:
    """Those of the events that are told after a position."""
    exchange, line = silent()
    exchange.stream(200, ())
    log.replay(position, exchange)
    return [int(number) for number in re.findall(rb"id: s\w*-(\d+)\n", line.written)]


def test_a_log_keeps_the_newest_within_its_bounds() -> None:
    """SEC-6."""
    log = EventLog("s", Shelf())
    for _ in range(10):
        log.add(parcel(), 3, 10_000)
    assert (numbers(log), numbers(log, 9), numbers(log, 10)) == ([8, 9, 10], [10], [])


def test_a_log_is_bounded_in_bytes_too_but_keeps_its_last_event() -> None:
    """SEC-6."""
    log = EventLog("s", Shelf())
    for _ in range(5):
        log.add(parcel(400), 1000, 1000)
    assert numbers(log) == [5]
    log.add(parcel(5000), 1000, 1000)
    assert numbers(log) == [6]


def test_what_may_be_missed_makes_room_for_what_may_not() -> None:
    log = EventLog("s", Shelf())
    for n in range(6):
        log.add(parcel(droppable=n % 2 == 0), 4, 10_000)
    assert numbers(log) == [2, 4, 5, 6]
    for _ in range(100):
        log.add(parcel(droppable=True), 4, 10_000)
    assert numbers(log) == [2, 4, 6, 106]


def test_what_a_client_has_by_its_own_word_is_let_go() -> None:
    """SEC-6."""
    shelf = Shelf()
    log = EventLog("s", shelf)
    for n in range(10):
        log.add(parcel(1000, droppable=n % 2 == 0), 1000, 100_000)
    before = shelf.size
    log.release(6)
    assert (numbers(log), len(log)) == ([7, 8, 9, 10], 4)
    assert shelf.size == before * 4 // 10
    log.release(10**15)
    assert (shelf.size, log.size, len(log)) == (0, 0, 0)


def test_an_event_that_many_keep_is_stored_once() -> None:
    """SEC-6: a thousand sessions that hear a message of a megabyte hold one megabyte."""
    shelf = Shelf()
    shared = parcel(1_000_000)
    logs = [EventLog("push", shelf) for _ in range(1000)]
    for log in logs:
        log.add(shared, 16, 2_000_000)
    assert shelf.size < 1_200_000
    assert all(len(log) == 1 for log in logs)
    for log in logs:
        log.close()
    assert shelf.size == 0


def test_all_logs_together_keep_no_more_than_so_much_and_who_keeps_most_pays() -> None:
    """SEC-6."""
    shelf = Shelf()
    modest = EventLog("push", shelf)
    modest.add(parcel(1000), 16, 65_536)
    greedy = [EventLog(f"s{n}", shelf) for n in range(500)]
    for log in greedy:
        log.add(parcel(1_000_000), 1000, 1 << 20)
    assert shelf.size <= streams.KEPT_BY_ALL
    assert shelf.size > streams.KEPT_BY_ALL // 2
    assert len(modest) == 1
    assert len(greedy[-1]) == 1


def test_a_log_that_is_closed_keeps_nothing_more() -> None:
    shelf = Shelf()
    log = EventLog("s", shelf)
    log.add(parcel(), 10, 1000)
    log.close()
    log.add(parcel(), 10, 1000)
    assert (shelf.size, len(log), log.count) == (0, 0, 2)


def test_an_answer_nobody_can_come_back_for_is_not_kept() -> None:
    """SEC-6: its client left before there was a stream, so it knows of none."""

    async def main() -> None:
        async with door() as at:
            exchange, reply = await at.knock()
            owner = Owner()
            stream = PostStream(exchange, "s1", primed=True, keeper=owner)
            exchange.on_disconnect = stream.detach
            reply.abort()
            await until(lambda: not stream.attached)
            stream.finish(jsonrpc.result(1, {"text": "x" * 100_000}))
            assert (owner.shelf.size, owner.started) == (0, [])

    run(main())


# --- readers that do not keep up


class Silent:
    """A client of which nothing is read: what is written to it waits (`wire.exchange.Line`)."""

    client = server = None
    scheme = "http"

    def __init__(self) -> None:
        self.congested = False
        self.waiting = 0
        self.written = b""
        self.aborted = 0
        self.over = 0

    def write(self, data: bytes, more: bytes = b"") -> None:
        self.written += data + more
        self.waiting += len(data) + len(more)
        self.congested = self.waiting > 65_536

    def answered(self, keep: bool) -> None:
        self.over += 1

    async def drain(self) -> None:
        raise AssertionError

    def give_away(self) -> Any:
        raise AssertionError

    def abort(self) -> None:
        self.aborted += 1


def silent(method: str = "GET") -> tuple[Exchange, Silent]:
    line = Silent()
    return Exchange(line, method, "/mcp", Headers({}), b"", True, False), line


LOG = Parcel(b"l" * 1000, True)


def test_log_messages_are_left_out_while_a_get_stream_is_not_read() -> None:
    """SEC-6."""
    shelf = Shelf()
    pushes = PushStream(shelf)
    exchange, line = silent()
    pushes.attach(exchange, None)
    for _ in range(10_000):
        pushes.send(LOG)
    assert line.waiting < 100_000
    assert pushes.attached


@pytest.mark.parametrize("kind", ["push", "older", "modern"])
def test_a_reader_that_is_far_behind_is_cut_off(kind: str) -> None:
    """SEC-6: and in the older era comes back for what is kept."""
    shelf = Shelf()
    exchange, line = silent()
    gone: list[bool] = []
    exchange.on_disconnect = lambda: gone.append(True)
    pushes, post = PushStream(shelf), PostStream(exchange, "s1" if kind == "older" else "")
    if kind == "push":
        pushes.attach(exchange, None)
    message = jsonrpc.notification("x", {"text": "y" * 100_000})
    for _ in range(1000):
        if kind == "push":
            pushes.send(Parcel(b"i" * 100_000))
        else:
            post.send(message)
    assert line.aborted == 1
    assert streams.MOST_WAITING < line.waiting < streams.MOST_WAITING + 300_000
    assert shelf.size <= streams.KEPT_BYTES + 200_000
    exchange.lost()  # as the connection tells it, later
    assert gone == ([] if kind == "older" else [True])
    again, line = silent()
    if kind == "push":
        pushes.attach(again, None)
    elif kind == "older":
        post.resume(again, 0)
    else:
        return
    assert 500_000 < line.waiting < streams.KEPT_BYTES + 200_000


def test_one_that_reads_nothing_and_comes_again_leaves_nothing_waiting() -> None:
    """SEC-6: whoever asks a thousand times for what is kept does not get it a thousand times into
    our memory."""
    pushes, post = PushStream(Shelf()), PostStream(silent()[0], "s1")
    lines: list[Silent] = []
    for n in range(400):
        pushes.send(Parcel(b"l" * 1000, n % 2 == 0))
        post.send(jsonrpc.notification("notifications/x", {"text": "x" * 1000}))
    for _ in range(10):
        for take in (
            lambda exchange: pushes.attach(exchange, 0),
            lambda exchange: post.resume(exchange, 0),
        ):
            exchange, line = silent()
            take(exchange)
            lines.append(line)
            for _ in range(80):
                pushes.send(Parcel(b"l" * 1000))
    assert [line.aborted for line in lines] == [1] * 18 + [0, 0]


def test_an_answer_that_meets_a_reader_far_behind_waits_for_its_return() -> None:
    exchange, line = silent("POST")
    stream = PostStream(exchange, "s1")
    while not line.aborted:
        stream.send(jsonrpc.notification("x", {"text": "y" * 100_000}))
    stream.finish(RESULT)
    assert (stream.done, stream.delivered, line.over) == (True, False, 0)
    again, line = silent()
    stream.resume(again, 40)
    assert (stream.delivered, line.over) == (True, 1)


def test_what_a_get_stream_has_taken_is_let_go_after_a_while() -> None:
    """SEC-6."""
    shelf = Shelf()
    pushes = PushStream(shelf)
    exchange, line = silent()
    pushes.attach(exchange, None)
    for _ in range(10):
        pushes.send(Parcel(b"l" * 1000, True))
    line.waiting, line.congested = 0, False
    kept = shelf.size
    pushes.tend(1000.0)
    pushes.tend(1030.0)
    assert shelf.size == kept > 10_000  # its connection may break just now
    pushes.tend(1070.0)
    assert shelf.size == 0


def test_of_what_nobody_listens_to_a_few_are_kept_and_notices_before_log_messages() -> None:
    """SEC-6."""
    shelf = Shelf()
    pushes = PushStream(shelf)
    pushes.send(Parcel(b"notice"))
    for _ in range(1100):
        pushes.send(Parcel(b"l" * 1000, True))
    assert shelf.size < 32_000
    exchange, line = silent()
    pushes.attach(exchange, None)
    assert line.waiting < 32_000
    pushes.close()
    for _ in range(100):
        pushes.send(Parcel(b"l" * 1000, True))
    assert shelf.size > 100_000  # its client will be back in a moment
    pushes.tend(time.monotonic() + streams.KEPT_FOR)
    assert shelf.size < 32_000
    again, line = silent()
    pushes.attach(again, 1)
    pushes.end()
    assert (shelf.size, line.over) == (0, 1)


# --- what belongs to no request


def note(n: int) -> Json:
    return jsonrpc.notification("n", {"n": n})


def said(n: int) -> Parcel:
    return Parcel.of(note(n))


def test_pushes_before_the_first_get_wait_for_it() -> None:
    async def main() -> None:
        async with door() as at:
            pushes = PushStream(Shelf())
            pushes.send(said(1))
            assert not pushes.attached
            exchange, reply = await at.knock("GET")
            pushes.attach(exchange, None)
            assert pushes.attached
            pushes.send(said(2))
            for n in (1, 2):
                event = await reply.event()
                assert (event.id, json.loads(event.data or b"")) == (f"push-{n}", note(n))
            pushes.close()
            await reply.over.wait()

    run(main())


def test_the_newest_get_wins_and_gets_only_what_is_new() -> None:
    async def main() -> None:
        async with door() as at:
            pushes = PushStream(Shelf())
            exchange, first = await at.knock("GET")
            pushes.attach(exchange, None)
            pushes.send(said(1))
            await first.message()
            exchange, second = await at.knock("GET")
            pushes.attach(exchange, None)
            await first.over.wait()
            pushes.send(said(2))
            assert await second.message() == note(2)

    run(main())


def test_a_get_that_names_its_position_gets_what_came_after_it() -> None:
    async def main() -> None:
        async with door() as at:
            pushes = PushStream(Shelf())
            exchange, first = await at.knock("GET")
            pushes.attach(exchange, None)
            for n in range(1, 5):
                pushes.send(said(n))
            first.abort()
            await until(lambda: not pushes.attached)
            pushes.send(said(5))
            exchange, again = await at.knock("GET")
            pushes.attach(exchange, 3)
            assert [await again.message() for _ in range(2)] == [note(4), note(5)]

    run(main())


def test_signs_of_life_go_to_who_is_there() -> None:
    async def main() -> None:
        async with door() as at:
            pushes = PushStream(Shelf())
            pushes.tend(0.0)
            exchange, reply = await at.knock("GET")
            pushes.attach(exchange, None)
            pushes.tend(0.0)
            pushes.close()
            pushes.tend(0.0)
            assert (await reply.text()).count(b": ping\n\n") == 2

    run(main())
