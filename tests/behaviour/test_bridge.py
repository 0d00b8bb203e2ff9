"""RUN-2, LIF-1, LIF-8: one gateway for all clients. Each test has a configuration, a state folder
and a home of its own; what was started in the background is gone when it ends, or the test fails.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kit.client import WAIT_SECONDS, StdioClient
from kit.command import MCPX
from kit.gateway import measured
from kit.messages import META, MODERN, Json, initialize_request, notification, request
from kit.process import Child
from kit.process_tree import ProcessWatch
from kit.servers import odd_server, recorded_messages
from kit.terminal import Terminal
from kit.until import wait_until
from mcpx.model.errors import GATEWAY_ENDING, SERVER_DOWN
from mcpx.wire import channels

CHANGED = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]
LINGER = "0.3"
SMALL = 20_000
"""KiB a bridge may take."""


class Shared:
    """A configuration for which gateways are started by those who need them."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.folder = folder
        self.record = folder / "record"
        self.state = folder / "state"
        self.file = folder / "mcpx.json"
        self.write(mcp_servers=[odd_server("odd", self.record)], **config)
        ours = {name: value for name, value in os.environ.items() if not name.startswith("MCPX_")}
        homes = {"HOME": str(folder), "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        self.env = {**ours, **homes, "MCPX_STATE_DIR": str(self.state), "MCPX_LINGER": LINGER}
        self.stack = ExitStack()

    def write(self, **config: Any) -> None:
        self.file.write_text(json.dumps(config), encoding="utf-8")
        self.file.chmod(0o600)

    @property
    def place(self) -> Path:
        return channels.socket_path(self.state, self.file, None)

    def begin(
        self, *args: str, framing: str = "newline", counted: bool = True, **env: str
    ) -> StdioClient:
        """A client, which has said nothing yet. The lines of its bridge are `counted` where lines
        are."""
        program = [sys.executable, *measured(), "-m", "mcpx"] if counted else MCPX
        command = [*program, str(self.file), "--transport", "stdio", *args]
        return self.stack.enter_context(StdioClient(command, {**self.env, **env}, framing=framing))

    def client(self, *args: str, framing: str = "newline", **env: str) -> StdioClient:
        pipe = self.begin(*args, framing=framing, **env)
        pipe.greet()
        return pipe

    def ask(self, verb: str) -> Json:
        before = os.environ.get("MCPX_CHANNEL")
        os.environ.update(
            {"MCPX_CHANNEL": self.env["MCPX_CHANNEL"]} if "MCPX_CHANNEL" in self.env else {}
        )
        try:
            with (
                channels.dial(self.place, WAIT_SECONDS) as connected,
                connected.makefile("rwb") as lines,
            ):
                lines.write(json.dumps({"do": verb}).encode() + b"\n")
                lines.flush()
                return json.loads(lines.readline())
        finally:
            if before is None:
                os.environ.pop("MCPX_CHANNEL", None)

    def attached(self) -> list[int]:
        return [client["pid"] for client in self.ask("status")["attached"]]

    @property
    def log(self) -> str:
        return "".join(file.read_text() for file in sorted(self.state.glob("logs/gateway-*.log")))

    @property
    def started(self) -> list[int]:
        """Gateways that were started in the background, in order."""
        return [
            int(pid) for pid in re.findall(r"runs in the background on .*, process (\d+)", self.log)
        ]

    def terminal(self) -> Child:
        """A gateway that somebody started in a terminal."""
        child = self.stack.enter_context(Child([*MCPX, str(self.file), "--port", "0"], self.env))
        assert child.stderr.wait_for(r"http://127\.0\.0\.1:(\d+)/mcp", WAIT_SECONDS) is not None, (
            child.stderr.text
        )
        return child

    def close(self) -> None:
        try:
            self.stack.close()
        finally:
            with ProcessWatch(self.started) as gateways:
                left = gateways.left(WAIT_SECONDS)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        assert left == [], self.log
        assert "Traceback" not in self.log, self.log


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    it = Shared(tmp_path)
    try:
        yield it
    finally:
        it.close()


def said(answer: Json) -> str:
    return answer["result"]["content"][0]["text"]


def begun(shared: Shared, tool: str, times: int = 1) -> None:
    """The server has got so many calls of a tool."""
    wait_until(lambda: len(calls(shared, tool)) == times)


def calls(shared: Shared, tool: str) -> list[Json]:
    return [
        call
        for call in recorded_messages(shared.record, "tools/call")
        if call["params"]["name"] == tool
    ]


def heard(pipe: StdioClient, after: int = 0) -> list[str]:
    """Notifications so far, up to the answer of a ping."""
    pipe.request("ping")
    return [message["method"] for message in pipe._others[after:]]  # pyright: ignore[reportPrivateUsage]


def kib(pid: int) -> int:
    return int(re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[0])


# ---- one for all


def test_five_clients_that_come_at_once_share_one_gateway_and_one_server(shared: Shared) -> None:
    """RUN-2: whoever loses the race to start one attaches to the winner's."""
    pipes = [shared.begin() for _ in range(5)]
    for pipe in pipes:
        pipe.greet()
    for number, pipe in enumerate(pipes):
        assert said(pipe.call("odd_echo", text=f"client {number}")) == f"client {number}"
    assert len(shared.started) == 1
    assert sorted(shared.attached()) == sorted(pipe.process.pid for pipe in pipes)
    assert len(recorded_messages(shared.record, "initialize")) == 1
    for pipe in pipes[1:]:
        assert pipe.finish() == 0
    wait_until(lambda: len(shared.attached()) == 1)
    assert said(pipes[0].call("odd_echo", text="still")) == "still"
    assert [pipe.stderr.text for pipe in pipes] == [""] * 5


def test_the_gateway_ends_some_time_after_its_last_client_and_leaves_nothing(
    shared: Shared,
) -> None:
    """LIF-8: no process, no socket."""
    pipe = shared.client()
    assert said(pipe.call("odd_echo", text="x")) == "x"
    server = json.loads(said(pipe.call("odd_whoami")))["pid"]
    with ProcessWatch([*shared.started, server]) as processes:
        assert len(processes) == 2
        assert pipe.finish() == 0
        assert processes.left(WAIT_SECONDS) == []
    assert not channels.is_taken(shared.place)
    assert "no client is left" in shared.log


def test_a_gateway_in_the_background_is_nobodys_child(shared: Shared) -> None:
    """A client program that ends all that descends from it does not end the gateway of the
    others."""
    pipe = shared.client()
    (gateway,) = shared.started
    parent = int(Path(f"/proc/{gateway}/stat").read_text().rpartition(")")[2].split()[1])
    assert parent != pipe.process.pid
    assert os.getsid(gateway) != os.getsid(pipe.process.pid)


def test_a_config_is_one_by_whatever_name_its_folder_is_reached(shared: Shared) -> None:
    """RUN-2: the folder of a project may be a link; `mcpx status` finds the gateway by either."""
    real = shared.folder / "real"
    real.mkdir()
    shared.file.rename(real / "mcpx.json")
    link = shared.folder / "link"
    link.symlink_to(real)
    for name, folder in (
        (real / "mcpx.json", None),
        ("../link/mcpx.json", real),
        ("mcpx.json", link),
    ):
        pipe = shared.stack.enter_context(StdioClient([*MCPX, str(name)], shared.env, cwd=folder))
        pipe.greet()
        told = [*MCPX, "status", "--json", "--config", str(name)]
        status = subprocess.run(
            told, env=shared.env, cwd=folder, capture_output=True, check=True, timeout=WAIT_SECONDS
        )
        assert json.loads(status.stdout)["pid"] == shared.started[0]
    assert len(shared.started) == 1


def test_mode_and_profile_are_each_clients_own(tmp_path: Path) -> None:
    """SUR-1: one sees every tool, the other three."""
    shared = Shared(tmp_path, profiles=[{"name": "narrow", "tools": ["odd.echo"]}])
    try:
        plain, compact, narrow = (
            shared.client(),
            shared.client("--mode", "search"),
            shared.client("--profile=narrow"),
        )
        tools = [
            {tool["name"] for tool in pipe.request("tools/list")["result"]["tools"]}
            for pipe in (plain, compact)
        ]
        assert (
            "odd_echo" in tools[0] and "odd_echo" not in tools[1] and "mcp_search_tools" in tools[1]
        )
        assert [tool["name"] for tool in narrow.request("tools/list")["result"]["tools"]] == [
            "odd_echo"
        ]
        assert len(shared.started) == 1 and len(shared.attached()) == 3
    finally:
        shared.close()


def test_standalone_is_a_gateway_of_its_own_and_makes_way_for_the_shared_one(
    shared: Shared,
) -> None:
    """RUN-2: `--standalone` and its twin; who comes after shares all the same."""
    alone, twin = shared.client("--standalone"), shared.client(MCPX_STANDALONE="1")
    assert shared.started == []
    assert shared.ask("status")["role"] == "alone"
    one, other = shared.client(), shared.client()
    assert shared.attached() == [one.process.pid, other.process.pid]
    assert len(shared.started) == 1
    for number, pipe in enumerate((alone, twin, one, other)):
        assert said(pipe.call("odd_echo", text=str(number))) == str(number)


@pytest.mark.parametrize("framing", ["newline", "content-length"])
def test_both_framings_are_answered_in_kind(shared: Shared, framing: str) -> None:
    """RUN-2: a body may have line ends between its words, too."""
    pipe = shared.client(framing=framing)
    assert said(pipe.call("odd_echo", text="line\nend")) == "line\nend"
    if framing == "content-length":
        body = json.dumps(
            request("tools/call", {"name": "odd_echo", "arguments": {"text": "x"}}, "y"), indent=1
        )
        pipe.send(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        assert said(pipe.reply("y")) == "x"
    assert pipe.finish() == 0


# ---- gateways end, clients stay


def test_a_killed_gateway_is_replaced_and_no_call_is_made_twice(shared: Shared) -> None:
    """LIF-1: the next calls of all work; the call that ran fails once, and its effect is not
    repeated."""
    pipes = [shared.client() for _ in range(5)]
    for pipe in pipes:
        assert said(pipe.call("odd_echo", text="before")) == "before"
    running = pipes[0].start_call("odd_sleep", seconds=30)
    begun(shared, "sleep")
    os.kill(shared.started[0], signal.SIGKILL)
    error = pipes[0].reply(running)["error"]
    assert error["code"] == GATEWAY_ENDING and "may have had an effect" in error["message"]
    for pipe in pipes:
        assert said(pipe.call("odd_echo", text="after")) == "after"
    assert len(shared.started) == 2
    assert len(calls(shared, "sleep")) == 1
    for pipe in pipes:
        assert [method for method in heard(pipe) if method in CHANGED][:3] == CHANGED
    assert sorted(shared.attached()) == sorted(pipe.process.pid for pipe in pipes)
    assert all(pipe.finish() == 0 for pipe in pipes)


def test_what_no_gateway_can_give_any_more_is_told_and_comes_back_with_the_config(
    tmp_path: Path,
) -> None:
    """RUN-2: a profile that is gone with its gateway: none is started again and again for it, and
    nothing is lost."""
    shared = Shared(tmp_path, profiles=[{"name": "p"}])
    try:
        pipe = shared.client("--profile", "p")
        good = shared.file.read_text()
        shared.write(mcp_servers=[odd_server("odd", shared.record)])
        os.kill(shared.started[0], signal.SIGKILL)
        assert pipe.stderr.wait_for("no gateway: no profile is named 'p'", WAIT_SECONDS), (
            pipe.stderr.text
        )
        waits = pipe.start_call("odd_echo", text="waits")
        shared.file.write_text(good)
        assert said(pipe.reply(waits, 30)) == "waits"
        assert "of its own" not in pipe.stderr.text
        assert len([method for method in heard(pipe) if method in CHANGED]) == len(CHANGED)
        assert pipe.finish() == 0
    finally:
        shared.close()


def test_a_gateway_of_its_own_that_cannot_start_gets_no_request(shared: Shared) -> None:
    """LIF-1: what was sent to nobody had no effect, and waits for somebody who answers."""
    good = shared.file.read_text().replace('"mcp_servers"', '"mode": "${THE_MODE}", "mcp_servers"')
    shared.file.write_text(good)
    pipe = shared.client(THE_MODE="direct")
    shared.env["THE_MODE"] = "search"
    shared.terminal()
    assert pipe.stderr.wait_for("THE_MODE; this client gets a gateway of its own", WAIT_SECONDS), (
        pipe.stderr.text
    )
    assert said(pipe.call("odd_echo", text="by its own")) == "by its own"
    shared.file.write_text("{")
    bridge = pipe.process.pid
    own = [int(pid) for pid in Path(f"/proc/{bridge}/task/{bridge}/children").read_text().split()]
    for pid in own:
        os.kill(pid, signal.SIGKILL)
    assert pipe.stderr.wait_for(
        "no gateway: a gateway of its own could not be started", WAIT_SECONDS
    ), pipe.stderr.text
    waits = pipe.start_call("odd_echo", text="waits")
    shared.file.write_text(good)
    assert said(pipe.reply(waits, 30)) == "waits"
    assert pipe.finish() == 0


def test_a_call_that_was_never_sent_is_not_said_to_have_run(shared: Shared) -> None:
    """LIF-8: the client leaves while no gateway can be had."""
    pipe = shared.client()
    shared.file.write_text("{")
    os.kill(shared.started[0], signal.SIGKILL)
    assert pipe.stderr.wait_for("no gateway", WAIT_SECONDS)
    call = pipe.start_call("odd_echo", text="x")
    pipe.end_input()
    error = pipe.reply(call)["error"]
    assert error["code"] == SERVER_DOWN and "not sent" in error["message"], error
    assert pipe.wait() == 0


def test_who_the_client_is_and_what_it_subscribed_to_is_said_again(shared: Shared) -> None:
    """PRO-3, PRO-4: level and client survive; requests without effect are asked again."""
    pipe = shared.client()
    assert "result" in pipe.request("logging/setLevel", {"level": "warning"})
    os.kill(shared.started[0], signal.SIGKILL)
    asked = [
        pipe.start("tools/list"),
        pipe.start("prompts/list"),
        pipe.start("ping"),
        pipe.start("resources/list"),
    ]
    assert all("result" in pipe.reply(id) for id in asked)
    assert shared.ask("status")["attached"][0]["client"] is not None
    assert "result" in pipe.call("odd_log", text="heard")
    assert "notifications/message" in heard(pipe)
    assert "error" in pipe.request(
        "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}
    )


def envelope(**more: Any) -> Json:
    about = {f"{META}protocolVersion": MODERN, f"{META}clientInfo": {"name": "m", "version": "1"}}
    return {"_meta": {**about, f"{META}clientCapabilities": {}}, **more}


def test_a_modern_listening_goes_on_at_the_next_gateway(shared: Shared) -> None:
    """PRO-1, PRO-4: it is acknowledged once, told of changes, and ends with the client."""
    pipe = shared.begin()
    pipe.send(
        request("subscriptions/listen", envelope(notifications={"toolsListChanged": True}), "l")
    )
    acknowledged = pipe.message()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    os.kill(shared.started[0], signal.SIGKILL)
    told = pipe.message()
    assert (told["method"], told["params"]["_meta"][f"{META}subscriptionId"]) == (CHANGED[0], "l")
    pipe.send(request("tools/call", envelope(name="odd_echo", arguments={"text": "x"}), "c"))
    assert said(pipe.reply("c")) == "x"
    os.kill(shared.started[1], signal.SIGTERM)
    told = [pipe.message() for _ in range(1)]
    assert told[0]["method"] == CHANGED[0]
    pipe.end_input()
    assert [answer["id"] for answer in pipe.rest()] == ["l"]
    assert "acknowledged" not in pipe.output.partition(b"acknowledged")[2].decode()


def test_a_gateway_that_is_told_to_end_finishes_what_runs(shared: Shared) -> None:
    """LIF-8: within the grace; what comes meanwhile goes to the next one."""
    pipe = shared.client()
    running = pipe.start_call("odd_sleep", seconds=30, until=str(shared.folder / "go"))
    begun(shared, "sleep")
    os.kill(shared.started[0], signal.SIGTERM)
    wait_until(lambda: "mcpx ends" in shared.log)
    meanwhile = pipe.start_call("odd_echo", text="meanwhile")
    (shared.folder / "go").touch()
    assert said(pipe.reply(running)) == "slept"
    assert said(pipe.reply(meanwhile)) == "meanwhile"
    wait_until(lambda: len(shared.started) == 2)
    assert len(calls(shared, "sleep")) == 1


def test_a_gateway_in_a_terminal_takes_over_and_what_runs_finishes(shared: Shared) -> None:
    """RUN-2, LIF-8: however long it takes; clients move by themselves."""
    one, other = shared.client(), shared.client()
    running = one.start_call("odd_sleep", seconds=60, until=str(shared.folder / "go"))
    begun(shared, "sleep")
    terminal = shared.terminal()
    with ProcessWatch(shared.started) as background:
        for pipe in (one, other):
            assert said(pipe.call("odd_echo", text="moved")) == "moved"
        assert shared.ask("status")["role"] == "http"
        assert sorted(shared.attached()) == sorted((one.process.pid, other.process.pid))
        (shared.folder / "go").touch()
        assert said(one.reply(running)) == "slept"
        assert background.left(WAIT_SECONDS) == []
    assert terminal.end() == 0
    assert said(one.call("odd_echo", text="and back")) == "and back"
    assert len(shared.started) == 2


def test_a_gateway_in_a_terminal_serves_clients_over_stdio_too(shared: Shared) -> None:
    """RUN-2: none is started beside it, and it does not end with them."""
    terminal = shared.terminal()
    pipe = shared.client()
    assert said(pipe.call("odd_echo", text="x")) == "x"
    assert shared.started == [] and shared.attached() == [pipe.process.pid]
    assert pipe.finish() == 0
    wait_until(lambda: shared.attached() == [])
    assert terminal.process.poll() is None


def test_a_question_of_a_gateway_that_died_is_withdrawn_and_its_answer_goes_nowhere(
    shared: Shared,
) -> None:
    """PRO-5: nor is it taken for the answer to a question of the next one."""
    pipe = shared.begin()
    pipe.greet(capabilities={"roots": {}})
    assert pipe.start_call("odd_roots")
    question = pipe.message()
    while question.get("method") != "roots/list":
        question = pipe.message()
    os.kill(shared.started[0], signal.SIGKILL)
    withdrawn = pipe.message()
    while withdrawn.get("method") != "notifications/cancelled":
        withdrawn = pipe.message()
    assert withdrawn["params"]["requestId"] == question["id"]
    again = pipe.start_call("odd_roots")
    pipe.send(
        {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///late"}]}}
    )
    fresh = pipe.message()
    while fresh.get("method") != "roots/list":
        fresh = pipe.message()
    assert fresh["id"] != question["id"]
    pipe.send({"jsonrpc": "2.0", "id": fresh["id"], "result": {"roots": [{"uri": "file:///new"}]}})
    assert pipe.reply(again)["result"]["structuredContent"] == {"roots": [{"uri": "file:///new"}]}


def test_a_request_that_waits_for_a_gateway_can_be_cancelled(shared: Shared) -> None:
    """PRO-4: it is neither sent nor answered; those beside it are."""
    pipe = shared.client()
    good = shared.file.read_text()
    shared.file.write_text("{")  # no gateway can be started
    os.kill(shared.started[0], signal.SIGKILL)
    assert pipe.stderr.wait_for("no gateway", WAIT_SECONDS)
    doomed, wanted = (
        pipe.start_call("odd_echo", text="doomed"),
        pipe.start_call("odd_echo", text="wanted"),
    )
    pipe.send(notification("notifications/cancelled", {"requestId": doomed}))
    shared.file.write_text(good)
    assert said(pipe.reply(wanted, 30)) == "wanted"
    assert [call["params"]["arguments"]["text"] for call in calls(shared, "echo")] == ["wanted"]
    assert pipe.finish() == 0


def test_a_changed_file_is_taken_up_while_clients_are_attached(shared: Shared) -> None:
    """CFG-5: they are told, and see it."""
    pipe = shared.client()
    assert len(pipe.request("tools/list")["result"]["tools"]) > 0
    both = [odd_server("odd", shared.record), odd_server("more", shared.folder / "more")]
    shared.write(mcp_servers=both)
    assert shared.ask("reload")["ok"] is True
    wait_until(
        lambda: (
            "more_echo" in {tool["name"] for tool in pipe.request("tools/list")["result"]["tools"]}
        )
    )
    wait_until(lambda: CHANGED[0] in heard(pipe))


def test_a_config_whose_folder_is_gone_is_waited_for(shared: Shared) -> None:
    """LIF-1: a checkout of another branch; the client's log says what is missing."""
    project = shared.folder / "project"
    project.mkdir()
    shared.file = shared.file.rename(project / "mcpx.json")
    pipe = shared.client()
    project.rename(shared.folder / "aside")
    with ProcessWatch(shared.started) as gateway:
        os.kill(shared.started[0], signal.SIGKILL)
        assert gateway.left(WAIT_SECONDS) == []
    # A call that is written before the bridge has noticed may have been read, and is not repeated.
    assert pipe.stderr.wait_for(
        f"no gateway: it cannot be started: {re.escape(str(project))}: ", WAIT_SECONDS
    )
    waits = pipe.start_call("odd_echo", text="waits")
    (shared.folder / "aside").rename(project)
    answer = pipe.reply(waits, 30)
    assert "result" in answer, answer
    assert said(answer) == "waits"
    assert len(calls(shared, "echo")) == 1


def test_a_state_folder_that_is_deleted_costs_no_call(shared: Shared) -> None:
    """RUN-6: who is attached stays; who comes after finds another."""
    pipe = shared.client()
    (gateway,) = shared.started
    subprocess.run(["rm", "-r", str(shared.state)], check=True)
    assert said(pipe.call("odd_echo", text="x")) == "x"
    other = shared.client()
    assert said(other.call("odd_echo", text="y")) == "y"
    with ProcessWatch([gateway]) as first:
        assert pipe.finish() == other.finish() == 0
        assert first.left(WAIT_SECONDS) == []


# ---- what cannot be shared


def test_another_environment_is_another_gateway(tmp_path: Path) -> None:
    """CFG-3: where the file looks a variable up; the line names it, and no value is said
    anywhere."""
    shared = Shared(tmp_path)
    server = odd_server("odd", shared.record, connection={"env": {"WORD": "${WORD:-none}"}})
    shared.write(mcp_servers=[server])
    try:
        one, same = (
            shared.client(WORD="first-value", PATHOLOGY="a"),
            shared.client(WORD="first-value", PATHOLOGY="b"),
        )
        other = shared.client(WORD="second-value")
        words = [
            json.loads(said(pipe.call("odd_whoami")))["env"]["WORD"] for pipe in (one, same, other)
        ]
        assert words == ["first-value", "first-value", "second-value"]
        assert len(shared.attached()) == 2
        assert re.search(
            r"variables .* WORD; this client gets a gateway of its own", other.stderr.text
        )
        assert "-value" not in one.stderr.text + other.stderr.text + shared.log
    finally:
        shared.close()


@pytest.mark.parametrize(
    "args", [(), ("--mode", "nonsense"), ("--profile", "nobody"), ("--linger", "soon")]
)
def test_a_mistake_reads_as_it_does_without_a_shared_gateway(
    shared: Shared, args: tuple[str, ...]
) -> None:
    """CFG-2: the same words, the same exit code, and nothing is left behind."""
    if not args:
        shared.write(mcp_servers=[{"name": "x", "connection": {"type": "stdio"}}], nonsense=1)
    ends = []
    for more in ((), ("--standalone",)):
        pipe = shared.begin(*args, *more)
        ends.append((pipe.finish(), pipe.stderr.text))
    if "--linger" not in args:
        assert ends[0] == ends[1]
    assert ends[0][0] == 2 and "error: " in ends[0][1]


def test_a_strict_client_is_not_given_half_a_configuration(shared: Shared) -> None:
    """CFG-3: --strict refuses what a gateway that runs has switched off."""
    server = odd_server(
        "off", shared.folder / "off", connection={"env": {"A": "${SURELY_NOT_SET}"}}
    )
    shared.write(mcp_servers=[odd_server("odd", shared.record), server])
    pipe = shared.client()
    assert (
        "SURELY_NOT_SET" in pipe.stderr.text
    )  # as without a shared gateway: somebody wonders where it is
    strict = shared.begin("--strict")
    assert strict.finish() == 2 and "SURELY_NOT_SET" in strict.stderr.text


def test_a_gateway_that_accepts_and_says_nothing_is_not_waited_for(shared: Shared) -> None:
    """LIF-1: the client gets one of its own, and is told why."""
    shared.place.parent.mkdir(parents=True, mode=0o700)
    os.chmod(shared.state, 0o700)
    with channels.listen(shared.place).listening:
        pipe = shared.client()
        assert said(pipe.call("odd_echo", text="x")) == "x"
    assert "does not answer; this client gets a gateway of its own" in pipe.stderr.text


def test_another_version_is_left_alone(shared: Shared) -> None:
    """RUN-2: it may speak differently."""
    shared.place.parent.mkdir(parents=True, mode=0o700)
    os.chmod(shared.state, 0o700)
    answer = {
        "ok": False,
        "reason": "version",
        "error": "this gateway is mcpx 99",
        "role": "http",
        "clients": 0,
    }
    with channels.listen(shared.place).listening as other:
        other.settimeout(WAIT_SECONDS)
        pipe = shared.begin()
        connected, _ = other.accept()
        with connected, connected.makefile("rwb") as lines:
            assert json.loads(lines.readline())["do"] == "attach"
            lines.write(json.dumps(answer).encode() + b"\n")
        other.close()
        pipe.greet()
    assert "this gateway is mcpx 99; this client gets a gateway of its own" in pipe.stderr.text
    assert shared.started == []


# ---- bounds


def test_ids_batches_and_what_comes_before_the_greeting_are_treated_as_ever(shared: Shared) -> None:
    """PRO-1: the bridge adds nothing to it, and leaves nothing out."""
    pipe = shared.begin()
    assert "error" in pipe.request("tools/list")
    assert "result" in pipe.request("ping")
    pipe.greet()
    pipe.send(
        request("ping", None, "mcpx-bridge/1/initialize")
    )  # as the bridge itself would say it
    assert "result" in pipe.reply("mcpx-bridge/1/initialize")
    pipe.send(b"[]\n")
    assert "batches" in pipe.reply(None)["error"]["message"]
    pipe.send(b"nonsense\n")
    assert pipe.reply(None)["error"]["code"] == -32700
    for id in ("7", 7):
        pipe.send(request("tools/call", {"name": "odd_echo", "arguments": {"text": str(id)}}, id))
    assert said(pipe.reply("7")) == said(pipe.reply(7)) == "7"
    pipe.send(request("tools/call", {"name": "odd_sleep", "arguments": {"seconds": 30}}, "s"))
    pipe.send(request("ping", None, "s"))
    assert "already in flight" in pipe.reply("s")["error"]["message"]
    pipe.send(notification("notifications/cancelled", {"requestId": "s"}))
    pipe.send(request("ping", None, "s"))
    assert "result" in pipe.reply("s")
    pipe.send({"jsonrpc": "2.0", "id": 1.5, "method": "ping"})
    assert "error" in pipe.reply(None)


def test_a_terminal_is_both_input_and_output_and_gets_all_of_a_large_answer(shared: Shared) -> None:
    """RUN-2: it takes a few kilobytes at a time, and says so only to who does not block."""
    said_to = [
        initialize_request(),
        *(request("tools/list", None, number) for number in range(1, 21)),
    ]
    with Terminal(
        [*MCPX, str(shared.file), "--transport", "stdio"], shared.folder, shared.env
    ) as terminal:
        for message in said_to:
            terminal.type(json.dumps(message) + "\n")
        terminal.wait_for(r'"id":20,"result"[^\n]*\n')
        assert terminal.text.count('"result"') == len(said_to)
        terminal.type("\x04")
        assert terminal.end() == 0


def test_ten_thousand_requests_in_the_pipe_are_all_answered(shared: Shared) -> None:
    """LIF-5: some with "wait", as on every front; each once."""
    pipe = shared.client()
    pipe.send(
        b"".join(
            json.dumps(request("ping", None, id)).encode() + b"\n" for id in range(100, 10_100)
        )
    )
    assert all("jsonrpc" in pipe.reply(id) for id in range(100, 10_100))
    assert pipe.finish() == 0


def test_a_message_that_is_too_large_is_refused_and_the_next_is_answered(shared: Shared) -> None:
    """LIF-5: by the bound of the gateway's configuration."""
    shared.write(
        mcp_servers=[odd_server("odd", shared.record)], **{"global": {"max_request": 100_000}}
    )
    pipe = shared.client()
    pipe.send(
        request("tools/call", {"name": "odd_echo", "arguments": {"text": "x" * 200_000}}, "big")
    )
    assert "a line of more than 100000 bytes" in pipe.reply(None)["error"]["message"]
    assert len(said(pipe.call("odd_echo", text="x" * 90_000))) == 90_000
    assert len(said(pipe.call("odd_big", bytes=3_000_000))) == 3_000_000


def test_a_client_that_never_reads_costs_little_and_nobody_else_notices(shared: Shared) -> None:
    """LIF-5: neither the bridge nor the gateway keeps what it does not take."""
    other = shared.client()
    command = [*MCPX, str(shared.file), "--transport", "stdio"]
    deaf = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=shared.env)
    try:
        assert deaf.stdin is not None and deaf.stdout is not None
        hello = request(
            "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}, 0
        )
        deaf.stdin.write(json.dumps(hello).encode() + b"\n")
        deaf.stdin.flush()
        os.set_blocking(deaf.stdin.fileno(), False)
        call = {"name": "odd_big", "arguments": {"bytes": 1_000_000}}
        written, idle = 0, 0
        while written < 200 and idle < 100:
            try:
                os.write(
                    deaf.stdin.fileno(),
                    json.dumps(request("tools/call", call, written + 1)).encode() + b"\n",
                )
                written += 1
            except BlockingIOError:
                pass
            idle += 1
            assert said(other.call("odd_echo", text="x")) == "x"
        assert kib(deaf.pid) < 60_000
        assert kib(shared.started[0]) < 400_000
    finally:
        deaf.kill()
        deaf.communicate()
    wait_until(lambda: shared.attached() == [other.process.pid])


def test_a_bridge_that_stands_still_holds_up_nobody_and_goes_on(shared: Shared) -> None:
    """LIF-5: as with a laptop's lid."""
    pipe, other = shared.client(), shared.client()
    os.kill(pipe.process.pid, signal.SIGSTOP)
    try:
        waiting = pipe.start_call("odd_echo", text="late")
        for _ in range(5):
            assert said(other.call("odd_echo", text="x")) == "x"
    finally:
        os.kill(pipe.process.pid, signal.SIGCONT)
    assert said(pipe.reply(waiting)) == "late"


def test_the_bridge_is_small(shared: Shared) -> None:
    """RUN-2: with the gateway started by it, and after a thousand calls."""
    pipe = shared.begin(counted=False)
    pipe.greet()
    for _ in range(1_000):
        pipe.call("odd_echo", text="x")
    assert kib(pipe.process.pid) < SMALL
    attached = shared.begin(counted=False)
    attached.greet()
    attached.call("odd_echo", text="x")
    assert kib(attached.process.pid) < SMALL


def test_the_bridge_imports_no_gateway() -> None:
    """LIF-1: what it starts with is what it costs."""
    heavy = (
        "asyncio",
        "yaml",
        "inspect",
        "hashlib",
        "mcpx.config",
        "mcpx.core",
        "mcpx.front",
        "mcpx.surfaces",
    )
    code = "import sys, mcpx.cli.main, mcpx.cli.command_table, mcpx.cli.attach, mcpx.bridge.relay\n"
    code += "import mcpx.wire.channels; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert [name for name in found if name in heavy] == []


# ---- the end


@pytest.mark.parametrize("how", ["eof", "sigterm", "sigint", "shutdown"])
def test_what_runs_finishes_when_the_client_leaves(shared: Shared, how: str) -> None:
    """LIF-8: within the grace, and then it ends cleanly."""
    pipe = shared.client()
    running = pipe.start_call("odd_sleep", seconds=30, until=str(shared.folder / "go"))
    begun(shared, "sleep")
    if how == "eof":
        pipe.end_input()
    elif how == "shutdown":
        assert pipe.request("shutdown")["result"] == {}
    else:
        pipe.process.send_signal(signal.SIGTERM if how == "sigterm" else signal.SIGINT)
    (shared.folder / "go").touch()
    assert said(pipe.reply(running)) == "slept"
    assert pipe.wait() == 0
    assert pipe.stderr.text == ""


def test_what_does_not_finish_is_answered_and_cancelled(shared: Shared) -> None:
    """LIF-8: the server hears of it."""
    pipe = shared.client()
    running = pipe.start_call("odd_sleep", seconds=60)
    begun(shared, "sleep")
    pipe.end_input()
    assert [answer["id"] for answer in pipe.rest()] == [running]
    assert pipe.wait() == 0
    wait_until(lambda: len(recorded_messages(shared.record, "notifications/cancelled")) == 1)


# ---- without Unix sockets


def test_where_there_are_no_unix_sockets_it_is_a_port_on_loopback(tmp_path: Path) -> None:
    """RUN-6: known by a file that only its owner reads; who cannot say the word is not let in."""
    shared = Shared(tmp_path)
    shared.env["MCPX_CHANNEL"] = "loopback"
    try:
        one, other = shared.client(), shared.client()
        assert [said(pipe.call("odd_echo", text="x")) for pipe in (one, other)] == ["x", "x"]
        assert len(shared.started) == 1 and len(shared.attached()) == 2
        file = shared.place.with_suffix(".port")
        assert file.stat().st_mode & 0o777 == 0o600 and not shared.place.exists()
        port = int(file.read_text().split()[0])
        for word in (b"guessed\n", b"x" * 10_000, b'{"do":"status"}\n'):
            with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as stranger:
                stranger.sendall(word)
                try:
                    assert stranger.recv(100) == b""
                except ConnectionError:
                    pass
        with ProcessWatch(shared.started) as gateway:
            os.kill(shared.started[0], signal.SIGKILL)
            assert gateway.left(WAIT_SECONDS) == []
        assert [said(pipe.call("odd_echo", text="y")) for pipe in (one, other)] == ["y", "y"]
        assert one.finish() == other.finish() == 0
        with ProcessWatch(shared.started) as gateways:
            assert gateways.left(WAIT_SECONDS) == []
        assert not file.exists()
    finally:
        shared.close()


def test_where_pipes_cannot_be_watched_threads_carry_them(shared: Shared) -> None:
    """RUN-2: as on Windows; nothing is lost at the end."""
    forced = (
        "import sys; from mcpx.bridge import standard; standard.CARRIED = True\nfrom "
        "mcpx.cli.main import main\n"
    )
    command = [
        sys.executable,
        "-c",
        forced + "sys.exit(main())",
        str(shared.file),
        "--transport",
        "stdio",
    ]
    pipe = shared.stack.enter_context(StdioClient(command, shared.env))
    pipe.greet()
    big = pipe.start_call("odd_big", bytes=2_000_000)
    assert pipe.finish() == 0
    assert len(said(pipe.reply(big))) == 2_000_000
