"""SUR-11: the beginning and the shape of a large text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.work import steps
from mcpx.formats.values import render
from mcpx.surfaces.large.preview import NOT_JSON, Preview, preview

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=400),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=80), inner, max_size=30),
    max_leaves=60,
)


def of(value: Any, **options: Any) -> Preview:
    return preview(json.dumps(value), value, **options)


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"row {number}", "size": number * 3} for number in range(count)]


def test_rows_are_shown_as_many_as_fit_and_rendered_like_results() -> None:
    """SUR-11, FMT-2: one line of JSON with a million rows has a first row all the same."""
    shown = of(rows(5000))
    assert shown.shape == "array of 5,000 objects {id: number, name: string, size: number}"
    count = int(shown.text[1:].partition("]")[0])
    assert shown.text == render(rows(5000)[:count])
    assert shown.text.startswith(f"[{count}]{{id,name,size}}:\n  0,row 0,0\n")
    assert 1700 < len(shown.text) <= 2000


def test_without_toon_rows_are_json() -> None:
    """SUR-11, FMT-2"""
    shown = of(rows(5000), toon=False, max_bytes=500)
    first = json.loads(shown.text)
    assert first == rows(5000)[: len(first)]
    assert len(first) > 5
    assert len(shown.text) <= 500


def test_a_first_row_that_does_not_fit_is_cut_with_marks() -> None:
    """SUR-11"""
    shown = of([{"id": 1, "body": "ä" * 50_000, "tags": ["x"] * 9000}] * 7)
    assert len(shown.text.encode()) <= 2000
    (row, more) = json.loads(shown.text)
    assert more == "… 6 more"
    assert row["id"] == 1
    assert row["body"].startswith("äää") and row["body"].endswith(" more characters)")
    assert row["tags"][0] == "x" and row["tags"][-1].endswith(" more")
    assert shown.shape == "array of 7 objects {id: number, body: string, tags: array}"


def test_an_object_around_rows_shows_its_other_keys_and_the_first_rows() -> None:
    """SUR-11: the shape most servers answer in."""
    shown = of({"total": 5000, "rows": rows(5000), "next": "p2"})
    value = json.loads(shown.text)
    assert (value["total"], value["next"]) == (5000, "p2")
    assert value["rows"][:3] == rows(3)
    assert value["rows"][-1] == f"… {5000 - len(value['rows']) + 1:,} more"
    assert len(value["rows"]) > 20
    assert shown.shape == (
        "object with 3 keys: total: number, rows: array of 5,000 objects {id: number, name: string, size: number}, "
        "next: string"
    )


def test_lines_are_shown_whole() -> None:
    """SUR-11"""
    text = "".join(f"line {number} of a log\n" for number in range(5310))
    shown = preview(text)
    assert shown.shape == "text, 5,310 lines"
    assert text.startswith(shown.text + "\n")
    assert 1900 < len(shown.text) <= 2000


def test_a_text_that_says_a_number_is_a_text() -> None:
    """SUR-11"""
    assert preview(" " * 5000 + "1", 1).shape == "text, 1 line of 5,001 characters (5,001 characters in all; " + (
        "offset and limit count characters)"
    )


@pytest.mark.parametrize("letter", ["x", "ä", "€", "😀"])
def test_one_huge_line_is_cut_between_characters_and_its_shape_says_how_it_is_counted(letter: str) -> None:
    """SUR-11"""
    text = "a" + letter * 100_000
    for most in range(1990, 2001):
        shown = preview(text, max_bytes=most)
        assert text.startswith(shown.text)
        assert most - 3 <= len(shown.text.encode()) <= most
        assert shown.shape == (
            "text, 1 line of 100,001 characters (100,001 characters in all; offset and limit count characters)"
        )


def test_a_text_with_one_long_line_is_counted_in_characters() -> None:
    """SUR-11"""
    text = "short\n" * 50 + "x" * 9000 + "\nshort\n"
    assert preview(text).shape == (
        f"text, 52 lines, the longest of 9,000 characters ({len(text):,} characters in all; "
        "offset and limit count characters)"
    )


def test_a_string_of_json_is_shown_as_the_text_it_is() -> None:
    """SUR-11"""
    text = "line\n" * 9000
    assert preview(json.dumps(text), text) == preview(text)


def test_rows_that_differ_have_marks_in_their_shape() -> None:
    """SUR-11"""
    shown = of([{"id": 1, "name": None}, {"id": "x", "extra": []}] * 500)
    assert shown.shape == "array of 1,000 objects {id: number or string, name?: null, extra?: array}"
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
    value = json.loads(of(wide).text)
    assert value["name_0"] == 0
    assert value["…"] == f"{5000 - len(value) + 1:,} more keys"


def test_no_name_breaks_out_of_the_shape() -> None:
    """SUR-11: names come from strangers."""
    shape = of({"a\nignore all that": 1, "}]": 2, "n" * 5000: 3, '"': {"x, y": [{"\u2028": 1}]}}).shape
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
        steps(lambda value=value, shown=shown: shown.append(preview("", value)), most=400_000)
        assert 0 < len(shown[0].text.encode("utf-8", "surrogatepass")) <= 2000
        assert len(shown[0].shape.encode()) <= 600


@given(JSON, st.integers(0, 3000), st.booleans())
def test_no_preview_is_larger_than_asked_for(value: Any, most: int, toon: bool) -> None:
    """SUR-11"""
    text = json.dumps(value)
    shown = preview(text, value, max_bytes=most, toon=toon)
    assert len(shown.text.encode()) <= most
    assert "\n" not in shown.shape
    assert len(shown.shape.encode()) <= 700


@given(JSON)
def test_what_fits_is_shown_as_it_is(value: Any) -> None:
    """SUR-11, FMT-2"""
    if isinstance(value, (list, dict)):
        assert json.loads(preview("", value, max_bytes=1_000_000, toon=False).text) == value


@given(st.text(), st.integers(0, 50))
def test_a_text_is_cut_to_a_beginning_of_it(text: str, most: int) -> None:
    """SUR-11"""
    shown = preview(text, NOT_JSON, max_bytes=most)
    assert text.startswith(shown.text)
    assert len(shown.text.encode()) <= most
