"""Where requests come in that other replicas hand over: a port of its own, for whoever has papers and nobody else."""

import logging
from collections.abc import Callable

from mcpx.front.neighbours.papers import PAPER, Papers
from mcpx.front.visitor import Visitor
from mcpx.wire.exchange import Exchange
from mcpx.wire.http_server import HttpServer, Limits

log = logging.getLogger(__name__)


class Door:
    def __init__(self, papers: Papers, enter: Callable[[Exchange, Visitor], None], limits: Limits) -> None:
        """`enter`: answers a request of a visitor that another replica let in."""
        self._papers = papers
        self._enter = enter
        self._server = HttpServer(self._handle, limits, self._forestall)

    async def open(self, host: str, port: int) -> int:
        """The port. Raises OSError."""
        return await self._server.start(host, port)

    async def close(self, grace: float) -> None:
        await self._server.close(grace)

    def _visitor(self, exchange: Exchange) -> Visitor | None:
        return self._papers.read(exchange.headers.first.get(PAPER.encode()))

    def _forestall(self, exchange: Exchange) -> int | None:
        return 403 if self._visitor(exchange) is None else None

    def _handle(self, exchange: Exchange) -> None:
        visitor = self._visitor(exchange)
        if visitor is None:
            exchange.reply(403, b"this port is for replicas of this gateway", "text/plain")
        else:
            self._enter(exchange, visitor)
