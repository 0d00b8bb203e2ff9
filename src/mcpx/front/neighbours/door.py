"""The port on which a replica accepts requests of clients from the other replicas of its store."""

import logging
from collections.abc import Callable

from mcpx.front.neighbours.papers import PAPER, Papers
from mcpx.front.visitor import Visitor
from mcpx.replicas import channel
from mcpx.replicas.seals import Seals
from mcpx.wire.exchange import Exchange
from mcpx.wire.http_server import HttpServer, Limits

log = logging.getLogger(__name__)


class Door:
    def __init__(
        self,
        papers: Papers,
        seals: Seals,
        me: str,
        enter: Callable[[Exchange, Visitor], None],
        limits: Limits,
    ) -> None:
        """`enter` handles a request that another replica has forwarded. `me` is the id of this
        replica."""
        self._papers = papers
        self._enter = enter
        self._server = HttpServer(self._handle, limits, secure=channel.accepting(seals, me))

    async def open(self, host: str, port: int) -> int:
        """The port. Raises OSError."""
        return await self._server.start(host, port)

    async def close(self, grace: float) -> None:
        await self._server.close(grace)

    def _handle(self, exchange: Exchange) -> None:
        visitor = self._papers.read(exchange.headers.first.get(PAPER.encode()))
        if visitor is None:
            exchange.reply(400, b"the identity of the client is missing", "text/plain")
        else:
            self._enter(exchange, visitor)
