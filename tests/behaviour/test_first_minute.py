"""RUN-3: what somebody sees who types `mcpx` for the first time, through the real program in a real terminal."""

import contextlib
import json
import os
import socket
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from fixtures.screen import Screen

MCPX = [sys.executable, "-m", "mcpx"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    return tmp_path / "home"


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("MCPX_", "UV", "XDG_"))}
    return {**ours, "HOME": str(home), "NO_COLOR": "1"}


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def first(home: Path, env: Mapping[str, str], *args: str) -> Screen:
    return Screen([*MCPX, *args], home.parent / "work", env)


def test_a_first_start_says_where_it_is_and_what_to_do_next_and_writes_nothing(
    home: Path, env: Mapping[str, str]
) -> None:
    before = everything(home.parent)
    with first(home, env) as screen:
        url = screen.wait_for(r"MCP +(http://127\.0\.0\.1:\d+)/mcp")[1]
        login = screen.wait_for(r"Admin +(http://127\.0\.0\.1:\d+/login\?token=\S+)")[1]
        screen.wait_for("Ctrl-C ends it")
        for told in ("no config found", "call demo.calculate", "mcpx add npx", "mcpx connect"):
            assert told in screen.text
        with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
            assert json.load(answer)
        with urllib.request.urlopen(login, timeout=30) as page:  # who comes before it is loaded waits
            assert b"<html" in page.read().lower()
        screen.interrupt()
        assert screen.ended() == 0 and "Traceback" not in screen.text
    assert everything(home.parent) == before


def test_servers_of_client_programs_are_found(home: Path, env: Mapping[str, str]) -> None:
    """RUN-5: and `mcpx import` is what to type."""
    (home / ".cursor").mkdir()
    server = {"command": "npx", "args": ["-y", "thing"]}
    (home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": {"a": server, "b": server}}))
    (home / ".claude.json").write_text('{"mcpServers": {"c": {"type": "http", "url": "http://127.0.0.1:1/mcp"}}}')
    with first(home, env) as screen:
        line = screen.wait_for(r"mcpx import +(.+)\n")[1]
        assert line.strip() == "3 servers in Claude Code, Cursor"
        screen.interrupt()
        assert screen.ended() == 0


def test_ports_that_are_taken_do_not_spoil_the_first_minute(home: Path, env: Mapping[str, str]) -> None:
    with contextlib.ExitStack() as taken:
        for port in (8000, 8080):
            with contextlib.suppress(OSError):  # somebody else has it: as good
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
        with first(home, env) as screen:
            ports = {screen.wait_for(rf"{what} +http://127\.0\.0\.1:(\d+)/")[1] for what in ("MCP", "Admin")}
            assert len(ports) == 2 and not ports & {"8000", "8080"}
            screen.interrupt()
            assert screen.ended() == 0
        with first(home, env, "--port", "8000") as screen:  # this one was asked for
            assert screen.ended() == 1 and "--port 0" in screen.text


def test_whoever_wants_no_admin_page_gets_none(home: Path, env: Mapping[str, str]) -> None:
    with first(home, env, "--no-admin", "--port", "0") as screen:
        screen.wait_for("Ctrl-C ends it")
        assert "Admin" not in screen.text
        screen.interrupt()
        assert screen.ended() == 0
