"""Every client, on every front, to every upstream, in both eras: the same behaviour (PRO-1, PRO-2,
SRC-1, SRC-2).

A cell is one client of one kind on one front with one upstream behind it; each behaviour is tried
in each cell and reported by itself. Behaviours are written once, against
`behaviour.clients.Client`. Cells that cannot exist are left out by a rule that carries its reason
(`ABSENT`), never by hand.

What toggles or touches an upstream that others share goes by what the upstream itself says of its
state, and counts only what came after: the tests pass in any order.
"""

import itertools
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

import anyio
import pytest

from behaviour.clients import (
    BOUND,
    FRONTS,
    KINDS,
    MESSAGE,
    META,
    TOOLS_CHANGED,
    UPDATED,
    AnsweringUser,
    Client,
    Front,
    Json,
    Kind,
    Question,
    RefusedError,
    connected,
    raw_client,
)
from behaviour.conftest import Matrix
from fixtures.everything import IDS, NAMES, QUESTIONS, STATIC, URL, Everything
from fixtures.raw_server import UNKNOWN
from mcpx.catalog.naming import wrap_uri

# The SDK warns about logging, sampling, roots and subscriptions, which are what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

Era = Literal["older", "modern"]
ERAS: tuple[Era, ...] = ("older", "modern")

CELL = 60.0
"""Seconds for a cell in which every behaviour takes its time."""


def run(check: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(CELL):
            await check()

    anyio.run(bounded)


# ---- the cells


@dataclass(frozen=True)
class Cell:
    client: Kind
    front: Front
    upstream: Front
    era: Era
    """The upstream's; the client's is part of its kind."""

    @property
    def server(self) -> str:
        return f"{self.upstream}_{self.era}"

    def __str__(self) -> str:
        return f"{self.client}-over-{self.front}-to-{self.upstream}-{self.era}"


ABSENT: dict[str, Callable[[Cell], bool]] = {
    "HTTP+SSE ended with 2025-03-26: no modern client speaks it": lambda cell: (
        cell.front == "sse" and cell.client.endswith("modern")
    ),
    "HTTP+SSE ended with 2025-03-26: no modern server speaks it": lambda cell: (
        cell.upstream == "sse" and cell.era == "modern"
    ),
}
"""Why a cell is left out -> which ones."""

BRIDGED = itertools.product(KINDS, ("bridge",), ("stdio", "http"), ERAS)
"""What a bridge carries does not depend on how the gateway reaches its servers: two ways are
enough."""
ALL = [
    Cell(*coordinates)
    for coordinates in (*itertools.product(KINDS, FRONTS, FRONTS, ERAS), *BRIDGED)
]
CELLS = [cell for cell in ALL if not any(absent(cell) for absent in ABSENT.values())]


def test_every_cell_is_tried_or_left_out_for_a_reason() -> None:
    """SRC-1, SRC-2, PRO-1: nothing drops out of the matrix unseen."""
    reasons = Counter(
        next((why for why, absent in ABSENT.items() if absent(cell)), "tried") for cell in ALL
    )
    assert (len(ALL), sorted(reasons.values())) == (144, [14, 16, 114])
    assert reasons["tried"] == len({str(cell) for cell in CELLS})
    rules = [rule for rules in LEFT_OUT.values() for rule in rules.items()]
    assert sorted(
        Counter(why for why, where in rules for cell in CELLS if where(cell)).values()
    ) == [86]


# ---- the behaviours


@dataclass(frozen=True)
class Visit:
    """A client in a cell, and a second one of its kind that can be asked nothing (on stdio there is
    only one).

    The second one's calls always go over the link that all clients share, even where others get a
    process each.
    """

    client: Client
    second: Client
    server: str

    @property
    def user(self) -> AnsweringUser:
        return self.client.user

    def named(self, native: str) -> str:
        return f"{self.server}_{native}"

    def mine(self, definition: Json) -> bool:
        return definition["_meta"]["proxy"]["server"] == self.server

    async def call(self, tool: str, arguments: Json | None = None) -> Json:
        return await self.client.call(self.named(tool), arguments)

    async def answered(self, tool: str, arguments: Json | None = None) -> tuple[Any, Question]:
        """What a tool that asks one question returns, and the question."""
        before = len(self.user.asked)
        result = await self.call(tool, arguments)
        assert not result.get("isError"), result
        (question,) = self.user.asked[before:]
        if self.client.raw and not self.client.modern:  # PRO-5: ids of questions name the server
            assert re.fullmatch(rf"{self.server}:\d+", str(question.id))
        return result["structuredContent"], question

    def is_marked(self, params: Json) -> bool:
        """PRO-4, as far as the client lets one see it."""
        return not self.client.raw or params["_meta"]["proxy"] == {"server": self.server}


Behaviour = Callable[[Visit], Awaitable[None]]
BEHAVIOURS: list[Behaviour] = []
LEFT_OUT: dict[Behaviour, dict[str, Callable[[Cell], bool]]] = {}
"""Where a behaviour is not tried: why -> in which cells."""


def behaviour(function: Behaviour) -> Behaviour:
    BEHAVIOURS.append(function)
    return function


def left_out(why: str, where: Callable[[Cell], bool]) -> Callable[[Behaviour], Behaviour]:
    def register(function: Behaviour) -> Behaviour:
        LEFT_OUT.setdefault(function, {})[why] = where
        return function

    return register


def tried_in(cell: Cell) -> list[Behaviour]:
    return [
        tried
        for tried in BEHAVIOURS
        if not any(where(cell) for where in LEFT_OUT.get(tried, {}).values())
    ]


@behaviour
async def tools_are_listed_under_public_names_with_their_origin(visit: Visit) -> None:
    """SUR-1, NAM-2, NAM-3: all of them, their definitions as the server sent them."""
    listed = {
        tool["name"]: tool for tool in await visit.client.listed("tools/list") if visit.mine(tool)
    }
    native = {name: definition for name, (definition, _) in Everything().tools.items()}
    assert listed.keys() - {visit.named("extra")} == {visit.named(name) for name in native}
    for name in ("echo", "add", "region"):
        proxy = {"server": visit.server, "name": name}
        expected = native[name] | {
            "name": visit.named(name),
            "_meta": native[name]["_meta"] | {"proxy": proxy},
        }
        assert listed[visit.named(name)] == expected


@behaviour
async def a_call_brings_back_the_result_of_the_server(visit: Visit) -> None:
    """PRO-2, PRO-6: text, structured content and `_meta`."""
    assert (await visit.call("add", {"a": 1, "b": 2}))["structuredContent"] == {"sum": 3}
    echoed = await visit.call("echo", {"text": "é✓😀"})
    assert echoed["content"] == [{"type": "text", "text": "é✓😀"}]
    assert echoed["_meta"]["example.com/unknown"] == {"echoed": True}


@behaviour
async def progress_arrives_in_order_before_the_result(visit: Visit) -> None:
    """PRO-2, PRO-4."""
    steps: list[Json] = []
    await visit.client.call(visit.named("progress"), {"steps": 3}, steps.append)
    assert [(step["progress"], step["total"], step["message"]) for step in steps] == [
        (1, 3, "step 1"),
        (2, 3, "step 2"),
        (3, 3, "step 3"),
    ]
    assert all(visit.is_marked(step) for step in steps)


@behaviour
async def a_cancelled_call_is_cancelled_upstream(visit: Visit) -> None:
    """LIF-6, PRO-2: the server itself counts it, and the connection goes on serving."""

    async def count() -> int:
        return (await visit.call("cancelled_count"))["structuredContent"]["count"]

    before = await count()
    started = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(
            visit.client.call, visit.named("slow"), {"seconds": 60}, lambda _: started.set()
        )
        await started.wait()
        group.cancel_scope.cancel()
    while (
        now := await count()
    ) != before + 1:  # bounded by the test; each round is an answered call
        assert now == before
    assert (await visit.call("echo", {"text": "on"}))["content"][0]["text"] == "on"


@behaviour
async def an_error_of_the_server_arrives_as_it_is(visit: Visit) -> None:
    """PRO-6: code, message and data."""
    with pytest.raises(RefusedError) as refused:
        await visit.call("fail", {"code": -32055, "message": "as told"})
    data = {"tool": "fail", "nested": {"list": [1, None, "é"]}}
    assert refused.value.error == {"code": -32055, "message": "as told", "data": data}


@behaviour
async def a_failed_tool_is_a_result_that_says_so(visit: Visit) -> None:
    """PRO-6."""
    failed = await visit.call("tool_error", {"message": "no such luck"})
    assert (failed["isError"], failed["content"]) == (
        True,
        [{"type": "text", "text": "no such luck"}],
    )


@behaviour
async def a_listed_resource_can_be_read(visit: Visit) -> None:
    """NAM-3, NAM-4, PRO-2: by the listed URI, text and binary; the contents keep the server's own
    URI."""
    listed = {
        entry["uri"]: entry
        for entry in await visit.client.listed("resources/list")
        if visit.mine(entry)
    }
    for native, content in STATIC.items():
        entry = listed.pop(wrap_uri(visit.server, native))
        assert entry["_meta"] == {
            "example.com/x": 1,
            "proxy": {"server": visit.server, "originalUri": native},
        }
        read = await visit.client.request("resources/read", {"uri": entry["uri"]})
        assert read["contents"] == [{"uri": native, **content}]
    assert listed == {}


@behaviour
async def the_expansion_of_a_listed_template_can_be_read(visit: Visit) -> None:
    """NAM-4: plain, answered by the first server that lists the template, and wrapped, by the one
    it names."""
    (template,) = await visit.client.listed("resources/templates/list")
    assert (
        template["uriTemplate"] == template["_meta"]["proxy"]["originalUri"] == "test://item/{id}"
    )
    for uri in ("test://item/7", wrap_uri(visit.server, "test://item/7")):
        read = await visit.client.request("resources/read", {"uri": uri})
        content = {"uri": "test://item/7", "mimeType": "application/json", "text": '{"id": "7"}'}
        assert read["contents"] == [content]


@behaviour
async def a_listed_prompt_can_be_had(visit: Visit) -> None:
    """NAM-3, PRO-2."""
    listed = {prompt["name"]: prompt for prompt in await visit.client.listed("prompts/list")}
    assert listed[visit.named("greet")]["_meta"]["proxy"] == {
        "server": visit.server,
        "name": "greet",
    }
    had = await visit.client.request(
        "prompts/get", {"name": visit.named("greet"), "arguments": {"name": "Bo"}}
    )
    assert had["messages"] == [{"role": "user", "content": {"type": "text", "text": "Hello, Bo!"}}]


@behaviour
async def arguments_are_completed(visit: Visit) -> None:
    """PRO-2: those of a prompt and those of a template."""
    for reference, argument, known in (
        (
            {"type": "ref/prompt", "name": visit.named("greet")},
            {"name": "name", "value": "Al"},
            NAMES,
        ),
        ({"type": "ref/resource", "uri": "test://item/{id}"}, {"name": "id", "value": "1"}, IDS),
    ):
        completed = await visit.client.request(
            "completion/complete", {"ref": reference, "argument": argument}
        )
        values = [value for value in known if value.startswith(argument["value"])]
        assert completed["completion"] == {"values": values, "total": len(values), "hasMore": False}


@behaviour
async def an_update_reaches_who_subscribed_in_the_form_of_its_subscription(visit: Visit) -> None:
    """PRO-4, NAM-4: once, for that resource and no other, marked with the server."""
    # A modern listener is served over the shared link, an older one that can be asked has a link of
    # its own.
    toucher = visit.second if visit.client.modern else visit.client
    native, other = STATIC
    watched = wrap_uri(visit.server, native)
    position = len(visit.user.heard)
    async with visit.client.watching(watched):
        for uri in (other, native):
            await toucher.call(visit.named("touch"), {"uri": uri})
        await visit.user.next_after(position, UPDATED)
        await visit.call("echo", {"text": "and nothing after it"})
    updates = [params for method, params in visit.user.heard[position:] if method == UPDATED]
    assert [update["uri"] for update in updates] == [watched]
    assert visit.is_marked(updates[0])


@behaviour
async def a_log_line_reaches_the_client_that_wants_it(visit: Visit) -> None:
    """PRO-2, PRO-4: once, marked with the server, nothing in it lost."""
    if not visit.client.modern:  # modern ones say it with each request
        await visit.client.request("logging/setLevel", {"level": "info"})
    position = len(visit.user.heard)
    await visit.call("log", {"level": "debug", "message": "too quiet to be heard"})
    await visit.call("log", {"level": "warning", "message": "mind the gap"})
    await visit.user.next_after(position, MESSAGE)
    await visit.call("echo", {"text": "and nothing after it"})
    (line,) = [line for method, line in visit.user.heard[position:] if method == MESSAGE]
    assert (line["level"], line["data"]) == (
        "warning",
        {"message": "mind the gap", "unknown": {"kept": True}},
    )
    assert visit.is_marked(line)


@behaviour
async def a_form_is_put_to_the_client_and_its_answer_goes_back(visit: Visit) -> None:
    """PRO-5."""
    answer, question = await visit.answered("elicit", {"message": "who?"})
    assert answer == {"action": "accept", "content": {"name": visit.user.name}}
    assert (question.method, question.params["message"]) == ("elicitation/create", "who?")
    assert question.params["requestedSchema"]["properties"]["age"] == {
        "type": "integer",
        "default": 30,
    }


@behaviour
async def a_url_is_put_to_the_client_and_its_consent_goes_back(visit: Visit) -> None:
    """PRO-5: an older client also gets the id that the older era gives it, whoever asks."""
    answer, question = await visit.answered("elicit_url")
    assert answer == {"action": "accept"}
    assert (question.params["mode"], question.params["url"]) == ("url", URL)
    assert visit.client.modern or question.params["elicitationId"]


@behaviour
async def the_clients_model_is_asked_and_its_answer_goes_back(visit: Visit) -> None:
    """PRO-5."""
    answer, question = await visit.answered("sample", {"prompt": "well?"})
    assert answer["content"] == {"type": "text", "text": f"{visit.user.name} says yes"}
    assert question.params["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "well?"}}
    ]


@behaviour
async def the_clients_roots_go_to_the_server(visit: Visit) -> None:
    """PRO-5."""
    answer, _ = await visit.answered("roots")
    assert answer == {
        "roots": [{"uri": f"file:///home/{visit.user.name}", "name": visit.user.name}]
    }


async def toggle(client: Client, server: str) -> bool:
    """Add or remove the tool `extra`; whether it is there now, as the server says itself."""
    return (await client.call(f"{server}_toggle_tool"))["content"][0]["text"] == "on"


async def is_told_and_shown(client: Client, since: int, server: str, there: bool) -> None:
    """A client hears that tools changed, and then lists `extra` or not."""
    since, _ = await client.user.next_after(since, TOOLS_CHANGED)
    while (
        f"{server}_extra" in {tool["name"] for tool in await client.listed("tools/list")}
    ) != there:
        since, _ = await client.user.next_after(
            since, TOOLS_CHANGED
        )  # that was for an earlier change


@behaviour
@left_out(
    "announcements are a second apart: `test_a_change_of_the_tools_reaches_every_client` tries "
    "all of these at once",
    lambda cell: cell.front != "stdio",
)
async def a_change_of_the_tools_is_announced_and_listed(visit: Visit) -> None:
    """PRO-4, SUR-1."""
    async with visit.client.watching():
        since = len(visit.user.heard)
        await is_told_and_shown(
            visit.client, since, visit.server, await toggle(visit.client, visit.server)
        )


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_client_finds_the_same_behaviour(
    cell: Cell, matrix: Matrix, subtests: pytest.Subtests
) -> None:
    """SRC-1, SRC-2, PRO-1, PRO-2, PRO-3, PRO-4, PRO-5, PRO-6: every behaviour above, in this
    cell."""

    async def check() -> None:
        user = AnsweringUser(cell.client)
        with matrix.door(cell.front, cell.server) as door:
            async with AsyncExitStack() as stack:
                client = second = await stack.enter_async_context(
                    connected(cell.client, door, user)
                )
                if cell.front != "stdio":
                    quiet = AnsweringUser(f"quiet-{cell.client}", quiet=True)
                    second = await stack.enter_async_context(connected(cell.client, door, quiet))
                visit = Visit(client, second, cell.server)
                for behaves in tried_in(cell):
                    with subtests.test(behaves.__name__), anyio.fail_after(BOUND):
                        await behaves(visit)
            assert user.complaints == second.user.complaints == []
            assert second is client or second.user.asked == []

    run(check)


@pytest.mark.parametrize("server", sorted({cell.server for cell in CELLS}))
def test_a_change_of_the_tools_reaches_every_client(
    server: str, matrix: Matrix, subtests: pytest.Subtests
) -> None:
    """PRO-4, SUR-1: `extra` comes and goes, or the other way round; what is listed can be called,
    and nothing else."""

    async def check() -> None:
        async with AsyncExitStack() as stack:
            clients: dict[Cell, Client] = {}
            for cell in CELLS:
                if cell.server == server and cell.front != "stdio":
                    door = stack.enter_context(matrix.door(cell.front))
                    clients[cell] = await stack.enter_async_context(
                        connected(cell.client, door, AnsweringUser(str(cell)))
                    )
                    await stack.enter_async_context(clients[cell].watching())
            # Can be asked nothing, so it speaks to the process that the lists come from, not to one
            # of its own.
            door = stack.enter_context(matrix.door("http"))
            toggler = await stack.enter_async_context(
                connected("raw-older", door, AnsweringUser("toggler", quiet=True))
            )
            for _ in range(2):
                since = {cell: len(client.user.heard) for cell, client in clients.items()}
                there = await toggle(toggler, server)
                for cell, client in clients.items():
                    with subtests.test(str(cell), there=there), anyio.fail_after(BOUND):
                        await is_told_and_shown(client, since[cell], server, there)
                if there:
                    assert (await toggler.call(f"{server}_extra"))["content"] == [
                        {"type": "text", "text": "extra"}
                    ]
                else:
                    with pytest.raises(RefusedError):
                        await toggler.call(f"{server}_extra")
            assert [
                client.user.complaints for client in clients.values() if client.user.complaints
            ] == []

    run(check)


# ---- what only a raw client can see

MARK = UNKNOWN | {"big": 12345678901234567890123}
"""What the raw server puts under `x-unknown` everywhere, a number beyond 64 bits among it."""

RAW_CELLS = [cell for cell in CELLS if cell.client.startswith("raw") and cell.upstream == "stdio"]


@pytest.mark.parametrize(
    "cell", RAW_CELLS, ids=lambda cell: f"{cell.client}-over-{cell.front}-to-raw-{cell.era}"
)
def test_unknown_fields_survive_both_ways(cell: Cell, matrix: Matrix) -> None:
    """PRO-6, SUR-1, NAM-3, PRO-3: in definitions, arguments, results, errors and `_meta`; numbers
    of any size too."""
    server = f"raw_{cell.era}"
    marks = {"x-unknown": MARK, "_meta": {"example.com/unknown": MARK}}
    complete = {"resultType": "complete"} if cell.client.endswith("modern") else {}

    async def check() -> None:
        user = AnsweringUser(cell.client)
        with matrix.door(cell.front, server) as door:
            async with raw_client(door, user, cell.client.endswith("modern")) as client:
                (echo,) = [
                    tool
                    for tool in await client.listed("tools/list")
                    if tool["name"] == f"{server}_echo"
                ]
                properties = {"text": {"type": "string", "x-unknown": MARK}}
                assert echo == {
                    "name": f"{server}_echo",
                    "description": "The raw server's echo",
                    "inputSchema": {"type": "object", "properties": properties, "x-unknown": MARK},
                    "annotations": {"readOnlyHint": True, "x-unknown": MARK},
                    "x-unknown": MARK,
                    "_meta": {
                        "example.com/unknown": MARK,
                        "proxy": {"server": server, "name": "echo"},
                    },
                }
                content = {"type": "text", "text": "hello", **marks}
                assert await client.call(f"{server}_echo", {"text": "hello"}) == {
                    "content": [content],
                    **marks,
                    **complete,
                }
                with pytest.raises(RefusedError) as refused:
                    await client.call(f"{server}_fail", {"code": -32050, "message": "as told"})
                assert refused.value.error == {
                    "code": -32050,
                    "message": "as told",
                    "data": {"x-unknown": MARK},
                    "x-unknown": MARK,
                }
                sent = {"arguments": {"x-unknown": MARK, "nothing": None}, "x-unknown": MARK}
                traced = {"example.com/trace": MARK}
                params = {"name": f"{server}_whoami", **sent, "_meta": traced}
                told = (await client.request("tools/call", params))["structuredContent"]
                came, introduced = (
                    told["params"],
                    {**client.info, "name": f"{user.name}-through-proxy"},
                )
                if cell.era == "older":
                    assert came == {"name": "whoami", **sent, "_meta": traced}
                    greeting = told["initialize"]
                    # The link may have been opened for another client that can be asked the same.
                    assert greeting["clientInfo"]["name"].endswith("-through-proxy")
                    assert greeting["capabilities"] == user.capabilities
                else:
                    meta = came.pop("_meta")
                    assert came == {"name": "whoami", **sent}
                    assert meta["example.com/trace"] == MARK
                    assert meta[META + "clientInfo"] == introduced
                    assert meta[META + "clientCapabilities"] == user.capabilities
        assert user.complaints == []

    run(check)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_each_older_revision_is_answered_in_its_own_words(version: str, matrix: Matrix) -> None:
    """SRC-2: a client of any age; an older server is greeted with its revision or a later, a modern
    one is bridged."""

    async def check() -> None:
        with matrix.door("http") as door:
            async with raw_client(door, AnsweringUser(version), False, version) as client:
                assert client.told["protocolVersion"] == version
                told = (await client.call("raw_older_whoami"))["structuredContent"]
                assert (
                    told["initialize"]["protocolVersion"] >= version
                )  # one link serves clients of all ages
                for server in ("http_older", "http_modern", "raw_modern"):
                    assert (await client.call(f"{server}_echo", {"text": server}))["content"][0][
                        "text"
                    ] == server
        assert client.user.complaints == []

    run(check)


# ---- many at once

CROWD = ("stdio_older", "http_older", "sse_older", "websocket_modern", "http_modern")


def test_two_hundred_calls_at_once_get_their_own_answers(matrix: Matrix) -> None:
    """PRO-1, PRO-6, SRC-1, SRC-2: twenty clients of all kinds on the links they share, ids and
    tokens alike."""

    async def check() -> None:
        async with AsyncExitStack() as stack:
            clients: list[Client] = []
            for number, kind in enumerate(KINDS * 5):
                user = AnsweringUser(f"client-{number}", quiet=True)
                clients.append(await stack.enter_async_context(connected(kind, door, user)))
            answers: list[bool] = []
            begin = anyio.Event()

            async def echo(client: Client, server: str, text: str) -> None:
                await begin.wait()
                answer = await client.call(f"{server}_echo", {"text": text})
                answers.append(answer["content"] == [{"type": "text", "text": text}])

            async def count(client: Client, server: str, steps: int) -> None:
                heard: list[float] = []
                await begin.wait()
                arguments = {"steps": steps}
                answer = await client.call(
                    f"{server}_progress", arguments, lambda params: heard.append(params["progress"])
                )
                answers.append(
                    answer["content"][0]["text"] == f"{steps} steps"
                    and heard == [*range(1, steps + 1)]
                )

            async with anyio.create_task_group() as group:
                for number, client in enumerate(clients):
                    for server in CROWD:
                        group.start_soon(echo, client, server, f"{client.user.name} to {server}")
                        group.start_soon(count, client, server, number + 1)
                begin.set()
            assert answers == [True] * 200
            assert [client.user.complaints for client in clients if client.user.complaints] == []

    with matrix.door("http") as door:
        run(check)


ASKED_BY = ("stdio_older", "http_older", "http_modern")
ASK_ROUNDS = 5


def test_each_question_reaches_the_client_that_caused_it_and_nobody_else(matrix: Matrix) -> None:
    """PRO-5, PRO-3: eight clients of both eras, asked by older and modern servers at once, answer
    as themselves."""

    async def ask(client: Client, server: str, tool: str, number: int) -> None:
        name = client.user.name
        words = f"{name} through {server} for the time {number}"
        arguments = {"elicit": {"message": words}, "sample": {"prompt": words}, "roots": {}}[tool]
        told = (await client.call(f"{server}_{tool}", arguments))["structuredContent"]
        match tool:
            case "elicit":
                assert told == {"action": "accept", "content": {"name": name}}
            case "sample":
                assert told["content"]["text"] == f"{name} says yes"
            case _:
                assert told == {"roots": [{"uri": f"file:///home/{name}", "name": name}]}

    async def keep_asking(client: Client, server: str, tools: tuple[str, ...]) -> None:
        for number in range(ASK_ROUNDS):
            for tool in tools:
                await ask(client, server, tool, number)
        # PRO-3: the server was told whom it asks.
        known = (await client.call(f"{server}_ident"))["structuredContent"]["client"]
        assert known["name"] == f"{client.user.name}-through-proxy"

    def words_of(question: Question) -> str:
        if question.method == "elicitation/create":
            return question.params["message"]
        return question.params["messages"][0]["content"]["text"]

    async def check() -> None:
        async with AsyncExitStack() as stack:
            clients: list[Client] = []
            for kind, name in zip(
                KINDS * 2, ("ada", "bob", "cleo", "dan", "eve", "finn", "gus", "hal"), strict=True
            ):
                clients.append(
                    await stack.enter_async_context(connected(kind, door, AnsweringUser(name)))
                )
            async with anyio.create_task_group() as group:
                for client in clients:
                    for server in ASKED_BY:
                        if client.modern and server == "stdio_older":
                            # Each call of a modern client that runs at a time costs one more
                            # process there.
                            group.start_soon(
                                keep_asking, client, server, ("elicit", "sample", "roots")
                            )
                        else:
                            for tool in ("elicit", "sample", "roots"):
                                group.start_soon(keep_asking, client, server, (tool,))
            caused = {
                f"{client.user.name} through {server} for the time {number}"
                for client in clients
                for server in ASKED_BY
                for number in range(ASK_ROUNDS)
            }
            for client in clients:
                user = client.user
                asked = {
                    method: [q for q in user.asked if q.method == method] for method in QUESTIONS
                }
                own = sorted(words for words in caused if words.startswith(f"{user.name} "))
                assert sorted(map(words_of, asked["elicitation/create"])) == own
                assert sorted(map(words_of, asked["sampling/createMessage"])) == own
                assert len(asked["roots/list"]) == len(own)
                ids = [question.id for question in user.asked if question.id is not None]
                assert len(set(ids)) == len(ids)
                assert user.complaints == []

    with matrix.door("http") as door:
        run(check)
