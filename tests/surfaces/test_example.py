"""SUR-11: the expression that is offered for a kept result selects something from that very
result."""

import json
from typing import Any

import jmespath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.cost import count_steps
from mcpx.surfaces.large.example import LONGEST, example, rows_in
from mcpx.surfaces.large.preview import preview

NAMES = (
    st.sampled_from(
        ["id", "status", "total", "the name", "ok", "ä", "", 'q"uo', "it's", "line\nbreak"]
    )
    | st.text()
)
WORDS = st.sampled_from(
    ["open", "closed", "it's", "a\\b", "`x`", "", "x" * 200, "line\nbreak"]
) | st.text(max_size=5)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.dictionaries(NAMES, inner, max_size=16)
        | st.lists(st.dictionaries(NAMES, SCALARS, max_size=6), max_size=20)
    ),
    max_leaves=60,
)


def offered(value: Any) -> str:
    expression = example(value, rows_in(value))
    assert expression is not None
    return expression


@given(JSON.filter(lambda value: isinstance(value, (dict, list)) and bool(value)))
def test_an_example_is_valid_and_selects_something(value: Any) -> None:
    """SUR-11: whatever the value, whatever its names."""
    expression = offered(value)
    found = jmespath.search(expression, value)
    assert found is not None and found not in ("", [], {}), expression
    assert len(expression) <= LONGEST
    assert expression.isprintable()


@given(JSON)
def test_rows_are_selected_by_their_path(value: Any) -> None:
    """SUR-11: where it is said that a list can be paged through, there is that list."""
    rows = rows_in(value)
    if rows is not None:
        assert jmespath.search(rows.path or "@", value) == rows.items


@pytest.mark.parametrize(
    ("value", "expression"),
    [
        (
            {
                "count": 9,
                "orders": [{"id": n, "status": ("open", "sent")[n % 2]} for n in range(9)],
            },
            "length(orders[?status=='open'])",
        ),
        (
            [{"id": n, "kind": "ab"[n % 2], "note": f"note {n}"} for n in range(9)],
            "length([?kind=='a'])",
        ),
        ([{"id": n, "done": n > 3} for n in range(9)], "length([?done])"),
        ([{"id": n, "done": False} for n in range(9)], "length([?!done])"),
        ([{"id": n, "name": f"row {n}"} for n in range(9)], "[?name=='row 0']"),
        ([{"id": n, "size": n} for n in range(9)], "max_by(@, &id)"),
        ([{"size": n or None} for n in range(9)], "[].size"),
        ([{"the kind": "ab"[n % 2]} for n in range(9)], "length([?\"the kind\"=='a'])"),
        ({"data": {"items": [{"n": n} for n in range(9)]}}, "max_by(data.items, &n)"),
        ([{"data": [{"n": n} for n in range(9)]}], "max_by([0].data, &n)"),
        ({f"k{n}": {"kind": "ab"[n % 2]} for n in range(20)}, "length(values(@)[?kind=='a'])"),
        ({"a": {f"k{n}": {"n": n} for n in range(20)}}, "max_by(values(a), &n)"),
        ({"name": "x", "readme": {"title": "t", "body": "long " * 99}}, "readme.body"),
        ({f"k{n}": n for n in range(99)}, "keys(@)"),
        (list(range(1, 99)), "[-1]"),
        ([[1]] * 9, "length(@)"),
    ],
)
def test_an_example_is_made_from_what_is_there(value: Any, expression: str) -> None:
    """SUR-11: a filter on a real value where there is one."""
    assert offered(value) == expression
    assert preview(json.dumps(value), value).find == expression


def test_for_a_text_a_word_is_offered_that_stands_further_below() -> None:
    """SUR-11"""
    text = "\n".join(f"{number}: entry" for number in range(400)) + "\nomega\n" * 2000
    assert preview(text).find == "entry"
    assert preview("1 2 3\n" * 5000).find is None


def test_the_work_for_an_example_is_bounded() -> None:
    """SUR-11: hostile values."""
    deep: Any = 1
    for number in range(900):
        deep = [deep] if number % 2 else {"a": deep}
    wide: Any = {"x": 1}
    for _ in range(6):
        wide = {f"k{number}": wide for number in range(12)}
    for value in (
        deep,
        wide,
        [deep] * 50,
        {f"{n}" * 90: [deep] for n in range(500)},
        [[]] * 90_000,
        [{}] * 9000,
    ):
        count_steps(lambda value=value: offered(value), most=400_000)
