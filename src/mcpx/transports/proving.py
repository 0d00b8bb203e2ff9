"""How the messages of a conversation are proved: each goes out with what proves the gateway at that
moment, and once more, with another proof, if the server did not take the first.

Promised: what has no need to wait does not; whatever waits for a proof is told of its failure, and
ends with the conversation. Many messages that are refused at once renew once (that is the
credentials' promise) and are each repeated once. A message that a server may have acted on is never
repeated.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlencode

from mcpx.base.aio import Tasks
from mcpx.model.errors import SERVER_DOWN, RpcError, Unavailable, Unproved
from mcpx.transports.refusals import about_us

if TYPE_CHECKING:
    from mcpx.auth.credentials import Credentials, Pairs, Proof
    from mcpx.transports.sinks import SentRequest


class Proving:
    """One conversation's hold on its credentials."""

    def __init__(
        self, name: str, credentials: "Credentials", took: "Callable[[Proof], None]"
    ) -> None:
        """`took` makes header lines of a proof; ValueError if that cannot be."""
        self._name = name
        self._credentials = credentials
        self._took = took
        self._tasks = Tasks(name)
        self._waiting = 0
        self.proof: Proof | None = None

    @property
    def excuse(self) -> str:
        """Why something took long, if that is why; to be added to what is told."""
        return "; the gateway still waited for its credentials" if self._waiting else ""

    def ready(self) -> bool:
        """Whether the headers prove us as of now. Nearly always that is one comparison."""
        proof = self._credentials.now()
        if proof is not self.proof and proof is not None:
            try:
                self._take(proof)
            except Unavailable:
                return False
        return proof is not None

    async def get(self) -> "Proof":
        """Wait until they do; Unavailable says why that cannot be."""
        self._waiting += 1
        try:
            proof = await self._credentials.get()
        except Unproved as error:
            raise self._unavailable(error) from None
        finally:
            self._waiting -= 1
        if proof is not self.proof:
            self._take(proof)
        return proof

    def _take(self, proof: "Proof") -> None:
        try:
            self._took(proof)
        except ValueError as error:
            raise Unavailable(
                self._name, SERVER_DOWN, f"what proves the gateway cannot be sent: {error}"
            ) from None
        self.proof = proof

    def _unavailable(self, error: Unproved) -> Unavailable:
        problem = Unavailable(
            self._name, SERVER_DOWN, error.reason, http_status=401 if error.sign_in else None
        )
        problem.unsent = True
        return problem

    async def renewed(self, proof: "Proof", error: RpcError) -> bool:
        """The server did not take this proof: whether there is another one to try."""
        from mcpx.auth.credentials import Refusal  # here when there are credentials

        refusal = Refusal(error.http_status or 401, getattr(error, "challenge", None) or "")
        self._waiting += 1
        try:
            if not await self._credentials.refused(proof, refusal):
                return False
        except Unproved as problem:
            raise self._unavailable(problem) from None
        finally:
            self._waiting -= 1
        if not self.ready():
            await self.get()
        return True

    # For messages that nobody waits for in a task
    # ----------------------------------------------------------

    def start(self, message: "SentRequest") -> None:
        if self.ready():
            self._send(message)
        else:
            self.wait_for(message)

    def wait_for(self, message: "SentRequest") -> None:
        """Send it as soon as there is a proof."""
        self._pursue(message, self._first(message))

    def refused(self, message: "SentRequest", error: RpcError) -> bool:
        """Whether a refusal is seen to here: the message is sent once more, or told why not."""
        proof = message.proof
        if message.repeated or proof is None or not about_us(error):
            return False
        message.repeated = True
        self._pursue(message, self._again(message, proof, error))
        return True

    def _pursue(self, message: "SentRequest", work: Coroutine[Any, Any, None]) -> None:
        message.pending = task = self._tasks.start(work)
        task.add_done_callback(lambda _: self._ended(message, task))

    def _ended(self, message: "SentRequest", task: asyncio.Task[None]) -> None:
        if task.cancelled():
            reason = "closed by the gateway"
        elif task.exception() is not None:  # logged by its owner
            reason = "failed inside the gateway; its log says more"
        else:
            return
        error = Unavailable(self._name, SERVER_DOWN, reason)
        error.unsent = True
        message.unproved(error)

    async def _first(self, message: "SentRequest") -> None:
        try:
            await self.get()
        except Unavailable as problem:
            message.unproved(problem)
        else:
            self._send(message)

    async def _again(self, message: "SentRequest", proof: "Proof", error: RpcError) -> None:
        try:
            renewed = await self.renewed(proof, error)
        except Unavailable as problem:
            message.unproved(problem)
            return
        if renewed:
            self._send(message)
        else:
            message.unproved(error)

    def _send(self, message: "SentRequest") -> None:
        message.pending = None
        message.proof = self.proof
        message.send()

    async def close(self) -> None:
        await self._tasks.close()


def with_query(target: str, query: "Pairs") -> str:
    """Path and query of a request with fields of a proof, which take the place of those of the same
    name."""
    if not query:
        return target
    path, _, given = target.partition("?")
    names = {name for name, _ in query}
    kept = [
        part
        for part in given.split("&")
        if part and unquote_plus(part.partition("=")[0]) not in names
    ]
    return f"{path}?{'&'.join([*kept, urlencode(query)])}"
