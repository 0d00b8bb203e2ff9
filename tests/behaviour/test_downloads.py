"""LIF-10: a server whose program downloads itself has `start_timeout` until its first byte of
output."""

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit.admin_api import AdminApi
from kit.client import Session
from kit.command import mcpx, run_command
from kit.gateway import Gateway
from kit.messages import Json
from kit.process import stdio_command
from kit.servers import raw_server, stdio_server
from kit.until import wait_until
from mcpx.upstreams import connection

FAKE_NPX = """#!{python}
import os, sys, time
from pathlib import Path
if "FAKE_NPX_SECONDS" in os.environ:
    time.sleep(float(os.environ["FAKE_NPX_SECONDS"]))
while not Path(os.environ["FAKE_NPX_DONE"]).exists():
    time.sleep(0.01)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Waits for a file to exist, as if it downloaded, and becomes the command behind `-y`."""

pytestmark = pytest.mark.needs("programs")


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """The file that ends the downloads of `slow_server`."""
    return tmp_path / "done"


def slow_server(done: Path, **keys: object) -> Json:
    programs = done.parent / "programs"
    programs.mkdir(exist_ok=True)
    program = programs / "npx"
    program.write_text(FAKE_NPX.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    env = {"PATH": f"{programs}:/usr/bin:/bin", "FAKE_NPX_DONE": str(done)}
    seconds = keys.pop("seconds", None)
    if seconds is not None:
        env["FAKE_NPX_SECONDS"] = str(seconds)
    return stdio_server(
        "slow", ["npx", "-y", *stdio_command("raw_server.py")], connection={"env": env}, **keys
    )


def server_of(gateway: Gateway, name: str) -> Json:
    return next(server for server in gateway.control("status")["servers"] if server["name"] == name)


def test_a_download_may_take_longer_than_timeout_and_is_shown(
    served: Callable[..., Gateway], done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIF-10, LIF-1: the state is `downloading (N s)` everywhere, other servers are not delayed, a
    call waits."""
    monkeypatch.setattr(connection, "DOWNLOAD_SHOWN_AFTER", 0.1)
    gateway = served(
        {"mcp_servers": [slow_server(done, timeout=1), raw_server("quick")]}, admin=True
    )
    wait_until(lambda: server_of(gateway, "quick")["status"] == "connected")
    gateway.wait_for_log(r"\[slow\] has no output after 0.1 s: it is probably downloading")
    wait_until(
        lambda: server_of(gateway, "slow")["phase_s"] >= 2,
        what="the download takes longer than `timeout`",
    )
    slow = server_of(gateway, "slow")
    assert (slow["status"], slow["phase"], slow["last_error"]) == (
        "connecting",
        "downloading",
        None,
    )
    for command in ("status", "servers"):
        shown = run_command([command, "--config", str(gateway.file)], done.parent, gateway.env)
        assert "downloading (" in shown.stdout, shown
    row = AdminApi(gateway).get("/api/mcp-servers/slow")
    assert row["phase"] == "downloading" and row["phase_since"].endswith("Z")
    done.touch()
    wait_until(lambda: server_of(gateway, "slow")["status"] == "connected")
    slow = server_of(gateway, "slow")
    assert (slow["phase"], slow["phase_s"], slow["last_error"]) == (None, None, None)


def test_a_call_waits_for_the_download_of_its_server(
    served: Callable[..., Gateway], done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIF-10, LIF-1: longer than `timeout`."""
    monkeypatch.setattr(connection, "DOWNLOAD_SHOWN_AFTER", 0.1)
    done.touch()
    gateway = served({"mcp_servers": [slow_server(done, timeout=1)]}, admin=True)
    wait_until(lambda: server_of(gateway, "slow")["status"] == "connected")
    done.unlink()
    AdminApi(gateway).post("/api/mcp-servers/slow/reconnect")
    wait_until(lambda: server_of(gateway, "slow")["phase"] == "downloading")
    with ThreadPoolExecutor(1) as pool:
        session = Session(gateway.port)
        call = pool.submit(session.call, "slow_echo", text="hello")
        wait_until(
            lambda: server_of(gateway, "slow")["phase_s"] >= 2,
            what="the call waits longer than `timeout`",
        )
        assert not call.done()
        done.touch()
        assert call.result()["result"]["content"][0]["text"] == "hello"


@pytest.mark.parametrize(
    "command", ["servers", "tools slow", "call slow.echo text=hello", "doctor slow"]
)
def test_every_command_waits_for_the_download(done: Path, command: str) -> None:
    """LIF-10: also without a running gateway. The download takes longer than `timeout`."""
    done.touch()
    server = slow_server(done, timeout=1.5, seconds=1.7)
    file = done.parent / "mcpx.json"
    file.write_text(json.dumps({"mcp_servers": [server]}), encoding="utf-8")
    ended = mcpx(done.parent, *command.split(), "--config", str(file))
    assert ended.returncode == 0, ended
    assert (
        "echo" in ended.stdout
        or "hello" in ended.stdout
        or "connected" in ended.stdout
        or "lists" in ended.stdout
    )


def test_a_trial_of_the_admin_api_waits_for_the_download(
    served: Callable[..., Gateway], done: Path
) -> None:
    """LIF-10"""
    gateway = served({"mcp_servers": []}, admin=True)
    done.touch()
    server = slow_server(done, timeout=1.5, seconds=1.7)
    tried = AdminApi(gateway).post("/api/mcp-servers/test", {"entry": server})
    assert tried["ok"] is True, tried


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            {"start_timeout": 0.3},
            r"wrote nothing to standard output within 0.3 s of its start \(start_timeout\)",
        ),
        ({"start_timeout": 0.3, "timeout": 0.3}, r"did not complete the handshake within 0.3 s"),
    ],
)
def test_a_download_that_takes_too_long_is_told_with_its_limit(
    served: Callable[..., Gateway], done: Path, keys: Json, problem: str
) -> None:
    """LIF-10: the message names the key."""
    gateway = served({"mcp_servers": [slow_server(done, auto_reconnect=False, **keys)]}, admin=True)
    gateway.wait_for_log(problem)
    cause = wait_until(lambda: AdminApi(gateway).get("/api/mcp-servers/slow")["cause"])
    assert "npx had not finished" in cause or "did not answer" in cause
