"""The everything server behind mcpx, on each transport it offers: what it says while it works
(SRC-1, PRO-2 to PRO-5).

It stands behind mcpx three times, over stdio, streamable HTTP and SSE. Whatever has a result is
compared with the same call made directly.
"""

import gzip
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count

import anyio
import pytest

from behaviour.clients import (
    BOUND,
    MESSAGE,
    UPDATED,
    AnsweringUser,
    Client,
    Door,
    Json,
    RefusedError,
    connected,
)
from e2e.peers import STATIC, Peer, everything_on
from e2e.people import WAYS, Way, directly, door_to, said, sdk
from kit.gateway import GatewayProcess
from kit.node import node, npm_bin
from mcpx.catalog.naming import wrap_uri

pytestmark = [
    pytest.mark.anyio,
    # The SDK warns about logging, sampling, roots and subscriptions, which are what is tested here.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

SERVERS = ("stdio", "http", "sse")
NUMBERS = count()
"""For names that no test before has used."""
PEER = Peer("stdio", [node(), npm_bin("server-everything")])


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Json]]:
    with everything_on("streamableHttp") as http, everything_on("sse") as sse:
        yield [
            PEER.native,
            {"name": "http", "prefix": "http", "connection": {"type": "http", "url": http}},
            {"name": "sse", "prefix": "sse", "connection": {"type": "sse", "url": sse}},
        ]


def config(servers: list[Json]) -> Json:
    return {"mcp_servers": servers, "global": {"startup_wait": 20, "first_start_wait": 20}}


@pytest.fixture(scope="module")
def gateway(servers: list[Json]) -> Iterator[GatewayProcess]:
    with GatewayProcess(config(servers)) as running:
        yield running
        assert "Traceback" not in running.stderr(), running.stderr()


@pytest.fixture(scope="module")
async def direct(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    async with directly(
        PEER, AnsweringUser("ada"), tmp_path_factory.mktemp("direct") / "stderr.txt"
    ) as client:
        yield client


@pytest.fixture(scope="module", params=WAYS, ids=str)
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


@pytest.fixture(scope="module")
def door(way: Way, gateway: GatewayProcess, servers: list[Json]) -> Iterator[Door]:
    if way.shared:
        yield door_to(gateway, way.front)
        return
    with GatewayProcess(config(servers), transport="stdio") as alone:
        opened = door_to(alone, way.front)
        yield opened
        assert opened.stderr is not None
        assert "Traceback" not in opened.stderr.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
async def ada(way: Way, door: Door, direct: Client) -> AsyncIterator[Client]:
    """A client that can be asked everything. It comes after `direct` and goes before it."""
    async with connected(way.kind, door, AnsweringUser("ada")) as client:
        yield client


@pytest.fixture(scope="module")
async def bob(way: Way, door: Door, ada: Client) -> AsyncIterator[Client]:
    """A client that can be asked nothing; on stdio, where there is only one, it is Ada."""
    if not way.shared:
        yield ada
        return
    async with connected(way.kind, door, AnsweringUser("bob", quiet=True)) as client:
        yield client


each_server = pytest.mark.parametrize("server", SERVERS)


@each_server
async def test_progress_arrives_step_by_step_before_the_result(
    server: str, ada: Client, direct: Client
) -> None:
    """PRO-2, PRO-4"""
    arguments = {"duration": 0.15, "steps": 3}
    steps: list[tuple[float, float | None]] = []
    result = await ada.call(
        f"{server}_trigger-long-running-operation",
        arguments,
        lambda params: steps.append((params["progress"], params["total"])),
    )
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert said(result) == said(await direct.call("trigger-long-running-operation", arguments))


@each_server
async def test_a_model_of_the_client_is_asked(server: str, ada: Client, direct: Client) -> None:
    """PRO-5: sampling"""
    await _same_question_and_same_result(
        server, ada, direct, "trigger-sampling-request", {"prompt": "Are you there?"}
    )


@each_server
async def test_the_person_at_the_client_fills_in_a_form(
    server: str, ada: Client, direct: Client
) -> None:
    """PRO-5: elicitation, form"""
    await _same_question_and_same_result(server, ada, direct, "trigger-elicitation-request", {})


@each_server
async def test_the_person_at_the_client_is_sent_to_an_address(
    server: str, ada: Client, direct: Client
) -> None:
    """PRO-5: elicitation, URL"""
    arguments = {"url": "https://example.org/consent", "elicitationId": "e1"}
    await _same_question_and_same_result(server, ada, direct, "trigger-url-elicitation", arguments)


@each_server
async def test_an_address_that_must_be_visited_first_comes_as_the_servers_own_error(
    server: str, way: Way, ada: Client, direct: Client
) -> None:
    """PRO-6: code -32042 and its data, once for each id"""
    arguments = {
        "url": "https://example.org/first",
        "errorPath": True,
        "elicitationId": f"{way} {server}",
    }
    errors = []
    for client, tool in (
        (direct, "trigger-url-elicitation"),
        (ada, f"{server}_trigger-url-elicitation"),
    ):
        with pytest.raises(RefusedError) as refused:
            await client.call(tool, arguments)
        error = refused.value.error
        if error["code"] != -32042:
            raise refused.value
        (prerequisite,) = error["data"]["elicitations"]
        assert prerequisite.pop("elicitationId")  # made up anew each time
        errors.append(error)
    assert errors[0] == errors[1]


@each_server
async def test_the_roots_of_the_client_are_known_to_the_server(
    server: str, ada: Client, direct: Client
) -> None:
    """PRO-5: roots"""
    expected = said(await direct.call("get-roots-list"))
    assert "file:///home/ada" in expected["content"][0]["text"]
    assert said(await ada.call(f"{server}_get-roots-list")) == expected


async def _same_question_and_same_result(
    server: str, ada: Client, direct: Client, tool: str, arguments: Json
) -> None:
    questions = []
    results = []
    for client, name in ((direct, tool), (ada, f"{server}_{tool}")):
        before = len(client.user.asked)
        results.append(said(await client.call(name, arguments)))
        asked = [
            question for question in client.user.asked[before:] if question.method != "roots/list"
        ]
        questions.append([(question.method, _without_mark(question.params)) for question in asked])
    assert questions[0] == questions[1] and len(questions[0]) == 1
    assert results[0] == results[1] and results[0]["isError"] is False


def _without_mark(params: Json) -> Json:
    return {key: value for key, value in params.items() if key != "_meta"}


@each_server
async def test_an_updated_resource_is_announced_to_its_subscriber(server: str, bob: Client) -> None:
    """PRO-2, PRO-4, NAM-4: in the form in which the client subscribed."""
    uri = wrap_uri(server, STATIC)
    async with bob.watching(uri):
        before = len(bob.user.heard)
        await bob.call(f"{server}_toggle-subscriber-updates")
        with anyio.fail_after(BOUND):
            _, params = await bob.user.next_after(before, UPDATED)
        assert params["uri"] == uri
        stopped = await bob.call(f"{server}_toggle-subscriber-updates")
        assert "Stopped" in stopped["content"][0]["text"]


@each_server
async def test_a_log_message_arrives_marked_with_its_server(
    server: str, ada: Client, way: Way
) -> None:
    """PRO-2, PRO-4"""
    if ada.modern:
        pytest.skip("the level is set once for a session, which modern clients do not have")
    await sdk(ada).set_logging_level("debug")
    before = len(ada.user.heard)
    await ada.call(f"{server}_toggle-simulated-logging")
    with anyio.fail_after(BOUND):
        while True:
            before, params = await ada.user.next_after(before, MESSAGE)
            if params["_meta"]["proxy"]["server"] == server and "message" in str(params["data"]):
                break
    stopped = await ada.call(f"{server}_toggle-simulated-logging")
    assert "Stopped" in stopped["content"][0]["text"]


@pytest.fixture(params=["ada", "bob"])
def maker(request: pytest.FixtureRequest, way: Way, ada: Client, bob: Client) -> Client:
    """Who makes a resource. Over the network Ada has a link of her own to each server."""
    if request.param == "ada" and way.shared and ada.modern:
        pytest.skip(
            "without a session nothing ties what one call makes on its own link to the next list"
        )
    return ada if request.param == "ada" else bob


@each_server
async def test_a_resource_made_by_a_call_is_announced_listed_and_read(
    server: str, maker: Client
) -> None:
    """PRO-2, PRO-4, NAM-4: a tool makes a resource for its session and returns a link to it."""
    name = f"{next(NUMBERS)}.gz"
    async with _list_change(maker) as announced:
        arguments = {"name": name, "data": "data:text/plain,hello"}
        (link,) = (await maker.call(f"{server}_gzip-file-as-resource", arguments))["content"]
        assert (link["type"], link["name"]) == ("resource_link", name)
        with anyio.fail_after(BOUND):
            await announced()
    listed = [
        entry["uri"] for entry in await maker.listed("resources/list") if entry["name"] == name
    ]
    assert listed == [wrap_uri(server, link["uri"])]
    for uri in (link["uri"], *listed):
        read = await maker.request("resources/read", {"uri": uri})
        assert gzip.decompress(b64decode(read["contents"][0]["blob"])) == b"hello"


@asynccontextmanager
async def _list_change(client: Client) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Waits for the next notice of changed resources, in the way of the client's era."""
    if client.modern:
        async with sdk(client).listen(resources_list_changed=True) as subscription:

            async def announced() -> None:
                await anext(aiter(subscription))

            yield announced
        return
    before = len(client.user.heard)

    async def heard() -> None:
        await client.user.next_after(before, "notifications/resources/list_changed")

    yield heard
