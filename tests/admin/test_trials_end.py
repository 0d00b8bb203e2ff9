"""ADM-2: what is tried out runs for whoever asked for it, and ends when they go or are logged
out."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.admin_api import browser_session
from kit.client import Stream
from kit.gateway import GatewayProcess
from kit.http_client import fetch
from kit.process_tree import ProcessWatch, descendants
from kit.until import wait_until

MUTE = ["-c", "import time; time.sleep(300)"]
SERVER = {
    "name": "mute",
    "timeout": 50,
    "connection": {"type": "stdio", "command": sys.executable, "args": MUTE},
}
COMMAND = {
    "name": "mute",
    "description": "Sleeps.",
    "type": "script",
    "script": {"path": "mute.sh"},
}
TRIALS = {"/api/mcp-servers/test": {"entry": SERVER}, "/api/commands/test": {"entry": COMMAND}}


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    with GatewayProcess({"mcp_servers": []}, admin=True) as started:
        script = started.folder / "mute.sh"
        script.write_text("#!/bin/sh\nsleep 300\n")
        script.chmod(0o700)
        yield started


def begin(gateway: GatewayProcess, path: str, headers: dict[str, str]) -> tuple[Stream, set[int]]:
    """A trial, and what it started; the keeper of all processes stays."""
    port, body = int(gateway.admin_url.rpartition(":")[2]), json.dumps(TRIALS[path]).encode()
    stream = Stream(
        port, "POST", path, [("Content-Type", "application/json"), *headers.items()], body
    )
    return stream, wait_until(
        lambda: {pid for pid in descendants(gateway.process.pid) if sleeps(pid)}
    )


def sleeps(pid: int) -> bool:
    try:
        return b"300" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("path", TRIALS)
def test_a_trial_ends_with_the_connection_it_was_asked_for_on(
    gateway: GatewayProcess, path: str
) -> None:
    stream, processes = begin(gateway, path, gateway.admin_headers)
    with ProcessWatch(processes) as watch:
        stream.cut()
        assert watch.left(15) == []


def test_a_trial_ends_with_the_session_that_asked_for_it(gateway: GatewayProcess) -> None:
    """Nobody runs programs here after a logout."""
    session: dict[str, Any] = browser_session(gateway)
    stream, processes = begin(gateway, "/api/mcp-servers/test", session)
    with stream, ProcessWatch(processes) as watch:
        assert fetch(gateway.admin_url, "/api/logout", "POST", session).status == 204
        assert watch.left(15) == []
        assert stream.status == 408
