"""All routes of the admin API, and the document that describes them."""

from pathlib import Path

from mcpx import __version__
from mcpx.admin.api import Api, ApiRequest, Router
from mcpx.admin.desk import Desk
from mcpx.admin.live import Live
from mcpx.admin.routes import (
    approvals,
    auth_configs,
    commands,
    config,
    guarding,
    servers,
    session,
    tokens,
    tools,
    watching,
)

DOCUMENT = Path(__file__).with_name("openapi.json")
ROUTERS = [
    each.router
    for each in (
        approvals,
        auth_configs,
        commands,
        config,
        guarding,
        servers,
        session,
        tokens,
        tools,
        watching,
    )
]


def make(desk: Desk, live: Live) -> Api:
    document = Router("/api", "")
    document.get("/openapi.json")(_document)
    return Api((route for each in (*ROUTERS, document) for route in each.routes), desk, live)


async def _document(request: ApiRequest) -> bytes:
    text = DOCUMENT.read_bytes()
    return text.replace(b'"version": "0"', f'"version": "{__version__}"'.encode(), 1)
