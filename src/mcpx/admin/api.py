"""HTTP routes of the admin API.

A route is an async function of an `ApiRequest` and of parameters, which are read from the request:
the names of the path template from the path, those marked `HEADER` from a header, pydantic models
and those marked `BODY` from the JSON body, the fields of a dataclass from any of these, and all
others from the query. pydantic converts and checks each value.

The result is a pydantic model, another JSON value, JSON text as bytes, an event stream, or None for
an empty response. `scripts/openapi.py` writes the document of all routes.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field, is_dataclass
from functools import cached_property, partialmethod
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_args, get_origin
from typing import get_type_hints as type_hints
from urllib.parse import parse_qsl

import orjson
from pydantic import BaseModel, ValidationError, create_model

from mcpx.admin.errors import ApiError, error_of, field_path
from mcpx.admin.pages import Headers, Reply, error_reply
from mcpx.admin.streaming import EventStream
from mcpx.base.aio import Tasks
from mcpx.wire.exchange import Exchange

if TYPE_CHECKING:
    from mcpx.admin.application import Live
    from mcpx.admin.desk import Desk
    from mcpx.admin.door import Door, Entry

log = logging.getLogger(__name__)

HEADER: Final = "header"
BODY: Final = "body"
"""Metadata of an annotated parameter."""
SOURCES: Final = ("path", "query", HEADER, BODY)
"""In the order in which their mistakes are reported."""

Handler = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class ApiRequest:
    """An authenticated request, and the head of its response."""

    desk: "Desk"
    live: "Live"
    door: "Door"
    entry: "Entry"
    body: Any = None
    """Parsed JSON. None: there was none."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """The client has disconnected, or has lost its access."""
    status: int | None = None
    """Of the response, if it is not the status of the route."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Of the response."""

    @property
    def wants_events(self) -> bool:
        return EventStream.media_type in (self.entry.request.headers.get("accept") or "")


class Query(NamedTuple):
    """Metadata of a parameter with another name in the query."""

    name: str


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    """With names in braces."""
    tag: str
    handler: Handler
    errors: tuple[int, ...]
    """Statuses of errors, beside those of every route."""
    status: int
    model: Any
    """Of the response, for the document, if the handler does not return it."""
    events: tuple[type[BaseModel], str] | None
    """The data of its events by their names, and a description."""

    @cached_property
    def _parameters(self) -> "_Parameters":
        return _Parameters(self.handler, self.path)

    async def call(self, request: ApiRequest, names: dict[str, str]) -> Any:
        return await self.handler(request, **self._parameters.read(request, names))


class _Parameters:
    """The parameters of a handler. A pydantic model checks all of them together."""

    def __init__(self, handler: Handler, path: str) -> None:
        self._sources: dict[str, tuple[str, str]] = {}
        """The source of each parameter, and its name there."""
        self._groups: dict[str, tuple[type, list[str]]] = {}
        """The dataclass and the fields of each parameter that is one."""
        fields: dict[str, Any] = {}
        for group, hint, parameter in _flat(handler):
            name = parameter.name
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = hint, default
            self._sources[name] = source_of(name, hint, path)
            if group is not None:
                self._groups.setdefault(group[0], (group[1], []))[1].append(name)
        order = sorted(fields, key=lambda name: SOURCES.index(self._sources[name][0]))
        self._model: type[BaseModel] = create_model(
            "Parameters", **{name: fields[name] for name in order}
        )

    def read(self, request: ApiRequest, names: dict[str, str]) -> dict[str, Any]:
        """Raises ApiError."""
        sent = request.entry.request
        sources: dict[str, Any] = {"path": names, HEADER: sent.headers, "query": {}, BODY: {}}
        if sent.query:
            sources["query"] = dict(parse_qsl(sent.query, keep_blank_values=True))
        given: dict[str, Any] = {}
        for name, (source, alias) in self._sources.items():
            value = request.body if source == BODY else sources[source].get(alias)
            if value is not None:
                given[name] = value
        try:
            values = vars(self._model.model_validate(given))
        except ValidationError as error:
            raise self._refusal(error) from None
        for name, (build, members) in self._groups.items():
            values[name] = build(**{member: values.pop(member) for member in members})
        return values

    def _refusal(self, error: ValidationError) -> ApiError:
        mistakes: list[dict[str, Any]] = []
        for each in error.errors(include_url=False, include_input=False):
            name, *rest = each["loc"]
            source, alias = self._sources[str(name)]
            location = [source] if source == BODY else [source, alias]
            mistakes.append({"path": field_path([*location, *rest]), "message": each["msg"]})
        first = mistakes[0]
        return ApiError(422, None, first["message"], first["path"], errors=mistakes)


def _flat(
    handler: Callable[..., Any],
) -> Iterator[tuple[tuple[str, type] | None, Any, inspect.Parameter]]:
    """The parameters and the fields of those that are dataclasses."""
    hints = type_hints(handler, include_extras=True)
    for parameter in inspect.signature(handler).parameters.values():
        hint = hints[parameter.name]
        if is_dataclass(hint) and isinstance(hint, type) and hint is not ApiRequest:
            for _, inner, field in _flat(hint):
                yield (parameter.name, hint), inner, field
        elif hint is not ApiRequest:
            yield None, hint, parameter


def source_of(name: str, hint: Any, path: str) -> tuple[str, str]:
    """Where a parameter is read from, and under which name."""
    metadata: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *metadata = get_args(hint)  # pyright: ignore[reportAssignmentType]
    if HEADER in metadata:
        return HEADER, name.replace("_", "-")
    is_model = any(
        isinstance(each, type) and issubclass(each, BaseModel) for each in _members(hint)
    )
    if BODY in metadata or is_model:
        return BODY, name
    if f"{{{name}}}" in path:
        return "path", name
    return "query", next((each.name for each in metadata if isinstance(each, Query)), name)


def _members(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    if isinstance(hint, type):
        return (hint,)
    return get_args(hint)


class Router:
    """The routes of one subject."""

    def __init__(self, prefix: str, tag: str) -> None:
        self.prefix = prefix
        self.tag = tag
        self.routes: list[Route] = []

    def add(
        self,
        method: str,
        path: str,
        *errors: int,
        status: int = 200,
        model: Any = None,
        events: tuple[type[BaseModel], str] | None = None,
    ) -> Callable[[Handler], Handler]:
        def added(handler: Handler) -> Handler:
            route = Route(
                method, self.prefix + path, self.tag, handler, errors, status, model, events
            )
            self.routes.append(route)
            return handler

        return added

    get = partialmethod(add, "GET")
    post = partialmethod(add, "POST")
    put = partialmethod(add, "PUT")
    patch = partialmethod(add, "PATCH")
    delete = partialmethod(add, "DELETE")


class Api:
    """Finds the route of each request, and runs it in a task."""

    def __init__(self, routes: Iterable[Route], desk: "Desk", live: "Live") -> None:
        self.tasks = Tasks("admin requests")
        self._desk = desk
        self._live = live
        self._paths: dict[int, list[tuple[list[str], dict[str, Route]]]] = {}
        """Methods of each path template, by its number of segments. Fixed names come first."""
        for route in sorted(routes, key=lambda route: route.path.replace("{", "~")):
            template = route.path.split("/")
            known = self._paths.setdefault(len(template), [])
            methods = next((methods for path, methods in known if path == template), None)
            if methods is None:
                methods = dict[str, Route]()
                known.append((template, methods))
            methods[route.method] = route

    def begin(
        self,
        exchange: Exchange,
        door: "Door",
        entry: "Entry",
        body: Any,
        more: Headers,
        on_end: Callable[[asyncio.Event], object],
    ) -> asyncio.Event:
        """Return the event that ends the request. `on_end` is called with it after the response.

        `more` are headers of each response that does not set them itself.
        """
        request = ApiRequest(self._desk, self._live, door, entry, body)
        exchange.on_disconnect = request.gone.set
        self.tasks.start(self._run(exchange, request, more, on_end), apart=True)
        return request.gone

    async def _run(
        self,
        exchange: Exchange,
        request: ApiRequest,
        more: Headers,
        on_end: Callable[[asyncio.Event], object],
    ) -> None:
        try:
            reply = await self._answer(exchange, request)
            log.debug("admin: %s %s: %d", exchange.method, exchange.path, reply.status)
            if isinstance(reply, EventStream):
                await reply.send(exchange, more, request.gone)
            else:
                reply.send(exchange, more)
        finally:
            exchange.abort()  # Without effect after a complete response.
            on_end(request.gone)

    async def _answer(self, exchange: Exchange, request: ApiRequest) -> "Reply | EventStream":
        try:
            route, names = self._find(exchange.method, request.entry.request.segments)
            result = await route.call(request, names)
        except Exception as error:  # noqa: BLE001 - it is logged if it is not expected
            return error_reply(error_of(error, exchange.method, exchange.path))
        if isinstance(result, EventStream):
            return result
        status = request.status or route.status
        if result is None:
            return Reply(status, headers=request.headers)
        return Reply(status, _encoded(result), "application/json", request.headers)

    def _find(self, method: str, segments: list[str]) -> tuple[Route, dict[str, str]]:
        allowed: set[str] = set()
        for template, methods in self._paths.get(len(segments), ()):
            names: dict[str, str] = {}
            for part, segment in zip(template, segments, strict=True):
                if part[:1] == "{":
                    names[part[1:-1]] = segment
                elif part != segment:
                    break
            else:
                if method in methods:
                    return methods[method], names
                allowed |= methods.keys()
        if allowed:
            headers = {"allow": ", ".join(sorted(allowed))}
            raise ApiError(405, None, "this path does not know that method", headers=headers)
        raise ApiError(404, None, "there is no such path")


def _encoded(result: Any) -> bytes:
    if isinstance(result, BaseModel):
        return result.model_dump_json().encode()
    if isinstance(result, bytes):
        return result
    return orjson.dumps(result)
