"""Who is there, by a real store: coming, leaving, dying, and what nobody misses though news may be
missed."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit import replicas as fixture
from kit.loop import run
from kit.until import until
from mcpx.replicas.address import parse
from mcpx.replicas.members import BEAT, Member
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.seals import Seals
from mcpx.replicas.store import Word


@pytest.fixture
def server() -> Iterator[fixture.RedisServer]:
    with fixture.RedisServer() as store:
        yield store


def patient(replicas: Replicas) -> Replicas:
    """A busy machine is not a store that is away."""
    replicas.store._queue.patience = 10.0
    return replicas


@asynccontextmanager
async def joined(server: fixture.RedisServer, **environ: str) -> AsyncIterator[Replicas]:
    made = patient(Replicas(parse(server.url), environ, "1"))
    made.start()
    try:
        await made.joined.wait()
        made.members.update(host="127.0.0.1", port=1)
        made.members.start()
        yield made
    finally:
        await made.close()


def test_replicas_find_each_other_and_a_goodbye_is_heard_at_once(
    server: fixture.RedisServer,
) -> None:
    """SCA-2."""

    async def main() -> None:
        async with joined(server) as one:
            left: list[Member] = []
            gone: list[Member] = []
            one.members.on_left(left.append)
            one.members.on_gone(gone.append)
            async with joined(server) as other:
                await until(
                    lambda: other.id in one.members.others and one.id in other.members.others
                )
                other.members.update(state="leaving")
                await until(lambda: one.members.others[other.id].state == "leaving")
            await until(lambda: other.id not in one.members.others)
            assert [member.id for member in left] == [other.id]
            assert gone == []

    run(main())


def test_a_goodbye_that_is_not_heard_before_the_next_beat_is_no_death(
    server: fixture.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-2: what was handed to it is answered still."""

    async def main() -> None:
        async with joined(server) as one:
            left: list[Member] = []
            gone: list[Member] = []
            one.members.on_left(left.append)
            one.members.on_gone(gone.append)
            async with joined(server) as other:
                other.members.update(state="leaving")
                await until(
                    lambda: [each.state for each in one.members.others.values()] == ["leaving"]
                )
                monkeypatch.setattr(other.store, "tell", lambda *_: None)
            await until(lambda: other.id not in one.members.others)
            assert [member.id for member in left] == [other.id]
            assert gone == []

    run(main())


def test_one_that_beats_no_more_is_gone_and_one_that_beats_again_is_back(
    server: fixture.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpx.replicas.members.GONE", 0.6)
    monkeypatch.setattr("mcpx.replicas.members.BEAT", 0.1)

    async def main() -> None:
        async with joined(server) as one, joined(server) as other:
            await until(lambda: other.id in one.members.others)
            absences: list[None] = []
            other.members.on_absence(lambda: absences.append(None))
            other.store.up = False  # it cannot say anything
            await until(lambda: other.id not in one.members.others)
            other.store.up = True
            await until(lambda: other.id in one.members.others and bool(absences))

    run(main())


def test_one_that_died_before_the_clock_of_the_store_was_set_back_is_gone(
    server: fixture.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-1: else its sessions would be nobody's until the clock has caught up."""
    monkeypatch.setattr("mcpx.replicas.members.GONE", 0.6)
    monkeypatch.setattr("mcpx.replicas.members.BEAT", 0.1)

    async def main() -> None:
        async with joined(server) as one:
            dead = Member("dead", "dead", "127.0.0.1", 1)
            an_hour_ahead = int((time.time() + 3_600) * 1000)
            await one.store.ask("HSET", one.store.key("members"), dead.id, dead.write(one.seals))
            await one.store.ask("ZADD", one.store.key("alive"), an_hour_ahead, dead.id)
            await until(lambda: dead.id in one.members.others)
            await until(lambda: dead.id not in one.members.others)

    run(main())


@pytest.mark.parametrize("record", [None, b"", b"{}", b"x.{}", Member("odd").write(Seals())])
def test_a_record_that_no_replica_has_signed_is_ignored(
    server: fixture.RedisServer, caplog: pytest.LogCaptureFixture, record: bytes | None
) -> None:
    """SEC-8: the replica counts as absent, and the log says so once."""

    async def main() -> None:
        async with joined(server) as one, joined(server) as other:
            await one.store.ask("ZADD", one.store.key("alive"), int(time.time() * 1000), "odd")
            if record is not None:
                await one.store.ask("HSET", one.store.key("members"), "odd", record)
            for _ in range(3):
                await one.members.beat()
            assert set(one.members.others) == {other.id}

    run(main())
    assert (
        caplog.text.count("are not signed with the key of this replica") <= 2
    )  # One for each replica.


def test_a_store_that_comes_back_empty_makes_nobody_count_as_gone(
    server: fixture.RedisServer,
) -> None:
    """SCA-2: what was handed over must not be cut off for it."""

    async def main() -> None:
        async with joined(server) as one, joined(server) as other:
            await until(lambda: other.id in one.members.others)
            gone: list[Member] = []
            one.members.on_gone(gone.append)
            server.kill()
            await until(lambda: not one.store.up and not other.store.up)
            await asyncio.to_thread(server.start)
            await until(lambda: one.store.up and other.store.up)
            await until(lambda: other.id in one.members.others and one.id in other.members.others)
            server.cli("FLUSHALL")
            await until(lambda: server.cli("EXISTS", "{mcpx}:secret") == "1")
            assert gone == []
            assert one.seals.key == other.seals.key
            id = one.seals.mint(one.id)
            assert other.seals.owner(id) == one.id

    run(main())


@pytest.mark.parametrize("looks", [False, True], ids=["beat", "look"])
@pytest.mark.parametrize("how", ["restarted", "emptied"])
def test_nobody_counts_as_gone_for_a_beat_that_is_quicker_than_the_word_that_the_store_is_back(
    server: fixture.RedisServer, monkeypatch: pytest.MonkeyPatch, how: str, looks: bool
) -> None:
    """SCA-2: calls that were handed to the other one would be cut off, though it is well."""

    async def main() -> None:
        async with joined(server) as one, joined(server) as other:
            await until(lambda: other.id in one.members.others)
            gone: list[Member] = []
            one.members.on_gone(gone.append)

            async def nothing(*_: object) -> None: ...

            monkeypatch.setattr(one.members, "_uncertain_until", 0.0)  # it has been there for long
            monkeypatch.setattr(one.store._returns, "_tell_all", nothing)
            monkeypatch.setattr(other.members, "beat", nothing)
            beat = one.members.beat
            monkeypatch.setattr(one.members, "beat", nothing)  # but for the one that is looked at
            if how == "restarted":
                server.kill()
                await until(lambda: not one.store.up)
                await asyncio.to_thread(server.start)
                await until(lambda: one.store.up)
            else:
                server.cli("FLUSHALL")
            await (one.members.look() if looks else beat())
            assert other.id in one.members.others and gone == []

    run(main())


def test_a_number_that_grows_is_seen_by_all_also_after_the_store_was_emptied(
    server: fixture.RedisServer,
) -> None:
    async def main() -> None:
        async with joined(server) as one, joined(server) as other:
            seen: list[int] = []
            other.members.watch("topic", seen.append)
            one.members.changed("topic")
            await until(lambda: seen == [1])
            server.cli("FLUSHALL")
            one.members.changed("topic")
            await until(lambda: len(seen) == 2)
            assert seen == [1, 1]

    run(main())


def test_a_number_is_looked_at_again_after_a_store_that_has_lost_its_last_steps(
    server: fixture.RedisServer,
) -> None:
    """SCA-2: failed over, it has what was copied; the next step makes the number that was seen
    before."""

    async def main() -> None:
        async with joined(server) as one, joined(server) as other:
            seen: list[int] = []
            other.members.watch("topic", seen.append)
            one.members.changed("topic")
            await until(lambda: seen == [1])
            other.store._fall("as the test says")
            server.cli("HINCRBY", one.store.key("numbers"), "topic", "-1")
            server.cli("HINCRBY", one.store.key("numbers"), "topic", "1")  # another change
            await until(lambda: seen == [1, 1])

    run(main())


def test_a_replica_with_another_key_does_not_join_and_says_so(
    server: fixture.RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with joined(server, MCPX_KEY="one phrase"):
            stranger = patient(Replicas(parse(server.url), {"MCPX_KEY": "another"}, "1"))
            stranger.start()
            try:
                await until(lambda: "another MCPX_KEY" in caplog.text)
                assert not stranger.joined.is_set()
            finally:
                await stranger.close()

    run(main())


def test_one_at_a_time_has_its_turn_over_all_replicas(server: fixture.RedisServer) -> None:
    async def main() -> None:
        async with joined(server) as one, joined(server) as other:
            inside = most = 0
            waited: list[bool] = []

            async def work(replicas: Replicas) -> None:
                nonlocal inside, most
                async with replicas.turns.turn("x", 5) as others_had_it:
                    waited.append(others_had_it)
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0.02)
                    inside -= 1

            await asyncio.gather(*(work(replicas) for _ in range(5) for replicas in (one, other)))
            assert most == 1
            assert waited.count(False) == 1
            server.kill()
            await until(lambda: not one.store.up)
            await work(one)  # without the store everybody works for itself

    run(main())


@pytest.mark.parametrize("name", ["secret", "epoch"])
def test_a_store_that_is_emptied_again_and_again_ends_no_beat(
    server: fixture.RedisServer, name: str
) -> None:
    """SCA-3: between writing a thing anew and reading it."""

    async def main() -> None:
        async with joined(server) as one:
            ask, emptied = one.store.ask, 0

            def spoiled(*words: Word) -> asyncio.Future[Any]:
                nonlocal emptied
                if words == ("GET", one.store.key(name)) and not emptied:
                    emptied += 1
                    ask("FLUSHALL")
                return ask(*words)

            async def is_whole() -> bool:
                keys = [one.store.key(each) for each in ("secret", "fingerprint", "epoch")]
                return emptied == 1 and await ask("EXISTS", *keys) == 3

            async def beaten() -> float:
                return float(await ask("ZSCORE", one.store.key("alive"), one.id) or 0)

            one.store.ask = spoiled
            await ask("FLUSHALL")
            await until(is_whole)
            before = await beaten()
            await asyncio.sleep(2 * BEAT + 0.5)
            assert await beaten() > before

    run(main())


def test_one_that_has_not_joined_is_not_left_behind_by_a_store_that_was_emptied(
    server: fixture.RedisServer,
) -> None:
    """SCA-3: it does not beat yet, so nothing else would tell it."""

    async def main() -> None:
        made = patient(Replicas(parse(server.url), {}, "1"))
        ask, emptied = made.store.ask, False

        def spoiled(*words: Word) -> asyncio.Future[Any]:
            nonlocal emptied
            if words == ("GET", made.store.key("secret")) and not emptied:
                emptied = True
                ask("FLUSHALL")
            return ask(*words)

        made.store.ask = spoiled
        made.start()
        try:
            await until(made.joined.is_set)
            assert emptied
        finally:
            await made.close()

    run(main())


def test_a_replica_with_another_key_does_not_join_because_the_store_was_emptied(
    server: fixture.RedisServer,
) -> None:
    """SCA-3, SEC-6: nor when that happens again and again; it does when the store is nobody's any
    more."""

    async def main() -> None:
        other = patient(Replicas(parse(server.url), {"MCPX_KEY": "ab" * 32}, "1"))
        try:
            async with joined(server, MCPX_KEY="cd" * 32) as one:
                key = one.store.key("fingerprint")
                other.start()
                await until(lambda: other.store.up)
                await asyncio.sleep(1.1)
                for turn in range(3):
                    await one.store.ask("FLUSHALL")
                    await asyncio.sleep(1.6 + turn / 5)
                    assert not other.joined.is_set()
                assert await one.store.ask("GET", key) == one.seals.fingerprint.encode()
                await one.store.ask("DEL", key)
                await until(other.joined.is_set)
        finally:
            await other.close()

    run(main(), 60)


def test_who_was_there_says_whose_an_emptied_store_is_and_a_stranger_who_was_quicker_parts(
    server: fixture.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-3, SEC-6: a replica with another key starts in the moment between the loss and the next
    beat."""

    async def main() -> None:
        async with (
            joined(server, MCPX_KEY="one phrase") as one,
            joined(server, MCPX_KEY="one phrase") as two,
        ):
            await until(lambda: two.id in one.members.others)
            monkeypatch.setattr(
                "mcpx.replicas.replicas.SETTLED", 60
            )  # however long it takes them to notice
            monkeypatch.setattr(Replicas, "_was_there", property(lambda self: self in (one, two)))
            stranger = patient(Replicas(parse(server.url), {"MCPX_KEY": "another"}, "1"))
            ask = one.store.ask
            await ask("FLUSHALL")
            assert await ask("SET", one.store.key("fingerprint"), stranger.seals.fingerprint, "NX")
            assert await ask("SET", one.store.key("fingerprint", "since"), (await ask("TIME"))[0])
            stranger.start()
            try:
                await stranger.joined.wait()
                stranger.members.start()
                await until(stranger.parted.is_set)
                assert not stranger.joined.is_set()
                assert one.joined.is_set() and two.joined.is_set()
                assert (
                    await ask("GET", one.store.key("fingerprint")) == one.seals.fingerprint.encode()
                )
                await one.members.beat()
                assert one.members.find(stranger.id) is None
            finally:
                await stranger.close()

    run(main(), 60)


def test_one_that_was_away_while_the_key_of_all_was_changed_parts_and_keeps_nobody_else_out(
    server: fixture.RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-3: the others were there for long when it came back, though it has joined before them;
    with its key in the store again it joins again."""
    monkeypatch.setattr("mcpx.replicas.replicas.SETTLED", 0.2)

    async def main() -> None:
        async with joined(server, MCPX_KEY="old") as old:
            await asyncio.sleep(0.3)
            key, fingerprint = old.store.key("fingerprint"), old.seals.fingerprint
            server.kill()
            await until(lambda: not old.store.up)
            monkeypatch.setattr(old.store._connection, "_connect", _away)
            server.start()
            async with joined(server, MCPX_KEY="new") as new:
                server.cli("SET", new.store.key("fingerprint", "since"), "1")  # long ago
                monkeypatch.undo()
                await until(old.parted.is_set)
                assert new.joined.is_set() and not old.joined.is_set()
                assert await new.store.ask("GET", key) == new.seals.fingerprint.encode()
            server.cli("SET", key, fingerprint)
            await until(old.joined.is_set)
            assert not old.parted.is_set() and old.members.me.state == "serving"

    run(main(), 60)


async def _away(patience: float) -> None:
    raise OSError("it cannot be reached")
