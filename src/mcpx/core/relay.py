"""The one way through the middle: every call, read, subscription and completion goes through here.

The order is decide, limit, deadline, forward, record. Today a call is forwarded and recorded (`CallFinished`); whoever
adds the steps before that adds them here, and no way round exists. The gateway's own tools go through it as well.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from mcpx.model.call import Call, Json
from mcpx.model.errors import RpcError
from mcpx.model.events import Bus, CallFinished, Outcome

OURS = "mcpx"
"""The server that the gateway's own tools belong to."""

Forward = Callable[[], Awaitable[Json]]


class Relay:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def __call__(self, server: str, name: str, call: Call, forward: Forward) -> Awaitable[Json]:
        """`name` is what the server itself calls the target; the real one, not the tool of a surface that led to it."""
        return self._recorded(server, name, call, forward) if self._bus.heard(CallFinished) else forward()

    async def _recorded(self, server: str, name: str, call: Call, forward: Forward) -> Json:
        began = time.perf_counter()
        outcome: Outcome = "ok"
        code: int | None = None
        try:
            result = await forward()
            if result.get("isError") is True:
                outcome = "tool_error"
            return result
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
            seconds = time.perf_counter() - began
            self._bus.publish(CallFinished(server, call.method, name, call.caller, seconds, outcome, code))
