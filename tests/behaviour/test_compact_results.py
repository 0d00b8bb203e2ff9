"""SUR-7, SUR-8: what a server returns, as the compact surfaces hand it on: twice, and nothing else
changed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from behaviour.compact import ERAS, MODES, Json, Visitor, config, told
from kit.gateway import Gateway

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
IMAGE = {
    "type": "image",
    "data": PNG,
    "mimeType": "image/png",
    "annotations": {"audience": ["user"]},
    "x-unknown": 1,
}
AUDIO = {
    "type": "audio",
    "data": PNG,
    "mimeType": "audio/wav",
    "_meta": {"example.com/x": [1, None]},
}
EMBEDDED = {
    "type": "resource",
    "resource": {"uri": "a://b", "mimeType": "application/json", "text": '{"a": [1, 2]}'},
}
BINARY = {
    "type": "resource",
    "resource": {"uri": "a://c", "blob": PNG, "x-unknown": {"deep": True}},
}
LINK = {"type": "resource_link", "uri": "a://d", "name": "d", "size": 3, "x-unknown": "kept"}
STRANGE = {"type": "hologram", "text": '{"not": "text"}', "x": [1, {"y": None}]}

ROWS = [{"id": number, "name": f"row {number}", "ok": True} for number in range(8)]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    servers = (
        told("told"),
        told("modern", None, None, "--era", "modern"),
        told("bare", structured_content="omit"),
        told("untooned", toon_compression_enabled=False),
        told("pretty", json_compression_enabled=False),
    )
    with Gateway(config(*servers)) as gateway:
        yield gateway
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@pytest.fixture(
    params=[(mode, era) for mode in MODES for era in ERAS], ids=lambda both: "-".join(both)
)
def client(gateway: Gateway, request: pytest.FixtureRequest) -> Visitor:
    return Visitor(gateway.port, *request.param)


def said(*texts: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": text} for text in texts], **more}


def given(client: Visitor, result: Json, server: str = "told") -> Json:
    return client.run(server, "give", {"result": result})


# ---- for programs


def test_structured_content_is_the_servers_own(client: Visitor) -> None:
    """SUR-7: whatever the text says."""
    own = {"rows": ROWS, "nested": {"deep": [None, 1.5, "é😀"]}}
    for text in ("in words", json.dumps(own), '{"quite": "another"}', "[1, 2]"):
        result = given(client, said(text, structuredContent=own))
        assert client.structured(result) == own


@pytest.mark.parametrize("text", ["nothing to tell", '{"a": 1}'])
def test_an_empty_object_is_a_structured_content_too(client: Visitor, text: str) -> None:
    """SUR-7: the server's own, though there is nothing in it."""
    assert client.structured(given(client, said(text, structuredContent={}))) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": {"b": [1, null]}}', {"a": {"b": [1, None]}}),
        ('{\n  "a": 1,\n  "b": [\n    2\n  ]\n}\n', {"a": 1, "b": [2]}),
        ("{}", {}),
        (json.dumps(ROWS), {"result": ROWS}),
        ("[]", {"result": []}),
        ("17", {"result": 17}),
        ('"words"', {"result": "words"}),
        ("true", {"result": True}),
        ("null", {"result": None}),
        ("12345678901234567890123", {"result": 12345678901234567890123}),
        ('{"cut": "\\ud83d"}', {"cut": "\ud83d"}),
    ],
)
def test_a_json_text_alone_is_parsed(client: Visitor, text: str, value: Json) -> None:
    """SUR-7: an object as it is, an array or a scalar under `result`."""
    assert client.structured(given(client, said(text))) == value


@pytest.mark.parametrize(
    "text", ["hello", "12 apples", '{"half": ', "", "no", "[see below]", "{a: 1}"]
)
def test_a_plain_text_has_no_structured_content(client: Visitor, text: str) -> None:
    """SUR-7, FMT-2: it stays as it is; only the shape of `search` repeats it."""
    result = given(client, said(text))
    assert result["content"] == [{"type": "text", "text": text}]
    if client.mode == "search":
        assert result["structuredContent"]["success"] is True
        assert result["structuredContent"]["result"] == text
    else:
        assert "structuredContent" not in result


@pytest.mark.parametrize("text", ['{"mean": NaN, "n": 0}', "[Infinity, 1]", "-Infinity", "NaN"])
def test_numbers_that_json_has_not_do_not_spoil_the_answer(client: Visitor, text: str) -> None:
    """SUR-7, SRC-8: many a Python program writes them; `direct` hands the text on, so do all
    surfaces."""
    direct = Visitor(client.port, "direct", "modern" if client.modern else "older")
    expected = direct.use("told_give", result=said(text))["content"]
    answer = client.run_raw("told", "give", {"result": said(text)})
    assert "result" in answer, answer
    assert len(answer["result"]["content"]) == 1
    shown = answer["result"]["content"][0]["text"]
    assert shown.replace(" ", "") == expected[0]["text"].replace(" ", "")


def test_two_texts_are_not_taken_for_one(client: Visitor) -> None:
    """SUR-7: only a text alone is parsed; nor is one beside an image."""
    for content in (said("[1]", "[2]")["content"], [*said('{"a": 1}')["content"], IMAGE]):
        result = given(client, {"content": content})
        if client.mode != "search":
            assert "structuredContent" not in result


def test_structured_content_can_be_left_out(client: Visitor) -> None:
    """SUR-7: `structured_content: omit`, here of one server; the text says it all."""
    for result in (
        said('{"a": 1}'),
        said("a", structuredContent={"a": 1}),
        said("no", isError=True),
    ):
        answer = given(client, result, "bare")
        assert "structuredContent" not in answer
        assert answer["content"] and answer.get("isError") == result.get("isError")


@pytest.mark.parametrize("mode", MODES)
def test_it_can_be_left_out_everywhere_but_at_one_server(mode: str) -> None:
    """SUR-7: `omit` for all; a key of `global` that also stands at a server counts for that
    server."""
    servers = (told("bare"), told("full", structured_content="include"))
    with Gateway(config(*servers, **{"global": {"structured_content": "omit"}})) as gateway:
        client = Visitor(gateway.port, mode)
        for tool in client.tools():
            if tool["name"] in ("inspect", "describe", "mcp_search_tools"):
                key = {"inspect": "server_name", "describe": "method", "mcp_search_tools": "query"}[
                    tool["name"]
                ]
                assert "structuredContent" not in client.use(tool["name"], **{key: "bare"})
        result = said("in words", structuredContent={"a": 1})
        assert "structuredContent" not in given(client, result, "bare")
        assert "structuredContent" not in client.run("bare", "nothing")
        assert client.structured(given(client, result, "full")) == {"a": 1}


# ---- for the model


def test_json_text_is_rendered_anew_and_nothing_else(client: Visitor) -> None:
    """SUR-7, FMT-2: rows as a table where that is smaller, else compact JSON."""
    (block,) = given(client, said(json.dumps(ROWS)))["content"]
    assert len(block["text"]) < len(json.dumps(ROWS, separators=(",", ":")))
    assert block["text"].startswith("[8]{id,name,ok}:")
    (block,) = given(client, said(json.dumps(ROWS)), "untooned")["content"]
    assert json.loads(block["text"]) == ROWS and ": " not in block["text"]
    (block,) = given(client, said('{"a":   [1,    2]}'))["content"]
    assert block["text"] == '{"a":[1,2]}'


PRETTY = json.dumps({"name": "package", "rows": ROWS}, indent=2)
FILES: list[Json] = [
    {
        "name": "read_text",
        "inputSchema": {"type": "object", "properties": {"file_path": {"type": "string"}}},
    },
    {
        "name": "directory_tree",
        "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
    {"name": "anything", "inputSchema": {"type": "object"}},
]


def test_json_of_several_lines_is_rendered_like_the_rest(client: Visitor) -> None:
    """SUR-7, FMT-2: data, however it was printed; alone, beside others, and beside what is no
    JSON."""
    (block,) = given(client, said(PRETTY))["content"]
    assert block["text"].startswith("name: package\nrows[8]{id,name,ok}:\n")
    assert client.structured(given(client, said(PRETTY))) == json.loads(PRETTY)
    shown = given(client, said("two of them:", '{\n  "a": 1\n}', "[\n  1,\n  2\n]\n", "{\n  half"))[
        "content"
    ]
    assert [block["text"] for block in shown] == ["two of them:", '{"a":1}', "[1,2]", "{\n  half"]


def test_json_of_several_lines_can_be_left_as_it_is(client: Visitor) -> None:
    """SUR-7, CFG-1: `json_compression_enabled: false`; what the server says twice is data all the
    same."""
    assert given(client, said(PRETTY), "pretty")["content"] == said(PRETTY)["content"]
    assert given(client, said('{"a":  1}'), "pretty")["content"] == said('{"a":1}')["content"]
    twice = said(PRETTY, structuredContent=json.loads(PRETTY))
    assert (
        given(client, twice, "pretty")["content"]
        == given(client, twice)["content"]
        != twice["content"]
    )


@pytest.mark.parametrize("mode", MODES)
def test_what_a_tool_reads_from_a_file_arrives_as_it_is(mode: str, tmp_path: Path) -> None:
    """SUR-7: a tool with a path among its arguments, by its schema or in the call, unless its name
    says that it lists.

    Here, and where large results are worked on."""
    large = json.dumps({"rows": [{"id": number} for number in range(30_000)]}, indent=2)
    contents = {"a://pretty": [{"uri": "a://pretty", "text": PRETTY}]}
    offers = {
        "tools": FILES,
        "answer": said(PRETTY),
        "resources": [{"uri": "a://pretty", "name": "p"}],
    }
    servers = (
        told("files", tmp_path, {**offers, "contents": contents}, result_limit=4_000),
        told("large", tmp_path, {**offers, "answer": said(large)}, result_limit=2_000_000),
    )
    with Gateway(config(*servers)) as gateway:
        client = Visitor(gateway.port, mode)

        def shown(server: str, tool: str, **arguments: Any) -> str:
            (block,) = client.run(server, tool, arguments)["content"]
            return block["text"]

        for server, whole in (("files", PRETTY), ("large", large)):
            assert (
                shown(server, "read_text", file_path="a")
                == shown(server, "anything", path="a")
                == whole
            )
            assert shown(server, "read_text") == whole
            assert shown(server, "directory_tree", path="a") == shown(server, "anything") != whole
        if mode == "describe":
            assert client.use("resources", uri="a://pretty")["content"] == said(PRETTY)["content"]


@pytest.mark.parametrize("server", ["told", "modern"])
def test_all_kinds_of_content_pass_untouched_and_in_order(client: Visitor, server: str) -> None:
    """SUR-8: alone and mixed with text; what is not known too."""
    for block in (IMAGE, AUDIO, EMBEDDED, BINARY, LINK, STRANGE):
        assert given(client, {"content": [block]}, server)["content"] == [block]
    first, last = said("first", "last")["content"]
    mixed = [
        first,
        IMAGE,
        AUDIO,
        EMBEDDED,
        said("between")["content"][0],
        BINARY,
        LINK,
        STRANGE,
        last,
    ]
    assert given(client, {"content": mixed}, server)["content"] == mixed
    assert given(client, {"content": []}, server)["content"] == []


@pytest.mark.parametrize(
    "content",
    [
        None,
        "text",
        5,
        {"a": 1},
        [1, None, "x", {}, {"type": "text"}, {"type": "text", "text": 5}, [[]]],
    ],
)
def test_content_that_is_none_is_handed_on(client: Visitor, content: Any) -> None:
    """SUR-8, SRC-8: what a broken server sends is not made worse."""
    assert given(client, {"content": content, "x": 1})["content"] == content
    assert given(client, {"x": 1}).get("x") == 1


@pytest.mark.parametrize("content", [None, "text", {}])
def test_structured_content_is_left_out_beside_no_content_too(
    client: Visitor, content: Any
) -> None:
    """SUR-7"""
    given = {"structuredContent": {"a": 1}, **({} if content is None else {"content": content})}
    assert "structuredContent" not in client.run("bare", "give", {"result": given})


def test_what_stands_beside_the_content_is_kept(client: Visitor) -> None:
    """SUR-8, PRO-6: `_meta`, unknown fields and `isError`, of the result and of each block."""
    beside = {"_meta": {"example.com/x": {"a": [None]}}, "x-unknown": {"b": 1.5}}
    block = {"type": "text", "text": '{"a": 1, "b": 2}', "annotations": {"priority": 1}, **beside}
    result = given(client, {"content": [block], "isError": False, **beside})
    assert {key: result[key] for key in ("isError", *beside)} == {"isError": False, **beside}
    assert result["content"] == [{**block, "text": '{"a":1,"b":2}'}]


def test_a_failed_tool_is_a_result_that_says_so(client: Visitor) -> None:
    """SUR-7, SUR-8: `isError` is kept; only `search` has a word for programs."""
    result = given(client, said("no such", "luck", isError=True))
    assert (result["isError"], result["content"]) == (True, said("no such", "luck")["content"])
    if client.mode == "search":
        shape = result["structuredContent"]
        assert (shape["success"], shape["result"]) == (False, None)
        assert "no such" in shape["error"] and "luck" in shape["error"]
    else:
        assert "structuredContent" not in result


def test_a_failed_tool_keeps_the_servers_own_structured_content(client: Visitor) -> None:
    """SUR-7: in `search` the shape of the document stands around it."""
    result = given(client, said("no", structuredContent={"code": 7}, isError=True))
    assert result["isError"] is True
    if client.mode == "search":
        assert result["structuredContent"]["success"] is False
        assert result["structuredContent"]["error"] == "no"
    else:
        assert result["structuredContent"] == {"code": 7}


def test_a_repaired_argument_is_told_in_one_last_block(client: Visitor) -> None:
    """SUR-7: and nothing else is added, neither for the model nor for programs."""
    asked = {"path": "a", "limit": "5", "MODE": "FAST"}
    result = client.run("told", "note", asked)
    answer = {"type": "text", "text": 'note {"limit": 5, "mode": "fast", "path": "a"}'}
    assert result["content"][0] == answer
    (note,) = result["content"][1:]
    assert note["type"] == "text"
    assert all(word in note["text"] for word in ("limit", '"5"', "5", "MODE", "mode", "fast"))
    if client.mode == "search":
        shape = result["structuredContent"]
        assert (shape["success"], shape["error"]) == (True, None)
        assert shape["result"] == answer["text"]
    else:
        assert "structuredContent" not in result
    asked = {"result": json.dumps({"content": [IMAGE], "structuredContent": {"a": 1}})}
    repaired = client.run("told", "give", asked)
    assert repaired["content"][0] == IMAGE and len(repaired["content"]) == 2
    assert client.structured(repaired) == {"a": 1}
