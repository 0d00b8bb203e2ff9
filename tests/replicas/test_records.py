"""What of a session is in the store: of several who think that a session is theirs, one is right. A
real store."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from kit import replicas as fixture
from kit.loop import run
from mcpx.front.http_session import HttpSession
from mcpx.front.neighbours.records import MOST_EVENTS, Records, Taken
from mcpx.front.notices import Parcel
from mcpx.front.sessions import Client
from mcpx.front.streams import Shelf
from mcpx.front.visitor import Visitor
from mcpx.replicas.replicas import Replicas
from replicas.test_members import joined

ANN = Visitor("ann")


@pytest.fixture
def server() -> Iterator[fixture.RedisServer]:
    with fixture.RedisServer() as store:
        yield store


class One:
    """A replica, and what it keeps in the store."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.records = Records(replicas)

    async def begins(self) -> HttpSession:
        owner = HttpSession(
            ANN, Client(("ann", "")), Shelf(), id=self.replicas.seals.mint(self.replicas.id)
        )
        self.records.put(owner, None)
        await self.replicas.store.settled()
        return owner

    async def takes(self, owner: HttpSession, *lost: "One") -> HttpSession:
        taken = await self.records.take(owner.session.id, ANN, [each.replicas.id for each in lost])
        assert isinstance(taken, Taken)
        mine = HttpSession(ANN, Client(("ann", "")), Shelf(), id=owner.session.id)
        mine.life = taken.life
        self.records.put(mine, None)
        await self.replicas.store.settled()
        return mine

    async def ends(self, owner: HttpSession) -> None:
        self.records.end(owner.session.id)
        await self.replicas.store.settled()

    async def claims(self, owner: HttpSession) -> bool:
        return await self.records.put_again(owner, None)


@asynccontextmanager
async def three(server: fixture.RedisServer) -> AsyncIterator[tuple[One, One, One]]:
    async with joined(server) as first, joined(server) as second, joined(server) as third:
        yield One(first), One(second), One(third)


def test_who_had_a_session_before_does_not_bring_it_back_when_it_has_ended(
    server: fixture.RedisServer,
) -> None:
    """SCA-1: nor does anybody take it up."""

    async def main() -> None:
        async with three(server) as (first, second, third):
            before = await first.begins()
            await second.ends(await second.takes(before, first))
            assert not await first.claims(before)
            assert (
                await third.records.take(
                    before.session.id, ANN, [first.replicas.id, second.replicas.id]
                )
                is None
            )

    run(main())


def test_a_session_that_nobody_else_ever_had_leaves_nothing_behind(
    server: fixture.RedisServer,
) -> None:
    """SCA-3."""

    async def main() -> None:
        async with three(server) as (first, _, _):
            await first.ends(await first.begins())
            assert server.cli("KEYS", "*:session:*") == ""

    run(main())


@pytest.mark.parametrize("lost", ["emptied", "an older copy"])
def test_who_took_a_session_up_last_has_it_whatever_the_store_has_forgotten(
    server: fixture.RedisServer, lost: str
) -> None:
    """SCA-2: emptied, and written to by the wrong one first; or failed over to a copy from
    before."""

    async def main() -> None:
        async with three(server) as (first, second, _):
            before = await first.begins()
            key = first.records._keys(before.session.id)[0]  # pyright: ignore[reportPrivateUsage]
            older = await first.replicas.store.ask("DUMP", key)
            now = await second.takes(before, first)
            await first.replicas.store.ask("DEL", key)
            if lost == "emptied":
                assert await first.claims(before)
            else:
                await first.replicas.store.ask("RESTORE", key, 0, older)
            assert await second.claims(now)
            assert not await first.claims(before)
            assert await first.records.take(before.session.id, ANN, []) == second.replicas.id

    run(main())


def test_who_had_a_session_before_writes_no_events_of_it(server: fixture.RedisServer) -> None:
    """SCA-1: nor how much of them was read."""

    async def main() -> None:
        async with three(server) as (first, second, third):
            before = await first.begins()
            now = await second.takes(before, first)
            assert before.journal is not None and now.journal is not None
            now.journal.pushed(7, Parcel(b"{}"), 7)
            await second.replicas.store.settled()
            before.journal.pushed(3, Parcel(b"{}"), 3)
            before.journal.event("s1", 1, 1, Parcel(b"{}"), last=False)
            await first.replicas.store.settled()
            taken = await third.records.take(
                before.session.id, ANN, [first.replicas.id, second.replicas.id]
            )
            assert isinstance(taken, Taken)
            assert taken.sent == 7
            assert {
                name: [number for number, _ in told.events] for name, told in taken.streams.items()
            } == {"push": [7]}

    run(main())


def test_which_request_a_long_stream_answers_is_known_when_its_first_events_have_gone(
    server: fixture.RedisServer,
) -> None:
    """SCA-1: else it would end without an answer, and its client would come back for one for
    ever."""

    async def main() -> None:
        async with three(server) as (first, second, _):
            owner = await first.begins()
            assert owner.journal is not None
            owner.journal.begun("s1", "the request")
            for number in range(1, MOST_EVENTS + 10):
                owner.journal.event(
                    "s1", "the request", number, Parcel(b'{"n":%d}' % number), last=False
                )
            await first.replicas.store.settled()
            taken = await second.records.take(owner.session.id, ANN, [first.replicas.id])
            assert isinstance(taken, Taken)
            told = taken.streams["s1"]
            assert (told.request, told.done, len(told.events)) == (
                "the request",
                False,
                MOST_EVENTS,
            )
            assert told.events[-1][1].data == b'{"n":%d}' % (MOST_EVENTS + 9)

    run(main())
