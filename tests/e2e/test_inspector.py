"""The official inspector before mcpx: a client that nobody here has written (PRO-1, RUN-2, NAM-1,
NAM-2, CFG-2).

It starts mcpx as any client does, without `--transport` and with a small environment, or connects
to it over HTTP and SSE. What it prints is compared with what it prints of the server itself.
"""

import functools
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.inspector import Answer, Json, inspect
from e2e.peers import STATIC, World, everything_on
from e2e.people import said
from e2e.processes import left_running, needs_proc
from kit.gateway import LISTENS, GatewayProcess
from kit.process import START, Child
from mcpx.catalog.naming import wrap_uri

Inspect = Callable[..., Answer]

MCPX = str(Path(sys.executable).parent / "mcpx")
"""The command that an installation brings."""

ALONE = ("-e", "MCPX_STANDALONE=true")
SHARED = ("-e", "MCPX_LINGER=0")
"""As the inspector gives variables to what it starts: the gateway that all clients share ends with
its last one."""
ROUTES = ("stdio", "http", "sse", "modern-http")
SUM = {"a": 2, "b": 40}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def proxy_shape(earth: World) -> Json:
    """S3: `servers`, each with its whole command in a list."""
    peers = earth.peers("inspected.jsonl")
    servers = [
        {
            "id": name,
            "command": list(peers[name].command),
            "env": {"LOG_LEVEL": "info", **peers[name].env},
        }
        for name in ("everything", "memory")
    ]
    return {"servers": servers, "global": {"startup_wait": 20, "first_start_wait": 20}}


@pytest.fixture(scope="module")
def file(proxy_shape: Json, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("config") / "proxy.json", proxy_shape)


@pytest.fixture(scope="module")
def gateway(proxy_shape: Json) -> Iterator[GatewayProcess]:
    with GatewayProcess(proxy_shape) as running:
        yield running
        assert "Traceback" not in running.stderr(), running.stderr()


def write(path: Path, config: Json) -> str:
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module", params=ROUTES)
def through(
    request: pytest.FixtureRequest, gateway: GatewayProcess, file: str, home: Path
) -> Inspect:
    """The inspector at mcpx, by one route."""
    transport, era = (
        request.param.removeprefix("modern-"),
        "modern" if "modern" in request.param else "legacy",
    )
    target = {
        "stdio": [MCPX, file, *SHARED],
        "http": [gateway.url, "--transport", "http"],
        "sse": [gateway.url.removesuffix("/mcp") + "/sse", "--transport", "sse"],
    }[transport]
    return functools.partial(inspect, [*target, "--protocol-era", era], home)


@pytest.fixture(scope="module")
def direct(home: Path) -> Iterator[Inspect]:
    """The inspector at the everything server itself; what was asked before is not asked again."""
    with everything_on("streamableHttp") as url:
        yield functools.cache(functools.partial(inspect, [url, "--transport", "http"], home))


def test_tools_are_listed_with_the_names_of_their_servers(
    through: Inspect, direct: Inspect
) -> None:
    """NAM-2, NAM-3, SUR-1"""
    answer = through("--method", "tools/list")
    assert answer.code == 0, answer.stderr
    of_everything = [
        tool for tool in answer.result["tools"] if tool["name"].startswith("everything::")
    ]
    of_memory = [
        tool["name"] for tool in answer.result["tools"] if tool["name"].startswith("memory::")
    ]
    assert len(of_everything) + len(of_memory) == len(answer.result["tools"])
    assert "memory::create_entities" in of_memory
    by_name = {tool["name"]: tool for tool in of_everything}
    for tool in direct("--method", "tools/list").result["tools"]:
        if tool["name"] == "get-roots-list":
            continue  # only for those who have roots, see test_six_servers
        mark = {"proxy": {"server": "everything", "name": tool["name"]}}
        expected = {**tool, "name": f"everything::{tool['name']}", "_meta": mark}
        found = by_name[expected["name"]]
        # In the modern era, which has no such tasks, the inspector itself drops what a tool says of
        # them.
        assert {"execution": tool["execution"], **found} == expected


def test_a_tool_is_called(through: Inspect, direct: Inspect) -> None:
    """PRO-2, PRO-6: the inspector looks the tool up in the list first, as most clients do."""
    words = ("--tool-args-json", json.dumps(SUM))
    answer = through("--method", "tools/call", "--tool-name", "everything::get-sum", *words)
    assert answer.code == 0, answer.stderr
    assert (
        answer.result == direct("--method", "tools/call", "--tool-name", "get-sum", *words).result
    )
    assert "42" in answer.result["content"][0]["text"]


def test_a_resource_is_read_by_the_address_it_is_listed_with(
    through: Inspect, direct: Inspect
) -> None:
    """PRO-2, NAM-4"""
    listed = through("--method", "resources/list")
    assert listed.code == 0, listed.stderr
    uri = wrap_uri("everything", STATIC)
    assert uri in [resource["uri"] for resource in listed.result["resources"]]
    answer = through("--method", "resources/read", "--uri", uri)
    assert answer.code == 0, answer.stderr
    assert said(answer.result) == direct("--method", "resources/read", "--uri", STATIC).result


def test_a_prompt_is_listed_and_filled_in(through: Inspect, direct: Inspect) -> None:
    """PRO-2, NAM-2"""
    listed = through("--method", "prompts/list")
    assert listed.code == 0, listed.stderr
    assert "everything::args-prompt" in [prompt["name"] for prompt in listed.result["prompts"]]
    words = ("--prompt-args", "city=Paris", "state=Texas")
    answer = through("--method", "prompts/get", "--prompt-name", "everything::args-prompt", *words)
    assert answer.code == 0, answer.stderr
    assert (
        answer.result
        == direct("--method", "prompts/get", "--prompt-name", "args-prompt", *words).result
    )


def test_the_modern_era_is_spoken_on_stdio_too(file: str, home: Path) -> None:
    """PRO-1, SRC-2"""
    words = (
        "--method",
        "tools/call",
        "--tool-name",
        "everything::echo",
        "--tool-arg",
        "message=hello",
    )
    answer = inspect([MCPX, file, "--protocol-era", "modern"], home, *SHARED, *words)
    assert answer.code == 0, answer.stderr
    assert answer.result["content"] == [{"type": "text", "text": "Echo: hello"}]


def test_a_failed_call_is_the_servers_own_failure(
    gateway: GatewayProcess, direct: Inspect, home: Path
) -> None:
    """PRO-6: mcpx checks no arguments, and hides no complaint about them."""
    words = ("--tool-args-json", '{"a": "two"}')
    target = [gateway.url, "--transport", "http"]
    answer = inspect(
        target, home, "--method", "tools/call", "--tool-name", "everything::get-sum", *words
    )
    expected = direct("--method", "tools/call", "--tool-name", "get-sum", *words)
    assert answer.error["code"] == expected.error["code"] == "tool_is_error"
    assert answer.code == expected.code


def test_an_mcp_servers_map_gives_names_with_an_underscore(
    earth: World, home: Path, tmp_path: Path
) -> None:
    """NAM-2, CFG-2: the file of a client, taken as it is."""
    peers = earth.peers("map.jsonl")
    entries = {name: peers[name].client for name in ("memory", "filesystem")}
    file = write(
        tmp_path / "map.json",
        {"mcpServers": entries, "global": {"startup_wait": 20, "first_start_wait": 20}},
    )
    answer = inspect([MCPX, file], home, *SHARED, "--method", "tools/list")
    assert answer.code == 0, answer.stderr
    names = [tool["name"] for tool in answer.result["tools"]]
    assert [name.split("_", 1)[0] for name in names] == ["memory"] * 9 + ["filesystem"] * (
        len(names) - 9
    )
    assert {"memory_read_graph", "filesystem_read_text_file"} <= set(names)


def test_a_server_that_cannot_start_costs_only_itself(
    earth: World, home: Path, tmp_path: Path
) -> None:
    """SRC-8, LIF-1: the others are there, and mcpx says what is wrong."""
    entries = {
        "absent": {"command": "no-such-program-anywhere", "args": []},
        "broken": {"command": sys.executable, "args": ["-c", "import no_such_module_anywhere"]},
        "memory": earth.peers("beside.jsonl")["memory"].client,
    }
    file = write(
        tmp_path / "map.json",
        {"mcpServers": entries, "global": {"startup_wait": 20, "first_start_wait": 20}},
    )
    answer = inspect([MCPX, file], home, *ALONE, "--method", "tools/list")
    assert answer.code == 0, answer.stderr
    assert {tool["_meta"]["proxy"]["server"] for tool in answer.result["tools"]} == {"memory"}
    for word in ("absent", "no-such-program-anywhere", "broken", "no_such_module_anywhere"):
        assert word in answer.stderr


def test_without_a_config_the_inspector_finds_the_demo(home: Path, tmp_path: Path) -> None:
    """RUN-3, RUN-2: nothing is written, neither here nor at home."""
    before = sorted(home.rglob("*mcpx*"))
    answer = inspect([MCPX], home, "--cwd", str(tmp_path), "--method", "tools/call", "--tool-name", "demo_calculate",
                     "--tool-arg", "expression=6*7")  # fmt: skip
    assert answer.code == 0, answer.stderr
    assert "42" in answer.result["content"][0]["text"]
    assert (list(tmp_path.iterdir()), sorted(home.rglob("*mcpx*"))) == ([], before)


def test_the_line_that_the_demo_tells_people_to_try_works(home: Path, tmp_path: Path) -> None:
    """RUN-3"""
    env = {**os.environ, "HOME": str(home)}
    with Child([MCPX, "--port", "0"], env, cwd=tmp_path) as child:
        advice = child.stderr.wait_for(r"Try +.*\bmcpx (call .*)$", START)
        assert advice is not None, child.stderr.text
        url = child.stderr.wait_for(LISTENS, START)
        assert url is not None
        said = subprocess.run(
            [MCPX, *shlex.split(advice[1])],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=START,
        )
        assert (said.returncode, said.stdout.strip()) == (0, "42"), said
        answer = inspect([url[0], "--transport", "http"], home, "--method", "tools/list")
    assert answer.code == 0, answer.stderr
    assert [tool["name"] for tool in answer.result["tools"]] != []


@needs_proc
def test_nothing_is_left_running_when_the_inspector_has_gone(
    earth: World, home: Path, tmp_path: Path
) -> None:
    """LIF-7, LIF-8: servers that npm and Python bring, and one behind a shell."""
    mark = tmp_path / "marked"
    mark.mkdir()
    servers = {peer.name: peer.client for peer in earth.marked(str(mark))}
    command = [servers["everything"]["command"], *servers["everything"]["args"]]
    servers["shell"] = {"command": "sh", "args": ["-c", f"{shlex.join(command)}; true"]}
    file = write(
        tmp_path / "map.json",
        {"mcpServers": servers, "global": {"startup_wait": 20, "first_start_wait": 20}},
    )
    answer = inspect([MCPX, file], home, *ALONE, "--method", "tools/list")
    assert answer.code == 0, answer.stderr
    assert {tool["_meta"]["proxy"]["server"] for tool in answer.result["tools"]} == set(servers)
    assert left_running(str(mark)) == []
