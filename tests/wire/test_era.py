"""The rules of each revision, held against the reference implementation where it has the same
rule."""

import base64
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mcp.shared.inbound import (
    decode_header_value,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)

from kit.cost import count_steps
from mcpx.model.call import Json
from mcpx.model.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    RpcError,
)
from mcpx.wire import era
from mcpx.wire.era import CAPABILITIES_KEY, CLIENT_KEY, LEVEL_KEY, VERSION_KEY

MODERN = era.LATEST_MODERN
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
# Words that mean something here have tests of their own; hypothesis reads them off the sources and
# tries them.
NAMES = st.text(max_size=8).filter(lambda name: name not in ("_meta", "ttlMs"))
OBJECTS = st.dictionaries(NAMES, JSON, max_size=4)


def envelope(**more: Any) -> Json:
    return {VERSION_KEY: MODERN, CAPABILITIES_KEY: {}, **more}


def message(method: str = "tools/list", meta: Any = None, **params: Any) -> Json:
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        "params": {"_meta": meta or envelope(), **params},
    }


def headers(method: str = "tools/list", **more: str | None) -> dict[str, str | None]:
    return {
        "mcp-protocol-version": MODERN,
        "mcp-method": method,
        **{k.replace("_", "-"): v for k, v in more.items()},
    }


def refused(message: Json, headers: dict[str, str | None] | None) -> RpcError:
    with pytest.raises(RpcError) as caught:
        era.check_envelope(message, headers)
    return caught.value


# --- which era


@pytest.mark.parametrize(
    ("version", "modern"),
    [
        (None, False),
        *((v, False) for v in era.OLDER),
        (MODERN, True),
        ("1999-01-01", True),
        ("", True),
        ("x", True),
    ],
)
def test_a_header_of_an_older_date_or_none_is_older_and_nonsense_is_modern(
    version: str | None, modern: bool
) -> None:
    assert era.is_modern_header(version) is modern


@pytest.mark.parametrize(
    ("message", "modern"),
    [
        ({"method": "server/discover"}, True),
        ({"method": "tools/list", "params": {"_meta": {VERSION_KEY: "whatever"}}}, True),
        ({"method": "tools/list", "params": {"_meta": {CAPABILITIES_KEY: {}}}}, False),
        ({"method": "initialize", "params": {"protocolVersion": MODERN}}, False),
        ({"method": "tools/list", "params": {"_meta": [VERSION_KEY]}}, False),
        ({"method": "tools/list", "params": None}, False),
        ({"method": "tools/list"}, False),
    ],
)
def test_a_message_without_headers_tells_its_era_by_its_envelope(
    message: Json, modern: bool
) -> None:
    assert era.is_modern_message(message) is modern


@pytest.mark.parametrize("asked", [*era.OLDER])
def test_a_revision_we_speak_is_answered_with_itself(asked: str) -> None:
    """SRC-2."""
    assert era.negotiate(asked) == asked


@pytest.mark.parametrize("asked", [MODERN, "1999-01-01", None, 5, [], {}])
def test_any_other_revision_is_answered_with_our_newest_older_one(asked: Any) -> None:
    assert era.negotiate(asked) == "2025-11-25"


# --- the ladder


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"_meta": None},
        {"_meta": []},
        {"_meta": "x"},
        {"_meta": {}},
        {"_meta": {VERSION_KEY: MODERN}},
        {"_meta": {CAPABILITIES_KEY: {}}},
    ],
)
def test_the_first_rung_is_the_envelope(params: Any) -> None:
    bare = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    assert refused(bare, None).code == INVALID_PARAMS
    assert refused(bare, {}).code == INVALID_PARAMS  # before any header is looked at


@pytest.mark.parametrize(
    ("sent", "given"),
    [
        (message(), {}),
        (message(), headers(mcp_protocol_version=None)),
        (message(), headers(mcp_protocol_version="2025-11-25")),
        (message(), headers("tools/List")),
        (message(), headers(mcp_method=None)),
        (message("tools/call", name="a"), headers("tools/call")),
        (message("tools/call", name="a"), headers("tools/call", mcp_name="A")),
        (message("prompts/get", name="a"), headers("prompts/get", mcp_name="b")),
        (message("resources/read", uri="a:b"), headers("resources/read", mcp_name="a:c")),
        (
            message("tools/call", name="a"),
            headers("tools/call", mcp_name="=?base64?YR==?="),
        ),  # not canonical
        (message("tools/call", name="a"), headers("tools/call", mcp_name="=?base64?Y?=")),
        (message("tools/call", name=5), headers("tools/call", mcp_name="5")),
        (message(meta=envelope(**{VERSION_KEY: "9"})), headers(mcp_protocol_version="8")),
        (message(meta=envelope(**{VERSION_KEY: 5})), headers(mcp_protocol_version="5")),
    ],
)
def test_the_second_rung_is_that_headers_agree_with_the_body(
    sent: Json, given: dict[str, str | None]
) -> None:
    assert refused(sent, given).code == HEADER_MISMATCH


def test_the_third_rung_is_a_version_we_speak() -> None:
    sent = message(meta=envelope(**{VERSION_KEY: "2030-01-01"}))
    for sent_with in (None, headers(mcp_protocol_version="2030-01-01")):
        error = refused(sent, sent_with)
        assert error.code == UNSUPPORTED_VERSION
        assert error.data == {"supported": [MODERN], "requested": "2030-01-01"}
    assert refused(message(meta=envelope(**{VERSION_KEY: 5})), None).code == INVALID_PARAMS


@pytest.mark.parametrize(
    ("sent", "given"),
    [
        (message(), None),
        (message(), headers()),
        (message("tools/call", name="a"), headers("tools/call", mcp_name="a")),
        (message("tools/call", name="a"), headers("tools/call", mcp_name="=?base64?YQ==?=")),
        (
            message("prompts/get", name="ä "),
            headers("prompts/get", mcp_name=era.encode_header("ä ")),
        ),
        (
            message("tools/call"),
            headers("tools/call"),
        ),  # without a name: refused further on, for a better reason
        (message("completion/complete", name="a"), headers("completion/complete")),
    ],
)
def test_whoever_climbs_the_ladder_is_let_in(
    sent: Json, given: dict[str, str | None] | None
) -> None:
    era.check_envelope(sent, given)


def test_errors_travel_under_a_status_of_their_own() -> None:
    assert era.HTTP_STATUS[METHOD_NOT_FOUND] == 404
    assert era.HTTP_STATUS[UNSUPPORTED_VERSION] == 400
    assert -32603 not in era.HTTP_STATUS


# --- header values


@settings(deadline=None)
@given(st.text(max_size=30) | st.text("=?base64YQ ä\t", max_size=14))
@example("")
@example(" ")
@example("=?base64?YQ==?=")
@example("=?base64??=")
@example("=?base64?=")
@example("\r\nX-Other: 1")
@example("\ud800")
def test_every_value_survives_a_header_and_is_fit_for_one(value: str) -> None:
    header = era.encode_header(value)
    assert header.isascii() and header.isprintable() and header == header.strip()
    assert era.decode_header(header) == value


@settings(deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    | st.text("=?base64YQ ä\t", max_size=14)
)
def test_the_reference_peer_writes_and_reads_header_values_as_we_do(value: str) -> None:
    assert era.encode_header(value) == encode_header_value(value)
    assert era.decode_header(encode_header_value(value)) == value
    assert decode_header_value(era.encode_header(value)) == value


@settings(deadline=None)
@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
    | st.text("ABCDabcd0123+/= -_", max_size=9).map(lambda inner: f"=?base64?{inner}?=")
)
def test_no_two_spellings_mean_the_same_value(header: str) -> None:
    """Only canonical base64 counts, so that nobody reads a header in another way than we did."""
    value = era.decode_header(header)
    assert value == decode_header_value(header)
    if value is not None and value != header:
        assert header == f"=?base64?{base64.b64encode(value.encode()).decode()}?="


@pytest.mark.parametrize(
    "header",
    ["=?base64?YR==?=", "=?base64?YQ?=", "=?base64?Y Q==?=", "=?base64?_w==?=", "=?base64?/w==?="],
)
def test_a_malformed_wrapper_equals_nothing(header: str) -> None:
    assert era.decode_header(header) is None


@pytest.mark.parametrize(
    "header", ["=?base64?YQ==", "YQ==?=", "=?BASE64?YQ==?=", "x=?base64?YQ==?="]
)
def test_half_a_wrapper_is_literal(header: str) -> None:
    assert era.decode_header(header) == header


def test_no_header_is_no_value() -> None:
    assert era.decode_header(None) is None


# --- arguments as headers

PROPERTY = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "boolean"])},
    optional={"x-mcp-header": st.sampled_from(["A", "b", "Region", "a-b"])},
)
ODD = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "number", "object", ["string"], None, 5, "integer"]),
        "x-mcp-header": st.sampled_from(["A", "a", "b", "", "a b", "ä", 5, None, [], {}]),
    },
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["p", "q", "r", ""])
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.just("object"),
            "properties": st.dictionaries(names, inner, max_size=3) | JSON,
            "items": inner,
            "anyOf": st.lists(inner, max_size=2) | JSON,
            "$defs": st.dictionaries(names, inner, max_size=2) | JSON,
            "default": inner,
            "enum": st.lists(inner, max_size=2),
            "$ref": st.just("#"),
        },
    )


SCHEMAS = st.recursive(PROPERTY | ODD | JSON, nested, max_leaves=8)
ARGUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: st.dictionaries(st.sampled_from(["p", "q", "r", ""]), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(SCHEMAS)
def test_any_schema_is_walked_and_judged_as_the_reference_peer_judges_it(schema: Any) -> None:
    found = era.param_headers(schema)
    reason = find_invalid_x_mcp_header(schema)
    assert (found is None) == (reason is not None)
    if found is not None:
        assert {path: token for path, (token, _) in found.items()} == x_mcp_header_map(schema)


@settings(max_examples=200, deadline=None)
@given(nested(PROPERTY), ARGUMENTS)
@example({"properties": {"p": {"type": "integer", "x-mcp-header": "A"}}}, {"p": 1e22})
def test_what_the_back_sends_the_front_accepts(schema: Any, arguments: Any) -> None:
    annotations = era.param_headers(schema)
    if annotations is None:
        return
    sent = era.headers_for(annotations, arguments)
    era.check_param_headers(annotations, arguments, {name.lower(): [value] for name, value in sent})
    if isinstance(arguments, dict):
        assert dict(sent) == mcp_param_headers(x_mcp_header_map(schema), arguments)


ANNOTATED = {
    ("region",): ("Region", "string"),
    ("deep", "count"): ("Count", "integer"),
    ("flag",): ("Flag", "boolean"),
}


def test_annotations_are_found_on_pure_property_chains_only() -> None:
    schema: Json = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {
                "type": "object",
                "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}},
            },
            "flag": {"type": "boolean", "x-mcp-header": "Flag"},
            "x-mcp-header": {"type": "string"},  # a property of that name
            "plain": {"type": "string", "default": {"x-mcp-header": "data, not schema"}},
        },
    }
    assert era.param_headers(schema) == ANNOTATED
    schema["properties"]["list"] = {
        "type": "array",
        "items": {"type": "string", "x-mcp-header": "Lost"},
    }
    assert era.param_headers(schema) is None


@pytest.mark.parametrize(
    ("arguments", "given", "good"),
    [
        ({}, {}, True),
        ({"region": None, "deep": None}, {}, True),
        ({"deep": "no object"}, {}, True),
        (None, {}, True),
        ({"region": "eu"}, {"region": ["eu"]}, True),
        ({"region": "eu"}, {"region": ["=?base64?ZXU=?="]}, True),
        ({"region": "eu"}, {"region": ["EU"]}, False),
        ({"region": "eu"}, {}, False),
        ({"region": "eu"}, {"region": ["eu", "eu"]}, False),
        ({}, {"region": ["eu"]}, False),
        ({"region": {"an": "object"}}, {}, True),
        ({"region": {"an": "object"}}, {"region": ["x"]}, False),
        ({"flag": True}, {"flag": ["true"]}, True),
        ({"flag": True}, {"flag": ["True"]}, False),
        ({"flag": False}, {"flag": ["false"]}, True),
        ({"flag": True}, {"flag": ["1"]}, False),
        ({"deep": {"count": 42}}, {"count": ["42"]}, True),
        ({"deep": {"count": 42}}, {"count": ["42.0"]}, True),
        ({"deep": {"count": 42.0}}, {"count": ["42"]}, True),
        ({"deep": {"count": 42}}, {"count": ["042"]}, True),
        ({"deep": {"count": -1}}, {"count": ["-1"]}, True),
        ({"deep": {"count": 42}}, {"count": ["42.5"]}, False),
        ({"deep": {"count": 42}}, {"count": ["+42"]}, False),
        ({"deep": {"count": 42}}, {"count": ["4_2"]}, False),
        ({"deep": {"count": 42}}, {"count": ["٤٢"]}, False),
        ({"deep": {"count": 42}}, {"count": ["4" * 100_000]}, False),
        ({"deep": {"count": True}}, {"count": ["1"]}, False),
        ({"deep": {"count": 2**53 + 1}}, {"count": [str(2**53)]}, False),
        ({"deep": {"count": 2**100}}, {"count": [str(2**100)]}, True),
        ({"deep": {"count": 1.5}}, {"count": ["1.5"]}, True),
        ({"deep": {"count": float("inf")}}, {"count": ["1"]}, False),
        ({"deep": {"count": float("nan")}}, {"count": ["1"]}, False),
        ({"deep": {"count": float("-inf")}}, {}, False),
    ],
)
def test_header_and_argument_are_equal_or_both_absent(
    arguments: Any, given: dict[str, list[str]], good: bool
) -> None:
    """Integers compare as numbers, without a float in between."""
    named = {f"mcp-param-{name}": values for name, values in given.items()}
    if good:
        era.check_param_headers(ANNOTATED, arguments, named)
    else:
        with pytest.raises(RpcError) as caught:
            era.check_param_headers(ANNOTATED, arguments, named)
        assert caught.value.code == HEADER_MISMATCH


def chain(depth: int, leaves: int, leaf: Callable[[int], Json]) -> Json:
    """Properties in properties, and many of them at the bottom."""
    schema: Json = {"properties": {f"leaf{n}": leaf(n) for n in range(leaves)}}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


def test_the_walk_is_linear_in_time_and_memory_on_deep_and_wide_schemas() -> None:
    """A server sends what it likes: 900 levels (JSON allows a thousand) with many properties at the
    bottom."""
    schema = chain(900, 20_000, lambda n: {"type": "string"})
    assert count_steps(lambda: era.param_headers(schema), 30 * (900 + 20_000))
    tracemalloc.start()
    try:
        assert era.param_headers(schema) == {}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000  # a path of its own for each leaf took 146 MB


def test_a_tool_that_wants_more_headers_than_a_request_can_have_is_invalid() -> None:
    def leaf(n: int) -> Json:
        return {"type": "string", "x-mcp-header": f"H{n}"}

    found = era.param_headers(chain(3, 100, leaf))
    assert found is not None
    assert found["a", "a", "a", "leaf7"] == ("H7", "string")
    assert era.param_headers(chain(900, 20_000, leaf)) is None


# --- results and requests from one era to the other


@settings(deadline=None)
@given(OBJECTS, OBJECTS, OBJECTS, st.sampled_from([None, "debug", "error"]))
def test_a_stamped_request_carries_the_envelope_and_everything_else(
    params: Json, meta: Json, capabilities: Json, level: str | None
) -> None:
    before = {**params, "_meta": meta}
    stamped = era.stamped(before, {"name": "c"}, capabilities, level)
    assert stamped["_meta"][VERSION_KEY] == MODERN
    assert stamped["_meta"][CAPABILITIES_KEY] == capabilities
    assert stamped["_meta"][CLIENT_KEY] == {"name": "c"}
    assert (LEVEL_KEY in stamped["_meta"]) == (level is not None)
    assert {k: v for k, v in stamped.items() if k != "_meta"} == {
        k: v for k, v in params.items() if k != "_meta"
    }
    assert meta.items() <= stamped["_meta"].items()
    bare = era.unstamped(stamped)
    assert {k: v for k, v in bare.items() if k != "_meta"} == {
        k: v for k, v in before.items() if k != "_meta"
    }
    assert bare.get("_meta", {}) == meta


@settings(deadline=None)
@given(OBJECTS | st.fixed_dictionaries({"_meta": JSON}))
def test_taking_the_envelope_off_what_has_none_changes_nothing(params: Json) -> None:
    assert era.unstamped(params) is params


@pytest.mark.parametrize("meta", [None, [], "x", 5])
def test_a_meta_that_is_no_object_counts_as_none(meta: Any) -> None:
    stamped = era.stamped({"_meta": meta, "a": 1}, {}, {}, None)
    assert stamped["a"] == 1
    assert set(stamped["_meta"]) == {VERSION_KEY, CLIENT_KEY, CAPABILITIES_KEY}


METHODS = st.sampled_from(
    ["tools/list", "tools/call", "resources/read", "prompts/get", "server/discover"]
)


@settings(deadline=None)
@given(METHODS, OBJECTS)
def test_a_result_for_a_modern_client_gains_what_its_era_asks_for_and_loses_nothing(
    method: str, result: Json
) -> None:
    """PRO-6: unknown fields survive."""
    shaped = era.as_modern(method, result)
    assert result.items() <= shaped.items()
    added = set(shaped) - set(result)
    assert added <= {"resultType", "ttlMs", "cacheScope"}
    assert shaped["resultType"] == "complete"
    assert ("ttlMs" in shaped and "cacheScope" in shaped) == (method in era.CACHEABLE)
    assert era.as_older(shaped) == {
        k: v for k, v in result.items() if k not in ("resultType", "ttlMs", "cacheScope")
    }


def test_what_a_modern_server_said_itself_stays() -> None:
    whole = {"tools": [], "resultType": "complete", "ttlMs": 5000, "cacheScope": "public"}
    assert era.as_modern("tools/list", whole) is whole
    question = {"resultType": "input_required", "requestState": "s", "inputRequests": {}}
    assert era.as_modern("tools/call", question) is question
    assert era.as_modern("resources/read", question) == question  # no cache hints on a question
    half = {"contents": [], "resultType": "complete", "ttlMs": 7}
    assert era.as_modern("resources/read", half) == {**half, "cacheScope": "private"}


@settings(deadline=None)
@given(OBJECTS)
def test_a_result_without_modern_fields_reaches_an_older_client_as_the_same_object(
    result: Json,
) -> None:
    assert era.as_older(result) is result


def test_a_url_elicitation_gets_the_id_that_older_clients_know_it_by() -> None:
    asked = {"mode": "url", "url": "https://x", "future": 1}
    shaped = era.question_for_older("elicitation/create", asked)
    assert shaped == {**asked, "elicitationId": shaped["elicitationId"]}
    assert (
        shaped["elicitationId"]
        != era.question_for_older("elicitation/create", asked)["elicitationId"]
    )
    for method, params in (
        ("elicitation/create", {"mode": "url", "elicitationId": "theirs"}),
        ("elicitation/create", {"message": "a form"}),
        ("sampling/createMessage", {"mode": "url"}),
        ("roots/list", None),
    ):
        assert era.question_for_older(method, params) is params


# --- log levels


@pytest.mark.parametrize("at", range(len(era.LOG_LEVELS)))
def test_a_threshold_lets_through_what_is_as_serious_or_more(at: int) -> None:
    level = era.LOG_LEVELS[at]
    assert [era.admits(level, other) for other in era.LOG_LEVELS] == [
        n >= at for n in range(len(era.LOG_LEVELS))
    ]


def test_no_threshold_lets_nothing_through_and_an_unknown_level_passes_any() -> None:
    assert not any(era.admits(None, level) for level in era.LOG_LEVELS)
    assert not era.admits("loud", "emergency")
    for odd in (None, "trace", 5, [], {}):
        assert era.admits("emergency", odd)
