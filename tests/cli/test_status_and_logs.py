"""RUN-4: `mcpx status` and `mcpx logs`, through the real program."""

import json
import os
import re
import sys
from pathlib import Path

from cli.conftest import Home, using
from kit.command import run_command
from kit.gateway import ADMIN, Gateway
from kit.terminal import mcpx_on
from kit.until import wait_until


def test_without_a_gateway_status_and_logs_are_exit_code_3(home: Home) -> None:
    ended = home.run("status")
    assert ended.returncode == 3 and "no gateway runs on" in ended.stdout
    assert home.json("status") == {"running": False, "config": str(home.file)}
    ended = home.run("logs")
    assert ended.returncode == 3 and ended.stdout == "" and "no gateway runs on" in ended.stderr


def test_status_tells_what_runs_where_and_for_whom(home: Home) -> None:
    child = home.gateway("--admin-port", "0")
    try:
        assert child.stderr.wait_for(ADMIN, 60) is not None
        home.run("tools")  # waits for them
        told = home.json("status")
        assert (
            told["running"] is True and told["pid"] == child.process.pid and told["role"] == "http"
        )
        assert told["url"] in child.stderr.text and re.fullmatch(
            r"http://127\.0\.0\.1:\d+/?", told["admin_url"]
        )
        assert {server["name"] for server in told["servers"]} == {"one", "two", "down"} and told[
            "revision"
        ] == 1
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told["started_at"])
        ended = home.run("status")
        assert ended.returncode == 4 and f"process {child.process.pid}" in ended.stdout
        assert (
            "✗ down" in ended.stdout
            and "2 connected" in ended.stdout
            and "16 tools" in ended.stdout
        )
    finally:
        child.end()


def test_a_server_that_is_starting_does_not_look_failed(tmp_path: Path) -> None:
    """RUN-4: neither by its mark nor by the exit code."""
    starting = {
        "type": "stdio",
        "command": sys.executable,
        "args": ["-c", "input()\nwhile True: input()"],
    }
    with Gateway({"mcp_servers": [{"name": "slow", "connection": starting}]}) as gateway:
        for command in ("status", "servers"):
            ended = run_command([command, str(gateway.file)], tmp_path, gateway.env)
            assert (
                ended.returncode == 0 and "connecting" in ended.stdout and "✗" not in ended.stdout
            )
        assert (
            "… slow connecting"
            in run_command(["status", str(gateway.file)], tmp_path, gateway.env).stdout
        )


def test_logs_are_what_servers_printed_in_the_order_it_came(home: Home) -> None:
    child = home.gateway()
    try:
        wait_until(
            lambda: (
                "no API key" in home.run("logs").stdout and "one is here" in home.run("logs").stdout
            )
        )
        lines = home.run("logs").stdout.splitlines()
        assert all(re.match(r"\d\d:\d\d:\d\d \[(one|two|down)\] ", line) for line in lines)
        own = home.run("logs", "one", "config.json").stdout
        assert "one is here" in own and "API key" not in own and "[one]" not in own
        rows = [
            json.loads(line)
            for line in home.run("logs", "down", "-n", "1", "--json").stdout.splitlines()
        ]
        assert len(rows) == 1 and rows[0]["server"] == "down"
        ended = home.run("logs", "oen")
        assert (ended.returncode, ended.stderr) == (
            2,
            "error: no server is named 'oen'; did you mean 'one'?\n",
        )
        ended = home.run("logs", "mcpx")
        assert ended.returncode == 1 and "global.log_file keeps it" in ended.stderr
    finally:
        child.end()


def test_what_comes_is_followed_until_it_is_interrupted(home: Home) -> None:
    script = "while [ ! -e go ]; do sleep 0.05; done; echo later >&2; exec sleep 60"
    home.write(
        {
            "name": "slow",
            "connection": {"type": "stdio", "command": "/bin/sh", "args": ["-c", script]},
        }
    )
    child = home.gateway()
    try:
        with mcpx_on(home.folder, home.environ, "logs", "-f") as screen:
            screen.wait_for(r"\[slow\] is being connected")
            (home.folder / "go").touch()
            screen.wait_for(r"\[slow\] later")
            screen.type("\x03")
            assert screen.end() == 130 and "Traceback" not in screen.text
    finally:
        child.end()


def test_the_gateways_own_log_is_read_from_its_file_whether_it_runs_or_not(home: Home) -> None:
    home.write(using("one"), **{"global": {"log_file": "gateway.log"}})
    child = home.gateway()
    try:
        wait_until(lambda: "[one] connected" in home.run("logs", "mcpx").stdout)
        assert home.json("status")["log_file"] == os.path.join(home.folder, "gateway.log")
    finally:
        child.end()
    assert len(home.run("logs", "mcpx", "-n", "1").stdout.splitlines()) == 1


def test_a_server_that_fails_says_why_in_a_line_of_its_own_on_a_terminal(home: Home) -> None:
    """RUN-4: marks, colours unless unwanted, and nothing that matters is cut off."""
    with mcpx_on(home.folder, home.environ, "servers", columns=60) as screen:
        assert screen.end() == 4
    assert (
        "✓ connected" in screen.text
        and "✗ disconnected" in screen.text
        and "\x1b[31m" in screen.raw
    )
    assert re.search(
        r"\n  failing since \S+ the process exited with code 3: no API key", screen.text
    )
    with mcpx_on(home.folder, {**home.environ, "NO_COLOR": "1"}, "servers", columns=60) as screen:
        screen.end()
    assert "\x1b[3" not in screen.raw
