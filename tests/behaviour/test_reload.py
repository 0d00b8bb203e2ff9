"""CFG-5, CFG-7: a configuration that changes under a running gateway, and all that must not change
with it."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from behaviour.compact import held_up
from kit.client import (
    ACCEPT_BOTH,
    WAIT_SECONDS,
    Session,
    StdioClient,
    Stream,
    post,
    post_modern,
    wait_until_settled,
)
from kit.command import MCPX, run_command
from kit.gateway import LISTENS, Gateway, GatewayProcess
from kit.messages import (
    Json,
    initialize_request,
    modern_headers,
    modern_request,
    notification,
    request,
    structured_content,
    text_of,
)
from kit.process import START, Child, stdio_command
from kit.process_tree import ProcessWatch, descendants
from kit.servers import raw_server, stdio_server
from kit.until import wait_until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

QUICK = {"hot_reload_interval": 0.05, "startup_wait": 10, "first_start_wait": 10}
STILL = {"hot_reload": False, "startup_wait": 10, "first_start_wait": 10}
"""The file is read again only when somebody asks for it."""


def config(*servers: Json, **more: Any) -> Json:
    return {"global": {**QUICK, **more.pop("global", {})}, "mcp_servers": list(servers), **more}


def choosy(name: str, *flags: str, **keys: Any) -> Json:
    command = [
        sys.executable,
        "-I",
        "-S",
        str(Path(stdio_command("raw_server.py")[-1]).with_name("choosy_server.py")),
    ]
    return stdio_server(name, [*command, *flags], **keys)


# ---- changing the file, as editors and programs do it


def renamed(file: Path, text: str) -> None:
    new = file.with_name(f".{file.name}.new")
    new.write_text(text)
    new.chmod(0o600)
    os.replace(new, file)


def in_place(file: Path, text: str) -> None:
    file.write_text(text)


def truncated_first(file: Path, text: str) -> None:
    """Empty for a while, longer than one look at it takes."""
    with file.open("w") as opened:
        opened.flush()
        time.sleep(0.1)  # how slow editors write; nothing waits for it
        opened.write(text[: len(text) // 2])
        opened.flush()
        time.sleep(0.1)
        opened.write(text[len(text) // 2 :])


def made_anew(file: Path, text: str) -> None:
    file.unlink()
    time.sleep(0.1)  # as above
    file.write_text(text)
    file.chmod(0o600)


# ---- looking


def count(gateway: Gateway, words: str) -> int:
    return gateway.stderr().count(words)


def after(gateway: Gateway, words: str, act: Callable[[], Any]) -> str:
    """Do something; what mcpx says from then on, up to and with the next line that has these
    words."""
    begun = len(gateway.stderr())
    act()

    def look() -> str | None:
        said = gateway.stderr()[begun:]
        line = next((line for line in said.splitlines() if words in line), None)
        return said if line is not None else None

    try:
        return wait_until(look)
    except AssertionError:
        raise AssertionError(f"mcpx did not say {words!r}:\n{gateway.stderr()[begun:]}") from None


def change(gateway: Gateway, to: Json, how: Callable[[Path, str], None] = renamed) -> str:
    """Write another config and wait until it is taken up; the line of the plan."""
    said = after(gateway, "reloaded: ", lambda: how(gateway.file, json.dumps(to, indent=2)))
    return next(
        line.partition("reloaded: ")[2] for line in said.splitlines() if "reloaded: " in line
    )


def mcpx(gateway: Gateway, *args: str) -> "subprocess.CompletedProcess[str]":
    done = run_command([*args, str(gateway.file)], gateway.folder, gateway.env)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def pid_of(client: Session, server: str) -> int:
    return structured_content(client.call(f"{server}_whoami"))["pid"]


class Ear:
    """Collects the notifications of a stream in the background."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._news = threading.Condition()
        self._heard: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it was cut
            while (event := self._stream.event()) is not None:
                if isinstance(event.get("data"), dict):
                    with self._news:
                        self._heard.append(event["data"].get("method", ""))
                        self._news.notify_all()

    def heard(self) -> Counter[str]:
        with self._news:
            return Counter(self._heard)

    def wait(self, method: str, times: int, seconds: float = WAIT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        with self._news:
            while self._heard.count(method) < times:
                left = deadline - time.monotonic()
                assert left > 0, f"{method} not {times} times: {self._heard}"
                self._news.wait(left)

    def close(self) -> None:
        self._stream.cut()
        self._thread.join(WAIT_SECONDS)


TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


@contextlib.contextmanager
def listening(client: Session) -> Iterator[Ear]:
    stream = client.listen()
    stream.comment()
    ear = Ear(stream)
    try:
        yield ear
    finally:
        ear.close()


@contextlib.contextmanager
def modern_listener(port: int) -> Iterator[Ear]:
    wishes = dict.fromkeys(("toolsListChanged", "promptsListChanged", "resourcesListChanged"), True)
    message = modern_request("subscriptions/listen", {"notifications": wishes}, "ear")
    headers = [
        ("Content-Type", "application/json"),
        ("Accept", ACCEPT_BOTH),
        *modern_headers(message).items(),
    ]
    ear = Ear(Stream(port, "POST", "/mcp", headers, json.dumps(message).encode()))
    try:
        ear.wait(ACKNOWLEDGED, 1)
        yield ear
    finally:
        ear.close()


# ---- the door


@pytest.mark.parametrize("how", [renamed, in_place, truncated_first, made_anew])
def test_a_changed_file_is_taken_up_however_it_was_written(
    how: Callable[[Path, str], None],
) -> None:
    """CFG-5: one reload at the end, and the server that did not change keeps its process."""
    with Gateway(config(raw_server("a"))) as gateway:
        client = Session(gateway.port)
        pid = pid_of(client, "a")
        plan = change(gateway, config(raw_server("a"), raw_server("b")), how)
        assert plan == "1 started (b), 1 kept"
        assert text_of(client.call("b_echo", text="new")) == "new"
        assert pid_of(client, "a") == pid
        assert "Traceback" not in gateway.stderr()


@pytest.mark.parametrize("way", ["mcpx reload", "SIGHUP"])
def test_a_file_that_is_not_watched_is_taken_up_when_somebody_asks(way: str) -> None:
    """CFG-5: by the same door, with the same words."""
    still = {"global": STILL}
    with GatewayProcess(config(raw_server("a"), **still)) as gateway:
        client = Session(gateway.port)
        pid = pid_of(client, "a")

        def act() -> None:
            renamed(gateway.file, json.dumps(config(raw_server("a"), raw_server("b"), **still)))
            if way == "SIGHUP":
                gateway.process.send_signal(signal.SIGHUP)
                return
            done = mcpx(gateway, "reload")
            assert (done.returncode, done.stdout, done.stderr) == (0, "1 started (b), 1 kept\n", "")

        assert "reloaded: 1 started (b), 1 kept" in after(gateway, "reloaded: ", act)
        assert "b_echo" in client.tools()
        assert pid_of(client, "a") == pid
        if way == "mcpx reload":
            done = mcpx(gateway, "reload")
            assert (done.returncode, done.stdout) == (0, "nothing changed\n")


def test_watching_can_be_switched_on_and_off_by_a_reload() -> None:
    """CFG-5: `hot_reload` is a setting like any other."""
    with GatewayProcess(config(raw_server("a"), **{"global": STILL})) as gateway:
        renamed(
            gateway.file, json.dumps(config(raw_server("a"), **{"global": {"hot_reload": True}}))
        )
        after(gateway, "reloaded: ", lambda: gateway.process.send_signal(signal.SIGHUP))
        assert change(gateway, config(raw_server("a"), raw_server("b"))) == "1 started (b), 1 kept"
        change(gateway, config(raw_server("a"), **{"global": STILL}))
        renamed(gateway.file, json.dumps(config(raw_server("b"), **{"global": STILL})))
        said = after(gateway, "reloaded: ", lambda: gateway.process.send_signal(signal.SIGHUP))
        assert "1 started (b), 1 stopped (a)" in said
        assert count(gateway, "reloaded: ") == 4


# ---- under load


class Load(threading.Thread):
    """One client that calls one server after the other, so many times a second, and counts."""

    def __init__(self, port: int, servers: list[str], rate: float) -> None:
        super().__init__(daemon=True)
        self._session = Session(port)
        self._servers, self._pause = servers, 1 / rate
        self._enough = threading.Event()
        self.good = 0
        self.failed: list[Any] = []
        self.start()

    def run(self) -> None:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self._session.port, timeout=WAIT_SECONDS
        )
        headers = {
            "Content-Type": "application/json",
            "Accept": ACCEPT_BOTH,
            **self._session.headers,
        }
        number = 0
        while not self._enough.wait(self._pause):
            number += 1
            tool = f"{self._servers[number % len(self._servers)]}_echo"
            body = json.dumps(
                request("tools/call", {"name": tool, "arguments": {"text": str(number)}}, number)
            )
            try:
                connection.request("POST", "/mcp", body, headers)
                answer = json.loads(connection.getresponse().read())
                if text_of(answer) == str(number) and answer["id"] == number:
                    self.good += 1
                else:
                    self.failed.append(answer)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a failed call
                self.failed.append(repr(error))
        connection.close()

    def stop(self) -> None:
        self._enough.set()
        self.join(WAIT_SECONDS)


def test_adding_removing_and_changing_one_of_ten_servers_disturbs_none_of_the_other_seven() -> None:
    """CFG-5, LIF-4: under 200 calls a second no call fails, process ids stay, one notice for each
    kind that differs, and calls that run on what goes finish."""
    names = [f"s{number}" for number in range(9)]
    kept = names[:7]
    before = [
        *(raw_server(name) for name in names[:-1]),
        choosy("s8", "--prompts", "1"),
        choosy("s9", "--prompts", "1"),
    ]
    changed = raw_server("s7", "--name-count", "1")
    then = [*before[:7], changed, before[8], choosy("s10", "--prompts", "1")]
    # s9 goes, s10 comes, s7 changes: tools and prompts differ, resources do not.
    with Gateway(config(*before)) as gateway:
        client = Session(gateway.port)
        client.tools()
        pids = {name: pid_of(client, name) for name in kept}
        loads = [Load(gateway.port, kept, 50) for _ in range(4)]
        try:
            with listening(client) as ear, modern_listener(gateway.port) as modern_ear:
                running = client.start_call("s7_sleep", seconds=3)
                wait_until(lambda: min(load.good for load in loads) > 20)
                plan = change(gateway, config(*then))
                assert plan == "1 started (s10), 1 restarted (s7), 1 stopped (s9), 8 kept"
                assert text_of(running.reply().message) == "slept"
                ear.wait(TOOLS, 1)
                so_far = [load.good for load in loads]
                wait_until(
                    lambda: all(
                        load.good > past + 20 for load, past in zip(loads, so_far, strict=True)
                    )
                )
                tools = client.tools()
                assert "s7_tool_0" in tools and "s10_plain" in tools and "s9_plain" not in tools
                # Another change, whose notice comes after every notice of the first.
                change(gateway, config(*then, raw_server("s11")))
                for one in (ear, modern_ear):
                    one.wait(TOOLS, 2)
                    heard = one.heard()
                    assert (heard[TOOLS], heard[PROMPTS], heard[RESOURCES]) == (2, 1, 0)
        finally:
            for load in loads:
                load.stop()
        assert [failure for load in loads for failure in load.failed] == []
        assert {name: pid_of(client, name) for name in kept} == pids
        assert "Traceback" not in gateway.stderr()


def test_calls_that_run_on_a_server_that_is_removed_or_switched_off_finish(tmp_path: Path) -> None:
    """CFG-5: and after that its process is gone."""
    with Gateway(config(raw_server("gone"), raw_server("off"), raw_server("stays"))) as gateway:
        client = Session(gateway.port)
        with ProcessWatch([pid_of(client, "gone"), pid_of(client, "off")]) as watch:
            enough = tmp_path / "enough"
            running = [
                client.start_call(f"{name}_sleep", seconds=60, until=str(enough))
                for name in ("gone", "off")
            ]
            assert (
                text_of(client.call("stays_echo", text="x")) == "x"
            )  # the two before it have arrived
            change(gateway, config(raw_server("off", enabled=False), raw_server("stays")))
            assert client.call("gone_echo", text="x")["error"]["code"] == -32602
            assert client.call("off_echo", text="x")["error"]["code"] == -32602
            assert len(watch.left(0)) == 2
            enough.touch()
            assert [text_of(stream.reply().message) for stream in running] == ["slept", "slept"]
            assert watch.left(WAIT_SECONDS) == []


def test_what_comes_later_than_three_seconds_is_announced_when_it_comes(tmp_path: Path) -> None:
    """CFG-5: the rest is shown without it."""
    at_once = {"global": {"startup_wait": 0, "first_start_wait": 0}}
    slow = raw_server("slow", "--start-when", str(tmp_path / "now"))
    with Gateway(config(raw_server("a"), **at_once)) as gateway:
        client = Session(gateway.port)
        pid_of(client, "a")
        client.tools()
        with listening(client) as ear:
            began = time.monotonic()
            change(gateway, config(raw_server("a"), raw_server("quick"), slow, **at_once))
            assert time.monotonic() - began > 2.5
            ear.wait(TOOLS, 1)
            tools = client.tools()
            assert "quick_echo" in tools and "slow_echo" not in tools
            (tmp_path / "now").touch()
            ear.wait(TOOLS, 2)
            assert "slow_echo" in client.tools()
            assert ear.heard() == {TOOLS: 2}


def test_a_server_that_no_longer_starts_keeps_its_tools_and_calls_say_why(tmp_path: Path) -> None:
    """CFG-5, LIF-4: the old process serves until the new state is shown; then what it offered stays
    listed, as of any server that is down, until the new one says itself what it offers."""
    broken = tmp_path / "broken"
    broken.touch()
    fails = held_up(raw_server("b", "--name-count", "1", retry_delay=60), broken, exits=True)
    with Gateway(config(raw_server("a"), raw_server("b"))) as gateway:
        client = Session(gateway.port)
        before, kept, old = client.tools(), pid_of(client, "a"), pid_of(client, "b")
        with listening(client) as ear, ProcessWatch([old]) as watch:
            began = time.monotonic()
            assert change(gateway, config(raw_server("a"), fails)) == "1 restarted (b), 1 kept"
            assert time.monotonic() - began > 2.5
            assert client.tools() == before
            message = client.call("b_echo", text="x")["error"]["message"]
            assert message.startswith("b: ") and "exited with code 7" in message, message
            assert watch.left(WAIT_SECONDS) == []
            assert wait_until_settled(gateway.port)["b"]["status"] == "disconnected"
            broken.unlink()
            assert text_of(client.call("b_tool_0", text="new")) == "new"
            ear.wait(TOOLS, 1)
            assert client.tools() == [*before, "b_tool_0"]
            assert ear.heard() == {TOOLS: 1}
        assert pid_of(client, "a") == kept


# ---- files that are no good


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "config.json is empty"),
        ('{"mcp_servers": [', "config.json:1:18"),
        ('{\n  "mcp_servers": [{"name": 5}]\n}', "config.json:2:"),
        ("[]", "config.json holds no mapping"),
        (None, "config.json"),
    ],
    ids=["empty", "half written", "wrong", "not an object", "missing"],
)
def test_a_bad_file_changes_nothing_says_why_and_is_recovered_from(
    text: str | None, says: str
) -> None:
    """CFG-5: by `mcpx reload` and by the watcher alike; the next good file is taken up without
    being asked."""
    with Gateway(config(raw_server("a"))) as gateway:
        client = Session(gateway.port)
        pid = pid_of(client, "a")

        def act() -> None:
            if text is None:
                gateway.file.unlink()
            else:
                renamed(gateway.file, text)

        said = after(gateway, "nothing was changed", act)
        assert says in said, said
        assert pid_of(client, "a") == pid
        done = mcpx(gateway, "reload")
        if text is not None:  # a file that was named and is not there is a mistake of its own
            assert says in done.stderr and "Nothing was changed" in done.stderr
        assert done.returncode == 2
        assert change(gateway, config(raw_server("a"), raw_server("b"))) == "1 started (b), 1 kept"
        assert pid_of(client, "a") == pid
        assert text_of(client.call("b_echo", text="x")) == "x"
        assert "Traceback" not in gateway.stderr()


def test_a_storm_of_edits_ends_in_the_last_state() -> None:
    """CFG-5: good and bad files in turn, some half written, with people asking for reloads in
    between."""
    with GatewayProcess(config(raw_server("a"))) as gateway:
        client = Session(gateway.port)
        pid = pid_of(client, "a")
        for number in range(50):
            text = json.dumps(
                config(
                    raw_server("a"),
                    raw_server(f"b{number % 5}"),
                    raw_server("c", prefix=f"c{number}"),
                )
            )
            [renamed, in_place][number % 2](
                gateway.file, text[: len(text) // 2] if number % 3 == 0 else text
            )
            if number % 10 == 0:
                gateway.process.send_signal(signal.SIGHUP)
        wait_until(lambda: {"b4_echo", "c49_echo"} <= set(client.tools()))
        assert [name for name in client.tools() if name.endswith("_echo")] == [
            "a_echo",
            "b4_echo",
            "c49_echo",
        ]
        assert pid_of(client, "a") == pid
        assert len(descendants(gateway.process.pid)) >= 3
        wait_until(lambda: mcpx(gateway, "reload").stdout == "nothing changed\n")
        # A server and, where there is one, the keeper: of the servers that came and went nothing is
        # left.
        alive = {pid_of(client, name) for name in ("a", "b4", "c49")}
        wait_until(lambda: len(raw_servers(gateway.process.pid)) == len(alive))
        assert "Traceback" not in gateway.stderr()


def raw_servers(pid: int) -> set[int]:
    found = set()
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            if b"raw_server.py" in Path("/proc", str(child), "cmdline").read_bytes():
                found.add(child)
    return found


# ---- who is connected


def test_sessions_and_listeners_of_every_kind_survive_a_reload() -> None:
    """CFG-5, FRO: older HTTP, SSE, WebSocket and modern listeners; each is told, each goes on."""
    first, second = config(raw_server("a")), config(raw_server("a"), raw_server("b"))
    call = {"name": "b_echo", "arguments": {"text": "hello"}}
    with contextlib.ExitStack() as stack:
        gateway = stack.enter_context(Gateway(first))
        client = Session(gateway.port)
        client.tools()
        ears = [
            stack.enter_context(listening(client)),
            stack.enter_context(modern_listener(gateway.port)),
        ]
        events = stack.enter_context(
            Stream(gateway.port, "GET", "/sse", [("Accept", "text/event-stream")])
        )
        path = events.data()
        assert post(gateway.port, initialize_request(), path=path).status == 202
        assert events.data()["id"] == 0
        assert (
            post(gateway.port, notification("notifications/initialized"), path=path).status == 202
        )
        url = f"ws://127.0.0.1:{gateway.port}/ws"
        socket = stack.enter_context(
            connect(url, subprotocols=[Subprotocol("mcp")], open_timeout=WAIT_SECONDS)
        )
        socket.send(json.dumps(initialize_request()))
        assert json.loads(socket.recv(WAIT_SECONDS))["id"] == 0
        socket.send(json.dumps(notification("notifications/initialized")))
        socket.send(json.dumps(request("ping", {}, 1)))
        assert json.loads(socket.recv(WAIT_SECONDS))["id"] == 1

        change(gateway, second)
        for ear in ears:
            ear.wait(TOOLS, 1)
        assert json.loads(socket.recv(WAIT_SECONDS))["method"] == TOOLS
        socket.send(json.dumps(request("tools/call", call, 2)))
        assert text_of(json.loads(socket.recv(WAIT_SECONDS))) == "hello"
        assert events.data()["method"] == TOOLS
        assert post(gateway.port, request("tools/call", call, 3), path=path).status == 202
        assert text_of(events.data()) == "hello"
        assert text_of(client.call("b_echo", text="hello")) == "hello"
        assert (
            text_of(post_modern(gateway.port, modern_request("tools/call", call)).message)
            == "hello"
        )


def test_the_client_of_a_pipe_keeps_its_conversation_over_a_reload() -> None:
    """CFG-5: and SIGHUP is no reason to end."""
    with (
        GatewayProcess(config(raw_server("a")), transport="stdio") as gateway,
        StdioClient(gateway.stdio_command, gateway.env) as client,
    ):
        client.greet()
        assert len(client.request("tools/list")["result"]["tools"]) == 8
        pid = structured_content(client.call("a_whoami"))["pid"]
        running = client.start_call("a_sleep", seconds=1)
        renamed(gateway.file, json.dumps(config(raw_server("a", prefix="z"), raw_server("b"))))
        client.process.send_signal(signal.SIGHUP)
        seen = [client.message()]
        while seen[-1].get("method") != TOOLS:
            seen.append(client.message())
        assert structured_content(client.call("z_whoami"))["pid"] == pid
        assert text_of(client.call("b_echo", text="x")) == "x"
        early = [message for message in seen if message.get("id") == running]
        assert text_of(early[0] if early else client.reply(running)) == "slept"
        assert client.finish() == 0


# ---- what a change does, and what it does not


def test_settings_a_living_server_can_take_up_do_not_restart_it() -> None:
    """CFG-5, NAM-1: another prefix renames, at once and for everybody; timeouts count from the next
    call on."""
    with Gateway(config(raw_server("a"))) as gateway:
        client = Session(gateway.port)
        pid = pid_of(client, "a")
        assert "a_echo" in client.tools()
        with listening(client) as ear:
            plan = change(gateway, config(raw_server("a", description="another", call_timeout=1.5)))
            assert plan == "1 updated (a)"
            assert "1.5" in client.call("a_sleep", seconds=30)["error"]["message"]
            assert pid_of(client, "a") == pid
            assert (
                change(gateway, config(raw_server("a", prefix="z", call_timeout=30)))
                == "1 updated (a)"
            )
            ear.wait(TOOLS, 1)
            assert [name for name in client.tools() if name.endswith("_echo")] == ["z_echo"]
            assert pid_of(client, "z") == pid
            assert client.call("a_echo", text="x")["error"]["code"] == -32602
            assert ear.heard() == {TOOLS: 1}


def test_another_naming_renames_everything_without_a_restart() -> None:
    """CFG-5, NAM-1."""
    with Gateway(config(raw_server("a", prefix=None))) as gateway:
        client = Session(gateway.port)
        assert "echo" in client.tools()
        pid = structured_content(client.call("whoami"))["pid"]
        plan = change(gateway, config(raw_server("a", prefix=None), naming={"prefix": "always"}))
        assert plan.endswith("settings: naming.prefix"), plan
        assert "echo" not in client.tools()
        assert pid_of(client, "a") == pid


def test_a_name_that_was_given_stays_when_its_rival_comes_and_goes() -> None:
    """NAM-1: who is told apart is told apart for good."""
    a, b = raw_server("a", prefix=None), raw_server("b", prefix=None)
    with Gateway(config(a)) as gateway:
        client = Session(gateway.port)
        pid = structured_content(client.call("whoami"))["pid"]
        client.tools()
        change(gateway, config(b, a))
        tools = client.tools()
        assert "echo" in tools and "b_echo" in tools
        assert structured_content(client.call("whoami"))["pid"] == pid
        other = structured_content(client.call("b_whoami"))["pid"]
        change(gateway, config(b))
        assert "b_echo" in client.tools() and "echo" not in client.tools()
        assert structured_content(client.call("b_whoami"))["pid"] == other


def test_switching_a_server_off_ends_its_processes_and_switching_it_on_brings_it_back() -> None:
    """CFG-5, LIF-4, LIF-7: grandchildren that left the session included."""
    hard = ("--spawn-grandchild", "--ignore-term")
    with Gateway(config(raw_server("a"), raw_server("hard", *hard))) as gateway:
        client = Session(gateway.port)
        kept = pid_of(client, "a")
        pid, grandchild = pid_of(client, "hard"), int(text_of(client.call("hard_grandchild")))
        with ProcessWatch([pid, grandchild]) as watch:
            plan = change(
                gateway, config(raw_server("a"), raw_server("hard", *hard, enabled=False))
            )
            assert plan == "1 stopped (hard), 1 kept"
            assert not any(name.startswith("hard_") for name in client.tools())
            assert watch.left(WAIT_SECONDS) == []
        assert wait_until_settled(gateway.port)["hard"]["status"] == "disabled"
        assert (
            change(gateway, config(raw_server("a"), raw_server("hard", *hard)))
            == "1 started (hard), 1 kept"
        )
        assert pid_of(client, "hard") != pid
        assert pid_of(client, "a") == kept


def test_settings_of_the_gateway_are_taken_up_or_said_to_need_a_restart() -> None:
    """CFG-5: nothing is passed over in silence."""
    with GatewayProcess(config(raw_server("a"))) as gateway:
        client = Session(gateway.port, path="/mcp/direct")
        pid = pid_of(client, "a")
        more: Json = {
            "mode": "search",
            "server": {"port": 1234},
            "global": {"log_level": "DEBUG", "menu_budget": 5},
        }
        said = after(
            gateway,
            "reloaded: ",
            lambda: renamed(gateway.file, json.dumps(config(raw_server("a"), **more))),
        )
        assert "needs a restart: server.port" in said
        assert "settings: mode, global.log_level, global.menu_budget" in said
        assert "mcp_search_tools" in Session(gateway.port).tools()
        assert pid_of(client, "a") == pid
        quiet = config(
            raw_server("a"), **{**more, "global": {"log_level": "ERROR", "menu_budget": 5}}
        )
        renamed(gateway.file, json.dumps(quiet))
        wait_until(lambda: mcpx(gateway, "reload").stdout == "nothing changed\n")
        begun = len(gateway.stderr())
        renamed(
            gateway.file,
            json.dumps(
                config(raw_server("a"), raw_server("b"), **{"global": {"log_level": "ERROR"}})
            ),
        )
        wait_until(lambda: "b_echo" in client.tools())
        assert " INFO " not in gateway.stderr()[begun:]
        assert pid_of(client, "a") == pid


def test_a_log_level_of_the_command_line_wins_over_a_changed_file() -> None:
    """CFG-5, RUN-2."""
    with GatewayProcess(config(raw_server("a")), "--log-level", "INFO") as gateway:
        change(gateway, config(raw_server("a"), **{"global": {"log_level": "ERROR"}}))
        assert change(gateway, config(raw_server("b"))).startswith("1 started (b)")


# ---- what else is watched


def test_files_that_a_config_refers_to_are_watched() -> None:
    """CFG-5: `.env` beside it and `${file:…}`; only the server that uses them is started anew."""
    with Gateway(config(raw_server("a"))) as gateway:
        (gateway.folder / "secret").write_text("one")
        (gateway.folder / "secret").chmod(0o600)
        (gateway.folder / ".env").write_text("FROM_ENV=first\n")
        (gateway.folder / ".env").chmod(0o600)
        b = raw_server(
            "b", connection={"env": {"SECRET": "${file:secret}", "OTHER": "${FROM_ENV}"}}
        )
        change(gateway, config(raw_server("a"), b))
        client = Session(gateway.port)
        pid = pid_of(client, "a")

        def seen() -> tuple[str, str]:
            env = structured_content(client.call("b_whoami"))["env"]
            return env["SECRET"], env["OTHER"]

        assert seen() == ("one", "first")
        said = after(gateway, "reloaded: ", lambda: (gateway.folder / "secret").write_text("two"))
        assert "1 restarted (b), 1 kept" in said
        assert seen() == ("two", "first")
        after(
            gateway, "reloaded: ", lambda: (gateway.folder / ".env").write_text("FROM_ENV=second\n")
        )
        assert seen() == ("two", "second")
        assert pid_of(client, "a") == pid
        assert "two" not in gateway.stderr()


@contextlib.contextmanager
def serving(folder: Path, path: Path, *args: str) -> Iterator[tuple[Child, int]]:
    env = {**os.environ, "MCPX_STATE_DIR": str(folder / "state")}
    with Child([*MCPX, str(path), *args, "--transport", "http", "--port", "0"], env) as child:
        listens = child.stderr.wait_for(LISTENS, START)
        assert listens is not None, child.stderr.text
        yield child, int(listens[1])
        child.process.send_signal(signal.SIGTERM)
        assert child.process.wait(WAIT_SECONDS) == 0
    assert "Traceback" not in child.stderr.text


def put(file: Path, value: Json) -> Path:
    file.write_text(json.dumps(value))
    file.chmod(0o600)
    return file


def test_an_overlay_is_watched_also_while_it_is_not_there(tmp_path: Path) -> None:
    """CFG-7: `--env prod`; another environment's overlay is none of its business."""
    file = put(tmp_path / "mcpx.json", config(raw_server("a")))
    overlay = put(tmp_path / "mcpx.prod.json", {"mcp_servers": [{"name": "a", "prefix": "p"}]})
    with serving(tmp_path, file, "--env", "prod") as (child, port):
        client = Session(port)
        pid = pid_of(client, "p")
        put(tmp_path / "mcpx.dev.json", {"mcp_servers": [{"name": "a", "prefix": "d"}]})
        put(overlay, {"mcp_servers": [{"name": "a", "prefix": "q"}]})
        assert child.stderr.wait_for(r"reloaded: 1 updated \(a\)", WAIT_SECONDS)
        assert pid_of(client, "q") == pid


def test_a_folder_is_watched_for_files_that_come_and_go(tmp_path: Path) -> None:
    """CFG-7."""
    folder = tmp_path / "conf"
    folder.mkdir()
    put(folder / "1.json", config(raw_server("a")))
    with serving(tmp_path, folder) as (child, port):
        client = Session(port)
        pid = pid_of(client, "a")
        put(folder / "2.json", {"mcp_servers": [raw_server("b")]})
        assert child.stderr.wait_for(r"reloaded: 1 started \(b\), 1 kept", WAIT_SECONDS), (
            child.stderr.text
        )
        (folder / "2.json").unlink()
        assert child.stderr.wait_for(r"reloaded: 1 stopped \(b\), 1 kept", WAIT_SECONDS), (
            child.stderr.text
        )
        assert pid_of(client, "a") == pid


# ---- the end


def test_an_end_in_the_middle_of_a_reload_is_clean() -> None:
    """CFG-5, LIF-7, LIF-8: what was being started ends with the rest."""
    with GatewayProcess(config(raw_server("a"), **{"global": STILL})) as gateway:
        client = Session(gateway.port)
        pid_of(client, "a")
        slow = raw_server("slow", "--start-delay", "30")
        renamed(gateway.file, json.dumps(config(slow, **{"global": STILL})))
        reload = subprocess.Popen(
            [*MCPX, "reload", str(gateway.file)],
            env=gateway.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            wait_until(lambda: len(raw_servers(gateway.process.pid)) == 2)
            with ProcessWatch(descendants(gateway.process.pid)) as watch:
                gateway.process.send_signal(signal.SIGTERM)
                assert gateway.process.wait(WAIT_SECONDS) == 0
                assert watch.left(WAIT_SECONDS) == []
            assert "Traceback" not in gateway.stderr()
        finally:
            out, err = reload.communicate(timeout=WAIT_SECONDS)
        assert b"Traceback" not in out + err
