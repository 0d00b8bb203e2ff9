"""The method table: which part of a call each row changes, and that it changes nothing else."""

from typing import Any

import pytest

from kit.callers import modern_caller, older_caller
from kit.loop import run
from mcpx.core.view import ROUTES, route
from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    NotFound,
    RpcError,
)
from mcpx.model.offer import Kind, Offer
from mcpx.surfaces.modes.direct import Direct
from mcpx.surfaces.settings import Settings
from mcpx.surfaces.surface import Lasting, Surfaces

DIRECT = Direct(Surfaces("direct", Settings(), Lasting()))
EXTRA: Json = {"_meta": {"a": 1}, "requestState": "s", "inputResponses": {}, "future": [1]}


class Room:
    """Knows one of each: `srv` offers them under `pub-…`."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []

    async def page(self, kind: Kind, call: Call) -> Json:
        return {"page of": kind, "cursor": call.params.get("cursor")}

    def listed(self, surface: object, listed: Json) -> None:
        self.done.append(("listed", listed))

    async def find(self, kind: Kind, name: object) -> Offer:
        if name not in ("pub-x", "x:{id}"):
            raise NotFound(kind, str(name))
        return Offer(kind, "srv", f"own of {name}", str(name), {})

    async def call(self, offer: Offer, call: Call, params: Json) -> Json:
        self.done.append(("call", offer.server, params))
        return {"from": "call"}

    async def locate(self, uri: str) -> tuple[str, str] | None:
        return ("srv", f"own of {uri}") if uri == "pub:x" else None

    async def send(self, server: str, call: Call, params: Json) -> Json:
        self.done.append(("send", server, params))
        return {"from": "send"}

    async def subscribe(self, server: str, uri: str, call: Call) -> Json:
        self.done.append(("subscribe", server, uri))
        return {}

    async def unsubscribe(self, server: str, uri: str, call: Call) -> Json:
        self.done.append(("unsubscribe", server, uri))
        return {}


def routed(
    method: str, caller: Caller | None = None, **params: Any
) -> tuple[Json, list[tuple[Any, ...]]]:
    room = Room()
    return run(route(DIRECT, room, Call(method, params, caller or older_caller()))), room.done


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "templates"),
    ],
)
def test_a_list_is_a_page_of_the_view(method: str, kind: str) -> None:
    """SUR-1 and NAM-6."""
    assert routed(method, cursor="c")[0] == {"page of": kind, "cursor": "c"}


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
def test_a_name_becomes_the_servers_own_and_everything_else_stays(method: str) -> None:
    """SUR-1."""
    result, done = routed(method, name="pub-x", arguments={"name": "pub-x"}, **EXTRA)
    assert result == {"from": "call"}
    assert done == [
        ("call", "srv", {"name": "own of pub-x", "arguments": {"name": "pub-x"}, **EXTRA})
    ]
    with pytest.raises(NotFound):
        routed(method, name="hidden")


def test_a_uri_becomes_the_servers_own_and_everything_else_stays() -> None:
    """NAM-4."""
    result, done = routed("resources/read", uri="pub:x", **EXTRA)
    assert result == {"from": "send"}
    assert done == [("send", "srv", {"uri": "own of pub:x", **EXTRA})]
    assert routed("resources/subscribe", uri="pub:x")[1] == [("subscribe", "srv", "own of pub:x")]
    assert routed("resources/unsubscribe", uri="pub:x")[1] == [
        ("unsubscribe", "srv", "own of pub:x")
    ]


@pytest.mark.parametrize(
    "method", ["resources/read", "resources/subscribe", "resources/unsubscribe"]
)
def test_an_unknown_uri_is_told_in_the_callers_era(method: str) -> None:
    for caller, code in ((older_caller(), RESOURCE_NOT_FOUND), (modern_caller(), INVALID_PARAMS)):
        with pytest.raises(NotFound) as caught:
            routed(method, caller, uri="a:b")
        assert caught.value.code == code
        assert caught.value.data == {"uri": "a:b"}


@pytest.mark.parametrize("uri", [None, 5, [], {}])
def test_a_uri_that_is_no_string_is_a_mistake_in_the_params(uri: Any) -> None:
    with pytest.raises(RpcError) as caught:
        routed("resources/read", uri=uri)
    assert caught.value.code == INVALID_PARAMS


def test_completion_finds_prompts_templates_and_plain_uris() -> None:
    """PRO-2."""
    argument = {"name": "a", "value": "b"}
    for ref, done in (
        (
            {"type": "ref/prompt", "name": "pub-x", "title": "t"},
            ("call", {"name": "own of pub-x", "title": "t"}),
        ),
        ({"type": "ref/resource", "uri": "x:{id}"}, ("call", {"uri": "own of x:{id}"})),
        ({"type": "ref/resource", "uri": "pub:x"}, ("send", {"uri": "own of pub:x"})),
    ):
        [(how, server, params)] = routed(
            "completion/complete", ref=ref, argument=argument, **EXTRA
        )[1]
        assert (how, server) == (done[0], "srv")
        assert params == {"ref": {"type": ref["type"], **done[1]}, "argument": argument, **EXTRA}


@pytest.mark.parametrize(
    "ref",
    [
        None,
        [],
        "x",
        {},
        {"type": "ref/other"},
        {"type": "ref/resource"},
        {"type": "ref/resource", "uri": 5},
    ],
)
def test_a_reference_that_is_none_is_a_mistake_in_the_params(ref: Any) -> None:
    with pytest.raises(RpcError) as caught:
        routed("completion/complete", ref=ref)
    assert caught.value.code == INVALID_PARAMS


@pytest.mark.parametrize(
    "ref", [{"type": "ref/prompt", "name": "no"}, {"type": "ref/resource", "uri": "no:no"}]
)
def test_a_reference_to_nothing_is_not_found(ref: Json) -> None:
    with pytest.raises(NotFound):
        routed("completion/complete", ref=ref)


@pytest.mark.parametrize(
    "method", ["", "tools", "tools/Call", "sampling/createMessage", "__class__"]
)
def test_an_unknown_method_is_said_to_be_unknown(method: str) -> None:
    with pytest.raises(RpcError) as caught:
        routed(method)
    assert caught.value.code == METHOD_NOT_FOUND
    assert method not in ROUTES
