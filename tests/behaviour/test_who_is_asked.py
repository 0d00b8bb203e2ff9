"""PRO-5 through the real program: a question reaches the client whose call caused it, in the way of
that client's era, and its answer reaches the server that asked, in the way of the server's."""

import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from behaviour.clients import (
    BOUND,
    AnsweringUser,
    Client,
    Door,
    Front,
    Json,
    Kind,
    Question,
    connected,
)
from kit.gateway import Gateway, GatewayProcess
from kit.process import running_server
from kit.servers import everything_server
from kit.until import wait_until

SERVERS = ("http_older", "http_modern", "stdio_older", "stdio_modern")
KINDS: tuple[Kind, ...] = ("raw-older", "raw-modern")
FRONTS: tuple[Front, ...] = ("http", "websocket", "bridge")
METHODS = {
    "elicit": "elicitation/create",
    "sample": "sampling/createMessage",
    "roots": "roots/list",
}


@contextmanager
def entries() -> Iterator[list[Json]]:
    """Those of `SERVERS`, for a config."""
    with ExitStack() as stack:
        entries: list[Json] = []
        for name in SERVERS:
            transport, era = name.split("_")
            if transport == "stdio":
                entries.append(everything_server(name, "--era", era))
                continue
            url = stack.enter_context(
                running_server("everything_server.py", "--transport", transport, "--era", era)
            )
            entries.append(
                {"name": name, "prefix": name, "connection": {"type": transport, "url": url}}
            )
        yield entries


def config(servers: list[Json]) -> Json:
    return {"global": {"startup_wait": 15, "first_start_wait": 15}, "mcp_servers": servers}


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with entries() as servers, GatewayProcess(config(servers)) as running:
        yield running


def words(name: str, tool: str) -> str:
    return f"{name} called {tool}"


def said_in(question: Question) -> str:
    """What the person at the client reads."""
    if question.method == "elicitation/create":
        return question.params["message"]
    return question.params["messages"][0]["content"]["text"]


def answer_of(name: str, tool: str) -> Any:
    """What a server gets to know when this person answers."""
    match tool:
        case "elicit":
            return {"action": "accept", "content": {"name": name}}
        case "sample":
            content = {"type": "text", "text": f"{name} says yes"}
            return {"role": "assistant", "content": content, "model": f"model of {name}"}
        case _:
            return {"roots": [{"uri": f"file:///home/{name}", "name": name}]}


async def cause(client: Client, server: str, tool: str) -> None:
    name = client.user.name
    arguments = {
        "elicit": {"message": words(name, tool)},
        "sample": {"prompt": words(name, tool)},
        "roots": {},
    }[tool]
    result = await client.call(f"{server}_{tool}", arguments)
    assert result.get("structuredContent") == answer_of(name, tool), result


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_client_that_caused_a_question_is_asked_and_nobody_else(
    gateway: Gateway, kind: Kind, server: str, front: Front
) -> None:
    """PRO-5, PRO-3: in all four pairs of eras; of three clients two cause questions at once, one
    none at all."""

    async def check() -> None:
        urls = {"http": gateway.url, "websocket": f"ws://127.0.0.1:{gateway.port}/ws"}
        people = [AnsweringUser(name) for name in ("ada", "bob", "cleo")]
        async with AsyncExitStack() as stack:
            env = {**gateway.env, "MCPX_STANDALONE": "false"}
            stderr = gateway.folder / "stderr.txt"
            bridge = Door(front, command=gateway.stdio_command, env=env, stderr=stderr)
            door = bridge if front == "bridge" else Door(front, urls[front])
            clients = [
                await stack.enter_async_context(connected(kind, door, user)) for user in people
            ]
            for tool in METHODS:
                async with anyio.create_task_group() as group:
                    for client in clients[:2]:
                        group.start_soon(cause, client, server, tool)
        for user in people[:2]:
            assert [question.method for question in user.asked] == list(METHODS.values())
            assert [said_in(question) for question in user.asked[:2]] == [
                words(user.name, "elicit"),
                words(user.name, "sample"),
            ]
            if (
                kind == "raw-older"
            ):  # a modern client is asked by a result, which has the id of its own request
                assert all(
                    re.fullmatch(rf"{server}:\d+", str(question.id)) for question in user.asked
                )
        assert people[2].asked == []
        # Among what they complain of: a modern client that is sent a request, an older one with
        # `resultType`.
        assert [user.complaints for user in people] == [[], [], []]

    async def bounded() -> None:
        with anyio.fail_after(2 * BOUND):
            await check()

    anyio.run(bounded)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_can_be_asked_nothing_is_asked_nothing(
    gateway: Gateway, kind: Kind, server: str
) -> None:
    """PRO-5, PRO-3: nor is anybody in its place; the server is told so and says it in its own
    words."""

    async def check() -> None:
        quiet, askable = AnsweringUser("quinn", quiet=True), AnsweringUser("ada")
        async with (
            connected(kind, Door("http", gateway.url), quiet) as client,
            connected(kind, Door("http", gateway.url), askable) as other,
        ):
            await cause(other, server, "elicit")
            try:
                refused = await client.call(f"{server}_elicit", {"message": "anybody?"})
            except Exception as error:  # noqa: BLE001 - either is an answer, see below
                refused = {"isError": True, "content": [{"text": str(error)}]}
            assert refused["isError"] and "elicitation" in str(refused["content"]), refused
        assert quiet.asked == [] and len(askable.asked) == 1

    async def bounded() -> None:
        with anyio.fail_after(BOUND):
            await check()

    anyio.run(bounded)


def test_the_first_modern_client_of_a_server_that_is_known_to_be_older_is_asked(
    tmp_path: Path,
) -> None:
    """PRO-5: the gateway knows it from an earlier run, and has not tried the other era in this
    one."""
    state = {"MCPX_STATE_DIR": str(tmp_path / "state")}

    async def check() -> None:
        user = AnsweringUser("ada")
        async with connected("raw-modern", Door("http", gateway.url), user) as client:
            with anyio.fail_after(BOUND):
                await cause(client, "s", "elicit")
        assert len(user.asked) == 1

    with running_server("everything_server.py", "--transport", "http", "--era", "older") as url:
        entry: Json = {"name": "s", "prefix": "s", "connection": {"type": "http", "url": url}}
        with Gateway(config([entry]), env=state):
            wait_until(
                lambda: any(
                    "older" in file.read_text() for file in tmp_path.glob("state/snapshots/*.json")
                )
            )
        with Gateway(config([entry]), env=state) as gateway:
            anyio.run(check)
