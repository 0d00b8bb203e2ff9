"""SEC-6: one client that takes many places for sessions, while the sessions of another client are
idle."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from attacks.harness import WebSocket
from kit.client import Session, post
from kit.gateway import Gateway
from kit.messages import initialize_request, notification
from mcpx.front import sessions

TOKENS = {"ann": "a-token-for-ann-of-the-tests", "bob": "a-token-for-bob-of-the-tests"}
CONFIG: dict[str, Any] = {
    "server": {
        "limits": {"sessions": 50},
        "auth": {
            "type": "bearer",
            "tokens": [{"name": name, "token": token} for name, token in TOKENS.items()],
        },
    },
    "mcp_servers": [],
}
BOBS = 10


def headers(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}"}


def is_open(session: Session) -> bool:
    return session.post(notification("notifications/initialized")).status == 202


def handshakes(port: int, stack: contextlib.ExitStack) -> None:
    for _ in range(100):
        post(port, initialize_request(), headers("ann"))


def used_sessions(port: int, stack: contextlib.ExitStack) -> None:
    taken = [Session(port, headers=headers("ann")) for _ in range(100)]
    assert sum(map(is_open, taken)) == CONFIG["server"]["limits"]["sessions"] - BOBS


def streams(port: int, stack: contextlib.ExitStack, count: int = 100) -> None:
    for _ in range(count):
        stack.enter_context(Session(port, headers=headers("ann")).listen())


def web_sockets(port: int, stack: contextlib.ExitStack) -> None:
    for _ in range(100):
        stack.enter_context(contextlib.closing(WebSocket(port, **headers("ann")).socket))


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    monkeypatch.setattr(sessions, "IDLE_AFTER", 0.0)
    with Gateway(CONFIG) as made:
        yield made


@pytest.mark.parametrize("attack", [handshakes, used_sessions, streams, web_sockets])
def test_a_client_cannot_evict_the_idle_sessions_of_another_one(
    gateway: Gateway, attack: Callable[[int, contextlib.ExitStack], None]
) -> None:
    idle = [Session(gateway.port, headers=headers("bob")) for _ in range(BOBS)]
    with contextlib.ExitStack() as stack:
        attack(gateway.port, stack)
        assert all(map(is_open, idle))


def test_sessions_with_streams_cannot_hold_all_places(
    monkeypatch: pytest.MonkeyPatch, gateway: Gateway
) -> None:
    """Their client uses them all the time."""
    monkeypatch.setattr(sessions, "IDLE_AFTER", 60.0)
    with contextlib.ExitStack() as stack:
        streams(gateway.port, stack, CONFIG["server"]["limits"]["sessions"])
        mine = [Session(gateway.port, headers=headers("bob")) for _ in range(3)]
        assert all(map(is_open, mine))
