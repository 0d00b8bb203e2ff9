"""RUN-2, RUN-6, SUR-1: looking after a gateway: what people ask it, what it keeps, what it shows to
whom."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.client import WAIT_SECONDS, Session, StdioClient, post_modern, wait_until_settled
from kit.command import MCPX, run_command
from kit.gateway import LISTENS
from kit.messages import Json, modern_request, structured_content, text_of
from kit.process import FIXTURES, START, Child
from kit.process_tree import ProcessWatch
from kit.servers import raw_server, stdio_server
from kit.until import wait_until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

CALM = {"hot_reload": False, "startup_wait": 10, "first_start_wait": 10}


def config(*servers: Json) -> Json:
    return {"global": CALM, "mcp_servers": list(servers)}


def choosy(name: str, *flags: str, **keys: Any) -> Json:
    return stdio_server(
        name, [sys.executable, "-I", "-S", str(FIXTURES / "choosy_server.py"), *flags], **keys
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(("MCPX_", "XDG_"))
    }
    return {**ours, "HOME": str(home), "MCPX_STATE_DIR": str(tmp_path / "state")}


def put(file: Path, value: Json | str) -> Path:
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    file.chmod(0o600)
    return file


@contextmanager
def running(folder: Path, env: dict[str, str], *args: str) -> Iterator[tuple[Child, int]]:
    """mcpx over HTTP; ended by SIGTERM, cleanly."""
    with Child([*MCPX, *args, "--transport", "http", "--port", "0"], env, folder) as child:
        listens = child.stderr.wait_for(LISTENS, START)
        assert listens is not None, child.stderr.text
        yield child, int(listens[1])
        if child.process.poll() is None:
            child.process.send_signal(signal.SIGTERM)
            assert child.process.wait(WAIT_SECONDS) == 0
    assert "Traceback" not in child.stderr.text, child.stderr.text


def run(folder: Path, env: dict[str, str], *args: str) -> "subprocess.CompletedProcess[str]":
    done = run_command(args, folder, env)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def sockets(env: dict[str, str]) -> list[Path]:
    return sorted(Path(env["MCPX_STATE_DIR"], "control").glob("*.sock"))


@contextmanager
def short(path: Path) -> Iterator[str]:
    """A Unix socket's address has about 100 bytes; a test's folder may have more."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---- mcpx servers


def test_servers_of_a_running_gateway_are_a_table_or_an_object(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-2: exit code 0 when all are up; the gateway's own processes are looked at, none is
    started."""
    file = put(
        folder / "mcpx.json",
        config(raw_server("a", description="first"), raw_server("off", enabled=False)),
    )
    with running(folder, env, str(file)) as (_, port):
        pid = structured_content(Session(port).call("a_whoami"))["pid"]
        done = run(folder, env, "servers", str(file))
        assert (done.returncode, done.stderr) == (0, "")
        head, a, off, last = done.stdout.splitlines()
        assert head.split() == [
            "SERVER",
            "STATE",
            "TOOLS",
            "PROCESSES",
            "LINKS",
            "LATENCY",
            "RESTARTS",
            "DETAIL",
        ]
        assert a.split()[:3] == ["a", "connected", "8"] and a.endswith("first")
        assert off.split()[:3] == ["off", "disabled", "0"]
        assert last == f"2 servers · mode direct · http://127.0.0.1:{port}/mcp · running on {file}"
        answer = json.loads(run(folder, env, "servers", str(file), "--json").stdout)
        assert (answer["ok"], answer["running"], answer["config"]) == (True, True, str(file))
        assert [(one["name"], one["status"], one["tools"]) for one in answer["servers"]] == [
            ("a", "connected", 8),
            ("off", "disabled", 0),
        ]
        assert answer["last_reload"] is None
        assert structured_content(Session(port).call("a_whoami"))["pid"] == pid


def test_servers_without_a_gateway_connects_by_itself_and_leaves_nothing(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-2, LIF-7: exit code 4 when one is down, and why it is."""
    pids = folder / "pids"
    # A dollar is written twice in a config.
    script = f'echo $$$$ >> {pids}; exec "$@"'
    raw = raw_server("a", "--spawn-grandchild")
    command = [raw["connection"]["command"], *raw["connection"]["args"]]
    a = stdio_server("a", ["/bin/sh", "-c", script, "sh", *command])
    down = raw_server("broken", "--crash-on-start"), stdio_server("none", ["./no"])
    file = put(folder / "mcpx.json", config(a, *down))
    done = run(folder, env, "servers", str(file))
    assert done.returncode == 4
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert rows["a"].split()[1:3] == ["connected", "8"]
    assert rows["broken"].split()[1] == "disconnected" and "exited with code 7" in rows["broken"]
    assert rows["none"].split()[1] == "disconnected"
    assert "no gateway is running" in done.stdout
    with ProcessWatch(int(pid) for pid in pids.read_text().split()) as watch:
        assert watch.left(WAIT_SECONDS) == []
    assert not Path(env["MCPX_STATE_DIR"]).exists()
    answer = json.loads(run(folder, env, "servers", str(file), "--json").stdout)
    assert answer["running"] is False and len(answer["servers"]) == 3


def test_servers_says_when_one_of_a_running_gateway_is_down(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-2: exit code 4."""
    file = put(
        folder / "mcpx.json", config(raw_server("a"), raw_server("broken", "--crash-on-start"))
    )
    with running(folder, env, str(file)) as (_, port):
        wait_until_settled(port, "a")
        wait_until(lambda: wait_until_settled(port)["broken"]["last_error"])
        done = run(folder, env, "servers", str(file))
        assert done.returncode == 4
        assert "exited with code 7" in done.stdout


def test_a_running_gateway_is_asked_whatever_became_of_its_file(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-2, CFG-5: also by somebody who lacks its variables, and who names the file in another
    way."""
    a = raw_server("a", connection={"env": {"X": "${SECRET_OF_MINE}"}})
    file = put(folder / "config.json", config(a))
    (folder / "below").mkdir()
    with running(folder, {**env, "SECRET_OF_MINE": "x"}, "config.json") as (_, port):
        wait_until_settled(port)
        for name in ("config.json", str(file), "below/../config.json"):
            assert run(folder, env, "servers", name).returncode == 0, name
            assert run(folder, env, "reload", name).stdout == "nothing changed\n", name
        assert run(folder, env, "servers").returncode == 0
        put(file, "{")
        done = run(folder, env, "servers", str(file))
        assert done.returncode == 0 and "running on" in done.stdout
        assert run(folder, env, "reload", str(file)).returncode == 2
        answer = json.loads(run(folder, env, "servers", str(file), "--json").stdout)
        assert answer["last_reload"]["ok"] is False and "config.json:1:" in str(
            answer["last_reload"]["problems"]
        )
    assert run(folder, env, "servers", str(file)).returncode == 2


@pytest.mark.parametrize("there", [True, False], ids=["running", "not running"])
def test_what_a_server_writes_never_commands_the_terminal(
    folder: Path, env: dict[str, str], there: bool
) -> None:
    """RUN-2, SEC: errors and descriptions are text, whatever is in them."""
    nasty = "\x1b]0;owned\x07\x1b[31mred\x9b2J\r"
    refusal = {"jsonrpc": "2.0", "id": 0, "error": {"code": -32000, "message": nasty}}
    script = (
        "import json, sys\n"
        f"refusal = {refusal!r}\n"
        "for line in sys.stdin:\n"
        "    if 'id' in json.loads(line):\n"
        "        print(json.dumps({**refusal, 'id': json.loads(line)['id']}), flush=True)\n"
        f"    print({nasty!r}, file=sys.stderr, flush=True)\n"
    )
    servers = [
        stdio_server("bad", [sys.executable, "-I", "-S", "-c", script]),
        raw_server("a", description=nasty),
    ]
    file = put(folder / "mcpx.json", config(*servers))

    def look() -> None:
        for args in ([], ["--json"]):
            done = run(folder, env, "servers", str(file), *args)
            assert done.returncode == 4
            assert done.stdout.count("red") >= 2
            assert [c for c in done.stdout + done.stderr if not c.isprintable() and c != "\n"] == []

    if not there:
        look()
        return
    with running(folder, env, str(file)) as (child, port):
        wait_until(lambda: wait_until_settled(port)["bad"]["last_error"])
        look()
        assert "\x1b" not in child.stderr.text and "\x9b" not in child.stderr.text


# ---- mcpx reload


def test_reload_says_when_no_gateway_runs(folder: Path, env: dict[str, str]) -> None:
    """RUN-2: exit code 3; without any config, 2."""
    assert run(folder, env, "reload").returncode == 2
    file = put(folder / "mcpx.json", config(raw_server("a")))
    done = run(folder, env, "reload", str(file))
    assert (done.returncode, done.stdout) == (3, "")
    assert f"no gateway runs on {file}" in done.stderr
    assert not Path(env["MCPX_STATE_DIR"]).exists()


def test_environments_of_one_file_are_gateways_of_their_own(
    folder: Path, env: dict[str, str]
) -> None:
    """CFG-7: by flag and by variable alike."""
    file = put(folder / "mcpx.json", config(raw_server("a")))
    put(folder / "mcpx.prod.json", {"mcp_servers": [{"name": "a", "description": "prod"}]})
    with running(folder, env, str(file), "--env", "prod"):
        assert run(folder, env, "reload", str(file)).returncode == 3
        assert run(folder, env, "reload", str(file), "--env", "prod").returncode == 0
        assert run(folder, {**env, "MCPX_ENV": "prod"}, "reload", str(file)).returncode == 0


# ---- the socket


def test_the_socket_is_its_owners_alone_and_goes_with_the_gateway(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-6: 0600 in a folder of 0700, whatever the mask is."""
    file = put(folder / "mcpx.json", config(raw_server("a")))
    old = os.umask(0)
    try:
        with running(folder, env, str(file)):
            (path,) = sockets(env)
            assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    finally:
        os.umask(old)
    assert sockets(env) == []


def test_a_socket_that_was_left_behind_is_replaced(folder: Path, env: dict[str, str]) -> None:
    """RUN-6: after kill -9."""
    file = put(folder / "mcpx.json", config(raw_server("a")))
    with running(folder, env, str(file)) as (child, _):
        child.process.kill()
        child.process.wait(WAIT_SECONDS)
    assert len(sockets(env)) == 1
    assert run(folder, env, "reload", str(file)).returncode == 3
    with running(folder, env, str(file)):
        assert run(folder, env, "reload", str(file)).returncode == 0
    assert sockets(env) == []


def test_a_long_state_folder_works(tmp_path: Path, folder: Path, env: dict[str, str]) -> None:
    """RUN-6: a socket's address has about 100 bytes, a path may have more."""
    env = {**env, "MCPX_STATE_DIR": str(tmp_path / ("long" * 20) / ("longer" * 15))}
    file = put(folder / "mcpx.json", config(raw_server("a")))
    with running(folder, env, str(file)) as (_, port):
        wait_until_settled(port)
        assert run(folder, env, "reload", str(file)).stdout == "nothing changed\n"
        assert run(folder, env, "servers", str(file)).returncode == 0
    assert sockets(env) == []


def test_two_gateways_on_one_config_get_along(folder: Path, env: dict[str, str]) -> None:
    """RUN-6: the first is reached; the end of the second takes nothing from it."""
    file = put(folder / "mcpx.json", config(raw_server("a")))
    with running(folder, env, str(file)) as (first, _):
        with running(folder, env, str(file)) as (second, port):
            assert second.stderr.wait_for("another mcpx runs on this config", WAIT_SECONDS)
            assert text_of(Session(port).call("a_echo", text="x")) == "x"
        put(file, config(raw_server("a"), raw_server("b")))
        assert run(folder, env, "reload", str(file)).returncode == 0
        assert first.stderr.wait_for("reloaded: 1 started", WAIT_SECONDS)


def test_a_gateway_that_does_not_answer_does_not_hold_up_another(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-6, LIF-1: it was stopped, say; and its end later does not take the other's socket
    away."""
    file = put(folder / "mcpx.json", config(raw_server("a")))
    with running(folder, env, str(file)) as (first, _):
        first.process.send_signal(signal.SIGSTOP)
        try:
            with running(folder, env, str(file)):
                first.process.send_signal(signal.SIGCONT)
                first.process.send_signal(signal.SIGTERM)
                assert first.process.wait(WAIT_SECONDS) == 0
                assert run(folder, env, "reload", str(file)).returncode == 0
        finally:
            first.process.send_signal(signal.SIGCONT)
    assert sockets(env) == []


def test_a_state_folder_that_cannot_be_written_costs_comfort_only(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-6."""
    env = {**env, "MCPX_STATE_DIR": str(put(folder / "a-file", "x") / "state")}
    file = put(folder / "mcpx.json", config(raw_server("a")))
    with running(folder, env, str(file)) as (child, port):
        assert text_of(Session(port).call("a_echo", text="x")) == "x"
        assert "no control socket" in child.stderr.text
    assert run(folder, env, "reload", str(file)).returncode == 3


def test_garbage_on_the_socket_harms_nobody(folder: Path, env: dict[str, str]) -> None:
    """RUN-6: each gets an answer or is hung up on; those who wait forever do not keep the gateway
    from ending."""
    file = put(folder / "mcpx.json", config(raw_server("a")))
    opened: list[socket.socket] = []

    def connect() -> socket.socket:
        one = socket.socket(socket.AF_UNIX)
        opened.append(one)
        one.settimeout(WAIT_SECONDS)
        with short(sockets(env)[0]) as address:
            one.connect(address)
        return one

    try:
        with running(folder, env, str(file)) as (_, port):
            wait_until_settled(port)
            for garbage in (
                b"\n",
                b"null\n",
                b"[1]\n",
                b'{"do":["x"]}\n',
                b"\xff\xfe\x00\n",
                b'{"do":"__class__"}\n',
            ):
                one = connect()
                one.sendall(garbage)
                with one.makefile("rb") as lines:
                    answer = json.loads(lines.readline())
                assert (
                    not answer["ok"]
                    and answer["error"].startswith("say one of ")
                    and "status" in answer["error"]
                )
            long = connect()
            try:
                for _ in range(80):  # more than a request may have
                    long.sendall(b"x" * 65536)
                assert long.recv(1) == b""
            except ConnectionError:
                pass
            both = connect()
            both.sendall(b'{"do":"status"}\n{"do":"reload"}\n')
            with both.makefile("rb") as lines:
                assert "servers" in json.loads(lines.readline())
                answer = json.loads(lines.readline())
            assert (answer["ok"], answer["plan"]) == (True, "nothing changed")
            connect()
            connect().sendall(b'{"do":')
            assert run(folder, env, "servers", str(file)).returncode == 0
    finally:
        for one in opened:
            one.close()


def test_something_else_on_the_socket_is_not_taken_for_a_gateway(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-6."""
    file = put(folder / "mcpx.json", config(raw_server("a")))
    with running(folder, env, str(file)):
        (path,) = sockets(env)
    with socket.socket(socket.AF_UNIX) as stranger:
        with short(path) as address:
            stranger.bind(address)
        stranger.listen()
        with subprocess.Popen(
            [*MCPX, "reload", str(file)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as asking:
            connection, _ = stranger.accept()
            with connection:
                connection.sendall(b"garbage\n")
            _, err = asking.communicate(timeout=WAIT_SECONDS)
        assert asking.returncode == 3 and b"Traceback" not in err
    path.unlink()


# ---- state


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_demo_writes_nothing(tmp_path: Path, folder: Path, env: dict[str, str]) -> None:
    """RUN-3, RUN-6: neither to the state folder nor to the home nor to the working folder."""
    with StdioClient(MCPX, env, folder) as client:
        client.greet()
        assert len(client.request("tools/list")["result"]["tools"]) == 3
        client.process.send_signal(signal.SIGHUP)
        assert client.request("ping")["result"] == {}
        assert client.finish() == 0
    assert files_below(tmp_path) == ["home", "work"]


@pytest.mark.parametrize(
    ("variable", "below"), [("HOME", ".local/state/mcpx"), ("XDG_STATE_HOME", "mcpx")]
)
def test_state_has_its_place_on_the_platform(
    tmp_path: Path, folder: Path, env: dict[str, str], variable: str, below: str
) -> None:
    """RUN-6: and nothing that was kept is needed."""
    del env["MCPX_STATE_DIR"]
    env = {**env, variable: str(tmp_path / "place")}
    file = put(folder / "mcpx.json", config(raw_server("a")))
    state = tmp_path / "place" / below
    for _ in range(2):
        with running(folder, env, str(file)) as (_, port):
            assert len(Session(port).tools()) == 8
            wait_until(lambda: list((state / "snapshots").glob("*.json")))
            assert run(folder, env, "reload", str(file)).returncode == 0
        for found in sorted(state.rglob("*"), reverse=True):
            found.rmdir() if found.is_dir() else found.unlink()
    assert files_below(folder) == ["mcpx.json"]


# ---- what is shown to whom

ASKABLE = {"elicitation": {}}


def modern_tools(port: int, capabilities: Json) -> list[str]:
    answer = post_modern(port, modern_request("tools/list", {}, capabilities=capabilities)).message
    return [tool["name"] for tool in answer["result"]["tools"]]


def modern_call(port: int, tool: str, capabilities: Json) -> Json:
    return post_modern(
        port,
        modern_request("tools/call", {"name": tool, "arguments": {}}, capabilities=capabilities),
    ).message


@pytest.mark.parametrize("era", ["older", "modern"])
def test_a_modern_client_that_can_be_asked_sees_and_calls_what_needs_asking(
    folder: Path, env: dict[str, str], era: str
) -> None:
    """SUR-1: after a reload too."""
    file = put(folder / "mcpx.json", config(choosy("c", "--era", era)))
    with running(folder, env, str(file)) as (_, port):
        for flags in ((), ("--prompts", "1")):
            if flags:
                put(file, config(choosy("c", "--era", era, *flags)))
                assert run(folder, env, "reload", str(file)).stdout == "1 restarted (c)\n"
            assert text_of(modern_call(port, "c_confirm", ASKABLE)) == "confirm"
            assert modern_tools(port, ASKABLE) == ["c_plain", "c_confirm"]
            assert modern_tools(port, {"elicitation": {}, "sampling": {}}) == [
                "c_plain",
                "c_confirm",
                "c_compose",
            ]
            assert modern_tools(port, {}) == ["c_plain"]
            assert modern_call(port, "c_confirm", {})["error"]["code"] == -32602


@pytest.mark.parametrize("era", ["older", "modern"])
def test_a_client_that_can_be_asked_sees_what_needs_asking(
    folder: Path, env: dict[str, str], era: str
) -> None:
    """SUR-1: clients of both eras; who cannot be asked sees only what is for everybody, and calls
    only that."""
    file = put(folder / "mcpx.json", config(choosy("c", "--era", era)))
    with running(folder, env, str(file)) as (_, port):
        plain, able = Session(port), Session(port, capabilities=ASKABLE)
        for _ in range(2):
            assert plain.tools() == ["c_plain"]
            assert able.tools() == ["c_plain", "c_confirm"]
            assert modern_tools(port, {}) == ["c_plain"]
            assert modern_tools(port, ASKABLE) == ["c_plain", "c_confirm"]
            assert modern_tools(port, {"elicitation": {}, "sampling": {}}) == [
                "c_plain",
                "c_confirm",
                "c_compose",
            ]
        assert text_of(able.call("c_confirm")) == "confirm"
        assert text_of(modern_call(port, "c_confirm", ASKABLE)) == "confirm"
        assert plain.call("c_confirm")["error"]["code"] == -32602
        assert modern_call(port, "c_confirm", {})["error"]["code"] == -32602
        assert text_of(plain.call("c_plain")) == "plain"


@pytest.mark.parametrize("era", ["older", "modern"])
def test_what_needs_asking_can_be_called_without_a_list_before(
    folder: Path, env: dict[str, str], era: str
) -> None:
    """SUR-1: clients remember names; who may see a tool may call it."""
    file = put(folder / "mcpx.json", config(choosy("c", "--era", era)))
    with running(folder, env, str(file)) as (_, port):
        assert text_of(modern_call(port, "c_confirm", ASKABLE)) == "confirm"
        assert text_of(Session(port, capabilities=ASKABLE).call("c_confirm")) == "confirm"
        assert Session(port).call("c_confirm")["error"]["code"] == -32602


@pytest.mark.parametrize("era", ["older", "modern"])
@pytest.mark.parametrize("how", ["reload", "restart"])
def test_what_needs_asking_is_still_there_after_a_change(
    folder: Path, env: dict[str, str], era: str, how: str
) -> None:
    """SUR-1, CFG-5, LIF-4: the server is another process, the names and who may call them are the
    same."""
    file = put(folder / "mcpx.json", config(choosy("c", "--era", era)))
    with running(folder, env, str(file)) as (_, port):
        plain, able = Session(port), Session(port, capabilities=ASKABLE)
        assert able.tools() == ["c_plain", "c_confirm"] and plain.tools() == ["c_plain"]
        pid = structured_content(plain.call("c_plain"))["pid"]
        own = structured_content(able.call("c_confirm"))["pid"]
        if how == "reload":
            put(file, config(choosy("c", "--era", era, "--prompts", "1")))
            assert run(folder, env, "reload", str(file)).stdout == "1 restarted (c)\n"
        else:
            with ProcessWatch({pid, own}) as watch:
                for one in {pid, own}:
                    os.kill(one, signal.SIGKILL)
                assert watch.left(WAIT_SECONDS) == []
        assert (
            wait_until(
                lambda: (
                    "result" in (answer := plain.call("c_plain"))
                    and structured_content(answer)["pid"]
                )
            )
            != pid
        )
        assert (
            wait_until(
                lambda: (
                    "result" in (answer := able.call("c_confirm"))
                    and structured_content(answer)["pid"]
                )
            )
            != own
        )
        assert text_of(modern_call(port, "c_confirm", ASKABLE)) == "confirm"
        assert able.tools() == ["c_plain", "c_confirm"]
        assert modern_tools(port, ASKABLE) == ["c_plain", "c_confirm"]
        assert plain.tools() == ["c_plain"] and modern_tools(port, {}) == ["c_plain"]
