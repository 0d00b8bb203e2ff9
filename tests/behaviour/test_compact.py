"""A model's way through each compact surface, with nothing but what the surface tells it, on every
front.

The parts are proved elsewhere: `test_compact_inspect`, `_describe` and `_search` (SUR-2, SUR-3,
SUR-4), `_modes` (SUR-5, SUR-6), `_results` (SUR-7, SUR-8), `_mistakes` (SUR-9), `_menus` (SUR-10),
`_large` (SUR-11), `_calls` (PRO-2, PRO-5, PRO-6) and `_changes` (LIF-4).
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import anyio
import pytest

from behaviour.clients import (
    BOUND,
    FRONTS,
    KINDS,
    AnsweringUser,
    Client,
    Door,
    Front,
    Kind,
    connected,
)
from behaviour.compact import MODES, Compact, Json, config, text, told
from kit.gateway import Gateway, GatewayProcess

ROWS = [
    {"id": number, "title": f"Commit number {number}", "author": "Ada"} for number in range(900)
]
COMMITS = {
    "name": "commits",
    "description": "Lists the commits of a repository",
    "inputSchema": {
        "type": "object",
        "properties": {"branch": {"type": "string"}},
        "required": ["branch"],
    },
}
CELLS = [
    (kind, front, mode)
    for kind in KINDS
    for front in FRONTS
    for mode in MODES
    if not (front == "sse" and kind.endswith("modern"))  # HTTP+SSE ended with 2025-03-26
]


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Compact, Gateway]]:
    """One gateway for each mode, which is its default: on every front, not only on a path of
    HTTP."""
    folder = tmp_path_factory.mktemp("compact")
    server = told("git", folder, {"instructions": "Knows a repository.", "tools": [COMMITS]})
    with ExitStack() as stack:
        yield {mode: stack.enter_context(Gateway(config(server, mode=mode))) for mode in MODES}


@contextmanager
def door_of(gateway: Gateway, front: Front) -> Iterator[Door]:
    if front != "stdio":
        base = f"127.0.0.1:{gateway.port}"
        urls = {
            "http": f"http://{base}/mcp",
            "sse": f"http://{base}/sse",
            "websocket": f"ws://{base}/ws",
        }
        yield Door(front, urls[front])
        return
    with GatewayProcess(gateway.config, transport="stdio") as alone:
        stderr = alone.folder / "stderr.txt"
        yield Door(front, command=alone.stdio_command, env=alone.env, stderr=stderr)
        assert "Traceback" not in stderr.read_text(encoding="utf-8")


async def found_in_menu(client: Client, mode: Compact) -> tuple[str, str]:
    """Where the tool for commits is, read off the menu or searched for: the server and the tool."""
    tools = {tool["name"]: tool for tool in await client.listed("tools/list")}
    if mode == "search":
        answer = await client.call("mcp_search_tools", {"query": "list commits"})
        best = answer["structuredContent"]["tools"][0]
        assert f"{best['display_name']}({{branch: string}})" in text(answer)
        return "", best["display_name"]
    menu = tools["inspect" if mode == "inspect" else "describe"]["description"]
    found = re.search(
        r"  Server: (\S+) - Knows a repository\.\n(?:    - .*\n)*?    - (\S+): Lists the commits",
        menu,
    )
    assert found is not None, menu
    return found[1], found[2]


def a_call(mode: Compact, server: str, tool: str, arguments: Json) -> tuple[str, Json]:
    match mode:
        case "inspect":
            return "exec", {"server_name": server, "tool_name": tool, "arguments": arguments}
        case "describe":
            return "call", {"method": f"{server}.{tool}", "arguments": arguments}
        case "search":
            return "mcp_execute_tool", {"tool_name": tool, "arguments": arguments}


def the_call_in(told: str) -> tuple[str, Json]:
    """The call that the last line of a text tells: the tool and its arguments, as they stand
    there."""
    found = re.search(r"(\w+) (?=\{)", told.splitlines()[-1])
    assert found is not None, told
    return found[1], json.JSONDecoder().raw_decode(told.splitlines()[-1], found.end())[0]


@pytest.mark.parametrize(("kind", "front", "mode"), CELLS, ids=lambda part: part)
def test_a_model_finds_understands_calls_and_reads_on(
    kind: Kind, front: Front, mode: Compact, gateways: dict[Compact, Gateway]
) -> None:
    """SUR-2, SUR-3, SUR-4, SUR-6, SUR-9, SUR-11: find, get it wrong, get it right, read the rest of
    a large result."""

    async def walk(client: Client) -> None:
        server, tool = await found_in_menu(client, mode)
        wrong = await client.call(*a_call(mode, server, tool, {"brunch": "main"}))
        assert wrong["isError"] is True
        assert "branch" in text(wrong) and "({branch: string})" in text(wrong)
        right = await client.call(*a_call(mode, server, tool, {"branch": "main"}))
        assert text(right) == 'commits {"branch": "main"}'
        given = {"result": {"content": [{"type": "text", "text": json.dumps(ROWS)}]}}
        giver = "git_give" if mode == "search" else "give"
        large = await client.call(*a_call(mode, server, giver, given))
        name, call = the_call_in(text(large))
        assert int(text(await client.call(name, call))) > 0, "an example that finds something"
        call["arguments"] = {"handle": call["arguments"]["handle"], "offset": 898}
        rest = text(await client.call(name, call))
        assert (
            "Commit number 898" in rest
            and "Commit number 899" in rest
            and "Commit number 897" not in rest
        )

    async def check() -> None:
        user = AnsweringUser(f"{kind} over {front}", quiet=True)
        with door_of(gateways[mode], front) as door, anyio.fail_after(BOUND):
            async with connected(kind, door, user) as client:
                await walk(client)
        assert user.complaints == []

    anyio.run(check)
