"""LIF-2, LIF-7, LIF-8: the processes mcpx starts: which, with what environment, and that none
outlives it."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.client import WAIT_SECONDS, Session, StdioClient, post_modern
from kit.command import MCPX
from kit.gateway import LISTENS, Gateway, GatewayProcess
from kit.messages import META, Json, modern_request, structured_content, text_of
from kit.process import START, Child
from kit.process_tree import ProcessWatch, descendants
from kit.servers import odd_server, raw_server, recorded_messages, stdio_server
from kit.until import wait_until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

HARD = ("--spawn-grandchild", "--ignore-term")
"""A server that ignores SIGTERM and the end of its input, and whose child left the session and does
so too.

A process that is not ended still runs after `WAIT_SECONDS`. `tests/transports` proves that ending
takes at most 3 s.
"""

SERVERS = [
    raw_server("plain"),
    raw_server("hard", *HARD),
    raw_server("private", "--spawn-grandchild"),
]


@contextmanager
def http(folder: Path) -> Iterator[tuple[Child, int]]:
    """mcpx over HTTP, ended by the test in whatever way; `Gateway` would insist on a clean exit."""
    file = folder / "config.json"
    file.write_text(json.dumps({"mcp_servers": SERVERS}))
    env = {**os.environ, "MCPX_STATE_DIR": str(folder / "state")}
    with Child([*MCPX, str(file), "--transport", "http", "--port", "0"], env) as child:
        listens = child.stderr.wait_for(LISTENS, START)
        assert listens is not None, child.stderr.text
        yield child, int(listens[1])


def pids_of(call: Any) -> set[int]:
    """The servers and their children, as they say themselves."""
    found = {
        structured_content(call(f"{server}_whoami"))["pid"]
        for server in ("plain", "hard", "private")
    }
    return found | {int(text_of(call(f"{server}_grandchild"))) for server in ("hard", "private")}


# ---- nothing outlives it


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name
)
def test_no_process_outlives_mcpx_over_http(tmp_path: Path, number: signal.Signals) -> None:
    """LIF-7, LIF-8: shared and private links, servers that ignore every word, children that left
    the session."""
    with http(tmp_path) as (child, port):
        pids = pids_of(Session(port).call) | pids_of(Session(port, capabilities={"roots": {}}).call)
        assert len(pids) == 10
        with ProcessWatch(pids | descendants(child.process.pid)) as watch:
            child.process.send_signal(number)
            code = child.process.wait(WAIT_SECONDS)
            assert watch.left(WAIT_SECONDS) == []
    if number != signal.SIGKILL:
        assert code == 0
        assert "Traceback" not in child.stderr.text


@pytest.mark.parametrize("ending", ["end of input", "shutdown", "SIGTERM", "SIGINT", "SIGKILL"])
def test_no_process_outlives_mcpx_over_stdio(ending: str) -> None:
    """LIF-7, LIF-8."""
    with (
        GatewayProcess({"mcp_servers": SERVERS}, transport="stdio") as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as client,
    ):
        client.greet()
        pids = pids_of(client.call)
        with ProcessWatch(pids | descendants(client.process.pid)) as watch:
            if ending == "end of input":
                client.end_input()
            elif ending == "shutdown":
                client.start("shutdown")
            else:
                client.process.send_signal(signal.Signals[ending])
            code = client.wait()
            assert watch.left(WAIT_SECONDS) == []
        assert code == (-signal.SIGKILL if ending == "SIGKILL" else 0)


def test_a_second_signal_does_not_break_the_end(tmp_path: Path) -> None:
    """LIF-8: impatient people press Ctrl-C twice."""
    with http(tmp_path) as (child, port):
        pids = pids_of(Session(port).call)
        with ProcessWatch(pids | descendants(child.process.pid)) as watch:
            for _ in range(3):
                child.process.send_signal(signal.SIGINT)
            assert child.process.wait(WAIT_SECONDS) == 0
            assert watch.left(WAIT_SECONDS) == []
    assert "Traceback" not in child.stderr.text


def test_a_signal_while_servers_start_leaves_nothing_behind(tmp_path: Path) -> None:
    """LIF-7, LIF-8: in the middle of handshakes that will never end."""
    file = tmp_path / "config.json"
    servers = [raw_server(f"hung{number}", "--hang-initialize", *HARD) for number in range(3)]
    file.write_text(json.dumps({"mcp_servers": servers}))
    with Child([*MCPX, str(file), "--port", "0"]) as child:
        assert child.stderr.wait_for(LISTENS, START) is not None
        # three servers, their children, the keeper
        wait_until(lambda: len(descendants(child.process.pid)) == 7)
        with ProcessWatch(descendants(child.process.pid)) as watch:
            child.process.send_signal(signal.SIGTERM)
            assert child.process.wait(WAIT_SECONDS) == 0
            assert watch.left(WAIT_SECONDS) == []
    assert "Traceback" not in child.stderr.text


def test_a_signal_before_anything_was_asked_ends_it_at_once(tmp_path: Path) -> None:
    """LIF-8: over stdio no server runs yet."""
    with (
        GatewayProcess({"mcp_servers": [raw_server("good")]}, transport="stdio") as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as client,
    ):
        client.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        client.reply(1)
        client.process.send_signal(signal.SIGTERM)
        assert client.wait() == 0


def test_calls_in_flight_finish_after_sigterm(tmp_path: Path) -> None:
    """LIF-8."""
    record = tmp_path / "record"
    with GatewayProcess({"mcp_servers": [odd_server("odd", record)]}) as gateway:
        session = Session(gateway.port)
        assert text_of(session.call("odd_echo", text="up")) == "up"
        with session.start_call("odd_sleep", seconds=0.7) as older:
            wait_until(lambda: len(recorded_messages(record, "tools/call")) == 2)
            gateway.process.send_signal(signal.SIGTERM)
            assert text_of(older.reply().message) == "slept"
        assert gateway.process.wait(WAIT_SECONDS) == 0


def test_a_call_beyond_the_grace_is_answered_and_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """LIF-8: with an error, not with a broken connection; everything is over within the bound of
    the fixture."""
    record = tmp_path / "record"
    with GatewayProcess({"mcp_servers": [odd_server("odd", record)]}) as gateway:
        session = Session(gateway.port)
        with session.start_call("odd_sleep", seconds=60) as stream:
            wait_until(lambda: recorded_messages(record, "tools/call"))
            gateway.process.send_signal(signal.SIGTERM)
            assert "error" in stream.reply().message
        assert gateway.process.wait(WAIT_SECONDS) == 0
        assert "Traceback" not in gateway.stderr()


def test_a_server_that_dies_takes_its_children_with_it() -> None:
    """LIF-7: also those that left its session; the gateway lives on."""
    with Gateway(
        {"mcp_servers": [raw_server("hard", "--spawn-grandchild"), raw_server("good")]}
    ) as gateway:
        client = Session(gateway.port)
        pids = {
            structured_content(client.call("hard_whoami"))["pid"],
            int(text_of(client.call("hard_grandchild"))),
        }
        with ProcessWatch(pids) as watch:
            assert "error" in client.call("hard_die")
            assert watch.left(WAIT_SECONDS) == []
        assert text_of(client.call("good_echo", text="on")) == "on"


def test_restarts_leave_neither_zombies_nor_descriptors() -> None:
    """LIF-7: forty lives of one server."""
    with GatewayProcess({"mcp_servers": [raw_server("mortal")]}) as gateway:
        client = Session(gateway.port)
        mcpx = gateway.process.pid

        def life() -> None:
            assert "error" in client.call("mortal_die")
            assert text_of(client.call("mortal_echo", text="up")) == "up"

        def descriptors() -> int:
            return len(os.listdir(f"/proc/{mcpx}/fd"))

        for _ in range(3):
            life()
        before = descriptors()
        for _ in range(37):
            life()
        wait_until(lambda: descriptors() <= before + 2)
        wait_until(lambda: len(descendants(mcpx)) == 2)  # the server and the keeper


# ---- whose process it is


@pytest.mark.parametrize(("isolation", "own"), [("shared", False), ("per_session", True)])
def test_sessions_share_a_process_unless_they_are_isolated(isolation: str, own: bool) -> None:
    """LIF-2: shared gives one process, per_session one for each session, kept for it."""
    with Gateway({"mcp_servers": [raw_server("it", isolation=isolation)]}) as gateway:
        first, second = Session(gateway.port), Session(gateway.port)
        pids = [
            structured_content(client.call("it_whoami"))["pid"]
            for client in (first, second, first, second)
        ]
        assert pids[:2] == pids[2:]
        assert (pids[0] != pids[1]) is own


def test_per_call_gives_every_call_a_process_that_ends_with_it() -> None:
    """LIF-2, LIF-7."""
    with Gateway({"mcp_servers": [raw_server("it", isolation="per_call")]}) as gateway:
        client = Session(gateway.port)
        pids = [structured_content(client.call("it_whoami"))["pid"] for _ in range(3)]
        assert len(set(pids)) == 3
        with ProcessWatch(pids) as watch:
            assert watch.left(WAIT_SECONDS) == []


@pytest.mark.parametrize(
    ("isolation", "processes"), [("shared", 1), ("per_session", 1), ("per_call", 3)]
)
def test_one_client_over_stdio_has_one_process_unless_each_call_wants_its_own(
    isolation: str, processes: int
) -> None:
    """LIF-2: there is one session, so the process that lists the tools is its own."""
    with (
        GatewayProcess(
            {"mcp_servers": [raw_server("it", isolation=isolation)]}, transport="stdio"
        ) as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as client,
    ):
        client.greet(capabilities={"roots": {}})
        assert (
            len({structured_content(client.call("it_whoami"))["pid"] for _ in range(3)})
            == processes
        )
        assert client.finish() == 0


def test_a_session_that_is_kept_apart_has_a_process_of_its_own_that_ends_with_it() -> None:
    """LIF-2: DELETE ends the private link, and the process behind it with its children."""
    with Gateway(
        {"mcp_servers": [raw_server("it", "--spawn-grandchild", isolation="per_session")]}
    ) as gateway:
        plain = Session(gateway.port)
        shared = structured_content(plain.call("it_whoami"))["pid"]
        private = Session(gateway.port, capabilities={"elicitation": {}})
        pids = {
            structured_content(private.call("it_whoami"))["pid"],
            int(text_of(private.call("it_grandchild"))),
        }
        assert shared not in pids
        with ProcessWatch(pids) as watch:
            assert private.delete().status == 200
            assert watch.left(WAIT_SECONDS) == []
        assert structured_content(plain.call("it_whoami"))["pid"] == shared


def test_modern_calls_share_one_process() -> None:
    """LIF-2, SRC-2: to a server of either era."""
    servers = [raw_server("older"), raw_server("modern", "--era", "modern")]
    with Gateway({"mcp_servers": servers}) as gateway:
        for server in ("older", "modern"):
            pids = set()
            for _ in range(3):
                reply = post_modern(
                    gateway.port,
                    modern_request("tools/call", {"name": f"{server}_whoami", "arguments": {}}),
                )
                pids.add(structured_content(reply.message)["pid"])
            assert len(pids) == 1


@pytest.mark.parametrize(("isolation", "processes"), [("per_session", 1), ("per_call", 3)])
def test_a_modern_client_has_no_session_but_is_itself(isolation: str, processes: int) -> None:
    """LIF-2: with per_session its calls share a process, and a client of another name has
    another."""
    with Gateway({"mcp_servers": [raw_server("it", isolation=isolation)]}) as gateway:

        def pid(name: str) -> int:
            meta = {META + "clientInfo": {"name": name, "version": "1"}}
            call = modern_request(
                "tools/call", {"name": "it_whoami", "arguments": {}, "_meta": meta}
            )
            return structured_content(post_modern(gateway.port, call).message)["pid"]

        ours = {pid("one") for _ in range(3)}
        assert len(ours) == processes
        assert pid("two") not in ours


def test_max_links_bounds_the_processes_of_a_server() -> None:
    """LIF-2, SEC-6: the session idle longest gives up its process; it gets another with its next
    call."""
    with GatewayProcess(
        {"mcp_servers": [raw_server("it", isolation="per_session", max_links=3)]}
    ) as gateway:
        sessions = [Session(gateway.port) for _ in range(5)]
        for _ in range(2):
            for session in sessions:
                assert structured_content(session.call("it_whoami"))["pid"]
        wait_until(lambda: len(descendants(gateway.process.pid)) <= 3 + 1)  # and the keeper


# ---- what a child is given


ALLOWED = {
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TERM",
    "TMPDIR",
    "TZ",
    "NODE_EXTRA_CA_CERTS",
}
PREFIXES = ("LC_", "XDG_", "SSL_CERT_", "npm_config_", "NPM_CONFIG_", "UV_", "PIP_")
MARK = "GATEWAY_OWNER"
"""How mcpx knows its own again."""

PARENT = {
    "MCPX_LOG_LEVEL": "WARNING",
    "MCPX_SECRET": "hidden",
    "AWS_SECRET_ACCESS_KEY": "hidden",
    "PYTHONSTARTUP_FOR_TEST": "hidden",
    "WANTED": "asked for",
    "https_proxy": "http://127.0.0.1:9",
    "LC_TIME": "C",
    "TZ": "UTC",
}


@pytest.fixture(scope="module")
def environments() -> Iterator[dict[str, dict[str, str]]]:
    """What servers with different settings see, by the name of the server."""
    servers: list[Json] = [
        raw_server("bare"),
        raw_server(
            "given",
            connection={"env": {"OWN": "${WANTED}!", "PATH": "/nowhere", "MCPX_NAMED": "by me"}},
        ),
        raw_server("some", connection={"inherit_env": ["WANTED", "MCPX_SECRET"]}),
        raw_server("all", connection={"inherit_env": True}),
    ]
    with Gateway({"mcp_servers": servers}, env=PARENT) as gateway:
        client = Session(gateway.port)
        yield {
            server["name"]: structured_content(client.call(f"{server['name']}_whoami"))["env"]
            for server in servers
        }


def test_a_child_sees_the_small_environment_only(environments: dict[str, dict[str, str]]) -> None:
    """LIF-7: no secrets of others, and of MCPX_* only the mark by which a gateway knows itself."""
    seen = environments["bare"]
    strange = {
        name
        for name in seen
        if name not in ALLOWED and not name.startswith(PREFIXES) and "PROXY" not in name.upper()
    }
    assert strange <= {MARK, "MCPX_INSIDE"}
    assert (
        seen["https_proxy"] == PARENT["https_proxy"]
        and seen["LC_TIME"] == "C"
        and seen["TZ"] == "UTC"
    )
    assert "PATH" in seen and "HOME" in seen


def test_a_child_sees_what_its_env_says(environments: dict[str, dict[str, str]]) -> None:
    """LIF-7: over everything else, variables expanded, and MCPX_* when it is named there."""
    seen = environments["given"]
    assert (seen["OWN"], seen["PATH"], seen["MCPX_NAMED"]) == ("asked for!", "/nowhere", "by me")
    assert "AWS_SECRET_ACCESS_KEY" not in seen and "MCPX_SECRET" not in seen


def test_inherit_env_gives_the_names_it_lists(environments: dict[str, dict[str, str]]) -> None:
    """LIF-7: but nothing of MCPX_*."""
    seen = environments["some"]
    assert seen["WANTED"] == "asked for"
    assert "AWS_SECRET_ACCESS_KEY" not in seen and "MCPX_SECRET" not in seen


def test_inherit_env_true_gives_everything_but_ours(
    environments: dict[str, dict[str, str]],
) -> None:
    """LIF-7."""
    seen = environments["all"]
    assert seen["AWS_SECRET_ACCESS_KEY"] == "hidden" and seen["WANTED"] == "asked for"
    assert [name for name in seen if name.startswith("MCPX_")] == ["MCPX_INSIDE"]


def test_a_child_runs_in_the_folder_it_was_given(tmp_path: Path) -> None:
    """LIF-7: a relative one counts from the config's folder; one that is not there is named."""
    command = raw_server("x")["connection"]
    servers = [
        stdio_server(
            "there", [command["command"], *command["args"]], connection={"cwd": str(tmp_path)}
        ),
        stdio_server(
            "nowhere",
            [command["command"], *command["args"]],
            connection={"cwd": str(tmp_path / "no")},
        ),
    ]
    with GatewayProcess({"mcp_servers": servers}) as gateway:
        client = Session(gateway.port)
        pid = structured_content(client.call("there_whoami"))["pid"]
        assert os.readlink(f"/proc/{pid}/cwd") == str(tmp_path)
        assert client.call("nowhere_echo")["error"]["message"].startswith("nowhere: ")
        wait_until(lambda: str(tmp_path / "no") in gateway.stderr())


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks into /proc")
def test_a_crash_leaves_no_core_dump_with_secrets_in_it() -> None:
    """LIF-7: whatever limit it was started with."""
    with GatewayProcess({"mcp_servers": []}) as gateway:
        limits = Path(f"/proc/{gateway.process.pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
        assert line.split()[4] == "0"
