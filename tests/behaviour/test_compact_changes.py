"""Compact surfaces follow the catalog: servers that connect, change, are down, disabled or gone
(SUR-4, LIF-4)."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from behaviour.compact import (
    ERAS,
    MODES,
    Compact,
    Json,
    Visitor,
    command,
    config,
    held_up,
    next_notice,
    replace,
    text,
    told,
)
from kit.client import Stream, health
from kit.gateway import Gateway, GatewayProcess
from kit.process_tree import descendants
from kit.servers import everything_server, raw_server
from kit.until import wait_until

QUICK = {"hot_reload_interval": 0.05}


def is_told(client: Visitor, stream: Stream) -> None:
    """The list of the surface's own tools differs, where it holds a menu; in `search` it is always
    the same."""
    if client.mode != "search":
        assert next_notice(stream) == "notifications/tools/list_changed"


def shows(client: Visitor, server: str, tool: str) -> bool:
    """Whether a client is shown, told of and finds a tool; all of these agree."""
    before = client.menu() if client.mode != "search" else ""
    match client.mode:
        case "search":
            found = client.use("mcp_search_tools", query=tool)["structuredContent"]["tools"]
            return (server, tool) in [(each["service"], each["name"]) for each in found]
        case "inspect":
            answer = client.use("inspect", server_name=server)
        case _:
            answer = client.use("describe", method=server)
    there = not answer.get("isError") and tool in [
        each["name"] for each in answer["structuredContent"]["tools"]
    ]
    if client.menu() == before:  # else it changed meanwhile
        assert (f"    - {tool}:" in before) == there
    return there


@pytest.fixture(scope="module")
def changing() -> Iterator[Gateway]:
    with Gateway(config(*(everything_server(era, "--era", era) for era in ERAS))) as gateway:
        yield gateway
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", MODES)
def test_a_tool_that_a_server_adds_or_removes_is_announced_and_found(
    changing: Gateway, mode: Compact, era: str, server: str
) -> None:
    """SUR-4, SUR-2, SUR-3, PRO-4: in the menu, in the index, and to be called."""
    client = Visitor(changing.port, mode, era)
    before = client.tools()
    with client.listening() as stream:
        for _ in range(2):
            there = text(client.run(server, "toggle_tool")) == "on"
            is_told(client, stream)
            wait_until(lambda there=there: shows(client, server, "extra") == there)
            called = client.run(server, "extra")
            assert text(called) == "extra" if there else called["isError"]
    assert client.tools() == before


@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_is_disabled_goes_and_comes_back(mode: Compact) -> None:
    """SUR-4, LIF-4, CFG-5: with `enabled: false` its tools are unknown, in the menu, in searches
    and in calls."""
    steady, fickle = told("steady"), raw_server("fickle")
    shape = config(steady, fickle, **{"global": QUICK})
    with Gateway(shape) as gateway:
        client = Visitor(gateway.port, mode)
        assert shows(client, "fickle", "whoami")
        with client.listening() as stream:
            replace(gateway, config(steady, {**fickle, "enabled": False}, **{"global": QUICK}))
            is_told(client, stream)
            wait_until(lambda: not shows(client, "fickle", "whoami"))
            client.error(client.run("fickle", "whoami"))
            if mode == "search":
                names = [
                    each["name"]
                    for each in client.use("mcp_list_services")["structuredContent"]["services"]
                ]
                assert names == ["steady"]
            replace(gateway, shape)
            is_told(client, stream)
            wait_until(lambda: shows(client, "fickle", "whoami"))
            assert text(client.run("fickle", "echo", {"text": "again"})) == "again"


@pytest.mark.parametrize("mode", MODES)
def test_a_reload_by_command_shows_new_servers_and_forgets_old_ones(mode: Compact) -> None:
    """SUR-4, CFG-5: `mcpx reload`; what was searched before is searched anew."""
    with Gateway(config(told("one"), **{"global": {"hot_reload": False}})) as gateway:
        client = Visitor(gateway.port, mode)
        assert shows(client, "one", "note")
        replace(gateway, config(raw_server("two"), **{"global": {"hot_reload": False}}))
        assert shows(client, "one", "note")
        command(gateway, "reload")
        wait_until(lambda: shows(client, "two", "whoami"))
        assert not shows(client, "one", "note")
        client.error(client.run("one", "note", {"path": "a"}))
        assert text(client.run("two", "echo", {"text": "a"})) == "a"


@pytest.mark.parametrize("mode", MODES)
def test_the_tools_of_a_server_that_is_down_stay(mode: Compact, tmp_path: Path) -> None:
    """LIF-4, SUR-4, SRC-8: listed and searchable; states and counts are true; a call says who is
    down."""
    broken = tmp_path / "broken"
    frail = held_up(raw_server("frail", max_retries=0, retry_delay=30), broken, exits=True)
    with Gateway(config(told("steady"), frail)) as gateway:
        client = Visitor(gateway.port, mode)
        menu = client.tools()
        broken.touch()
        assert client.error(client.run("frail", "die", {"code": 3})).startswith("frail: ")
        wait_until(lambda: state(gateway, "frail") not in ("connected", "connecting"))
        assert shows(client, "frail", "whoami")
        assert client.tools() == menu
        assert client.error(client.run("frail", "whoami")).startswith("frail: ")
        assert text(client.run("steady", "note", {"path": "a"})) == 'note {"path": "a"}'
        if mode == "search":
            services = client.use("mcp_list_services")["structuredContent"]["services"]
            entry = next(each for each in services if each["name"] == "frail")
            assert (entry["status"], entry["tool_count"]) == (state(gateway, "frail"), 8)
        broken.unlink()
        assert text(client.run("frail", "echo", {"text": "up"})) == "up"


def state(gateway: Gateway, server: str) -> str:
    return health(gateway.port)["servers"][server]["status"]


@pytest.mark.parametrize("mode", MODES)
def test_a_call_waits_for_a_server_that_is_starting(mode: Compact, tmp_path: Path) -> None:
    """LIF-1, SUR-9: its tools are not known yet, which is no reason to call them unknown."""
    wait = tmp_path / "wait"
    wait.touch()
    slow = held_up(told("slow"), wait)
    shape: Json = {
        "global": {"startup_wait": 0.05, "first_start_wait": 0.05},
        "mcp_servers": [raw_server("steady"), slow],
    }
    with Gateway(shape) as gateway:
        client = Visitor(gateway.port, mode)
        wait_until(lambda: shows(client, "steady", "whoami"))
        assert not shows(client, "slow", "note")
        with client.listening() as stream:
            soon = Timer(0.3, wait.unlink)
            soon.start()
            assert text(client.run("slow", "note", {"path": "a"})) == 'note {"path": "a"}'
            soon.join()
            is_told(client, stream)


def test_a_tool_may_be_called_by_its_own_name_while_its_server_is_starting(tmp_path: Path) -> None:
    """LIF-1, SUR-4: not only by the name under which clients are shown it."""
    wait = tmp_path / "wait"
    wait.touch()
    shape: Json = {
        "mcp_servers": [held_up(told("slow", prefix="s"), wait)],
    }
    with Gateway(shape) as gateway:
        client = Visitor(gateway.port, "search")
        soon = Timer(0.3, wait.unlink)
        soon.start()
        used = client.use("mcp_execute_tool", tool_name="note", arguments={"path": "a"})
        soon.join()
        assert text(used) == 'note {"path": "a"}'


def test_a_resource_of_one_server_is_read_while_another_is_starting(tmp_path: Path) -> None:
    """LIF-1, SUR-3: a call waits for its own server only; here the other never comes."""
    wait = tmp_path / "wait"
    wait.touch()
    shape: Json = {
        "global": {"startup_wait": 0.05, "first_start_wait": 0.05},
        "mcp_servers": [raw_server("steady"), held_up(told("slow", timeout=600), wait)],
    }
    with Gateway(shape) as gateway:
        client = Visitor(gateway.port, "describe")
        wait_until(lambda: shows(client, "steady", "whoami"))
        answer = client.ask(
            "tools/call",
            {"name": "resources", "arguments": {"server_name": "steady", "uri": "never://listed"}},
        )
        assert "error" in answer or answer["result"]["isError"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_other_instructions_of_a_server_are_announced_where_they_are_shown(tmp_path: Path) -> None:
    """SUR-2, PRO-4: its tools are the same, the menu is not."""
    server = told("told", tmp_path, {"instructions": "before"})
    with GatewayProcess(config(server)) as gateway:
        client = Visitor(gateway.port, "inspect")
        assert "told - before" in client.menu()
        with client.listening() as stream:
            told("told", tmp_path, {"instructions": "after"})
            for pid in descendants(gateway.process.pid):
                if b"told_server" in Path("/proc", str(pid), "cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
            # A call that meets the dying process fails with it.
            wait_until(
                lambda: text(client.run("told", "note", {"path": "a"})) == 'note {"path": "a"}'
            )
            assert next_notice(stream) == "notifications/tools/list_changed"
            assert "told - after" in client.menu()
