"""SEC-2, SEC-5: ways round what is hidden, each found open once."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from attacks.hiding import Json, World
from behaviour.clients import AnsweringUser, Door, Front, raw_client
from behaviour.compact import Compact, Visitor, config, meta_call, told
from behaviour.compact import replace as change
from kit.client import Session, post, wait_until_settled
from kit.gateway import GatewayProcess
from kit.http_client import fetch
from kit.messages import META, MODERN, modern_headers, request
from kit.servers import stdio_server
from kit.until import until, wait_until
from mcpx.catalog.naming import spellings, wrap_uri

BOUND = 30.0
ASKING = Path(__file__).parents[1] / "behaviour" / "asking_server.py"


def holding(server: str) -> Json:
    uris = [
        f"{server}://open/a",
        f"{server}://shut/b",
        f"{server}://open/../shut/b",
        f"{server}://open/%2e%2e/shut/b",
    ]
    return {
        "contents": {
            uri: [{"uri": uri, "text": f"text of {server}"}] for uri in (*uris, "any://where")
        },
        "templates": [{"uriTemplate": "shown://open/{+path}", "name": "open"}]
        if server == "shown"
        else [],
    }


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("hidden")
    servers = [told(name, folder, holding(name)) for name in ("shown", "unseen")]
    profiles = [
        {"name": "tools", "tools": ["shown.*"]},
        {"name": "open", "resources": ["*://open/*"]},
    ]
    with GatewayProcess(config(*servers, profiles=profiles)) as running:
        wait_until_settled(running.port)
        yield running


def said(session: Session, method: str, uri: str) -> Json:
    answer = session.request(method, {"uri": uri})
    assert "error" in answer, answer
    return {"code": answer["error"]["code"], "message": answer["error"]["message"]}


def test_a_server_of_which_nothing_is_seen_is_not_reached_by_a_forged_uri(
    gateway: GatewayProcess,
) -> None:
    session = Session(gateway.port, path="/p/tools/mcp")
    for method in ("resources/read", "resources/subscribe", "resources/unsubscribe"):
        hidden, unknown = (wrap_uri(name, "any://where") for name in ("unseen", "nobody"))
        forged, nothing = said(session, method, hidden), said(session, method, unknown)
        assert forged["message"].replace(hidden, unknown) == nothing["message"]
        assert forged["code"] == nothing["code"]
    read = session.request("resources/read", {"uri": wrap_uri("shown", "any://where")})
    assert read["result"]["contents"][0]["text"] == "text of shown"


@pytest.mark.parametrize("way", ["..", "%2e%2e", "%252e%252e", ".\\.."])
def test_a_pattern_is_not_passed_by_another_spelling_of_a_uri(
    gateway: GatewayProcess, way: str
) -> None:
    session = Session(gateway.port, path="/p/open/mcp")
    assert "result" in session.request(
        "resources/read", {"uri": wrap_uri("shown", "shown://open/a")}
    )
    said(session, "resources/read", wrap_uri("shown", "shown://shut/b"))
    uri = wrap_uri("shown", f"shown://open/{way}/shut/b")
    assert said(session, "resources/read", uri)["message"] == f"Unknown resource: {uri}"


def test_an_ordinary_uri_has_one_spelling() -> None:
    for uri in (
        "file:///a/b",
        "file:///a/b/",
        "notes://a",
        "urn:x:y",
        "s://host:1/a?b=c#d",
        "",
        "a/b",
    ):
        assert spellings(uri) == [uri]
    assert "file:///etc/shadow" in spellings("file:///tmp/%252e%252e/etc//shadow")
    assert "s://host/A" in spellings("S://HOST/A")


@pytest.mark.parametrize("front", ["stdio", "websocket", "http"])
def test_a_server_in_quarantine_says_and_asks_nothing(tmp_path: Path, front: Front) -> None:
    """Neither its log messages, nor that its lists have changed, nor a question of its own reach a
    client."""
    world = World(Random(7))
    here = [world.quarantined, world.servers[0]]
    for server in here:
        server.tell(tmp_path, server.things)
    settings = {
        "global": {"startup_wait": 15},
        "mcp_servers": [server.entry(tmp_path) for server in here],
    }
    received: list[Any] = []

    async def main(place: Door) -> None:
        async with raw_client(place, AnsweringUser("ada"), modern=False) as client:
            carrier = client._carrier  # pyright: ignore[reportPrivateUsage]
            hear = carrier.hear
            carrier.hear = lambda message: (received.append(message), hear(message))[1]
            received.append(client.told)
            for kind in ("tools", "prompts", "resources"):
                await client.request(f"{kind}/list")
            await client.request("logging/setLevel", {"level": "debug"})
            for server in here:  # the other one last: once it is heard of, the first has been heard
                before = server.log(tmp_path).count("noise")
                server.tell(tmp_path, server.things[1:], mark="louder")
                await until(
                    lambda server=server, before=before: (
                        server.log(tmp_path).count("noise") > before
                    )
                )
            await client.user.next_after(0, "notifications/tools/list_changed")
            await client.request("tools/list")

    async def bounded(place: Door) -> None:
        with anyio.fail_after(BOUND):
            await main(place)

    with GatewayProcess(settings, transport="stdio" if front == "stdio" else "http") as running:
        if front == "stdio":
            place = Door(
                "stdio", command=running.stdio_command, env=running.env, stderr=tmp_path / "stderr"
            )
        else:
            wait_until_settled(running.port)
            scheme, path = {"http": ("http", "mcp"), "websocket": ("ws", "ws")}[front]
            place = Door(front, f"{scheme}://127.0.0.1:{running.port}/{path}")
        anyio.run(bounded, place)
    text = json.dumps(received)
    assert here[1].name in text
    assert here[0].name not in text
    assert here[0].secret not in text


@pytest.mark.parametrize("way", ["inspect", "describe", "search"])
def test_a_call_that_waits_for_an_answer_is_not_resumed_under_another_name(
    tmp_path: Path, way: Compact
) -> None:
    """In compact modes every call has the same name: after a reload hid the one, the other does not
    lead to it."""
    entry = stdio_server(
        "asking", [sys.executable, "-I", "-S", str(ASKING), str(tmp_path / "record")]
    )
    able = {"elicitation": {"form": {}}}
    about = {
        META + "protocolVersion": MODERN,
        META + "clientCapabilities": able,
        META + "clientInfo": {"name": "ada"},
    }

    def serving(*tools: str) -> Json:
        profiles = [{"name": "p", "tools": list(tools)}]
        return config(entry, profiles=profiles, **{"global": {"hot_reload_interval": 0.1}})

    with GatewayProcess(serving("ask", "echo")) as running:
        wait_until_settled(running.port)

        def call(tool: str, **more: Any) -> Json:
            name, arguments = meta_call(way, "asking", tool, {})
            message = request(
                "tools/call", {"name": name, "arguments": arguments, **more, "_meta": about}
            )
            return post(running.port, message, modern_headers(message), f"/p/p/mcp/{way}").message

        asked = call("ask")["result"]
        assert asked["resultType"] == "input_required"
        change(running, serving("echo"))
        wait_until(lambda: call("ask")["result"].get("isError"))
        answers = {
            key: {"action": "accept", "content": {"name": "ada"}} for key in asked["inputRequests"]
        }
        resumed = call("echo", requestState=asked["requestState"], inputResponses=answers)
        assert "requestState is unknown" in json.dumps(resumed)


def test_a_result_that_was_kept_is_gone_when_its_tool_is_hidden(tmp_path: Path) -> None:
    """Also what its owner has not read yet."""
    rows = json.dumps([{"row": row, "word": f"word {row}"} for row in range(5_000)])
    large = {"content": [{"type": "text", "text": rows}]}

    def serving(*tools: str) -> Json:
        profiles = [{"name": "p", "tools": ["calls", *tools]}]
        return config(
            told("one", tmp_path), profiles=profiles, **{"global": {"hot_reload_interval": 0.1}}
        )

    with GatewayProcess(serving("give")) as running:
        wait_until_settled(running.port)
        visitor = Visitor(running.port, "inspect", path="/p/p/mcp/inspect")
        handle = visitor.run("one", "give", {"result": large})["structuredContent"]["handle"]
        row = {"handle": handle, "jmespath": "[4000]"}
        assert visitor.run("mcpx", "result", row)["structuredContent"]["word"] == "word 4000"
        change(running, serving())
        wait_until(lambda: visitor.run("one", "give", {"result": {}}).get("isError"))
        assert "not known" in visitor.error(visitor.run("mcpx", "result", row))


def test_a_call_that_waits_for_its_turn_is_not_made_once_its_tool_is_hidden(tmp_path: Path) -> None:
    record, go = tmp_path / "record", tmp_path / "go"
    command = [sys.executable, "-I", "-S", str(ASKING), str(record)]
    entry = stdio_server("asking", command, limits={"in_flight": 1, "queue": 10})

    def serving(*tools: str) -> Json:
        profiles = [{"name": "p", "tools": list(tools)}]
        return config(
            entry,
            profiles=profiles,
            server={"metrics": True},
            **{"global": {"hot_reload_interval": 0.1}},
        )

    def recorded(tool: str) -> bool:
        return f'"name": "{tool}"' in record.read_text(encoding="utf-8")

    with GatewayProcess(serving("wait", "echo")) as running:
        wait_until_settled(running.port)
        one, two, three = (Session(running.port, path="/p/p/mcp") for _ in range(3))
        first = one.start_call("asking_wait", until=str(go))
        wait_until(lambda: recorded("wait"))
        second = two.start_call("asking_echo", text="too late")
        queued = re.compile(rb'^mcpx_[a-z_]*queue[a-z_]*\{.*"server".*\} 1', re.M)
        wait_until(lambda: queued.search(fetch(running.port, "/metrics").body))
        change(running, serving("wait"))
        wait_until(lambda: three.tools() == ["asking_wait"])
        go.touch()
        assert "result" in first.reply().message
        assert second.reply().message["error"]["message"] == "Unknown tool: asking_echo"
        assert not recorded("echo")


@pytest.mark.parametrize("trust", ["open", "pin"])
def test_a_hidden_server_is_not_named_when_it_has_nothing_left_to_offer(
    tmp_path: Path, trust: str
) -> None:
    """Its tools are gone, or have changed and are held back: whoever must not see them does not
    learn of it by that."""
    world = World(Random(3))
    hidden, seen = world.servers[:2]
    hidden.trust = trust
    tools = [one for one in hidden.things if one.kind == "tools"]
    hidden.tell(tmp_path, tools)
    seen.tell(tmp_path, seen.things)
    narrow = {"name": "p", "tools": ["*", f"!{hidden.name}.*"]}
    settings = {
        "mcp_servers": [server.entry(tmp_path) for server in (hidden, seen)],
        "profiles": [narrow],
    }
    with GatewayProcess(settings) as running:
        wait_until_settled(running.port)
        assert hidden.name not in json.dumps(Session(running.port, path="/p/p/mcp").greeting)
        left = (
            []
            if trust == "open"
            else [replace(one, words=(one.words[0], "changed")) for one in tools]
        )
        hidden.tell(tmp_path, left)
        everything = Session(running.port)
        wait_until(lambda: not any(name.startswith(hidden.name) for name in everything.tools()))
        assert hidden.name not in json.dumps(Session(running.port, path="/p/p/mcp").greeting)
        menu = Visitor(running.port, "search", path="/p/p/mcp/search")
        assert hidden.name not in json.dumps(menu.use("mcp_list_services"))
        assert hidden.name not in json.dumps(menu.tools())
