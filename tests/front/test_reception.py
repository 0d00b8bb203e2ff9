"""Who has to leave when a configuration changes, and what of the servers somebody hears."""

import json
import time
from typing import Any

import pytest

from front.test_guard import asked
from kit.loop import run
from mcpx.config import Config, FrontAuth, FrontServer, Profile, Server, Token
from mcpx.core.gateway import Gateway
from mcpx.front.dispatch import Dispatcher
from mcpx.front.http import HttpFront
from mcpx.front.identity.badge import NEVER, Badge
from mcpx.front.reception import House, Reception
from mcpx.front.visitor import Visitor
from mcpx.transports import Stdio


def config(*tokens: Token, profiles: tuple[Profile, ...] = (), auth: bool = True) -> Config:
    return Config(
        server=FrontServer(auth=FrontAuth(tokens=tokens) if auth else None), profiles=profiles
    )


def no_fetcher() -> Any:
    raise AssertionError("nothing is fetched")


ANN = Token(name="ann", token="a")
SERVERS = tuple(
    Server(name=name, connection=Stdio(command="none"), enabled=False) for name in ("one", "two")
)
P, Q = Profile(name="p"), Profile(name="q", tokens=("ann",))


def visitor(reception: Reception, token: str = "a", profile: str | None = None) -> Visitor:
    assert reception.identity is not None
    badge = reception.identity.admit(asked(("authorization", f"Bearer {token}")))
    assert isinstance(badge, Badge)
    return Visitor(badge.principal, reception.doors.enter(badge, profile), "", badge)


@pytest.mark.parametrize(
    ("after", "stays"),
    [
        (config(ANN, profiles=(P,)), True),
        (config(ANN, Token(name="bob", token="b")), True),
        (config(), False),
        (config(Token(name="bob", token="a")), False),
        (config(Token(name="ann", token="b")), False),
        (config(Token(name="ann", token="a", expires="2020-01-31")), False),
        (config(Token(name="ann", token="a", expires="2999-01-31")), True),
        (config(Token(name="ann", token="a", profile="p"), profiles=(P,)), False),
        (config(ANN, profiles=(Q,)), False),
        (config(auth=False), False),
    ],
)
def test_whoever_would_not_be_let_in_again_the_same_way_has_to_leave(
    after: Config, stays: bool
) -> None:
    """SEC-1."""
    reception = Reception(House("127.0.0.1"), config(ANN, profiles=(P,)), no_fetcher)
    there = visitor(reception)
    assert reception.stays_until(there) == NEVER
    reception.take_up(after)
    assert (reception.stays_until(there) is not None) is stays


def test_whoever_another_replica_let_in_leaves_when_their_token_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-1, SCA-1: though nobody has shown it here."""
    reception = Reception(
        House("127.0.0.1"), config(Token(name="ann", token="a", expires="2999-01-31")), no_fetcher
    )
    assert reception.identity is not None and not reception.identity.look()
    ends = time.time() + 600
    there = Visitor("ann", None, "", Badge("ann", expires=ends))
    assert reception.follows(there) and not reception.identity.look()
    monkeypatch.setattr(time, "time", lambda: ends)
    assert reception.identity.look()
    assert not reception.follows(there)


def test_a_profile_that_closes_sees_off_whoever_came_through_it() -> None:
    """SEC-2: without tokens too."""
    reception = Reception(House("127.0.0.1"), config(auth=False, profiles=(P,)), no_fetcher)
    through, beside = Visitor(profile="p"), Visitor()
    assert (reception.stays_until(through), reception.stays_until(beside)) == (NEVER, NEVER)
    for profiles in ((), (Profile(name="p", tokens=("ann",)),)):
        reception.take_up(config(auth=False, profiles=profiles))
        assert (reception.stays_until(through), reception.stays_until(beside)) == (None, NEVER)


def test_health_tells_of_the_servers_that_somebody_sees() -> None:
    """SEC-2: who sees less hears less; a profile that is gone shows nothing."""

    async def work() -> None:
        narrow = Profile(name="p", servers=("one",))
        made = config(
            ANN,
            Token(name="bound", token="b", profile="p"),
            Token(name="lost", token="l", profile="gone"),
        )
        gateway = Gateway(Config(server=made.server, profiles=(narrow,), mcp_servers=SERVERS), {})
        reception = Reception(House("127.0.0.1"), gateway.generation.config, no_fetcher)
        front = HttpFront(Dispatcher(gateway), reception, max_request=1000)

        def seen(token: str) -> set[str] | None:
            exchange = asked(
                ("host", "127.0.0.1"), ("authorization", f"Bearer {token}"), target="/health"
            )
            told: list[bytes] = []
            line: Any = exchange.line
            line.write = lambda head, body=b"": told.append(body)
            line.answered = lambda keep: None
            front._handle(exchange)  # pyright: ignore[reportPrivateUsage]
            servers = json.loads(told[0]).get("servers")
            return None if servers is None else set(servers)

        assert seen("a") == {"one", "two"}
        assert seen("b") == {"one"}
        assert seen("l") == set()
        assert seen("wrong") is None
        await front.close(0)
        await gateway.close()

    run(work())
