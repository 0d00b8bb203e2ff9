"""The FastAPI application put together: routes, errors, and the desk they work at.

Who may come in (`door`), the pages (`pages`) and how it is served (`server`) are not decided here.
"""

import asyncio
import gc
import importlib
import pkgutil
import re
from urllib.parse import unquote_to_bytes

import orjson
from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mcpx import __version__
from mcpx.admin import document, errors, routes
from mcpx.admin.desk import Desk
from mcpx.admin.live import Live
from mcpx.admin.routes.given import SLASH
from mcpx.wire import memory


def make(desk: Desk) -> FastAPI:
    app = FastAPI(
        title="mcpx admin API",
        version=__version__,
        openapi_url=None,  # ours is below
        docs_url=None,  # it would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.desk = desk
    app.state.live = Live(desk)
    app.add_middleware(SlashesInNames)
    errors.install(app)
    for router in routers():
        # Not `include_router`: it would make every route a second time, for the sake of what
        # routers have already.
        app.router.routes.extend(router.routes)
    document.install(app)
    app.add_route("/api/openapi.json", _Document(app).tell, include_in_schema=False)
    return app


class SlashesInNames:
    """A name in a path may hold a `/` (`%2F`), as many servers' names do; paths are taken apart
    without it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if scope["type"] == "http" and b"%2f" in raw.lower():
            path = re.sub(rb"(?i)%2f", SLASH.encode(), raw.partition(b"?")[0])
            scope = {**scope, "path": unquote_to_bytes(path).decode("utf-8", "replace")}
        await self._app(scope, receive, send)


class _Document:
    """What the API says of itself: made when somebody asks, in a thread, for it takes a second;
    kept as text, which is a tenth of what it is made of."""

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


def routers() -> list[APIRouter]:
    """One of each module in `routes`."""
    names = sorted(found.name for found in pkgutil.iter_modules(routes.__path__))
    modules = [importlib.import_module(f"{routes.__name__}.{name}") for name in names]
    return [module.router for module in modules if hasattr(module, "router")]
