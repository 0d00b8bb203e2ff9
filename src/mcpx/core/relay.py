"""The one way through the middle: every call, read, subscription and completion goes through here.

The order is decide, limit, forward, record. The warden of the configuration decides and limits; without one, and with
nobody who listens, a call is forwarded and nothing else. No way round exists: the gateway's own tools take it too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from mcpx.model.call import Call, Json
from mcpx.model.errors import Denied, RpcError
from mcpx.model.events import Bus, CallBegins, CallFinished, Outcome, Passage
from mcpx.model.offer import Offer

if TYPE_CHECKING:
    from mcpx.policy.warden import Warden

OURS = "mcpx"
"""The server that the gateway's own tools belong to."""

Forward = Callable[[], Awaitable[Json]]


class Relay:
    def __init__(self, bus: Bus, warden: "Callable[[], Warden | None]") -> None:
        """`warden`: that of the configuration of now; a rule counts from the moment it is taken up."""
        self._bus = bus
        self._warden = warden

    def __call__(
        self, server: str, name: str, call: Call, params: Json, forward: Forward, offer: Offer | None = None
    ) -> Awaitable[Json]:
        """`name` is what the server itself calls the target; the real one, not the tool of a surface that led to it."""
        if self._warden() is None and not self._bus.heard(CallFinished):
            return forward()
        return self._passing(Passage(server, name, offer, call, params), forward)

    def _look_again(self, passage: Passage) -> None:
        """It has waited for its turn, or for somebody's word, while rules may have changed."""
        if (warden := self._warden()) is not None:
            warden.look_again(passage)
        elif passage.caller.profile is not None and passage.server != OURS:
            from mcpx.policy.warden import unknown  # it is there: one has guarded this call

            raise unknown(passage)  # the last profile is gone

    async def _passing(self, passage: Passage, forward: Forward) -> Json:
        began = time.perf_counter()
        if self._bus.heard(CallBegins):
            self._bus.publish(CallBegins(passage))
        outcome: Outcome = "ok"
        code: int | None = None
        try:
            if (warden := self._warden()) is None:
                result = await forward()
            else:
                result = await warden.guard(passage, forward, self._look_again)
            if result.get("isError") is True:
                outcome = "tool_error"
            return result
        except Denied as error:
            outcome, code = "denied", error.code
            raise
        except RpcError as error:
            outcome, code = "error", error.code
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except BaseException:
            outcome = "error"
            raise
        finally:
            if self._bus.heard(CallFinished):
                self._bus.publish(CallFinished(passage, time.perf_counter() - began, outcome, code))
