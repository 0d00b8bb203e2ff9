"""RUN-1, RUN-2, RUN-3, SEC-1: what a person or a client types, and what mcpx answers with exit
codes and words."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.client import WAIT_SECONDS, Session, StdioClient, post_modern
from kit.command import MCPX, run_command
from kit.gateway import LISTENS
from kit.http_client import fetch
from kit.messages import initialize_request, modern_request, request, text_of
from kit.process import START, Child
from kit.servers import raw_server
from mcpx import __version__

SCRIPT = str(Path(sys.executable).with_name("mcpx"))

LISTENING = r"http://(\S+):(\d+)/mcp"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty working folder."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A person who never used mcpx: an empty home, nothing of ours in the environment."""
    home = tmp_path / "home"
    home.mkdir()
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(("MCPX_", "XDG_"))
    }
    # A gateway in the background ends with its client: nothing is left of a test.
    return {
        **ours,
        "HOME": str(home),
        "MCPX_STATE_DIR": str(tmp_path / "state"),
        "MCPX_LINGER": "0",
    }


def run(folder: Path, env: dict[str, str], *args: str) -> "subprocess.CompletedProcess[str]":
    """Run a command that does not serve to its end, with nothing on standard input."""
    done = run_command(args, folder, env)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def run_program(
    folder: Path, env: dict[str, str], *args: str, command: list[str] = MCPX
) -> "subprocess.CompletedProcess[str]":
    """The same as a process of its own."""
    done = subprocess.run(
        [*command, *args],
        env=env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def write(file: Path, value: Any) -> Path:
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    file.chmod(0o600)
    return file


GOOD = {"mcp_servers": [raw_server("good"), {**raw_server("off"), "enabled": False}]}


@contextmanager
def listening(folder: Path, env: dict[str, str], *args: str) -> Iterator[tuple[str, int, Child]]:
    """mcpx over HTTP, started with the null device as a service manager does; ended by SIGTERM,
    cleanly."""
    with Child([*MCPX, *args], env, folder) as child:
        listens = child.stderr.wait_for(LISTENING, START)
        assert listens is not None, child.stderr.text
        yield listens[1], int(listens[2]), child
        child.process.send_signal(signal.SIGTERM)
        assert child.process.wait(WAIT_SECONDS) == 0
    assert "Traceback" not in child.stderr.text
    assert child.stdout.text == ""


# ---- asking about itself


@pytest.mark.parametrize("command", [MCPX, [SCRIPT]], ids=["python -m mcpx", "mcpx"])
def test_version_is_one_line(folder: Path, env: dict[str, str], command: list[str]) -> None:
    """RUN-1, RUN-2."""
    done = run_program(folder, env, "--version", command=command)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"mcpx {__version__}\n", "")


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["-h"],
        ["serve", "--help"],
        ["check", "--help"],
        ["help"],
        ["help", "help"],
        ["help", "check"],
    ],
    ids=" ".join,
)
def test_help_names_what_there_is(folder: Path, env: dict[str, str], args: list[str]) -> None:
    """RUN-2."""
    done = run(folder, env, *args)
    assert done.returncode == 0 and done.stderr == ""
    words = ["CONFIG", "--config"] + (
        [] if "check" in args else ["--transport", "--host", "--port", "--mode"]
    )
    assert [word for word in words if word not in done.stdout] == []


# ---- the demo


def test_a_start_by_a_client_that_finds_no_config_says_where_it_looked(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-3: one line on standard error; with a config there is none."""
    (said,) = run_program(folder, env, "--transport", "stdio").stderr.splitlines()
    for word in ("no config found", "MCPX_CONFIG", "mcpx.yaml", str(folder), "demo"):
        assert word in said
    write(folder / "mcpx.yaml", "mcp_servers: []")
    assert "demo" not in run_program(folder, env, "--transport", "stdio").stderr


def test_without_a_config_the_demo_serves_a_client_on_a_pipe(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-3: three tools, a resource, a prompt; all of them work."""
    with StdioClient(MCPX, env, folder) as client:
        client.greet()
        assert len(client.request("tools/list")["result"]["tools"]) == 3
        assert text_of(client.call("demo_calculate", expression="(3 + 4) * 2")) == "14"
        (resource,) = client.request("resources/list")["result"]["resources"]
        (content,) = client.request("resources/read", {"uri": resource["uri"]})["result"][
            "contents"
        ]
        assert "mcp_servers:" in content["text"]
        (prompt,) = client.request("prompts/list")["result"]["prompts"]
        assert client.request("prompts/get", {"name": prompt["name"]})["result"]["messages"]
        assert client.finish() == 0


def test_without_a_config_the_demo_serves_over_http(folder: Path, env: dict[str, str]) -> None:
    """RUN-2, RUN-3: standard input is the null device, so nobody is on it."""
    with listening(folder, {**env, "MCPX_PORT": "0"}) as (host, port, _):
        assert host == "127.0.0.1"
        assert len(Session(port).tools()) == 3
        assert text_of(
            post_modern(
                port,
                modern_request("tools/call", {"name": "demo_echo", "arguments": {"text": "x"}}),
            ).message
        )


def test_the_demo_calculates_numbers_and_nothing_else(folder: Path, env: dict[str, str]) -> None:
    """RUN-3: it is the first thing anybody attacks."""
    with StdioClient(MCPX, env, folder) as client:
        client.greet()
        for expression in (
            "9**9**9",
            "__import__('os')",
            "1/0",
            "(" * 500,
            "'a' * 10",
            "1" * 201,
            "",
        ):
            answer = client.call("demo_calculate", expression=expression)
            assert answer["result"]["isError"] is True, (expression, answer)


def test_the_demo_writes_nothing(tmp_path: Path, folder: Path, env: dict[str, str]) -> None:
    """RUN-3: not in the working folder, not in the home, no state."""
    with StdioClient(MCPX, env, folder) as client:
        client.greet()
        client.request("tools/list")
        assert client.finish() == 0
    with listening(folder, {**env, "MCPX_PORT": "0"}) as (_, port, _child):
        Session(port).tools()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["home", "work"]


# ---- mistakes


def refusal(done: "subprocess.CompletedProcess[str]") -> str:
    """The words of a refusal: exit code 2, nothing on standard output."""
    assert (done.returncode, done.stdout) == (2, ""), done
    return done.stderr


@pytest.mark.parametrize(
    "args",
    [["nope.yaml"], ["--config", "nope.yaml"], ["serve", "nope.yaml"], ["check", "nope.yaml"]],
)
def test_a_named_file_that_is_not_there_is_an_error(
    folder: Path, env: dict[str, str], args: list[str]
) -> None:
    """RUN-2: never the demo instead."""
    said = refusal(run(folder, env, *args))
    assert "nope.yaml" in said and "does not exist" in said


def test_a_file_named_by_the_environment_that_is_not_there_is_an_error(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-2: and the message says who named it."""
    said = refusal(run(folder, {**env, "MCPX_CONFIG": "gone.json"}))
    assert "gone.json" in said and "MCPX_CONFIG" in said


@pytest.mark.parametrize("more", [[], ["more"], ["--json"]], ids=str)
@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("chek", "mcpx check"),
        ("serv", "mcpx serve"),
        ("hlep", "mcpx help"),
        ("frobnicate", "mcpx help"),
    ],
)
def test_an_unknown_word_is_an_error_with_the_nearest_command(
    folder: Path, env: dict[str, str], word: str, nearest: str, more: list[str]
) -> None:
    """RUN-2: whatever stands behind it."""
    said = refusal(run(folder, env, word, *more))
    assert repr(word) in said and nearest in said and "usage" not in said


def test_a_word_that_is_no_file_after_a_command_is_a_file_that_is_not_there(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-2: `mcpx check tools` means a file."""
    assert refusal(run(folder, env, "check", "tools")) == "error: tools does not exist\n"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--nonsense"], "--nonsense"),
        (["--port", "many"], "many"),
        (["--port", "70000"], "70000"),
        (["--port", "-1"], "-1"),
        (["--mode", "loud"], "loud"),
        (["--transport", "pigeon"], "pigeon"),
        (["--log-level", "LOUD"], "LOUD"),
        (["a.yaml", "--config", "b.yaml"], "twice"),
        ([""], "empty"),
        (["--config", ""], "empty"),
        (["servers", ""], "empty"),
        (["a.yaml", "b.yaml"], "b.yaml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_on_the_command_line_is_exit_code_2(
    folder: Path, env: dict[str, str], args: list[str], words: str
) -> None:
    """RUN-2."""
    assert words in refusal(run(folder, env, *args))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MCPX_PORT", "many"),
        ("MCPX_PORT", "70000"),
        ("MCPX_MODE", "loud"),
        ("MCPX_TRANSPORT", "pigeon"),
    ],
)
def test_a_mistake_in_the_environment_is_exit_code_2(
    folder: Path, env: dict[str, str], name: str, value: str
) -> None:
    """RUN-2: and the variable's value is in the message."""
    said = refusal(run(folder, {**env, name: value}))
    assert value in said


BAD = """\
mode: directt
mcp_servers:
  - name: one
    conection: {type: stdio, command: x}
  - name: two
    connection: {type: stdio, command: x, args: 5}
    timeout: soon
  - name: two
    connection: {type: pigeon}
"""


@pytest.mark.parametrize("args", [["bad.yaml"], ["check", "bad.yaml"]], ids=" ".join)
def test_all_mistakes_of_a_config_are_told_at_once(
    folder: Path, env: dict[str, str], args: list[str]
) -> None:
    """RUN-2, CFG-4: with file, line and column."""
    write(folder / "bad.yaml", BAD)
    said = refusal(run(folder, env, *args))
    for line in (1, 4, 6, 7, 9):
        assert f"bad.yaml:{line}:" in said, (line, said)


@pytest.mark.parametrize(
    "content", ["", "null", "[]", "{", "\x00", "mcp_servers: [", "42"], ids=repr
)
def test_a_file_that_is_no_config_is_refused(
    folder: Path, env: dict[str, str], content: str
) -> None:
    """CFG-4: in words, naming the file."""
    write(folder / "odd.yaml", content)
    done = run(folder, env, "check", "odd.yaml")
    assert done.returncode == 2 and "odd.yaml" in done.stderr


def test_a_folder_or_an_unreadable_thing_as_config_is_refused(
    folder: Path, env: dict[str, str]
) -> None:
    """CFG-4."""
    (folder / "dir.yaml").mkdir()
    assert "dir.yaml" in refusal(run(folder, env, "dir.yaml"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_an_open_address_without_auth_is_refused_with_the_reason(
    folder: Path, env: dict[str, str], host: str
) -> None:
    """SEC-1: on the command line, in the environment and in the file alike."""
    write(folder / "open.json", {**GOOD, "server": {"host": host}})
    for args, more in ((["--host", host], {}), ([], {"MCPX_HOST": host}), (["open.json"], {})):
        said = refusal(run(folder, {**env, **more}, *args))
        assert host in said and "auth" in said


def test_an_open_address_with_auth_is_served(folder: Path, env: dict[str, str]) -> None:
    """SEC-1: and only to those who have the token."""
    auth = {"type": "bearer", "tokens": [{"name": "me", "token": "s3cret"}]}
    write(folder / "open.json", {**GOOD, "server": {"host": "0.0.0.0", "port": 0, "auth": auth}})
    with listening(folder, env, "open.json") as (_, port, child):
        assert fetch(port, "/ready").status == 200
        assert fetch(port, "/mcp", "POST").status == 401
        assert "good_echo" in Session(port, headers={"Authorization": "Bearer s3cret"}).tools()
        assert "s3cret" not in child.stderr.text


def test_an_open_address_matters_to_nobody_over_stdio(folder: Path, env: dict[str, str]) -> None:
    """SEC-1: nothing is bound."""
    write(folder / "open.json", {**GOOD, "server": {"host": "0.0.0.0"}})
    with StdioClient([*MCPX, "open.json"], env, folder) as client:
        client.greet()
        assert client.finish() == 0


def test_a_port_in_use_is_exit_code_1_with_the_port(folder: Path, env: dict[str, str]) -> None:
    """RUN-2: and no server was left running."""
    write(folder / "good.json", GOOD)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run_program(folder, env, "good.json", "--port", port)
    assert done.returncode == 1
    assert port in done.stderr and done.stdout == ""


# ---- which config


def test_a_config_is_named_by_word_option_or_environment(folder: Path, env: dict[str, str]) -> None:
    """RUN-2: the command line wins over the environment."""
    write(folder / "good.json", GOOD)
    write(folder / "other.json", {"mcp_servers": [raw_server("other")]})
    ways: list[tuple[list[str], dict[str, str]]] = [
        (["good.json"], {}),
        (["--config", "good.json"], {}),
        (["serve", "good.json"], {}),
        ([], {"MCPX_CONFIG": "good.json"}),
        (["good.json"], {"MCPX_CONFIG": "other.json"}),
    ]
    for args, more in ways:
        with StdioClient([*MCPX, *args], {**env, **more}, folder) as client:
            assert "good" in client.greet()["instructions"], (args, more)
            assert client.finish() == 0


@pytest.mark.parametrize("name", ["mcpx.yaml", "config.yaml", "config.json"])
def test_a_config_in_the_working_folder_is_found(
    folder: Path, env: dict[str, str], name: str
) -> None:
    """RUN-2: JSON is YAML too."""
    write(folder / name, GOOD)
    with StdioClient(MCPX, env, folder) as client:
        assert "good" in client.greet()["instructions"]
        assert client.finish() == 0


def test_a_config_in_the_users_folder_is_found_and_other_programs_files_are_not(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-2: a `config.json` with none of our keys is somebody else's."""
    write(folder / "config.json", {"compilerOptions": {"strict": True}})
    with StdioClient(MCPX, env, folder) as client:
        assert "demo" in client.greet()["instructions"]
    own = Path(env["HOME"]) / ".config" / "mcpx"
    own.mkdir(parents=True)
    write(own / "config.yaml", GOOD)
    with StdioClient(MCPX, env, folder) as client:
        assert "good" in client.greet()["instructions"]


def test_check_says_what_a_config_holds_and_starts_nothing(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-2, CFG-8."""
    trap = {
        "name": "trap",
        "connection": {"type": "stdio", "command": "touch", "args": [str(folder / "started")]},
    }
    write(folder / "good.json", {"mcp_servers": [*GOOD["mcp_servers"], trap]})
    done = run(folder, env, "check", "good.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert "good.json" in done.stdout and "2 of 3" in done.stdout
    assert not (folder / "started").exists()


def test_check_without_a_config_is_an_error(folder: Path, env: dict[str, str]) -> None:
    """RUN-2: there is nothing to check."""
    refusal(run(folder, env, "check"))


@pytest.mark.parametrize("mode", ["direct", "inspect", "describe", "search", "auto"])
def test_every_mode_is_taken_by_flag_and_by_environment(
    folder: Path, env: dict[str, str], mode: str
) -> None:
    """RUN-2, SUR-6: the flag wins, so that what the environment says does not matter then."""
    for args, more in (([], {"MCPX_MODE": mode}), (["--mode", mode], {"MCPX_MODE": "nonsense"})):
        with StdioClient([*MCPX, *args], {**env, **more}, folder) as client:
            assert client.greet()["serverInfo"]["name"] == "mcpx"


def test_the_port_of_the_command_line_wins_over_environment_and_file(
    folder: Path, env: dict[str, str]
) -> None:
    """RUN-2: a twin each; here the two others are taken."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        write(folder / "busy.json", {**GOOD, "server": {"port": busy}})
        assert run_program(folder, env, "busy.json").returncode == 1
        with listening(folder, {**env, "MCPX_PORT": "0"}, "busy.json") as (_, port, _child):
            assert port != busy
        with listening(folder, {**env, "MCPX_PORT": str(busy)}, "busy.json", "--port", "0") as (
            _,
            port,
            _child,
        ):
            assert port != busy


# ---- which transport


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
PONG = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'


@pytest.mark.parametrize(
    "more", [{}, {"MCPX_PORT": "0"}, {"MCPX_HOST": "127.0.0.1"}], ids=["", "port", "host"]
)
def test_a_pipe_means_stdio(folder: Path, env: dict[str, str], more: dict[str, str]) -> None:
    """RUN-2: a port in the environment or in the file only says where."""
    write(folder / "port.json", {**GOOD, "server": {"port": 0}})
    for args in ([], ["port.json"]):
        with StdioClient([*MCPX, *args], {**env, **more}, folder) as client:
            client.send(PING)
            assert client.message()["result"] == {}
            assert client.finish() == 0


def test_a_socket_means_stdio(folder: Path, env: dict[str, str]) -> None:
    """RUN-2: Node programs give their children sockets for pipes."""
    ours, theirs = socket.socketpair()
    with ours, theirs, StdioClient(MCPX, env, folder, stdin=theirs) as client:
        theirs.close()
        ours.sendall(PING)
        assert client.message()["result"] == {}
        ours.shutdown(socket.SHUT_WR)
        assert client.wait() == 0


def test_one_socket_for_both_directions_works_as_well(folder: Path, env: dict[str, str]) -> None:
    """RUN-2: as inetd and systemd give it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(WAIT_SECONDS)
        with subprocess.Popen(
            MCPX, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=env, cwd=folder
        ) as it:
            theirs.close()
            ours.sendall(PING)
            assert ours.recv(1000) == PONG
            ours.shutdown(socket.SHUT_WR)
            assert it.wait(WAIT_SECONDS) == 0


@pytest.mark.parametrize("output", ["pipe", "file"])
def test_a_file_means_stdio(folder: Path, env: dict[str, str], output: str) -> None:
    """RUN-2: a script of requests; all of them are answered, also where the answer takes a
    while."""
    write(folder / "good.json", GOOD)
    call = {"name": "good_sleep", "arguments": {"seconds": 0.3}}
    script = folder / "requests"
    script.write_text(
        "\n".join(
            map(
                json.dumps,
                [initialize_request(), request("tools/call", call, 1), request("ping", id=2)],
            )
        )
    )
    with script.open() as source, (folder / "answers").open("w+b") as sink:
        done = subprocess.run(
            [*MCPX, "good.json"],
            stdin=source,
            stdout=sink if output == "file" else subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=folder,
            timeout=WAIT_SECONDS,
            check=False,
        )
    answers = (folder / "answers").read_bytes() if output == "file" else done.stdout
    messages = [json.loads(line) for line in answers.splitlines()]
    assert done.returncode == 0, done.stderr
    assert sorted(message["id"] for message in messages if "id" in message) == [0, 1, 2]
    assert all("result" in message for message in messages if "id" in message)


@pytest.mark.parametrize(
    "args", [["--port", "0"], ["--host", "127.0.0.1", "--port", "0"], ["--transport", "http"]]
)
def test_a_host_or_port_on_the_command_line_means_http(
    folder: Path, env: dict[str, str], args: list[str]
) -> None:
    """RUN-2: although standard input is a pipe; what comes on it is not read."""
    with StdioClient([*MCPX, *args], {**env, "MCPX_PORT": "0"}, folder) as client:
        client.send(PING)
        listens = client.stderr.wait_for(LISTENS, START)
        assert listens is not None, client.stderr.text
        assert len(Session(int(listens[1])).tools()) == 3
        client.process.send_signal(signal.SIGTERM)
        assert client.wait() == 0
        assert client.rest() == []


def test_the_environment_can_choose_the_transport(folder: Path, env: dict[str, str]) -> None:
    """RUN-2: and the flag wins over it."""
    more = {"MCPX_TRANSPORT": "http", "MCPX_PORT": "0"}
    with StdioClient(MCPX, {**env, **more}, folder) as client:
        assert client.stderr.wait_for(LISTENS, START)
        client.process.send_signal(signal.SIGTERM)
        assert client.wait() == 0
    with StdioClient([*MCPX, "--transport", "stdio"], {**env, **more}, folder) as client:
        client.send(PING)
        assert client.message()["result"] == {}


def test_a_terminal_means_http(folder: Path, env: dict[str, str]) -> None:
    """RUN-2."""
    ours, theirs = pty.openpty()
    try:
        with StdioClient(MCPX, {**env, "MCPX_PORT": "0"}, folder, stdin=theirs) as client:
            assert client.stderr.wait_for(LISTENS, START), client.stderr.text
            client.process.send_signal(signal.SIGINT)
            assert client.wait() == 0
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_closed_standard_input_means_http(folder: Path, env: dict[str, str]) -> None:
    """RUN-2: as some service managers do it."""
    command = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *MCPX]
    with StdioClient(command, {**env, "MCPX_PORT": "0"}, folder) as client:
        assert client.stderr.wait_for(LISTENS, START), client.stderr.text
        client.process.send_signal(signal.SIGTERM)
        assert client.wait() == 0


def test_stdio_with_nothing_on_it_ends_at_once(folder: Path, env: dict[str, str]) -> None:
    """RUN-2, LIF-8: asked for by name, with the null device as input."""
    done = run_program(folder, env, "--transport", "stdio")
    assert (done.returncode, done.stdout) == (0, "")


def test_stdio_by_name_serves_a_person_at_a_terminal(folder: Path, env: dict[str, str]) -> None:
    """RUN-2: who types a message to see what happens; the terminal is input and output."""
    ours, theirs = pty.openpty()
    command = [*MCPX, "--transport", "stdio"]
    try:
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=env, cwd=folder
        ) as it:
            assert it.stderr is not None
            os.write(ours, PING)
            seen = b""
            while b'"result":{}' not in seen:
                seen += os.read(ours, 1000)
            os.write(ours, b"\x04")
            assert it.wait(WAIT_SECONDS) == 0
            assert b"Traceback" not in it.stderr.read()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    "redirection",
    [">/dev/null", ">&-", "2>&-", ">/dev/full", "2>/dev/full", ">&- 2>&-"],
    ids=lambda value: value,
)
def test_a_standard_stream_that_is_closed_or_full_breaks_nothing(
    folder: Path, env: dict[str, str], redirection: str
) -> None:
    """RUN-2, LIF-8: the end is clean all the same."""
    command = ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *MCPX]
    done = subprocess.run(
        command,
        input=PING,
        env=env,
        cwd=folder,
        capture_output=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert done.stdout == (PONG if redirection.startswith("2") else b"")
