"""RUN-3: what somebody sees who types `mcpx` for the first time, through the real program in a real
terminal."""

import contextlib
import json
import os
import re
import socket
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from kit.terminal import Terminal, mcpx_on


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    return tmp_path / "home"


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MCPX_", "UV", "XDG_"))
    }
    return {**ours, "HOME": str(home), "NO_COLOR": "1"}


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def first(home: Path, env: Mapping[str, str], *args: str) -> Terminal:
    return mcpx_on(home.parent / "work", env, *args, columns=140)


def told(screen: Terminal, pattern: str) -> str:
    found = re.search(pattern, screen.wait_for(pattern))
    assert found is not None
    return found[1]


def ended(screen: Terminal) -> int:
    """By Ctrl-C."""
    screen.type("\x03")
    return screen.end()


def test_a_first_start_says_where_it_is_and_what_to_do_next_and_writes_nothing(
    home: Path, env: Mapping[str, str]
) -> None:
    before = everything(home.parent)
    with first(home, env) as screen:
        url = told(screen, r"MCP +(http://127\.0\.0\.1:\d+)/mcp")
        login = told(screen, r"Admin +(http://127\.0\.0\.1:\d+/login\?token=\S+)")
        screen.wait_for("Ctrl-C ends it")
        for word in ("no config found", "call demo.calculate", "mcpx add npx", "mcpx connect"):
            assert word in screen.text
        with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
            assert json.load(answer)
        with urllib.request.urlopen(
            login, timeout=30
        ) as page:  # who comes before it is loaded waits
            assert b"<html" in page.read().lower()
        assert ended(screen) == 0 and "Traceback" not in screen.text
    assert everything(home.parent) == before


def test_servers_of_client_programs_are_found(home: Path, env: Mapping[str, str]) -> None:
    """RUN-5: and `mcpx import` is what to type."""
    (home / ".cursor").mkdir()
    server = {"command": "npx", "args": ["-y", "thing"]}
    (home / ".cursor/mcp.json").write_text(json.dumps({"mcpServers": {"a": server, "b": server}}))
    (home / ".claude.json").write_text(
        '{"mcpServers": {"c": {"type": "http", "url": "http://127.0.0.1:1/mcp"}}}'
    )
    with first(home, env) as screen:
        line = told(screen, r"mcpx import +(.+)\n")
        assert line.strip() == "3 servers in Claude Code, Cursor"
        assert ended(screen) == 0


def test_ports_that_are_taken_do_not_spoil_the_first_minute(
    home: Path, env: Mapping[str, str]
) -> None:
    with contextlib.ExitStack() as taken:
        for port in (8000, 8080):
            with contextlib.suppress(OSError):  # somebody else has it: as good
                taken.enter_context(socket.create_server(("127.0.0.1", port)))
        with first(home, env) as screen:
            ports = {
                told(screen, rf"{what} +http://127\.0\.0\.1:(\d+)/") for what in ("MCP", "Admin")
            }
            assert len(ports) == 2 and not ports & {"8000", "8080"}
            assert ended(screen) == 0
        with first(home, env, "--port", "8000") as screen:  # this one was asked for
            assert screen.end() == 1 and "--port 0" in screen.text


def test_whoever_wants_no_admin_page_gets_none(home: Path, env: Mapping[str, str]) -> None:
    with first(home, env, "--no-admin", "--port", "0") as screen:
        screen.wait_for("Ctrl-C ends it")
        assert "Admin" not in screen.text
        assert ended(screen) == 0
