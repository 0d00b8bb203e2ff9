"""PRO-1, LIF-8: mcpx on its standard input and output, byte by byte.

`StdioClient` fails on output that is not a message.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.client import WAIT_SECONDS, StdioClient
from kit.command import MCPX
from kit.gateway import GatewayProcess
from kit.messages import (
    META,
    MODERN,
    Json,
    initialize_request,
    modern_request,
    notification,
    request,
    structured_content,
    text_of,
)
from kit.servers import odd_server, raw_server, recorded_messages
from kit.until import wait_until
from mcpx.app import GRACE

framings = pytest.mark.parametrize("framing", ["newline", "content-length"])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without any config: mcpx runs its demo there, which is up at once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def env(home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "MCPX_STATE_DIR": str(home / "state"),
    }


@pytest.fixture(scope="module")
def shared(home: Path, env: dict[str, str]) -> Iterator[StdioClient]:
    """A client that has greeted, for what disturbs nobody."""
    with StdioClient(MCPX, env, home) as client:
        client.greet()
        yield client
        assert client.finish() == 0


@pytest.fixture
def fresh(home: Path, env: dict[str, str]) -> Iterator[StdioClient]:
    """A client that has said nothing yet."""
    with StdioClient(MCPX, env, home) as client:
        yield client


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "record"


@pytest.fixture
def slow(record: Path) -> Iterator[StdioClient]:
    """A client before a server whose calls take time and are kept in `record`."""
    with (
        GatewayProcess({"mcp_servers": [odd_server("odd", record)]}, transport="stdio") as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as client,
    ):
        client.greet()
        assert text_of(client.call("odd_echo", text="up")) == "up"
        yield client


def calls(record: Path, tool: str) -> list[Json]:
    return [
        message
        for message in recorded_messages(record, "tools/call")
        if message["params"]["name"] == tool
    ]


def code(message: Json) -> int:
    return message["error"]["code"]


# ---- framing


@framings
def test_a_client_is_answered_in_its_own_framing(
    home: Path, env: dict[str, str], framing: str
) -> None:
    """PRO-1: told by the first bytes; Content-Length is the one header that goes back."""
    with StdioClient(MCPX, env, home, framing) as client:
        assert client.greet()["serverInfo"]["name"] == "mcpx"
        assert len(client.request("tools/list")["result"]["tools"]) == 3
        assert text_of(client.call("demo_echo", text="é✓😀\n\r\n")) == "é✓😀\n\r\n"
        assert client.finish() == 0


BODY = b'{"jsonrpc":"2.0","id":"a","method":"ping"}'


@pytest.mark.parametrize(
    "pieces",
    [
        [b"Content-Length: 42\r\n\r\n" + BODY],
        [b"content-length:42\r\n\r\n" + BODY],
        [
            b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: 42\r\n\r\n"
            + BODY
        ],
        [b"Content-Length: 42\n\n" + BODY],
        [b"\r\n\r\nContent-Length: 42\r\n\r\n" + BODY],
        [b"Cont", b"ent-Len", b"gth: 4", b"2\r", b"\n\r", b"\n" + BODY[:20], BODY[20:]],
    ],
    ids=[
        "plain",
        "lower case, no blank",
        "two headers",
        "bare newlines",
        "blank lines first",
        "in pieces",
    ],
)
def test_content_length_is_recognised_however_it_is_spelt(
    home: Path, env: dict[str, str], pieces: list[bytes]
) -> None:
    """PRO-1."""
    with StdioClient(MCPX, env, home, "content-length") as client:
        for piece in pieces:
            client.send(piece)
        assert client.reply("a")["result"] == {}


@pytest.mark.parametrize(
    "start",
    [b"\xef\xbb\xbf" + BODY + b"\n", BODY + b"\r\n", b"\n \n\r\n" + BODY + b"\n"],
    ids=["BOM", "CRLF", "blanks"],
)
def test_lines_are_recognised_however_they_begin_and_end(fresh: StdioClient, start: bytes) -> None:
    """PRO-1."""
    fresh.send(start)
    assert fresh.reply("a")["result"] == {}


def test_a_last_line_without_its_newline_is_still_a_message(fresh: StdioClient) -> None:
    """PRO-1, LIF-8."""
    fresh.send(BODY)
    assert fresh.finish() == 0
    assert fresh.rest() == [{"jsonrpc": "2.0", "id": "a", "result": {}}]


def framed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize(
    ("attack", "codes"),
    [
        (framed(b"not json"), [-32700]),
        (framed(b"\xff\xfe"), [-32700]),
        (framed(b"x" * 5 * 1024 * 1024), [-32600]),
        (framed(b"[]"), [-32600]),
        (b"Content-Length: 99999999999999\r\n\r\n", [-32600]),
        (b"Content-Length: minus one\r\n\r\n", [-32600]),
        (b"what is this?\r\n\r\n", [-32600]),
        (framed(b""), []),
    ],
    ids=[
        "text",
        "not UTF-8",
        "5 MiB",
        "a batch",
        "a length beyond reason",
        "no length",
        "no header",
        "nothing",
    ],
)
def test_a_bad_block_leaves_the_next_one_working(
    home: Path, env: dict[str, str], attack: bytes, codes: list[int]
) -> None:
    """PRO-1, SEC-6."""
    with StdioClient(MCPX, env, home, "content-length") as client:
        client.greet()
        client.send(attack + framed(BODY))
        answers = []
        while (answer := client.message())["id"] != "a":
            answers.append(answer)
        assert answer["result"] == {}
        assert [code(answer) for answer in answers] == codes


# ---- the conversation


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "logging/setLevel", "no/such"])
def test_a_request_before_initialize_is_refused(fresh: StdioClient, method: str) -> None:
    """PRO-1: and the handshake still works after it."""
    assert code(fresh.request(method)) == -32600
    assert fresh.greet()["protocolVersion"] == "2025-11-25"


def test_ping_is_answered_before_initialize(fresh: StdioClient) -> None:
    """PRO-2."""
    assert fresh.request("ping")["result"] == {}


def test_a_second_initialize_is_refused(shared: StdioClient) -> None:
    """PRO-1: and the first one stands."""
    shared.send(initialize_request("2024-11-05", id="again"))
    assert code(shared.reply("again")) == -32600
    assert len(shared.request("tools/list")["result"]["tools"]) == 3


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1.0", "2025-11-25"),
        (7, "2025-11-25"),
    ],
)
def test_the_version_asked_for_is_answered_if_it_is_known(
    fresh: StdioClient, asked: Any, answered: str
) -> None:
    """SRC-2: else the newest with a handshake."""
    assert fresh.greet(asked)["protocolVersion"] == answered


def test_initialize_declares_everything_and_names_the_servers(fresh: StdioClient) -> None:
    """PRO-3."""
    greeting = fresh.greet()
    assert greeting["capabilities"] == {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
        "logging": {},
    }
    assert "demo" in greeting["instructions"] and len(greeting["instructions"].encode()) <= 2048


def test_an_unknown_method_is_not_found(shared: StdioClient) -> None:
    """PRO-1."""
    assert code(shared.request("no/such/method")) == -32601
    assert code(shared.request("tools/list/")) == -32601


def test_both_eras_are_served_on_one_pipe(shared: StdioClient) -> None:
    """SRC-2: told message by message, before and after older ones."""
    shared.send(
        request("server/discover", {"_meta": modern_request("x")["params"]["_meta"]}, "discover")
    )
    found = shared.reply("discover")["result"]
    assert found["supportedVersions"] == [MODERN] and found["resultType"] == "complete"
    assert found["_meta"][META + "serverInfo"]["name"] == "mcpx"
    shared.send(modern_request("tools/list", id="list"))
    listed = shared.reply("list")["result"]
    assert listed["cacheScope"] in ("private", "public") and listed["ttlMs"] >= 0
    shared.send(
        modern_request("tools/call", {"name": "demo_echo", "arguments": {"text": "new"}}, "call")
    )
    assert shared.reply("call")["result"]["resultType"] == "complete"
    assert "resultType" not in shared.call("demo_echo", text="old")["result"]


def test_a_modern_client_needs_no_handshake(fresh: StdioClient) -> None:
    """SRC-2."""
    fresh.send(
        modern_request("tools/call", {"name": "demo_echo", "arguments": {"text": "new"}}, "call")
    )
    assert text_of(fresh.reply("call")) == "new"
    assert fresh.finish() == 0


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (request("server/discover"), -32602),
        (request("server/discover", {"_meta": []}), -32602),
        (request("tools/list", {"_meta": {META + "protocolVersion": MODERN}}), -32602),
        (modern_request("tools/list", {"_meta": {META + "protocolVersion": "1900-01-01"}}), -32022),
        (modern_request("initialize"), -32601),
        (modern_request("ping"), -32601),
        (modern_request("logging/setLevel", {"level": "info"}), -32601),
        (modern_request("resources/subscribe", {"uri": "demo://about"}), -32601),
        (modern_request("resources/unsubscribe", {"uri": "demo://about"}), -32601),
        (modern_request("no/such"), -32601),
    ],
    ids=lambda value: value["method"] if isinstance(value, dict) else str(value),
)
def test_the_modern_ladder_holds_without_headers(
    shared: StdioClient, message: Json, expected: int
) -> None:
    """SRC-2: envelope, version, removed methods."""
    shared.send({**message, "id": "rung"})
    error = shared.reply("rung")["error"]
    assert error["code"] == expected
    if expected == -32022:
        assert (error["data"]["supported"], error["data"]["requested"]) == ([MODERN], "1900-01-01")


def test_a_modern_listener_is_acknowledged_under_its_own_id(shared: StdioClient) -> None:
    """PRO-4: and cancelling it is answered by nothing."""
    shared.send(
        modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "ear")
    )
    heard = shared.message()
    assert heard["method"] == "notifications/subscriptions/acknowledged"
    assert heard["params"]["_meta"][META + "subscriptionId"] == "ear"
    assert heard["params"]["notifications"] == {"toolsListChanged": True}
    shared.send(notification("notifications/cancelled", {"requestId": "ear"}))
    shared.send(request("ping", id="after"))
    assert shared.message()["id"] == "after"


# ---- ids and cancelling


def test_an_id_in_flight_cannot_be_used_again_until_it_is_answered(
    slow: StdioClient, record: Path
) -> None:
    """PRO-1: the second is refused and never sent; the first is answered as if nothing had
    happened."""
    call = {"name": "odd_sleep", "arguments": {"seconds": 0.5}}
    slow.send(request("tools/call", call, "same"))
    slow.send(request("tools/call", call, "same"))
    assert code(slow.reply("same")) == -32600
    assert text_of(slow.reply("same")) == "slept"
    assert len(calls(record, "sleep")) == 1
    slow.send(request("ping", id="same"))
    assert slow.reply("same")["result"] == {}


def test_ids_differ_by_type(slow: StdioClient) -> None:
    """PRO-1: 1 and "1" are two requests, and each answer has the id as it was sent."""
    for number in (7, "7", -7, "", 2**53 + 1, "x" * 1000):
        slow.send(
            request("tools/call", {"name": "odd_sleep", "arguments": {"seconds": 0.1}}, number)
        )
    for number in (7, "7", -7, "", 2**53 + 1, "x" * 1000):
        assert text_of(slow.reply(number)) == "slept"


@pytest.mark.parametrize("era", ["older", "modern"])
def test_a_cancelled_request_is_never_answered(slow: StdioClient, record: Path, era: str) -> None:
    """PRO-2, LIF-6: it is cancelled at its server, under the id the server knows."""
    params = {"name": "odd_sleep", "arguments": {"seconds": 30}}
    slow.send(
        request("tools/call", params, "c")
        if era == "older"
        else modern_request("tools/call", params, "c")
    )
    sent = wait_until(lambda: calls(record, "sleep"))[0]["id"]
    slow.send(notification("notifications/cancelled", {"requestId": "c", "reason": "enough"}))
    cancelled = wait_until(lambda: recorded_messages(record, "notifications/cancelled"))
    assert [message["params"]["requestId"] for message in cancelled] == [sent]
    assert text_of(slow.call("odd_echo", text="on")) == "on"
    assert slow.finish() == 0
    assert slow.rest() == []


def test_cancelling_what_is_over_does_nothing(slow: StdioClient, record: Path) -> None:
    """PRO-2."""
    over = slow.start_call("odd_echo", text="done")
    slow.reply(over)
    slow.send(notification("notifications/cancelled", {"requestId": over}))
    slow.send(notification("notifications/cancelled", {}))
    slow.send(notification("notifications/cancelled"))
    assert text_of(slow.call("odd_echo", text="on")) == "on"
    assert recorded_messages(record, "notifications/cancelled") == []


# ---- the end


def test_a_modern_listener_does_not_hold_up_the_end(fresh: StdioClient) -> None:
    """LIF-8, PRO-4: it is told that it is over, by a result with its mark."""
    fresh.send(
        modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "ear")
    )
    assert fresh.message()["method"] == "notifications/subscriptions/acknowledged"
    fresh.end_input()
    assert fresh.wait(GRACE - 0.1) == 0
    (last,) = fresh.rest()
    assert (last["id"], last["result"]["_meta"][META + "subscriptionId"]) == ("ear", "ear")


@contextlib.contextmanager
def unread(home: Path, env: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """mcpx with a standard output that nobody reads unless the test does."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        MCPX, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, env=env, cwd=home
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_shutdown_is_answered_and_ends_it(fresh: StdioClient) -> None:
    """LIF-8: exit code 0, though the client keeps its end open."""
    fresh.greet()
    assert fresh.request("shutdown")["result"] == {}
    assert fresh.wait() == 0


@pytest.mark.parametrize("ending", ["shutdown", "end of input"])
def test_calls_in_flight_finish_before_the_end(
    slow: StdioClient, record: Path, ending: str
) -> None:
    """LIF-8: the answers still arrive, then it exits with 0."""
    running = slow.start_call("odd_sleep", seconds=0.6)
    wait_until(lambda: calls(record, "sleep"))
    if ending == "shutdown":
        assert slow.request("shutdown")["result"] == {}
    else:
        slow.end_input()
    assert text_of(slow.reply(running)) == "slept"
    assert slow.wait() == 0


def test_calls_sent_with_the_last_bytes_are_answered(slow: StdioClient) -> None:
    """LIF-8: requests and EOF in one go."""
    numbers = [slow.start_call("odd_echo", text=str(number)) for number in range(50)]
    slow.end_input()
    assert [text_of(slow.reply(number)) for number in numbers] == [
        str(number) for number in range(50)
    ]
    assert slow.wait() == 0


def test_a_call_beyond_the_grace_does_not_hold_up_the_end(slow: StdioClient, record: Path) -> None:
    """LIF-8."""
    slow.start_call("odd_sleep", seconds=60)
    wait_until(lambda: calls(record, "sleep"))
    slow.end_input()
    assert slow.wait() == 0


@pytest.mark.parametrize("ending", ["shutdown", "end of input"])
def test_a_large_answer_at_the_end_arrives_whole(fresh: StdioClient, ending: str) -> None:
    """LIF-8: three megabytes through a pipe of 64 KiB, with the end right behind the request."""
    fresh.greet()
    call = fresh.start_call("demo_echo", text="x" * 3_000_000)
    if ending == "shutdown":
        fresh.start("shutdown")
    else:
        fresh.end_input()
    assert len(text_of(fresh.reply(call))) == 3_000_000
    assert fresh.wait() == 0


def test_a_client_that_does_not_read_cannot_keep_it_from_ending(
    home: Path, env: dict[str, str]
) -> None:
    """LIF-8: SIGTERM ends it, though three megabytes wait for a reader."""
    with unread(home, env) as process:
        assert process.stdin and process.stdout
        text = "x" * 3_000_000
        greeting = json.dumps(initialize_request()).encode()
        call = json.dumps(
            request("tools/call", {"name": "demo_echo", "arguments": {"text": text}})
        ).encode()
        process.stdin.write(greeting + b"\n" + call + b"\n")
        process.stdin.flush()
        assert process.stdout.read(1) == b"{"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0


def test_a_client_that_stops_reading_and_leaves_ends_it(home: Path, env: dict[str, str]) -> None:
    """LIF-8: a broken pipe is an end like any other: exit code 0, no traceback."""
    with unread(home, env) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(BODY + b"\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.stdout.close()
        process.stdin.write(BODY + b"\n")
        process.stdin.flush()
        assert process.wait(WAIT_SECONDS) == 0
        assert b"Traceback" not in process.stderr.read()


def test_nothing_but_messages_is_on_standard_output() -> None:
    """PRO-1: whatever servers print, wherever they print it."""
    servers = [
        raw_server("noisy", "--garbage"),
        raw_server("flood", "--stderr-flood"),
        raw_server("crashing", "--crash-on-start"),
        raw_server(
            "framed", "--framing", "content-length", connection={"framing": "content-length"}
        ),
    ]
    with (
        GatewayProcess(
            {"mcp_servers": servers}, "--log-level", "DEBUG", transport="stdio"
        ) as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as client,
    ):
        client.greet()
        for server in ("noisy", "flood", "framed"):
            assert structured_content(client.call(f"{server}_whoami"))["pid"]
        assert client.finish() == 0
        assert client.rest() == []
