"""SUR-12: several servers or tools told at once, words searched for, several calls in one turn."""

import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from behaviour.clients import BOUND, KINDS, AnsweringUser, Door, Kind, connected
from behaviour.compact import (
    CALLER,
    ERAS,
    MODES,
    Compact,
    Json,
    Visitor,
    config,
    meta_call,
    text,
    told,
)
from kit.client import StdioClient
from kit.gateway import Gateway, GatewayProcess
from kit.messages import modern_request
from kit.servers import everything_server

FETCH = {
    "name": "fetch_page",
    "description": "Downloads a page from the web",
    "annotations": {"readOnlyHint": True},
    "inputSchema": {
        "type": "object",
        "properties": {"url": {"type": "string"}},
        "required": ["url"],
    },
}
LONG = [
    {
        "name": f"long_{number}",
        "description": "About this " + "w" * 180,
        "inputSchema": {"type": "object"},
    }
    for number in range(200)
]
PNG = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("several")
    web = {"instructions": "Reads the web.", "tools": [FETCH]}
    servers = (
        told("git"),
        told("web", folder, web),
        told("memory"),
        told("huge", folder, {"tools": LONG}),
    )
    with GatewayProcess(config(*servers)) as gateway:
        yield gateway
        assert gateway.process.poll() is None
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@pytest.fixture(
    params=[(mode, era) for mode in MODES[:2] for era in ERAS], ids=lambda both: "-".join(both)
)
def client(gateway: Gateway, request: pytest.FixtureRequest) -> Visitor:
    return Visitor(gateway.port, *request.param)


@pytest.fixture(
    params=[(mode, era) for mode in MODES for era in ERAS], ids=lambda both: "-".join(both)
)
def caller(gateway: Gateway, request: pytest.FixtureRequest) -> Visitor:
    return Visitor(gateway.port, *request.param)


def ask(client: Visitor, names: Any, tools: Any = None) -> Json:
    if client.mode == "inspect":
        return client.use(
            "inspect", server_name=names, **({} if tools is None else {"tool_name": tools})
        )
    return client.use("describe", method=names)


# Several at once
# ------------------------------------------------------------------------------------------------


def test_several_servers_are_told_as_each_alone(client: Visitor) -> None:
    """SUR-12, SUR-2, SUR-3: one text, and the raw definitions of each; the same name twice is told
    once."""
    alone = [ask(client, name) for name in ("web", "git")]
    both = ask(client, ["web", "git", " web "])
    assert text(both) == "\n\n".join(map(text, alone))
    assert both["structuredContent"] == {"results": [each["structuredContent"] for each in alone]}
    assert not both.get("isError")


def test_several_tools_are_told_as_each_alone(client: Visitor) -> None:
    """SUR-12: of one server in inspect, of any in describe, beside whole servers."""
    if client.mode == "inspect":
        alone = [ask(client, "web", name) for name in ("fetch_page", "note")]
        many = ask(client, "web", ["fetch_page", "note"])
        assert ask(client, ["web"], "fetch_page, note") == many
    else:
        alone = [ask(client, name) for name in ("web.fetch_page", "git")]
        many = ask(client, ["web.fetch_page", "git"])
    assert text(many) == "\n\n".join(map(text, alone))
    assert many["structuredContent"]["results"] == [each["structuredContent"] for each in alone]


@pytest.mark.parametrize("names", ['["web", "git"]', "web,git", "web, git"])
def test_a_list_may_come_as_text(client: Visitor, names: str) -> None:
    """SUR-12: as JSON, or with commas between names that are all known."""
    assert ask(client, names) == ask(client, ["web", "git"])


def test_what_is_wrong_with_one_is_told_beside_the_others(client: Visitor) -> None:
    """SUR-12, SUR-9: an error only where all are wrong."""
    mixed = ask(client, ["git", "web.nothing", "memory"])
    assert not mixed.get("isError")
    first, wrong, last = mixed["structuredContent"]["results"]
    assert (first["server"], last["server"]) == ("git", "memory")
    assert '"web' in wrong["error"] and wrong["error"].splitlines()[0] in text(mixed)
    every = ask(client, ["git.nothing", "web.nothing"])
    assert every["isError"] is True and len(every["structuredContent"]["results"]) == 2


@pytest.mark.parametrize(
    "names", [[], ["git"] * 21, [5], ["git", None], [""], 5, {"a": 1}, [["git"]]]
)
def test_a_list_of_anything_else_is_refused(client: Visitor, names: Any) -> None:
    """SUR-9, SUR-12."""
    argument = "server_name" if client.mode == "inspect" else "method"
    assert argument in client.error(ask(client, names))


def test_tools_are_listed_for_one_server_only(gateway: Gateway) -> None:
    """SUR-9, SUR-12: of which of them would they be?"""
    client = Visitor(gateway.port, "inspect")
    assert "one server_name" in client.error(ask(client, ["git", "web"], ["note"]))


def test_a_large_server_does_not_hide_the_others(client: Visitor) -> None:
    """SUR-12, SUR-11: less is told of the longest, and the whole is one answer."""
    told = text(ask(client, ["huge", "git", "web"]))
    assert len(told) <= 16_000 and "[mcpx: kept" not in told
    assert "long_199" in told and "Reads the web." in told and "note({path: string" in told


# Words that are no name
# -----------------------------------------------------------------------------------------


def test_words_that_are_no_name_are_searched_for(client: Visitor) -> None:
    """SUR-12: over everything; that is an answer and no error."""
    for words in ("download a page", "fetch web pages"):
        answer = ask(client, words)
        assert not answer.get("isError"), answer
        assert "fetch_page({url: string" in text(answer) and "web" in text(answer)
        assert answer["structuredContent"]["tools"][0]["name"] == "fetch_page"
    several = ask(client, ["git", "download a page"])
    assert several["structuredContent"]["results"][1]["tools"][0]["name"] == "fetch_page"


def test_a_name_that_is_nearly_one_is_told_before_what_is_found(client: Visitor) -> None:
    """SUR-12, SUR-9."""
    answer = text(ask(client, "memry"))
    assert answer.startswith(('Unknown server "memry".', 'No server is called "memry".'))
    assert 'Did you mean "memory"?' in answer.splitlines()[0]
    found = text(ask(client, "pages"))
    assert (
        found.startswith('No server is called "pages". Searched everything:')
        and "fetch_page" in found
    )
    assert "Did you mean" not in found
    nothing = client.error(ask(client, "qqqqqq"))
    assert '"qqqqqq"' in nothing and "memory" in nothing


# Several calls
# --------------------------------------------------------------------------------------------------


def call_of(mode: Compact, server: str, tool: str, arguments: Any) -> Json:
    return meta_call(mode, server, tool, arguments)[1]


def calls(client: Visitor, *items: tuple[str, str, Any], **more: Any) -> Json:
    mode = client.mode
    assert mode in MODES
    given = [call_of(mode, *item) for item in items]
    return client.use(CALLER[client.mode], calls=given, **more)


def test_several_calls_are_made_and_told_in_order(caller: Visitor) -> None:
    """SUR-12, SUR-7, SUR-8: a heading and the blocks of each; for programs, what each says
    alone."""
    rows = [{"a": 1}, {"a": 2}, {"a": 3}]
    mixed = {"content": [{"type": "text", "text": "see"}, PNG]}
    result = calls(
        caller,
        ("git", "note", {"path": "a"}),
        ("web", "give", {"result": mixed}),
        ("memory", "give", {"result": {"content": [{"type": "text", "text": json.dumps(rows)}]}}),
    )
    assert not result.get("isError")
    heads = [
        block["text"] for block in result["content"] if block.get("text", "").startswith("[mcpx: ")
    ]
    assert [head[:8] for head in heads] == ["[mcpx: 1", "[mcpx: 2", "[mcpx: 3"]
    assert result["content"][1]["text"] == 'note {"path": "a"}'
    assert result["content"][3:5] == mixed["content"]
    alone = caller.run(
        "memory", "give", {"result": {"content": [{"type": "text", "text": json.dumps(rows)}]}}
    )
    assert result["content"][6:] == alone["content"]
    told = result["structuredContent"]
    if caller.mode == "search":
        assert told["success"] is True and told["error"] is None
        assert told["result"][0] == {"success": True, "result": 'note {"path": "a"}', "error": None}
        assert told["result"][2] == alone["structuredContent"]
    else:
        assert told["results"][0] == {"ok": True, "result": 'note {"path": "a"}'}
        assert told["results"][2] == {"ok": True, "result": {"result": rows}}


def test_each_of_several_calls_fails_on_its_own(caller: Visitor) -> None:
    """SUR-12, SUR-9: with the same words as alone."""
    wrong = [
        ("git", "note", {"limit": 1}),
        ("git", "notee", {}),
        ("git", "give", {"result": {"content": []}}),
    ]
    first = calls(caller, *wrong)
    assert first["isError"] is True
    assert first["content"][0]["text"] == "[mcpx: 0 of 3 calls ok]"
    assert first["content"][2]["text"] == caller.error(caller.run(*wrong[0]))
    assert first["content"][3]["text"].endswith("not run: call 1 failed]")
    result = calls(caller, *wrong, **{"continue": True})
    texts = [block["text"] for block in result["content"]]
    assert texts[0] == "[mcpx: 1 of 3 calls ok]"
    assert texts[4] == caller.error(caller.run(*wrong[1])) and texts[5].endswith("give: ok]")


def test_a_call_of_a_hundred_kilobytes_leaves_room_for_the_others(caller: Visitor) -> None:
    """SUR-12, SUR-11."""
    large = {"result": {"content": [{"type": "text", "text": "z" * 100_000}]}}
    result = calls(caller, *[("git", "give", large)] * 10, *[("web", "note", {"path": "a"})] * 10)
    texts = [block["text"] for block in result["content"]]
    assert sum(map(len, texts)) < 2 * 16_000 + 20 * 400
    assert texts.count('note {"path": "a"}') == 10
    assert len(json.dumps(result)) < 200_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_progress_and_cancellation_of_several_calls(kind: Kind, mode: Compact) -> None:
    """SUR-12, PRO-2: for every kind of client, over HTTP."""

    async def check(door: Door) -> None:
        async with connected(kind, door, AnsweringUser(kind)) as client:
            steps: list[Json] = []
            started = anyio.Event()

            def items(*wanted: tuple[str, Json]) -> Json:
                return {"calls": [call_of(mode, "every", tool, given) for tool, given in wanted]}

            with anyio.fail_after(BOUND):
                twice = items(("progress", {"steps": 2}), ("progress", {"steps": 2}))
                await client.call(CALLER[mode], twice, steps.append)
                while (
                    not steps or steps[-1]["progress"] != 2
                ):  # the SDK tells of it in tasks of its own
                    await anyio.lowlevel.checkpoint()
                seen = [step["progress"] for step in steps]
                assert (
                    sorted(seen) == seen
                    and len(set(seen)) == len(seen)
                    and {s["total"] for s in steps} == {2}
                )

                async def count() -> int:
                    name, given = meta_call(mode, "every", "cancelled_count", {})
                    return int(
                        json.loads((await client.call(name, given))["content"][0]["text"])["count"]
                    )

                before = await count()
                async with anyio.create_task_group() as group:
                    slow = items(("slow", {"seconds": 60}), ("progress", {"steps": 1}))
                    group.start_soon(client.call, CALLER[mode], slow, lambda _: started.set())
                    await started.wait()
                    group.cancel_scope.cancel()
                while (now := await count()) != before + 1:
                    assert now == before

    with Gateway(config(everything_server("every"), naming={"prefix": "always"})) as gateway:
        anyio.run(check, Door("http", f"http://127.0.0.1:{gateway.port}/mcp/{mode}"))
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", MODES)
def test_several_calls_on_stdio(mode: Compact, era: str) -> None:
    """SUR-12: the same as over HTTP."""
    items = [call_of(mode, "git", "note", {"path": path}) for path in ("a", "b")]
    call = {"name": CALLER[mode], "arguments": {"calls": items}}
    shape = config(told("git"), mode=mode, naming={"prefix": "always"})
    with (
        GatewayProcess(shape, transport="stdio") as alone,
        StdioClient(alone.stdio_command, alone.env) as pipe,
    ):
        if era == "older":
            pipe.greet()
            result = pipe.request("tools/call", call)["result"]
        else:
            pipe.send(modern_request("tools/call", call, id="call"))
            result = pipe.reply("call")["result"]
    texts = [block["text"] for block in result["content"]]
    assert texts[1::2] == ['note {"path": "a"}', 'note {"path": "b"}']
    assert [head[:8] for head in texts[::2]] == ["[mcpx: 1", "[mcpx: 2"]
