"""EXT-1 in its interim form: servers receive only extensions that mcpx routes, and a task is
reported as an error."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from behaviour.compact import MODES, Compact, Json, Visitor, config, texts
from kit.admin_api import AdminApi
from kit.client import Session, post_modern
from kit.command import run_command
from kit.gateway import Gateway
from kit.messages import modern_request, text_of
from kit.process import stdio_command
from kit.servers import stdio_server

ERAS = ("older", "modern")
ISOLATIONS = ("shared", "per_session")
UI = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
OTHERS = {"io.modelcontextprotocol/tasks": {}, "com.example/other": {"anything": 1}}
DECLARED: Json = {
    "elicitation": {},
    "extensions": {**UI, **OTHERS},
    "experimental": OTHERS,
    "tasks": {"cancel": {}, "requests": {"elicitation": {"create": {}}}},
}


def server_name(era: str, isolation: str) -> str:
    return f"{era}-{isolation.replace('_', '-')}"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    servers = [
        stdio_server(
            server_name(era, isolation),
            stdio_command("task_server.py", "--era", era),
            isolation=isolation,
        )
        for era in ERAS
        for isolation in ISOLATIONS
    ]
    with Gateway(config(*servers), admin=True) as gateway:
        yield gateway


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_server_receives_only_extensions_that_mcpx_routes(
    gateway: Gateway, client_era: str, server_era: str, isolation: str
) -> None:
    """EXT-1: on links of both eras, shared or private. A request for a task (2025-11-25) is not
    forwarded either."""
    name = f"{server_name(server_era, isolation)}_received"
    params = {"name": name, "arguments": {}, "task": {"ttl": 1000}}
    if client_era == "modern":
        message = modern_request("tools/call", params, capabilities=DECLARED)
        answer = post_modern(gateway.port, message).message
    else:
        answer = Session(gateway.port, capabilities=DECLARED).request("tools/call", params)
    received = json.loads(text_of(answer))
    assert received["capabilities"] == {"elicitation": {}, "extensions": UI}
    assert "task" not in received["params"]


def test_mcpx_announces_no_extension_of_a_server(gateway: Gateway) -> None:
    """EXT-1: the servers declare two extensions and `tasks`."""
    discovered = post_modern(gateway.port, modern_request("server/discover")).message["result"]
    for announced in (Session(gateway.port, capabilities=DECLARED).greeting, discovered):
        assert not announced["capabilities"].keys() & {"extensions", "experimental", "tasks"}


def assert_reports_task(text: str, server: str) -> None:
    assert text.startswith(
        f"{server}: the call was made, but the server returned a task instead of a result"
    ), text


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
def test_a_task_is_an_error_in_direct_mode(
    gateway: Gateway, client_era: str, server_era: str
) -> None:
    """EXT-1: the error names the server and states that the call was made."""
    server = server_name(server_era, "shared")
    error = Visitor(gateway.port, "direct", client_era).ask(
        "tools/call", {"name": f"{server}_work"}
    )["error"]
    assert error["code"] == -33005
    assert error["data"]["server"] == server
    assert_reports_task(error["message"], server)


def batch_of(mode: Compact, server: str) -> Json:
    match mode:
        case "inspect":
            return {"server_name": server, "tool_name": "work"}
        case "describe":
            return {"method": f"{server}.work"}
        case "search":
            return {"tool_name": f"{server}_work"}


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("client_era", ERAS)
@pytest.mark.parametrize("mode", MODES)
def test_a_task_is_an_error_in_compact_modes(
    gateway: Gateway, mode: Compact, client_era: str, server_era: str
) -> None:
    """EXT-1, SUR-12: also for the members of a batch."""
    server = server_name(server_era, "shared")
    client = Visitor(gateway.port, mode, client_era)
    assert_reports_task(client.error(client.run(server, "work")), server)
    caller = {"inspect": "exec", "describe": "call", "search": "mcp_execute_tool"}[mode]
    batch: Any = client.use(caller, calls=[batch_of(mode, server)])
    assert batch["isError"] is True
    assert f"{server}: the call was made, but the server returned a task" in "\n".join(texts(batch))


@pytest.mark.parametrize("server_era", ERAS)
def test_a_task_is_an_error_for_the_administrator(gateway: Gateway, server_era: str) -> None:
    """EXT-1: with `mcpx call` and with a call of the admin page."""
    server = server_name(server_era, "shared")
    called = AdminApi(gateway).post(f"/api/tools/{server}_work/call", {"arguments": {}})
    assert called["ok"] is False
    assert_reports_task(called["error"]["message"], server)
    done = run_command(
        ["call", f"{server}_work", "--config", str(gateway.file)], gateway.folder, gateway.env
    )
    assert done.returncode == 1, done
    assert "the call was made, but the server returned a task" in done.stderr
    assert server in done.stderr
