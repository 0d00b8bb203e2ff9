"""Which connection a caller gets: every row of the table in `upstreams/links.py`, and what bounds it."""

import asyncio
from typing import Any

import pytest

from fixtures.parts import ASKABLE, Tape, Toy, forever, modern, older, run, turns, until
from mcpx.config import Server
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import METHOD_NOT_FOUND, OVERLOADED, RpcError, Unavailable
from mcpx.upstreams import links as module
from mcpx.upstreams.errands import Errand
from mcpx.upstreams.link import Link
from mcpx.upstreams.links import MODERN, OLDER, Links
from mcpx.wire.tasks import Tasks


class House:
    """Links of one server, and their hearer."""

    def __init__(self, toy: Toy, **fields: Any) -> None:
        self.toy = toy
        self.server: Server = toy.server(**fields)
        self.tasks = Tasks("house")
        self.links = Links(self.server, self, {}, self.tasks)
        self.losses: list[Link] = []

    def heard(self, link: Link, method: str, params: Json) -> None:
        pass

    def lost(self, link: Link, reason: str) -> None:
        self.losses.append(link)
        self.links.forget(link)
        self.tasks.start(link.close())

    def idle(self, link: Link) -> None:
        self.links.rested()

    async def __aenter__(self) -> "House":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.links.close()
        await self.tasks.close()

    def line(self, link: Link) -> Any:
        return link._talk  # pyright: ignore[reportPrivateUsage]

    def call(self, link: Link, caller: Caller, **params: Any) -> "asyncio.Task[Json]":
        call = Call("tools/call", {"name": "echo", **params}, caller)
        return asyncio.create_task(link.call(call, call.method, call.params, Errand(call, "toy")))


def greeting(house: House, link: Link) -> Json:
    """What an older server was told about its client when the link was opened."""
    return dict(house.line(link).heard)["initialize"]


# --- the table


def test_callers_of_a_modern_server_share_one_link_whatever_they_can_answer() -> None:
    """LIF-2."""

    async def main() -> None:
        async with House(Toy("modern")) as house:
            first = await house.links.first(None)
            for caller in (modern(), modern(askable=True), modern("another", askable=True)):
                assert house.links.key_for(caller) == MODERN
                assert await house.links.keep(caller) is first
            assert len(house.toy.lines) == 1

    run(main())


def test_callers_of_an_older_server_that_cannot_be_asked_share_a_link_that_declares_nothing() -> None:
    """LIF-2 and PRO-3: nobody is asked what nobody could answer; the client is the gateway itself."""

    async def main() -> None:
        async with House(Toy("older")) as house:
            first = await house.links.first(None)
            for caller in (older("a"), older("b"), modern()):
                assert house.links.key_for(caller) == OLDER
                assert await house.links.keep(caller) is first
            assert len(house.toy.lines) == 1
            told = greeting(house, first)
            assert told["capabilities"] == {}
            assert told["clientInfo"]["name"] == "mcpx-through-proxy"
            assert first.owner is None

    run(main())


def test_the_one_client_of_a_stdio_front_has_the_shared_link_to_itself_with_all_it_can_answer() -> None:
    async def main() -> None:
        async with House(Toy()) as house:
            caller = older(askable=True, solo=True, version="2025-03-26")
            first = await house.links.first(caller)
            assert not first.modern
            assert await house.links.keep(caller) is first
            assert greeting(house, first) == {
                "protocolVersion": "2025-03-26",
                "capabilities": ASKABLE,
                "clientInfo": {"name": "older-through-proxy", "version": "1"},
            }

    run(main())


def test_an_older_caller_that_can_be_asked_has_a_link_private_to_its_session_and_keeps_it() -> None:
    """PRO-5: a question of that server has one possible addressee."""

    async def main() -> None:
        async with House(Toy("older")) as house:
            shared = await house.links.first(None)
            one, two = older("one", askable=True), older("two", askable=True)
            mine = await house.links.keep(one)
            theirs = await house.links.keep(two)
            assert len({id(shared), id(mine), id(theirs)}) == 3
            assert (mine.owner, theirs.owner) == ("one", "two")
            assert await house.links.keep(one) is mine
            assert house.links.ready(one) is mine
            assert greeting(house, mine)["capabilities"] == ASKABLE
            assert house.links.of_session("one") == [mine]
            assert await house.links.keep(older("three")) is shared

    run(main())


def test_a_modern_caller_that_can_be_asked_gets_a_link_for_one_call_at_a_time() -> None:
    async def main() -> None:
        async with House(Toy("older")) as house:
            await house.links.first(None)
            caller = modern(askable=True)
            assert house.links.key_for(caller) is None
            assert house.links.ready(caller) is None
            first, second = await house.links.borrow(caller), await house.links.borrow(caller)
            assert first is not second
            assert first.owner is None
            assert greeting(house, first)["capabilities"] == ASKABLE
            house.links.give_back(first)
            house.links.give_back(second)
            assert await house.links.borrow(caller) in (first, second)
            with pytest.raises(RpcError) as caught:
                await house.links.keep(caller)
            assert caught.value.code == METHOD_NOT_FOUND

    run(main())


def test_per_session_gives_each_session_its_own_and_each_modern_client_one() -> None:
    """LIF-2."""

    async def main() -> None:
        async with House(Toy("older"), isolation="per_session") as house:
            await house.links.first(None)
            links = [await house.links.keep(c) for c in (older("a"), older("b"), modern("x"), modern("y"))]
            assert len({id(link) for link in links}) == 4
            again = [await house.links.keep(c) for c in (older("a"), older("b"), modern("x"), modern("y"))]
            assert again == links
            assert await house.links.keep(modern("x", principal="other")) not in links

    run(main())


def test_per_session_on_stdio_is_the_one_link_there_is() -> None:
    async def main() -> None:
        async with House(Toy("older"), isolation="per_session") as house:
            caller = older(solo=True, askable=True)
            first = await house.links.first(caller)
            assert await house.links.keep(caller) is first

    run(main())


def test_per_call_opens_a_link_for_every_call_and_closes_it_after() -> None:
    """LIF-2."""

    async def main() -> None:
        async with House(Toy("older"), isolation="per_call") as house:
            await house.links.first(None)
            used = []
            for caller in (older("a"), older("a"), modern()):
                assert house.links.key_for(caller) is None
                link = await house.links.borrow(caller)
                used.append(link)
                house.links.give_back(link)
            assert len({id(link) for link in used}) == 3
            await until(lambda: all(house.line(link).closed_by_gateway for link in used))

    run(main())


# --- both eras


def test_a_server_of_both_eras_gets_a_link_for_each_era_in_use() -> None:
    async def main() -> None:
        async with House(Toy()) as house:
            first = await house.links.first(None)
            assert first.modern
            other = await house.links.keep(older())
            assert not other.modern
            assert await house.links.keep(modern()) is first
            assert await house.links.keep(older("b")) is other
            assert len(house.toy.lines) == 2

    run(main())


@pytest.mark.parametrize(("only", "caller"), [("modern", older()), ("older", modern())])
def test_a_caller_whose_era_the_server_lacks_is_served_over_the_other(only: str, caller: Caller) -> None:
    async def main() -> None:
        async with House(Toy(only)) as house:
            first = await house.links.first(None)
            assert await house.links.keep(caller) is first
            tried = house.toy.attempts
            assert await house.links.keep(caller) is first
            assert house.toy.attempts == tried  # it is not found out twice

    run(main())


def test_a_server_known_from_a_stdio_client_serves_a_modern_message_on_the_same_front() -> None:
    async def main() -> None:
        async with House(Toy("older")) as house:
            first = await house.links.first(older(solo=True))
            assert house.links.era_for(modern(solo=True)) == "modern"  # not tried yet
            assert await house.links.keep(modern(solo=True)) is first
            assert house.links.era_for(modern(solo=True)) == "older"

    run(main())


def test_a_server_that_dies_of_the_probe_is_started_again_for_the_handshake() -> None:
    async def main() -> None:
        async def discover(line: Any, params: Json) -> Json:
            line.die("exited with code 1")
            return await forever()

        async with House(Toy("older", answers={"server/discover": discover})) as house:
            link = await house.links.first(None)
            assert not link.modern
            assert house.line(link).methods()[0] == "initialize"
            assert len(house.toy.lines) == 2
            assert house.toy.lines[0].closed_by_gateway
            assert house.losses == []

    run(main())


def test_a_passing_failure_is_not_taken_for_an_era_that_is_not_spoken() -> None:
    async def main() -> None:
        async with House(Toy()) as house:
            await house.links.first(None)
            house.toy.down = "no route to host"
            with pytest.raises(Unavailable, match="no route"):
                await house.links.keep(older())
            house.toy.down = None
            assert not (await house.links.keep(older())).modern

    run(main())


# --- one opening for all


def test_many_callers_wait_for_one_opening() -> None:
    async def main() -> None:
        async with House(Toy()) as house:
            await house.links.first(None)
            house.toy.opening.clear()
            waiting = [asyncio.create_task(house.links.keep(older(f"s{n}"))) for n in range(20)]
            await turns()
            house.toy.opening.set()
            assert len({id(link) for link in await asyncio.gather(*waiting)}) == 1
            assert len(house.toy.lines) == 2

    run(main())


def test_one_of_them_going_away_leaves_the_opening_to_the_others() -> None:
    async def main() -> None:
        async with House(Toy()) as house:
            await house.links.first(None)
            house.toy.opening.clear()
            goes = asyncio.create_task(house.links.keep(older("a")))
            await turns()
            stays = asyncio.create_task(house.links.keep(older("b")))
            await turns()
            goes.cancel()
            with pytest.raises(asyncio.CancelledError):
                await goes
            house.toy.opening.set()
            assert (await stays).alive

    run(main())


def test_a_failed_opening_fails_all_that_wait_and_the_next_one_is_tried_anew() -> None:
    async def main() -> None:
        async with House(Toy()) as house:
            await house.links.first(None)
            house.toy.opening.clear()
            house.toy.down = "no"
            waiting = [asyncio.create_task(house.links.keep(older(f"s{n}"))) for n in range(3)]
            await turns()
            house.toy.opening.set()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3
            house.toy.down = None
            assert (await house.links.keep(older())).alive

    run(main())


def test_closing_while_a_link_is_opened_ends_the_wait_with_an_error() -> None:
    async def main() -> None:
        house = House(Toy())
        await house.links.first(None)
        house.toy.opening.clear()
        waiting = asyncio.create_task(house.links.keep(older()))
        await turns()
        await house.links.close()
        with pytest.raises(Unavailable) as caught:
            await waiting
        assert caught.value.code == OVERLOADED
        await house.tasks.close()
        assert house.toy.alive == []

    run(main())


# --- links for one call at a time


def test_a_link_given_back_is_lent_again_to_the_same_client_only() -> None:
    """PRO-5: affinity by principal, client and what it can answer."""

    async def main() -> None:
        async with House(Toy("older")) as house:
            await house.links.first(None)
            mine = modern("me", askable=True)
            link = await house.links.borrow(mine)
            house.links.give_back(link)
            strangers = [
                modern("other", askable=True),
                modern("me", askable=True, principal="p"),
                Caller(modern=True, client=mine.client, capabilities={"roots": {}}),
            ]
            for stranger in strangers:
                assert await house.links.borrow(stranger) is not link
            assert await house.links.borrow(mine) is link

    run(main())


def test_a_link_nobody_borrowed_for_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE", 0.02)

    async def main() -> None:
        async with House(Toy("older")) as house:
            await house.links.first(None)
            caller = modern(askable=True)
            link = await house.links.borrow(caller)
            house.links.give_back(link)
            await until(lambda: house.line(link).closed_by_gateway)
            assert await house.links.borrow(caller) is not link
            assert house.losses == []

    run(main())


def test_a_link_that_was_used_again_is_not_closed_by_the_timer_of_its_first_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers: list[Any] = []

    async def main() -> None:
        async with House(Toy("older")) as house:
            await house.links.first(None)
            caller = modern(askable=True)
            loop = asyncio.get_running_loop()
            later = loop.call_later

            def call_later(delay: float, callback: Any, *args: Any) -> Any:
                if delay == module.IDLE:
                    timers.append(lambda: callback(*args))
                return later(delay, callback, *args)

            monkeypatch.setattr(loop, "call_later", call_later)
            link = await house.links.borrow(caller)
            house.links.give_back(link)
            assert await house.links.borrow(caller) is link
            timers[0]()  # while it is lent
            assert await house.call(link, caller)
            house.links.give_back(link)
            timers[0]()  # after a call since
            await turns()
            assert link.alive
            timers[1]()
            await until(lambda: house.line(link).closed_by_gateway)

    run(main())


def test_a_link_lost_while_lent_is_not_lent_again() -> None:
    """LIF-6: its call fails at once, the next one gets a new link."""

    async def main() -> None:
        async with House(Toy("older", tools={"echo": forever})) as house:
            await house.links.first(None)
            caller = modern(askable=True)
            link = await house.links.borrow(caller)
            call = house.call(link, caller)
            await until(lambda: house.line(link).calls())
            house.line(link).die()
            with pytest.raises(Unavailable):
                await call
            house.links.give_back(link)
            assert house.losses == [link]
            other = await house.links.borrow(caller)
            assert other is not link
            assert link not in house.links.all()

    run(main())


def test_an_idle_link_that_is_lost_is_not_lent_again() -> None:
    async def main() -> None:
        async with House(Toy("older")) as house:
            await house.links.first(None)
            caller = modern(askable=True)
            link = await house.links.borrow(caller)
            house.links.give_back(link)
            house.line(link).die()
            assert await house.links.borrow(caller) is not link

    run(main())


def test_a_kept_link_that_is_lost_is_opened_anew() -> None:
    async def main() -> None:
        async with House(Toy("older")) as house:
            await house.links.first(None)
            caller = older(askable=True)
            link = await house.links.keep(caller)
            house.line(link).die()
            assert house.links.ready(caller) is None
            assert house.links.of_session("one") == []
            assert await house.links.keep(caller) is not link

    run(main())


# --- max_links


def test_with_all_connections_in_use_the_one_idle_longest_makes_room() -> None:
    async def main() -> None:
        async with House(Toy("older"), max_links=3) as house:
            shared = await house.links.first(None)
            one = await house.links.keep(older("one", askable=True))
            two = await house.links.keep(older("two", askable=True))
            assert house.links.ready(older("one", askable=True)) is one  # used since
            await house.links.keep(older("three", askable=True))
            assert house.line(two).closed_by_gateway
            assert one.alive and shared.alive
            assert len(house.toy.alive) == 3

    run(main())


def test_a_busy_or_subscribed_link_is_not_closed_for_another() -> None:
    async def main() -> None:
        async with House(Toy("older", tools={"echo": forever}), max_links=4, timeout=0.5) as house:
            await house.links.first(None)
            busy = await house.links.keep(older("busy", askable=True))
            call = house.call(busy, older("busy", askable=True))
            subscribed = await house.links.keep(older("subscribed", askable=True))
            subscribed.subscribers["a:b"] = {"subscribed"}
            lent = await house.links.borrow(modern(askable=True))
            with pytest.raises(Unavailable, match="max_links") as caught:
                await house.links.keep(older("more", askable=True))
            assert caught.value.code == OVERLOADED
            with pytest.raises(Unavailable, match="max_links"):
                await house.links.borrow(modern("more", askable=True))
            assert busy.alive and subscribed.alive and lent.alive
            call.cancel()
            await asyncio.wait([call])

    run(main())


def test_an_idle_link_for_single_calls_goes_before_one_that_a_session_keeps() -> None:
    async def main() -> None:
        async with House(Toy("older"), max_links=3) as house:
            await house.links.first(None)
            kept = await house.links.keep(older("kept", askable=True))
            single = await house.links.borrow(modern(askable=True))
            house.links.give_back(single)
            await house.links.keep(older("more", askable=True))
            assert kept.alive
            assert house.line(single).closed_by_gateway

    run(main())


def test_a_caller_waits_its_turn_until_a_lent_link_comes_back() -> None:
    async def main() -> None:
        async with House(Toy("older"), max_links=2) as house:
            await house.links.first(None)
            link = await house.links.borrow(modern("a", askable=True))
            waiting = asyncio.create_task(house.links.borrow(modern("b", askable=True)))
            await turns()
            assert not waiting.done()
            house.links.give_back(link)
            assert (await waiting).alive
            assert house.line(link).closed_by_gateway
            assert len(house.toy.alive) == 2

    run(main())


def test_a_caller_waits_its_turn_until_a_sessions_link_has_nothing_to_do() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def slow(line: Any, params: Json) -> Json:
            await gate.wait()
            return {"content": []}

        async with House(Toy("older", tools={"echo": slow}), max_links=2, timeout=600.0) as house:
            await house.links.first(None)
            one = older("one", askable=True)
            link = await house.links.keep(one)
            call = house.call(link, one)
            await until(lambda: house.line(link).calls())
            waiting = asyncio.create_task(house.links.keep(older("two", askable=True)))
            await turns()
            assert not waiting.done()
            gate.set()
            await call
            assert (await waiting).owner == "two"  # and not after the whole time-out

    run(main())


def test_a_caller_waits_its_turn_until_a_link_is_lost() -> None:
    async def main() -> None:
        async with House(Toy("older", tools={"echo": forever}), max_links=2) as house:
            await house.links.first(None)
            one = older("one", askable=True)
            link = await house.links.keep(one)
            call = house.call(link, one)
            await until(lambda: house.line(link).calls())
            waiting = asyncio.create_task(house.links.keep(older("two", askable=True)))
            await turns()
            house.line(link).die()
            assert (await waiting).owner == "two"
            with pytest.raises(Unavailable):
                await call

    run(main())


def test_links_that_are_being_opened_count() -> None:
    """SEC-6: twenty clients at the same moment are not twenty processes."""

    async def main() -> None:
        async with House(Toy("older"), max_links=3, timeout=0.3) as house:
            await house.links.first(None)
            house.toy.opening.clear()
            asking = [asyncio.create_task(house.links.keep(older(f"s{n}", askable=True))) for n in range(5)]
            asking += [asyncio.create_task(house.links.borrow(modern(f"m{n}", askable=True))) for n in range(5)]
            await turns()
            house.toy.opening.set()
            most = 0
            while not all(task.done() for task in asking):
                most = max(most, len(house.toy.alive))
                await asyncio.sleep(0)
            assert most <= 3
            assert {type(task.exception()) for task in asking} <= {type(None), Unavailable}

    run(main())


def test_a_failed_opening_gives_its_place_back() -> None:
    async def main() -> None:
        async with House(Toy("older"), max_links=2) as house:
            await house.links.first(None)
            house.toy.down = "no"
            for _ in range(5):
                with pytest.raises(Unavailable, match="no"):
                    await house.links.keep(older("one", askable=True))
                with pytest.raises(Unavailable, match="no"):
                    await house.links.borrow(modern(askable=True))
            house.toy.down = None
            assert (await house.links.keep(older("one", askable=True))).alive

    run(main())


def test_a_link_is_not_closed_to_make_room_before_who_asked_for_it_has_used_it() -> None:
    async def main() -> None:
        async with House(Toy("older"), max_links=2) as house:
            await house.links.first(None)
            callers = [older(f"s{n}", askable=True) for n in range(6)]

            async def used(caller: Caller) -> Json:
                link = await house.links.keep(caller)
                return await house.call(link, caller, arguments={"text": caller.session})

            results = await asyncio.gather(*(used(caller) for caller in callers))
            assert [r["content"][0]["text"] for r in results] == [caller.session for caller in callers]

    run(main())


# --- ends of sessions


def test_a_link_still_being_opened_for_a_session_that_ended_is_not_kept() -> None:
    async def main() -> None:
        async with House(Toy("older")) as house:
            await house.links.first(None)
            house.toy.opening.clear()
            caller = older("gone", askable=True, voice=Tape())
            asking = asyncio.create_task(house.links.keep(caller))
            await turns()
            asking.cancel()
            await asyncio.wait([asking])
            await house.links.end_session("gone")
            house.toy.opening.set()
            await turns()
            assert house.links.of_session("gone") == []
            assert len(house.toy.alive) == 1

    run(main())


def test_the_links_of_a_session_close_with_it_and_others_stay() -> None:
    async def main() -> None:
        async with House(Toy("older")) as house:
            shared = await house.links.first(None)
            one = await house.links.keep(older("one", askable=True))
            two = await house.links.keep(older("two", askable=True))
            await house.links.end_session("one")
            assert house.line(one).closed_by_gateway
            assert shared.alive and two.alive
            assert house.losses == []

    run(main())
