"""Whose a session is, asked by a request that went another way before; on a real store, without a
front."""

from typing import Any, cast

import pytest

from kit import replicas as fixture
from kit.loop import run
from kit.until import until
from mcpx.front.http_session import HttpSession
from mcpx.front.neighbours import neighbours as neighbours_module
from mcpx.front.neighbours.neighbours import Neighbours
from mcpx.front.neighbours.records import Records
from mcpx.front.sessions import Client
from mcpx.front.streams import Shelf
from mcpx.front.visitor import Visitor
from mcpx.replicas.members import Member
from mcpx.wire.exchange import Exchange, Headers
from mcpx.wire.http_server import Limits
from replicas.test_members import joined

ANN = Visitor("ann")


class OneRoom:
    """A front with one session."""

    def __init__(self) -> None:
        self.here: HttpSession | None = None
        self.dropped: list[HttpSession] = []
        self.answered: list[Exchange] = []

    def answer(self, exchange: Exchange, visitor: Visitor, mode: str | None) -> None:
        self.answered.append(exchange)

    def session(self, id: str) -> HttpSession | None:
        return self.here

    def sessions(self) -> list[HttpSession]:
        return [] if self.here is None else [self.here]

    def drop(self, owner: HttpSession) -> None:
        self.dropped.append(owner)

    def shown(self, owner: HttpSession) -> None:
        return None

    def take_up(self, *_: Any) -> None:
        raise AssertionError("it is here already, and what runs in it would be lost")


def test_a_session_that_was_taken_up_meanwhile_is_not_taken_up_a_second_time() -> None:
    """SCA-1: by a request that was handed to its owner, which died, and comes back when another has
    had it taken up."""

    async def main(server: fixture.RedisServer) -> None:
        async with joined(server) as replicas:
            rooms = OneRoom()
            neighbours = Neighbours(replicas, cast(Any, rooms), lambda *_: None, Limits())
            id = replicas.seals.mint("dead")
            rooms.here = HttpSession(ANN, Client(("ann", "")), Shelf(), id=id)
            neighbours.begun(rooms.here)
            await replicas.store.settled()
            exchange = Exchange(cast(Any, object()), "GET", "/mcp", Headers({}), b"", True, False)
            assert neighbours.take(exchange, ANN, None, id, passed=False)
            await until(lambda: rooms.answered == [exchange])
            assert await replicas.store.ask("HGET", neighbours.records._keys(id)[0], "life") == b"0"
            await neighbours.close(0.0)

    with fixture.RedisServer() as server:
        run(main(server))


@pytest.mark.parametrize("how", ["ended", "given away"])
def test_a_session_that_goes_while_all_are_written_anew_is_not_brought_back(how: str) -> None:
    """SCA-1, SCA-2: the store was emptied, and what it is told of the end comes before what it is
    told of the rest."""

    async def main(server: fixture.RedisServer) -> None:
        async with joined(server) as replicas:
            rooms = OneRoom()
            neighbours = Neighbours(replicas, cast(Any, rooms), lambda *_: None, Limits())
            owner = rooms.here = HttpSession(
                ANN, Client(("ann", "")), Shelf(), id=replicas.seals.mint(replicas.id)
            )
            neighbours.begun(owner)
            await replicas.store.settled()
            put_again = neighbours.records.put_again

            async def slow(owner: HttpSession, shown: None) -> bool:
                neighbours.ended(owner) if how == "ended" else neighbours.give_away(owner)
                rooms.here = None
                await replicas.store.settled()
                return await put_again(owner, shown)

            neighbours.records.put_again = slow  # type: ignore[method-assign]
            await neighbours._look_over()  # pyright: ignore[reportPrivateUsage]
            await replicas.store.settled()
            found = await replicas.store.ask(
                "HGET", neighbours.records._keys(owner.session.id)[0], "owner"
            )
            assert found == (None if how == "ended" else b"")
            await neighbours.close(0.0)

    with fixture.RedisServer() as server:
        run(main(server))


def test_news_of_before_do_not_take_a_session_from_who_has_taken_it_up_since() -> None:
    """SCA-1: they come another way than the store's answers, and may come after those."""

    async def main(server: fixture.RedisServer) -> None:
        async with joined(server) as replicas, joined(server) as other:
            rooms = OneRoom()
            neighbours = Neighbours(replicas, cast(Any, rooms), lambda *_: None, Limits())
            owner = rooms.here = HttpSession(
                ANN, Client(("ann", "")), Shelf(), id=replicas.seals.mint("dead")
            )
            owner.life = 2
            for life, dropped in ((1, []), (2, []), (3, [owner])):
                other.store.tell(
                    "taken", f"9 {owner.session.id}".encode()
                )  # Forged: not written by a replica.
                other.store.tell("taken", Records(other).news(owner.session.id, life))
                other.store.tell("heard", str(life).encode())
                heard: list[bytes] = []
                replicas.store.hear("heard", heard.append)
                await until(lambda heard=heard: bool(heard))
                assert (rooms.dropped, owner.lost) == (dropped, bool(dropped))
            await neighbours.close(0.0)

    with fixture.RedisServer() as server:
        run(main(server))


def test_nobody_waits_for_ever_for_one_that_has_said_goodbye(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SCA-2: its machine may be gone before it has answered all, and nothing tells so; one that is
    back answers."""
    monkeypatch.setattr(neighbours_module, "ENDED_BY", 0.01)

    async def main(server: fixture.RedisServer) -> None:
        async with joined(server) as replicas, joined(server) as other:
            neighbours = Neighbours(replicas, cast(Any, OneRoom()), lambda *_: None, Limits())
            await until(lambda: other.id in replicas.members.others)
            over: list[str] = []
            monkeypatch.setattr(neighbours._passing, "gone", over.append)  # pyright: ignore[reportPrivateUsage]
            for member in (other.members.me, Member("left")):
                neighbours._left(member)  # pyright: ignore[reportPrivateUsage]
            await until(lambda: bool(over))
            assert over == ["left"]
            await neighbours.close(0.0)

    with fixture.RedisServer() as server:
        run(main(server))
