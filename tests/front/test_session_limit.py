"""Sessions of a gateway at its limit, and after they have ended (SEC-6)."""

import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from kit.client import Session, post
from kit.gateway import Gateway
from kit.http_client import fetch
from kit.messages import initialize_request, notification
from kit.until import wait_until
from mcpx.front import http, sessions
from mcpx.front.http_session import HttpSession

LIMITED = {"server": {"limits": {"sessions": 100}, "metrics": True}, "mcp_servers": []}


def metric(gateway: Gateway, name: str) -> float:
    lines = fetch(gateway.port, "/metrics").text.splitlines()
    (value,) = [line.split()[-1] for line in lines if line.startswith(f"{name} ")]
    return float(value)


def test_clients_in_their_handshake_do_not_evict_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SEC-6: idle sessions are evicted instead. Evictions are counted and logged."""
    monkeypatch.setattr(sessions, "IDLE_AFTER", 0.0)
    monkeypatch.setattr(
        http, "PING_EVERY", 0.05
    )  # Evictions are logged at this interval, at most once a minute.
    together = Barrier(50)

    def shake_hands(port: int) -> int:
        begun = post(port, initialize_request())
        together.wait(30)
        headers = {"mcp-session-id": begun.headers["mcp-session-id"]}
        return post(port, notification("notifications/initialized"), headers).status

    with Gateway(LIMITED) as gateway, ThreadPoolExecutor(50) as clients:
        idle = [Session(gateway.port) for _ in range(100)]
        assert metric(gateway, "mcpx_sessions_room") == 0
        assert list(clients.map(shake_hands, [gateway.port] * 50)) == [202] * 50
        assert metric(gateway, "mcpx_sessions_evicted_total") == 50
        statuses = [
            session.post(notification("notifications/initialized")).status for session in idle
        ]
        assert sorted(statuses) == [202] * 50 + [404] * 50
        wait_until(lambda: "for new sessions, because the limit" in gateway.stderr())
        assert "raise server.limits.sessions" in gateway.stderr()


@pytest.mark.parametrize("how", ["delete", "evicted"])
def test_an_ended_session_is_freed_without_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """SEC-6: it is not part of a reference cycle, also if it had a stream and calls."""
    monkeypatch.setattr(sessions, "IDLE_AFTER", 0.0)

    def count() -> int:
        return sum(type(each) is HttpSession for each in gc.get_objects())

    with Gateway({**LIMITED, "server": {"limits": {"sessions": 10}}}) as gateway:
        before = count()
        gc.disable()
        try:
            for _ in range(30):
                session = Session(gateway.port)
                session.tools()
                with session.listen() as stream:
                    assert stream.status == 200
                    session.call("no_such_tool")
                if how == "delete":
                    session.delete()
            left = 0 if how == "delete" else 10
            wait_until(lambda: count() - before <= left, what="ended sessions are freed")
        finally:
            gc.enable()
