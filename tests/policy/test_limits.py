"""Limits of calls: what is counted, who waits, who is refused, and that everything is given back
(SEC-6)."""

import asyncio
import random
from collections import Counter as Tally
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kit.clock import Clock
from kit.loop import never_return, run, yield_to_loop
from mcpx.config import Config, Server
from mcpx.config.schema import Profile
from mcpx.config.sections import FrontLimits, FrontServer, Limits
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import OVERLOADED, Denied
from mcpx.model.events import Passage
from mcpx.policy import counters as module
from mcpx.policy.counters import Counters
from mcpx.policy.limits import Limiter, limiter
from mcpx.policy.state import PolicyState


async def passing(limits: Limiter, passage: Passage, work: Callable[[], Awaitable[Json]]) -> Json:
    """As the relay does it."""
    passage.places = ()
    try:
        return await limits.passing(passage, work, lambda passage: None)
    finally:
        for place in passage.places:
            place.leave()


class LimitedCalls:
    """Limits at work, with a clock that is moved by hand."""

    def __init__(self, config: Config) -> None:
        self.clock = Clock()
        self.state = PolicyState(None)
        self.state.__dict__["counters"] = Counters(self.clock)
        self.take_up(config)

    def take_up(self, config: Config) -> None:
        self.limits: Limiter | None = limiter(config, self.state)

    @property
    def counters(self) -> Counters:
        return self.state.counters

    async def call(
        self,
        forward: Callable[[], Awaitable[Json]] | None = None,
        *,
        who: str = "ann",
        server: str = "files",
        profile: str | None = None,
        address: str = "10.0.0.1",
        method: str = "tools/call",
    ) -> Json:
        caller = Caller(principal=who, profile=profile, address=address)
        passage = Passage(server, "tool", None, Call(method, {}, caller), {})
        work = forward or answer
        return await (work() if self.limits is None else passing(self.limits, passage, work))

    def start(self, *args: Any, **fields: Any) -> "asyncio.Task[Json]":
        return asyncio.ensure_future(self.call(*args, **fields))

    @property
    def at_rest(self) -> bool:
        return all(not counter.running and not counter.waiting for counter in self.counters.all())


async def answer() -> Json:
    return {}


class Gate:
    """A call that runs until it is let go; how many run at a time is kept."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.running = self.most = self.done = 0

    async def __call__(self) -> Json:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.open.wait()
            return {}
        finally:
            self.running -= 1
            self.done += 1


def of_clients(**limits: Any) -> Config:
    return Config(server=FrontServer(limits=FrontLimits(**limits)), mcp_servers=(server(),))


def server(name: str = "files", **fields: Any) -> Server:
    return Server(name=name, connection=None, **fields)  # pyright: ignore[reportArgumentType]


def of_server(call_timeout: float = 300.0, **limits: Any) -> Config:
    return Config(
        mcp_servers=(server(limits=Limits(**limits), call_timeout=call_timeout), server("other"))
    )


async def refused(call: Awaitable[Json]) -> Denied:
    with pytest.raises(Denied) as caught:
        await call
    assert caught.value.code == OVERLOADED
    return caught.value


# Calls a minute


def test_a_minutes_calls_may_come_at_once_and_then_one_each_fraction_of_it() -> None:
    async def main() -> None:
        limited = LimitedCalls(of_clients(per_minute=6))
        for _ in range(6):
            await limited.call()
        denied = await refused(limited.call())
        assert denied.http_status == 429 and denied.retry_after == pytest.approx(10)
        assert denied.data == {"limit": "server.limits.per_minute", "retry_after": 10}
        assert "6 calls a minute" in denied.message and "server.limits.per_minute" in denied.message
        limited.clock.advance(9.9)
        assert (await refused(limited.call())).retry_after == pytest.approx(0.1)
        limited.clock.advance(0.1)
        await limited.call()
        await refused(limited.call())
        limited.clock.advance(3600)  # what was not used is not saved up
        for _ in range(6):
            await limited.call()
        await refused(limited.call())
        assert limited.counters.refused["client.per_minute"] == 4

    run(main())


def test_calls_of_one_turn_of_the_loop_are_counted_exactly() -> None:
    async def main() -> None:
        limited = LimitedCalls(of_clients(per_minute=50))
        calls = [limited.start() for _ in range(200)]
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(each, dict) for each in done) == 50
        assert limited.at_rest

    run(main())


def test_a_client_is_a_principal_at_an_address() -> None:
    async def main() -> None:
        limited = LimitedCalls(of_clients(per_minute=1))
        await limited.call()
        await limited.call(who="bob")
        await limited.call(address="10.0.0.2")
        await limited.call(address="2001:db8::1")
        await refused(limited.call())
        await refused(limited.call(address="2001:db8::2"))  # the same network

    run(main())


def test_what_one_limit_refuses_the_others_do_not_count() -> None:
    async def main() -> None:
        both = Config(
            server=FrontServer(limits=FrontLimits(per_minute=2)),
            mcp_servers=(server(limits=Limits(per_minute=1)), server("other")),
        )
        limited = LimitedCalls(both)
        await limited.call()
        denied = await refused(limited.call())
        assert (
            denied.http_status == 503
            and denied.data["limit"] == "mcp_servers.files.limits.per_minute"
        )
        await limited.call(server="other")
        assert (await refused(limited.call(server="other"))).http_status == 429

    run(main())


# Calls at a time


def test_no_more_run_at_a_time_than_allowed_and_the_next_waits() -> None:
    async def main() -> None:
        limited, gate = LimitedCalls(of_server(in_flight=3, queue=2)), Gate()
        calls = [limited.start(gate, who=f"w{n}") for n in range(5)]
        await yield_to_loop()
        assert (gate.running, limited.counters.depth()["server"]) == (3, 2)
        denied = await refused(limited.call(gate, who="w9"))
        assert denied.http_status == 503 and denied.retry_after == 1
        assert "3 calls of server files are in flight and 2 wait" in denied.message
        assert await limited.call(server="other") == {}
        gate.open.set()
        await asyncio.gather(*calls)
        assert gate.most == 3 and limited.at_rest
        assert limited.counters.refused == {"server.in_flight": 1}

    run(main())


def test_without_a_word_on_the_queue_those_of_one_turn_may_wait() -> None:
    async def main() -> None:
        limited, gate = LimitedCalls(of_clients(in_flight=1)), Gate()
        calls = [limited.start(gate) for _ in range(21)]
        await yield_to_loop()
        assert (await refused(limited.call(gate))).http_status == 429
        gate.open.set()
        await asyncio.gather(*calls)

    run(main())


def test_with_no_queue_nobody_waits() -> None:
    async def main() -> None:
        limited, gate = LimitedCalls(of_clients(in_flight=1, queue=0)), Gate()
        call = limited.start(gate)
        await yield_to_loop()
        await refused(limited.call())
        gate.open.set()
        await call
        assert await limited.call() == {}

    run(main())


def test_the_callers_of_a_profile_are_counted_together_and_others_are_not() -> None:
    async def main() -> None:
        limited = LimitedCalls(
            Config(
                profiles=(Profile(name="work", limits=Limits(per_minute=2)),),
                mcp_servers=(server(),),
            )
        )
        await limited.call(profile="work")
        await limited.call(profile="work", who="bob", server="commands")
        denied = await refused(limited.call(profile="work", who="cyd"))
        assert denied.http_status == 429 and "profile work" in denied.message
        for _ in range(5):
            await limited.call()

    run(main())


def test_who_waits_is_served_in_turn_between_clients_and_in_order_of_each() -> None:
    async def main() -> None:
        limited, gate = LimitedCalls(of_server(in_flight=1, queue=50)), Gate()
        served: list[str] = []

        async def note(what: str) -> Json:
            served.append(what)
            return {}

        first = limited.start(gate)
        await yield_to_loop()
        names = [("greedy", n) for n in range(5)] + [("ann", n) for n in range(2)] + [("bob", 0)]
        calls = []
        for who, n in names:
            calls.append(limited.start(lambda told=f"{who}{n}": note(told), who=who))
            await yield_to_loop(2)
        gate.open.set()
        await asyncio.gather(first, *calls)
        assert served == [
            "greedy0",
            "ann0",
            "bob0",
            "greedy1",
            "ann1",
            "greedy2",
            "greedy3",
            "greedy4",
        ]

    run(main())


def test_in_a_full_queue_who_has_fewer_takes_a_place_of_who_has_most() -> None:
    async def main() -> None:
        limited, gate = LimitedCalls(of_server(in_flight=1, queue=4)), Gate()
        running = limited.start(gate)
        await yield_to_loop()
        greedy = [limited.start(gate, who="greedy") for _ in range(4)]
        await yield_to_loop()
        ann = limited.start(gate, who="ann")
        await yield_to_loop()
        assert "are in flight" in (await refused(greedy[3])).message
        await refused(limited.call(who="greedy"))
        bob = limited.start(gate, who="bob")
        await yield_to_loop()
        await refused(greedy[2])
        gate.open.set()
        await asyncio.gather(running, *greedy[:2], ann, bob)
        assert limited.at_rest

    run(main())


def test_waiting_ends_with_the_call_and_leaves_no_trace() -> None:
    async def main() -> None:
        limited, gate = LimitedCalls(of_server(in_flight=1)), Gate()
        running, waiting, last = (limited.start(gate) for _ in range(3))
        await yield_to_loop()
        waiting.cancel()
        await yield_to_loop()
        assert limited.counters.depth()["server"] == 1
        running.cancel()
        await yield_to_loop()
        assert gate.running == 1  # the last one's
        last.cancel()
        await asyncio.gather(running, waiting, last, return_exceptions=True)
        assert limited.at_rest

    run(main())


def test_a_call_that_is_cancelled_when_its_turn_has_just_come_passes_it_on() -> None:
    async def main() -> None:
        limited, gate = LimitedCalls(of_server(in_flight=1)), Gate()
        running, chosen, last = (limited.start(gate) for _ in range(3))
        await yield_to_loop()
        gate.open.set()
        await until_leaving(limited, chosen)
        chosen.cancel()
        await asyncio.gather(running, last)
        assert limited.at_rest

    async def until_leaving(limited: LimitedCalls, chosen: "asyncio.Task[Json]") -> None:
        while limited.counters.servers["files"].waiting == 2:  # noqa: ASYNC110 - turn by turn
            await asyncio.sleep(0)
        assert not chosen.done()

    run(main())


def test_waiting_is_bounded_by_the_time_a_call_may_take() -> None:
    async def main() -> None:
        limited, gate = (
            LimitedCalls(of_server(call_timeout=0.05, in_flight=1, per_minute=3)),
            Gate(),
        )
        running = limited.start(gate)
        await yield_to_loop()
        denied = await refused(limited.call())
        assert "no place was free" in denied.message and denied.retry_after == 1
        assert limited.counters.servers["files"].spent == pytest.approx(
            1
        )  # a call that was not made is none
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert limited.at_rest

    run(main())


@pytest.mark.parametrize("how", ["error", "cancel"])
def test_places_are_given_back_however_a_call_ends(how: str) -> None:
    async def main() -> None:
        config = Config(
            server=FrontServer(limits=FrontLimits(in_flight=1)),
            profiles=(Profile(name="work", limits=Limits(in_flight=1)),),
            mcp_servers=(server(limits=Limits(in_flight=1)),),
        )
        limited = LimitedCalls(config)

        async def fails() -> Json:
            raise RuntimeError("no")

        call = limited.start(fails if how == "error" else never_return, profile="work")
        await yield_to_loop()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert limited.at_rest
        assert await limited.call(profile="work") == {}

    run(main())


def test_giving_something_back_is_never_refused() -> None:
    async def main() -> None:
        limited = LimitedCalls(of_clients(per_minute=1, in_flight=1))
        await limited.call(method="resources/subscribe")
        await refused(limited.call(method="resources/read"))
        assert await limited.call(method="resources/unsubscribe") == {}

    run(main())


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_at_once_no_bound_is_exceeded_and_nothing_is_left(seed: int) -> None:
    """Three kinds of limit, many clients, calls that end, fail and are cancelled at any moment."""
    chance = random.Random(seed)
    servers = {"files": 3, "web": 2}
    running = dict.fromkeys(servers, 0)

    async def work(name: str) -> Json:
        running[name] += 1
        assert running[name] <= servers[name]
        try:
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            if chance.random() < 0.2:
                raise RuntimeError("no")
            return {}
        finally:
            running[name] -= 1

    async def main() -> None:
        config = Config(
            server=FrontServer(limits=FrontLimits(in_flight=4, queue=3)),
            profiles=(Profile(name="work", limits=Limits(in_flight=5, queue=8)),),
            mcp_servers=tuple(
                server(name, limits=Limits(in_flight=n, queue=6)) for name, n in servers.items()
            ),
        )
        limited = LimitedCalls(config)
        calls: list[asyncio.Task[Json]] = []
        for _ in range(400):
            name = chance.choice(list(servers))
            profile = chance.choice(["work", None])
            calls.append(
                limited.start(
                    lambda name=name: work(name),
                    who=f"w{chance.randrange(6)}",
                    server=name,
                    profile=profile,
                )
            )
            if chance.random() < 0.3:
                chance.choice(calls).cancel()
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in done} <= {dict, RuntimeError, Denied, asyncio.CancelledError}
        assert sum(isinstance(each, dict) for each in done) > 50
        assert limited.at_rest

    run(main())


# Reloads


def test_counts_outlive_a_reload_and_new_limits_count_at_once() -> None:
    async def main() -> None:
        limited = LimitedCalls(of_clients(per_minute=5))
        for _ in range(4):
            await limited.call()
        limited.take_up(of_clients(per_minute=4))
        await refused(limited.call())
        limited.take_up(of_clients(per_minute=6))
        await limited.call()
        await limited.call()
        await refused(limited.call())
        limited.take_up(Config(mcp_servers=(server(),)))
        assert limited.limits is None
        limited.take_up(of_clients(per_minute=6))
        await refused(limited.call())

    run(main())


@pytest.mark.parametrize("after", [4, None])
def test_who_waits_comes_in_when_a_reload_makes_room(after: int | None) -> None:
    async def main() -> None:
        limited, gate = LimitedCalls(of_server(in_flight=2)), Gate()
        calls = [limited.start(gate) for _ in range(4)]
        await yield_to_loop()
        assert gate.running == 2
        limited.take_up(of_server(in_flight=after))
        await yield_to_loop()
        assert gate.running == 4
        gate.open.set()
        await asyncio.gather(*calls)
        assert limited.at_rest

    run(main())


def test_a_lower_bound_lets_what_runs_finish_and_nobody_else_in() -> None:
    async def main() -> None:
        limited, gate = LimitedCalls(of_server(in_flight=3)), Gate()
        calls = [limited.start(gate) for _ in range(3)]
        await yield_to_loop()
        limited.take_up(of_server(in_flight=1))
        waits = limited.start()
        await yield_to_loop()
        assert not waits.done()
        gate.open.set()
        await asyncio.gather(*calls, waits)
        assert limited.at_rest

    run(main())


def test_the_number_of_counters_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CLIENTS", 20)

    async def main() -> None:
        limited, gate = LimitedCalls(of_clients(per_minute=60, in_flight=2)), Gate()
        busy = [limited.start(gate, who=f"busy{n}") for n in range(10)]
        await yield_to_loop()
        for n in range(500):
            await limited.call(who=f"w{n}")
            limited.clock.advance(0.5)
        assert len(limited.counters.clients) <= 20
        assert all((f"busy{n}", "10.0.0.1") in limited.counters.clients for n in range(10))
        busy += [limited.start(gate, who=f"more{n}") for n in range(10)]
        await yield_to_loop()
        assert (await refused(limited.call(who="one too many"))).http_status == 503
        gate.open.set()
        await asyncio.gather(*busy)

    run(main())


def test_a_section_that_limits_no_calls_costs_none() -> None:
    assert limiter(of_clients(sessions=5), PolicyState(None)) is None
    assert limiter(of_server(queue=5), PolicyState(None)) is None


def test_a_call_that_was_decided_before_a_reload_meets_the_limits_of_now() -> None:
    """As one that a person was asked about meanwhile; nor does it bring the former ones back for
    its client."""

    async def main() -> None:
        limited = LimitedCalls(of_clients(per_minute=1))
        before = limited.limits
        limited.take_up(of_clients(per_minute=3))
        assert before is not None
        passage = Passage(
            "files", "tool", None, Call("tools/call", {}, Caller("ann", address="10.0.0.1")), {}
        )
        assert [await passing(before, passage, answer) for _ in range(2)] == [{}, {}]
        await limited.call()
        with pytest.raises(Denied):
            await limited.call()

    run(main())


def test_a_limit_that_went_and_came_back_counts_who_waited_elsewhere_meanwhile() -> None:
    """A call waits for its client's other calls while a server's limit is taken out and put in
    again: it is counted there when it comes."""

    async def main() -> None:
        def config(**fields: Any) -> Config:
            limits = FrontLimits(in_flight=1)
            return Config(
                server=FrontServer(limits=limits),
                mcp_servers=(server("first"), server("files", **fields)),
            )

        with_limit = config(limits=Limits(in_flight=1, queue=5))
        limited, first, gate = LimitedCalls(with_limit), Gate(), Gate()
        running = [limited.start(first, who=who, server="first") for who in ("ann", "bob")]
        await yield_to_loop()
        waiting = [limited.start(gate, who=who) for who in ("ann", "bob")]
        await yield_to_loop()
        limited.take_up(config())
        limited.take_up(with_limit)
        first.open.set()
        await asyncio.gather(*running)
        await yield_to_loop()
        waiting.append(limited.start(gate, who="eve"))
        await yield_to_loop()
        assert gate.running == 1
        gate.open.set()
        await asyncio.gather(*waiting)
        assert gate.most == 1 and limited.at_rest

    run(main())


def test_who_is_refused_after_a_wait_gets_back_only_what_was_counted_of_it() -> None:
    """A limit of calls a minute came while it waited: it does not make room for one more call of
    others."""

    async def main() -> None:
        limited, gate = LimitedCalls(of_server(call_timeout=0.05, in_flight=1)), Gate()
        calls = [limited.start(gate), limited.start(gate)]
        await yield_to_loop()
        limited.take_up(of_server(in_flight=1, per_minute=1))
        calls.append(limited.start(gate))
        await refused(calls[1])
        assert (await refused(limited.call())).data[
            "limit"
        ] == "mcp_servers.files.limits.per_minute"
        gate.open.set()
        await asyncio.gather(calls[0], calls[2])
        assert limited.at_rest

    run(main(), 10)


@pytest.mark.parametrize("seed", range(8))
def test_in_any_order_of_calls_cancellations_reloads_and_strangers_all_counts_are_exact(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place goes back to the counter it was taken from, though clients are forgotten for others
    and limits come, go and come back; and as many of a minute's calls are used as were made, or
    were given up by their client."""
    monkeypatch.setattr(module, "MAX_CLIENTS", 6)
    made: list[module.Counter] = []
    begin = module.Counter.__init__

    def counted(counter: module.Counter, *args: Any) -> None:
        begin(counter, *args)
        made.append(counter)

    monkeypatch.setattr(module.Counter, "__init__", counted)
    chance = random.Random(seed)
    running: Tally[str] = Tally()
    forwarded = entered = told = 0

    async def work(*places: str) -> Json:
        nonlocal forwarded
        forwarded += "web" in places
        running.update(places)
        assert all(running[place] <= 2 for place in places if place != "files"), running
        try:
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            return {}
        finally:
            running.subtract(places)

    def config() -> Config:
        """A client may always have two calls, and so may the server `web`; all else is one way and
        then another."""
        files = chance.choice(
            [None, Limits(in_flight=1), Limits(in_flight=3, queue=1), Limits(per_minute=9_000)]
        )
        web = Limits(in_flight=2, per_minute=5_000, queue=chance.randrange(1, 5))
        profiles = [Profile(name="work", limits=Limits(in_flight=chance.randrange(1, 4)))][
            : chance.randrange(2)
        ]
        return Config(
            server=FrontServer(limits=FrontLimits(in_flight=2, queue=chance.randrange(4))),
            profiles=tuple(profiles),
            mcp_servers=(server("files", limits=files), server("web", limits=web)),
        )

    async def main() -> None:
        limited = LimitedCalls(config())

        async def call(who: str, name: str, profile: str | None) -> None:
            nonlocal entered, told
            entered += name == "web"
            try:
                await limited.call(lambda: work(who, name), who=who, server=name, profile=profile)
            except Denied:
                told += name == "web"

        calls: list[asyncio.Task[None]] = []
        for _ in range(500):
            who, name = f"w{chance.randrange(10)}", chance.choice(["files", "web"])
            calls.append(asyncio.ensure_future(call(who, name, chance.choice(["work", None]))))
            if chance.random() < 0.3:
                chance.choice(calls).cancel()
            if chance.random() < 0.1:
                limited.take_up(config())
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in done} <= {type(None), asyncio.CancelledError}
        assert forwarded > 50
        assert all((each.running, each.waiting, each.pending) == (0, 0, 0) for each in made)
        assert limited.counters.servers["web"].spent == entered - told

    run(main())
