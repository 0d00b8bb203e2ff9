"""Replies that become event streams only when they must, and can be taken up again; over a real socket."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fixtures.parts import Reply, Web, run, serving, turns, until
from mcpx.front import streams
from mcpx.front.streams import EventLog, PostStream, PushStream, encoded
from mcpx.model.call import Json
from mcpx.model.errors import HEADER_MISMATCH, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from mcpx.wire import codec, jsonrpc
from mcpx.wire.exchange import Exchange

NOTICE = jsonrpc.notification("notifications/x", {"n": 1})
RESULT = jsonrpc.result(1, {"done": True})


class Door:
    """Requests of the client, one `Exchange` after the other."""

    def __init__(self, web: Web, waiting: "asyncio.Queue[Exchange]") -> None:
        self._web = web
        self._waiting = waiting

    async def knock(self, method: str = "POST") -> tuple[Exchange, Reply]:
        reply = self._web.send(method, "/mcp", b"{}" if method == "POST" else b"")
        return await self._waiting.get(), reply


@asynccontextmanager
async def door() -> AsyncGenerator[Door]:
    waiting: asyncio.Queue[Exchange] = asyncio.Queue()
    async with serving(waiting.put_nowait) as web:
        yield Door(web, waiting)


async def ids(reply: Reply) -> list[tuple[str | None, Any]]:
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
    ("code", "status"), [(METHOD_NOT_FOUND, 404), (INVALID_PARAMS, 400), (HEADER_MISMATCH, 400), (-32603, 200)]
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


@pytest.mark.parametrize(("position", "expected"), [(0, 3), (1, 2), (2, 1), (3, 0), (99, 0), (-1, 3)])
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
            await turns()
            stream.finish(RESULT)
            assert await ids(second) == [("s1-1", NOTICE), ("s1-2", RESULT)]

    run(main())


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
                begun: list[PostStream] = []
                stream = PostStream(exchange, "s1", primed=True, on_start=begun.append)
                begin(stream)
                stream.ping()
                stream.finish(RESULT)
                assert begun == [stream]
            exchange, _ = await at.knock()
            begun = []
            PostStream(exchange, "s1", primed=True, on_start=begun.append).finish(RESULT)
            assert begun == []

    run(main())


# --- what is kept


def test_a_log_keeps_the_newest_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6."""
    monkeypatch.setattr(streams, "KEPT_EVENTS", 3)
    log = EventLog("s")
    for n in range(10):
        log.add(b"%d" % n)
    assert [event.split(b"\n")[0] for event in log.after(0)] == [b"id: s-8", b"id: s-9", b"id: s-10"]
    assert len(log.after(9)) == 1
    assert log.after(10) == []


def test_a_log_is_bounded_in_bytes_too_but_keeps_its_last_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6."""
    monkeypatch.setattr(streams, "KEPT_BYTES", 100)
    log = EventLog("s")
    for _ in range(5):
        log.add(b"x" * 40)
    assert len(log.after(0)) == 1
    log.add(b"x" * 1000)
    assert len(log.after(0)) == 1


# --- what belongs to no request


def note(n: int) -> Json:
    return jsonrpc.notification("n", {"n": n})


def test_pushes_before_the_first_get_wait_for_it() -> None:
    async def main() -> None:
        async with door() as at:
            pushes = PushStream()
            pushes.send(note(1))
            assert not pushes.attached
            exchange, reply = await at.knock("GET")
            pushes.attach(exchange, None)
            assert pushes.attached
            pushes.send(note(2))
            for n in (1, 2):
                event = await reply.event()
                assert (event.id, json.loads(event.data or b"")) == (f"push-{n}", note(n))
            pushes.close()
            await reply.over.wait()

    run(main())


def test_the_newest_get_wins_and_gets_only_what_is_new() -> None:
    async def main() -> None:
        async with door() as at:
            pushes = PushStream()
            exchange, first = await at.knock("GET")
            pushes.attach(exchange, None)
            pushes.send(note(1))
            await first.message()
            exchange, second = await at.knock("GET")
            pushes.attach(exchange, None)
            await first.over.wait()
            pushes.send(note(2))
            assert await second.message() == note(2)

    run(main())


def test_a_get_that_names_its_position_gets_what_came_after_it() -> None:
    async def main() -> None:
        async with door() as at:
            pushes = PushStream()
            exchange, first = await at.knock("GET")
            pushes.attach(exchange, None)
            for n in range(1, 5):
                pushes.send(note(n))
            first.abort()
            await until(lambda: not pushes.attached)
            pushes.send(note(5))
            exchange, again = await at.knock("GET")
            pushes.attach(exchange, 3)
            assert [await again.message() for _ in range(2)] == [note(4), note(5)]

    run(main())


def test_signs_of_life_go_to_who_is_there() -> None:
    async def main() -> None:
        async with door() as at:
            pushes = PushStream()
            pushes.ping()
            exchange, reply = await at.knock("GET")
            pushes.attach(exchange, None)
            pushes.ping()
            pushes.close()
            pushes.ping()
            assert (await reply.text()).count(b": ping\n\n") == 2

    run(main())
