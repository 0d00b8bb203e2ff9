"""A server over streamable HTTP, both eras: a POST for each message, its reply as JSON or as a
stream of its own.

Because each request has its own stream, what comes before a reply (progress, logs, questions) is
known to belong to that request. An older server may close a stream in mid-call and be polled (GET +
`Last-Event-ID`), and has one more stream for what belongs to no request. Redirects are reported,
never followed: they would carry the user's headers elsewhere.

A reply counts only under the id that was asked on its very request; anything else fails that
request and ends the connection, which may be out of step. Whatever a server sends that is no
message is bounded in bytes, and what wants no reply in time too.
"""

import asyncio
import itertools
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from mcpx.base.aio import Tasks
from mcpx.model.call import Json
from mcpx.model.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    OVERLOADED,
    SERVER_DIED,
    SERVER_DOWN,
    SERVER_GARBAGE,
    SERVER_TIMEOUT,
    RpcError,
    Unavailable,
)
from mcpx.model.requests import SPAN
from mcpx.transports.dial import Dial
from mcpx.transports.refusals import refusal
from mcpx.transports.replies import GetStream, Reply, listen, loaded, unsent
from mcpx.transports.sinks import ErrorBody, Upload
from mcpx.wire import codec, era, jsonrpc
from mcpx.wire.http_client import Abortable, ConnectionLost, header_lines
from mcpx.wire.peer import Conversation, Meanwhile, Waiting

if TYPE_CHECKING:
    from mcpx.auth.credentials import Proof

log = logging.getLogger(__name__)

LONGEST_SESSION = 1024
"""Characters of a session id."""
QUESTIONS = 256
"""Questions of one server that are being answered at a time."""
METHODS = 32
"""Methods whose headers are kept."""
MOST_UNTAKEN = 16 * 2**20
"""Bytes of answers and notifications that a server has yet to take."""

_ids = itertools.count(random.randrange(1, 2**30))
"""The ids of our requests, one row for all conversations: if a server, or a proxy in front of
several, mixes up the replies to two of them, the id is not the one that was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    type: ClassVar[str] = "http"

    url: str = field(repr=False)
    """Address of its MCP endpoint; credentials go into `headers`."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers sent with every request; `Host`, `Connection`, `Content-Length`, `Mcp-*` and the like
    are set by mcpx."""

    async def open(self, dial: Dial) -> Conversation:
        try:
            return HttpConversation(self, dial)
        except ValueError as error:
            raise Unavailable(dial.name, SERVER_DOWN, f"cannot connect: {error}") from None


class HttpConversation:
    """The client side of streamable HTTP. It starts without an era; whoever negotiates sets it."""

    def __init__(self, spec: Http, dial: Dial) -> None:
        self.name = dial.name
        self.limit = dial.limit
        self.inbound = dial.inbound
        self.timeout = dial.timeout
        self.waiting = Waiting(dial.name, _ids)
        self.tasks = Tasks(dial.name)
        self.annotations = dial.annotations
        self.modern = False
        self._version: str | None = None
        self._session: str | None = None
        self._spec, self._dial = spec, dial
        self._own = dial.headers(spec.headers)
        self.secrets = tuple(spec.headers.values())
        self.proving = dial.proving(self._take)
        """None: the server wants no proof."""
        self._pool = dial.pool(spec.url)
        self._target = self._pool.target
        self._ready: asyncio.Future[None] | None = None
        self._answering: dict[str | int, asyncio.Task[Any]] = {}
        """Questions of the server, by its ids."""
        self._untaken = 0
        """Bytes of messages without a reply that are on their way."""
        self._warned = False
        self._lost: str | None = None
        self._lines = self._stream_lines = b""
        """The headers of every POST, and of every GET."""
        self._lines_by_method: dict[str, bytes] = {}
        """In the modern era, those of a POST without what is said in it."""
        self._set_headers()

    def agreed(self, version: str) -> None:
        """The negotiated revision; an older one also opens the stream for what belongs to no
        request."""
        self._version = version
        self.modern = version in era.MODERN
        self._set_headers()
        if not self.modern:
            self.tasks.start(listen(self, self._ready))

    def memory(self) -> int:
        return 0

    def _set_headers(self) -> None:
        both = b"application/json, text/event-stream"
        headers = [*self._own, (b"content-type", b"application/json")]
        if self._session is not None:
            headers.append((b"mcp-session-id", self._session.encode()))
        if self._version is not None and not self.modern and self._version >= "2025-06-18":
            headers.append((b"mcp-protocol-version", self._version.encode()))
        self._lines = header_lines([*headers, (b"accept", both)])
        self._stream_lines = header_lines([*headers, (b"accept", b"text/event-stream")])
        self._lines_by_method = {}

    def _take(self, proof: "Proof") -> None:
        """From now on requests go out with this proof."""
        from mcpx.transports.proving import with_query

        before = (
            () if self.proving is None or self.proving.proof is None else self.proving.proof.secrets
        )
        self._own = self._dial.headers(self._spec.headers, proof)
        self._target = with_query(self._pool.target, proof.query)
        self.secrets = (*self._spec.headers.values(), *proof.secrets, *before)
        self._set_headers()

    def _headers_for(self, method: str, params: Json) -> bytes:
        if not self.modern and method != "server/discover":
            return self._lines
        lines = self._lines_by_method.get(method)
        if lines is None:
            extra = [("mcp-protocol-version", era.LATEST_MODERN), ("mcp-method", method)]
            lines = self._lines + header_lines([(k.encode(), v.encode()) for k, v in extra])
            if len(self._lines_by_method) < METHODS and len(method) < 100:
                self._lines_by_method[method] = lines
        key = era.NAME_PARAM.get(method)
        if key is not None and isinstance(name := params.get(key), str):
            lines += b"mcp-name: %b\r\n" % era.bounded_header(name, key).encode()
            if method == "tools/call" and name in self.annotations:
                mirrored = era.headers_for(self.annotations[name], params.get("arguments"))
                lines += header_lines([(k.encode(), v.encode()) for k, v in mirrored])
        return lines

    # Requests
    # ----------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Json,
        *,
        meanwhile: Meanwhile | None = None,
        timeout: float | None = None,
    ) -> Json:
        if self._lost is not None:
            raise unsent(self.name, self._lost)
        if self._ready is not None and not self._ready.done():
            await asyncio.wait([self._ready], timeout=timeout)
        proving = self.proving
        proved = proving is None or proving.ready()  # first, for the headers hold the proof
        try:
            lines = self._headers_for(method, params)
        except RpcError as error:
            raise RpcError(error.code, f"{self.name}: {error.message}") from None
        trace = b""
        if meanwhile is not None and (span := SPAN.get()) is not None:
            trace = header_lines([(k.encode(), v.encode()) for k, v in span.headers()])
            lines += trace
        rid, wait, message = self.waiting.open(method, params, meanwhile, timeout)
        try:
            body = codec.dump(message)
        except codec.Unencodable as error:
            self.waiting.drop(rid)
            raise RpcError(INVALID_REQUEST, f"the message cannot be sent: {error}") from None
        reply = Reply(self, rid, wait)
        if proving is not None:
            reply.proof, reply.asked = proving.proof, (method, params, message, trace)
        if proving is None or proved:
            reply.carrier = self._pool.start("POST", self._target, lines, body, reply)
        else:
            proving.wait_for(reply)
        try:
            result = await wait.future
        except (asyncio.CancelledError, Unavailable) as error:
            # Closing the POST is the cancellation in the modern era; the older one says it in
            # words.
            gave_up = isinstance(error, asyncio.CancelledError) or error.code == SERVER_TIMEOUT
            if gave_up and reply.unsent:
                if isinstance(error, asyncio.CancelledError):
                    raise
                what = f"could not be sent within {timeout:g} s{self.excuse}"
                raise unsent(self.name, what, SERVER_TIMEOUT) from None
            if (
                gave_up
                and not self.modern
                and method not in ("initialize", "server/discover")
                and not self._lost
            ):
                self.notify(
                    "notifications/cancelled", {"requestId": rid, "reason": "the caller gave up"}
                )
            raise
        finally:
            self.waiting.drop(rid)
            reply.leave()
        if method == "initialize" and reply.session is not None:
            self._begin_session(reply.session)
        return result

    def _begin_session(self, session: str) -> None:
        if len(session) > LONGEST_SESSION or not all("!" <= c <= "~" for c in session):
            what = (
                f"longer than {LONGEST_SESSION:,} characters"
                if len(session) > LONGEST_SESSION
                else "no visible ASCII"
            )
            raise Unavailable(self.name, SERVER_GARBAGE, f"gave a session id that is {what}")
        self._session = session
        self._set_headers()

    def notify(self, method: str, params: Json | None) -> None:
        if self._lost is not None or self.modern:
            return  # the modern era has no notifications from client to server over HTTP
        upload = self._upload(jsonrpc.notification(method, params))
        if upload is not None and method == "notifications/initialized":
            self._ready = upload.done  # No message may overtake it on another connection.

    def answer(self, message: Json) -> None:
        self._upload(message)

    def _upload(self, message: Json) -> Upload | None:
        try:
            body = codec.dump(message)
        except codec.Unencodable as error:
            if "id" not in message:
                return None
            problem = RpcError(INTERNAL_ERROR, f"Unencodable reply: {error}")
            body = codec.dump(jsonrpc.failure(message["id"], problem))
        if self._untaken > MOST_UNTAKEN:
            self._lose("does not take what it is sent")
        if self._lost is not None:
            return None
        self._untaken += len(body)
        upload = Upload(self, self.proving, body)
        upload.start()
        return upload

    def repeat(self, reply: Reply) -> Abortable:
        """Send a request with the proof there is by now."""
        method, params, message, trace = reply.asked
        lines = self._headers_for(method, params) + trace
        return self._pool.start("POST", self._target, lines, codec.dump(message), reply)

    def post(self, upload: Upload) -> Abortable:
        body, method = upload.body_sent, upload.method
        return self._pool.start(method, self._target, self._lines, body, upload, brief=True)

    def refused(self, response: ErrorBody) -> RpcError:
        return refusal(self.name, response.status, response.headers, response.content, self.secrets)

    def uploaded(self, upload: Upload, problem: RpcError | None) -> None:
        self._untaken -= len(upload.body_sent)
        if problem is not None:
            log.debug("[%s] a message was not taken: %s", self.name, problem.message)

    # What the server says
    # ------------------------------------------------------------------------------------

    def hear(self, raw: bytes, stream: Reply | GetStream) -> bool:
        """One message from any stream of the server. False: it was none."""
        message = loaded(raw)
        match jsonrpc.classify(message):
            case "response":
                stream.answered(message)
            case "notification":
                self._notified(message["method"], jsonrpc.params_of(message), stream.meanwhile)
            case "request":
                self._ask(message, stream.meanwhile)
            case "invalid":
                self.waiting.noise += 1
                return False
        return True

    def _ask(self, message: Json, meanwhile: Meanwhile | None) -> None:
        rid = message["id"]
        if rid in self._answering:
            refused = RpcError(INVALID_REQUEST, "a request with this id is already in flight")
        elif len(self._answering) >= QUESTIONS:
            refused = RpcError(OVERLOADED, f"{QUESTIONS} requests are being answered already")
        else:
            self._answering[rid] = task = self.tasks.start(self._asked(message, meanwhile))
            task.add_done_callback(lambda _: self._answering.pop(rid, None))
            return
        self.answer(jsonrpc.failure(rid, refused))

    def _notified(self, method: str, params: Json, meanwhile: Meanwhile | None) -> None:
        if method == "notifications/progress":
            self.waiting.progressed(params)  # the request its token names, or nobody
        elif method == "notifications/cancelled":
            rid = params.get("requestId")
            if jsonrpc.is_id(rid) and rid in self._answering:
                self._answering[rid].cancel()
        elif meanwhile is not None:
            meanwhile.notification(method, params)
        else:
            self.inbound.notification(method, params)

    async def _asked(self, message: Json, meanwhile: Meanwhile | None) -> None:
        rid, method = message["id"], message["method"]
        try:
            if method == "ping" or meanwhile is None:
                value = {} if method == "ping" else await self.inbound.request(message)
            else:
                value = await meanwhile.question(method, message.get("params"))
            reply = jsonrpc.result(rid, value)
        except RpcError as error:
            reply = jsonrpc.failure(rid, error)
        except Exception:
            log.exception("[%s] answering %s failed", self.name, method)
            reply = jsonrpc.failure(rid, RpcError(INTERNAL_ERROR, "Internal error"))
        self.answer(reply)

    def get(self, last_id: str | None, sink: Reply | GetStream) -> Abortable:
        """Ask for a stream, or for the rest of one that an older server closed."""
        lines = self._stream_lines
        if last_id is not None:
            lines += header_lines([(b"last-event-id", last_id.encode())])
        return self._pool.start("GET", self._target, lines, b"", sink)

    def warn(self, what: str) -> None:
        """Say it, the first time."""
        if not self._warned:
            self._warned = True
            log.warning("[%s] %s", self.name, what)

    # The end
    # ----------------------------------------------------------------------------------------------

    def end_session(self) -> None:
        """404 on a session: the server has forgotten it, and did not act on the request."""
        self._lose("the server ended the session")

    def unreachable(self, error: ConnectionLost) -> Unavailable:
        """No connection could be made: nothing more is sent on this conversation. What is under way
        on connections that stand is left alone; a server that is being replaced stops listening
        first and answers that last."""
        reason = f"cannot connect: {error}"
        self._retire(reason)
        return unsent(self.name, reason)

    def _lose(self, reason: str) -> None:
        self.waiting.fail_all(SERVER_DIED, reason)
        self._retire(reason)

    def _retire(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
            self.inbound.closed(reason)

    @property
    def excuse(self) -> str:
        """What is added when something took too long."""
        return "" if self.proving is None else self.proving.excuse

    @property
    def lost(self) -> bool:
        return self._lost is not None

    @property
    def in_session(self) -> bool:
        return self._session is not None

    async def close(self) -> None:
        """Ends what is under way too, except after a loss: that was not what the loss was about,
        and each request ends by its own deadline."""
        if self._lost is not None:
            self.waiting.wind_down()
            self._pool.retire()
            await self._end_tasks()
            return
        if self._session is not None:
            goodbye = Upload(self, self.proving, b"", "DELETE")
            goodbye.start()
            await asyncio.wait([goodbye.done], timeout=1.0)
        self._lose("closed by the gateway")
        await self._end_tasks()
        await self._pool.close()

    async def _end_tasks(self) -> None:
        if self.proving is not None:
            await self.proving.close()
        await self.tasks.close()
