"""What the routes that watch and call share, and what of it has an end."""

from functools import cached_property

from mcpx.admin.calling import Calling
from mcpx.admin.desk import Desk
from mcpx.admin.events import Events
from mcpx.admin.people import People
from mcpx.admin.toolbox import Toolbox
from mcpx.admin.weights import Weights
from mcpx.admin.wording import quoted


class Live:
    """Made with the application; each part when it is first needed."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @cached_property
    def people(self) -> People:
        return People(self._desk)

    @cached_property
    def weights(self) -> Weights:
        return Weights(self._desk.gateway)

    @cached_property
    def toolbox(self) -> Toolbox:
        return Toolbox(self._desk.gateway, self.weights)

    @cached_property
    def calling(self) -> Calling:
        return Calling(self._desk)

    @cached_property
    def events(self) -> Events:
        return Events(self._desk, self.people, self.etag)

    async def etag(self) -> str:
        """Of the configuration as it is written."""
        return quoted((await self._desk.store.look()).etag)

    def end_streams(self) -> None:
        """The end is near: whoever listens is let go, in order."""
        if "events" in vars(self):
            self.events.end_streams()

    async def close(self) -> None:
        if "events" in vars(self):
            await self.events.close()
        if "calling" in vars(self):
            await self.calling.close()
