"""The FastAPI application: its routes, and the document that describes them.

The document adds what the framework does not write: the shapes of events and errors.
"""

import asyncio
import gc
import importlib
import pkgutil
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from mcpx import __version__
from mcpx.admin import routes
from mcpx.admin.desk import Desk
from mcpx.admin.errors import Errors
from mcpx.admin.live import Live
from mcpx.admin.shapes.errors import ErrorAnswer
from mcpx.admin.shapes.events import EventShapes
from mcpx.admin.shapes.tools import CallEvents
from mcpx.admin.streaming import SCHEMA, STREAM
from mcpx.wire import memory


class AdminApi(FastAPI):
    """Without the framework's middleware: `Errors` handles every exception."""

    def build_middleware_stack(self) -> ASGIApp:
        return Errors(AsyncExitStackMiddleware(self.router))

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            _complete(super().openapi())
        return super().openapi()


def make(desk: Desk) -> AdminApi:
    app = AdminApi(
        title="mcpx admin API",
        version=__version__,
        openapi_url=None,  # `_Document` serves it.
        docs_url=None,  # It would load scripts of other sites.
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.desk = desk
    app.state.live = Live(desk)
    for router in _routers():
        # `include_router` would build every route a second time.
        app.router.routes.extend(router.routes)
    app.add_route("/api/openapi.json", _Document(app).tell, include_in_schema=False)
    return app


def _routers() -> list[APIRouter]:
    """One of each module in `routes`."""
    names = sorted(found.name for found in pkgutil.iter_modules(routes.__path__))
    modules = [importlib.import_module(f"{routes.__name__}.{name}") for name in names]
    return [module.router for module in modules if hasattr(module, "router")]


class _Document:
    """Built on the first request, in a thread, because it takes a second. Kept as text, which is a
    tenth of the objects' size."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._text = b""
        self._turn = asyncio.Lock()

    async def tell(self, request: Request) -> Response:
        async with self._turn:
            if not self._text:
                self._text = await asyncio.to_thread(self._make)
        return Response(self._text, media_type="application/json")

    def _make(self) -> bytes:
        text = orjson.dumps(self._app.openapi())
        self._app.openapi_schema = None
        gc.collect()
        memory.give_back(surely=True)
        return text


def _complete(document: dict[str, Any]) -> None:
    shapes = [EventShapes, CallEvents, ErrorAnswer]
    _, found = models_json_schema(
        [(shape, "serialization") for shape in shapes], ref_template=SCHEMA
    )
    schemas = document["components"]["schemas"]
    for name, schema in found["$defs"].items():
        for field in schema.get("properties", {}).values():
            if field.get("default", ...) is None:
                del field["default"]  # The framework omits it, too.
        schemas.setdefault(name, schema)
    operations = [each for path in document["paths"].values() for each in path.values()]
    for operation in operations:
        content = operation["responses"].get("200", {}).get("content", {})
        if STREAM in content and content.get("application/json") == {"schema": {}}:
            del content["application/json"]  # The route sends only events.
