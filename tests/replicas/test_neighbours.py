"""Whose a session is, asked by a request that went another way before; on a real store, without a front."""

from typing import Any, cast

from fixtures import replicas as fixture
from fixtures.parts import run, until
from mcpx.front.http_session import HttpSession
from mcpx.front.neighbours.neighbours import Neighbours
from mcpx.front.sessions import Client
from mcpx.front.streams import Shelf
from mcpx.front.visitor import Visitor
from mcpx.wire.exchange import Exchange, Headers
from mcpx.wire.http_server import Limits
from replicas.test_members import joined

ANN = Visitor("ann")


class OneRoom:
    """A front with one session."""

    def __init__(self) -> None:
        self.here: HttpSession | None = None
        self.answered: list[Exchange] = []

    def answer(self, exchange: Exchange, visitor: Visitor, mode: str | None) -> None:
        self.answered.append(exchange)

    def session(self, id: str) -> HttpSession | None:
        return self.here

    def sessions(self) -> list[HttpSession]:
        return []

    def shown(self, owner: HttpSession) -> None:
        return None

    def take_up(self, *_: Any) -> None:
        raise AssertionError("it is here already, and what runs in it would be lost")


def test_a_session_that_was_taken_up_meanwhile_is_not_taken_up_a_second_time() -> None:
    """SCA-1: by a request that was handed to its owner, which died, and comes back when another has had it taken up."""

    async def main(server: fixture.Store) -> None:
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
            assert await replicas.store.ask("HGET", replicas.store.key("session", id), "life") == b"0"
            await neighbours.close(0.0)

    with fixture.Store() as server:
        run(main(server))
