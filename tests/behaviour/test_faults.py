"""SRC-8: one broken server never affects another, and what mcpx says on its behalf names it."""

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from behaviour.odd_http_server import OddHttpServer
from kit.client import WAIT_SECONDS, Session, StdioClient, health, wait_until_settled
from kit.command import MCPX
from kit.gateway import Gateway, GatewayProcess
from kit.messages import Json, structured_content, text_of
from kit.process import START, Child, stdio_command
from kit.process_tree import ProcessWatch, peak_memory
from kit.servers import odd_server, raw_server, recorded_messages, stdio_server
from kit.until import wait_until

AT_ONCE = 10.0
"""Seconds for what takes milliseconds on an idle machine; whoever waits for another server waits
for half a minute."""

DOWN, TIMEOUT, DIED, TOO_LARGE, GARBAGE = -33001, -33002, -33003, -33004, -33005

MIB = 1024 * 1024


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < AT_ONCE, f"took {took:.2f} s"


def refused_for(server: str, code: int, message: Json) -> bool:
    """Whether this is an error that mcpx made on the server's behalf."""
    error = message["error"]
    assert error["code"] == code, error
    assert server in error["message"], error
    return True


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults") / "record"


@pytest.fixture(scope="module")
def gateway(record: Path) -> Iterator[Gateway]:
    """One good server among broken ones."""
    servers = [
        raw_server("hung", "--hang-initialize", timeout=2),
        raw_server("crashing", "--crash-on-start"),
        stdio_server("absent", ["no-such-command-anywhere"]),
        raw_server("good"),
        raw_server("noisy", "--garbage", "--big-integers"),
        raw_server("endless", "--endless-pages"),
        raw_server("shy", "--mute-probe"),
        raw_server("mortal", retry_delay=60),
        odd_server("odd", record, call_timeout=2),
        raw_server("small", max_message=MIB),
    ]
    with GatewayProcess({"mcp_servers": servers}) as running:
        wait_until_settled(running.port)
        yield running


@pytest.fixture
def client(gateway: Gateway) -> Session:
    return Session(gateway.port)


# ---- at the start


def test_a_server_that_hangs_in_its_handshake_delays_nobody_over_http() -> None:
    """LIF-1, SRC-8: initialize is answered at once, a list after `startup_wait`, a call to a good
    server at once."""
    with Gateway(
        {"mcp_servers": [raw_server("hung", "--hang-initialize"), raw_server("good")]}
    ) as gateway:
        with at_once():
            client = Session(gateway.port)
            client.tools()
        wait_until(lambda: "good_echo" in client.tools())
        with at_once():
            assert text_of(client.call("good_echo", text="here")) == "here"


def test_a_server_that_hangs_in_its_handshake_delays_nobody_over_stdio() -> None:
    """LIF-1, SRC-8, LIF-8: nor does it delay the end."""
    servers = [raw_server("hung", "--hang-initialize"), raw_server("good")]
    with (
        GatewayProcess({"mcp_servers": servers}, transport="stdio") as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as client,
    ):
        client.start("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}})
        listing = client.start("tools/list")
        with at_once():
            client.reply(1)
            client.reply(listing)
        wait_until(lambda: "good_echo" in json.dumps(client.request("tools/list")))
        with at_once():
            assert text_of(client.call("good_echo", text="here")) == "here"
        with at_once():
            assert client.finish() == 0


def test_a_server_that_starts_late_is_announced_when_it_is_there(tmp_path: Path) -> None:
    """LIF-1: what was not listed in time is announced, and a call to it waits for it."""
    servers = [raw_server("late", "--start-when", str(tmp_path / "now")), raw_server("good")]
    with Gateway({"mcp_servers": servers}) as gateway:
        client = Session(gateway.port)
        with client.listen() as pushes:
            pushes.comment()
            assert "late_echo" not in client.tools()
            with client.start_call("late_echo", text="at last") as waiting:
                (tmp_path / "now").touch()
                assert text_of(waiting.reply().message) == "at last"
            event = pushes.event()
        assert event is not None and event["data"]["method"] == "notifications/tools/list_changed"
        assert "late_echo" in client.tools()


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("hung", "within 2 s"),
        ("crashing", "exited with code 7"),
        ("absent", "command not found: 'no-such-command-anywhere'"),
    ],
)
def test_health_says_which_server_is_down_and_why(
    gateway: Gateway, server: str, words: str
) -> None:
    """SRC-8: the reason begins with the server's configured name."""

    def down() -> Json | None:
        """Between two attempts; they go on all the time."""
        status = health(gateway.port)
        assert status["status"] == "degraded"
        entry = status["servers"][server]
        return entry if entry["status"] == "disconnected" else None

    entry = wait_until(down)
    assert entry["last_error"].startswith(f"{server}: ") and words in entry["last_error"]


@pytest.mark.parametrize("server", ["good", "noisy", "endless", "shy", "mortal", "odd", "small"])
def test_every_server_that_can_answer_does_so_at_once(client: Session, server: str) -> None:
    """SRC-8: noise, a mute probe and endless pages are that server's affair; its calls work all the
    same."""
    with at_once():
        assert text_of(client.call(f"{server}_echo", text="é✓😀")) == "é✓😀"


def test_garbage_between_the_answers_leaves_them_as_they_are(client: Session) -> None:
    """SRC-8, PRO-6: text, 0xff, blanks, half a message and a lone surrogate around each answer."""
    result = client.call("noisy_echo", text="clean")["result"]
    assert result["x-unknown"]["big"] == 12345678901234567890123
    assert result["content"][0]["x-unknown"] == result["x-unknown"]


def test_a_server_that_pages_for_ever_is_stopped_and_listed_once(client: Session) -> None:
    """NAM-6, SRC-8."""
    listed = [name for name in client.tools() if name.startswith("endless")]
    assert len(listed) == len(set(listed))
    assert "endless_echo" in listed


def test_a_flood_on_standard_error_drowns_nobody() -> None:
    """SRC-8, LIF-7: the log stays short, memory flat, the others and the flooding server itself
    answer."""
    with GatewayProcess(
        {"mcp_servers": [raw_server("flood", "--stderr-flood"), raw_server("good")]}
    ) as gateway:
        client = Session(gateway.port)
        assert text_of(client.call("flood_echo", text="one")) == "one"
        before = peak_memory(gateway.process.pid)
        for _ in range(20):
            with at_once():
                assert text_of(client.call("good_echo", text="two")) == "two"
        with at_once():
            assert text_of(client.call("flood_echo", text="three")) == "three"
        assert peak_memory(gateway.process.pid) - before < 16 * MIB
        assert len(gateway.stderr()) < 1 * MIB


def test_an_unknown_tool_is_an_error_of_its_own(client: Session) -> None:
    """PRO-2: no server is blamed for it."""
    assert client.call("nobody_has_this")["error"]["code"] == -32602


# ---- in the middle of a call


def test_a_call_whose_server_dies_fails_at_once_with_its_name(client: Session) -> None:
    """SRC-8: so do the other calls in flight there; those of others go on."""
    with (
        client.start_call("mortal_sleep", seconds=60) as waiting,
        client.start_call("good_sleep", seconds=0.5) as other,
    ):
        with at_once():
            assert refused_for("mortal", DIED, client.call("mortal_die"))
            assert refused_for("mortal", DIED, waiting.reply().message)
        assert text_of(other.reply().message) == "slept"


def test_a_call_to_a_server_that_died_starts_it_again(client: Session) -> None:
    """LIF-4: it does not wait for a timer, here of a minute."""
    first = structured_content(client.call("mortal_whoami"))["pid"]
    assert refused_for("mortal", DIED, client.call("mortal_die"))
    with at_once():
        assert structured_content(client.call("mortal_whoami"))["pid"] != first


def test_a_server_killed_between_two_calls_is_started_by_the_next(
    gateway: Gateway, client: Session
) -> None:
    """LIF-4, SRC-8."""
    first = structured_content(client.call("mortal_whoami"))["pid"]
    before = health(gateway.port)["servers"]["mortal"]

    def noticed() -> bool:
        now = health(gateway.port)["servers"]["mortal"]
        return now["status"] != "connected" or now["restarts"] > before["restarts"]

    with ProcessWatch([first]) as watch:
        os.kill(first, signal.SIGKILL)
        assert watch.left(WAIT_SECONDS) == []
    wait_until(noticed)
    assert structured_content(client.call("mortal_whoami"))["pid"] != first


def test_many_calls_to_a_server_that_died_share_one_start(client: Session, record: Path) -> None:
    """LIF-4: and its tools stay listed meanwhile."""
    assert text_of(client.call("odd_echo", text="up")) == "up"
    before = len(recorded_messages(record, "initialize"))
    assert refused_for("odd", DIED, client.call("odd_die"))
    assert "odd_echo" in client.tools()
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(client.start_call("odd_whoami")) for _ in range(10)]
        pids = {structured_content(one.reply().message)["pid"] for one in started}
    assert len(pids) == 1
    assert len(recorded_messages(record, "initialize")) == before + 1


def test_a_call_that_died_is_not_sent_again(client: Session, record: Path) -> None:
    """SRC-8: `die` reaches its server once, though the next call starts that server anew."""
    before = len(
        [m for m in recorded_messages(record, "tools/call") if m["params"]["name"] == "die"]
    )
    assert refused_for("odd", DIED, client.call("odd_die"))
    assert text_of(client.call("odd_echo", text="back")) == "back"
    assert text_of(client.call("good_echo", text="too")) == "too"
    died = [m for m in recorded_messages(record, "tools/call") if m["params"]["name"] == "die"]
    assert len(died) == before + 1


def test_a_call_without_an_answer_times_out_and_is_cancelled(client: Session, record: Path) -> None:
    """LIF-6: after `call_timeout`, under the id the server knows; nothing else on the connection is
    disturbed."""
    process = structured_content(client.call("odd_whoami"))["pid"]
    assert refused_for("odd", TIMEOUT, client.call("odd_hang"))
    sent = [
        m["id"] for m in recorded_messages(record, "tools/call") if m["params"]["name"] == "hang"
    ]
    cancelled = wait_until(lambda: recorded_messages(record, "notifications/cancelled"))
    assert [
        m["params"]["requestId"] for m in cancelled if m["params"]["requestId"] in sent
    ] == sent[-1:]
    assert structured_content(client.call("odd_whoami"))["pid"] == process


def test_progress_keeps_a_slow_call_alive(client: Session) -> None:
    """LIF-6: each one starts the time anew; 3 s pass under a `call_timeout` of 2 s."""
    with client.start_call("odd_tick", progress="t", seconds=0.3, times=11) as stream:
        events = stream.events()
    assert text_of(events[-1]["data"]) == "ticked"


@pytest.mark.parametrize("tool", ["broken", "deep"])
def test_an_answer_that_cannot_be_read_is_an_error_not_a_time_out(
    gateway: Gateway, tmp_path: Path, tool: str
) -> None:
    """SRC-8: broken JSON and nesting beyond any parser, under the id of the call."""
    with Gateway({"mcp_servers": [odd_server("odd", tmp_path / "record")]}) as running:
        client = Session(running.port)
        assert text_of(client.call("odd_echo", text="up")) == "up"
        with at_once():
            assert refused_for("odd", GARBAGE, client.call(f"odd_{tool}"))
        assert text_of(client.call("odd_echo", text="still up")) == "still up"


def test_wrong_ids_second_answers_and_late_ones_reach_nobody(client: Session, record: Path) -> None:
    """SRC-8: every caller gets the answer to its own call."""
    assert text_of(client.call("odd_twice")) == "first"
    assert text_of(client.call("odd_stranger")) == "for you"
    assert refused_for("odd", TIMEOUT, client.call("odd_stubborn"))
    wait_until(lambda: recorded_messages(record, "said too late"))
    for number in range(20):
        assert text_of(client.call("odd_echo", text=str(number))) == str(number)


def test_two_hundred_calls_at_once_get_their_own_answers(gateway: Gateway) -> None:
    """SRC-8: over several sessions and two servers, one of which prints garbage all the time."""
    wrong: list[Any] = []

    def run(worker: int) -> None:
        client = Session(gateway.port)
        for number in range(25):
            server = ("good", "noisy")[number % 2]
            text = f"{worker}.{number}"
            if (answer := text_of(client.call(f"{server}_echo", text=text))) != text:
                wrong.append((text, answer))

    workers = [threading.Thread(target=run, args=(worker,)) for worker in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


# ---- sizes


def test_an_answer_over_the_limit_is_refused_in_linear_time_and_flat_memory(
    gateway: Gateway, client: Session
) -> None:
    """SEC-6, SRC-8: 64 MB where 1 MiB is allowed; the others answer meanwhile."""
    assert text_of(client.call("small_echo", text="up")) == "up"
    before = peak_memory(gateway.process.pid)
    with client.start_call("small_big", bytes=64_000_000) as answer:
        with at_once():
            assert text_of(client.call("good_echo", text="meanwhile")) == "meanwhile"
        assert refused_for("small", TOO_LARGE, answer.reply().message)
    assert peak_memory(gateway.process.pid) - before < 8 * MIB
    assert text_of(client.call("small_echo", text="after")) == "after"


def test_an_answer_over_the_limit_fails_its_own_call_only(client: Session) -> None:
    """SRC-8: other calls in flight on the same connection get their answers."""
    with client.start_call("small_sleep", seconds=1) as slow:
        with at_once():
            assert refused_for("small", TOO_LARGE, client.call("small_big", bytes=2 * MIB))
        assert text_of(slow.reply().message) == "slept"


@pytest.mark.parametrize(("server", "size"), [("small", 900_000), ("good", 12_000_000)])
def test_an_answer_under_the_limit_arrives_whole(client: Session, server: str, size: int) -> None:
    """SEC-6: 16 MiB by default."""
    assert text_of(client.call(f"{server}_big", bytes=size)) == "x" * size


# ---- servers over HTTP


@pytest.fixture(scope="module")
def remote() -> Iterator[OddHttpServer]:
    with OddHttpServer() as server:
        yield server


@pytest.fixture(scope="module")
def remote_gateway(remote: OddHttpServer) -> Iterator[Gateway]:
    connection = {"type": "http", "url": remote.url}
    server = {
        "name": "remote",
        "prefix": "remote",
        "connection": connection,
        "max_message": MIB,
        "call_timeout": 5,
    }
    with GatewayProcess({"mcp_servers": [server, raw_server("good")]}) as running:
        wait_until_settled(running.port)
        yield running


@pytest.fixture
def remote_client(remote_gateway: Gateway) -> Session:
    return Session(remote_gateway.port)


@pytest.mark.parametrize("tool", ["huge", "endless", "endless_event", "large_event"])
def test_an_answer_over_http_is_bounded(
    remote_gateway: Gateway, remote_client: Session, tool: str
) -> None:
    """SEC-6, SRC-8: whatever its length says, and if it never ends; memory stays flat, the
    connection is dropped."""
    assert text_of(remote_client.call("remote_echo", text="up")) == "up"
    before = peak_memory(remote_gateway.process.pid)
    with at_once():
        assert refused_for("remote", TOO_LARGE, remote_client.call(f"remote_{tool}"))
    assert peak_memory(remote_gateway.process.pid) - before < 16 * MIB
    assert text_of(remote_client.call("remote_echo", text="after")) == "after"


def test_a_compressed_answer_nobody_asked_for_is_not_unpacked(
    remote_gateway: Gateway, remote_client: Session
) -> None:
    """SEC-6: 64 MB in 64 kB."""
    before = peak_memory(remote_gateway.process.pid)
    with at_once():
        answer = remote_client.call("remote_bomb")
    assert (
        answer["error"]["code"] in (DIED, TOO_LARGE, GARBAGE)
        and "remote" in answer["error"]["message"]
    )
    assert peak_memory(remote_gateway.process.pid) - before < 16 * MIB


@pytest.mark.parametrize(
    "tool", ["html", "broken", "nothing", "cut", "cut_stream", "hang_up", "not_http", "long_head"]
)
def test_an_answer_over_http_that_is_none_fails_at_once(
    remote: OddHttpServer, remote_client: Session, tool: str
) -> None:
    """SRC-8: with the server's name, sent once, and the next call works."""
    before = remote.calls(tool)
    with at_once():
        answer = remote_client.call(f"remote_{tool}")
    assert answer["error"]["code"] in (DOWN, DIED, GARBAGE), answer
    assert answer["error"]["message"].startswith("remote: ")
    assert remote.calls(tool) == before + 1
    assert text_of(remote_client.call("remote_echo", text="after")) == "after"
    assert text_of(remote_client.call("good_echo", text="too")) == "too"


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 403, 429, 500, 502, 503])
def test_an_http_error_is_told_and_a_redirect_not_followed(
    remote: OddHttpServer, remote_client: Session, status: int
) -> None:
    """SRC-8, SEC-4: a redirect would carry the user's headers elsewhere."""
    answer = remote_client.call("remote_status", status=status)
    assert refused_for("remote", DOWN, answer)
    signing_in = ("/.well-known/", "/register")  # what a 401 begins, in the background
    assert [
        path for _, path, _ in remote.seen if path != "/mcp" and not path.startswith(signing_in)
    ] == []
    assert text_of(remote_client.call("remote_echo", text="after")) == "after"


def test_a_call_over_http_without_an_answer_times_out(remote_client: Session) -> None:
    """LIF-6."""
    assert refused_for("remote", TIMEOUT, remote_client.call("remote_hang"))
    assert text_of(remote_client.call("remote_echo", text="after")) == "after"


def test_a_session_the_server_forgot_is_made_again(
    remote: OddHttpServer, remote_client: Session
) -> None:
    """SRC-8: 404 says that the server did not act: the call is sent once more, in a session of its
    own."""
    assert text_of(remote_client.call("remote_echo", text="up")) == "up"
    sessions, remote.session = remote.sessions, "restarted"
    assert text_of(remote_client.call("remote_echo", text="again")) == "again"
    assert remote.sessions == sessions + 1
    assert "error" in remote_client.call("remote_forget")
    assert text_of(remote_client.call("remote_echo", text="once more")) == "once more"


def test_a_server_over_http_that_is_not_there_is_named() -> None:
    """SRC-8: nobody listens, or somebody who is no MCP server."""
    taken = socket.socket()  # bound and not listening: nobody else can answer there
    taken.bind(("127.0.0.1", 0))
    closed = taken.getsockname()[1]
    servers = [
        {"name": "closed", "connection": {"type": "http", "url": f"http://127.0.0.1:{closed}/mcp"}},
        {
            "name": "closed-sse",
            "connection": {"type": "sse", "url": f"http://127.0.0.1:{closed}/sse"},
        },
        {
            "name": "closed-ws",
            "connection": {"type": "websocket", "url": f"ws://127.0.0.1:{closed}/ws"},
        },
        {
            "name": "unknown",
            "connection": {"type": "http", "url": "http://no-such-host.invalid/mcp"},
        },
        raw_server("good"),
    ]
    with taken, Gateway({"mcp_servers": servers}) as gateway:
        client = Session(gateway.port)
        with at_once():
            assert text_of(client.call("good_echo", text="here")) == "here"
        states = wait_until_settled(gateway.port)
        for server in servers[:-1]:
            assert states[server["name"]]["status"] == "disconnected"
            assert states[server["name"]]["last_error"].startswith(f"{server['name']}: ")


@pytest.mark.parametrize("transport", ["http", "sse", "websocket"])
def test_a_remote_server_that_says_too_much_or_dies_fails_its_calls_at_once(transport: str) -> None:
    """SEC-6, SRC-8: over every transport; after too large an answer the next call works, after a
    death it says so."""
    command = stdio_command("everything_server.py", "--transport", transport)
    with Child(command) as child:
        ready = child.stdout.wait_for(r"^ready (\S+)$", START)
        assert ready is not None, child.stderr.text
        server = {
            "name": "remote",
            "prefix": "remote",
            "connection": {"type": transport, "url": ready[1]},
        }
        config = {
            "mcp_servers": [{**server, "max_message": MIB}, raw_server("good")],
            "global": {"call_timeout": 20},
        }
        with GatewayProcess(config) as gateway:
            client = Session(gateway.port)
            assert text_of(client.call("remote_big", bytes=MIB // 2)) == "x" * (MIB // 2)
            with at_once():
                answer = client.call("remote_big", bytes=3 * MIB)
            assert (
                answer["error"]["code"] in (TOO_LARGE, DIED)
                and "remote" in answer["error"]["message"]
            ), answer
            assert text_of(client.call("remote_echo", text="after")) == "after"
            waiting = client.start_call("remote_slow", progress="p", seconds=60)
            waiting.event()
            assert waiting.event() is not None  # it runs
            with at_once():
                child.process.kill()
                events = waiting.events()
            waiting.cut()
            assert events[-1]["data"]["error"]["message"].startswith("remote: ")
            with at_once():
                assert client.call("remote_echo", text="gone")["error"]["message"].startswith(
                    "remote: "
                )
            assert text_of(client.call("good_echo", text="here")) == "here"


# ---- values


def nested(levels: int) -> Any:
    value: Any = "bottom"
    for level in range(levels):
        value = [value] if level % 2 else {"in": value}
    return value


VALUES = {
    "300 levels": nested(300),
    "a lone surrogate": {"cut": "emoji \ud83d", "key \udc00": True},
    "integers beyond 64 bits": [2**64, -(2**63) - 1, 12345678901234567890123456789],
    "floats": [1e300, -0.0, 0.1, 5e-324],
    "odd strings": ["\x00\x7f\u2028\u2029", "\\u0000", "", " "],
    "empty things": [{}, [], None, False, 0],
}
values = pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())


@values
def test_values_arrive_intact_both_ways_over_http(client: Session, value: Any) -> None:
    """PRO-6: to the server as arguments and back from it as a result."""
    assert structured_content(client.call("good_whoami", value=value))["params"]["arguments"] == {
        "value": value
    }


@values
def test_values_arrive_intact_both_ways_over_stdio(stdio: StdioClient, value: Any) -> None:
    """PRO-6."""
    assert structured_content(stdio.call("good_whoami", value=value))["params"]["arguments"] == {
        "value": value
    }


# ---- mcpx's own standard input


@pytest.fixture(scope="module")
def stdio() -> Iterator[StdioClient]:
    with (
        GatewayProcess({"mcp_servers": [raw_server("good")]}, transport="stdio") as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as client,
    ):
        client.greet()
        yield client


PING = b'{"jsonrpc":"2.0","id":"next","method":"ping"}\n'

ATTACKS: dict[str, tuple[bytes, list[int]]] = {
    "a byte that is not UTF-8": (b"\xff\n", [-32700]),
    "such a byte inside a message": (b'{"jsonrpc":"2.0","id":1,"method":"pi\xffng"}\n', [-32700]),
    "a line over 4 MiB": (b'{"x":"' + b"x" * (5 * MIB) + b'"}\n', [-32600]),
    "blank lines": (b"\n\n \t \r\n\n", []),
    "text": (b"hello?\n", [-32700]),
    "half a message": (b'{"jsonrpc":"2.0","id":1,\n', [-32700]),
    "100,000 levels": (b"[" * 100_000 + b"]" * 100_000 + b"\n", [-32700]),
    "a batch": (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', [-32600]),
    "an empty batch": (b"[]\n", [-32600]),
    "a scalar": (b"42\n", [-32600]),
    "no jsonrpc": (b'{"id":7,"method":"ping"}\n', [-32600]),
    "an id that is null": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', [-32600]),
    "an id that is a fraction": (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}\n', [-32600]),
    "an id that is true": (b'{"jsonrpc":"2.0","id":true,"method":"ping"}\n', [-32600]),
    "an id that is a list": (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}\n', [-32600]),
    "params that are a list": (
        b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":[1]}\n',
        [-32600],
    ),
    "a method that is a number": (b'{"jsonrpc":"2.0","id":9,"method":9}\n', [-32600]),
    "an answer to nothing": (b'{"jsonrpc":"2.0","id":99,"result":{}}\n', []),
    "an unknown notification": (
        b'{"jsonrpc":"2.0","method":"notifications/odd","params":{"x":1}}\n',
        [],
    ),
    "a cancellation of nothing": (
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}\n',
        [],
    ),
    "NUL bytes": (b"\x00\x00\x00\n", [-32700]),
    "an integer of 10,000 digits": (b"1" * 10_000 + b"\n", [-32700]),
}


@pytest.mark.parametrize(("attack", "codes"), ATTACKS.values(), ids=ATTACKS.keys())
def test_whatever_comes_on_standard_input_the_next_message_works(
    stdio: StdioClient, attack: bytes, codes: list[int]
) -> None:
    """SRC-8, PRO-1: what can be told apart is answered with its code, and nothing is answered
    twice."""
    stdio.send(attack + PING)
    answers = []
    while (answer := stdio.message()).get("id") != "next":
        answers.append(answer)
    assert answer["result"] == {}
    assert [answer["error"]["code"] for answer in answers] == codes


def test_a_message_in_single_bytes_is_still_one_message(stdio: StdioClient) -> None:
    """PRO-1."""
    for byte in PING:
        stdio.send(bytes([byte]))
    assert stdio.reply("next")["result"] == {}


ODD_PARAMS: dict[str, Json] = {
    "no name": {},
    "a name that is a number": {"name": 5},
    "a name that is a list": {"name": ["good_echo"]},
    "_meta that is a list": {"name": "good_echo", "_meta": []},
    "a progress token that is an object": {"name": "good_echo", "_meta": {"progressToken": {}}},
    "arguments that are a list": {"name": "good_echo", "arguments": [1]},
    "arguments that are null": {"name": "good_echo", "arguments": None},
}


@pytest.mark.parametrize("params", ODD_PARAMS.values(), ids=ODD_PARAMS.keys())
@pytest.mark.parametrize("front", ["http", "stdio"])
def test_odd_params_are_answered_and_nobody_notices(
    request: pytest.FixtureRequest, front: str, params: Json
) -> None:
    """SRC-8: with a result or an error of the server, or with one of ours; never with silence or a
    crash."""
    client = request.getfixturevalue("client" if front == "http" else "stdio")
    answer = client.request("tools/call", params)
    assert "result" in answer or answer["error"]["code"] in (-32602, -32603), answer
    assert json.dumps(answer).find("Internal error") < 0
    assert text_of(client.call("good_echo", text="on")) == "on"


def test_the_demo_survives_a_stream_of_noise(tmp_path: Path) -> None:
    """PRO-1, LIF-8: a megabyte of random bytes, then EOF: answers are messages, the end is
    clean."""
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    with StdioClient([*MCPX], env, tmp_path) as client:
        client.send(os.urandom(MIB) + b"\n")
        client.greet()
        assert text_of(client.call("demo_echo", text="alive")) == "alive"
        assert client.finish() == 0
        assert all(answer["id"] is None for answer in client.rest())
