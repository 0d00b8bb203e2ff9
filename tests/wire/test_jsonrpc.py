"""What counts as a JSON-RPC message of MCP, and what the makers make."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpx.model.errors import RpcError
from mcpx.wire import jsonrpc

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("request", {"id": 1, "method": "ping"}),
        ("request", {"id": "a", "method": "ping", "params": {}}),
        ("request", {"id": 0, "method": "", "params": None}),
        ("request", {"id": 1, "method": "ping", "result": {}}),
        ("notification", {"method": "n"}),
        ("notification", {"method": "n", "params": {"a": 1}}),
        ("response", {"id": 1, "result": {}}),
        ("response", {"id": None, "error": {}}),
        ("response", {"id": 1, "result": 5}),
        ("invalid", {"id": None, "method": "ping"}),
        ("invalid", {"id": 1.0, "method": "ping"}),
        ("invalid", {"id": True, "method": "ping"}),
        ("invalid", {"id": {}, "method": "ping"}),
        ("invalid", {"id": 1, "method": 5}),
        ("invalid", {"id": 1, "method": "ping", "params": []}),
        ("invalid", {"id": 1, "method": "ping", "params": "x"}),
        ("invalid", {"id": 1}),
        ("invalid", {"result": {}}),
        ("invalid", {}),
    ],
)
def test_the_envelope_alone_tells_the_kind(kind: str, message: dict[str, Any]) -> None:
    assert jsonrpc.classify({"jsonrpc": "2.0", **message}) == kind


@pytest.mark.parametrize(
    "message", [None, 1, "x", [], [{"jsonrpc": "2.0", "method": "n"}], {"method": "n", "id": 1}]
)
def test_what_is_not_one_message_of_2_0_is_invalid(message: Any) -> None:
    """Batches are refused in every revision (PRO-1)."""
    assert jsonrpc.classify(message) == "invalid"
    assert jsonrpc.classify({"jsonrpc": "1.0", "method": "n"}) == "invalid"


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "other"]), VALUES
    )
    | st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0"), "id": VALUES, "method": VALUES, "params": VALUES}
    )
    | VALUES
)
def test_whatever_comes_is_classified_and_a_request_can_be_used(message: Any) -> None:
    kind = jsonrpc.classify(message)
    assert kind in ("request", "notification", "response", "invalid")
    if kind in ("request", "notification"):
        assert isinstance(jsonrpc.params_of(message), dict)
        assert isinstance(message["method"], str)
    if kind == "request":
        assert {message["id"]: "hashable"}


def test_messages_made_here_are_recognised_and_have_no_empty_params() -> None:
    assert jsonrpc.request(1, "m", None) == {"jsonrpc": "2.0", "id": 1, "method": "m"}
    assert jsonrpc.notification("n", None) == {"jsonrpc": "2.0", "method": "n"}
    for kind, message in (
        ("request", jsonrpc.request("a", "m", {"x": 1})),
        ("notification", jsonrpc.notification("n", {})),
        ("response", jsonrpc.result(1, {})),
        ("response", jsonrpc.failure(None, RpcError(-1, "no"))),
    ):
        assert jsonrpc.classify(message) == kind


def test_an_error_keeps_code_message_data_and_unknown_fields() -> None:
    """PRO-6."""
    theirs = {"code": -32050, "message": "no", "data": {"a": [1]}, "hint": "later"}
    assert jsonrpc.failure(7, RpcError.from_json(theirs))["error"] == theirs
    bare = {"code": 1, "message": ""}
    assert jsonrpc.failure(7, RpcError.from_json(bare))["error"] == bare


@settings(deadline=None)
@given(VALUES)
def test_any_error_of_a_server_becomes_one_that_can_be_sent_on(theirs: Any) -> None:
    error = RpcError.from_json(theirs).to_json()
    assert isinstance(error["code"], int)
    assert isinstance(error["message"], str)
