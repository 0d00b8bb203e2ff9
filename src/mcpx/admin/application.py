"""The FastAPI application put together: routes, errors, and the desk they work at.

Who may come in (`door`), the pages (`pages`) and how it is served (`server`) are not decided here.
"""

import importlib
import pkgutil

from fastapi import APIRouter, FastAPI

from mcpx import __version__
from mcpx.admin import document, errors, routes
from mcpx.admin.desk import Desk
from mcpx.admin.live import Live


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
    errors.install(app)
    for router in routers():
        app.include_router(router)
    document.install(app)
    return app


def routers() -> list[APIRouter]:
    """One of each module in `routes`."""
    names = sorted(found.name for found in pkgutil.iter_modules(routes.__path__))
    modules = [importlib.import_module(f"{routes.__name__}.{name}") for name in names]
    return [module.router for module in modules if hasattr(module, "router")]
