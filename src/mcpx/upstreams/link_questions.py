"""Questions of a server on one link that belong to no stream of a call.

Such a question goes to the one client that has leases on the link, to the session that owns the
link, or to no client. On a client's own link, a question for roots is that client's at any time. It
waits for a call. If no client answers, the next call makes the server ask again, if the client
declared that its roots may change.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from mcpx.model.call import Json, Voice, as_object
from mcpx.model.errors import INVALID_PARAMS, OVERLOADED, RpcError, Unasked
from mcpx.upstreams.lease import Lease
from mcpx.upstreams.traits import ROOTS
from mcpx.wire import codec

if TYPE_CHECKING:
    from mcpx.upstreams.link import Link

GREETING = 5.0
"""Seconds that a server's question may be ahead of the call its link was opened for. Some servers
do nothing else until they are answered."""
MOST_QUESTIONS = 64
QUESTION_BYTES = 16 * 2**20
"""Unanswered questions of a server on one link, and their size."""


class LinkQuestions:
    def __init__(self, link: "Link", voice: Voice | None, may_ask: Callable[[], bool]) -> None:
        """`voice` is asked between calls, as long as `may_ask` returns True."""
        self.lease_taken = asyncio.Event()
        self._link = link
        self._voice = voice
        self._may_ask = may_ask
        self._open = 0
        self._open_bytes = 0
        self.roots_missed = False
        """The server asked for roots and was not answered. It does not ask again by itself."""

    @contextlib.contextmanager
    def counted(self, params: Json | None) -> Generator[None]:
        """Limits the questions that wait for an answer."""
        try:
            size = len(codec.dump(params))
        except codec.Unencodable:
            reason = "the question cannot be passed on: it is no JSON"
            raise RpcError(INVALID_PARAMS, reason) from None
        if self._open >= MOST_QUESTIONS or self._open_bytes + size > QUESTION_BYTES:
            raise RpcError(OVERLOADED, "too many questions wait for an answer")
        self._open += 1
        self._open_bytes += size
        try:
            yield
        finally:
            self._open -= 1
            self._open_bytes -= size

    async def ask(self, method: str, params: Json | None) -> Json:
        """Ask a client. Raises `Unasked` if no client can be asked in time."""
        link = self._link
        link.asked(method)
        voice = self._voice if self._may_ask() else None
        # On a client's own link, roots are that client's, and about no call: any call will do.
        roots = method == ROOTS and (link.single or link.owner is not None)
        if link.calls and not (link.leases or voice is not None or roots):
            # The question is about an earlier call, or about none. The next caller is not asked.
            link.asked_late()
        try:
            while True:
                if voice is None and link.use != "learning":
                    await self._wait_for_lease(roots=roots)
                newest = self._askable()
                if newest is None and voice is not None:
                    return await voice.ask(link.name, method, params)
                if newest is None or not link.free_for(newest.client):
                    raise Unasked(method)
                try:
                    return await newest.ask(method, params)
                except Unasked:  # The call has ended.
                    if not roots:
                        raise
        except (Unasked, asyncio.CancelledError):
            self.roots_missed = self.roots_missed or roots
            raise

    async def _wait_for_lease(self, *, roots: bool) -> None:
        """Wait for a call whose client can be asked. A server may ask a moment before the call that
        the link was opened for, and a slow one may ask for roots a moment after it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GREETING):
                while self._askable() is None and (roots or not self._link.calls):
                    self.lease_taken.clear()
                    await self.lease_taken.wait()

    def _askable(self) -> Lease | None:
        """The newest call whose client can be asked."""
        return next((lease for lease in reversed(self._link.leases) if lease.askable), None)

    def ask_for_roots_again(self, lease: Lease) -> None:
        """Before a call: make the server ask for roots that it missed."""
        if lease.askable and "roots" in lease.call.caller.capabilities:
            self.roots_missed = False
            link = self._link
            if as_object(link.who.capabilities.get("roots")).get("listChanged") is True:
                link.notify("notifications/roots/list_changed", {})
