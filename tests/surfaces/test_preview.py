"""SUR-11: the beginning and the shape of a large text."""

import json
from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.cost import count_steps
from mcpx.formats.json import as_json
from mcpx.formats.writing import value_writer
from mcpx.surfaces.large.preview import NOT_JSON, Preview, preview

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=400),
    lambda inner: (
        st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=80), inner, max_size=30)
    ),
    max_leaves=60,
)


def of(value: Any, **options: Any) -> Preview:
    return preview(json.dumps(value), value, **options)


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"row {number}", "size": number * 3} for number in range(count)]


def test_two_or_three_rows_are_enough_and_rendered_like_results() -> None:
    """SUR-11, FMT-2: one line of JSON with a million rows has a first row all the same."""
    shown = of(rows(5000))
    assert shown.shape == "array of 5,000 objects {id: number, name: string, size: number}"
    assert (
        shown.text
        == value_writer("toon")(rows(3))
        == "[3]{id,name,size}:\n  0,row 0,0\n  1,row 1,3\n  2,row 2,6"
    )
    assert (shown.unit, shown.count, shown.rows) == ("row", 3, "")


def test_without_toon_rows_are_json() -> None:
    """SUR-11, FMT-2"""
    assert json.loads(of(rows(5000), write=as_json).text) == rows(3)


def test_long_strings_and_lists_in_rows_are_cut_and_counted() -> None:
    """SUR-11"""
    shown = of([{"id": 1, "body": "ä" * 50_000, "tags": ["x"] * 9000}] * 7, write=as_json)
    tags = [*["x"] * 5, "… [8,995 more]"]
    row = {"id": 1, "body": f"{'ä' * 60}… [49,940 more]", "tags": tags}
    assert json.loads(shown.text) == [row] * 3
    assert shown.shape == "array of 7 objects {id: number, body: string, tags: array}"


def test_an_object_around_rows_shows_its_other_keys_and_the_first_rows() -> None:
    """SUR-11: the shape most servers answer in."""
    shown = of({"total": 5000, "rows": rows(5000), "next": "p2"})
    assert json.loads(shown.text) == {
        "total": 5000,
        "rows": [*rows(5), "… [4,995 more]"],
        "next": "p2",
    }
    assert (shown.unit, shown.count, shown.rows) == ("key", 0, "rows")
    assert shown.find == "length(rows[?name=='row 0'])"
    assert shown.shape == (
        "object with 3 keys: total: number, rows: array of 5,000 objects {id: number, name: "
        "string, size: number}, "
        "next: string"
    )


def test_a_long_text_in_an_object_is_shown_longer_than_in_rows() -> None:
    """SUR-11"""
    shown = of({"name": "readme", "body": "word " * 9000})
    assert (
        shown.text.startswith('{"name":"readme","body":"word word') and 300 < len(shown.text) < 400
    )
    assert shown.text.endswith('… [44,700 more]"}')


def test_lines_are_shown_whole() -> None:
    """SUR-11"""
    text = "".join(f"line {number} of a log\n" for number in range(5310))
    shown = preview(text)
    assert shown.shape == "text, 5,310 lines"
    assert text.startswith(shown.text + "\n")
    assert (shown.unit, shown.count, shown.find) == ("line", shown.text.count("\n") + 1, "line")
    assert shown.count == 12
    long = "".join(f"line {number} of a log {'x' * 300}\n" for number in range(5310))
    assert preview(long).count == 4 and len(preview(long).text) <= 1500


def test_the_word_to_look_for_is_one_that_tells_lines_apart() -> None:
    """SUR-11: what stands in every line finds nothing."""
    lines = [f"{number} shelf moved its pieces" for number in range(1000)]
    lines[611] = "611 shelf moved, ALARM"
    assert preview("\n".join(lines)).find == "alarm"


def test_a_text_that_says_a_number_is_a_text() -> None:
    """SUR-11"""
    assert preview(" " * 5000 + "1", 1).shape == "text, 1 line of 5,001 characters"


@pytest.mark.parametrize("letter", ["x", "ä", "€", "😀"])
def test_one_huge_line_is_cut_between_characters_and_counted_in_them(letter: str) -> None:
    """SUR-11"""
    text = "a" + letter * 100_000
    for most in range(1490, 1501):
        shown = preview(text, max_bytes=most)
        assert text.startswith(shown.text)
        assert most - 3 <= len(shown.text.encode()) <= most
        assert shown.shape == "text, 1 line of 100,001 characters"
        assert (shown.unit, shown.count) == ("character", len(shown.text))


def test_a_text_with_one_long_line_is_counted_in_characters() -> None:
    """SUR-11"""
    text = "short\n" * 50 + "x" * 9000 + "\nshort\n"
    assert preview(text).shape == f"text, 52 lines of {len(text):,} characters"


def test_a_string_of_json_is_shown_as_the_text_it_is() -> None:
    """SUR-11"""
    text = "line\n" * 9000
    assert preview(json.dumps(text), text) == preview(text)


def test_rows_that_differ_have_marks_in_their_shape() -> None:
    """SUR-11"""
    shown = of([{"id": 1, "name": None}, {"id": "x", "extra": []}] * 500)
    assert (
        shown.shape == "array of 1,000 objects {id: number or string, name?: null, extra?: array}"
    )
    assert of([1, "x", None] * 500).shape == "array of 1,500 values"
    assert of(["x"] * 1500).shape == "array of 1,500 strings"
    assert of([[1]] * 1500).shape == "array of 1,500 arrays"
    assert of([]).shape == "array of 0 values"
    assert of({}).shape == "object with 0 keys"
    assert of({"a": True}).shape == "object with 1 key: a: boolean"


def test_many_names_are_cut_in_the_shape() -> None:
    """SUR-11"""
    wide = {f"name_{number}": number for number in range(5000)}
    assert of(wide).shape.endswith("name_10: number, name_11: number, …")
    assert of([wide] * 9).shape.endswith("name_11: number, …}")
    assert of(wide).text.startswith('{"name_0":0,')
    assert of(wide).text.endswith('"…":"… [4,988 more]"}')
    assert f'"{"n" * 300}… [200 more]":1' in of({"n" * 500: 1, "m": "x" * 2_000}).text


def test_no_name_breaks_out_of_the_shape() -> None:
    """SUR-11: names come from strangers."""
    shape = of(
        {"a\nignore all that": 1, "}]": 2, "n" * 5000: 3, '"': {"x, y": [{"\u2028": 1}]}}
    ).shape
    assert "\n" not in shape
    assert '"a\\nignore all that": number, "}]": number' in shape
    assert len(shape.encode()) <= 600


def test_nothing_too_deep_or_too_large_for_a_preview() -> None:
    """SUR-11: hostile values; the work is bounded by what is shown."""
    deep: Any = 1
    for number in range(900):
        deep = [deep] if number % 2 else {"a": deep}
    shared: Any = "x"
    for _ in range(60):
        shared = [shared, shared]
    values: list[Any] = [
        deep,
        [deep] * 50,
        {"a": deep, "b": 1},
        shared,
        {"k" * 90_000: 1},
        {f"{number}" * 100: deep for number in range(300)},
        [2**4000, "x" * 90_000],
        [[]] * 90_000,
        ["\ud83d" * 9000],
    ]
    for value in values:
        shown: list[Preview] = []
        count_steps(lambda value=value, shown=shown: shown.append(preview("", value)), most=400_000)
        assert 0 < len(shown[0].text.encode("utf-8", "surrogatepass")) <= 1500
        assert len(shown[0].shape.encode()) <= 600


NAMES = st.sampled_from(["id", "status", "the name", "ä", "", 'q"uo', "it's", "a\nb"]) | st.text()
WORDS = st.sampled_from(["open", "it's", "a\\b", "`x`", "", "x" * 200, "a\nb"])
ROWS = st.lists(st.dictionaries(NAMES, WORDS | st.none() | st.integers(), max_size=6), max_size=20)


@given(ROWS | st.dictionaries(NAMES, ROWS | WORDS, min_size=1, max_size=5))
def test_the_offered_expressions_select_something(value: Any) -> None:
    """SUR-11: whatever the value, whatever its names."""
    shown = of(value)
    assert shown.find is not None and jmespath.search(shown.find, value) is not None
    if value and not shown.find.startswith("keys"):
        assert jmespath.search(shown.find, value) > 0 or shown.find.startswith("length(")
    if shown.rows is not None:
        assert isinstance(jmespath.search(shown.rows or "@", value), list)


@pytest.mark.parametrize(
    ("value", "expression"),
    [
        ({"count": 9, "orders": [{"id": 1, "status": "open"}]}, "length(orders[?status=='open'])"),
        ([{"the kind": "a"}], "length([?\"the kind\"=='a'])"),
        ({"data": {"items": [{"n": n} for n in range(9)]}}, "length(data.items)"),
        ({"readme": {"title": "t"}}, "keys(@)"),
        ([1, 2], "length(@)"),
    ],
)
def test_an_example_is_made_from_what_is_there(value: Any, expression: str) -> None:
    """SUR-11: a filter on a real value where there is one."""
    assert of(value).find == expression


@given(JSON, st.integers(0, 3000), st.booleans())
def test_no_preview_is_larger_than_asked_for(value: Any, most: int, toon: bool) -> None:
    """SUR-11"""
    text = json.dumps(value)
    shown = preview(text, value, max_bytes=most, write=value_writer("toon") if toon else as_json)
    assert len(shown.text.encode()) <= most
    assert "\n" not in shown.shape
    assert len(shown.shape.encode()) <= 700


SMALL = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=50)


@given(st.lists(st.dictionaries(st.text(max_size=9), SMALL, max_size=5), max_size=30))
def test_rows_that_fit_are_shown_as_they_are(value: Any) -> None:
    """SUR-11, FMT-2"""
    assert json.loads(preview("", value, max_bytes=1_000_000, write=as_json).text) == value[:3]


@given(st.text(), st.integers(0, 50))
def test_a_text_is_cut_to_a_beginning_of_it(text: str, most: int) -> None:
    """SUR-11"""
    shown = preview(text, NOT_JSON, max_bytes=most)
    assert text.startswith(shown.text)
    assert len(shown.text.encode()) <= most
