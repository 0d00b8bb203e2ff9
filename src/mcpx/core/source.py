"""What stands behind the gateway, as the middle sees it: something that offers, and answers calls.

An upstream MCP server is one; whatever else comes to offer tools is another. Catalog, plan, view and relay know this
and nothing of connections.
"""

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from mcpx.model.call import Call, Caller, Json
from mcpx.model.offer import Offers
from mcpx.upstreams.life import Status


class Source(Protocol):
    name: str

    @property
    def enabled(self) -> bool: ...

    @property
    def prefix(self) -> str | None:
        """Put before its names."""
        ...

    @property
    def local(self) -> bool:
        """Whether it is no server: its tools keep their plain names, and nobody is told where they come from."""
        ...

    @property
    def cache_ttl(self) -> float | None:
        """Seconds a result of one of its read-only tools may be answered again; a tool may say so for itself."""
        ...

    @property
    def status(self) -> Status: ...

    @property
    def description(self) -> str: ...

    @property
    def instructions(self) -> str: ...

    @property
    def known(self) -> bool:
        """Whether it said itself what it offers, now or in an earlier run."""
        ...

    @property
    def settled(self) -> asyncio.Event:
        """Set once it is known what it offers, or that it cannot be known yet."""
        ...

    @property
    def offers_vary(self) -> bool: ...

    def offers(self, caller: Caller | None) -> Offers:
        """What this caller is offered; None asks for what everybody is."""
        ...

    async def introduced(self) -> None:
        """Wait, bounded, until it has said what it offers; one that is down is tried."""
        ...

    def call(self, call: Call, params: Json, *, repeatable: bool = False) -> Awaitable[Json]: ...

    async def subscribe(self, caller: Caller, uri: str, params: Json) -> Json: ...

    async def unsubscribe(self, caller: Caller, uri: str, params: Json) -> Json: ...
