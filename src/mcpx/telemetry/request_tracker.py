"""Follows each request of a client from its arrival to its response: its id and its trace.

Implements `front.dispatch.Tracker`. Requests are followed only with JSON logs, an audit log, or
traces.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from mcpx.model.call import Json
from mcpx.model.errors import INTERNAL_ERROR, RpcError
from mcpx.model.requests import REQUEST, SPAN, Request, Trace
from mcpx.wire import jsonrpc
from mcpx.wire.exchange import Headers

if TYPE_CHECKING:
    from mcpx.telemetry.traces import Traces

log = logging.getLogger(__name__)

CANCELLED = "cancelled"
REQUEST_ID_HEADER = b"x-request-id"


class Tracker:
    def __init__(self, traces: "Traces | None" = None, *, attends: bool = True) -> None:
        """`attends` is False if only the ids of requests are needed."""
        self.traces = traces
        self.attends = attends

    def begin(self, message: Json, headers: Headers | None, carrier: str) -> Request:
        id_of_client = None
        if headers is not None and REQUEST_ID_HEADER in headers.first:
            id_of_client = headers.get("x-request-id")
        request = Request(id_of_client, carrier)
        REQUEST.set(request)
        if not self.attends:
            # The end of the request is not reported, so no later log line may belong to it.
            request.over = True
            return request
        parent = Trace.of(jsonrpc.params_of(message))
        if parent is None and headers is not None and "traceparent" in headers:
            parent = Trace.of_headers(headers.all("traceparent"), headers.all("tracestate"))
        if self.traces is not None:
            request.span = self.traces.begin(message, parent)
            request.trace_id = request.span.trace_id
            SPAN.set(request.span)
        elif parent is not None:
            request.trace_id = parent.trace_id
        return request

    async def attend(
        self, request: Request, message: Json, work: Coroutine[Any, Any, Json]
    ) -> Json:
        failure: str | None = None
        try:
            result = await work
            if result.get("isError") is True:
                failure = "tool_error"
            return result
        except RpcError as error:
            failure = str(error.code)
            raise
        except asyncio.CancelledError:
            failure = CANCELLED
            raise
        except BaseException:
            failure = str(INTERNAL_ERROR)
            raise
        finally:
            self._end(request, message, failure)

    async def follow(
        self, message: Json, headers: Headers | None, carrier: str, work: Coroutine[Any, Any, Json]
    ) -> Json:
        request = self.begin(message, headers, carrier)
        if not self.attends:
            return await work
        return await self.attend(request, message, work)

    def note(
        self, message: Json, headers: Headers | None, carrier: str, work: Callable[[], Json]
    ) -> tuple[Json, Request]:
        def noted() -> tuple[Json, Request]:
            request = self.begin(message, headers, carrier)
            result = work()
            self._end(request, message, None)
            return result, request

        return copy_context().run(noted)

    def _end(self, request: Request, message: Json, failure: str | None) -> None:
        request.over = True
        span = request.span
        if span is not None and span.sampled and self.traces is not None:
            try:
                self.traces.answered(request, span, message, failure)
            except Exception:  # Telemetry must not break a request.
                log.exception("a span could not be recorded")
