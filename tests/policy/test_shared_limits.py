"""Limits that several replicas count together, on a real store (SEC-6, SCA-1): exact, in turn, and
nothing is left."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.loop import never_return, run
from kit.replicas import RedisServer as RealStore
from kit.until import until
from mcpx.config import Config, Server
from mcpx.config.schema import Profile
from mcpx.config.sections import FrontLimits, FrontServer, Limits
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import OVERLOADED, Denied
from mcpx.model.events import Passage
from mcpx.policy import shared_limits
from mcpx.policy.counters import Counters
from mcpx.policy.limits import Limiter, limiter
from mcpx.policy.state import PolicyState
from mcpx.replicas.address import parse
from mcpx.replicas.replicas import Replicas


@pytest.fixture(scope="module")
def server_of_stores() -> Iterator[RealStore]:
    with RealStore() as store:
        yield store


@pytest.fixture
def store(server_of_stores: RealStore) -> RealStore:
    """An empty one."""
    server_of_stores.cli("FLUSHALL")
    return server_of_stores


@pytest.fixture
def own_store() -> Iterator[RealStore]:
    """One that may be ended."""
    with RealStore() as store:
        yield store


class ReplicaLimits:
    """The limits of one replica."""

    def __init__(self, store: RealStore, config: Config) -> None:
        self.replicas = Replicas(parse(store.url), {}, "test")
        self.state = PolicyState(None, replicas=self.replicas)
        self.take_up(config)
        self.replicas.start()

    def take_up(self, config: Config) -> None:
        self.limits: Limiter | None = limiter(config, self.state)

    @property
    def counters(self) -> Counters:
        return self.state.counters

    @property
    def is_counting(self) -> bool:
        return self.state.shared_limits.is_counting

    async def call(
        self,
        forward: Callable[[], Awaitable[Json]] | None = None,
        *,
        who: str = "ann",
        server: str = "files",
        profile: str | None = None,
    ) -> Json:
        """As the relay does it."""
        caller = Caller(principal=who, profile=profile, address="10.0.0.1")
        passage = Passage(server, "tool", None, Call("tools/call", {}, caller), {})
        work = forward or answer
        if self.limits is None:
            return await work()
        try:
            return await self.limits.passing(passage, work, lambda passage: None)
        finally:
            for place in passage.places:
                place.leave()

    def start(self, *args: Any, **fields: Any) -> "asyncio.Task[Json]":
        return asyncio.ensure_future(self.call(*args, **fields))

    async def close(self) -> None:
        await self.state.close()
        await self.replicas.close()


@asynccontextmanager
async def limit_replicas(
    store: RealStore, config: Config, count: int = 3
) -> AsyncGenerator[list[ReplicaLimits]]:
    made = [ReplicaLimits(store, config) for _ in range(count)]
    try:
        for replica in made:
            await until(lambda replica=replica: replica.is_counting)
        yield made
    finally:
        for replica in made:
            await replica.close()


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


def server(name: str = "files", **fields: Any) -> Server:
    return Server(name=name, connection=None, **fields)  # pyright: ignore[reportArgumentType]


def of_clients(**limits: Any) -> Config:
    return Config(server=FrontServer(limits=FrontLimits(**limits)), mcp_servers=(server(),))


def of_server(call_timeout: float = 300.0, without_store: Any = "open", **limits: Any) -> Config:
    front = FrontServer(limits=FrontLimits(without_store=without_store))
    files = server(limits=Limits(**limits), call_timeout=call_timeout)
    return Config(server=front, mcp_servers=(files, server("other")))


async def refused(call: Awaitable[Json]) -> Denied:
    with pytest.raises(Denied) as caught:
        await call
    assert caught.value.code == OVERLOADED
    return caught.value


def leases(store: RealStore, name: str = "server:files") -> int:
    """Calls in flight, as the store knows them."""
    return int(store.cli("ZCARD", f"{{mcpx}}:counter:{name}:leases"))


async def at_rest(store: RealStore, *all: ReplicaLimits) -> None:
    """No call runs or waits, and the store has no leases."""

    def local() -> bool:
        each = [counter for replica in all for counter in replica.counters.all()]
        return not any(counter.running or counter.queued or counter.pending for counter in each)

    await until(local)
    async with asyncio.timeout(20):
        while await asyncio.to_thread(store.cli, "--scan", "--pattern", "*:leases"):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)


# Calls a minute


def test_a_minutes_calls_are_those_of_all_replicas_whatever_their_spread(store: RealStore) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_clients(per_minute=60)) as all:
            calls = [all[n % 7 % 3].start() for n in range(200)]
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert sum(isinstance(each, dict) for each in done) == 60
            denied = next(each for each in done if isinstance(each, Denied))
            assert (
                denied.http_status == 429
                and denied.retry_after is not None
                and 0 < denied.retry_after <= 1
            )
            assert "may make 60 calls a minute" in denied.message
            assert sum(replica.counters.refused["client.per_minute"] for replica in all) == 140
            await at_rest(store, *all)

    run(main())


def test_what_was_made_leaks_away_by_the_clock_of_the_store(store: RealStore) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_clients(per_minute=600), 2) as (one, other):
            made = 0
            with pytest.raises(Denied) as caught:
                while made < 6_000:
                    await (one, other)[made % 2].call()
                    made += 1
            denied = caught.value
            assert made >= 600
            assert denied.retry_after is not None
            await asyncio.sleep(denied.retry_after + 0.02)  # what is promised is a time
            await asyncio.wait_for(one.call(), 5)

    run(main())


def test_what_one_limit_refuses_the_others_do_not_count(store: RealStore) -> None:
    async def main() -> None:
        both = Config(
            server=FrontServer(limits=FrontLimits(per_minute=2)),
            mcp_servers=(server(limits=Limits(per_minute=1)), server("other")),
        )
        async with limit_replicas(store, both, 2) as (one, other):
            await one.call()
            denied = await refused(other.call())
            assert (
                denied.http_status == 503
                and denied.data["limit"] == "mcp_servers.files.limits.per_minute"
            )
            await one.call(server="other")
            assert (await refused(other.call(server="other"))).http_status == 429

    run(main())


def counted(replica: ReplicaLimits) -> list[Any]:
    """The scripts of limits that a replica has the store run from now on."""
    asked: list[Any] = []
    run_it = replica.replicas.store.run

    def run_and_note(script: Any, keys: Any, arguments: Any = ()) -> "asyncio.Future[Any]":
        if any(":counter:" in key for key in keys):
            asked.append(script)
        return run_it(script, keys, arguments)

    replica.replicas.store.run = run_and_note  # type: ignore[method-assign]
    return asked


def test_a_limited_call_waits_for_one_request_and_one_that_no_limit_concerns_for_none(
    store: RealStore,
) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_server(in_flight=200), 1) as (replica,):
            await replica.call()
            await at_rest(store, replica)
            asked, gate = counted(replica), Gate()
            for _ in range(5):
                await replica.call(server="other")
            assert asked == []
            calls = [replica.start(gate) for _ in range(100)]
            await until(lambda: gate.running == 100)
            assert len(asked) == 100
            gate.open.set()
            await asyncio.gather(*calls)
            assert len(asked) == 100  # no call waits for a release

    run(main())


# Calls at a time


def test_no_more_run_at_a_time_than_allowed_over_all_and_who_waits_elsewhere_is_woken(
    store: RealStore,
) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_server(in_flight=3, queue=2)) as all:
            gates = [Gate() for _ in range(7)]
            calls = [all[n].start(gates[n], who=f"w{n}") for n in range(3)]
            await until(lambda: sum(gate.running for gate in gates) == 3)
            calls += [all[n % 3].start(gates[n], who=f"w{n}") for n in range(3, 7)]
            await until(lambda: sum(replica.counters.depth()["server"] for replica in all) == 4)
            denied = await refused(all[0].call(who="w9"))
            assert "3 calls of server files are in flight and 2 wait" in denied.message
            for left in (6, 5, 4, 3, 2, 1, 0):
                next(gate for gate in gates if gate.running).open.set()
                await until(lambda left=left: sum(not gate.done for gate in gates) == left)
                await until(lambda left=left: sum(gate.running for gate in gates) == min(3, left))
            await asyncio.gather(*calls)
            await at_rest(store, *all)

    run(main())


def test_in_a_full_queue_who_has_fewer_takes_a_place_of_who_has_most_at_its_replica(
    store: RealStore,
) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_server(in_flight=1, queue=4), 2) as (one, other):
            gate = Gate()
            running = other.start(gate)
            await until(lambda: gate.running)
            greedy = [one.start(gate, who="greedy") for _ in range(4)]
            await until(lambda: one.counters.depth()["server"] == 4)
            ann = one.start(gate, who="ann")
            assert "are in flight" in (await refused(greedy[3])).message
            await refused(one.call(who="greedy"))
            bob = other.start(gate, who="bob")  # The queue belongs to one replica.
            gate.open.set()
            await asyncio.gather(running, *greedy[:3], ann, bob)
            await at_rest(store, one, other)

    run(main())


def test_with_no_queue_nobody_waits(store: RealStore) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_clients(in_flight=1, queue=0), 2) as (one, other):
            gate = Gate()
            call = one.start(gate)
            await until(lambda: gate.running)
            await refused(other.call())
            gate.open.set()
            await call
            await at_rest(store, one, other)
            assert await other.call() == {}

    run(main())


def test_waiting_is_bounded_by_the_time_a_call_may_take_and_such_a_call_is_none(
    store: RealStore,
) -> None:
    async def main() -> None:
        async with limit_replicas(
            store, of_server(call_timeout=0.2, in_flight=1, per_minute=30), 2
        ) as (one, other):
            running = one.start(never_return)
            await until(lambda: one.counters.servers["files"].running)
            denied = await refused(other.call())
            assert "no place was free" in denied.message and denied.retry_after == 1
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await at_rest(store, one, other)

    run(main())


def test_a_call_that_is_cancelled_while_the_store_is_asked_leaves_no_place(
    store: RealStore,
) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_server(in_flight=1, queue=3), 2) as (one, other):
            for turns in range(60):
                calls = [one.start(), one.start(), other.start()]
                for _ in range(turns % 20):
                    await asyncio.sleep(0)
                for call in calls:
                    call.cancel()
                await asyncio.gather(*calls, return_exceptions=True)
            await at_rest(store, one, other)
            assert await other.call() == {}

    run(main())


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_at_once_no_bound_is_exceeded_and_nothing_is_left(
    seed: int, store: RealStore
) -> None:
    """Three kinds of limit, three replicas, calls that end, fail and are cancelled at any moment,
    and reloads."""
    chance = random.Random(seed)
    servers = {"files": 3, "web": 2}
    running = dict.fromkeys(servers, 0)
    most = dict.fromkeys(servers, 0)

    async def work(name: str) -> Json:
        running[name] += 1
        most[name] = max(most[name], running[name])
        assert running[name] <= servers[name]
        try:
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0.001 * chance.random())
            if chance.random() < 0.2:
                raise RuntimeError("no")
            return {}
        finally:
            running[name] -= 1

    def config() -> Config:
        web = Limits(
            in_flight=2, queue=chance.randrange(4, 9), per_minute=chance.choice([None, 5_000])
        )
        return Config(
            server=FrontServer(limits=FrontLimits(in_flight=4, queue=3)),
            profiles=(
                Profile(name="work", limits=Limits(in_flight=chance.randrange(3, 6), queue=8)),
            ),
            mcp_servers=(
                server("files", limits=Limits(in_flight=3, queue=6)),
                server("web", limits=web),
            ),
        )

    async def main() -> None:
        async with limit_replicas(store, config()) as all:
            calls: list[asyncio.Task[Json]] = []
            for _ in range(600):
                name, profile = chance.choice(list(servers)), chance.choice(["work", None])
                who = f"w{chance.randrange(6)}"
                replica = chance.choice(all)
                calls.append(
                    replica.start(
                        lambda name=name: work(name), who=who, server=name, profile=profile
                    )
                )
                if chance.random() < 0.3:
                    chance.choice(calls).cancel()
                if chance.random() < 0.02:
                    replica.take_up(config())
                if chance.random() < 0.5:
                    await asyncio.sleep(0.002 * chance.random())
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(each) for each in done} <= {
                dict,
                RuntimeError,
                Denied,
                asyncio.CancelledError,
            }
            assert sum(isinstance(each, dict) for each in done) > 50 and most == servers
            await at_rest(store, *all)

    run(main())


def test_a_rate_is_not_exceeded_though_calls_wait_and_are_refused_after_it(
    store: RealStore,
) -> None:
    made = 0

    async def work() -> Json:
        nonlocal made
        made += 1
        await asyncio.sleep(0.004)
        return {}

    async def main() -> None:
        config = of_server(call_timeout=0.3, in_flight=2, queue=8, per_minute=20)
        async with limit_replicas(store, config) as all:
            began = time.monotonic()
            calls = [all[n % 3].start(work, who=f"w{n % 5}") for n in range(300)]
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(each) for each in done} <= {dict, Denied}
            await at_rest(store, *all)
            refilled = (time.monotonic() - began) / 3
            assert 2 <= made <= 21 + refilled

    run(main())


# Reloads


def test_new_limits_count_at_once_for_what_runs_already(store: RealStore) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_server(per_minute=1_000), 2) as (one, other):
            gate = Gate()
            calls = [replica.start(gate) for replica in (one, other, one)]
            await until(lambda: gate.running == 3)
            for replica in (one, other):
                replica.take_up(of_server(in_flight=3, queue=5))
            await until(lambda: leases(store) == 3)
            calls += [replica.start(gate) for replica in (one, other)]
            await until(
                lambda: sum(replica.counters.depth()["server"] for replica in (one, other)) == 2
            )
            one.take_up(of_server(in_flight=5))
            other.take_up(of_server(in_flight=5))
            await until(lambda: gate.running == 5)
            gate.open.set()
            await asyncio.gather(*calls)
            await at_rest(store, one, other)

    run(main())


def test_who_waits_comes_in_when_the_limit_goes(store: RealStore) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_server(in_flight=1), 2) as (one, other):
            gate = Gate()
            calls = [replica.start(gate) for replica in (one, other, one, other)]
            await until(
                lambda: sum(replica.counters.depth()["server"] for replica in (one, other)) == 3
            )
            one.state.lift_limits()
            other.take_up(of_server())
            await until(lambda: gate.running == 4)
            gate.open.set()
            await asyncio.gather(*calls)
            await at_rest(store, one, other)

    run(main())


# The store, and replicas that go


def test_leases_of_a_dead_replica_expire_though_the_clock_of_the_store_is_set_back(
    store: RealStore,
) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_server(in_flight=1, per_minute=5), 1) as (replica,):
            later = 1_000 * (int(store.cli("TIME").split()[0]) + 3_600)
            store.cli("ZADD", "{mcpx}:counter:server:files:leases", str(later), "dead:1")
            store.cli("SET", "{mcpx}:counter:server:files:rate", str(later))
            denied = await refused(replica.call())
            assert denied.retry_after is not None and denied.retry_after <= 12
            store.cli("DEL", "{mcpx}:counter:server:files:rate")
            assert await asyncio.wait_for(replica.call(), 8) == {}

    run(main())


def test_counters_in_the_store_expire(store: RealStore) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_server(in_flight=2, per_minute=5), 1) as (replica,):
            gate = Gate()
            call = replica.start(gate)
            await until(lambda: gate.running)
            keys = store.cli("--scan", "--pattern", "{mcpx}:counter:*").split()
            assert len(keys) == 2
            assert all(0 < int(store.cli("PTTL", key)) <= 60_000 for key in keys)
            gate.open.set()
            await call

    run(main())


def test_the_lease_of_a_long_call_is_renewed_and_that_of_a_lost_replica_expires(
    store: RealStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_limits, "LEASE_SECONDS", 0.6)
    monkeypatch.setattr(shared_limits, "RENEWAL_SECONDS", 0.1)

    async def main() -> None:
        async with limit_replicas(store, of_server(in_flight=1), 2) as (one, other):
            gate = Gate()
            runs = one.start(gate)
            await until(lambda: gate.running == 1)
            waits = other.start(gate)
            await asyncio.sleep(1)  # Longer than a lease.
            assert gate.running == 1
            monkeypatch.setattr(one.state.shared_limits, "renew", lambda: None)
            await until(lambda: gate.running == 2)
            gate.open.set()
            await asyncio.gather(runs, waits)
            await at_rest(store, one, other)

    run(main())


def test_places_of_a_replica_that_has_ended_are_free_at_once(store: RealStore) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_server(in_flight=1), 2) as (one, other):
            runs = one.start(never_return)
            await until(lambda: one.counters.servers["files"].running == 1)
            waits = other.start()
            await until(lambda: other.counters.depth()["server"] == 1)
            await one.state.close()
            await asyncio.wait_for(waits, 2)
            runs.cancel()
            await asyncio.gather(runs, return_exceptions=True)

    run(main())


def test_a_store_that_was_flushed_is_told_again_what_is_held(store: RealStore) -> None:
    async def main() -> None:
        async with limit_replicas(store, of_server(in_flight=2, queue=0), 2) as (one, other):
            gate = Gate()
            calls = [one.start(gate), one.start(gate)]
            await until(lambda: gate.running == 2)
            store.cli("FLUSHALL")
            await until(lambda: leases(store) == 2, 5)
            await refused(other.call())
            gate.open.set()
            await asyncio.gather(*calls)
            await at_rest(store, one, other)

    run(main())


def test_while_the_store_is_away_each_counts_for_itself_and_afterwards_all_together(
    own_store: RealStore,
) -> None:
    async def main() -> None:
        leaks_slowly = 6  # a minute: what is counted at the end was made some seconds before
        async with limit_replicas(
            own_store, of_server(in_flight=2, queue=2, per_minute=leaks_slowly), 2
        ) as (
            one,
            other,
        ):
            gate = Gate()
            calls = [one.start(gate), other.start(gate), one.start(gate), other.start(gate)]
            await until(
                lambda: one.counters.depth()["server"] + other.counters.depth()["server"] == 2
            )
            own_store.kill()
            await until(lambda: gate.running == 4)  # those who waited, too
            for replica in (one, other):
                await until(lambda replica=replica: not replica.is_counting)
                waits = replica.start(gate)
                await until(lambda replica=replica: replica.counters.depth()["server"] == 1)
                calls.append(waits)
            own_store.start()
            await until(lambda: one.is_counting and other.is_counting)
            await until(lambda: leases(own_store) == 4)
            gate.open.set()
            await asyncio.gather(*calls)
            await at_rest(own_store, one, other)

    run(main())


def test_closed_nobody_is_let_in_while_the_store_is_away(own_store: RealStore) -> None:
    async def main() -> None:
        config = of_server(without_store="closed", in_flight=1, queue=2)
        async with limit_replicas(own_store, config, 2) as (one, other):
            gate = Gate()
            runs = one.start(gate)
            await until(lambda: gate.running == 1)
            waits = asyncio.ensure_future(refused(other.call()))
            await until(lambda: other.counters.depth()["server"] == 1)
            own_store.kill()
            assert "is away" in (await waits).message
            denied = await refused(one.call())
            assert denied.http_status == 503 and denied.retry_after == 1
            assert denied.data["limit"] == "server.limits.without_store"
            assert await one.call(server="other") == {}
            assert one.counters.refused["gateway.store"] == 1
            own_store.start()
            await until(lambda: other.is_counting)
            await until(lambda: leases(own_store) == 1)
            later = other.start()
            await until(
                lambda: other.counters.depth()["server"] == 1
            )  # what still runs elsewhere counts
            gate.open.set()
            await asyncio.gather(runs, later)
            await at_rest(own_store, one, other)

    run(main())


def test_a_store_that_stood_still_does_late_what_was_given_up_and_nothing_is_left_of_it(
    own_store: RealStore,
) -> None:
    async def main() -> None:
        async with limit_replicas(own_store, of_server(in_flight=2, queue=0), 2) as (one, other):
            own_store.pause()
            try:
                calls = [one.start(), other.start(), one.start(), other.start()]
                await asyncio.gather(*calls)  # each counts for itself
                assert not one.is_counting
            finally:
                own_store.go_on()
            await until(lambda: one.is_counting and other.is_counting)
            await at_rest(own_store, one, other)
            await asyncio.gather(one.call(), other.call())

    run(main())


# The clock of the store is set back, or another store has taken over whose clock is behind
