"""The store as replicas see it, on a real server: together, in order, once, and what happens when
it goes away."""

import asyncio
import gc
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest

from kit import replicas as fixture
from kit.loop import run
from kit.until import until
from mcpx.replicas.address import parse
from mcpx.replicas.store import Script, Store, StoreDown

COUNT = Script("return redis.call('INCRBY', KEYS[1], ARGV[1])")


@pytest.fixture
def server() -> Iterator[fixture.RedisServer]:
    with fixture.RedisServer() as store:
        yield store


@asynccontextmanager
async def reached(server: fixture.RedisServer, patience: float = 5.0) -> AsyncIterator[Store]:
    store = Store(parse(server.url), patience)
    store.start()
    try:
        await store.there.wait()
        yield store
    finally:
        await store.close()


@contextmanager
def leaks() -> Iterator[list[warnings.WarningMessage]]:
    """What is left to the collector from now on, and not what earlier tests have left."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield told


def test_what_is_asked_in_one_turn_is_answered_one_by_one(server: fixture.RedisServer) -> None:
    async def main() -> None:
        async with reached(server) as store:
            key = store.key("n")
            told = await asyncio.gather(*(store.run(COUNT, [key], [1]) for _ in range(2_000)))
            assert sorted(told) == list(range(1, 2_001))
            # A mistake is one command's own.
            answers = await asyncio.gather(
                store.ask("GET", key),
                store.ask("LPUSH", key, "x"),
                store.ask("GET", key),
                return_exceptions=True,
            )
            assert answers[0] == answers[2] == b"2000"
            assert isinstance(answers[1], StoreDown)
            assert store.up

    run(main())


def test_what_is_written_behind_arrives_in_order_and_news_after_it(
    server: fixture.RedisServer,
) -> None:
    async def main() -> None:
        async with reached(server) as one, reached(server) as other:
            found: list[Awaitable[bytes]] = []
            other.hear(
                "done", lambda _: found.append(other.ask("LRANGE", other.key("list"), 0, -1))
            )
            one.hear("done", lambda _: pytest.fail("a replica hears no news of its own"))
            for number in range(3_000):
                one.later("RPUSH", one.key("list"), number)
            one.tell("done")
            await until(lambda: bool(found))
            assert await found[0] == [str(n).encode() for n in range(3_000)]

    run(main())


def test_a_store_that_is_gone_fails_at_once_and_is_back_by_itself(
    server: fixture.RedisServer,
) -> None:
    async def main() -> None:
        async with reached(server) as store:
            returns: list[bool] = []

            async def returned(fresh: bool) -> None:
                returns.append(fresh)
                store.later("SET", store.key("mine"), "x")

            store.on_return(returned)
            await until(lambda: bool(returns))
            server.kill()
            await until(lambda: not store.up)
            store.later("SET", store.key("lost"), "x")
            answer = store.ask("GET", store.key("mine"))
            assert answer.done()
            with pytest.raises(StoreDown):
                await answer
            await asyncio.to_thread(server.start)
            await until(lambda: store.up and len(returns) == 2)
            await store.settled()
            assert returns == [True, True]
            assert await store.ask("MGET", store.key("mine"), store.key("lost")) == [b"x", None]
            assert (
                await store.run(COUNT, [store.key("n")], [5]) == 5
            )  # a script that it does not know any more

    run(main())


def test_a_store_that_hangs_costs_its_patience_once(server: fixture.RedisServer) -> None:
    async def main() -> None:
        async with reached(server, 0.4) as store:
            server.pause()
            loop = asyncio.get_running_loop()
            began = loop.time()
            outcomes = await asyncio.gather(
                *(store.ask("GET", "x") for _ in range(50)), return_exceptions=True
            )
            assert all(isinstance(each, StoreDown) for each in outcomes)
            assert loop.time() - began < 2
            assert store.ask("GET", "x").done()
            server.go_on()

            async def answers() -> bool:
                try:
                    return await store.ask("GET", store.key("nothing")) is None
                except StoreDown:
                    return False

            await until(answers)

    run(main())


def test_a_process_that_is_held_up_does_not_take_it_for_the_silence_of_the_store(
    server: fixture.RedisServer,
) -> None:
    """SCA-2: else every busy moment of a replica has it renew, count and decide alone."""

    async def main() -> None:
        async with reached(server, 0.4) as store:
            for turns in range(
                4, 15
            ):  # while it is sent, while it is on its way, and when the answer is there
                asked = [store.ask("GET", store.key("nothing")) for _ in range(1 + turns % 2)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                time.sleep(0.5)  # noqa: ASYNC251 - the loop is held up, by whatever it is
                assert set(await asyncio.gather(*asked)) == {None}, f"after {turns} turns"

    run(main())


@pytest.mark.parametrize("waits", [False, True], ids=["nobody waits", "who waited has left"])
def test_a_store_that_fails_what_nobody_waits_for_is_no_surprise_of_the_loop(
    server: fixture.RedisServer, waits: bool
) -> None:
    """SCA-2: no traceback in the log."""

    async def main() -> None:
        async with reached(server, 0.3) as store:
            server.pause()
            answer = store.ask("GET", "x")
            if waits:
                shielded = asyncio.ensure_future(asyncio.shield(answer))
                await asyncio.sleep(0)
                shielded.cancel()
                await asyncio.wait([shielded])
                del shielded
            await until(answer.done)
            server.go_on()
        del answer
        gc.collect()

    run(main())  # insists that the loop had nothing to log


def test_what_was_on_its_way_when_the_gateway_ended_is_answered_though_it_was_not_begun(
    server: fixture.RedisServer,
) -> None:
    """LIF-8: whoever waits for it would keep the process from ending."""

    async def main() -> None:
        async with reached(server) as store:
            answer = store.ask("GET", "x")
            store._queue.flush()
            store._fall("as the test says")
            await store.close()
            with pytest.raises(StoreDown):
                await asyncio.wait_for(answer, 5)

    run(main())


def test_a_store_that_was_lost_and_goes_away_before_all_is_written_anew_is_lost_still(
    server: fixture.RedisServer,
) -> None:
    """SCA-2: restarted empty, and not to be reached for a moment just then."""

    async def main() -> None:
        async with reached(server) as store:
            returns: list[bool] = []

            async def returned(fresh: bool) -> None:
                returns.append(fresh)
                if fresh:
                    store.later("SET", store.key("mine"), "x")
                    if len(returns) == 2:
                        store._fall("as the test says")

            store.on_return(returned)
            await until(lambda: returns == [True])
            server.kill()
            await until(lambda: not store.up)
            await asyncio.to_thread(server.start)
            await until(lambda: len(returns) == 3)
            await store.settled()
            assert returns == [True, True, True]
            assert await store.ask("GET", store.key("mine")) == b"x"
            await until(lambda: not store._returns.is_lost)
            store._fall("as the test says")
            await until(lambda: len(returns) == 4)
            assert returns[3] is False  # it is all there

    run(main())


def test_what_was_too_much_to_be_written_is_told_anew_once_there_is_room(
    server: fixture.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-2: what was dropped is nobody's to miss."""
    monkeypatch.setattr("mcpx.replicas.commands.MOST_BEHIND", 10)

    async def main() -> None:
        async with reached(server) as store:
            returns: list[bool] = []

            async def returned(fresh: bool) -> None:
                returns.append(fresh)
                store.later("SET", store.key("first"), "x")

            store.on_return(returned)
            await until(lambda: returns == [True])
            await store.settled()
            await store.ask("DEL", store.key("first"))
            store.later("SET", store.key("first"), "x")
            for number in range(20):
                store.later("SET", store.key(str(number)), "x")
            epoch = await store.ask("GET", store.key("epoch"))
            await store.look(epoch)  # with the next beat
            await store.settled()
            assert returns == [True, True]
            assert await store.ask("EXISTS", store.key("first"), store.key("19")) == 2
            await store.look(epoch)
            assert returns == [True, True]

    run(main())


def test_a_waiter_that_leaves_disturbs_nobody(server: fixture.RedisServer) -> None:
    async def main() -> None:
        async with reached(server) as store:
            asked = [
                asyncio.ensure_future(store.run(COUNT, [store.key("n")], [1])) for _ in range(100)
            ]
            await asyncio.sleep(0)
            for each in asked[::2]:
                each.cancel()
            told = await asyncio.gather(*asked, return_exceptions=True)
            assert len([each for each in told if isinstance(each, int)]) == 50
            assert await store.ask("GET", store.key("n")) == b"100"

    run(main())


def test_what_waits_to_be_written_is_bounded(server: fixture.RedisServer) -> None:
    async def main() -> None:
        async with reached(server) as store:
            large = b"x" * (1 << 20)
            for number in range(200):
                store.later("SET", store.key(str(number)), large)
            await store.settled()
            there = await store.ask("EXISTS", *(store.key(str(number)) for number in range(200)))
            assert 0 < there <= 64
            assert await store.ask("EXISTS", store.key("199")) == 1

    run(main(), 60)


@pytest.mark.parametrize(
    ("spoil", "mend"),
    [
        (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]),
        (["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"]),
    ],
    ids=["full", "read-only"],
)
def test_a_store_that_takes_nothing_is_away_and_what_it_missed_is_written_anew(
    server: fixture.RedisServer, spoil: list[str], mend: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """SCA-3: whether a command or a script is refused, alone or among others; said once, not with
    each command."""

    async def main() -> None:
        async with reached(server) as store:
            returns: list[bool] = []

            async def returned(fresh: bool) -> None:
                returns.append(fresh)
                store.run_later(COUNT, [store.key("mine")], [1])

            store.on_return(returned)
            await until(lambda: bool(returns))
            await store.settled()
            for count in (1, 2):
                await asyncio.to_thread(server.cli, *spoil)
                outcomes = await asyncio.gather(
                    *(store.run(COUNT, [store.key("n")], [1]) for _ in range(count)),
                    return_exceptions=True,
                )
                assert all(isinstance(each, StoreDown) for each in outcomes)
                assert not store.up
                await asyncio.sleep(0.5)
                assert not store.up
                await asyncio.to_thread(server.cli, *mend)
                await until(lambda count=count: store.up and len(returns) == count + 1)
                await store.settled()
                assert await store.ask("MGET", store.key("mine"), store.key("n")) == [
                    b"%d" % (count + 1),
                    None,
                ]
            assert "refuses what it was asked" not in caplog.text

    run(main())


@pytest.mark.parametrize(
    ("forbidden", "by_script"),
    [("-@scripting", True), ("-hset", True), ("-hset", False)],
    ids=["scripts", "what one does", "a command"],
)
def test_a_store_that_forbids_something_says_so_once_and_not_with_each_try(
    server: fixture.RedisServer, forbidden: str, by_script: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """SCA-2, SCA-3: it can be reached, and is of no use; allowed again, all goes on."""
    wants_a_hash = Script("return redis.call('HSET', KEYS[1], 'a', ARGV[1])")

    async def main() -> None:
        caplog.set_level("INFO")
        async with reached(server) as store:
            key = store.key("hash")

            async def used(_: bool = False) -> None:
                await (
                    store.run(wants_a_hash, [key], [1])
                    if by_script
                    else store.ask("HSET", key, "a", 1)
                )

            async def can_be_used() -> bool:
                try:
                    await used()
                    return True
                except StoreDown:
                    return False

            store.on_return(used)
            await until(can_be_used)
            await asyncio.to_thread(server.cli, "ACL", "SETUSER", "default", forbidden)
            for _ in range(20):  # refused, or not tried at all
                assert not await can_be_used()
                await asyncio.sleep(0.1)
            told = [record.getMessage() for record in caplog.records if record.levelname != "INFO"]
            assert 1 <= len(told) <= 2, told
            assert "permission" in told[-1] or "can't run this command" in told[-1], told
            assert len(caplog.records) - len(told) <= 2, caplog.text
            await asyncio.to_thread(server.cli, "ACL", "SETUSER", "default", "+@all")
            await until(can_be_used)

    run(main())


def test_a_store_that_knows_no_script_any_more_still_writes_in_order(
    server: fixture.RedisServer,
) -> None:
    """SCA-2: restarted, it is sent scripts in full: none is written behind a plain command that was
    sent after it."""
    append = Script("return redis.call('RPUSH', KEYS[1], ARGV[1])")

    async def main() -> None:
        async with reached(server) as store:
            for life in range(2):
                key = store.key(f"list{life}")
                for number in range(0, 20, 2):
                    store.run_later(append, [key], [number])
                    store.later("RPUSH", key, number + 1)
                await store.settled()
                assert await store.ask("LRANGE", key, 0, -1) == [str(n).encode() for n in range(20)]
                server.kill()
                await until(lambda: not store.up)
                await asyncio.to_thread(server.start)
                await until(lambda: store.up)

    run(main())


def test_a_store_that_is_killed_under_load_leaves_no_connection_to_the_collector(
    server: fixture.RedisServer,
) -> None:
    """SCA-2: what was on its way when it died has opened connections that nobody would close."""

    async def main() -> None:
        async with reached(server, 0.3) as store:
            over = asyncio.Event()

            async def ask() -> None:
                while not over.is_set():
                    try:
                        await store.ask("GET", "x")
                    except StoreDown:
                        await asyncio.sleep(0.002)

            async def write() -> None:
                while not over.is_set():
                    for _ in range(50):
                        store.later("SET", "large", b"x" * 20_000)
                    await asyncio.sleep(0.002)

            async with asyncio.TaskGroup() as group:
                group.create_task(write())
                for _ in range(30):
                    group.create_task(ask())
                for deaths in range(1, 9):
                    with suppress(
                        StoreDown
                    ):  # on a busy machine it may go away once more by itself
                        await store.settled()
                    server.kill()
                    # before anything of this loop has noticed: connections of before can be made
                    server.start()
                    await until(lambda deaths=deaths: store.failures >= deaths)
                    await store.there.wait()
                over.set()

    with leaks() as told:
        run(main(), 60)
        gc.collect()
    assert [str(each.message) for each in told] == []


def test_a_store_that_is_closed_while_it_goes_away_leaves_no_connection_to_the_collector(
    server: fixture.RedisServer,
) -> None:
    """SCA-2: at whichever moment of closing what it has, or of reaching it again."""

    async def main(turns: int) -> None:
        async with reached(server, 1.0) as store:
            await asyncio.gather(*(store.ask("GET", str(number)) for number in range(20)))
            store.later("SET", "x", "y")
            await store.settled()
            store._fall("as the test says")
            for _ in range(turns):
                await asyncio.sleep(0)

    with leaks() as told:
        for turns in range(16):
            run(main(turns))
            gc.collect()
            assert [str(each.message) for each in told] == [], f"closed after {turns} turns"
