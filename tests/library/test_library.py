"""RUN-7: `Gateway.open` inside a program: the same gateway as the one that is served, and ended
with all it started."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures.using_server import PICTURE
from kit.until import wait_until
from library.conftest import using
from mcpx import (
    Change,
    ConfigError,
    Denied,
    Gateway,
    McpxError,
    NotFound,
    Progress,
    Question,
    Unavailable,
)

Config = dict[str, Any]


def opened(config: Config, work: Callable[[Gateway], Awaitable[None]], **how: Any) -> None:
    async def run() -> None:
        async with Gateway.open(config, **{"state": None, **how}) as gateway:
            await work(gateway)

    asyncio.run(run())


def test_a_program_finds_everything_under_the_names_clients_find() -> None:
    """RUN-7: with the server and the name there; raw is what came."""

    async def work(gateway: Gateway) -> None:
        tools = await gateway.tools()
        assert [(tool.name, tool.path) for tool in tools][::8] == [
            ("add", "one.add"),
            ("two_add", "two.add"),
        ]
        add = tools[0]
        assert (
            add.read_only is True
            and add.input_schema["required"] == ["a", "b"]
            and add.raw["name"] == "add"
        )
        assert {tool.server for tool in await gateway.tools("two")} == {"two"}
        assert [found.tool.path for found in await gateway.search("delete everything", 1)] == [
            "one.delete_all"
        ]
        told = await gateway.describe("two.add")
        assert told.signature == "two.add({a: number /* The first; integer */, b: number})"
        assert told.text == f"{told.signature}\nAdd two numbers"
        assert [prompt.path for prompt in await gateway.prompts()] == ["one.greet", "two.greet"]
        assert (await gateway.prompt("two.greet", {"who": "Ada"}))[0].content.text == "Hello Ada!"
        resources = await gateway.resources()
        assert [resource.own_uri for resource in resources[:2]] == ["using://text", "using://bytes"]
        assert (await gateway.read(resources[0].uri))[0].text == "what it says"
        assert (await gateway.read("using://bytes"))[0].data == PICTURE

    opened({"mcp_servers": [using("one"), using("two")]}, work)


def test_a_call_gives_a_result_also_when_the_tool_failed() -> None:
    """RUN-7: an exception says that there is no answer; a tool that failed has answered."""

    async def work(gateway: Gateway) -> None:
        result = await gateway.call("one.add", {"a": 1, "b": 2})
        assert (result.text, result.structured, result.value, result.is_error) == (
            "3",
            {"sum": 3},
            {"sum": 3},
            False,
        )
        failed = await gateway.call("fail")
        assert failed.is_error and failed.text == "fail did not work"
        assert (await gateway.call("report")).value == {"rows": [{"id": 1}, {"id": 2}]}
        picture = await gateway.call("picture")
        assert picture.content[1].data == PICTURE and picture.content[1].mime_type == "image/png"
        with pytest.raises(NotFound):
            await gateway.call("one.nothing")
        with pytest.raises(Unavailable) as caught:
            await gateway.call("down.thing")
        assert caught.value.server == "down"
        checked = await gateway.check("one.add", {"a": "1", "b": "x"})
        assert (
            checked.problems and not (await gateway.check("one.add", {"a": "1", "b": 2})).problems
        )

    opened(
        {
            "mcp_servers": [
                using("one"),
                {"name": "down", "connection": {"type": "stdio", "command": "/nope"}},
            ]
        },
        work,
    )


def test_progress_is_heard_and_a_timeout_cancels_at_the_server(tmp_path: Path) -> None:
    """LIF-6"""
    record = tmp_path / "record"

    async def work(gateway: Gateway) -> None:
        heard: list[Progress] = []
        result = await gateway.call("one.slow", {"seconds": 0.2}, on_progress=heard.append)
        assert result.text == "done" and heard[0].total == 10 and heard[-1].message == "step 9"
        with pytest.raises(TimeoutError):
            await gateway.call("one.slow", {"seconds": 60}, timeout=0.3)
        await asyncio.to_thread(wait_until, lambda: "cancelled" in record.read_text())

    opened({"mcp_servers": [using("one", "--record", str(record))]}, work)


def test_what_servers_ask_is_put_to_the_program() -> None:
    """PRO-4: to whoever opened the gateway; None declines."""
    asked: list[Question] = []

    async def elicit(question: Question) -> dict[str, Any] | None:
        asked.append(question)
        return (
            None
            if len(asked) == 2
            else {"action": "accept", "content": {"name": "Ada", "sure": True}}
        )

    async def work(gateway: Gateway) -> None:
        first = json.loads((await gateway.call("one.ask")).text)
        assert first == {"action": "accept", "content": {"name": "Ada", "sure": True}}
        assert json.loads((await gateway.call("one.ask")).text) == {"action": "decline"}
        assert asked[0].server == "one" and asked[0].params["message"] == "Who are you?"

    opened({"mcp_servers": [using("one")]}, work, elicit=elicit)


def test_health_tells_how_each_server_is() -> None:
    """RUN-7: what S1 calls get_server_health."""

    async def work(gateway: Gateway) -> None:
        assert await gateway.ready() == []
        one, down = await gateway.health("one"), await gateway.health("down")
        assert one.healthy and one.status == "connected" and one.tools == 8
        assert (
            not down.healthy
            and down.status == "disconnected"
            and "command not found" in (down.last_error or "")
        )
        with pytest.raises(NotFound):
            await gateway.health("nobody")

    opened(
        {
            "mcp_servers": [
                using("one"),
                {"name": "down", "connection": {"type": "stdio", "command": "/nope"}},
            ]
        },
        work,
    )


def test_rules_profiles_and_the_trail_hold_as_in_a_gateway_that_is_served(tmp_path: Path) -> None:
    """SEC-2, SEC-7, OBS-1"""
    trail = tmp_path / "trail.jsonl"
    config = {
        "mcp_servers": [using("one")],
        "policy": {"rules": [{"effect": "deny", "tools": ["delete_all"], "reason": "not today"}]},
        "profiles": [{"name": "few", "tools": ["add", "delete_all"]}],
        "global": {"audit": {"file": str(trail)}},
    }

    async def work(gateway: Gateway) -> None:
        assert [tool.tool for tool in await gateway.tools()] == ["add", "delete_all"]
        with pytest.raises(NotFound):
            await gateway.call("one.pick", {"colour": "red"})
        with pytest.raises(Denied, match="not today"):
            await gateway.call("one.delete_all")
        await gateway.call("one.add", {"a": 1, "b": 1})

    opened(config, work, profile="few", state=tmp_path / "state")
    rows = [json.loads(line) for line in trail.read_text().splitlines()]
    assert [
        (row["name"], row["outcome"]) for row in rows if row.get("name") in ("add", "delete_all")
    ] == [
        ("delete_all", "denied"),
        ("add", "ok"),
    ]


def test_a_compact_mode_shows_its_menu_and_its_tools_can_be_called() -> None:
    """SUR-4: the same surface a client would get."""

    async def work(gateway: Gateway) -> None:
        assert (await gateway.menu())[0].name == "mcp_search_tools"
        found = await gateway.call("mcp_search_tools", {"query": "add"})
        assert found.structured["tools"][0]["name"] == "add"
        assert (await gateway.call("add", {"a": 1, "b": 1})).text == "2"

    opened({"mcp_servers": [using("one")]}, work, mode="search")


def test_changes_are_heard_and_the_configuration_is_read_again(tmp_path: Path) -> None:
    """CFG-5"""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"mcp_servers": [using("one")]}))
    heard: list[Change] = []

    async def work() -> None:
        async with Gateway.open(file, state=None, on_change=heard.append) as gateway:
            assert len(await gateway.tools()) == 8
            file.write_text(json.dumps({"mcp_servers": [using("one"), using("two")]}))
            assert "1 started (two)" in await gateway.reload()
            assert len(await gateway.tools()) == 16
            await asyncio.to_thread(
                wait_until, lambda: any(change.what == "tools" for change in heard)
            )
            file.write_text("{")
            with pytest.raises(ConfigError):
                await gateway.reload()
            assert len(await gateway.tools()) == 16
        assert Change("server", "one") in heard

    asyncio.run(work())


@pytest.mark.parametrize(
    ("config", "how", "told"),
    [
        ({"mcp_servers": [{"name": "a", "conection": {}}]}, {}, "conection"),
        ({"mcp_servers": []}, {"mode": "loud"}, "there is no mode 'loud'"),
        ({"mcp_servers": []}, {"profile": "p"}, "no profile is named 'p'"),
        ({"mcp_servers": []}, {"servers": ["x"]}, "no server is named 'x'"),
        ("nowhere.yaml", {}, "does not exist"),
        ({"x-y": {1, 2}}, {}, "not what JSON can say"),
    ],
)
def test_mistakes_are_told_before_anything_is_started(config: Any, how: Config, told: str) -> None:
    async def nothing(gateway: Gateway) -> None:
        raise AssertionError

    with pytest.raises(ConfigError, match=told):
        opened(config, nothing, **how)


def test_two_gateways_live_side_by_side_and_each_ends_its_own(tmp_path: Path) -> None:
    """RUN-7: no state that they share; LIF-7."""
    first, second = tmp_path / "first", tmp_path / "second"

    async def work() -> None:
        async with Gateway.open(
            {"mcp_servers": [using("one", "--record", str(first))]}, state=None
        ) as one:
            async with Gateway.open(
                {"mcp_servers": [using("two", "--record", str(second))]}, state=None
            ) as two:
                assert (await two.tools())[0].server == "two"
                assert (await one.call("one.add", {"a": 1, "b": 1})).text == "2"
            with pytest.raises(McpxError, match="closed"):
                await two.tools()
            assert (await one.call("one.add", {"a": 2, "b": 2})).text == "4"

    asyncio.run(work())


PROGRAM = """
import asyncio, os, signal, subprocess, sys
from mcpx import Gateway
own = subprocess.Popen(["sleep", "60"])

async def main():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    async with Gateway.open("config.json", state=None) as gateway:
        await gateway.tools()
        assert type(asyncio.get_running_loop()).__module__.startswith("asyncio")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    children = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    print(*[line for line in children.stdout.splitlines() if "ps -o" not in line], sep="\\n")

asyncio.run(main())
print("own", own.poll())
own.kill()
"""


@pytest.mark.needs("ps")
def test_a_program_keeps_its_own_children_loop_and_signals(tmp_path: Path) -> None:
    """LIF-7: closing ends what the gateway started, and nothing else."""
    (tmp_path / "config.json").write_text(json.dumps({"mcp_servers": [using("one"), using("two")]}))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    *children, last = ended.stdout.splitlines()
    assert ended.returncode == 0, ended.stderr
    assert last == "own None" and len(children) == 1 and "sleep 60" in children[0]


HELD = """
import asyncio, os, subprocess
from mcpx import Gateway

async def main():
    async with Gateway.open("config.json", state=None) as gateway:
        await gateway.tools()
        ps = ["ps", "-o", "pid=", "--ppid", str(os.getpid())]
        print(subprocess.run(ps, capture_output=True, text=True).stdout, flush=True)
        print("ready", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.needs("ps")
def test_a_program_that_is_killed_leaves_no_server_behind(tmp_path: Path) -> None:
    """LIF-7"""
    (tmp_path / "config.json").write_text(
        json.dumps({"mcp_servers": [using("one", "--record", "pid")]})
    )
    child = subprocess.Popen(
        [sys.executable, "-c", HELD], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    pids: list[int] = []
    while (line := child.stdout.readline().strip()) != "ready":
        pids += [int(line)] if line else []
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)

    def gone(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    assert pids
    wait_until(lambda: all(map(gone, pids)))


def test_importing_the_package_loads_next_to_nothing() -> None:
    code = (
        "import sys, mcpx; print(len([m for m in sys.modules if m.startswith('mcpx.')]), "
        "'asyncio' in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
        ).stdout
        == "0 False\n"
    )
