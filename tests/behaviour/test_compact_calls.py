"""A call through a compact surface is the same call: progress, cancellation, questions, errors
(PRO-2, PRO-5, PRO-6).

Every kind of client, in every mode, to an upstream of each era; behaviours are written once, as in
`test_matrix`.
"""

import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from behaviour.clients import (
    BOUND,
    KINDS,
    AnsweringUser,
    Client,
    Door,
    Json,
    Kind,
    Question,
    RefusedError,
    connected,
)
from behaviour.compact import MODES, Compact, Visitor, config, meta_call, text
from fixtures.everything import PNG, STATIC, URL
from kit.gateway import Gateway, GatewayProcess
from kit.process import START, Child, stdio_command
from kit.servers import everything_server, raw_server
from mcpx.catalog.naming import wrap_uri

# The SDK warns about sampling and roots, which are what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

SERVERS = ("older", "modern")


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    """Upstreams over HTTP, so that no client needs a process of its own; and one that dies on
    demand."""
    with ExitStack() as stack:
        program = stdio_command("everything_server.py", "--transport", "http", "--era")
        started = {era: stack.enter_context(Child([*program, era])) for era in SERVERS}
        servers: list[Json] = []
        for era, child in started.items():
            ready = child.stdout.wait_for(r"^ready (\S+)$", START)
            assert ready is not None, child.stderr.text
            servers.append({"name": era, "connection": {"type": "http", "url": ready[1]}})
        servers += [raw_server("mortal", retry_delay=0), raw_server("dead", "--crash-on-start")]
        shape = config(*servers, naming={"prefix": "always"})
        gateway = stack.enter_context(Gateway(shape))
        yield gateway
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@dataclass(frozen=True)
class Visit:
    client: Client
    mode: Compact
    server: str

    async def call(self, tool: str, arguments: Json | None = None, on_progress: Any = None) -> Json:
        name, given = meta_call(self.mode, self.server, tool, arguments or {})
        return await self.client.call(name, given, on_progress)

    def structured(self, result: Json) -> Any:
        shape = result["structuredContent"]
        return shape["result"] if self.mode == "search" else shape

    async def answered(self, tool: str, arguments: Json | None = None) -> tuple[Any, Question]:
        before = len(self.client.user.asked)
        result = await self.call(tool, arguments)
        assert not result.get("isError"), result
        (question,) = self.client.user.asked[before:]
        return self.structured(result), question


Behaviour = Callable[[Visit], Awaitable[None]]
BEHAVIOURS: list[Behaviour] = []


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS.append(function)
    return function


@behaviour
async def a_call_brings_back_the_result_of_the_server(visit: Visit) -> None:
    """PRO-2, SUR-8."""
    assert visit.structured(await visit.call("add", {"a": 1, "b": 2})) == {"sum": 3}
    echoed = await visit.call("echo", {"text": "é✓😀"})
    assert echoed["content"] == [{"type": "text", "text": "é✓😀"}]
    assert echoed["_meta"]["example.com/unknown"] == {"echoed": True}
    assert (await visit.call("image"))["content"] == [
        {"type": "image", "data": PNG, "mimeType": "image/png"}
    ]


@behaviour
async def a_parameter_that_travels_as_a_header_arrives(visit: Visit) -> None:
    """PRO-1: the server's tool has `x-mcp-header`, the surface's has not."""
    assert (await visit.call("region", {"region": "eu-1"}))["content"][0]["text"] == "eu-1"


@behaviour
async def progress_arrives_in_order_before_the_result(visit: Visit) -> None:
    """PRO-2."""
    steps: list[Json] = []
    result = await visit.call("progress", {"steps": 3}, steps.append)
    assert result["content"][0]["text"] == "3 steps"
    assert [(step["progress"], step["total"], step["message"]) for step in steps] == [
        (number, 3, f"step {number}") for number in (1, 2, 3)
    ]


@behaviour
async def a_cancelled_call_is_cancelled_upstream(visit: Visit) -> None:
    """PRO-2, LIF-6."""

    async def count() -> int:
        return visit.structured(await visit.call("cancelled_count"))["count"]

    before = await count()
    started = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(visit.call, "slow", {"seconds": 60}, lambda _: started.set())
        await started.wait()
        group.cancel_scope.cancel()
    while (
        now := await count()
    ) != before + 1:  # bounded by the test; each round is an answered call
        assert now == before


@behaviour
async def questions_reach_the_client_and_its_answers_the_server(visit: Visit) -> None:
    """PRO-5: a form, a URL, its model and its roots."""
    name = visit.client.user.name
    answer, question = await visit.answered("elicit", {"message": "who?"})
    assert answer == {"action": "accept", "content": {"name": name}}
    assert (question.method, question.params["message"]) == ("elicitation/create", "who?")
    answer, question = await visit.answered("elicit_url")
    assert (answer, question.params["url"]) == ({"action": "accept"}, URL)
    answer, question = await visit.answered("sample", {"prompt": "well?"})
    assert answer["content"] == {"type": "text", "text": f"{name} says yes"}
    answer, _ = await visit.answered("roots")
    assert answer == {"roots": [{"uri": f"file:///home/{name}", "name": name}]}


@behaviour
async def an_error_of_the_server_arrives_as_it_is(visit: Visit) -> None:
    """PRO-6: code, message and data; a failed tool is a result."""
    with pytest.raises(RefusedError) as refused:
        await visit.call("fail", {"code": -32055, "message": "as told"})
    data = {"tool": "fail", "nested": {"list": [1, None, "é"]}}
    assert refused.value.error == {"code": -32055, "message": "as told", "data": data}
    failed = await visit.call("tool_error", {"message": "no such luck"})
    assert (failed["isError"], failed["content"]) == (
        True,
        [{"type": "text", "text": "no such luck"}],
    )


@behaviour
async def prompts_and_resources_are_where_they_always_are(visit: Visit) -> None:
    """SUR-1, NAM-3: the methods of the protocol work beside the surface's tools."""
    prompts = {prompt["name"] for prompt in await visit.client.listed("prompts/list")}
    assert f"{visit.server}_greet" in prompts
    got = await visit.client.request(
        "prompts/get", {"name": f"{visit.server}_greet", "arguments": {"name": "Bo"}}
    )
    assert got["messages"][0]["content"]["text"] == "Hello, Bo!"
    listed = {entry["uri"] for entry in await visit.client.listed("resources/list")}
    for uri, content in STATIC.items():
        assert wrap_uri(visit.server, uri) in listed
        read = await visit.client.request("resources/read", {"uri": wrap_uri(visit.server, uri)})
        assert read["contents"] == [{"uri": uri, **content}]
    (template,) = await visit.client.listed("resources/templates/list")
    assert template["uriTemplate"] == "test://item/{id}"


CELLS = list(itertools.product(KINDS, MODES, SERVERS))


@pytest.mark.parametrize(("kind", "mode", "server"), CELLS, ids=lambda part: part)
def test_a_call_through_a_surface_is_the_same_call(
    kind: Kind, mode: Compact, server: str, gateway: Gateway, subtests: pytest.Subtests
) -> None:
    """PRO-2, PRO-5, PRO-6, SUR-2, SUR-3, SUR-4, SUR-8: every behaviour above, for this client, mode
    and era."""

    async def check() -> None:
        user = AnsweringUser(f"{kind}-{mode}")
        async with connected(
            kind, Door("http", f"http://127.0.0.1:{gateway.port}/mcp/{mode}"), user
        ) as client:
            visit = Visit(client, mode, server)
            for behaves in BEHAVIOURS:
                with subtests.test(behaves.__name__), anyio.fail_after(BOUND):
                    await behaves(visit)
        assert user.complaints == []

    anyio.run(check)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("sdk-older", "inspect"), ("raw-modern", "describe"), ("sdk-modern", "search")],
)
def test_a_client_on_stdio_finds_the_same(
    kind: Kind, mode: Compact, subtests: pytest.Subtests
) -> None:
    """PRO-2, PRO-5, SUR-6: its one upstream is a process of its own, and speaks both eras."""

    async def check() -> None:
        user = AnsweringUser(kind)
        with GatewayProcess(
            config(everything_server("both"), mode=mode), transport="stdio"
        ) as alone:
            stderr = alone.folder / "stderr.txt"
            door = Door("stdio", command=alone.stdio_command, env=alone.env, stderr=stderr)
            async with connected(kind, door, user) as client:
                visit = Visit(client, mode, "both")
                for behaves in BEHAVIOURS:
                    with subtests.test(behaves.__name__), anyio.fail_after(BOUND):
                        await behaves(visit)
            assert "Traceback" not in stderr.read_text(encoding="utf-8")
        assert user.complaints == []

    anyio.run(check)


def test_two_clients_are_asked_their_own_questions(gateway: Gateway) -> None:
    """PRO-5: at the same time, through one meta-tool, over the link they share."""

    async def check() -> None:
        names = [f"{kind}-{mode}-{server}" for kind, mode, server in CELLS]
        answers: dict[str, Any] = {}

        async def visit(kind: Kind, mode: Compact, server: str) -> None:
            user = AnsweringUser(f"{kind}-{mode}-{server}")
            async with connected(
                kind, Door("http", f"http://127.0.0.1:{gateway.port}/mcp/{mode}"), user
            ) as client:
                answers[user.name], _ = await Visit(client, mode, server).answered(
                    "elicit", {"message": "who?"}
                )

        with anyio.fail_after(BOUND):
            async with anyio.create_task_group() as group:
                for cell in CELLS:
                    group.start_soon(visit, *cell)
        assert answers == {name: {"action": "accept", "content": {"name": name}} for name in names}

    anyio.run(check)


@pytest.mark.parametrize("mode", MODES)
def test_an_error_on_a_servers_behalf_names_it(gateway: Gateway, mode: Compact) -> None:
    """SRC-8, SUR-9, LIF-4: one that dies under the call; the next call is served."""
    client = Visitor(gateway.port, mode)
    died = client.error(client.run("mortal", "die", {"code": 3}))
    assert died.startswith("mortal: ")
    assert client.run("mortal", "echo", {"text": "back"})["content"][0]["text"] == "back"


@pytest.mark.parametrize("mode", ["inspect", "describe"])
def test_a_server_that_never_came_up_is_the_reason(gateway: Gateway, mode: Compact) -> None:
    """SRC-8, SUR-9: its tools are not known, and a model that hears "no such tool" would give up on
    the wrong thing."""
    client = Visitor(gateway.port, mode)
    told = (
        client.use("inspect", server_name="dead")
        if mode == "inspect"
        else client.use("describe", method="dead")
    )
    status = told["structuredContent"]["status"]
    assert status != "connected" and status in text(told)
    error = client.error(client.run("dead", "echo", {"text": "a"}))
    assert "dead" in error
    assert status in error or "exit" in error, error
