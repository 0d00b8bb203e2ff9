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
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, cast, get_args, get_origin
from typing import get_type_hints as type_hints
from urllib.parse import parse_qsl

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

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
_MISSING: Final = inspect.Parameter.empty

Handler = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class ApiRequest:
    """An authenticated request, and the head of its response."""

    desk: "Desk"
    live: "Live"
    door: "Door"
    entry: "Entry"
    body: Any = _MISSING
    """Parsed JSON."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """The client has disconnected, or has lost its access."""
    status: int | None = None
    """Of the response, if it is not the status of the route."""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Of the response."""

    @property
    def wants_events(self) -> bool:
        return EventStream.media_type in (self.entry.request.headers.get("accept") or "")


class _Parameter(NamedTuple):
    name: str
    source: str
    alias: str
    adapter: TypeAdapter[Any]
    default: Any

    def value(self, request: ApiRequest, texts: dict[str, dict[str, str]]) -> Any:
        """Raises _Invalid."""
        given: Any
        if self.source == BODY:
            given, location = request.body, (BODY,)
        elif self.source == HEADER:
            header = request.entry.request.headers.get(self.alias)
            given, location = _MISSING if header is None else header, (HEADER, self.alias)
        else:
            given = texts[self.source].get(self.alias, _MISSING)
            location = (self.source, self.alias)
        if given is _MISSING:
            if self.default is _MISSING:
                raise _Invalid([{"path": field_path(location), "message": "Field required"}])
            return self.default
        try:
            return self.adapter.validate_python(given)
        except ValidationError as error:
            raise _Invalid(
                {"path": field_path((*location, *each["loc"])), "message": each["msg"]}
                for each in error.errors(include_url=False, include_input=False)
            ) from None


class Query(NamedTuple):
    """Metadata of a parameter with another name in the query."""

    name: str


class _Group(NamedTuple):
    """A dataclass of several parameters."""

    name: str
    build: Callable[..., Any]
    members: "list[_Parameter | _Group]"


class _Invalid(Exception):
    def __init__(self, mistakes: Iterable[dict[str, Any]]) -> None:
        super().__init__()
        self.mistakes = list(mistakes)


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
    def _parameters(self) -> list[_Parameter | _Group]:
        return sorted(_parameters(self.handler, self.path), key=_place)

    async def call(self, request: ApiRequest, names: dict[str, str]) -> Any:
        texts = {"path": names, "query": {}}
        if request.entry.request.query:
            texts["query"] = dict(parse_qsl(request.entry.request.query, keep_blank_values=True))
        mistakes: list[dict[str, Any]] = []
        values = _values(self._parameters, request, texts, mistakes)
        if mistakes:
            first = mistakes[0]
            raise ApiError(422, None, first["message"], first["path"], errors=mistakes)
        return await self.handler(request, **values)


def _values(
    parameters: list[_Parameter | _Group],
    request: ApiRequest,
    texts: dict[str, dict[str, str]],
    mistakes: list[dict[str, Any]],
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for each in parameters:
        if isinstance(each, _Group):
            members = _values(each.members, request, texts, mistakes)
            if not mistakes:
                values[each.name] = each.build(**members)
            continue
        try:
            values[each.name] = each.value(request, texts)
        except _Invalid as invalid:
            mistakes += invalid.mistakes
    return values


def _place(parameter: _Parameter | _Group) -> int:
    if isinstance(parameter, _Group):
        return SOURCES.index("query")
    return SOURCES.index(parameter.source)


def _parameters(function: Callable[..., Any], path: str) -> Iterator[_Parameter | _Group]:
    hints = type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        if hint is ApiRequest:
            continue
        if is_dataclass(hint) and isinstance(hint, type):
            yield _Group(parameter.name, hint, list(_parameters(hint, path)))
            continue
        source, alias = source_of(parameter.name, hint, path)
        adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, hint))
        yield _Parameter(parameter.name, source, alias, adapter, parameter.default)


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
