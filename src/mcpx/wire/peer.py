"""One side of one JSON-RPC conversation, in either direction: ids, replies, progress, cancellation,
deadlines.

`Peer` speaks over any carrier that moves whole messages in order (stdio, WebSocket, HTTP+SSE).
Streamable HTTP has a stream per request and is its own `Conversation` (`mcpx.transports.http`);
both keep what they wait for in a `Waiting` table. Nothing here knows a method of MCP beyond `ping`,
progress and cancellation.
"""

import asyncio
import itertools
import logging
import re
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol, cast

from mcpx.base.aio import Tasks, spread
from mcpx.model.call import Json
from mcpx.model.errors import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    SERVER_DIED,
    SERVER_GARBAGE,
    SERVER_TIMEOUT,
    SERVER_TOO_LARGE,
    RpcError,
    Unavailable,
    gateway_ending,
    overloaded,
)
from mcpx.model.redaction import MAX_REDACTED_BYTES, excerpt
from mcpx.model.requests import answering, identity
from mcpx.wire import codec, jsonrpc

log = logging.getLogger(__name__)

LONGEST_CALL = 3600.0
"""LIF-6: progress starts a call's deadline anew, but for no longer than this."""

MOST_CALLS = 1000
LARGE = 65536
MOST_LARGE = 64 * 2**20
"""Requests of the other side that are answered at a time, and the bytes of those among them that
are large."""

_VERSION = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_ANSWERED_ID = re.compile(
    rb"\s*\{\s*" + _VERSION + rb'"id"\s*:\s*(\d{1,18})\s*,\s*' + _VERSION + rb'"(?:result|error)"'
)
"""The id at the head of a response; one further inside, or of a request, is not ours."""
_NO_ANSWER = re.compile(rb"\s*\{\s*" + _VERSION + rb'(?:"id"\s*:[^,]*,\s*)?"method"')


class Meanwhile(Protocol):
    """What a running request hears before its reply."""

    def progress(self, params: Json) -> None: ...

    def notification(self, method: str, params: Json) -> None:
        """Came on this request's own stream (only where a request has one)."""
        ...

    async def question(self, method: str, params: Json | None) -> Json:
        """A request of the other side that came on this request's own stream."""
        ...

    def paused(self, retry_ms: int) -> None:
        """The server closed the stream in mid-call and wants to be polled."""
        ...


class Inbound(Protocol):
    """What the owner of a conversation hears outside of any request of its own."""

    def request(self, message: Json) -> Coroutine[Any, Any, Json]: ...

    def notification(self, method: str, params: Json) -> None: ...

    def closed(self, reason: str) -> None: ...


class Conversation(Protocol):
    """What a link talks through, whatever carries it."""

    def request(
        self,
        method: str,
        params: Json,
        *,
        meanwhile: Meanwhile | None = None,
        timeout: float | None = None,
    ) -> Coroutine[Any, Any, Json]: ...

    def notify(self, method: str, params: Json | None) -> None: ...

    def agreed(self, version: str) -> None:
        """Which revision was negotiated; called once, after the handshake."""
        ...

    def memory(self) -> int:
        """Bytes the server's own process holds; 0 where that cannot be told."""
        ...

    async def close(self) -> None: ...


class Wait:
    """One request in flight."""

    __slots__ = ("deadline", "future", "latest", "meanwhile", "timeout", "token")

    def __init__(
        self,
        future: asyncio.Future[Json],
        meanwhile: Meanwhile | None,
        token: Any,
        timeout: float | None,
    ) -> None:
        self.future = future
        self.meanwhile = meanwhile
        self.token = token
        self.timeout = timeout
        self.deadline = 0.0
        self.latest = 0.0


class Waiting:
    """The requests one side has in flight, by id. Replies, progress and deadlines find their
    request here."""

    def __init__(self, name: str, ids: Iterator[int] | None = None) -> None:
        """`ids`: where the ids of requests come from, if not from one on."""
        self.name = name
        """The peer's configured name; it stands in every error made on its behalf."""
        self._waits: dict[str | int, Wait] = {}
        self._ids = itertools.count(1) if ids is None else ids
        self._loop: asyncio.AbstractEventLoop | None = None
        """Kept, for asking for it is a system call (getpid) in Python 3.11."""
        self._timer: asyncio.TimerHandle | None = None
        """One for all: set for the earliest deadline, or earlier."""
        self._due = 0.0
        self._over = False
        self.noise = 0
        """Messages that could not be understood."""
        self.redact: Callable[[str], str] = lambda text: text
        """Removes the secrets that the gateway sent to the peer from a text of the peer."""
        self.strays = 0
        """Replies to nothing that waits: late, cancelled, made up."""

    def __len__(self) -> int:
        return len(self._waits)

    def open(
        self,
        method: str,
        params: Json | None,
        meanwhile: Meanwhile | None,
        timeout: float | None,
        id: str | None = None,
    ) -> tuple[str | int, Wait, Json]:
        """Register a request: its id, its wait and the message to send. A progress token becomes
        one of ours."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        rid: str | int = id if id is not None else next(self._ids)
        token = None
        if meanwhile is not None and params is not None:
            meta = params.get("_meta")
            if isinstance(meta, dict) and "progressToken" in meta:
                token = cast(Json, meta)["progressToken"]
                params = {**params, "_meta": {**meta, "progressToken": rid}}
        wait = Wait(loop.create_future(), meanwhile, token, timeout)
        if timeout is not None:
            now = loop.time()
            wait.latest = now + LONGEST_CALL
            wait.deadline = now + timeout
            if self._timer is None or wait.deadline < self._due:
                self._expire_at(loop, wait.deadline)
        self._waits[rid] = wait
        return rid, wait, jsonrpc.request(rid, method, params)

    def drop(self, rid: str | int) -> None:
        self._waits.pop(rid, None)
        if self._over and not self._waits:
            self._stop()

    def wind_down(self) -> None:
        """Nothing more will be asked: the timer goes with the last that waits."""
        self._over = True
        if not self._waits:
            self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire_at(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = when
        self._timer = loop.call_at(when, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        late, following = loop.time() + 0.001, None
        for wait in self._waits.values():
            if wait.timeout is None or wait.future.done():
                continue
            if wait.deadline <= late:
                problem = Unavailable(
                    self.name, SERVER_TIMEOUT, f"no answer within {wait.timeout:g} s"
                )
                wait.future.set_exception(problem)
            elif following is None or wait.deadline < following:
                following = wait.deadline
        if following is not None:
            self._expire_at(loop, following)

    def progressed(self, params: Json) -> bool:
        """Route a progress notification to its meanwhile, under the caller's own token."""
        token = params.get("progressToken")
        wait = self._waits.get(token) if jsonrpc.is_id(token) else None
        if wait is None or wait.meanwhile is None or wait.token is None:
            return False
        if wait.timeout is not None:
            wait.deadline = min(asyncio.get_running_loop().time() + wait.timeout, wait.latest)
        wait.meanwhile.progress({**params, "progressToken": wait.token})
        return True

    def resolve(self, message: Json) -> None:
        """Hand a response to its request. One for nobody (late, cancelled, made up) is noise."""
        rid = message.get("id")
        wait = self._waits.get(rid) if jsonrpc.is_id(rid) else None
        if wait is None or wait.future.done():
            self.strays += 1
            return
        if message.get("error") is not None:
            wait.future.set_exception(RpcError.from_json(message["error"]))
        elif isinstance(message.get("result"), dict):
            wait.future.set_result(cast(Json, message["result"]))
        else:
            wait.future.set_exception(
                Unavailable(self.name, SERVER_GARBAGE, "the result is not an object")
            )

    def fail(self, rid: str | int, error: RpcError) -> None:
        wait = self._waits.get(rid)
        if wait is not None and not wait.future.done():
            wait.future.set_exception(error)

    def too_large(self, head: bytes, limit: int) -> bool:
        """A message over the limit was skipped: fail the request it answered. Whether that could be
        told."""
        rid: int | str | None = None
        if (found := _ANSWERED_ID.match(head)) is not None:
            rid = int(found[1])
        elif len(self._waits) == 1 and not _NO_ANSWER.match(head):
            rid = next(iter(self._waits))
        if rid in self._waits:
            self.fail(
                rid,
                Unavailable(
                    self.name, SERVER_TOO_LARGE, f"the answer is larger than {limit:,} bytes"
                ),
            )
            return True
        self.strays += 1
        return False

    def unreadable(self, head: bytes, why: str) -> None:
        """A message that is no JSON: if it answered a request, that request has failed."""
        if (found := _ANSWERED_ID.match(head)) is not None:
            what = f"the answer is not JSON: {why}; it began: {excerpt(head, self.redact)}"
            self.fail(int(found[1]), Unavailable(self.name, SERVER_GARBAGE, what))

    def fail_all(self, code: int, reason: str) -> None:
        spread(list(self._waits), lambda rid: self.fail(rid, Unavailable(self.name, code, reason)))
        self._stop()


class Peer:
    """A conversation over one ordered carrier of messages."""

    def __init__(
        self,
        name: str,
        transmit: Callable[[bytes], None],
        inbound: Inbound,
        *,
        answer_garbage: bool = False,
        identify: bool = False,
    ) -> None:
        """`identify`: whoever asks is a client, whose requests have ids that errors of ours
        tell."""
        self._transmit = transmit
        self._inbound = inbound
        self._answer_garbage = answer_garbage
        self._request_id = identity if identify else None
        self._tasks = Tasks(name)
        self._answering: dict[str | int, asyncio.Task[Any]] = {}
        self._large = 0  # bytes of the large requests being answered
        self.waiting = Waiting(name)
        self.lost: str | None = None

    @property
    def busy(self) -> bool:
        """Whether more than one request is on its way, in either direction."""
        return len(self._answering) + len(self.waiting) > 1

    @property
    def answering(self) -> int:
        """Requests that are being answered."""
        return len(self._answering)

    async def request(
        self,
        method: str,
        params: Json | None,
        *,
        meanwhile: Meanwhile | None = None,
        timeout: float | None = None,
        id: str | None = None,
    ) -> Json:
        if self.lost is not None:
            error = Unavailable(self.waiting.name, SERVER_DIED, self.lost)
            error.unsent = True
            raise error
        rid, wait, message = self.waiting.open(method, params, meanwhile, timeout, id)
        try:
            self._transmit(codec.dump(message))
            return await wait.future
        except (asyncio.CancelledError, Unavailable) as error:
            gave_up = isinstance(error, asyncio.CancelledError) or error.code == SERVER_TIMEOUT
            if gave_up and method != "initialize" and self.lost is None:
                self.notify(
                    "notifications/cancelled", {"requestId": rid, "reason": "the caller gave up"}
                )
            raise
        except codec.Unencodable as error:
            raise RpcError(INVALID_REQUEST, f"the message cannot be sent: {error}") from None
        finally:
            self.waiting.drop(rid)

    def notify(self, method: str, params: Json | None) -> None:
        self.send(jsonrpc.notification(method, params))

    def receive(self, raw: bytes) -> None:
        """One message from the carrier."""
        try:
            message = codec.load(raw)
        except codec.BadJson as error:
            self._garbage(PARSE_ERROR, f"Parse error: {error}")
            self.waiting.unreadable(raw[:MAX_REDACTED_BYTES], str(error))
            return
        match jsonrpc.classify(message):
            case "response":
                self.waiting.resolve(message)
            case "notification":
                self._notified(message)
            case "request":
                self._asked(message, len(raw))
            case "invalid":
                batch = " (batches are not supported)" if isinstance(message, list) else ""
                self._garbage(INVALID_REQUEST, f"Not a JSON-RPC 2.0 message{batch}", message)

    def _garbage(self, code: int, text: str, message: Any = None) -> None:
        self.waiting.noise += 1
        if self._answer_garbage:
            rid = cast(Json, message).get("id") if isinstance(message, dict) else None
            self.refuse(rid if jsonrpc.is_id(rid) else None, RpcError(code, text))

    def refuse(self, rid: str | int | None, error: RpcError) -> None:
        self.send(jsonrpc.failure(rid, error, self._request_id))

    def _notified(self, message: Json) -> None:
        method, params = message["method"], jsonrpc.params_of(message)
        if method == "notifications/progress" and self.waiting.progressed(params):
            return
        if method == "notifications/cancelled":
            rid = params.get("requestId")
            task = self._answering.pop(rid, None) if jsonrpc.is_id(rid) else None
            if task is not None:
                task.cancel()
                return
        self._inbound.notification(method, params)

    def _asked(self, message: Json, size: int) -> None:
        rid = message["id"]
        if rid in self._answering:
            self.refuse(rid, RpcError(INVALID_REQUEST, f"Request id {rid!r} is already in flight"))
        elif len(self._answering) >= MOST_CALLS or self._large + size > MOST_LARGE:
            text = (
                f"{len(self._answering):,} requests are in flight on this connection; wait for "
                "some of their answers"
            )
            self.refuse(rid, overloaded(text, status=429))
        else:
            self._answering[rid] = task = self._tasks.start(self._answer(rid, message))
            if size > LARGE:
                self._large += size
                task.add_done_callback(lambda _: self._let_go(size))

    def _let_go(self, size: int) -> None:
        self._large -= size

    async def _answer(self, rid: str | int, message: Json) -> None:
        try:
            reply = jsonrpc.result(rid, await self._inbound.request(message))
        except RpcError as error:
            reply = jsonrpc.failure(rid, error, self._request_id)
        except asyncio.CancelledError:
            raise  # a cancelled request is never answered
        except Exception:
            if self._request_id is None:
                log.exception("%s: answering %s failed", self.waiting.name, message["method"])
                reply = jsonrpc.failure(rid, RpcError(INTERNAL_ERROR, "Internal error"))
            else:
                which = self._request_id()
                log.exception(
                    "answering %s failed (request %s)", message["method"], which, extra=answering()
                )
                reply = jsonrpc.broken(rid, which)
        finally:
            if self._answering.get(rid) is asyncio.current_task(
                self._tasks.loop
            ):  # else it was cancelled, and the id used again
                del self._answering[rid]
        self.send(reply)

    def send(self, message: Json) -> None:
        """Send a message as it is. An answer that cannot be written as JSON becomes an error, never
        silence."""
        if self.lost is not None:
            return
        try:
            raw = codec.dump(message)
        except codec.Unencodable as error:
            if "id" not in message:
                return
            problem = RpcError(INTERNAL_ERROR, f"Unencodable reply: {error}")
            raw = codec.dump(jsonrpc.failure(message["id"], problem, self._request_id))
        self._transmit(raw)

    def send_encoded(self, raw: bytes) -> None:
        """Send a message that was encoded already, for many hear it."""
        if self.lost is None:
            self._transmit(raw)

    async def finish(self, grace: float) -> None:
        """Let what is being answered finish, for so many seconds; what does not is answered with an
        error."""
        if self._answering:
            await asyncio.wait(self._answering.values(), timeout=grace)
        for rid, task in list(self._answering.items()):
            self.refuse(rid, gateway_ending())
            task.cancel()

    def lose(self, reason: str, code: int = SERVER_DIED) -> None:
        """The carrier is gone: fail what waits, stop what answers, tell the owner once."""
        if self.lost is not None:
            return
        self.lost = reason
        self.waiting.fail_all(code, reason)
        self._tasks.cancel()
        self._inbound.closed(reason)

    async def close(self) -> None:
        self.lose("closed by the gateway")
        await self._tasks.close()
