"""SEC-7, SCA-1: approvals over several replicas: decided anywhere, used once, whatever happens to
their store."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
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
from mcpx.policy import seals as sealing
from mcpx.policy.asking import KEY, Forward, Through
from mcpx.policy.book import Away
from mcpx.policy.rules import Rule
from mcpx.policy.shared_records import CLAIM, DECIDE, WAIT
from mcpx.policy.state import PolicyState
from mcpx.replicas.address import parse
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import Script

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


@asynccontextmanager
async def deaf(replica: Replica) -> AsyncIterator[None]:
    """It learns nothing of what the others do; what it had begun to look at, it has seen."""
    book: Any = replica.state.book
    follow = book._follow_alone

    async def learn_nothing() -> None: ...

    book._follow_alone = learn_nothing
    async with book._lock:
        pass
    try:
        yield
    finally:
        book._follow_alone = follow


async def passes(replica: Replica, server: RecordingServer) -> bool:
    try:
        return await replica.call(server) == {"content": []}
    except Denied as denied:
        assert isinstance(denied, Away) or denied.code == NEEDS_APPROVAL
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
            assert await two.waits(server) != id
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
    from mcpx.policy import shared_book

    monkeypatch.setattr(shared_book, "WAITS", 0.5)

    async def test() -> None:
        async with replicas(store) as (one, two):
            id = await one.waits(RecordingServer())
            keys = store.cli("keys", "*approvals*").splitlines()
            assert keys and all(int(store.cli("pttl", key)) > 0 for key in keys), (
                "nothing stays for ever"
            )
            await until(lambda: not one.waiting() and not two.waiting(), what="it has ended")
            assert await one.pending() == await two.pending() == [] and not await two.decide(id)
            assert (
                one.states(id) == ["pending", "expired"] and store.cli("keys", "*approvals*") == ""
            )

    run(test())


def test_of_what_was_used_the_store_keeps_a_bounded_number_of_records(store: RedisServer) -> None:
    async def test() -> None:
        async with replicas(store, 1) as (one,):
            more = 8
            for number in range(approving.MOST + more):
                server, path = RecordingServer(), f"/{number}"
                assert await one.decide(await one.waits(server, path=path))
                assert await one.call(server, path=path)
            assert int(store.cli("zcard", "{mcpx}:approvals:used")) == approving.MOST + more
            assert int(store.cli("hlen", "{mcpx}:approvals:spent")) == approving.MOST
            keys = store.cli("keys", "*approvals*").splitlines()
            assert all(int(store.cli("pttl", key)) > 0 for key in keys), "nothing stays for ever"

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
                assert isinstance(away, Away) and "store" in away.message and away.retry_after
                assert "was refused" in (await each.refused(server, path="c")).message
                with pytest.raises(Away):
                    await each.decide(waits)
            question = await one.refused(server, MODERN, path="d")
            assert isinstance(question, Away), "a state that nobody can redeem is not given out"
            assert server.called == []
            assert await one.call(server, PERSON, path="b") == {"content": []}, (
                "who sits there can be asked"
            )
            assert len(server.called) == 1

    run(test())


def test_what_waits_is_written_anew_where_the_store_has_lost_everything(store: RedisServer) -> None:
    async def test() -> None:
        async with replicas(store) as (one, two):
            server = RecordingServer()
            waits, approved, refused, used = [await one.waits(server, path=path) for path in "abcd"]
            assert (
                await one.decide(approved)
                and await two.decide(refused, False)
                and await two.decide(used)
            )
            assert await two.call(server, path="d")
            await until(lambda: one.states(used)[-1:] == ["used"], what="both know")
            await until(lambda: one.states(refused)[-1:] == ["denied"], what="both know")
            await lose(store, one, two)
            begun = await two.waits(server, path="e")
            store.start()
            await back(one, two)
            for each in (one, two):
                await until(
                    lambda each=each: set(each.waiting()) == {waits, approved, begun},
                    what=str(each.heard),
                )
            assert "was refused" in (await one.refused(server, path="c")).message
            assert await one.waits(server, path="b") == approved, (
                "it has to be approved again: it may have been used"
            )
            assert await one.waits(server, path="d") != used
            assert len(server.called) == 1
            for path, id in (("a", waits), ("b", approved), ("e", begun)):
                assert await one.decide(id)
                assert await two.call(server, path=path)
                assert await one.waits(server, path=path) != id
            assert len(server.called) == 4

    run(test())


def test_what_was_used_does_not_come_back_to_life_though_a_replica_did_not_hear_of_it(
    store: RedisServer,
) -> None:
    async def test() -> None:
        async with replicas(store, 3) as (one, two, three):
            server = RecordingServer()
            id = await one.waits(server)
            await until(lambda: three.waiting() == [id], what="all know")
            async with deaf(three):
                assert await two.decide(id) and await one.call(server)
                assert three.waiting() == [id], "it does not know better"
                await lose(store, one, two, three)
            store.start()
            await back(one, two, three)
            for each in (one, two, three):
                await until(
                    lambda each=each: not each.waiting(), what="whoever used it has told the store"
                )
            assert await three.pending() == await one.pending() == []
            for each in (one, two, three):
                assert not await each.decide(id)
                assert await each.waits(server) != id
            assert len(server.called) == 1

    run(test())


def test_a_store_that_is_emptied_while_it_runs_is_filled_again_by_whoever_looks(
    store: RedisServer,
) -> None:
    async def test() -> None:
        async with replicas(store) as (one, two):
            server = RecordingServer()
            id, other = await one.waits(server), await one.waits(server, path="/b")
            assert await two.pending() == [id, other]
            store.cli("flushall")
            assert await two.waits(server) == id, "the same call waits under the same id"
            assert await two.pending() == [id, other]
            assert await one.decide(other)
            assert await two.call(server, path="/b")
            store.cli("flushall")

            async def waits_anew() -> bool:
                return await one.waits(server, path="/b") != other

            await until(waits_anew, what="who used it has seen that the store forgot so")
            assert len(server.called) == 1

    run(test())


def test_an_approval_whose_use_nobody_can_tell_of_is_given_back(store: RedisServer) -> None:
    """The store goes silent while it is claimed: the call is refused, and passes once the store is
    there again."""

    async def test() -> None:
        async with replicas(store) as (one, two):
            server = RecordingServer()
            id = await one.waits(server)
            assert await one.decide(id)
            await until(lambda: two.states(id)[-1:] == ["approved"], what="both know")
            store.pause()
            for each in (one, two):
                assert isinstance(await each.refused(server), Away)
            store.go_on()
            await back(one, two)
            await until(lambda: passes(two, server), what="it passes")
            assert len(server.called) == 1

    run(test())


async def returns(*them: Replica) -> None:
    """All that the return of a store which has lost nothing sets off at each, to its end."""
    for each in them:
        for returned in list(each.store._returned):  # pyright: ignore[reportPrivateUsage]
            await returned(False)


@pytest.mark.parametrize("hears", [True, False], ids=["hears of it", "does not hear of it"])
def test_what_was_given_back_stays_though_another_replica_has_heard_that_it_was_used(
    store: RedisServer, hears: bool
) -> None:
    """It tells what it knows to have been used when the store returns, and that this use was taken
    back counts more. So it is after a pause: one replica finds that it was used before the other
    has given it back."""

    async def test() -> None:
        async with replicas(store, 3) as (one, two, three):
            server = RecordingServer()
            id = await one.waits(server)
            assert await one.decide(id)
            for each in (two, three):
                await until(lambda each=each: each.states(id)[-1:] == ["approved"], what="it knows")
            [known] = one.state.approvals.all()
            for _ in range(3):
                claimed = await one.state.book.claim(known.binding, usable=True)
                assert claimed is not None and claimed.id == id
                await until(lambda: two.states(id)[-1:] == ["used"], what="it has heard of the use")
                watched = two.replicas.members._watched  # pyright: ignore[reportPrivateUsage]
                kept = watched.copy()
                if not hears:
                    watched.clear()
                await one.state.book.give_back(claimed)
                if hears:
                    await until(
                        lambda: two.states(id)[-1:] == ["approved"],
                        what="it has heard of the return",
                    )
                await returns(two)
                watched.update(kept)
                await returns(two, three, one)
            assert await two.call(server) == {"content": []}
            assert await one.waits(server) != id and len(server.called) == 1

    run(test())


class Held:
    """What a replica asks by one script is carried out when the test says so; whether it is
    answered, too."""

    def __init__(self, replica: Replica, script: Script) -> None:
        self.sent = asyncio.Event()
        self._script = script
        self._store = replica.store
        self._run = replica.store.run
        self._asked: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
        self._answers: list[Any] = []
        replica.store.run = self._run_or_keep

    def _run_or_keep(self, script: Any, *words: Any) -> "asyncio.Future[Any]":
        if script is not self._script:
            return self._run(script, *words)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.append(((script, *words), answer))
        self.sent.set()
        return answer

    async def carried_out(self) -> None:
        self._answers = [await self._run(*words) for words, _ in self._asked]

    def answered(self) -> None:
        """From now on all is as ever."""
        self._store.run = self._run
        for (_, answer), said in zip(self._asked, self._answers, strict=True):
            answer.set_result(said)

    def falls_silent(self) -> None:
        """The same, and the store goes away for a moment."""
        self._store.run = self._run
        problem = self._store._fall("it did not answer in time")
        for _, answer in self._asked:
            answer.set_exception(problem)


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize(
    "ends", ["is refused", "is tried again", "is given up", "had not heard of it", "knew nothing"]
)
def test_a_claim_whose_answer_is_lost_is_given_back_whenever_it_is_carried_out(
    store: RedisServer, ends: str, late: bool
) -> None:
    """Late: what went over the old connection arrives after what went over the new one."""

    async def test() -> None:
        async with replicas(store) as (one, two):
            server = RecordingServer()
            watched = two.replicas.members._watched  # pyright: ignore[reportPrivateUsage]
            kept = watched.copy()
            if ends == "knew nothing":
                watched.clear()
            id = await one.waits(server)
            if ends == "had not heard of it":
                assert await two.pending() == [id]
                watched.clear()
            assert await one.decide(id)
            if watched:
                await until(lambda: two.states(id)[-1:] == ["approved"], what="both know")
            held = Held(two, CLAIM)
            calls = [asyncio.ensure_future(two.call(server)) for _ in range(3)]
            await held.sent.wait()
            if ends == "is given up":
                for call in calls:
                    call.cancel()
                await asyncio.wait(calls)
            if not late:
                await held.carried_out()
            held.falls_silent()
            if ends == "is tried again":  # such a claim is certainly not sent
                assert isinstance(await two.refused(server), Away)
            watched.update(kept)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert not any(isinstance(outcome, dict) for outcome in outcomes)
            await back(two)
            await returns(two)
            if late:
                await held.carried_out()
            assert await one.call(server) == {"content": []}
            await returns(one, two)
            assert await two.waits(server) != id and len(server.called) == 1, "once"

    run(test())


def test_what_is_done_here_is_told_as_done_here_though_a_look_at_the_store_overtakes_its_answer(
    store: RedisServer,
) -> None:
    """What was done elsewhere stands in another replica's trail: else it would stand in none."""

    async def test() -> None:
        async with replicas(store) as (one, two):
            server = RecordingServer()

            async def overtaken(script: Script, work: Coroutine[Any, Any, Any]) -> Any:
                held = Held(one, script)
                task = asyncio.ensure_future(work)
                await held.sent.wait()
                await held.carried_out()
                await one.pending()  # looks at the store
                held.answered()
                return await task

            id = await overtaken(WAIT, one.waits(server))
            assert await overtaken(DECIDE, one.decide(id))
            assert await overtaken(CLAIM, one.call(server)) == {"content": []}
            told = [(event.state, event.elsewhere) for event in one.heard if event.id == id]
            assert told == [("pending", False), ("approved", False), ("used", False)]
            assert await one.pending() == await two.pending() == [] and len(server.called) == 1

    run(test())


def test_however_often_something_is_told_while_the_store_is_slow_it_is_looked_at_once_more(
    store: RedisServer,
) -> None:
    async def test() -> None:
        async with replicas(store) as (one, two):
            book: Any = two.state.book
            async with book._lock:  # as while it looks
                seen = two.replicas.members._numbers  # pyright: ignore[reportPrivateUsage]
                for number in range(20):
                    before = seen.get("approvals", 0)
                    await one.waits(RecordingServer(), path=f"/{number}")
                    await until(
                        lambda before=before: seen.get("approvals", 0) > before, what="it was told"
                    )
                assert len(book._tasks._running) == 1
            await until(lambda: len(two.waiting()) == 20, what="it knows all of them")

    run(test())


def test_an_answer_that_was_overtaken_does_not_count_more_than_what_is_known_since(
    store: RedisServer,
) -> None:
    async def test() -> None:
        async with replicas(store) as (one, two):
            server = RecordingServer()
            id = await one.waits(server)
            held = Held(two, WAIT)
            call = asyncio.ensure_future(two.waits(server))
            await held.sent.wait()
            await held.carried_out()
            assert await one.decide(id)
            number = int(store.cli("hget", "{mcpx}:numbers", "approvals"))
            seen = two.replicas.members._numbers  # pyright: ignore[reportPrivateUsage]
            await until(lambda: seen["approvals"] == number, what="nothing makes it look again")
            await two.pending()  # looks at the store
            held.answered()
            assert await call == id
            await until(lambda: not two.waiting(), what="what was told of before that is corrected")

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
            assert isinstance(await two.refused(server, MODERN, **answers), Away)
            assert isinstance(await two.refused(server, MODERN, requestState="theirs"), Away)
            store.start()
            await back(one, two)
            again = await two.call(server, MODERN, **answers)
            assert again["resultType"] == "input_required" and server.called == []
            answers["requestState"] = again["requestState"]
            assert await one.call(server, MODERN, **answers) == {"content": []}

    run(test())


def test_open_questions_are_bounded_over_all_replicas_and_nobody_takes_those_of_others(
    store: RedisServer,
) -> None:
    async def test() -> None:
        async with replicas(store) as them:
            books = [each.state.book for each in them]
            first = await books[0].seal("ada", b"call")
            lots = [
                await books[number % 2].seal("eve", b"call")
                for number in range(sealing.MOST_EACH + 1)
            ]
            assert not await books[1].redeem("eve", lots[0], b"call") and await books[1].redeem(
                "eve", lots[1], b"call"
            )
            seal = [
                books[number % 2].seal(f"user {number // 8}", b"call")
                for number in range(sealing.MOST)
            ]
            await asyncio.gather(*seal)
            assert int(store.cli("zcard", "{mcpx}:asked")) == sealing.MOST
            assert await books[1].redeem("ada", first, b"call"), "who has many gives way first"
            crowd = store.cli("zrange", "{mcpx}:asked:crowd", "0", "-1", "withscores").splitlines()[
                1::2
            ]
            assert sum(map(int, crowd)) == sealing.MOST - 1

    run(test())


def test_before_the_store_was_ever_reached_calls_wait_and_are_told_of(store: RedisServer) -> None:
    async def test() -> None:
        store.kill()
        one = Replica(Replicas(parse(store.url), {}, "test"))
        one.replicas.start()
        id = await one.waits(RecordingServer())
        assert await one.pending() == [id]
        store.start()
        two = Replica(Replicas(parse(store.url), {}, "test"))
        await two.start()
        await until(lambda: two.waiting() == [id], what="it is written once the store is there")
        assert await two.decide(id)
        server = RecordingServer()
        assert await one.call(server) == {"content": []}
        await one.end()
        await two.end()

    run(test())
