"""What is refused at the door is refused at once, in order, and without a trace in memory or log
(SEC-1, SEC-6)."""

import contextlib
import socket
from functools import partial

import pytest

from attacks.harness import MIB, Siege, WebSocket, connected, drained, http_request
from kit.client import Session, post
from kit.messages import initialize_request

UPGRADES = {
    "without a key": {"upgrade": "websocket", "connection": "Upgrade"},
    "to another protocol": {
        "upgrade": "h2c",
        "connection": "Upgrade, HTTP2-Settings",
        "http2-settings": "AAMAAABk",
    },
    "with a wrong Host": {"upgrade": "websocket", "connection": "Upgrade", "host": "evil.example"},
    "with a wrong Origin": {
        "upgrade": "websocket",
        "connection": "Upgrade",
        "origin": "http://evil.example",
    },
}


@pytest.mark.parametrize("how", UPGRADES)
def test_upgrades_behind_each_other_are_declined_and_closed(how: str) -> None:
    """SEC-6: hundreds in one packet, without a token: an answer, the end of the connection, and no
    traceback."""
    for size in (68_000, MIB):
        with Siege() as siege:
            one = http_request(siege.port, "GET", "/ws", None, **UPGRADES[how])
            with contextlib.closing(connected(siege.port, 5)) as connection:
                siege.stays_fair(
                    partial(_send, connection, one * (size // len(one))), seconds=0.5, rounds=1
                )
                answered = drained(connection, 5)
            assert answered.startswith(b"HTTP/1.1 4"), answered[:200]
            assert not siege.complaint(), siege.complaint()
            assert "callback failed" not in siege.said()


def _send(connection: socket.socket, block: bytes) -> None:
    with contextlib.suppress(OSError):  # closed before it had all of it
        connection.sendall(block)


def test_an_absolute_target_decides_the_host() -> None:
    """SEC-1: a target that names a host counts, and `Host` does not (RFC 9112, 3.2.2)."""
    with Siege() as siege:
        base = f"127.0.0.1:{siege.port}"
        assert _status(siege.port, "http://evil.example/health", base) == 421
        assert _status(siege.port, f"http://evil.example:{siege.port}/health", base) == 421
        assert _status(siege.port, f"http://{base}/health", base) == 200
        assert _status(siege.port, f"http://{base}/health", "evil.example") == 200
        assert _status(siege.port, "/health", "evil.example") == 421


def _status(port: int, target: str, host: str) -> int:
    with contextlib.closing(connected(port, 5)) as connection:
        connection.sendall(http_request(port, "GET", target, None, host=host, connection="close"))
        return int(drained(connection, 5).split(b" ", 2)[1])


def test_a_page_on_another_port_of_this_machine_is_a_stranger() -> None:
    """SEC-1: an `Origin` with another port than ours is refused on every route, unless the config
    allows it."""
    other, allowed = "http://localhost:9999", "http://localhost:5173"
    with Siege(config={"server": {"allowed_origins": [allowed]}}) as siege:
        own = f"http://127.0.0.1:{siege.port}"
        for origin, status in ((other, 403), ("http://127.0.0.1", 403), (own, 101), (allowed, 101)):
            with WebSocket(siege.port, origin=origin) as websocket:
                assert websocket.status == status, origin
        for origin, status in ((other, 403), (own, 200), (allowed, 200)):
            assert post(siege.port, initialize_request(), {"Origin": origin}).status == status, (
                origin
            )
        assert Session(siege.port).call("well_echo", text="no origin at all")["result"]
