"""The method table: what each MCP method does with a view. One row per method."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from mcpx.model.call import Call, Json, as_object
from mcpx.model.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    NotFound,
    RpcError,
)
from mcpx.model.offer import Kind, Offer
from mcpx.surfaces.surface import Surface
from mcpx.surfaces.view import View


class WholeView(View, Protocol):
    """A view that also reaches what no surface needs: subscriptions, and what is told of lists."""

    def listed(self, surface: Surface, listed: Json) -> None: ...

    def subscribe(self, server: str, uri: str, call: Call) -> Awaitable[Json]: ...

    def unsubscribe(self, server: str, uri: str, call: Call) -> Awaitable[Json]: ...


def route(surface: Surface, view: WholeView, call: Call) -> Awaitable[Json]:
    """Not a coroutine of its own, as little as the rows below that only hand on: each would cost
    every call."""
    row = ROUTES.get(call.method)
    if row is None:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {call.method}")
    return row(surface, view, call)


async def _list_tools(surface: Surface, view: WholeView, call: Call) -> Json:
    listed = await surface.list_tools(view, call)
    view.listed(surface, listed)
    return listed


def _call_tool(surface: Surface, view: WholeView, call: Call) -> Awaitable[Json]:
    return surface.call_tool(view, call)


def _lists(kind: Kind) -> "Row":
    def row(surface: Surface, view: WholeView, call: Call) -> Awaitable[Json]:
        return view.page(kind, call)

    return row


async def _get_prompt(surface: Surface, view: WholeView, call: Call) -> Json:
    offer = await view.find("prompts", call.params.get("name"))
    return await view.call(offer, call, {**call.params, "name": offer.name})


async def _read_resource(surface: Surface, view: WholeView, call: Call) -> Json:
    server, uri = await _located(view, call)
    return await view.send(server, call, {**call.params, "uri": uri})


async def _subscribe(surface: Surface, view: WholeView, call: Call) -> Json:
    server, uri = await _located(view, call)
    return await view.subscribe(server, uri, call)


async def _unsubscribe(surface: Surface, view: WholeView, call: Call) -> Json:
    server, uri = await _located(view, call)
    return await view.unsubscribe(server, uri, call)


async def _located(view: WholeView, call: Call) -> tuple[str, str]:
    uri = call.params.get("uri")
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "params.uri must be a string")
    found = await view.locate(uri)
    if found is None:
        raise NotFound(
            "resource", uri, INVALID_PARAMS if call.caller.modern else RESOURCE_NOT_FOUND
        )
    return found


async def _complete(surface: Surface, view: WholeView, call: Call) -> Json:
    ref = as_object(call.params.get("ref"))
    if ref.get("type") == "ref/prompt":
        offer: Offer = await view.find("prompts", ref.get("name"))
        return await view.call(offer, call, {**call.params, "ref": {**ref, "name": offer.name}})
    if ref.get("type") == "ref/resource" and isinstance(uri := ref.get("uri"), str):
        try:
            offer = await view.find("templates", uri)
            return await view.call(offer, call, {**call.params, "ref": {**ref, "uri": offer.name}})
        except NotFound:
            found = await view.locate(uri)
            if found is None:
                raise
            return await view.send(found[0], call, {**call.params, "ref": {**ref, "uri": found[1]}})
    raise RpcError(INVALID_PARAMS, "params.ref must be a ref/prompt or a ref/resource")


Row = Callable[[Surface, WholeView, Call], Awaitable[Json]]

ROUTES: dict[str, Row] = {
    "tools/list": _list_tools,
    "tools/call": _call_tool,
    "prompts/list": _lists("prompts"),
    "prompts/get": _get_prompt,
    "resources/list": _lists("resources"),
    "resources/templates/list": _lists("templates"),
    "resources/read": _read_resource,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "completion/complete": _complete,
}
