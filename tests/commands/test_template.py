"""SRC-3, SEC-4: `{name}` in a text, filled so that a value stays where it was put."""

import json
import re
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.commands.requests.template import (
    JsonText,
    Path,
    Query,
    Template,
    compiled,
    in_header,
    json_node,
    named_in,
    placeholders,
    spell,
)
from mcpx.commands.work import CommandFailed

ABC = placeholders(["a", "b", "c"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def path(text: str, **arguments: Any) -> str:
    return Path(text, ABC).fill(arguments)


def query(text: str, params: dict[str, str] | None = None, **arguments: Any) -> str:
    return (Query.of_text(text, ABC) + Query.of_pairs(params or {}, ABC)).fill(arguments)


def body(value: Any, **arguments: Any) -> Any:
    node = json_node(value, ABC)
    return value if node is None else node(arguments)


# ---- finding them


@pytest.mark.parametrize("text", ["", "plain", "{}", "{ a }", "{d}", "{{", "}", "{a", '{"a": 1}'])
def test_what_names_no_argument_is_text(text: str) -> None:
    assert compiled(text, ABC) == text


def test_a_name_may_be_any_text_that_was_declared() -> None:
    pattern = placeholders(["filter[name]", "城市", "a.b", "$top", "a"])
    template = compiled("{filter[name]}/{城市}/{a.b}/{$top}/{a}/{x}", pattern)
    assert isinstance(template, Template)
    assert template.names == ("filter[name]", "城市", "a.b", "$top", "a")


def test_where_any_argument_may_come_whatever_looks_like_a_name_is_one() -> None:
    template = compiled("{x}-{y_1}-{}-{1}-{ z }", placeholders([], others=True))
    assert isinstance(template, Template) and template.names == ("x", "y_1")
    assert list(named_in("{x}{ z }{1}")) == ["x", "z"]


def test_a_value_is_never_read_as_a_template() -> None:
    """SRC-3."""
    assert path("/{a}/{b}", a="{b}", b="${HOME}") == "/%7Bb%7D/%24%7BHOME%7D"
    assert body({"x": "{a}", "y": "<{a}>"}, a="{b} ${HOME} {a}", b="no") == {
        "x": "{b} ${HOME} {a}",
        "y": "<{b} ${HOME} {a}>",
    }


# ---- values as text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (3, "3"),
        (3.0, "3"),
        (-0.5, "-0.5"),
        (1e300, "1e+300"),
        (10**30, str(10**30)),
        (True, "true"),
        (False, "false"),
        (None, ""),
        ([1, "a"], '[1,"a"]'),
        ({"a": None}, '{"a":null}'),
    ],
)
def test_a_value_inside_a_text_is_spelled_as_json_spells_it(value: Any, text: str) -> None:
    assert spell(value) == text


# ---- paths


@given(TEXTS)
def test_a_value_in_a_path_is_one_segment_and_comes_back_as_it_was(value: str) -> None:
    """SEC-4: nothing in a value ends its segment, begins a query, or steps to another path."""
    try:
        made = path("/v1/users/{a}/posts", a=value)
    except CommandFailed:
        assert value in ("", ".", "..") or re.search(r"[\x00-\x1f\x7f]", value)
        return
    parts = urlsplit(f"http://h{made}")
    assert (parts.netloc, parts.query, parts.fragment) == ("h", "", "")
    segments = parts.path.split("/")
    assert segments[:3] == ["", "v1", "users"] and segments[4:] == ["posts"]
    assert unquote(segments[3]) == value and segments[3] not in (".", "..")
    assert re.fullmatch(r"[A-Za-z0-9_.~%-]+", segments[3])


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("../../admin", "/u/..%2F..%2Fadmin"),
        ("a/b", "/u/a%2Fb"),
        ("%2e%2e", "/u/%252e%252e"),
        ("a?x=1#y", "/u/a%3Fx%3D1%23y"),
        ("x@evil.example", "/u/x%40evil.example"),
        ("..\\..", "/u/..%5C.."),
        ("..;x", "/u/..%3Bx"),
        ("東京", "/u/%E6%9D%B1%E4%BA%AC"),
        (7, "/u/7"),
        (True, "/u/true"),
        ([1, "a b"], "/u/1%2Ca%20b"),
        ({"a": 1}, "/u/%7B%22a%22%3A1%7D"),
    ],
)
def test_a_value_in_a_path_is_encoded(value: Any, made: str) -> None:
    """SEC-4."""
    assert path("/u/{a}", a=value) == made


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("/u/{a}", {"a": ".."}),
        ("/u/{a}", {"a": "."}),
        ("/u/{a}/x", {"a": ".."}),
        ("/u/{a}{b}", {"a": ".", "b": "."}),
        ("/u/.{a}", {"a": "."}),
        ("/u/%2e{a}", {"a": "."}),
        ("/u/.{a}", {"a": ""}),
    ],
)
def test_a_step_to_another_path_is_refused(text: str, arguments: dict[str, str]) -> None:
    """SEC-4: however it is encoded, servers take a segment of dots for a step."""
    with pytest.raises(CommandFailed, match="a step to another path"):
        path(text, **arguments)


@pytest.mark.parametrize("value", ["a\r\nb", "a\nb", "\0", "\x1b[31m", "\x7f"])
def test_a_control_character_in_a_path_is_refused(value: str) -> None:
    with pytest.raises(
        CommandFailed, match="argument 'a' holds a line break or a control character"
    ):
        path("/{a}", a=value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [({}, "has no value"), ({"a": None}, "has no value"), ({"a": ""}, "is empty")],
)
@pytest.mark.parametrize("text", ["/users/{a}", "/users/{a}/posts"])
def test_a_path_is_never_shorter_than_it_was_written(
    text: str, arguments: dict[str, Any], says: str
) -> None:
    """`DELETE /users/{id}` without its id would be another request."""
    with pytest.raises(CommandFailed, match=f"argument 'a' {says}"):
        path(text, **arguments)


def test_half_a_character_is_told_and_not_sent() -> None:
    for fill in (lambda: path("/{a}", a="\ud800"), lambda: query("", {"x": "{a}"}, a="\ud800")):
        with pytest.raises(CommandFailed, match="'a' holds half a character"):
            fill()


# ---- queries


@given(TEXTS, TEXTS)
def test_a_value_in_a_query_is_one_value(one: str, two: str) -> None:
    """SEC-4."""
    try:
        made = query("x={a}&fixed=1", {"y": "<{b}>"}, a=one, b=two)
    except CommandFailed:
        assert "\0" in one + two
        return
    assert parse_qsl(made, keep_blank_values=True) == [
        ("x", one),
        ("fixed", "1"),
        ("y", f"<{two}>"),
    ]
    assert re.fullmatch(r"[A-Za-z0-9_.~%&=-]+", made)


def test_what_has_no_value_drops_out_of_a_query() -> None:
    """SRC-3."""
    assert query("x={a}&y=1", {"z": "{b}", "w": "w-{c}"}) == "y=1&w=w-"
    assert query("x={a}", a=None) == ""
    assert query("x={a}", a="") == "x="


def test_a_list_in_a_query_repeats_its_name_and_an_object_is_json() -> None:
    """SRC-3."""
    assert (
        query("", {"tag": "{a}"}, a=["x", 2, None, True, [1]]) == "tag=x&tag=2&tag=true&tag=%5B1%5D"
    )
    assert query("", {"tag": "{a}"}, a=[]) == ""
    assert parse_qsl(query("", {"o": "{a}", "l": "l:{b}"}, a={"k": 1}, b=[1, 2])) == [
        ("o", '{"k":1}'),
        ("l", "l:[1,2]"),
    ]


def test_what_stands_in_the_address_stays_as_it_is_written_and_params_are_encoded() -> None:
    assert query("q=a+b%20c&flag", {"a b": "c&d"}) == "q=a+b%20c&flag&a%20b=c%26d"
    assert query("{a}=1&{b}", a="x&y", b="z=") == "x%26y=1&z%3D"


# ---- headers


@given(TEXTS)
def test_a_value_in_a_header_cannot_end_its_line(value: str) -> None:
    """SEC-4."""
    try:
        made = in_header(value, "a")
    except CommandFailed as error:
        assert "argument 'a'" in str(error)
        assert re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value) or any(
            ord(char) > 255 for char in value
        )
        return
    assert made == value
    assert made.encode("latin-1").splitlines() in ([made.encode("latin-1")], []) or "\x85" in made


# ---- JSON bodies


def test_a_string_that_is_a_placeholder_becomes_the_value_with_its_type() -> None:
    """SRC-3."""
    for value in (1, 1.5, True, None, "x", [1, {"y": None}], {"z": []}):
        assert body({"n": {"deep": ["{a}"]}}, a=value) == {"n": {"deep": [value]}}


def test_inside_of_a_longer_text_a_value_is_text() -> None:
    """SRC-3."""
    assert body("{a} and {b}", a=[1], b=True) == "[1] and true"
    assert body(["{a}!"], a=None) == ["!"]


def test_a_field_or_element_without_a_value_drops_out() -> None:
    """SRC-3."""
    assert body({"x": "{a}", "y": {"z": "{b}"}, "l": ["{a}", 1, "{b}"], "t": "t{a}"}, b=2) == {
        "y": {"z": 2},
        "l": [1, 2],
        "t": "t",
    }


def test_literal_braces_stay_in_a_body() -> None:
    value = {"query": "query { user(id: {a}) { name } }", "{a}": "{d}"}
    assert body(value, a=7) == {"query": "query { user(id: 7) { name } }", "{a}": "{d}"}


# ---- JSON written as a text


@given(JSON, JSON)
def test_a_value_cannot_break_out_of_a_json_text(one: Any, two: Any) -> None:
    """SEC-4: whatever it holds, the text around it means what it meant."""
    template = compiled('{"s": "<{a}>", "v": {b}, "q": "\\"{a}", "end": true}', ABC)
    assert isinstance(template, Template)
    made = json.loads(JsonText(template).fill({"a": one, "b": two}))
    assert made == {"s": f"<{spell(one)}>", "v": two, "q": f'"{spell(one)}', "end": True}
