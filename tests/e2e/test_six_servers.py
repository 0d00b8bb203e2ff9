"""Six published servers behind one mcpx: each answers through it as it does directly (SRC-1, SRC-2,
SUR-1, NAM-1).

Everything is asked twice, of mcpx and of a server of the same kind that the SDK's client has
started by itself. The Node servers speak older revisions only and the Python ones both eras, so
every client here has an upstream of the other era as well.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

import anyio
import pytest

from behaviour.clients import BOUND, LIST_KEYS, UPDATED, Client, Json, connected
from e2e.peers import COMMITS, PAGE, STATIC, TEXT, World
from e2e.people import WAYS, Local, Way, directly, door_to, said, sdk
from kit.gateway import GatewayProcess
from mcpx.catalog.naming import wrap_uri

pytestmark = [
    pytest.mark.anyio,
    # The SDK warns about sampling and roots, which older servers live by.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

SIX = ("everything", "filesystem", "memory", "git", "time", "fetch")

ASKING = {
    "get-roots-list",
    "trigger-elicitation-request",
    "trigger-url-elicitation",
    "trigger-sampling-request",
}
"""Tools that the everything server has only for clients that can be asked something."""


@pytest.fixture(scope="module")
def gateway(earth: World) -> Iterator[GatewayProcess]:
    with GatewayProcess(config(earth, "shared.jsonl")) as running:
        yield running
        assert "Traceback" not in running.stderr(), running.stderr()


def config(earth: World, graph: str) -> Json:
    peers = earth.peers(graph)
    return {
        "mcp_servers": [peers[name].native for name in SIX],
        "global": {"startup_wait": 20, "first_start_wait": 20},
    }


@pytest.fixture(scope="module", params=WAYS, ids=str)
async def way(request: pytest.FixtureRequest) -> Way:
    return request.param


@pytest.fixture(scope="module")
async def through(
    way: Way, earth: World, gateway: GatewayProcess, direct: Mapping[str, Client]
) -> AsyncIterator[Client]:
    """A client that can be asked everything, in front of all six. It comes after `direct` and goes
    before it: what is opened in one task must be closed in the opposite order."""
    user = Local("ada", earth.files)
    if way.shared:
        async with connected(way.kind, door_to(gateway, way.front), user) as client:
            yield client
        return
    with GatewayProcess(config(earth, f"{way}.jsonl"), transport="stdio") as alone:
        door = door_to(alone, "stdio")
        async with connected(way.kind, door, user) as client:
            yield client
        assert door.stderr is not None
        assert "Traceback" not in door.stderr.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
async def direct(earth: World) -> AsyncIterator[Mapping[str, Client]]:
    """The same person at each of the six, without mcpx."""
    async with AsyncExitStack() as stack:
        clients = {}
        for name, peer in earth.peers("direct.jsonl").items():
            talk = directly(peer, Local("ada", earth.files), earth.folder / f"{name}.txt")
            clients[name] = await stack.enter_async_context(talk)
        yield clients


# ---- what is listed


@pytest.mark.parametrize("method", ["tools/list", "prompts/list"])
async def test_every_tool_and_prompt_has_its_servers_prefix_and_is_otherwise_unchanged(
    method: str, through: Client, direct: Mapping[str, Client]
) -> None:
    """SUR-1, NAM-1, NAM-3"""
    expected = []
    for server, client in direct.items():
        for definition in await _listed_or_none(client, method):
            mark = {"proxy": {"server": server, "name": definition["name"]}}
            expected.append({**definition, "name": f"{server}_{definition['name']}", "_meta": mark})
    listed = await through.listed(method)
    assert {definition["_meta"]["proxy"]["server"] for definition in listed} <= set(SIX)
    assert _unasking(listed) == _unasking(expected)


async def test_every_resource_is_wrapped_and_every_template_is_kept(
    through: Client, direct: Mapping[str, Client]
) -> None:
    """SUR-1, NAM-3, NAM-4"""
    expected, kept = [], []
    for server in ("everything", "memory"):
        for definition in await direct[server].listed("resources/list"):
            mark = {"proxy": {"server": server, "originalUri": definition["uri"]}}
            expected.append(
                {**definition, "uri": wrap_uri(server, definition["uri"]), "_meta": mark}
            )
        for definition in await direct[server].listed("resources/templates/list"):
            mark = {"proxy": {"server": server, "originalUri": definition["uriTemplate"]}}
            kept.append({**definition, "_meta": mark})
    assert await through.listed("resources/list") == expected != []
    assert await through.listed("resources/templates/list") == kept != []


async def test_tools_for_clients_that_can_be_asked_are_listed_to_them(through: Client) -> None:
    """PRO-3, SUR-1: the client's capabilities reach the upstream, which offers more to a client
    that has them."""
    assert {tool["_meta"]["proxy"]["name"] for tool in await through.listed("tools/list")} >= ASKING


async def _listed_or_none(client: Client, method: str) -> list[Json]:
    """A server without prompts refuses to list them; mcpx does not ask it."""
    capability = LIST_KEYS[method]
    offered = sdk(client).server_capabilities.model_dump(exclude_none=True)
    return await client.listed(method) if capability in offered else []


def _unasking(definitions: list[Json]) -> list[Json]:
    return [
        definition
        for definition in definitions
        if definition["_meta"]["proxy"]["name"] not in ASKING
    ]


# ---- what is called


@dataclass(frozen=True)
class Ask:
    """A call of a tool whose result depends on nothing but its arguments."""

    server: str
    tool: str
    arguments: Callable[[World], Json]
    holds: str
    """A part of the result, so that two equal failures are not taken for success."""
    fails: bool = False

    def __str__(self) -> str:
        return f"{self.server}-{self.tool}" + ("-fails" if self.fails else "")


ASKS = (
    Ask("filesystem", "read_text_file", lambda w: {"path": str(w.files / "notes.txt")}, TEXT),
    Ask("filesystem", "list_directory", lambda w: {"path": str(w.files)}, "notes.txt"),
    Ask(
        "filesystem",
        "read_text_file",
        lambda w: {"path": str(w.folder / "x")},
        "Access denied",
        fails=True,
    ),
    Ask("git", "git_log", lambda w: {"repo_path": str(w.repository)}, COMMITS[0]),
    Ask("git", "git_show", lambda w: {"repo_path": str(w.repository), "revision": "HEAD"}, "+line"),
    Ask(
        "git",
        "git_show",
        lambda w: {"repo_path": str(w.repository), "revision": "no"},
        "",
        fails=True,
    ),
    Ask("fetch", "fetch", lambda w: {"url": w.page}, "from the loopback."),
    Ask("fetch", "fetch", lambda w: {"url": w.page, "raw": True}, PAGE),
    Ask(
        "time",
        "convert_time",
        lambda _: {"source_timezone": "Nowhere", "time": "12:00"},
        "",
        fails=True,
    ),
    Ask("everything", "echo", lambda _: {"message": "äöü ✓ 😀"}, "Echo: äöü ✓ 😀"),
    Ask("everything", "get-sum", lambda _: {"a": 2, "b": 40}, "42"),
    Ask("everything", "get-sum", lambda _: {"a": "two"}, "", fails=True),
    Ask("everything", "get-tiny-image", lambda _: {}, "image/png"),
    Ask(
        "everything",
        "get-annotated-message",
        lambda _: {"messageType": "error", "includeImage": True},
        "priority",
    ),
    Ask(
        "everything",
        "get-structured-content",
        lambda _: {"location": "Chicago"},
        "structuredContent",
    ),
    Ask("everything", "get-resource-links", lambda _: {"count": 4}, "resource_link"),
)


@pytest.mark.parametrize("ask", ASKS, ids=str)
async def test_a_tool_gives_what_it_gives_directly(
    ask: Ask, through: Client, direct: Mapping[str, Client], earth: World
) -> None:
    """PRO-2, PRO-6: text, images, structured content, links and the server's own failures."""
    arguments = ask.arguments(earth)
    expected = said(await direct[ask.server].call(ask.tool, arguments))
    result = said(await through.call(f"{ask.server}_{ask.tool}", arguments))
    assert result == expected
    assert ask.holds in _flat(result)
    assert result["isError"] is ask.fails


def _flat(value: object) -> str:
    """All keys and texts of a result, one after the other."""
    match value:
        case dict():
            return "\n".join(f"{key}\n{_flat(item)}" for key, item in value.items())
        case list():
            return "\n".join(_flat(item) for item in value)
        case _:
            return str(value)


async def test_a_time_is_converted_as_directly(
    through: Client, direct: Mapping[str, Client]
) -> None:
    """PRO-6: the answer holds today's date, so the direct one is asked for on both sides of
    midnight."""
    arguments = {
        "source_timezone": "Asia/Tokyo",
        "time": "16:30",
        "target_timezone": "Asia/Kolkata",
    }
    before = said(await direct["time"].call("convert_time", arguments))
    result = said(await through.call("time_convert_time", arguments))
    after = said(await direct["time"].call("convert_time", arguments))
    assert result in (before, after)
    assert "13:00:00+05:30" in _flat(result)


async def test_entities_are_remembered_and_read_back_as_directly(
    way: Way, through: Client, direct: Mapping[str, Client]
) -> None:
    """PRO-2, PRO-6: a server that keeps state; each client writes names of its own."""
    name = f"Ada of {way}"
    entity = {
        "name": name,
        "entityType": "person",
        "observations": ["writes programs", "Größe: 1,65 m"],
    }
    for tool, arguments in (
        ("create_entities", {"entities": [entity]}),
        (
            "add_observations",
            {"observations": [{"entityName": name, "contents": ["likes engines"]}]},
        ),
        ("open_nodes", {"names": [name]}),
        ("search_nodes", {"query": name}),
    ):
        expected = said(await direct["memory"].call(tool, arguments))
        result = said(await through.call(f"memory_{tool}", arguments))
        assert result == expected
        assert "likes engines" in _flat(result) or tool == "create_entities"


async def test_what_is_remembered_is_announced_to_the_subscriber(through: Client) -> None:
    """PRO-2, PRO-4: the graph is a resource, and every entity changes it."""
    uri = wrap_uri("memory", "memory://knowledge-graph")
    heard = None
    async with through.watching(uri):
        before = len(through.user.heard)
        entity = {"name": f"Subscriber of {way}", "entityType": "person", "observations": []}
        await through.call("memory_create_entities", {"entities": [entity]})
        with anyio.move_on_after(BOUND):
            _, heard = await through.user.next_after(before, UPDATED)
    assert heard is not None
    assert heard["uri"] == uri


async def test_the_clients_root_reaches_the_filesystem_server(
    through: Client, earth: World
) -> None:
    """PRO-3, PRO-5: it asks for roots on its own account, as soon as it is greeted, and works in
    nothing else.

    Of several clients each has its own root, so it is asked of each; how soon is the server's
    affair.
    """
    folder = str(earth.files)
    with anyio.fail_after(BOUND):
        while True:
            result = await through.call("filesystem_list_allowed_directories")
            if any(question.method == "roots/list" for question in through.user.asked):
                break
    assert folder in _flat(result)


# ---- what is read, filled in and completed


async def test_a_resource_is_read_by_its_wrapped_and_by_its_own_address(
    through: Client, direct: Mapping[str, Client]
) -> None:
    """PRO-2, NAM-4"""
    expected = said(await direct["everything"].request("resources/read", {"uri": STATIC}))
    assert "Everything Server" in _flat(expected)
    for uri in (wrap_uri("everything", STATIC), STATIC):
        assert said(await through.request("resources/read", {"uri": uri})) == expected


@pytest.mark.parametrize("kind", ["text", "blob"])
async def test_an_expanded_template_is_read(
    kind: str, through: Client, direct: Mapping[str, Client]
) -> None:
    """PRO-2, NAM-4: the content tells the time of day, and is equal but for that."""
    uri = f"demo://resource/dynamic/{kind}/7"
    expected = said(await direct["everything"].request("resources/read", {"uri": uri}))
    result = said(await through.request("resources/read", {"uri": uri}))
    (got,), (wanted,) = result["contents"], expected["contents"]
    assert {**got, kind: ""} == {**wanted, kind: ""}
    assert len(got[kind]) == pytest.approx(len(wanted[kind]), abs=4)


@pytest.mark.parametrize(
    ("server", "prompt", "arguments"),
    [
        ("everything", "simple-prompt", {}),
        ("everything", "args-prompt", {"city": "Paris", "state": "Texas"}),
        ("everything", "resource-prompt", {"resourceType": "Text", "resourceId": "3"}),
        ("fetch", "fetch", None),
    ],
)
async def test_a_prompt_is_filled_in_as_directly(
    server: str,
    prompt: str,
    arguments: dict[str, str] | None,
    through: Client,
    direct: Mapping[str, Client],
    earth: World,
) -> None:
    """PRO-2"""
    given = {"url": earth.page} if arguments is None else arguments
    expected = said(
        await direct[server].request("prompts/get", {"name": prompt, "arguments": given})
    )
    result = said(
        await through.request("prompts/get", {"name": f"{server}_{prompt}", "arguments": given})
    )
    assert result["messages"] != []
    assert _timeless(result) == _timeless(expected)


def _timeless(result: Json) -> str:
    return re.sub(r"\d+:\d\d:\d\d [AP]M", "now", _flat(result))


async def test_arguments_of_a_prompt_and_of_a_template_are_completed(
    through: Client, direct: Mapping[str, Client]
) -> None:
    """PRO-2: also with the arguments that are already chosen."""
    template = "demo://resource/dynamic/text/{resourceId}"
    for reference, public, argument in (
        (
            {"type": "ref/prompt", "name": "completable-prompt"},
            "everything_completable-prompt",
            ("department", "S"),
        ),
        ({"type": "ref/resource", "uri": template}, template, ("resourceId", "7")),
    ):
        wanted = {"ref": reference, "argument": {"name": argument[0], "value": argument[1]}}
        expected = said(await direct["everything"].request("completion/complete", wanted))
        field = "name" if "name" in reference else "uri"
        asked = {**wanted, "ref": {**reference, field: public}}
        result = said(await through.request("completion/complete", asked))
        assert result == expected
        assert result["completion"]["values"] in (["Sales", "Support"], ["7"])

    from mcp_types import PromptReference

    reference = PromptReference(type="ref/prompt", name="everything_completable-prompt")
    narrowed = await sdk(through).complete(
        reference, {"name": "name", "value": ""}, {"department": "Sales"}
    )
    assert narrowed.completion.values == ["David", "Eve", "Frank"]
