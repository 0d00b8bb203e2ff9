"""LIF-9 through the real program: `cache_ttl`, and identical calls that are one; counted where they
arrive."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from behaviour.compact import MODES, Compact, Visitor, config, replace
from kit.client import ACCEPT_BOTH, Session, Stream
from kit.gateway import Gateway
from kit.messages import Json, modern_headers, modern_request, notification, text_of
from kit.servers import recorded_messages, stdio_server
from kit.until import wait_until

ERAS = ("older", "modern")


def reading(name: str, record: Path, *flags: str, **keys: Any) -> Json:
    script = str(Path(__file__).with_name("reading_server.py"))
    return stdio_server(name, [sys.executable, "-I", "-S", script, str(record), *flags], **keys)


class Place:
    """A gateway before three servers: one that speaks each era, with `cache_ttl`, and one
    without."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.records = {name: folder / name for name in (*ERAS, "plain", "brief")}
        self.servers = [
            *(reading(era, self.records[era], "--era", era, cache_ttl=60) for era in ERAS),
            reading("plain", self.records["plain"]),
            reading("brief", self.records["brief"], cache_ttl=0.05),
        ]
        self._count = 0

    def fresh(self) -> Json:
        """Arguments that nobody used before."""
        self._count += 1
        return {"n": self._count}

    def calls(self, server: str, arguments: Json) -> int:
        """How often a server was called with these."""
        sent = recorded_messages(self.records[server], "tools/call")
        return sum(message["params"].get("arguments") == arguments for message in sent)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("caching"))


@pytest.fixture(scope="module")
def gateway(place: Place) -> Iterator[Gateway]:
    with Gateway(config(*place.servers, **{"global": {"hot_reload_interval": 0.05}})) as gateway:
        yield gateway


def call(visitor: Visitor, server: str, tool: str, arguments: Json) -> str:
    if visitor.mode in MODES:
        result = visitor.run(server, tool, arguments)
    else:
        result = visitor.result("tools/call", {"name": f"{server}_{tool}", "arguments": arguments})
    return result["content"][0]["text"]


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", ["direct", *MODES])
def test_a_read_only_tool_is_called_once(
    mode: Compact | str, era: str, server: str, place: Place, gateway: Gateway
) -> None:
    """LIF-9."""
    given = place.fresh()
    first = call(Visitor(gateway.port, mode, era), server, "read", given)
    assert call(Visitor(gateway.port, mode, era), server, "read", given) == first
    assert place.calls(server, given) == 1


def test_all_surfaces_share_what_is_kept(place: Place, gateway: Gateway) -> None:
    given = place.fresh()
    assert (
        len(
            {
                call(Visitor(gateway.port, mode), "older", "read", given)
                for mode in ("direct", *MODES)
            }
        )
        == 1
    )
    assert place.calls("older", given) == 1


@pytest.mark.parametrize(
    ("server", "tool"), [("older", "write"), ("older", "wrong"), ("plain", "read")]
)
def test_what_may_write_what_failed_and_what_has_no_ttl_is_called_again(
    server: str, tool: str, place: Place, gateway: Gateway
) -> None:
    given, visitor = place.fresh(), Visitor(gateway.port, "direct")
    assert call(visitor, server, tool, given) != call(visitor, server, tool, given)
    assert place.calls(server, given) == 2


def test_after_its_time_it_is_called_again(place: Place, gateway: Gateway) -> None:
    given, visitor = place.fresh(), Visitor(gateway.port, "direct")
    first = call(visitor, "brief", "read", given)
    wait_until(lambda: call(visitor, "brief", "read", given) != first)


def test_a_server_that_says_its_tools_changed_is_called_again(
    place: Place, gateway: Gateway
) -> None:
    given, visitor = place.fresh(), Visitor(gateway.port, "direct")
    first = call(visitor, "modern", "read", given)
    assert call(visitor, "modern", "read", given) == first
    call(visitor, "older", "change", {})  # another server: no difference
    assert call(visitor, "modern", "read", given) == first
    other = call(visitor, "older", "read", given)
    call(visitor, "older", "change", {"again": 1})
    wait_until(lambda: call(visitor, "older", "read", given) != other)


# ---- merged


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
def test_identical_calls_at_one_time_are_one(
    era: str, server: str, place: Place, gateway: Gateway
) -> None:
    """LIF-9."""
    go = place.folder / f"go-{era}-{server}"
    given = {"until": str(go)}
    visitors = [Visitor(gateway.port, "direct", era) for _ in range(5)]
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(call, visitor, server, "read", given) for visitor in visitors]
        wait_until(lambda: place.calls(server, given))
        busy = Visitor(gateway.port, "direct", era)
        call(
            busy, server, "write", place.fresh()
        )  # all others have come by now, or find what is kept
        go.touch()
        assert len({each.result() for each in waiting}) == 1
    assert place.calls(server, given) == 1


def test_several_calls_of_one_request_that_are_the_same_are_one(
    place: Place, gateway: Gateway
) -> None:
    go = place.folder / "go-several"
    given = {"until": str(go)}
    calls = [{"method": "older.read", "arguments": given}] * 3
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Visitor(gateway.port, "describe").use, "call", calls=calls)
        wait_until(lambda: place.calls("older", given))
        go.touch()
        assert len(waiting.result()["structuredContent"]["results"]) == 3
    assert place.calls("older", given) == 1


def test_the_first_of_several_is_cancelled_and_the_others_are_answered(
    place: Place, gateway: Gateway
) -> None:
    go = place.folder / "go-cancelled"
    given = {"until": str(go)}
    first, second = Session(gateway.port), Session(gateway.port)
    began = len(recorded_messages(place.records["older"], "notifications/cancelled"))
    with (
        first.start_call("older_read", id="c", **given),
        second.start_call("older_read", **given) as other,
    ):
        wait_until(lambda: place.calls("older", given))
        call(Visitor(gateway.port, "direct"), "older", "write", place.fresh())
        assert first.post(notification("notifications/cancelled", {"requestId": "c"})).status == 202
        call(Visitor(gateway.port, "direct"), "older", "write", place.fresh())
        go.touch()
        assert text_of(other.reply().message).startswith("read ")
    assert len(recorded_messages(place.records["older"], "notifications/cancelled")) == began
    assert place.calls("older", given) == 1


def test_when_the_last_one_leaves_the_call_is_cancelled(place: Place, gateway: Gateway) -> None:
    given = {"until": str(place.folder / "never")}
    message = modern_request("tools/call", {"name": "modern_read", "arguments": given})
    headers = [
        ("Content-Type", "application/json"),
        ("Accept", ACCEPT_BOTH),
        *modern_headers(message).items(),
    ]
    body = json.dumps(message).encode()
    with Stream(gateway.port, "POST", "/mcp", headers, body):
        wait_until(lambda: place.calls("modern", given))
        with Stream(gateway.port, "POST", "/mcp", headers, body):
            assert Visitor(
                gateway.port, "direct", "modern"
            ).names()  # asked later: the other one was read before it
            began = len(recorded_messages(place.records["modern"], "notifications/cancelled"))
    wait_until(
        lambda: (
            len(recorded_messages(place.records["modern"], "notifications/cancelled")) == began + 1
        )
    )
    assert place.calls("modern", given) == 1


# ---- a reload; the last test here, for it changes the servers of all others


def test_after_a_reload_that_changed_the_server_nothing_old_is_answered(
    place: Place, gateway: Gateway
) -> None:
    given, visitor = place.fresh(), Visitor(gateway.port, "direct")
    firsts = {server: call(visitor, server, "read", given) for server in ERAS}
    older, *rest = place.servers
    replace(gateway, {**gateway.config, "mcp_servers": [{**older, "cache_ttl": 30}, *rest]})
    wait_until(
        lambda: (
            place.calls("older", given) > 1
            or call(visitor, "older", "read", given) != firsts["older"]
        )
    )
    assert call(visitor, "modern", "read", given) == firsts["modern"]
    assert (place.calls("older", given), place.calls("modern", given)) == (2, 1)
