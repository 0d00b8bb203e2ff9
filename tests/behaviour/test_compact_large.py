"""SUR-11: a large result is kept, shown in part, and read on through the surface's own call
tool."""

import json
import re
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from behaviour.compact import ERAS, MODES, Json, Visitor, config, meta_call, text, texts, told
from kit.client import ACCEPT_BOTH, Stream
from kit.gateway import Gateway
from kit.messages import request

LIMIT = 16_000
ROWS = [
    {"id": number, "name": f"row number {number}", "odd": bool(number % 2)} for number in range(900)
]
LINES = "\n".join(f"line {number} of the log" for number in range(2000))
MESSAGE_LONG = json.dumps({"rows": ROWS, "count": 900})


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("large") / "calls"


@pytest.fixture(scope="module")
def gateway(record: Path) -> Iterator[Gateway]:
    texts = {"a://big": LINES, "a://middle": "z" * 5_000, "a://json": '{"a": 1}'}
    offers = {
        "resources": [{"uri": uri, "name": uri} for uri in texts],
        "contents": {uri: [{"uri": uri, "text": text}] for uri, text in texts.items()},
    }
    servers = (
        told("told", record.parent, offers, "--record", str(record)),
        told("small", record.parent, offers, result_limit=2_000),
        told("bare", record.parent, offers, structured_content="omit"),
    )
    with Gateway(config(*servers)) as gateway:
        yield gateway
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@pytest.fixture(
    params=[(mode, era) for mode in MODES for era in ERAS], ids=lambda both: "-".join(both)
)
def client(gateway: Gateway, request: pytest.FixtureRequest) -> Visitor:
    return Visitor(gateway.port, *request.param)


def said(*parts: str) -> Json:
    return {"content": [{"type": "text", "text": part} for part in parts]}


def large(client: Visitor, value: str, server: str = "told") -> Json:
    return client.run(server, "give", {"result": said(value)})


def handle_of(client: Visitor, result: Json) -> str:
    return client.structured(result)["handle"]


def read(client: Visitor, handle: str, **more: Any) -> str:
    result = client.run("mcpx", "result", {"handle": handle, **more})
    assert not result.get("isError"), result
    return text(result)


def parts_of(result: Json) -> tuple[str, str, str]:
    """What stands before what is shown of a kept result, that itself, and what stands after it."""
    first, *shown, last = text(result).splitlines()
    for line in (first, last):
        assert line.startswith("[mcpx: ") and line.endswith("]")
    return first, "\n".join(shown), last


def calls_in(client: Visitor, line: str) -> list[Json]:
    """The arguments of every reading that a line tells: of the whole call, then of the others."""
    name, given = meta_call(client.mode, "mcpx", "result", {})
    decoder = json.JSONDecoder()
    _, found, rest = line.partition(f"{name} ")
    assert found, line
    call, end = decoder.raw_decode(rest)
    assert call == {**given, "arguments": call["arguments"]}, (
        "as the tool takes it, to the last key"
    )
    others = re.finditer(r"arguments (?=\{)", rest[end:])
    return [
        call["arguments"],
        *(decoder.raw_decode(rest[end + more.end() :])[0] for more in others),
    ]


def test_a_large_result_is_replaced_by_shape_rows_and_handle(client: Visitor) -> None:
    """SUR-11: what it is, two or three rows, and a call to copy; no number of them twice."""
    value = json.dumps(ROWS)
    result = large(client, value)
    kept = client.structured(result)
    assert kept.keys() == {"handle", "total_bytes", "shape", "preview"}
    assert kept["total_bytes"] == len(value)
    assert kept["shape"] == "array of 900 objects {id: number, name: string, odd: boolean}"
    assert "row number 2" in kept["preview"] and "row number 3" not in kept["preview"]
    first, shown, last = parts_of(result)
    assert first == f"[mcpx: kept back: {len(value):,} bytes, {kept['shape']}. The first 3 rows:]"
    assert shown == kept["preview"]
    assert calls_in(client, last) == [
        {"handle": kept["handle"], "jmespath": "length([?name=='row number 0'])"},
        {"handle": kept["handle"], "offset": 3},
    ]
    assert (
        len(text(result)) < 700
        and text(result).count(f"{len(value):,}") == text(result).count("900") == 1
    )


ORDERS = {
    "total": 120,
    "orders": [
        {"id": n, "status": ("open", "sent", "lost")[n % 3], "note": "x" * 300} for n in range(120)
    ],
}


@pytest.mark.parametrize("size", [1, 20], ids=["at once", "in a process"])
def test_what_is_offered_for_json_works_as_it_stands(client: Visitor, size: int) -> None:
    """SUR-11: an expression with real names and a real value, and the rows after those that are
    shown."""
    value = {
        **ORDERS,
        "orders": [{**order, "id": n} for n, order in enumerate(ORDERS["orders"] * size)],
    }
    result = large(client, json.dumps(value))
    first, shown, last = parts_of(result)
    assert "orders: array of" in first and "grep" not in last and "head" not in last
    assert '"note":"xxx' in shown and '… [240 more]"' in shown
    select, following = calls_in(client, last)
    assert select["jmespath"] == "length(orders[?status=='open'])"
    assert read(client, **select) == str(40 * size)
    assert following["jmespath"] == "orders"
    page = read(client, **following, limit=1)
    assert page.startswith('[{"id":0,"status":"open"')


@pytest.mark.parametrize("value", [LINES, "word " * 8_000], ids=["lines", "one line"])
def test_what_is_offered_for_a_text_works_as_it_stands(client: Visitor, value: str) -> None:
    """SUR-11: the next lines or characters, and a word to look for; no expression."""
    first, shown, last = parts_of(large(client, value))
    assert len(shown) < 2_000 and value.startswith(shown)
    assert len(shown) > 1_000 or shown.count("\n") == 11
    assert "jmespath" not in first + last and "head" not in last
    following, find = calls_in(client, last)
    assert following.keys() == {"handle", "offset"} and find.keys() == {"handle", "grep"}
    assert read(client, **following, limit=1)[0] == value[len(shown) :].lstrip("\n")[0]
    assert "match" in read(client, **find)


def test_pages_say_what_they_are_and_the_arguments_of_the_next(client: Visitor) -> None:
    """SUR-11: with the same expression and the same limit."""
    handle = handle_of(client, large(client, json.dumps(ORDERS)))
    page = read(client, handle, jmespath="orders[?status=='open'].id", limit=30)
    shown, _, note = page.rpartition("\n")
    assert json.loads(shown) == list(range(0, 90, 3))
    assert note.startswith("[mcpx: rows 0-29 of 40; next: {") and note.endswith("}]")
    rest = read(client, **json.loads(note.partition("next: ")[2].removesuffix("]")))
    assert json.loads(rest.partition("\n")[0]) == list(range(90, 120, 3))
    assert rest.endswith("\n[mcpx: rows 30-39 of 40; the end]")


def test_the_tool_that_calls_names_the_one_that_reads_on(client: Visitor) -> None:
    """SUR-11: once, with what it takes; else it would stand in no list."""
    texts = {tool["name"]: tool["description"] for tool in client.tools()}
    (told,) = [
        name
        for name, text in texts.items()
        if "{handle, offset?, limit?, jmespath?, grep?}" in text
    ]
    assert told == meta_call(client.mode, "mcpx", "result", {})[0]
    assert ("result of server mcpx" if client.mode == "inspect" else "mcpx.result") in texts[told]


def test_the_limit_is_counted_in_bytes(client: Visitor) -> None:
    """SUR-11: 16,000 are whole, one more is not; so are letters that take more than a byte."""
    whole, over = "x" * LIMIT, "x" * (LIMIT + 1)
    assert text(large(client, whole)) == whole
    assert client.structured(large(client, over))["total_bytes"] == LIMIT + 1
    wide = "字" * (LIMIT // 3 + 1)
    kept = client.structured(large(client, wide))
    assert kept["total_bytes"] == len(wide.encode())
    assert text(large(client, "字" * (LIMIT // 3))) == "字" * (LIMIT // 3)


def test_rows_are_read_by_offset_and_limit_to_the_end(client: Visitor) -> None:
    """SUR-11: the pages together are the whole."""
    handle = handle_of(client, large(client, json.dumps(ROWS)))
    page = read(client, handle, offset=10, limit=2)
    assert "row number 10" in page and "row number 11" in page
    assert "row number 9" not in page and "row number 12" not in page
    seen: list[str] = []
    offset = 0
    while offset < len(ROWS):
        page = read(client, handle, offset=offset)
        assert len(page.encode()) <= LIMIT
        names = [
            f"row number {number}"
            for number in range(offset, len(ROWS))
            if f"row number {number}," in page
        ]
        assert names
        seen += names
        offset += len(names)
    assert seen == [row["name"] for row in ROWS]


def test_json_is_read_by_an_expression(client: Visitor) -> None:
    """SUR-11: `jmespath` selects."""
    handle = handle_of(client, large(client, MESSAGE_LONG))
    assert (
        json.loads(read(client, handle, jmespath="rows[?id == `7`].name | [0]").join('""'))
        == "row number 7"
    )
    assert read(client, handle, jmespath="count") == "900"
    assert read(client, handle, jmespath="length(rows)") == "900"


def test_lines_are_found_and_counted_from_the_beginning(client: Visitor) -> None:
    """SUR-11: `grep` and `head`."""
    handle = handle_of(client, large(client, LINES))
    found = read(client, handle, grep="line 1234 ")
    assert "line 1234 of the log" in found and "line 1235" not in found
    head = read(client, handle, head=3)
    assert "line 2 of the log" in head and "line 3 of the log" not in head


def test_reading_asks_no_server(client: Visitor, record: Path) -> None:
    """SUR-11: no new call; and no new entry in the menu."""
    before = client.tools()
    handle = handle_of(client, large(client, LINES))
    calls = record.read_text().count("\n")
    for more in ({"offset": 5}, {"grep": "1999"}, {"head": 1}, {}):
        read(client, handle, **more)
    assert record.read_text().count("\n") == calls
    assert client.tools() == before


def test_the_handle_of_another_client_reads_as_unknown(client: Visitor) -> None:
    """SUR-11: word by word like one that was never given."""
    handle = handle_of(client, large(client, LINES))
    other = Visitor(
        client.port, client.mode, "modern" if client.modern else "older", name="somebody else"
    )
    refused = other.run("mcpx", "result", {"handle": handle})
    assert other.error(refused)
    assert "line 0" not in text(refused)
    assert refused == other.run("mcpx", "result", {"handle": "x" * len(handle)})
    assert "line 0 of the log" in read(client, handle)


def test_another_session_of_the_same_program_is_another_client(gateway: Gateway) -> None:
    """SUR-11: where there are sessions, a handle belongs to one."""
    for mode in MODES:
        mine, other = Visitor(gateway.port, mode), Visitor(gateway.port, mode)
        other.error(other.run("mcpx", "result", {"handle": handle_of(mine, large(mine, LINES))}))


def test_a_handle_is_good_in_every_mode_of_the_same_session(gateway: Gateway) -> None:
    """SUR-11, SUR-6: it belongs to the caller; who has one may as well read it through another
    surface."""
    client = Visitor(gateway.port, "inspect", "modern", name="wanderer")
    handle = handle_of(client, large(client, LINES))
    for mode in MODES:
        assert "line 7 of" in read(
            Visitor(gateway.port, mode, "modern", name="wanderer"), handle, offset=7, limit=1
        )


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"handle": 5.5},
        {"handle": ["a"]},
        {"handle": "x", "offset": -1},
        {"handle": "x", "limit": "many"},
        {"handle": "x", "regexp": "a"},
        "not an object",
    ],
)
def test_wrong_arguments_for_reading_are_mistakes_that_help(
    client: Visitor, arguments: Any
) -> None:
    """SUR-9, SUR-11: with the signature."""
    told = client.error(client.run("mcpx", "result", arguments))
    assert "handle" in told


def test_a_bad_expression_is_a_mistake_that_helps(client: Visitor) -> None:
    """SUR-9, SUR-11."""
    rows = handle_of(client, large(client, json.dumps(ROWS)))
    lines = handle_of(client, large(client, LINES))
    for handle, more in (
        (rows, {"jmespath": "[?"}),
        (lines, {"jmespath": "a"}),
        (rows, {"offset": 900}),
    ):
        told = client.error(client.run("mcpx", "result", {"handle": handle, **more}))
        assert next(iter(more)) in told
        if more == {"jmespath": "[?"}:
            assert "array of 900 objects {id: number, name: string, odd: boolean}" in told


def test_other_blocks_and_fields_stay_when_a_text_is_kept_back(client: Visitor) -> None:
    """SUR-8, SUR-11: in order, with `_meta`, `isError` and what the text's own block carried."""
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    block = {"type": "text", "text": LINES, "_meta": {"x": 1}}
    given = {
        "content": [image, block, image, {"type": "text", "text": "end"}],
        "isError": True,
        "_meta": {"y": 2},
    }
    result = client.run("told", "give", {"result": given})
    assert [part["type"] for part in result["content"]] == ["image", "text", "image", "text"]
    assert (result["isError"], result["_meta"]) == (True, {"y": 2})
    assert result["content"][1]["_meta"] == {"x": 1}
    assert result["content"][3] == {"type": "text", "text": "end"}
    assert len(result["content"][1]["text"]) < 4_000


def test_many_small_texts_are_bounded_too(client: Visitor) -> None:
    """SUR-11: each is short enough, all together they are not; nothing of them is lost."""
    parts = [f"part {number} " + "y" * 1_000 for number in range(40)]
    result = client.run("told", "give", {"result": said(*parts)})
    assert sum(map(len, texts(result))) < 4_000
    found = read(client, handle_of(client, result), grep="part 39")
    assert "part 39" in found


def test_several_large_texts_are_kept_as_one(client: Visitor) -> None:
    """SUR-11: one preview and one handle, however many there are."""
    result = client.run(
        "told", "give", {"result": said(*(f"{letter} {LINES}" for letter in "abcdefgh"))}
    )
    assert len(json.dumps(result["content"])) < 4_000
    assert "h line 0 of the log" in read(client, handle_of(client, result), grep="h line 0")


@pytest.mark.parametrize(
    "value", [LINES, json.dumps(ROWS), "x" * 40_000], ids=["lines", "rows", "one line"]
)
def test_the_preview_and_what_it_says_to_go_on_with_are_the_whole(
    client: Visitor, value: str
) -> None:
    """SUR-11: nothing is shown twice, nothing is passed over."""
    result = large(client, value)
    (asked,) = [each for each in calls_in(client, parts_of(result)[2]) if "offset" in each]
    offset, kept = asked["offset"], client.structured(result)
    if value == LINES:
        assert kept["preview"].splitlines() == LINES.splitlines()[:offset]
        assert read(client, **asked, limit=1).startswith(LINES.splitlines()[offset])
    elif value.startswith("["):
        assert (
            f"row number {offset - 1}" in kept["preview"]
            and f"row number {offset}" not in kept["preview"]
        )
        assert f"row number {offset}" in read(client, **asked, limit=1)
    else:
        assert offset == len(kept["preview"])


def test_what_is_read_on_comes_as_json_for_programs(client: Visitor) -> None:
    """SUR-7, SUR-11: the rows or keys of the page; a text is a text."""
    handle = handle_of(client, large(client, json.dumps(ROWS)))

    def raw(**asked: Any) -> Any:
        found = client.structured(client.run("mcpx", "result", {"handle": handle, **asked}))
        return found["result"] if isinstance(found, dict) and found.keys() == {"result"} else found

    assert raw(offset=7, limit=2) == ROWS[7:9]
    assert raw(grep="number 899") == ROWS[899:]
    assert raw(jmespath="[3]") == ROWS[3]
    assert raw(jmespath="[0:2].name") == ["row number 0", "row number 1"]
    assert raw(jmespath="length(@)") == 900
    lines = client.run(
        "mcpx", "result", {"handle": handle_of(client, large(client, LINES)), "limit": 1}
    )
    assert client.mode == "search" or "structuredContent" not in lines


def test_a_repaired_argument_of_the_reader_is_told_too(client: Visitor) -> None:
    """SUR-7, SUR-11."""
    handle = handle_of(client, large(client, LINES))
    result = client.run("mcpx", "result", {"handle": handle, "limit": "2"})
    assert texts(result)[-1].startswith("Note: limit")


def test_the_text_and_the_structured_content_name_the_same_handle(client: Visitor) -> None:
    """SUR-11: also when one text is too large and the others are too many."""
    parts = [LINES, *(f"part {number} " + "y" * 1_000 for number in range(40))]
    result = client.run("told", "give", {"result": said(*parts)})
    assert handle_of(client, result) in "\n".join(texts(result))


def test_the_limit_of_a_server_is_its_own(client: Visitor) -> None:
    """SUR-11, SUR-7: `result_limit`; without `structuredContent` the text alone is enough to go
    on."""
    assert client.structured(large(client, "z" * 2_001, "small"))["total_bytes"] == 2_001
    assert text(large(client, "z" * 2_000, "small")) == "z" * 2_000
    bare = large(client, LINES, "bare")
    assert "structuredContent" not in bare
    handle = text(bare).rpartition('"handle": "')[2].partition('"')[0]
    assert "line 3 of the log" in read(client, handle)


def test_the_servers_own_structured_content_gives_way_to_the_handle(client: Visitor) -> None:
    """SUR-11: else a client that feeds both to the model would get all of it after all."""
    given = {**said(MESSAGE_LONG), "structuredContent": json.loads(MESSAGE_LONG)}
    result = client.run("told", "give", {"result": given})
    assert client.structured(result).keys() == {"handle", "total_bytes", "shape", "preview"}
    assert read(client, handle_of(client, result), jmespath="count") == "900"


@pytest.mark.parametrize("era", ERAS)
def test_a_large_resource_is_kept_back_like_any_result(gateway: Gateway, era: str) -> None:
    """SUR-3, SUR-11."""
    client = Visitor(gateway.port, "describe", era)
    result = client.use("resources", uri="a://big")
    assert result["structuredContent"]["total_bytes"] == len(LINES)
    assert "line 1999 of" in read(client, handle_of(client, result), offset=1999)


def test_the_settings_of_a_server_count_for_its_resources(gateway: Gateway) -> None:
    """SUR-3, SUR-7, SUR-11: `result_limit` and `structured_content` of the server that is read
    from."""
    client = Visitor(gateway.port, "describe")
    assert text(client.use("resources", server_name="told", uri="a://middle")) == "z" * 5_000
    kept = client.use("resources", server_name="small", uri="a://middle")
    assert kept["structuredContent"].get("total_bytes") == 5_000
    for uri in ("a://json", "a://middle", "a://big"):
        assert "structuredContent" not in client.use("resources", server_name="bare", uri=uri)


@pytest.mark.parametrize("mode", ["inspect", "describe"])
def test_the_tool_that_reads_on_can_be_asked_for_like_any_other(
    gateway: Gateway, mode: str
) -> None:
    """SUR-11, SUR-9: it is in no menu, but a model that asks is told its parameters."""
    client = Visitor(gateway.port, mode)
    for target in ({"server_name": "mcpx", "tool_name": "result"}, {"server_name": "mcpx"}):
        method = ".".join(target.values())
        asked = (
            client.use("inspect", **target)
            if mode == "inspect"
            else client.use("describe", method=method)
        )
        assert all(
            word in text(asked)
            for word in ("handle: string", "offset?", "jmespath?", "grep?", "head?")
        )


def test_an_expression_without_end_holds_up_nobody(gateway: Gateway) -> None:
    """SUR-11, SEC-6: it is stopped, its client is told, and everybody else is served meanwhile."""
    client, other = Visitor(gateway.port, "search"), Visitor(gateway.port, "inspect")
    handle = handle_of(
        client, large(client, json.dumps([{"id": number} for number in range(4_000)]))
    )
    other.tools()
    asked = {"handle": handle, "jmespath": "[@, @][]" + " | [@, @][]" * 50}
    call = request(
        "tools/call", {"name": "mcp_execute_tool", "arguments": {"tool_name": "mcpx.result"}}, 99
    )
    call["params"]["arguments"]["arguments"] = asked
    headers = [
        *client.headers.items(),
        ("Content-Type", "application/json"),
        ("Accept", ACCEPT_BOTH),
    ]
    with Stream(gateway.port, "POST", "/mcp/search", headers, json.dumps(call).encode()) as endless:
        for _ in range(50):
            other.tools()
        assert not select.select([endless._socket], [], [], 0)[0], "answered already"
        answer = endless.reply().message["result"]
    assert answer["isError"] and "takes too much time or memory" in text(answer)
    assert read(client, handle, jmespath="[7].id") == "7"
