"""The FastAPI application put together: routes, errors, and the desk they work at.

Who may come in (`door`), the pages (`pages`) and how it is served (`server`) are not decided here.
"""

import importlib
import pkgutil
import re
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from mcpx import __version__
from mcpx.admin import errors, routes
from mcpx.admin.desk import Desk
from mcpx.admin.live import Live
from mcpx.admin.routes.given import SLASH


def make(desk: Desk) -> FastAPI:
    app = FastAPI(
        title="mcpx admin API",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,  # it would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses=errors.responses(*errors.ALWAYS),
    )
    app.state.desk = desk
    app.state.live = Live(desk)
    app.add_middleware(SlashesInNames)
    errors.install(app)
    for router in routers():
        app.include_router(router)
    return app


class SlashesInNames:
    """A name in a path may hold a `/` (`%2F`), as many servers' names do; paths are taken apart without it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if scope["type"] == "http" and b"%2f" in raw.lower():
            path = re.sub(rb"(?i)%2f", SLASH.encode(), raw.partition(b"?")[0])
            scope = {**scope, "path": unquote_to_bytes(path).decode("utf-8", "replace")}
        await self._app(scope, receive, send)


def routers() -> list[APIRouter]:
    """One of each module in `routes`."""
    names = sorted(found.name for found in pkgutil.iter_modules(routes.__path__))
    modules = [importlib.import_module(f"{routes.__name__}.{name}") for name in names]
    return [module.router for module in modules if hasattr(module, "router")]
