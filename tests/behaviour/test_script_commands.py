"""SRC-4, SRC-5, SRC-6, SEC-3: scripts as tools, through the program."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from behaviour.clients import KINDS, AnsweringUser, Door, Kind, connected
from kit.client import ACCEPT_BOTH, WAIT_SECONDS, Session, StdioClient, Stream, post_modern
from kit.gateway import Gateway, GatewayProcess
from kit.messages import modern_headers, modern_request, notification
from kit.process_tree import ProcessWatch, descendants
from kit.until import wait_until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

Json = dict[str, Any]
HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"

STEPS = """
import json, sys
for step in (1, 2, 3):
    print(f"::progress {step}/3 step {step}", file=sys.stderr, flush=True)
    if step < 3:
        import time
        time.sleep(0.1)
print(json.dumps({"said": sys.argv[1], "times": sys.argv[2:]}))
"""
FAMILY = """
cd "$(dirname "$0")"
sleep 300 &
setsid sleep 301 > /dev/null 2>&1 < /dev/null &
trap '' TERM
echo "$$ $!" > "$1.part" && mv "$1.part" "$1"
while :; do sleep 1; done
"""
"""A shell that ignores SIGTERM, a child of it, and one that left the session."""
WAITS = """
import os, sys, time
open(sys.argv[1], "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
print("finished")
"""


def command(name: str, script: Json, *parameters: Json, **keys: Any) -> Json:
    return {
        "name": name,
        "description": f"Runs {name}",
        "type": "script",
        "script": script,
        **keys,
    } | ({"parameters": list(parameters)} if parameters else {})


def commands() -> list[Json]:
    python = sys.executable
    text, times = (
        {"name": "text", "required": True},
        {"name": "times", "type": "array", "items": {"type": "integer"}},
    )
    return [
        command(
            "steps",
            {"interpreter": python, "path": "steps.py", "args": ["{text}", "{times}"]},
            text,
            times,
        ),
        command(
            "family",
            {"interpreter": "bash", "path": "family.sh", "args": ["{file}"]},
            {"name": "file"},
        ),
        command(
            "waits",
            {"interpreter": python, "path": "waits.py", "args": ["{file}"]},
            {"name": "file"},
        ),
        command("fails", {"interpreter": "bash", "path": "fails.sh"}),
    ]


def write_scripts(folder: Path) -> None:
    scripts = {
        "steps.py": STEPS,
        "family.sh": FAMILY,
        "waits.py": WAITS,
        "fails.sh": "echo no >&2; exit 7",
    }
    for name, code in scripts.items():
        (folder / name).write_text(code)


CONFIG: Json = {"commands": commands(), "global": {"hot_reload_interval": 0.05}}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with GatewayProcess(CONFIG) as gateway:
        write_scripts(gateway.folder)
        yield gateway
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@contextmanager
def alone(transport: Any = "http") -> Iterator[Gateway]:
    with GatewayProcess(CONFIG, transport=transport) as gateway:
        write_scripts(gateway.folder)
        yield gateway


@pytest.mark.parametrize("front", ["http", "stdio"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_script_is_a_tool_like_any_other(gateway: Gateway, kind: Kind, front: str) -> None:
    """SRC-4, SRC-5, SRC-6: listed with its schema, called, its progress told, failures as tool
    errors; both eras."""

    async def visit(door: Door) -> None:
        steps: list[Json] = []
        with anyio.fail_after(60):
            async with connected(kind, door, AnsweringUser("ada")) as client:
                tools = {tool["name"]: tool for tool in await client.listed("tools/list")}
                assert tools["steps"]["inputSchema"]["required"] == ["text"]
                assert tools["steps"]["inputSchema"]["properties"]["times"]["type"] == "array"
                result = await client.call(
                    "steps", {"text": "; $(x) '\n", "times": [1, -2]}, steps.append
                )
                assert result["structuredContent"] == {"said": "; $(x) '\n", "times": ["1", "-2"]}
                failed = await client.call("fails")
                wrong = await client.call("steps", {"text": "x", "times": "many"})
                missing = await client.call("steps", {})
        told = [(step["progress"], step["total"], step["message"]) for step in steps]
        assert told == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
        assert (
            failed["isError"]
            and failed["content"][0]["text"] == "fails: exited with code 7\nstderr: no"
        )
        assert wrong["isError"] and "times" in wrong["content"][0]["text"]
        assert missing["isError"] and "text" in missing["content"][0]["text"]

    if front == "http":
        anyio.run(visit, Door("http", gateway.url))
        return
    with alone("stdio") as own:
        door = Door(
            "stdio", command=own.stdio_command, env=own.env, stderr=own.folder / "stderr.txt"
        )
        anyio.run(visit, door)


def pids(file: Path) -> set[int]:
    wait_until(file.exists)
    return set(map(int, file.read_text().split()))


@pytest.mark.parametrize("era", ["older", "modern"])
def test_a_cancelled_call_ends_the_whole_tree(gateway: Gateway, era: str) -> None:
    """SEC-3, LIF-7: by a notification, and by a modern client that closes its request."""
    file = gateway.folder / f"cancelled-{era}"
    if era == "older":
        session = Session(gateway.port)
        stream = session.start_call("family", id="long", file=str(file))
    else:
        body = modern_request("tools/call", {"name": "family", "arguments": {"file": str(file)}})
        headers = {
            "Content-Type": "application/json",
            "Accept": ACCEPT_BOTH,
            **modern_headers(body),
        }
        stream = Stream(gateway.port, "POST", "/mcp", headers.items(), json.dumps(body).encode())
    with stream, ProcessWatch(pids(file)) as watch:
        assert len(watch) == 2
        if era == "older":
            assert (
                session.post(notification("notifications/cancelled", {"requestId": "long"})).status
                == 202
            )
        else:
            stream.cut()
        assert watch.left(WAIT_SECONDS) == []


def test_the_time_that_is_up_ends_the_whole_tree() -> None:
    """SEC-3, LIF-7."""
    config = {"commands": commands(), "global": {"default_timeout": 1}}
    with Gateway(config) as gateway:
        write_scripts(gateway.folder)
        file = gateway.folder / "timed-out"
        body = modern_request("tools/call", {"name": "family", "arguments": {"file": str(file)}})
        result = post_modern(gateway.port, body).message["result"]
        assert result["isError"]
        assert result["content"][0]["text"].startswith(
            "family: took longer than 1 s ('timeout') and was ended"
        )
        with ProcessWatch(pids(file)) as watch:
            assert watch.left(WAIT_SECONDS) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_no_script_outlives_mcpx(number: signal.Signals) -> None:
    """SEC-3, LIF-7, LIF-8."""
    with alone("stdio") as gateway, StdioClient(gateway.stdio_command, gateway.env) as client:
        client.greet()
        file = gateway.folder / "killed"
        client.start_call("family", file=str(file))
        with ProcessWatch(pids(file) | descendants(client.process.pid)) as watch:
            client.process.send_signal(number)
            client.wait()
            assert watch.left(WAIT_SECONDS) == []


def test_a_reload_lets_what_runs_finish_and_takes_up_what_changed() -> None:
    """SRC-6, CFG-5: the changed command answers anew while the former one still runs."""
    with alone() as gateway:
        session = Session(gateway.port)
        file = gateway.folder / "waiting"
        stream = session.start_call("waits", file=str(file))
        wait_until(file.exists)
        changed = json.loads(json.dumps(CONFIG))
        changed["commands"][2]["description"] = "Another"
        changed["commands"][2]["script"]["args"] = ["{file}", "more"]
        gateway.file.write_text(json.dumps(changed))
        wait_until(lambda: "reloaded" in gateway.stderr())
        (gateway.folder / "go").touch()
        assert stream.reply().message["result"]["content"][0]["text"] == "finished"
        tools = {tool["name"]: tool for tool in session.request("tools/list")["result"]["tools"]}
        assert tools["waits"]["description"] == "Another"
        assert session.call("waits", file=str(file))["result"]["content"][0]["text"] == "finished"


def test_the_script_example_runs_as_it_is_written() -> None:
    """SRC-4: the example config of the source document, its script from the examples of this
    repository."""
    written = yaml.safe_load((HERE.parent / "config" / "files" / "s4-mymcp.yaml").read_text())
    config = {
        "commands": [one for one in written["commands"] if one["type"] == "script"],
        "global": written["global"],
    }
    with Gateway(config) as gateway:
        shutil.copytree(EXAMPLES / "scripts", gateway.folder / "scripts")
        result = Session(gateway.port).call("word_count", text="one two  three")["result"]
        assert result["structuredContent"] == {"words": 3, "characters": 14}
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


def test_mistakes_in_a_script_command_are_told_with_their_place() -> None:
    """SRC-4, SRC-5: by `mcpx check`."""
    bad = command(
        "bad",
        {"interpreter": "python3", "path": "{x}.py", "args": ["{y}", "-n", "{x}"]},
        {"name": "x"},
    )
    with GatewayProcess({"commands": [bad]}, transport="stdio") as gateway:
        run = [sys.executable, "-m", "mcpx", "check", str(gateway.file)]
        done = subprocess.run(run, capture_output=True, text=True, env=gateway.env, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    for words in (
        "no placeholder may stand here",
        "no parameter named 'y'",
        "'-n' would stand alone",
    ):
        assert words in said
    assert "commands[0].script.args[0]" in said
