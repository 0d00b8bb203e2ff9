"""The one way through the middle: every call, read, subscription and completion goes through here.

The order is decide, limit, forward, record. The warden of the configuration decides and limits;
without one, and with nobody who listens, a call is forwarded and nothing else. No way round exists:
the gateway's own tools take it too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from mcpx.model.call import Call, Json
from mcpx.model.errors import Denied, NotFound, RpcError
from mcpx.model.events import Bus, CallBegins, CallFinished, Outcome, Passage
from mcpx.model.offer import Offer

if TYPE_CHECKING:
    from mcpx.core.generation import Generation

OURS = "mcpx"
"""The server that the gateway's own tools belong to."""

Forward = Callable[[], Awaitable[Json]]
BeforeSending = Callable[[Passage], Awaitable[None]]
"""Called when a call may pass, before it goes to its server. It must end within a short time."""


class House(Protocol):
    """Whose calls pass here; the gateway."""

    @property
    def generation(self) -> "Generation": ...


class Relay:
    def __init__(self, bus: Bus, house: "House") -> None:
        """`house`: whose configuration of now counts; a rule does from the moment it is taken
        up."""
        self._bus = bus
        self._house = house
        self.before_sending: BeforeSending | None = None

    def __call__(
        self,
        server: str,
        name: str,
        call: Call,
        params: Json,
        forward: Forward,
        offer: Offer | None = None,
    ) -> Awaitable[Json]:
        """`name` is what the server itself calls the target; the real one, not the tool of a
        surface that led to it."""
        if self._house.generation.warden is None and CallFinished not in self._bus.listeners:
            return forward()
        return self._passing(Passage(server, name, offer, call, params), forward)

    def _look_again(self, passage: Passage) -> None:
        """It has waited for its turn, or for somebody's word, while rules may have changed."""
        if (warden := self._house.generation.warden) is not None:
            warden.look_again(passage)
        elif passage.caller.profile is not None and passage.server != OURS:
            from mcpx.policy.warden import unknown  # it is there: one has guarded this call

            raise unknown(passage)  # the last profile is gone

    @staticmethod
    async def _announced(before_sending: BeforeSending, passage: Passage, forward: Forward) -> Json:
        await before_sending(passage)
        return await forward()

    async def _passing(self, passage: Passage, forward: Forward) -> Json:
        began = time.perf_counter()
        listeners = self._bus.listeners
        if CallBegins in listeners:
            self._bus.publish(CallBegins(passage))
        if self.before_sending is not None:
            forward = partial(self._announced, self.before_sending, passage, forward)
        outcome: Outcome = "ok"
        code: int | None = None
        try:
            if (warden := self._house.generation.warden) is None:
                result = await forward()
            else:
                result = await warden.guard(passage, forward, self._look_again)
            passage.answer = result
            if result.get("isError") is True:
                outcome = "tool_error"
            return result
        except Denied as error:
            outcome, code, passage.error = "denied", error.code, error.message
            raise
        except NotFound as error:
            outcome, code, passage.error = "error", error.code, error.message
            if (offer := passage.offer) is None:
                raise
            # It turned out to be held back, or gone, on its way: by the name that the client knows.
            raise NotFound(offer.kind.removesuffix("s"), offer.public) from None
        except RpcError as error:
            outcome, code, passage.error = "error", error.code, error.message
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except BaseException:
            outcome = "error"
            raise
        finally:
            for place in passage.places:
                place.leave()
            if CallFinished in listeners:
                self._bus.publish(CallFinished(passage, time.perf_counter() - began, outcome, code))
