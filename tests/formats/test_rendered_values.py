"""Values for a model to read: TOON where it is clearly smaller, compact JSON everywhere else, and
nothing lost."""

import json
import subprocess
import sys
from typing import Any

import pytest
import toons
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpx.formats import toon as toon_format
from mcpx.formats.json import as_json
from mcpx.formats.tokens import estimate
from mcpx.formats.toon import MAX_TOON, Toon

ROWS = [
    {"id": n, "name": f"item {n}", "done": n % 2 == 0, "price": 1.5 * n, "note": None}
    for n in range(4)
]
ROWS_AS_TOON = """\
[4]{id,name,done,price,note}:
  0,item 0,true,0,null
  1,item 1,false,1.5,null
  2,item 2,true,3,null
  3,item 3,false,4.5,null"""


def render(value: object, *, toon: bool = True, min_size: int = 3) -> str:
    return Toon(min_size).value(value) if toon else as_json(value)


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def same(one: Any, other: Any) -> bool:
    """Equal as JSON: `1` is `1.0`, and neither is `true`."""
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(one[k], other[k]) for k in one)
        )
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def test_uniform_rows_become_a_table() -> None:
    """FMT-2"""
    assert render(ROWS) == ROWS_AS_TOON


def test_rows_inside_objects_become_a_table() -> None:
    """FMT-2"""
    text = render({"total": 4, "data": {"tags": ["a", "b"], "items": ROWS}})

    assert text.startswith(
        "total: 4\ndata:\n  tags[2]: a,b\n  items[4]{id,name,done,price,note}:\n    0,item "
        "0,true,0,null\n"
    )


@pytest.mark.parametrize(
    "value",
    [
        {"id": 1, "name": "one", "email": "a@example.org", "active": True},
        {"a": {"b": {"c": [1, 2, 3]}}, "d": {}},
        ["one", "two", "three", "four"],
        [{"path": "a.txt"}, {"path": "b.txt"}, {"path": "c.txt"}, {"path": "d.txt"}],
        ROWS[:2],
        [{"id": n, "user": {"login": "kim", "id": n}} for n in range(5)],
        [*ROWS, {"id": 5}],
        [*ROWS, 5],
        [
            {"id": n, "text": "A long text that says the same in both forms, again and again. " * 3}
            for n in range(5)
        ],
        {"a": {"b": {"c": {"d": {"e": ROWS}}}}},
        {"rows": ROWS * 5, "other": [{"a": 1}, [2]]},
        {"rows": ROWS * 5, "other": [{"a": 1, "b": 2}, {"a": 3, "c": 4}]},
        {"total": 2, "page": 1, "rows": ROWS[:2]},
        "text",
        "",
        17,
        1.5,
        True,
        None,
        [],
        {},
    ],
)
def test_what_toon_does_not_make_smaller_stays_json(value: object) -> None:
    """FMT-2: when it is really smaller, else compact JSON."""
    assert render(value) == compact(value)


def test_toon_can_be_switched_off() -> None:
    """FMT-2: toon_compression_enabled."""
    assert render(ROWS, toon=False) == compact(ROWS)


def test_small_values_stay_json_and_what_is_small_can_be_said() -> None:
    """FMT-2: toon_compression_min_size, rows or keys."""
    assert render(ROWS, min_size=4) == ROWS_AS_TOON
    assert render(ROWS, min_size=5) == compact(ROWS)
    wrapped = {"a": 1, "b": 2, "c": 3, "d": 4, "rows": ROWS}
    assert render(wrapped, min_size=5).startswith("a: 1\n")
    assert render(wrapped, min_size=6) == compact(wrapped)


def test_a_very_large_value_is_json_at_once() -> None:
    """FMT-2"""
    rows = ROWS * (MAX_TOON // 200)

    assert render(rows) == compact(rows)


@pytest.mark.parametrize(
    "number", [1e300, 5e-324, 1e-7, -0.0, 123456789012345678.0, 2**64, -(2**63) - 1]
)
def test_numbers_that_toon_would_change_keep_their_rows_json(number: float) -> None:
    """FMT-2: nothing is lost."""
    rows = [{"id": n, "name": f"item {n}", "value": number} for n in range(5)]

    assert json.loads(render(rows)) == rows


@pytest.mark.parametrize(
    "value",
    [
        2**70,
        [{"id": 2**200, "a": "北京"}] * 4,
        {"cut": "\ud83d", "whole": "🎉"},
        [{"cut": "\ud83d", "n": n, "m": n} for n in range(5)],
        {"\udc00": 1},
    ],
)
def test_what_orjson_cannot_write_is_written_all_the_same(value: object) -> None:
    """FMT-2: and it can be sent as UTF-8."""
    text = render(value)

    text.encode()
    assert json.loads(text) == value


def test_infinities_do_not_fail() -> None:
    """FMT-2: JSON has no word for them; a model reads whichever we find."""

    class NotFinite(float):
        """What the wire makes of `1e400`; orjson refuses subclasses."""

    assert render({"a": NotFinite("inf")}) == '{"a":Infinity}'
    assert (
        render([{"a": float("nan"), "b": 1}] * 3)
        == '[{"a":null,"b":1},{"a":null,"b":1},{"a":null,"b":1}]'
    )


@pytest.mark.parametrize("levels", [300, 1_000, 20_000])
def test_deep_nesting_is_written_without_the_stack(levels: int) -> None:
    """FMT-2"""
    value: object = [1, "a"]
    for _ in range(levels):
        value = [{"k,": value, "b": None}, "]"]

    assert render(value) == '[{"k,":' * levels + '[1,"a"]' + ',"b":null},"]"]' * levels


def test_a_panic_inside_the_library_falls_back_to_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """FMT-2: pyo3's panics are not of the kind `Exception`; an interrupt is, and must not be
    swallowed."""
    panic = type("PanicException", (BaseException,), {})

    def fail(error: BaseException) -> None:
        def dumps(value: object) -> str:
            raise error

        monkeypatch.setattr(toons, "dumps", dumps)

    for error in (panic("index out of bounds"), ValueError("no")):
        fail(error)
        assert render(ROWS) == compact(ROWS)
    fail(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        render(ROWS)


def test_the_library_is_loaded_by_the_first_table_only() -> None:
    """FMT-2: start-up time."""
    code = (
        "import sys; from mcpx.formats.writing import value_writer; from mcpx.formats.typescript "
        "import type_text\n"
        "render = value_writer('toon')\n"
        "render({'a': 1}); assert 'toons' not in sys.modules\n"
        "render([{'a': n, 'b': n} for n in range(5)]); assert 'toons' in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


awkward = st.sampled_from([
    "true", "null", "-", "- a", "05", "1e5", "-0", ".5", "0x1", "[]", "{}", "[2]: a", "a: b", "#", "nan", "a,b",
    "Infinity", "1_000", "a.b", "1a", "工具", "🎉", " x ", "", "|", '"', "\\", "\n", "\t", "\x00", "\x85", "\xa0",
    "\u2028", "\ufeff",
])  # fmt: skip
strings = (
    awkward
    | st.text(max_size=8)
    | st.text(alphabet=',:"|-[]{}#\n\t\\ 0189eE.+truefalsn', max_size=8)
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | strings
)
tables = st.lists(strings, min_size=1, max_size=5, unique=True).flatmap(
    lambda keys: st.lists(
        st.fixed_dictionaries(dict.fromkeys(keys, scalars)), min_size=1, max_size=6
    )
)
wrapped = st.recursive(
    tables | st.lists(scalars, max_size=4),
    lambda inner: st.dictionaries(strings, inner | scalars, max_size=4),
    max_leaves=4,
)
json_values = st.recursive(
    scalars | tables,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=600, deadline=None)
@given(tables | wrapped | json_values)
def test_every_value_comes_back_from_its_text(value: object) -> None:
    """FMT-2: nothing is lost, whichever form is chosen."""
    text = render(value)

    if text == render(value, toon=False):
        assert same(json.loads(text), value)
    else:
        assert same(toons.loads(text), value)
        assert len(text) < len(compact(value))
        assert estimate(text) <= 0.9 * estimate(compact(value))


@settings(max_examples=600, deadline=None)
@given(tables | wrapped)
def test_tables_survive_toon_whether_they_are_chosen_or_not(value: object) -> None:
    """FMT-2: the look at a value that lets it pass, without the sizes, which would hide most of
    what it lets pass."""
    if toon_format._largest_table(value, 0) >= 0:
        assert same(toons.loads(toons.dumps(value)), value)
