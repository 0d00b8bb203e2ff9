"""Which sessions go when there are too many, and when nobody uses them."""

import asyncio
from typing import Any

import pytest

from kit.clock import LoopClock
from kit.loop import never_return, run
from kit.until import until
from mcpx.front import http_session, sessions
from mcpx.front.http_session import HttpSession
from mcpx.front.sessions import Sessions
from mcpx.front.visitor import Visitor
from mcpx.wire import jsonrpc
from mcpx.wire.exchange import Exchange, Headers


class Hall:
    """Sessions, and those of them that were ended."""

    def __init__(self) -> None:
        self.ended: list[HttpSession] = []
        self.sessions = Sessions(self.ended.append)

    def begin(
        self, address: str = "10.0.0.1", principal: str = "ann", weight: int = 0
    ) -> HttpSession:
        owner = self.sessions.begin(Visitor(principal, address=address), weight)
        assert owner is not None
        return owner

    def use(self, owner: HttpSession) -> HttpSession:
        found = self.sessions.find(owner.session.id, owner.visitor)
        assert found is owner
        return owner

    def is_open(self, owner: HttpSession) -> bool:
        return owner not in self.ended


def test_a_flood_of_greetings_ends_no_session_that_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6: whoever sends them."""
    monkeypatch.setattr(sessions, "MOST", 100)

    async def main() -> None:
        for address in ("10.0.0.1", "10.0.0.2"):
            hall = Hall()
            used = [hall.use(hall.begin()) for _ in range(20)]
            for _ in range(500):
                hall.begin(address)
            assert all(map(hall.is_open, used))
            assert len(hall.sessions) == 100

    run(main())


def test_whoever_asks_for_another_pays_before_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6: somebody else's session that just began is not theirs to push out."""
    monkeypatch.setattr(sessions, "MOST", 100)

    async def main() -> None:
        hall = Hall()
        others = [
            hall.begin("10.0.0.2"),
            hall.begin("10.0.0.1", "bob"),
            hall.use(hall.begin("10.0.0.3")),
        ]
        flood = [hall.use(hall.begin()) for _ in range(300)]
        assert all(map(hall.is_open, others))
        assert [hall.is_open(owner) for owner in flood] == [False] * 203 + [True] * 97

    run(main())


def test_who_holds_most_makes_room_for_a_newcomer(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6: the session of theirs that was silent longest."""
    monkeypatch.setattr(sessions, "MOST", 20)

    async def main() -> None:
        clock = LoopClock(monkeypatch)
        hall = Hall()
        small = hall.use(hall.begin("10.0.0.2"))
        large = []
        for _ in range(19):
            await clock.advance(5)
            large.append(hall.use(hall.begin()))
        await clock.advance(5)
        hall.use(large[0])
        hall.begin("10.0.0.3")
        assert hall.ended == [large[1]]
        assert hall.is_open(small)

    run(main(), 3000)


def test_a_busy_session_never_goes_and_with_all_busy_nobody_comes_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6."""
    monkeypatch.setattr(sessions, "MOST", 3)

    async def main() -> None:
        hall = Hall()
        call = asyncio.ensure_future(never_return())
        busy = [hall.use(hall.begin()) for _ in range(3)]
        for owner in busy[:2]:
            owner.running["1"] = call
        hall.begin("10.0.0.9")
        assert hall.ended == busy[2:]
        assert hall.sessions.begin(Visitor("ann", address="10.0.0.1")) is None
        call.cancel()

    run(main())


def test_a_handshake_in_progress_is_not_evicted_within_its_grace_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6: idle sessions make room for it, also those of its own client."""
    monkeypatch.setattr(sessions, "MOST", 100)

    async def main() -> None:
        clock = LoopClock(monkeypatch)
        hall = Hall()
        idle = [hall.use(hall.begin()) for _ in range(100)]
        await clock.advance(sessions.IDLE_AFTER + 1)
        shaking_hands = [hall.begin() for _ in range(50)]
        assert hall.ended == idle[:50] and hall.sessions.evicted == 50
        assert all(map(hall.is_open, map(hall.use, shaking_hands)))
        abandoned = hall.begin()
        await clock.advance(sessions.GRACE + 1)
        hall.begin()
        assert hall.ended[-1] is abandoned

    run(main(), 3000)


def test_handshakes_of_many_clients_do_not_evict_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6: if no session is idle, the new client is refused."""
    monkeypatch.setattr(sessions, "MOST", 50)

    async def main() -> None:
        hall = Hall()
        for number in range(50):
            hall.begin(f"10.0.0.{number}")
        assert hall.sessions.begin(Visitor("ann", address="10.0.1.1")) is None and hall.ended == []

    run(main())


def test_sessions_without_a_stream_are_evicted_first_and_the_oldest_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6"""
    monkeypatch.setattr(sessions, "MOST", 4)
    monkeypatch.setattr(sessions, "SHARE", 1)

    async def main() -> None:
        clock = LoopClock(monkeypatch)
        hall = Hall()
        listening, old, new, calling = [hall.use(hall.begin()) for _ in range(4)]
        listen(listening)
        calling.running["1"] = asyncio.ensure_future(never_return())
        await clock.advance(5)
        hall.use(new)
        await clock.advance(sessions.IDLE_AFTER + 1)
        for _ in range(3):
            hall.use(hall.begin())
        assert hall.ended == [old, new, listening]
        calling.running["1"].cancel()

    run(main(), 3000)


def test_what_clients_say_of_themselves_is_bounded_for_all_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6."""
    monkeypatch.setattr(sessions, "MOST_WEIGHT", 1000)

    async def main() -> None:
        hall = Hall()
        used = hall.use(hall.begin(weight=100))
        for _ in range(50):
            hall.begin(weight=300)
        assert len(hall.sessions) == 4
        assert hall.is_open(used)
        assert hall.sessions.begin(Visitor("ann", address="10.0.0.1"), 5000) is None

    run(main())


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("no:address", "no:address", True),
    ],
)
def test_one_place_is_an_address_or_a_network_of_them(one: str, two: str, same: bool) -> None:
    async def main() -> None:
        hall = Hall()
        assert (hall.begin(one).client is hall.begin(two).client) is same

    run(main())


@pytest.mark.parametrize(
    ("kind", "limit"),
    [("unused", 60), ("three calls", 300), ("four calls", 1800), ("stream", None)],
)
def test_the_idle_limit_of_a_session_depends_on_its_kind(
    monkeypatch: pytest.MonkeyPatch, kind: str, limit: float | None
) -> None:
    """SEC-6: a session with an open stream is not idle."""

    async def main() -> None:
        clock = LoopClock(monkeypatch)
        hall = Hall()
        owner = hall.begin()
        if kind != "unused":
            hall.use(owner)
        owner.calls = 4 if kind == "four calls" else 3
        if kind == "stream":
            listen(owner)
        await clock.advance((limit or 4000) - 1)
        hall.sessions.end_if_idle(owner)
        assert hall.is_open(owner)
        await clock.advance(2)
        hall.sessions.end_if_idle(owner)
        assert hall.is_open(owner) is (limit is None)

    run(main(), 5000)


def test_nothing_is_left_of_sessions_that_ended() -> None:
    """SEC-6."""

    async def main() -> None:
        hall = Hall()
        for n in range(50):
            owner = hall.begin(f"10.0.0.{n}", weight=10)
            if n % 2:
                hall.use(owner)
            hall.sessions.end(owner)
            hall.sessions.end(owner)
        left: Any = vars(hall.sessions)
        assert [left[name] for name in ("_open", "_clients", "_weight")] == [{}, {}, 0]
        assert len(left["_queues"]) == 0
        assert len(hall.ended) == 50

    run(main())


# --- what one session keeps


class Line:
    """A connection that takes everything (`wire.exchange.Line`)."""

    client = server = None
    scheme = "http"
    congested = False
    waiting = 0

    def write(self, data: bytes, more: bytes = b"") -> None: ...

    def answered(self, keep: bool) -> None: ...


def listen(owner: HttpSession) -> None:
    """Open its GET stream."""
    exchange = Exchange(Line(), "GET", "/mcp", Headers({}), b"", True, False)  # type: ignore[arg-type]
    owner.pushes.attach(exchange, None)


def call(owner: HttpSession, size: int, away: bool = False) -> str:
    """A call whose answer comes on an event stream; the name of that."""
    exchange = Exchange(Line(), "POST", "/mcp", Headers({}), b"", True, False)  # type: ignore[arg-type]
    stream = owner.stream(exchange, 1)
    stream.send(jsonrpc.notification("x", None))
    if away:
        stream.detach()
    stream.finish(jsonrpc.result(1, {"text": "x" * size}))
    return stream.name


def test_answers_that_were_delivered_are_not_kept_for_long() -> None:
    """SEC-6: 320 results of two megabytes are not 640 MB; the last one may be on its way still."""

    async def main() -> None:
        hall = Hall()
        owner = hall.begin()
        for _ in range(320):
            name = call(owner, 2_000_000)
        assert owner.shelf.size < 2_100_000
        assert list(owner.streams) == [name]
        owner.tend(60.0, 0.0)
        assert (owner.shelf.size, owner.streams) == (0, {})

    run(main())


def test_answers_for_a_client_that_is_away_wait_for_it() -> None:
    """PRO-1, SEC-6: within a bound, and however much was delivered meanwhile."""

    async def main() -> None:
        owner = Hall().begin()
        waiting = [call(owner, 2_000_000, away=True) for _ in range(5)]
        for _ in range(100):
            call(owner, 200_000)
        assert list(owner.streams)[:5] == waiting
        owner.tend(60.0, 0.0)
        assert list(owner.streams) == waiting
        for _ in range(20):
            call(owner, 2_000_000, away=True)
        assert owner.shelf.size < http_session.UNREAD_BYTES + 100_000
        owner.tend(0.0, 0.0)
        assert (owner.shelf.size, owner.streams) == (0, {})

    run(main())


def test_an_answer_that_is_still_being_written_is_kept() -> None:
    async def main() -> None:
        owner = Hall().begin()
        slow = Line()
        slow.waiting = 500_000
        stream = owner.stream(Exchange(slow, "POST", "/mcp", Headers({}), b"", True, False), 1)  # type: ignore[arg-type]
        stream.send(jsonrpc.notification("x", None))
        stream.finish(jsonrpc.result(1, {}))
        owner.tend(0.0, 0.0)
        assert owner.streams
        slow.waiting = 0
        owner.tend(0.0, 0.0)
        assert not owner.streams

    run(main())


def test_a_session_that_ended_keeps_nothing_whatever_still_comes() -> None:
    """SEC-6."""

    async def main() -> None:
        hall = Hall()
        owner = hall.begin()
        call(owner, 1000)
        exchange = Exchange(Line(), "POST", "/mcp", Headers({}), b"", True, False)  # type: ignore[arg-type]
        running, late = owner.stream(exchange, 2), owner.stream(exchange, 3)
        running.send(jsonrpc.notification("x", None))
        owner.end()
        assert owner.shelf.size == 0
        running.send(jsonrpc.notification("x", None))
        running.finish(jsonrpc.result(2, {}))
        late.send(jsonrpc.notification("x", None))
        late.finish(jsonrpc.result(3, {}))
        assert (owner.shelf.size, owner.streams) == (0, {})

    run(main())


def test_the_end_of_a_session_with_many_calls_is_spread_over_turns() -> None:
    async def main() -> None:
        owner = Hall().begin()

        async def hang() -> None:
            await never_return()

        tasks = {n: asyncio.ensure_future(hang()) for n in range(5000)}
        owner.running.update(tasks)
        await asyncio.sleep(0)
        owner.end()
        assert not all(task.cancelling() for task in tasks.values())
        await until(lambda: all(task.cancelled() for task in tasks.values()))

    run(main())


def test_a_session_that_goes_on_here_is_in_use_though_nobody_has_said_a_word_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SCA-1: its client may have left before it was taken up; it lasts as long as any that is
    used."""

    async def main() -> None:
        clock = LoopClock(monkeypatch)
        hall = Hall()
        moved = hall.sessions.begin(Visitor("ann"), 0, "moved")
        assert moved is not None
        fresh = hall.begin()
        await clock.advance(sessions.UNUSED + 1)
        for owner in hall.sessions:
            hall.sessions.end_if_idle(owner)
        assert (hall.is_open(moved), hall.is_open(fresh)) == (True, False)
        hall.use(moved)
        await clock.advance(sessions.IDLE + 1)
        hall.sessions.end_if_idle(moved)
        assert not hall.is_open(moved)

    run(main(), sessions.IDLE + 200)
