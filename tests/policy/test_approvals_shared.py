"""SEC-7, SCA-1: approvals over several replicas: decided anywhere, used once, whatever happens to
their store."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.loop import run
from kit.replicas import RedisServer
from kit.until import until
from mcpx.config import PolicyRule
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import DENIED, NEEDS_APPROVAL, OVERLOADED, Denied
from mcpx.model.events import ApprovalChanged, Event, Passage
from mcpx.policy import approvals as approving
from mcpx.policy import cluster_approvals
from mcpx.policy.approvals import StoreAway
from mcpx.policy.asking import KEY, Forward, Through
from mcpx.policy.rules import Rule
from mcpx.policy.state import PolicyState
from mcpx.replicas.address import parse
from mcpx.replicas.replicas import Replicas

RULE = Rule(1, PolicyRule(effect="ask", reason="it deletes"))
YES: Json = {"action": "accept", "content": {"approve": True}}
MUTE = Caller("ada")
MODERN = Caller("ada", modern=True, capabilities={"elicitation": {"form": {}}})
BOUND = 30.0


class Voice:
    async def ask(self, server: str, method: str, params: Json | None) -> Json:
        return YES

    def tell(self, method: str, params: Json) -> None: ...

    def pause(self, retry_ms: int) -> None: ...


PERSON = Caller("ada", capabilities={"elicitation": {}}, voice=Voice(), session="s")


class RecordingServer:
    """The server of all replicas. It records calls and returns the given results."""

    def __init__(self, *results: Json | Exception) -> None:
        self.results = list(results)
        self.called: list[Json] = []


class Replica:
    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.heard: list[ApprovalChanged] = []
        self.state = PolicyState(None, self._hear, replicas)

    def _hear(self, event: Event) -> None:
        assert isinstance(event, ApprovalChanged)
        self.heard.append(event)

    @property
    def store(self) -> Any:
        return self.replicas.store

    def states(self, id: str) -> list[str]:
        return [event.state for event in self.heard if event.id == id]

    def waiting(self) -> list[str]:
        """What it tells without asking anybody: figures, events."""
        return [approval.id for approval in self.state.approvals.pending()]

    async def pending(self) -> list[str]:
        return [approval.id for approval in await self.state.book.pending()]

    async def decide(self, id: str, allow: bool = True) -> bool:
        return await self.state.book.decide(id, allow=allow, by="eve") is not None

    async def call(
        self,
        server: RecordingServer,
        caller: Caller = MUTE,
        path: str = "/a",
        through: Through = lambda forward: forward(),
        **params: Any,
    ) -> Json:
        said: Json = {"name": "rm", "arguments": {"path": path}, **params}
        passage = Passage("files", "rm", None, Call("tools/call", dict(said), caller), said)

        async def forward() -> Json:
            server.called.append(said)
            result = server.results.pop(0) if server.results else {"content": []}
            if isinstance(result, Exception):
                raise result
            return result

        return await self.state.asking.pass_if_approved(passage, RULE, forward, through)

    async def refused(self, server: RecordingServer, caller: Caller = MUTE, **more: Any) -> Denied:
        with pytest.raises(Denied) as refused:
            await self.call(server, caller, **more)
        return refused.value

    async def waits(self, server: RecordingServer, caller: Caller = MUTE, **more: Any) -> str:
        refused = await self.refused(server, caller, **more)
        assert refused.code == NEEDS_APPROVAL, refused
        return refused.data["approval"]

    async def start(self) -> None:
        self.replicas.start()
        await self.replicas.joined.wait()
        self.replicas.members.start()

    async def end(self) -> None:
        await self.state.close()
        await self.replicas.close()


@pytest.fixture
def store() -> Iterator[RedisServer]:
    with RedisServer() as store:
        yield store


@asynccontextmanager
async def replicas(
    store: RedisServer, count: int = 2, environ: dict[str, str] | None = None
) -> AsyncIterator[list[Replica]]:
    them = [Replica(Replicas(parse(store.url), environ or {}, "test")) for _ in range(count)]
    try:
        for each in them:
            await each.start()
        yield them
    finally:
        for each in them:
            await each.end()


async def passes(replica: Replica, server: RecordingServer) -> bool:
    try:
        return await replica.call(server) == {"content": []}
    except Denied as denied:
        assert isinstance(denied, StoreAway) or denied.code == NEEDS_APPROVAL
        return False


async def lose(store: RedisServer, *them: Replica) -> None:
    store.kill()
    for each in them:
        await until(lambda each=each: not each.store.up, what="the store is known to be away")


async def back(*them: Replica) -> None:
    for each in them:
        await each.store.there.wait()


def test_a_call_waits_at_every_replica_and_is_decided_at_any(store: RedisServer) -> None:
    async def test() -> None:
        async with replicas(store, 3) as (one, two, three):
            server = RecordingServer()
            id = await one.waits(server)
            assert await two.waits(server) == id, "the same call waits under the same id"
            assert await two.pending() == await three.pending() == [id]
            await until(
                lambda: three.waiting() == [id], what="its figures move without anybody asking"
            )
            [told] = await three.state.book.pending()
            [own] = await one.state.book.pending()
            assert (
                told.told() == own.told()
                and '"/a"' in told.arguments
                and told.reason == "it deletes"
            )
            assert await two.decide(id)
            assert not await one.decide(id) and not await three.decide(id, False), (
                "a decision is made once"
            )
            for each in (
                one,
                two,
                three,
            ):  # else the next thing that one hears of may be that it was used
                await until(
                    lambda each=each: each.states(id) == ["pending", "approved"], what="all know"
                )
            assert await three.call(server) == {"content": []}
            assert await one.waits(server) != id
            assert len(server.called) == 1
            for each in (one, two, three):
                await until(
                    lambda each=each: each.states(id) == ["pending", "approved", "used"],
                    what=str(each.heard),
                )
            trail = [
                (event.state, event.by)
                for each in (one, two, three)
                for event in each.heard
                if event.id == id
            ]
            assert len(trail) == 9
            told_here = [
                [event.state for event in each.heard if event.id == id and not event.elsewhere]
                for each in (one, two, three)
            ]
            assert told_here == [["pending"], ["approved"], ["used"]], (
                "each stands in the trail of one replica"
            )

    run(test())


def test_two_replicas_that_get_an_approved_call_in_the_same_instant_let_one_pass(
    store: RedisServer,
) -> None:
    async def test() -> None:
        async with replicas(store, 3) as them:
            for number in range(10):
                server, path = RecordingServer(), f"/{number}"
                id = await them[0].waits(server, path=path)
                assert await them[1].decide(id)
                calls = [each.call(server, path=path) for each in them for _ in range(10)]
                outcomes = await asyncio.gather(*calls, return_exceptions=True)
                assert len(server.called) == 1
                others = [outcome for outcome in outcomes if isinstance(outcome, Denied)]
                assert len(others) == 29 and {other.code for other in others} == {NEEDS_APPROVAL}
                [new] = {other.data["approval"] for other in others}
                assert new != id

    run(test())


def test_decided_twice_in_the_same_instant_is_decided_once(store: RedisServer) -> None:
    async def test() -> None:
        async with replicas(store) as (one, two):
            for number in range(10):
                id = await one.waits(RecordingServer(), path=f"/{number}")
                said = await asyncio.gather(one.decide(id, True), two.decide(id, False))
                assert sorted(said) == [False, True]

    run(test())


def test_a_refusal_is_told_everywhere(store: RedisServer) -> None:
    async def test() -> None:
        async with replicas(store) as (one, two):
            server = RecordingServer()
            id = await one.waits(server)
            assert await one.decide(id, False)
            refused = await two.refused(server)
            assert (
                refused.code == DENIED
                and refused.data == {"approval": id}
                and "was refused" in refused.message
            )
            assert server.called == []

    run(test())


def test_an_approval_that_reached_no_server_is_there_again_at_every_replica(
    store: RedisServer,
) -> None:
    async def test() -> None:
        async with replicas(store) as (one, two):
            server = RecordingServer(Denied(OVERLOADED, "later"))
            id = await one.waits(server)
            assert await two.decide(id)
            assert (await one.refused(server)).message == "later"
            assert await two.call(server) == {"content": []}
            assert len(server.called) == 2
            assert await one.waits(server) != id

    run(test())


def test_a_call_that_is_given_up_while_the_store_is_asked_leaves_its_approval(
    store: RedisServer,
) -> None:
    async def test() -> None:
        async with replicas(store) as (one, two):
            server = RecordingServer()
            assert await one.decide(await one.waits(server))
            store.pause()
            call = asyncio.ensure_future(one.call(server))
            await asyncio.sleep(0.05)  # until it is on its way: nothing tells that from outside
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            store.go_on()
            await one.store.settled()
            await until(lambda: passes(two, server), what="it passes")
            assert len(server.called) == 1

    run(test())


@pytest.mark.parametrize(
    "impatient", [False, True], ids=["given up", "and nobody waits for its end"]
)
def test_a_call_that_is_given_up_while_it_waits_for_a_limit_leaves_its_approval(
    store: RedisServer, impatient: bool
) -> None:
    async def test() -> None:
        async with replicas(store) as (one, two):
            server, waits = RecordingServer(), asyncio.Event()

            async def stands_in_line(forward: Forward) -> Json:
                waits.set()
                await asyncio.Event().wait()
                return await forward()

            id = await one.waits(server)
            assert await two.decide(id)
            call = asyncio.ensure_future(one.call(server, through=stands_in_line))
            await waits.wait()
            call.cancel()
            if impatient:
                await asyncio.sleep(0)
                call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: passes(two, server), what="it passes")
            assert await one.waits(server) != id
            assert len(server.called) == 1

    run(test())


def test_the_bounds_count_over_all_replicas(store: RedisServer) -> None:
    async def test() -> None:
        async with replicas(store) as them:
            for number in range(approving.MOST_EACH):
                await them[number % 2].waits(RecordingServer(), path=f"/{number}")
            for each in them:
                await until(
                    lambda each=each: len(each.waiting()) == approving.MOST_EACH, what="both know"
                )
                assert (await each.refused(RecordingServer(), path="/more")).code == OVERLOADED
            others = approving.MOST - approving.MOST_EACH
            for number in range(others):
                caller = Caller(f"bob {number // approving.MOST_EACH}")
                await them[number % 2].waits(RecordingServer(), caller, path=f"/{number}")
            for each in them:
                await until(
                    lambda each=each: len(each.waiting()) == approving.MOST, what="both know"
                )
                assert (await each.refused(RecordingServer(), Caller("cleo"))).code == OVERLOADED
                assert len(await each.pending()) == approving.MOST
            newcomer = Replica(Replicas(parse(store.url), {}, "test"))
            await newcomer.start()
            await until(
                lambda: len(newcomer.waiting()) == approving.MOST,
                what="who comes later knows all of them",
            )
            await newcomer.end()

    run(test())


def test_the_store_forgets_in_time(store: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_approvals, "WAITS", 0.5)

    async def test() -> None:
        async with replicas(store) as (one, two):
            id = await one.waits(RecordingServer())
            keys = [
                *store.cli("keys", "*approval*").split(),
                *store.cli("keys", "*:call:*").split(),
            ]
            assert len(keys) == 4 and all(int(store.cli("pttl", key)) > 0 for key in keys)
            await until(lambda: not one.waiting() and not two.waiting(), what="it has ended")
            assert await one.pending() == await two.pending() == [] and not await two.decide(id)
            assert one.states(id) == ["pending", "expired"]
            assert [event.elsewhere for event in one.heard] == [False, False], "it is the owner"
            assert {event.elsewhere for event in two.heard} == {True}

    run(test())


def test_the_store_tells_nothing_of_arguments_or_callers(store: RedisServer) -> None:
    async def test() -> None:
        async with replicas(store, 1, {"MCPX_KEY": "k" * 32}) as (one,):
            await one.waits(RecordingServer(), Caller("a-certain-person"), path="/business/plan")
            await one.call(RecordingServer(), MODERN)
            for key in store.cli("keys", "*").splitlines():
                kind = store.cli("type", key)
                read = {"hash": ("hgetall",), "zset": ("zrange",), "string": ("get",)}[kind]
                words = (*read, key, "0", "-1") if kind == "zset" else (*read, key)
                told = store.cli("--no-raw", *words)
                assert not any(word in told + key for word in ("certain", "business", "files")), (
                    told
                )

    run(test())


def test_while_the_store_is_away_nothing_passes_that_was_approved_and_known_ones_are_told(
    store: RedisServer,
) -> None:
    async def test() -> None:
        async with replicas(store) as (one, two):
            server = RecordingServer()
            waits, approved, refused = [await one.waits(server, path=path) for path in "abc"]
            assert await one.decide(approved) and await one.decide(refused, False)
            for id, state in ((waits, "pending"), (approved, "approved"), (refused, "denied")):
                await until(
                    lambda id=id, state=state: two.states(id)[-1:] == [state], what="both know"
                )
            await lose(store, one, two)
            for each in (one, two):
                assert (
                    await each.pending() == [waits] and await each.waits(server, path="a") == waits
                )
                away = await each.refused(server, path="b")
                assert isinstance(away, StoreAway) and "store" in away.message and away.retry_after
                assert "was refused" in (await each.refused(server, path="c")).message
                with pytest.raises(StoreAway):
                    await each.decide(waits)
            question = await one.refused(server, MODERN, path="d")
            assert isinstance(question, StoreAway), (
                "a state that nobody can redeem is not given out"
            )
            assert server.called == []
            assert await one.call(server, PERSON, path="b") == {"content": []}, (
                "who sits there can be asked"
            )
            assert len(server.called) == 1

    run(test())


def test_a_modern_clients_answer_is_taken_by_another_replica_once(store: RedisServer) -> None:
    async def test() -> None:
        async with replicas(store) as them:
            one, two = them
            server = RecordingServer()
            question = await one.call(server, MODERN)
            answers: Json = {"requestState": question["requestState"], "inputResponses": {KEY: YES}}
            others: list[tuple[Caller, Json]] = [
                (MODERN, {"path": "/b"}),
                (Caller("bob", modern=True, capabilities=MODERN.capabilities), {}),
            ]
            for caller, more in others:
                assert (await two.call(server, caller, **answers, **more))[
                    "resultType"
                ] == "input_required"
            assert server.called == []
            tries = [each.call(server, MODERN, **answers) for each in them for _ in range(10)]
            outcomes = await asyncio.gather(*tries)
            assert len(server.called) == 1
            assert sum(outcome.get("resultType") == "input_required" for outcome in outcomes) == 19
            changed = {**answers, "requestState": question["requestState"][:-2] + "AA"}
            for state in (
                changed["requestState"],
                "mcpx-ask.",
                "mcpx-ask.é!",
                "mcpx-ask.AAAA.AAAA",
            ):
                result = await two.call(server, MODERN, **{**answers, "requestState": state})
                assert result["resultType"] == "input_required"
            assert len(server.called) == 1

    run(test())


def test_a_servers_own_question_goes_on_at_another_replica_once(store: RedisServer) -> None:
    async def test() -> None:
        async with replicas(store) as (one, two):
            asks: Json = {
                "resultType": "input_required",
                "inputRequests": {"q": {}},
                "requestState": "theirs",
            }
            server = RecordingServer(asks, Denied(OVERLOADED, "later"))
            question = await one.call(server, MODERN)
            answers: Json = {"requestState": question["requestState"], "inputResponses": {KEY: YES}}
            assert await two.call(server, MODERN, **answers) == asks
            going_on: Json = {
                "requestState": "theirs",
                "inputResponses": {"q": {"action": "accept"}},
            }
            assert (await one.refused(server, MODERN, **going_on)).message == "later"
            outcomes = await asyncio.gather(
                *(each.call(server, MODERN, **going_on) for each in (one, two))
            )
            assert len(server.called) == 3
            assert sum(KEY in outcome.get("inputRequests", {}) for outcome in outcomes) == 1

    run(test())


def test_an_answer_cannot_be_taken_while_the_store_is_away_and_never_after_it_was_emptied(
    store: RedisServer,
) -> None:
    async def test() -> None:
        async with replicas(store) as (one, two):
            server = RecordingServer()
            question = await one.call(server, MODERN)
            answers: Json = {"requestState": question["requestState"], "inputResponses": {KEY: YES}}
            await lose(store, one, two)
            assert isinstance(await two.refused(server, MODERN, **answers), StoreAway)
            assert isinstance(await two.refused(server, MODERN, requestState="theirs"), StoreAway)
            store.start()
            await back(one, two)
            again = await two.call(server, MODERN, **answers)
            assert again["resultType"] == "input_required" and server.called == []
            answers["requestState"] = again["requestState"]
            assert await one.call(server, MODERN, **answers) == {"content": []}

    run(test())
