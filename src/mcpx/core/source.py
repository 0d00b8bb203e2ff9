"""What stands behind the gateway, as the middle sees it: something that offers, and answers calls.

An upstream MCP server is one; whatever else comes to offer tools is another. Catalog, plan, view
and relay know this and nothing of connections.
"""

import asyncio
from collections.abc import Awaitable, Hashable
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
        """Whether it is no server: its tools keep their plain names, and nobody is told where they
        come from."""
        ...

    @property
    def pinned(self) -> bool:
        """Whether something that it offers may be held back, and be called no more (SEC-5)."""
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
    def offered(self) -> bool:
        """Whether it ever had anything to offer, be it not there any more or held back."""
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

    def cache_ttl_of(self, name: str) -> float | None:
        """Seconds an answer of a read-only tool may be given again; None: never."""
        ...

    def answering(self, name: str) -> Hashable:
        """What answers calls of a tool: the same as long as nothing about it is configured
        otherwise."""
        ...

    def shares(self, caller: Caller) -> bool:
        """Whether others who are like this caller would be answered the same: nothing of its own is
        asked for."""
        ...

    async def introduced(self) -> None:
        """Wait, bounded, until it has said what it offers; one that is down is tried."""
        ...

    def call(self, call: Call, params: Json, *, repeatable: bool = False) -> Awaitable[Json]: ...

    async def subscribe(self, caller: Caller, uri: str, params: Json) -> Json: ...

    async def unsubscribe(self, caller: Caller, uri: str, params: Json) -> Json: ...
