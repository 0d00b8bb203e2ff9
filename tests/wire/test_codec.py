"""JSON in and out: what real peers send passes, what cannot pass is refused, nothing else
happens."""

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.wire.codec import BadJson, Unencodable, dump, load

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.text(st.characters(exclude_categories=()), max_size=5)  # lone surrogates among them
)
KEYS = st.text(max_size=10)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


@given(VALUES)
def test_every_json_value_survives(value: Any) -> None:
    assert load(dump(value)) == value


@given(VALUES)
def test_what_another_library_wrote_is_read_the_same(value: Any) -> None:
    text = json.dumps(value)
    assert load(text.encode()) == json.loads(text)
    assert load(bytearray(text.encode())) == load(memoryview(text.encode())) == value


@given(st.binary())
def test_bytes_are_a_value_or_bad_json(data: bytes) -> None:
    for mend in (False, True):
        try:
            value = load(data, mend=mend)
        except BadJson:
            continue
        try:
            dump(value)
        except Unencodable:
            assert b"N" in data or b"I" in data or b"e" in data.lower()


@pytest.mark.parametrize(
    "number",
    [
        0,
        -1,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
        -(2**63),
        -(2**63) - 1,
        10**19,
        -(10**19),
        10**40,
        -(10**40),
    ],
)
@pytest.mark.parametrize(
    "place", ["{}", "[{}]", '{{"a":{}}}', "[1, {}, 2]", "[\n{}\n]", '{{"a": {} }}']
)
def test_integers_of_any_size_stay_exact(number: int, place: str) -> None:
    value = load(place.format(number).encode())
    while isinstance(value, (list, dict)):
        value = value[1 if len(value) > 1 else 0] if isinstance(value, list) else value["a"]
    assert value == number
    assert type(value) is int


@pytest.mark.parametrize("pad", range(12))
def test_a_long_integer_is_found_wherever_it_stands(pad: int) -> None:
    text = b'{"%b":[18446744073709551616,-9223372036854775809]}' % (b"k" * pad)
    assert load(text) == {"k" * pad: [2**64, -(2**63) - 1]}


def test_long_digits_elsewhere_need_no_exactness() -> None:
    text = b'["12345678901234567890123", 0.12345678901234567890123, 1234567890123456789012.5]'
    assert load(text) == ["12345678901234567890123", 0.12345678901234568, 1.2345678901234568e21]


def test_text_cut_inside_an_emoji_passes_through() -> None:
    text = b'{"text":"\\ud83d"}'
    assert load(text) == {"text": "\ud83d"}
    assert dump(load(text)) == text


def test_a_byte_order_mark_is_ignored() -> None:
    assert load(b"\xef\xbb\xbf{}") == {}
    assert load(b"\xef\xbb\xbf123456789012345678901") == 123456789012345678901


@pytest.mark.parametrize("text", [b"NaN", b"[Infinity]", b'{"a":-Infinity}', b"1e400", b"[-1e999]"])
def test_infinities_are_read_but_never_become_null(text: bytes) -> None:
    value = load(text)
    with pytest.raises(Unencodable):
        dump(value)
    with pytest.raises(Unencodable):
        dump({"result": [value]})


def test_finite_numbers_beside_an_infinity_stay_plain() -> None:
    value = load(b"[1e400, 1.5, 2]")
    assert math.isinf(value[0])
    assert dump(value[1:]) == b"[1.5,2]"


def test_nesting_beyond_the_fast_writer_passes() -> None:
    text = b"[" * 800 + b"]" * 800
    assert dump(load(text)) == text


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"\\ud83d":'])
@pytest.mark.parametrize("depth", [1_000, 1_500, 200_000])
def test_nesting_without_end_is_refused_and_harmless(opening: bytes, depth: int) -> None:
    with pytest.raises((BadJson, Unencodable)):
        dump(load(opening * depth))


def test_a_value_nested_too_deeply_is_refused() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(Unencodable):
        dump(value)
    while value:  # taken apart by hand: repr of it would recurse
        value = value[0]


def test_a_cycle_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(Unencodable):
        dump(value)


@pytest.mark.parametrize("value", [b"bytes", object(), {"a": {1, 2}}, {(1, 2): 3}])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(Unencodable):
        dump(value)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b'{"a":1}}',
        b"{}\x00",
        b"{'a':1}",
        b'{"a":1,}',
        b"nul",
        b"\xff",
        b"1" * 5000,
        b'"\xff"',
    ],
)
def test_what_is_no_json_text_is_refused(text: bytes) -> None:
    with pytest.raises(BadJson):
        load(text)


def test_one_bad_byte_can_be_mended() -> None:
    assert load(b'{"text":"caf\xe9"}', mend=True) == {"text": "caf\ufffd"}


def test_the_error_does_not_repeat_the_text() -> None:
    with pytest.raises(BadJson) as caught:
        load(b'{"password": "hunter2')
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_fragments_of_valid_json_are_embedded() -> None:
    assert dump({"result": orjson.Fragment(b'{"a": null}')}) == b'{"result":{"a": null}}'


def test_a_text_of_millions_of_empty_lists_is_refused() -> None:
    with pytest.raises(BadJson, match="500,000 arrays and objects"):
        load(b"[" + b",".join([b"[]"] * 1_000_000) + b"]")


def test_brackets_in_strings_are_no_lists() -> None:
    text = '[{"\\\\"]' * 200_000
    assert load(dump({"text": text})) == {"text": text}


def test_a_large_table_is_read() -> None:
    table = [{"name": f"row {n}", "size": [n, n + 1]} for n in range(100_000)]
    assert load(dump(table)) == table
