"""SUR-11: reading a kept result by pages, by jmespath and by grep."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.cost import cost_ratio, count_steps
from mcpx.formats.writing import value_writer
from mcpx.surfaces.large.reading import LEAST, TOOL, BadReading, read

NEXT = re.compile(r"\[mcpx: .*next: (?:(\{.*\})|the same with \"offset\": (\d+))\]")
ROWS = [{"id": number, "name": f"Row {number}", "size": number * 3} for number in range(5000)]
LINES = [f"line {number} of a log" for number in range(5000)]
LOG = "\n".join(LINES).encode()


def raw(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def ask(text: bytes, most: int = 16_000, toon: bool = False, **arguments: Any) -> str:
    """One answer, within its bounds."""
    answer = read(
        text,
        {"handle": "h", **arguments},
        limit_bytes=most,
        write=value_writer("toon" if toon else "json"),
    ).text
    assert len(answer.encode("utf-8", "surrogatepass")) <= max(most, LEAST)
    return answer


def following(**arguments: Any) -> str:
    """What a note says of the next page, and how it ends."""
    return f"next: {json.dumps({'handle': 'h', **arguments})}]"


def note(answer: str) -> str:
    return answer.rpartition("\n")[2]


def body(answer: str) -> Any:
    """The JSON of an answer with a note below it."""
    return json.loads(answer.rpartition("\n")[0])


def all_pages(text: bytes, most: int = 16_000, **arguments: Any) -> list[str]:
    """Every page from the first on, without their notes."""
    found: list[str] = []
    offset = 0
    while True:
        answer = ask(text, most, **{**arguments, "offset": offset})
        following = NEXT.fullmatch(note(answer))
        if following is None:
            found.append(
                answer.rpartition("\n")[0] if note(answer).endswith("; the end]") else answer
            )
            return found
        found.append(answer.rpartition("\n")[0])
        after = offset
        if following[1]:
            said = json.loads(following[1])
            offset = said["offset"]
            assert said == {"handle": "h", **arguments, "offset": offset}
        else:
            offset = int(following[2])
        assert offset > after, "a page that leads nowhere"


# ------------------------------------------------------------------------------------------------
# pages


def test_rows_come_as_many_as_fit_and_the_last_line_says_the_next_offset() -> None:
    """SUR-11"""
    answer = ask(raw(ROWS))
    shown = body(answer)
    assert shown == ROWS[: len(shown)]
    assert (
        note(answer) == f"[mcpx: rows 0-{len(shown) - 1} of 5,000; {following(offset=len(shown))}"
    )
    assert len(answer) > 15_000


def test_rows_are_rendered_like_results() -> None:
    """SUR-11, FMT-2: and so more of them fit."""
    answer = ask(raw(ROWS), toon=True)
    assert answer.startswith(
        "[" + str(int(answer[1:].partition("]")[0])) + "]{id,name,size}:\n  0,Row 0,0\n"
    )
    assert answer.count("\n") > 1.5 * len(body(ask(raw(ROWS))))
    assert len(answer) > 15_000


def test_offset_and_limit_count_rows() -> None:
    """SUR-11"""
    answer = ask(raw(ROWS), offset=4000, limit=2)
    assert body(answer) == ROWS[4000:4002]
    assert note(answer) == f"[mcpx: rows 4000-4001 of 5,000; {following(offset=4002, limit=2)}"
    answer = ask(raw(ROWS), offset=4999)
    assert body(answer) == ROWS[4999:]
    assert note(answer) == "[mcpx: row 4999 of 5,000; the end]"


@pytest.mark.parametrize(
    "arguments", [{"head": 3}, {"head": 3, "limit": 10}, {"head": 10, "limit": 3}]
)
def test_head_is_the_first_so_many(arguments: dict[str, Any]) -> None:
    """SUR-11"""
    assert body(ask(raw(ROWS), **arguments)) == ROWS[:3]
    assert ask(LOG, **arguments).split("\n")[:-1] == LINES[:3]


def test_keys_of_an_object_are_paged_in_their_order() -> None:
    """SUR-11"""
    value = {f"key {number}": "x" * 20 for number in range(3000)}
    answer = ask(raw(value), offset=10, limit=2)
    assert body(answer) == {"key 10": "x" * 20, "key 11": "x" * 20}
    assert note(answer) == f"[mcpx: keys 10-11 of 3,000; {following(offset=12, limit=2)}"
    together: dict[str, str] = {}
    for page in all_pages(raw(value)):
        together |= json.loads(page)
    assert list(together.items()) == list(value.items())


def test_lines_of_a_text_are_paged() -> None:
    """SUR-11"""
    answer = ask(LOG, offset=100, limit=3)
    assert answer == "line 100 of a log\nline 101 of a log\nline 102 of a log\n" + (
        f"[mcpx: lines 100-102 of 5,000; {following(offset=103, limit=3)}"
    )
    assert "\n".join(all_pages(LOG)) == LOG.decode()


def test_one_huge_line_is_paged_by_characters() -> None:
    """SUR-11: no character is cut, none is lost."""
    text = "aä€😀" * 30_000
    answer = ask(text.encode(), offset=7, limit=5)
    assert answer == f"😀aä€😀\n[mcpx: characters 7-11 of 120,000; {following(offset=12, limit=5)}"
    assert "".join(all_pages(text.encode())) == text
    assert "".join(all_pages(text.encode(), 601)) == text


def test_a_text_with_one_long_line_is_paged_by_characters_and_keeps_its_line_breaks() -> None:
    """SUR-11"""
    text = "short\n" * 500 + "x" * 20_000 + "\nshort\n"
    assert "".join(all_pages(text.encode())) == text
    assert "[mcpx: characters 0-" in note(ask(text.encode()))


def test_a_minified_document_is_read_by_its_rows_not_by_its_one_line() -> None:
    """SUR-11"""
    text = raw([{"id": number, "text": "x" * 400} for number in range(12_000)])
    assert len(text) > 5_000_000 and b"\n" not in text
    answer = ask(text, offset=11_000)
    assert body(answer)[0]["id"] == 11_000
    assert "[mcpx: rows 11000-" in note(answer)


def test_what_is_small_enough_comes_whole_and_without_a_note() -> None:
    """SUR-11"""
    assert ask(raw([1, 2, 3])) == "[1,2,3]"
    assert ask(raw({"a": 1})) == '{"a":1}'
    assert ask(b"one\ntwo\n") == "one\ntwo"
    assert ask(b"") == ""
    assert ask(b"[]") == "[]"
    assert ask(b"{}") == "{}"
    assert ask(b"12345") == "12345"
    assert ask(raw("one\ntwo")) == "one\ntwo"


@given(st.text(max_size=5000), st.integers(1, 2000))
def test_pages_of_a_text_are_the_whole_text(text: str, most: int) -> None:
    """SUR-11: lines or characters, whatever is in them."""
    text = "log:" + text
    found = all_pages(text.encode(), most)
    assert text.removesuffix("\n") in ("\n".join(found), "".join(found).removesuffix("\n"))


@given(
    st.lists(st.text(alphabet="ab\n\r\u2028ä😀", max_size=300), max_size=40),
    st.integers(1, 2000),
    st.integers(1, 50),
)
def test_pages_of_a_text_with_long_lines_are_the_whole_text(
    parts: list[str], most: int, repeated: int
) -> None:
    """SUR-11"""
    text = "log:" + "".join(part * repeated for part in parts)
    found = all_pages(text.encode(), most)
    assert text.removesuffix("\n") in ("\n".join(found), "".join(found).removesuffix("\n"))


SMALL = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)


@given(st.lists(SMALL, max_size=200), st.integers(700, 2000))
def test_pages_of_rows_are_all_rows(rows: list[Any], most: int) -> None:
    """SUR-11"""
    found = all_pages(raw(rows), most)
    assert [row for page in found for row in json.loads(page)] == rows


@given(st.dictionaries(st.text(max_size=8), SMALL, max_size=200), st.integers(700, 2000))
def test_pages_of_keys_are_the_whole_object(value: dict[str, Any], most: int) -> None:
    """SUR-11"""
    found = all_pages(raw(value), most)
    assert [item for page in found for item in json.loads(page).items()] == list(value.items())


@given(st.lists(SMALL, max_size=200), st.integers(1, 30), st.integers(0, 60))
def test_offset_and_limit_are_a_slice(rows: list[Any], limit: int, offset: int) -> None:
    """SUR-11"""
    if offset < len(rows):
        answer = ask(raw(rows), 1_000_000, offset=offset, limit=limit)
        whole = offset == 0 and limit >= len(rows)
        assert (json.loads(answer) if whole else body(answer)) == rows[offset : offset + limit]


# ------------------------------------------------------------------------------------- what is too
# large


def test_every_part_of_a_row_that_is_too_large_can_be_reached_by_what_the_notes_say() -> None:
    """SUR-11: from the row to its key to the text in it, one expression at a time."""
    long = "".join(f"sentence {number}. " for number in range(9000))
    rows: list[Any] = [
        *ROWS[:3],
        {"id": 3, "the body": {"text": long}, "tags": ["x"] * 20},
        *ROWS[4:],
    ]
    text = raw(rows)
    answer = ask(text)
    assert note(answer) == f"[mcpx: rows 0-2 of 5,000; {following(offset=3)}"
    answer = ask(text, offset=3)
    (row,) = body(answer)
    assert (row["id"], row["tags"]) == (3, ["x"] * 20)
    shown, _, mark = row["the body"]["text"].partition("… [")
    assert shown and long.startswith(shown) and mark == f"{len(long) - len(shown):,} more]"
    assert note(answer) == (
        '[mcpx: row 3 of 5,000; row 3 is cut, all of it: {"handle": "h", "jmespath": "[3]"}; '
        + following(offset=4)
    )
    answer = ask(text, jmespath="[3]", offset=1)
    assert note(answer) == (
        r'[mcpx: key 1 of 3; key 1 is cut, all of it: {"handle": "h", "jmespath": "[3] | '
        r'\"the body\""}; ' + following(jmespath="[3]", offset=2)
    )
    assert body(ask(text, jmespath="[3]", offset=2)) == {"tags": ["x"] * 20}
    answer = ask(text, jmespath='[3] | "the body"')
    assert note(answer) == (
        r'[mcpx: key 0 is cut, all of it: {"handle": "h", "jmespath": "[3] | \"the body\" | text"}]'
    )
    found = all_pages(text, jmespath='[3] | "the body" | text')
    assert "".join(found) == long


def test_a_row_that_is_too_large_gets_a_page_of_its_own_when_little_room_is_left() -> None:
    """SUR-11"""
    rows: list[Any] = [{"n": number, "text": "x" * 1000} for number in range(14)]
    rows.append({"n": 14, "text": "x" * 40_000})
    answer = ask(raw(rows))
    assert body(answer) == rows[:14]
    assert note(answer) == f"[mcpx: rows 0-13 of 15; {following(offset=14)}"
    assert note(ask(raw(rows), offset=14)) == (
        '[mcpx: row 14 of 15; row 14 is cut, all of it: {"handle": "h", "jmespath": "[14]"}; the '
        "end]"
    )


@pytest.mark.parametrize(
    "name", ["a b", "ä", 'quo"te', "back\\slash", "line\nbreak", "", "n" * 300, "€" * 60, "\u2028"]
)
def test_the_expression_for_a_key_selects_it_however_it_is_named(name: str) -> None:
    """SUR-11"""
    text = raw({"other": 1, name: ["x" * 1000] * 50})
    answer = ask(text, offset=1)
    offered = json.JSONDecoder().raw_decode(note(answer).partition("all of it: ")[2])[0]
    expression = offered["jmespath"]
    assert body(ask(text, jmespath=expression, limit=3)) == ["x" * 1000] * 3


def test_a_long_expression_is_not_repeated_in_the_note() -> None:
    """SUR-11: the note has its bounds."""
    expression = "@ | " * 200 + "@"
    answer = ask(raw([["x" * 50_000] * 3]), jmespath=expression)
    assert 'the same "jmespath" with " | [0]" at its end' in note(answer)
    assert expression not in note(answer)


def test_rows_too_deep_for_any_encoder_are_read_as_the_text_they_are() -> None:
    """SUR-11: as their preview shows them."""
    deep = "[" * 900 + "]" * 900
    text = f'[{deep},{{"a":{deep}}},1]'
    assert ask(text.encode()) == text
    with pytest.raises(BadReading, match="jmespath needs JSON"):
        ask(text.encode(), jmespath="[0]")


# ---------------------------------------------------------------------------------------------
# jmespath


def test_jmespath_selects_and_its_rows_are_paged() -> None:
    """SUR-11"""
    text = raw({"total": 5000, "rows": ROWS})
    answer = ask(text, jmespath="rows[?size > `30`].name", offset=1, limit=2)
    assert body(answer) == ["Row 12", "Row 13"]
    assert note(answer) == (
        "[mcpx: rows 1-2 of 4,989; "
        f"{following(jmespath='rows[?size > `30`].name', offset=3, limit=2)}"
    )


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("keys(@)", ["total", "rows", "note"]),
        ("length(rows)", 5000),
        ("total", 5000),
        ("rows[0]", ROWS[0]),
        ("rows[-1].name", "Row 4999"),
        ("rows[?name == 'Row 7'] | [0].size", 21),
        ("sort_by(rows, &size)[-1].id", 4999),
        ("max_by(rows, &size).id", 4999),
        ("rows[1:3].{n: name, s: size}", [{"n": "Row 1", "s": 3}, {"n": "Row 2", "s": 6}]),
        ("rows[:2][].[id, size][]", [0, 0, 1, 3]),
        ("sum(rows[].id)", sum(range(5000))),
        ("join(', ', rows[:3].name)", "Row 0, Row 1, Row 2"),
        ("to_string(rows[0])", '{"id":0,"name":"Row 0","size":0}'),
        ("contains(rows[].id, `17`)", True),
        ("rows[?contains(name, '4999')].id", [4999]),
        ("rows[0] == rows[0]", True),
        ("rows[:2] == rows[2:4]", False),
        ('merge(rows[0], `{"id": 9}`)', {"id": 9, "name": "Row 0", "size": 0}),
        ("map(&length(name), rows[:2])", [5, 5]),
        ("note", "plain"),
    ],
)
def test_jmespath_means_what_it_means_elsewhere(expression: str, expected: Any) -> None:
    """SUR-11"""
    answer = ask(raw({"total": 5000, "rows": ROWS, "note": "plain"}), jmespath=expression)
    assert answer == expected if isinstance(expected, str) else json.loads(answer) == expected


def test_jmespath_that_finds_nothing_is_told_what_there_is() -> None:
    """SUR-11"""
    for expression, found in (("name", "null"), ("[?name == 'x']", "[]"), ("[*].nothing", "[]")):
        assert ask(raw(ROWS), jmespath=expression) == (
            f"{found}\n[mcpx: jmespath found nothing; the result is: "
            "array of 5,000 objects {id: number, name: string, size: number}]"
        )


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("rows[?size > `30`", "syntax error at position 17, the end"),
        ("rows..name", "syntax error at position 5, before '.name'"),
        ("rows[", "syntax error at position 5"),
        ("$.rows", "syntax error at position 0, before '$.rows'"),
        ("'open", "syntax error at position 0"),
        ("a = b", "syntax error at position 2"),
        ("nope(@)", "Unknown function: nope()"),
        ("length()", "Expected 1 argument for function length(), received 0"),
        ("abs(rows)", "abs() takes number, not array"),
        ("sort_by(rows, &nothing)", "sort_by() takes string or number, not null"),
        ("rows[?size < 'a']", "cannot evaluate"),
        ("rows[::0]", "cannot evaluate"),
        ("&rows", "begins with &"),
        ("[&rows, rows]", "begins with &"),
        ("(" * 500, "nested too deeply"),
        ("!" * 900 + "a", "nested too deeply"),
        ("a" * 1001, "jmespath must be a text of 1 to 1,000 characters"),
    ],
)
def test_a_mistake_in_jmespath_is_explained(expression: str, said: str) -> None:
    """SUR-11: with the place where there is one and with what there is to select from; never with
    the data in it."""
    with pytest.raises(BadReading) as error:
        ask(raw({"rows": ROWS}), jmespath=expression)
    assert said in str(error.value)
    if len(expression) <= 1000:
        assert "rows: array of 5,000 objects {id: number, name: string, size: number}" in str(
            error.value
        )
    assert len(str(error.value)) < 400


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_an_old_spelling_of_strings_is_understood() -> None:
    """SUR-11: models write it often."""
    assert json.loads(ask(raw(ROWS), jmespath="[?name == `Row 7`].id")) == [7]


def test_an_old_spelling_of_strings_is_a_mistake_where_warnings_are_errors() -> None:
    """SUR-11: nothing but a `BadReading` comes out."""
    with pytest.raises(BadReading):
        ask(raw(ROWS), jmespath="[?name == `Row 8`].id")


def test_jmespath_on_a_text_suggests_grep() -> None:
    """SUR-11"""
    with pytest.raises(BadReading, match="this result is text; use grep"):
        ask(LOG, jmespath="[0]")
    with pytest.raises(BadReading, match="use grep"):
        ask(b"[1, 2, cut off", jmespath="[0]")


DOUBLED = "[@, @]" + " | [@, @]" * 50


def test_an_answer_that_is_endless_when_written_out_is_shown_cut() -> None:
    """SUR-11: a few lists that refer to each other."""
    answers: list[str] = []
    count_steps(lambda: answers.append(ask(raw(ROWS[:3]), jmespath=DOUBLED)), most=1_000_000)
    assert "row 0 is cut" in note(answers[0])


# -------------------------------------------------------------------------------------------------
# grep


def test_grep_shows_the_lines_that_contain_it_with_their_offsets() -> None:
    """SUR-11"""
    answer = ask(LOG, grep="e 499")
    assert answer.split("\n")[:3] == [
        "499: line 499 of a log",
        "4990: line 4990 of a log",
        "4991: line 4991 of a log",
    ]
    assert note(answer) == "[mcpx: 11 matches in 5,000 lines, each after its offset]"
    answer = ask(LOG, grep="e 499", offset=1, limit=1)
    assert (
        answer
        == "4990: line 4990 of a log\n[mcpx: match 1 of 11 in 5,000 lines, each after its offset; "
        + (following(grep="e 499", offset=2, limit=1))
    )


def test_grep_shows_the_rows_whose_json_contains_it_and_their_numbers() -> None:
    """SUR-11"""
    answer = ask(raw(ROWS), grep='"size":2997}')
    assert body(answer) == [ROWS[999]]
    assert note(answer) == "[mcpx: 1 match in 5,000 rows: rows 999]"
    answer = ask(raw(ROWS), grep="row 49", limit=20)
    assert note(answer) == (
        "[mcpx: matches 0-19 of 111 in 5,000 rows: rows 49, 490, 491, 492, 493, 494, 495, 496, …; "
        + following(grep="row 49", offset=20, limit=20)
    )


def test_grep_looks_at_keys_and_values_of_an_object() -> None:
    """SUR-11"""
    text = raw({"alpha": 1, "beta": "ALPHA", "gamma": 3})
    assert body(ask(text, grep="alpha")) == {"alpha": 1, "beta": "ALPHA"}


def test_case_counts_only_when_there_are_capitals() -> None:
    """SUR-11"""
    text = b"Error one\nerror two\nERROR three\n\xc3\x84rger\n\xc3\xa4rger"
    assert ask(text, grep="error").count("\n") == 3
    assert ask(text, grep="Error").startswith("0: Error one\n[")
    assert ask(text, grep="ärger").count("\n") == 2
    assert ask(text, grep="Ärger").count("\n") == 1
    assert body(ask(raw(["Error", "error"]), grep="error")) == ["Error", "error"]
    assert body(ask(raw(["Error", "error"]), grep="Error")) == ["Error"]


def test_grep_is_no_regular_expression_and_says_so_when_nothing_matches() -> None:
    """SUR-11: `(a+)+$` would take forever."""
    text = ("a" * 3000 + "\n") * 400
    assert ask(text.encode(), grep="(a+)+$") == (
        '[mcpx: nothing in 400 lines contains "(a+)+$"; grep is a plain substring, not a regular '
        "expression]"
    )
    assert ask(b"x (a+)+$ y\nz", grep="(a+)+$").startswith("0: x (a+)+$ y\n")
    assert ask(raw(ROWS), grep="nothing").startswith("[mcpx: nothing in 5,000 rows ")
    assert ask(raw({"a": 1}), grep="nothing").startswith("[mcpx: nothing in 1 key ")
    assert len(ask(LOG, grep="\x01" * 500).encode()) < LEAST


@pytest.mark.parametrize(
    "pattern", ['say "hi"', "back\\slash", "two\nlines", '\\"hi\\"', "tab\there"]
)
def test_grep_finds_what_json_spells_otherwise(pattern: str) -> None:
    """SUR-11"""
    rows = ['they say "hi" to you', "a back\\slash", "two\nlines", "tab\there", "else"]
    (found,) = body(ask(raw(rows), grep=pattern))
    assert pattern.replace('\\"', '"') in found


def test_grep_in_one_huge_line_shows_what_is_around_each_match() -> None:
    """SUR-11: with the offset in characters at which to read on."""
    text = "".join(f"<item {number}>{'İx' * 2500}" for number in range(40))
    answer = ask(text.encode(), grep="ITEM 7>")
    assert answer.startswith(f"[mcpx: nothing in {len(text):,} characters ")
    answer = ask(text.encode(), grep="item 7>")
    place, _, excerpt = answer.split("\n")[0].partition(": …")
    assert "<item 7>" in excerpt and len(excerpt) < 300
    assert ask(text.encode(), offset=int(place), limit=len(excerpt) - 1).split("\n")[
        0
    ] == excerpt.removesuffix("…")
    assert note(answer) == f"[mcpx: 1 match in {len(text):,} characters, each after its offset]"
    answer = ask(text.encode(), grep="<item", offset=2, limit=3)
    assert [re.findall("<item (\\d+)>", line) for line in answer.split("\n")[:3]] == [
        ["2"],
        ["3"],
        ["4"],
    ]
    assert note(answer).endswith(following(grep="<item", offset=5, limit=3))


def test_grep_comes_after_jmespath_and_names_the_rows_of_its_answer() -> None:
    """SUR-11"""
    answer = ask(raw({"rows": ROWS}), jmespath="rows[100:]", grep="row 199", limit=1)
    assert body(answer) == [ROWS[199]]
    assert note(answer) == "[mcpx: match 0 of 11 in 4,900 rows: rows 99; " + (
        following(jmespath="rows[100:]", grep="row 199", offset=1, limit=1)
    )


@given(
    st.lists(st.text(alphabet="abAB\n", max_size=12), max_size=60),
    st.text(alphabet="abAB", min_size=1, max_size=3),
)
def test_grep_finds_what_a_simple_search_finds(parts: list[str], pattern: str) -> None:
    """SUR-11"""
    lines = ("log\n" + "\n".join(parts)).removesuffix("\n").split("\n")
    folded = pattern == pattern.lower()
    expected = [
        f"{at}: {line}"
        for at, line in enumerate(lines)
        if pattern in (line.lower() if folded else line)
    ]
    answer = ask("\n".join(lines).encode(), 1_000_000, grep=pattern)
    assert answer.split("\n")[:-1] == expected


def test_grep_in_rows_that_orjson_does_not_write() -> None:
    """SUR-11: large integers and half an emoji."""
    text = b'[{"n": 123456789012345678901234567890, "t": "\xc3\xa4"}, {"t": "\\ud83d"}, {"t": "x"}]'
    assert "123456789012345678901234567890" in ask(text, grep="ä")
    assert note(ask(text, grep="78901234567890")) == "[mcpx: 1 match in 3 rows: rows 0]"


# ---------------------------------------------------------------------------------------- the
# arguments


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"offset": -1}, "offset must be a whole number from 0 on"),
        ({"offset": "many"}, "offset must be a whole number from 0 on"),
        ({"offset": True}, "offset must be a whole number from 0 on"),
        ({"offset": 10**400}, "offset must be a whole number from 0 on"),
        ({"limit": 0}, "limit must be a whole number from 1 on"),
        ({"head": [1]}, "head must be a whole number from 1 on"),
        ({"jmespath": 5}, "jmespath must be a text"),
        ({"grep": ""}, "grep must be a text of 1 to 500 characters"),
        ({"grep": "x" * 501}, "grep must be a text of 1 to 500 characters"),
        (
            {"offset": 5000},
            "offset 5000 is past the end: there are 5,000 rows, the last at offset 4999",
        ),
        ({"offset": 1, "grep": "Row 4999"}, "there is 1 match"),
        ({"offset": 3, "jmespath": "[0]"}, "there are 3 keys"),
    ],
)
def test_a_wrong_argument_is_explained(arguments: dict[str, Any], said: str) -> None:
    """SUR-11: the model can correct itself."""
    with pytest.raises(BadReading) as error:
        ask(raw(ROWS), **arguments)
    assert said in str(error.value)
    assert len(str(error.value)) < 300


def test_the_tool_says_what_it_takes() -> None:
    """SUR-11"""
    schema = TOOL["inputSchema"]
    assert TOOL["name"] == "result"
    assert schema["required"] == ["handle"]
    assert list(schema["properties"]) == ["handle", "offset", "limit", "jmespath", "grep", "head"]
    assert "not a regular" in schema["properties"]["grep"]["description"]


# ------------------------------------------------------------------------------------- whatever is
# kept


@given(
    st.binary(max_size=3000) | st.lists(SMALL).map(raw) | st.text().map(str.encode),
    st.fixed_dictionaries(
        {},
        optional={
            "offset": st.integers(-1, 50) | st.text(max_size=3),
            "limit": st.integers(-1, 50),
            "jmespath": st.text(alphabet="[]@*.|&?`'\"ab01(){}:, <=!", max_size=12),
            "grep": st.text(max_size=3),
            "head": st.integers(0, 5),
        },
    ),
)
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_any_bytes_and_any_arguments_give_an_answer_or_a_bad_reading(
    text: bytes, arguments: dict[str, Any]
) -> None:
    """SUR-11"""
    try:
        ask(text, 700, **arguments)
    except BadReading as error:
        assert 0 < len(str(error)) < 600


def test_numbers_stay_exact() -> None:
    """SUR-11: as everywhere in the gateway."""
    assert ask(b"[123456789012345678901234567890]") == "[123456789012345678901234567890]"


@pytest.mark.parametrize(
    "make",
    [
        lambda size: b"\n" * size,
        lambda size: b"[" + b"[]," * size + b"[]]",
        lambda size: b"{" + b",".join(b'"%d":0' % number for number in range(size)) + b"}",
        lambda size: b"x" * size,
        lambda size: b"[" * size,
        lambda size: b'"' + b"\\u0000" * size + b'"',
    ],
)
def test_the_work_is_linear_in_the_result(make: Any) -> None:
    """SUR-11: eight times as much takes about eight times as long, not sixty-four."""

    def work(size: int) -> Any:
        text = make(size)

        def both() -> None:
            ask(text)
            ask(text, grep="needle")

        return both

    assert cost_ratio(work(20_000), work(160_000)) < 24
