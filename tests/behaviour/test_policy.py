"""SEC-7 through the real program: what a rule refuses never reaches the server, whatever the way it
is called."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from behaviour.clients import (
    BOUND,
    FRONTS,
    AnsweringUser,
    Client,
    Door,
    Front,
    Json,
    Kind,
    RefusedError,
    connected,
)
from behaviour.compact import ERAS, MODES, Compact, Visitor, config, replace, texts, told
from kit.client import ACCEPT_BOTH, Session, Stream, post_modern
from kit.gateway import Gateway, GatewayProcess
from kit.messages import modern_headers, modern_request
from kit.servers import stdio_server
from kit.until import wait_until

KINDS: tuple[Kind, ...] = ("raw-older", "raw-modern")
DENIED = -33008


def asking(name: str, record: Path, **keys: Any) -> Json:
    script = str(Path(__file__).with_name("asking_server.py"))
    return stdio_server(
        name, [sys.executable, "-I", "-S", script, str(record), "--era", "dual"], **keys
    )


RULES: list[Json] = [
    {"effect": "deny", "servers": ["files"], "tools": ["die"], "reason": "it would end the server"},
    {
        "effect": "deny",
        "tools": ["echo"],
        "arguments": {"text": "*secret*"},
        "reason": "no secrets",
    },
    {"effect": "deny", "tools": ["files.wait"], "arguments": {"seconds": {"jmespath": "@ > `5`"}}},
    {"effect": "deny", "tools": ["files.touch"]},
    {"effect": "deny", "servers": ["closed"], "reason": "closed for today"},
]


def policed(folder: Path, *rules: Json, **more: Any) -> Json:
    servers = [asking(name, folder / f"{name}.jsonl") for name in ("files", "closed")]
    return config(*servers, policy={"rules": list(rules)}, **more)


class RecordedGateway:
    """A gateway whose servers write down every message they get."""

    def __init__(self, gateway: Gateway, folder: Path) -> None:
        self.gateway = gateway
        self.folder = folder

    def heard(self, method: str, server: str = "files") -> list[Json]:
        record = self.folder / f"{server}.jsonl"
        lines = record.read_bytes().splitlines() if record.exists() else []
        return [message for message in map(json.loads, lines) if message.get("method") == method]

    def calls(self, tool: str, **arguments: Any) -> int:
        """How often a tool was called with these arguments."""
        named = [
            message["params"]
            for message in self.heard("tools/call")
            if message["params"]["name"] == tool
        ]
        return sum(params.get("arguments") == arguments for params in named)

    def door(self, front: Front) -> Door:
        base = f"127.0.0.1:{self.gateway.port}"
        return Door(
            front,
            {
                "http": f"http://{base}/mcp",
                "sse": f"http://{base}/sse",
                "websocket": f"ws://{base}/ws",
            }[front],
        )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedGateway]:
    folder = tmp_path_factory.mktemp("policy")
    with GatewayProcess(policed(folder, *RULES)) as gateway:
        yield RecordedGateway(gateway, folder)


async def refusal(client: Client, method: str, **params: Any) -> Json:
    with pytest.raises(RefusedError) as refused:
        await client.request(method, params)
    return refused.value.error


async def uris(client: Client) -> tuple[str, str]:
    """Of the server that is open, and of the one that is closed."""
    listed = await client.listed("resources/list")
    by_server = {its["_meta"]["proxy"]["server"]: its["uri"] for its in listed}
    return by_server["files"], by_server["closed"]


def bounded(check: Any) -> None:
    async def run() -> None:
        with anyio.fail_after(BOUND):
            await check()

    anyio.run(run)


async def check_refusals(recorded: RecordedGateway, client: Client, text: str) -> None:
    error = await refusal(client, "tools/call", name="files_die", arguments={})
    assert (error["code"], error["message"]) == (
        DENIED,
        "files.die is not allowed: it would end the server",
    )
    error = await refusal(client, "tools/call", name="files_echo", arguments={"text": text})
    assert error["code"] == DENIED and error["message"].endswith("no secrets")
    error = await refusal(client, "tools/call", name="files_echo", arguments={"Text ": text})
    assert error["code"] == DENIED and error["message"].endswith("no secrets")
    error = await refusal(client, "tools/call", name="files_wait", arguments={"seconds": 6})
    assert (error["code"], error["message"]) == (
        DENIED,
        "files.wait is not allowed with these arguments",
    )
    error = await refusal(client, "tools/call", name="files_touch", arguments={})
    assert error["message"] == "Unknown tool: files_touch"
    result = await client.call("files_echo", {"text": "plain"})
    assert result["content"][0]["text"] == "plain"


@pytest.mark.parametrize("front", [front for front in FRONTS if front != "stdio"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_denied_call_is_refused_with_the_reason_and_never_reaches_the_server(
    recorded: RecordedGateway, kind: Kind, front: Front
) -> None:
    """SEC-7"""
    text = f"a secret of {kind} {front}"

    async def check() -> None:
        async with connected(kind, recorded.door(front), AnsweringUser("ada")) as client:
            await check_refusals(recorded, client, text)

    if (kind, front) == ("raw-modern", "sse"):
        pytest.skip("the transport of 2024-11-05 is older than the modern era")
    bounded(check)
    assert (
        recorded.calls("die")
        == recorded.calls("echo", text=text)
        == recorded.calls("wait", seconds=6)
        == 0
    )
    assert recorded.calls("touch") == 0


@pytest.mark.parametrize("kind", KINDS)
def test_rules_hold_over_stdio(tmp_path: Path, kind: Kind) -> None:
    """SEC-7"""
    with GatewayProcess(policed(tmp_path, *RULES), transport="stdio") as gateway:
        recorded = RecordedGateway(gateway, tmp_path)

        async def check() -> None:
            door = Door(
                "stdio",
                command=gateway.stdio_command,
                env=gateway.env,
                stderr=tmp_path / "stderr.txt",
            )
            async with connected(kind, door, AnsweringUser("ada")) as client:
                await check_refusals(recorded, client, "a secret")

        bounded(check)
        assert (
            recorded.calls("die")
            == recorded.calls("echo", text="a secret")
            == recorded.calls("wait", seconds=6)
            == 0
        )


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", MODES)
def test_a_model_is_told_the_reason_and_the_real_tool_is_what_counts(
    recorded: RecordedGateway, mode: Compact, era: str
) -> None:
    """SEC-7, SUR-9: a tool error with the reason, not an error of the protocol."""
    visitor = Visitor(recorded.gateway.port, mode, era)
    text = f"a secret in {mode} {era}"
    assert (
        visitor.error(visitor.run("files", "die"))
        == "files.die is not allowed: it would end the server"
    )
    assert visitor.error(visitor.run("files", "echo", {"text": text})).endswith("no secrets")
    assert not visitor.run("files", "echo", {"text": "plain"}).get("isError")
    # Arguments that came as a text are judged as they are sent.
    assert visitor.error(visitor.run("files", "echo", json.dumps({"text": text}))).endswith(
        "no secrets"
    )
    assert recorded.calls("die") == recorded.calls("echo", text=text) == 0


@pytest.mark.parametrize("mode", MODES)
def test_each_of_several_calls_is_judged_on_its_own(
    recorded: RecordedGateway, mode: Compact
) -> None:
    """SEC-7, SUR-12"""
    visitor = Visitor(recorded.gateway.port, mode)
    named = {
        "inspect": {"server_name": "files", "tool_name": "echo"},
        "describe": {"method": "files.echo"},
        "search": {"tool_name": "files_echo"},
    }[mode]
    said = [f"one of {mode}", f"a secret among several of {mode}", f"three of {mode}"]
    calls = [{**named, "arguments": {"text": text}} for text in said]
    tool = {"inspect": "exec", "describe": "call", "search": "mcp_execute_tool"}[mode]
    result = visitor.use(tool, calls=calls, **{"continue": True})
    told = "\n".join(texts(result))
    assert "files.echo is not allowed: no secrets" in told and "2 of 3 calls ok" in told
    assert [recorded.calls("echo", text=text) for text in said] == [1, 0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_resources_and_subscriptions_of_a_closed_server_are_refused(
    recorded: RecordedGateway, kind: Kind
) -> None:
    """SEC-7: a rule without tools concerns all that a server offers, also what a modern client
    listens for."""

    async def check() -> None:
        async with connected(kind, recorded.door("http"), AnsweringUser("ada")) as client:
            opened, closed = await uris(client)
            error = await refusal(client, "resources/read", uri=closed)
            assert error["code"] == DENIED and error["message"].endswith("closed for today")
            assert (await client.request("resources/read", {"uri": opened}))["contents"]
            if kind == "raw-older":
                assert (await refusal(client, "resources/subscribe", uri=closed))["code"] == DENIED
            else:
                async with client.watching(opened):
                    pass

    bounded(check)
    assert (
        recorded.heard("resources/read", "closed")
        == recorded.heard("resources/subscribe", "closed")
        == []
    )


def test_a_modern_client_does_not_listen_past_the_rules(recorded: RecordedGateway) -> None:
    """SEC-7: what is denied is not acknowledged, and the server is not asked for it."""
    port = recorded.gateway.port
    listed = post_modern(port, modern_request("resources/list")).message["result"]["resources"]
    by_server = {its["_meta"]["proxy"]["server"]: its["uri"] for its in listed}
    wanted = {"resourceSubscriptions": [by_server["files"], by_server["closed"]]}
    message = modern_request("subscriptions/listen", {"notifications": wanted})
    headers = [
        ("Content-Type", "application/json"),
        ("Accept", ACCEPT_BOTH),
        *modern_headers(message).items(),
    ]
    with Stream(port, "POST", "/mcp", headers, json.dumps(message).encode()) as stream:
        event = stream.event()
        assert event is not None and "acknowledged" in event["data"]["method"]
        assert event["data"]["params"]["notifications"]["resourceSubscriptions"] == [
            by_server["files"]
        ]
    assert (
        recorded.heard("resources/subscribe", "closed")
        == recorded.heard("subscriptions/listen", "closed")
        == []
    )


def test_an_answer_that_was_kept_is_given_only_to_whom_the_rules_allow_it(tmp_path: Path) -> None:
    """SEC-7, LIF-9: a rule that comes later holds for what is kept as well."""
    reads = {
        "name": "get",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }
    server = told("t", tmp_path, {"tools": [reads]}, cache_ttl=60)
    with Gateway(config(server)) as gateway:
        session = Session(gateway.port)
        assert "result" in session.call("t_get")
        replace(
            gateway,
            config(
                server,
                policy={"rules": [{"effect": "deny", "tools": ["get"], "reason": "no more"}]},
            ),
        )
        refused = wait_until(lambda: session.call("t_get").get("error"))
        assert refused["code"] == DENIED


def test_what_is_hidden_by_a_reload_reads_as_unknown_and_what_is_allowed_again_works(
    tmp_path: Path,
) -> None:
    """SEC-7, CFG-5"""
    with Gateway(policed(tmp_path)) as gateway:
        session = Session(gateway.port)
        assert "result" in session.call("files_echo", text="a")
        replace(gateway, policed(tmp_path, {"effect": "deny", "servers": ["files"]}))
        refused = wait_until(lambda: session.call("files_echo", text="a").get("error"))
        assert refused["message"] == "Unknown tool: files_echo"
        replace(gateway, policed(tmp_path))
        assert wait_until(lambda: session.call("files_echo", text="a").get("result"))


def test_a_local_command_is_judged_with_its_defaults(tmp_path: Path) -> None:
    """SEC-7, SRC-5: also with the arguments it fills in itself."""
    script = tmp_path / "say.sh"
    script.write_text('#!/bin/sh\necho "ran $1"\n', encoding="utf-8")
    script.chmod(0o700)
    command = {
        "name": "say",
        "type": "script",
        "script": {"path": str(script), "args": ["{word}"]},
        "parameters": [{"name": "word", "type": "string", "default": "hush"}],
    }
    rule = {
        "effect": "deny",
        "servers": ["commands"],
        "arguments": {"word": "hush"},
        "reason": "quiet",
    }
    with Gateway(
        {
            "commands": [command],
            "global": {"script_paths": [str(tmp_path)]},
            "policy": {"rules": [rule]},
        }
    ) as it:
        session = Session(it.port)
        assert session.call("say")["error"]["message"] == "commands.say is not allowed: quiet"
        assert "ran loud" in str(session.call("say", word="loud"))
