"""Traces of calls, over OTLP/HTTP, to a collector (OBS-1).

A server span for each request of a client, a client span for each call that goes on to a server or
a command, by the conventions of OpenTelemetry for MCP. Whether a trace is recorded is the client's
decision where it says so, else by `sample`; servers are told of it either way.

Promised: nothing waits for the collector. What it does not take in time is kept within bounds, then
dropped and counted; that it is down is said once. Nothing that a call was about is told: no
arguments, no results, no words of errors, of a URI no query.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from mcpx import __version__
from mcpx.config.sections import Traces as Settings
from mcpx.model.call import Json
from mcpx.model.events import Bus, CallBegins, CallFinished, Passage
from mcpx.model.requests import SPAN, Request, Span, Trace
from mcpx.telemetry import otlp
from mcpx.telemetry.exporter import Exporter, otlp_url, post
from mcpx.telemetry.targets import plain_uri, session_mark
from mcpx.wire import jsonrpc

if TYPE_CHECKING:
    from mcpx.config import Server
    from mcpx.wire.fetch import Fetcher

OURS: Final = "mcpx"
PATH: Final = "/v1/traces"

_TARGETS: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_CARRIERS: Final = {
    "stdio": {"network.transport": "pipe"},
    "http": {"network.transport": "tcp", "network.protocol.name": "http"},
    "sse": {"network.transport": "tcp", "network.protocol.name": "http"},
    "websocket": {"network.transport": "tcp", "network.protocol.name": "websocket"},
}
_CODES: Final = frozenset("-0123456789")


class Traces:
    def __init__(self, settings: Settings, fetcher: "Callable[[], Fetcher]") -> None:
        self._fetcher = fetcher
        self._exporter = Exporter("traces", "spans", self._send)
        self._about: dict[str, list[bytes]] = {}
        """What is told of servers, by name."""
        self._settings = settings
        self._url, self._threshold = "", 0
        self.take_up(settings, ())
        self._instance = f"{random.getrandbits(64):016x}"

    def take_up(self, settings: Settings, servers: "tuple[Server, ...]") -> None:
        """These settings and servers count from now on."""
        self._settings = settings
        self._url = otlp_url(settings.endpoint, PATH)
        self._threshold = int(settings.sample * 2**64)
        self._about = {server.name: _about(server) for server in servers}

    def start(self, bus: Bus) -> None:
        bus.subscribe(self._calls, CallBegins)
        bus.subscribe(self._called, CallFinished)
        self._exporter.start()

    def stop(self, bus: Bus) -> None:
        """No more spans are made; those there are still go out."""
        bus.unsubscribe(self._calls)
        bus.unsubscribe(self._called)

    # Spans
    # ----------------------------------------------------------------------------------------------

    def begin(self, message: Json, parent: Trace | None) -> Span:
        """The span of one request of a client."""
        span_id = f"{random.getrandbits(64) or 1:016x}"
        if parent is None:
            trace = random.getrandbits(128) or 1
            # By the id, as others do it: whoever sees the same trace decides the same.
            span = Span(f"{trace:032x}", span_id, trace & 0xFFFFFFFFFFFFFFFF < self._threshold)
        else:
            span = Span(
                parent.trace_id, span_id, parent.sampled, parent.state, parent.span_id, remote=True
            )
        if span.sampled:
            _start(span, otlp.SERVER)
        return span

    def answered(self, request: Request, span: Span, message: Json, failure: str | None) -> None:
        """A request that is recorded is over."""
        method = message["method"]
        told = span.attributes
        _target(
            span,
            method,
            jsonrpc.params_of(message).get("name"),
            jsonrpc.params_of(message).get("uri"),
        )
        for key, value in _CARRIERS.get(request.carrier, {}).items():
            told.append(otlp.usual(key, value))
        if (
            isinstance(rid := message["id"], str) or abs(rid) < 2**64
        ):  # of larger ones Python may refuse to tell
            told.append(otlp.attribute("jsonrpc.request.id", str(rid)))
        told.append(otlp.attribute("mcpx.request_id", request.id))
        if (caller := request.caller) is not None:
            told.append(otlp.usual("mcp.protocol.version", caller.version))
            told.append(otlp.usual("mcpx.principal", caller.principal[: otlp.LONGEST]))
            if caller.profile is not None:
                told.append(otlp.usual("mcpx.profile", caller.profile[: otlp.LONGEST]))
            if caller.session is not None and request.carrier == "http":
                told.append(otlp.usual("mcp.session.id", session_mark(caller.session)))
        self._end(span, failure)

    def _calls(self, event: CallBegins) -> None:
        passage = event.passage
        above = SPAN.get()
        if above is None or not above.sampled or passage.server == OURS:
            return
        span_id = f"{random.getrandbits(64) or 1:016x}"
        passage.span = span = Span(above.trace_id, span_id, True, above.state, above.span_id)
        _start(span, otlp.CLIENT)
        SPAN.set(span)
        span.above = above

    def _called(self, event: CallFinished) -> None:
        passage = event.passage
        span = passage.span
        if span is None:
            return
        SPAN.set(span.above)
        if event.outcome == "denied":
            return  # no server heard of it
        _describe(passage, span)
        span.attributes += self._about.get(passage.server, ())
        failure = None
        if event.outcome != "ok":
            failure = event.outcome if event.code is None else str(event.code)
        self._end(span, failure)

    def _end(self, span: Span, failure: str | None) -> None:
        ended = span.began + time.perf_counter_ns() - span.since
        if failure is not None:
            span.attributes.append(otlp.usual("error.type", failure))
            if _CODES.issuperset(failure):
                span.attributes.append(otlp.usual("rpc.response.status_code", failure))
        self._exporter.add(otlp.span(span, ended, failed=failure is not None))

    # To the collector
    # --------------------------------------------------------------------------------------------

    async def _send(self, batch: Sequence[bytes], timeout: float) -> None:
        resource = (
            ("service.name", OURS),
            ("service.version", __version__),
            ("service.instance.id", self._instance),
        )
        body = otlp.request(batch, resource, (OURS, __version__))
        headers = (("content-type", "application/x-protobuf"), *self._settings.headers.items())
        await post(self._fetcher(), self._url, headers, body, timeout)

    async def close(self) -> None:
        """What is left is sent, if the collector takes it at once."""
        await self._exporter.close()


def _start(span: Span, kind: int) -> None:
    span.kind, span.began, span.since = kind, time.time_ns(), time.perf_counter_ns()


def _target(span: Span, method: str, name: object, uri: object) -> None:
    """The name of the span, and what tells of whom or what is called."""
    method = method[:64]
    span.name = method
    span.attributes.append(otlp.usual("mcp.method.name", method))
    key = _TARGETS.get(method)
    if key is not None and isinstance(name, str):
        name = name[: otlp.LONGEST]
        span.name = f"{method} {name}"
        span.attributes.append(otlp.usual(key, name))
        if method == "tools/call":
            span.attributes.append(otlp.usual("gen_ai.operation.name", "execute_tool"))
    elif isinstance(uri, str) and method.startswith("resources/"):
        span.attributes.append(otlp.attribute("mcp.resource.uri", plain_uri(uri, query_mark="")))


def _describe(passage: Passage, span: Span) -> None:
    _target(span, passage.method, passage.name, passage.name)
    span.attributes.append(otlp.usual("mcpx.server", passage.server))


def _about(server: "Server") -> list[bytes]:
    told: Mapping[str, str] = _CARRIERS.get(server.connection.type, {})
    made = [otlp.attribute(key, value) for key, value in told.items()]
    url = getattr(server.connection, "url", None)
    if isinstance(url, str):
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return made
        if host:
            made.append(otlp.attribute("server.address", host))
            made.append(
                otlp.attribute(
                    "server.port", port or (443 if parts.scheme in ("https", "wss") else 80)
                )
            )
    return made
