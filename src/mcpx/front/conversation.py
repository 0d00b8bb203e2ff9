"""One client on a carrier that keeps messages in order: stdio, WebSocket, HTTP+SSE.

Both eras on one carrier, told apart message by message: a modern request brings its own envelope,
an older one belongs to the session that `initialize` began.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from mcpx.front.audience import ListenStream, Session
from mcpx.front.dispatch import Dispatcher
from mcpx.front.notices import DROPPABLE, Notice
from mcpx.front.visitor import Visitor
from mcpx.model.call import Caller, Json
from mcpx.model.errors import INVALID_REQUEST, METHOD_NOT_FOUND, RpcError
from mcpx.wire import era, jsonrpc
from mcpx.wire.peer import Peer


class ClientConversation:
    """Implements `wire.peer.Inbound` for a client and `model.call.Voice` towards it."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        transmit: Callable[[bytes], None],
        *,
        visitor: Visitor,
        solo: bool = False,
        mode: str | None = None,
        carrier: str = "stdio",
        congested: Callable[[], bool] = lambda: False,
        id: str | None = None,
        on_first: Callable[[Caller], None] = lambda caller: None,
        on_shutdown: Callable[[], None] = lambda: None,
    ) -> None:
        self._dispatcher = dispatcher
        self.visitor = visitor
        self._solo = solo
        self._mode = mode
        self._carrier = carrier
        self._congested = congested
        self._on_first = on_first
        self._on_shutdown = on_shutdown
        self._greeted = False
        self._begun = False
        self._ending = asyncio.Event()
        self.session = Session(self._push, id)
        self.peer = Peer("client", transmit, self, answer_garbage=True, identify=True)

    # What the client says
    # --------------------------------------------------------------------------------------

    def request(self, message: Json) -> Coroutine[Any, Any, Json]:
        tracker = self._dispatcher.tracker
        if tracker is None:
            return self._request(message)
        return tracker.follow(message, None, self._carrier, self._request(message))

    async def _request(self, message: Json) -> Json:
        admission = self._dispatcher.admission
        admission.enter()
        try:
            return await self._answer(message)
        finally:
            admission.leave()

    async def _answer(self, message: Json) -> Json:
        if era.is_modern_message(message):
            return await self._modern(message)
        method = message["method"]
        if method == "initialize":
            return self._initialize(jsonrpc.params_of(message))
        if method == "shutdown":
            # The reply must be on its way before the end begins.
            asyncio.get_running_loop().call_soon(self._on_shutdown)
            return {}
        if not self._greeted and method != "ping":
            raise RpcError(INVALID_REQUEST, "the conversation begins with initialize")
        return await self._dispatcher.serve_older(message, self.session)

    def _initialize(self, params: Json) -> Json:
        if self._greeted:
            raise RpcError(INVALID_REQUEST, "initialize was already answered")
        reply = self._dispatcher.greet(
            params, self.session, self.visitor, self, solo=self._solo, mode=self._mode
        )
        self._greeted = True
        self._dispatcher.audience.join(self.session)
        self._begin(self.session.caller)
        return reply

    async def _modern(self, message: Json) -> Json:
        era.check_envelope(message, None)
        caller = self._dispatcher.modern_caller(
            message, self.visitor, self, solo=self._solo, mode=self._mode
        )
        self._begin(caller)
        if message["method"] == "subscriptions/listen":
            stream = ListenStream(
                message["id"], message["params"].get("notifications"), self.tell, caller
            )
            return await self._dispatcher.listen(stream, caller, self._ending)
        return await self._dispatcher.serve_modern(message, caller)

    def _begin(self, caller: Caller) -> None:
        if not self._begun:
            self._begun = True
            self._on_first(caller)

    def notification(self, method: str, params: Json) -> None:
        if self._greeted:
            self._dispatcher.notification(self.session, method, params)

    def closed(self, reason: str) -> None:
        self._dispatcher.audience.leave(self.session)

    async def finish(self, grace: float) -> None:
        """Let what is being answered finish; listeners, which never would, are told that it is
        over."""
        self._ending.set()
        await self.peer.finish(grace)

    async def close(self) -> None:
        await self.peer.close()
        await self._dispatcher.leave(self.session)

    # What is said to the client
    # --------------------------------------------------------------------------------

    async def ask(self, server: str, method: str, params: Json | None) -> Json:
        if not self._dispatcher.gateway.access.knows(self.session.caller, server):
            raise RpcError(METHOD_NOT_FOUND, f"nobody here can be asked {method}")
        return await self.peer.request(method, params, id=self.session.question_id(server))

    def tell(self, method: str, params: Json) -> None:
        if method in DROPPABLE and self._congested():
            return
        self.peer.notify(method, params or None)

    def _push(self, notice: Notice) -> None:
        if (parcel := notice.parcel) is not None and not (parcel.droppable and self._congested()):
            self.peer.send_encoded(parcel.data)

    def pause(self, retry_ms: int) -> None:
        """There is one stream for everything here; it has no pauses."""
