"""The method table: what each MCP method does with a view. One row per method."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from mcpx.model.call import Call, Json, as_object
from mcpx.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, NotFound, RpcError
from mcpx.model.offer import Kind, Offer
from mcpx.surfaces.surface import Surface
from mcpx.surfaces.view import View


class Room(View, Protocol):
    """A view that also reaches what no surface needs: subscriptions."""

    async def subscribe(self, server: str, uri: str, call: Call) -> Json: ...

    async def unsubscribe(self, server: str, uri: str, call: Call) -> Json: ...


async def route(surface: Surface, room: Room, call: Call) -> Json:
    row = ROUTES.get(call.method)
    if row is None:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {call.method}")
    return await row(surface, room, call)


async def _list_tools(surface: Surface, room: Room, call: Call) -> Json:
    return await surface.list_tools(room, call)


async def _call_tool(surface: Surface, room: Room, call: Call) -> Json:
    return await surface.call_tool(room, call)


def _lists(kind: Kind, key: str) -> "Row":
    async def row(surface: Surface, room: Room, call: Call) -> Json:
        found, following = await room.page(kind, call)
        return {key: found} if following is None else {key: found, "nextCursor": following}

    return row


async def _get_prompt(surface: Surface, room: Room, call: Call) -> Json:
    offer = await room.find("prompts", call.params.get("name"))
    return await room.call(offer, call, {**call.params, "name": offer.name})


async def _read_resource(surface: Surface, room: Room, call: Call) -> Json:
    server, uri = await _located(room, call)
    return await room.send(server, call, {**call.params, "uri": uri})


async def _subscribe(surface: Surface, room: Room, call: Call) -> Json:
    server, uri = await _located(room, call)
    return await room.subscribe(server, uri, call)


async def _unsubscribe(surface: Surface, room: Room, call: Call) -> Json:
    server, uri = await _located(room, call)
    return await room.unsubscribe(server, uri, call)


async def _located(room: Room, call: Call) -> tuple[str, str]:
    uri = call.params.get("uri")
    if not isinstance(uri, str):
        raise RpcError(INVALID_PARAMS, "params.uri must be a string")
    found = await room.locate(uri)
    if found is None:
        raise NotFound("resource", uri, INVALID_PARAMS if call.caller.modern else RESOURCE_NOT_FOUND)
    return found


async def _complete(surface: Surface, room: Room, call: Call) -> Json:
    ref = as_object(call.params.get("ref"))
    if ref.get("type") == "ref/prompt":
        offer: Offer = await room.find("prompts", ref.get("name"))
        return await room.call(offer, call, {**call.params, "ref": {**ref, "name": offer.name}})
    if ref.get("type") == "ref/resource" and isinstance(uri := ref.get("uri"), str):
        try:
            offer = await room.find("templates", uri)
            return await room.call(offer, call, {**call.params, "ref": {**ref, "uri": offer.name}})
        except NotFound:
            found = await room.locate(uri)
            if found is None:
                raise
            return await room.send(found[0], call, {**call.params, "ref": {**ref, "uri": found[1]}})
    raise RpcError(INVALID_PARAMS, "params.ref must be a ref/prompt or a ref/resource")


Row = Callable[[Surface, Room, Call], Awaitable[Json]]

ROUTES: dict[str, Row] = {
    "tools/list": _list_tools,
    "tools/call": _call_tool,
    "prompts/list": _lists("prompts", "prompts"),
    "prompts/get": _get_prompt,
    "resources/list": _lists("resources", "resources"),
    "resources/templates/list": _lists("templates", "resourceTemplates"),
    "resources/read": _read_resource,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "completion/complete": _complete,
}
