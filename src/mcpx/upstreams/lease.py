"""One call's hold on a link: taken before the call is sent, closed when it is over.

While it lasts, what the server says about the call goes to whoever made it, and a question on the
link belongs to the client that holds leases there, or to nobody. A lease that did not end cleanly
(cancelled, timed out) leaves the link *haunted*: the server may still work on that call and ask
about it, so no other client is lent that link.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from mcpx.model.call import Call, Caller, Json
from mcpx.model.errors import METHOD_NOT_FOUND, SERVER_TIMEOUT, RpcError, Unavailable
from mcpx.upstreams.traits import QUESTIONS, ROOTS, is_task, task_refused
from mcpx.wire import era

if TYPE_CHECKING:
    from mcpx.upstreams.bridges import Parked
    from mcpx.upstreams.link import Link

PROGRESS: Final = "notifications/progress"


def client_of(caller: Caller) -> object:
    """What tells one client from another. A modern one over HTTP has no session: each of its calls
    stands alone."""
    if caller.solo:
        return "solo"
    return caller.session or caller.voice or object()


def marked(params: Json, server: str) -> Json:
    """`params` with the name of the server it came from (PRO-4)."""
    return {**params, "_meta": {**era.meta_of(params), "proxy": {"server": server}}}


class Lease:
    """Implements `wire.peer.Meanwhile`."""

    __slots__ = ("call", "client", "link", "parked")

    def __init__(
        self, link: "Link", call: Call, client: object, parked: "Parked | None" = None
    ) -> None:
        self.link = link
        self.call = call
        self.client = client
        self.parked = parked
        """Set where the client gets questions as results and comes back with the answers."""
        link.hold(self)

    @property
    def askable(self) -> bool:
        """Whether a question can reach its client before it is answered; by a completion of a
        modern one, none can."""
        return not self.parked.over if self.parked is not None else not self.call.caller.modern

    async def run(self, params: Json) -> Json:
        """The call, once, and the end of the lease; its result in the client's own era."""
        try:
            result = await self.link.call(self, params)
            if is_task(self.call.method, result):
                # The server still works on the task and may ask about it.
                self.link.haunt(self.client)
                raise task_refused(self.link.name)
            self.link.answered()
            return result
        except asyncio.CancelledError:
            self.link.haunt(self.client)
            raise
        except Unavailable as error:
            if error.code == SERVER_TIMEOUT:
                self.link.haunt(self.client)
            raise
        finally:
            self.link.release(self)

    def end(self) -> None:
        """Of one that was not made use of."""
        self.link.release(self)

    # What the server says meanwhile
    # ------------------------------------------------------------------------------

    def progress(self, params: Json) -> None:
        self.tell(PROGRESS, params)

    def notification(self, method: str, params: Json) -> None:
        """Belongs to this call, so it is this caller's and nobody else's."""
        self.tell(method, params)

    def tell(self, method: str, params: Json) -> None:
        caller, voice = self.call.caller, self.call.voice
        if voice is None or (self.parked is not None and self.parked.hold_back(method, params)):
            return
        if method == PROGRESS:
            # A parked call goes on under another request of its client, which brought a token of
            # its own.
            token = era.meta_of(self.call.params).get("progressToken", params.get("progressToken"))
            params = {**params, "progressToken": token}
        elif method == "notifications/message":
            wanted = caller.log_level is None and not caller.modern
            if not (wanted or era.admits(caller.log_level, params.get("level"))):
                return
        voice.tell(method, marked(params, self.link.name))

    def paused(self, retry_ms: int) -> None:
        if (voice := self.call.voice) is not None:
            voice.pause(retry_ms)

    async def question(self, method: str, params: Json | None) -> Json:
        """A question of the server that came on the stream of this call."""
        with self.link.questions.counted(params):
            return await self.ask(method, params)

    async def ask(self, method: str, params: Json | None) -> Json:
        """Put a question of the server to the client of this call."""
        self.link.asked(method)
        answer = await put(self.call, self.parked, self.link.name, method, params)
        if method == ROOTS:
            self.link.bind(self.call.caller, "it was told this client's roots")
        return answer


async def put(
    call: Call, parked: "Parked | None", server: str, method: str, params: Json | None
) -> Json:
    """One question to the client of one call, in the form of its era."""
    caller = call.caller
    capability = QUESTIONS.get(method)
    if capability is None or capability not in caller.capabilities:
        raise RpcError(METHOD_NOT_FOUND, f"the client cannot answer {method}")
    if parked is not None:
        return await parked.ask(method, params)
    voice = call.voice
    if voice is None or caller.modern:
        raise RpcError(METHOD_NOT_FOUND, f"the client cannot be asked {method} here")
    return await voice.ask(server, method, params)
