"""All routes of the admin API, the document that describes them, and their common objects."""

from pathlib import Path

from mcpx import __version__
from mcpx.admin.api import Api, ApiRequest, Router
from mcpx.admin.calling import Calling
from mcpx.admin.desk import Desk
from mcpx.admin.errors import quoted
from mcpx.admin.events import Events
from mcpx.admin.routes import (
    access,
    approvals,
    auth_configs,
    commands,
    config,
    guarding,
    servers,
    tools,
    watching,
)
from mcpx.admin.toolbox import Toolbox, Weights
from mcpx.admin.watching import People

DOCUMENT = Path(__file__).with_name("openapi.json")
ROUTERS = [
    *(approvals.router, auth_configs.router, commands.router, config.router, guarding.router),
    *(servers.router, access.sessions, access.tokens, tools.router, watching.router),
]


class Live:
    """What the routes that watch and call share."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.people = People(desk)
        self.weights = Weights(desk.gateway)
        self.toolbox = Toolbox(desk, self.weights)
        self.calling = Calling(desk)
        self.events = Events(desk, self.people, self._etag)

    async def _etag(self) -> str:
        return quoted((await self._desk.store.look()).etag)

    async def close(self) -> None:
        await self.events.close()
        await self.calling.close()


def make(desk: Desk, live: Live) -> Api:
    document = Router("/api", "")
    document.get("/openapi.json")(_document)
    return Api((route for each in (*ROUTERS, document) for route in each.routes), desk, live)


async def _document(request: ApiRequest) -> bytes:
    text = DOCUMENT.read_bytes()
    return text.replace(b'"version": "0"', f'"version": "{__version__}"'.encode(), 1)
