"""Streamable HTTP, the server side: a POST for each message, in both eras; sessions, GET and DELETE
in the older.

The older era's rules, in short: `initialize` makes the session; a broken connection is not a
cancellation, the client may come back for the rest; questions to the client travel on the stream of
the call that caused them. The modern era's: no session, a closed connection is the cancellation, an
error travels under the HTTP status of its code.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

from mcpx.base.aio import Tasks
from mcpx.front.audience import ListenStream
from mcpx.front.dispatch import Dispatcher, Tracker, weight_of
from mcpx.front.http_session import HttpSession, ModernVoice, PostVoice
from mcpx.front.notices import encoded
from mcpx.front.sessions import Client, Sessions
from mcpx.front.streams import REQUEST_ID, PostStream, refuse
from mcpx.front.turns import Turns
from mcpx.front.visitor import Visitor
from mcpx.model.call import Caller, Json, as_object
from mcpx.model.errors import (
    HEADER_MISMATCH,
    INVALID_REQUEST,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    Denied,
    RpcError,
    cut_off,
    gateway_ending,
    overloaded,
)
from mcpx.model.requests import answering, clean, new_id
from mcpx.wire import codec, era, jsonrpc
from mcpx.wire.exchange import Exchange, Headers, whole_number

if TYPE_CHECKING:
    from mcpx.front.neighbours.neighbours import Neighbours

log = logging.getLogger(__name__)

SILENT_FOR = 10.0
"""Seconds a call may be silent before its reply becomes a stream that shows signs of life."""
KEEP = 20
"""Rounds of upkeep after which other replicas are told that sessions are still there."""
KEPT_FOR = 60.0
"""Seconds finished event streams wait for a client that lost its connection."""
READ_FOR = 15.0
"""Seconds they are kept when their answer was written to a connection: its client may have lost
that just then."""
EVICTION_LOG_SECONDS = 60.0
"""Least time between two log messages about evicted sessions."""
MOST_RUNNING = 1_000
MOST_OF_ONE = 4_000
"""Calls in flight of one session, and of all sessions of one principal at one address."""

LISTEN = "subscriptions/listen"
CLOSED = "this client is not let in any more: its token or profile is gone"

ROUTING = ("mcp-protocol-version", "mcp-method", "mcp-name")


class Streamable:
    def __init__(
        self,
        dispatcher: Dispatcher,
        tasks: Tasks,
        beside: Callable[[Client | None], int] = lambda _: 0,
    ) -> None:
        """`beside`: how many conversations a client, or all clients (None), have on carriers of
        their own."""
        self._dispatcher = dispatcher
        self._tasks = tasks
        self._admission = dispatcher.admission
        self.sessions = Sessions(self._left, self._most_sessions, beside, self._mint)
        self.neighbours: Neighbours | None = None
        """Other replicas; None: there are none, and every session is here."""
        self._rounds = 0
        self._evictions_logged = 0
        self._evictions_logged_at = -math.inf  # Monotonic time.
        self._open: dict[PostStream, asyncio.Task[None]] = {}
        self._ending = asyncio.Event()
        self._upkeep = Turns()

    def _most_sessions(self) -> int | None:
        limits = self._dispatcher.gateway.generation.config.server.limits
        if limits is None:
            return None
        return limits.sessions

    def admits(self, exchange: Exchange, visitor: Visitor) -> bool:
        """Whether one more client may come on a carrier of its own; answers the request itself when
        not."""
        if self.sessions.room_beside(visitor):
            return True
        self._turn_away(exchange, None, "gateway.sessions", too_many_sessions())
        return False

    def _mint(self) -> str | None:
        if self.neighbours is None:
            return None
        return self.neighbours.mint()

    def _left(self, owner: HttpSession) -> None:
        moved = self.neighbours is not None and owner.journal is None
        if self.neighbours is not None:
            self.neighbours.ended(owner)
        self._tasks.start(self._leave(owner, moved))

    async def _leave(self, owner: HttpSession, moved: bool) -> None:
        if (
            owner.taken_up is not None
        ):  # what it asks of servers on behalf of the client must not come after the end
            owner.taken_up.cancel()
            await asyncio.wait([owner.taken_up])
        await self._dispatcher.leave(owner.session, moved=moved)

    def handle(
        self, exchange: Exchange, visitor: Visitor, mode: str | None = None, *, passed: bool = False
    ) -> None:
        """`mode`: the surface that the path asks for. `passed`: another replica has handed it
        over."""
        modern = era.is_modern_header(exchange.headers.get("mcp-protocol-version"))
        if (
            self.neighbours is not None
            and not modern
            and self._is_elsewhere(exchange, visitor, mode, passed)
        ):
            return
        match exchange.method:
            case "POST":
                self._post(exchange, visitor, modern, mode, passed)
            case "GET" if not modern:
                self._get(exchange, visitor)
            case "DELETE" if not modern:
                self._delete(exchange, visitor)
            case _:
                exchange.reply(
                    405, b"", None, [("allow", "POST" if modern else "POST, GET, DELETE")]
                )

    def _is_elsewhere(
        self, exchange: Exchange, visitor: Visitor, mode: str | None, passed: bool
    ) -> bool:
        """Whether another replica answers it."""
        assert self.neighbours is not None
        id = exchange.headers.get("mcp-session-id")
        if id is None:
            return (
                self.neighbours.leaving
                and not passed
                and self.neighbours.hand_on(exchange, visitor, mode)
            )
        return id not in self.sessions and self.neighbours.take(
            exchange, visitor, mode, id, passed=passed
        )

    # POST
    # ----------------------------------------------------------------------------------------------

    def _post(
        self, exchange: Exchange, visitor: Visitor, modern: bool, mode: str | None, passed: bool
    ) -> None:
        headers = exchange.headers
        if not _accepts(headers.get("accept"), "application/json", "text/event-stream"):
            text = "Accept must allow application/json and text/event-stream"
            return _refuse(exchange, 406, None, RpcError(INVALID_REQUEST, text))
        kind = (headers.get("content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            text = "Content-Type must be application/json"
            return _refuse(exchange, 415, None, RpcError(INVALID_REQUEST, text))
        try:
            message = codec.load(exchange.body)
        except codec.BadJson as error:
            return _refuse(exchange, 400, None, RpcError(PARSE_ERROR, f"Parse error: {error}"))
        match jsonrpc.classify(message):
            case "invalid":
                text = "the body must be one JSON-RPC 2.0 message"
                return _refuse(exchange, 400, _id_of(message), RpcError(INVALID_REQUEST, text))
            case "request":
                if modern:
                    begin = self._modern_request
                else:
                    begin = self._older_request
                if self._admission.calm:
                    begin(exchange, message, visitor, mode)
                else:
                    later = partial(begin, exchange, message, visitor, mode)
                    if not modern and self.neighbours is not None:
                        later = partial(self._begin_here, later, exchange, visitor, mode, passed)
                    self._admission.line_up(exchange, message, visitor, later)
            case "notification" if modern:
                version = headers.get("mcp-protocol-version") or ""
                if version not in era.MODERN:
                    return _refuse(exchange, 400, None, era.unsupported_version(version))
                exchange.reply(202)
            case "response" if modern:
                text = "a response cannot be posted in this revision"
                return _refuse(exchange, 400, None, RpcError(INVALID_REQUEST, text))
            case kind:
                owner = self._session(exchange, visitor)
                if owner is not None:
                    exchange.reply(202)
                    self._answered(owner, message) if kind == "response" else self._notified(
                        owner, message
                    )

    def _begin_here(
        self,
        begin: Callable[[], None],
        exchange: Exchange,
        visitor: Visitor,
        mode: str | None,
        passed: bool,
    ) -> None:
        """A request that stood in line: its session may have been given away meanwhile."""
        if not self._is_elsewhere(exchange, visitor, mode, passed):
            begin()

    def _session(self, exchange: Exchange, visitor: Visitor) -> HttpSession | None:
        """The session this request belongs to; answers the request itself when there is none."""
        wanted = exchange.headers.get("mcp-session-id")
        if wanted is None:
            _refuse(
                exchange,
                400,
                None,
                RpcError(INVALID_REQUEST, "Mcp-Session-Id is missing; send initialize first"),
            )
            return None
        owner = self.sessions.find(wanted, visitor)
        if owner is None:
            # 404 tells the client to initialise again; somebody else's session reads exactly the
            # same.
            _refuse(exchange, 404, None, RpcError(INVALID_REQUEST, "unknown or expired session"))
        return owner

    # Older requests
    # --------------------------------------------------------------------------------------------

    def _older_request(
        self, exchange: Exchange, message: Json, visitor: Visitor, mode: str | None
    ) -> None:
        if message["method"] == "initialize" and "mcp-session-id" not in exchange.headers:
            self._initialize(exchange, message, visitor, mode)
            return
        owner = self._session(exchange, visitor)
        if owner is None:
            return
        rid, method = message["id"], message["method"]
        if method == "initialize" or rid in owner.running:
            if method == "initialize":
                text = "initialize was already answered"
            else:
                text = f"id {rid!r} is already in flight"
            return _refuse(exchange, 200, rid, RpcError(INVALID_REQUEST, text))
        if method == "shutdown":
            exchange.reply(200, encoded(jsonrpc.result(rid, {})))
            self.sessions.end(owner)
            return
        if len(owner.running) >= MOST_RUNNING or owner.client.running >= MOST_OF_ONE:
            self._turn_away(exchange, rid, "client.built_in", _too_many(owner))
            return
        if method in era.NAME_PARAM:
            owner.calls += 1
        owner.client.running += 1
        self._admission.running += 1
        stream = owner.stream(exchange, rid)
        exchange.on_disconnect = stream.detach
        task = self._tasks.start(self._serve_older(owner, stream, message, exchange.headers))
        task.add_done_callback(lambda task: self._served(owner, stream, rid, task))
        self._open[stream] = owner.running[rid] = task

    async def _serve_older(
        self, owner: HttpSession, stream: PostStream, message: Json, headers: Headers
    ) -> None:
        rid = message["id"]
        serve = self._dispatcher.serve_older(message, owner.session, PostVoice(owner, stream))
        if self._dispatcher.tracker is not None:
            serve = self._followed(self._dispatcher.tracker, stream, message, headers, serve)
        failed: RpcError | None = None
        try:
            reply = jsonrpc.result(rid, await serve)
        except RpcError as error:
            reply, failed = _failed(stream, error, headers), error
        except Exception:
            which = stream.request_id = stream.request_id or _named(headers)
            log.exception(
                "answering %s failed (request %s)", message["method"], which, extra=answering()
            )
            reply = jsonrpc.broken(message["id"], which)
        owner.running.pop(rid, None)  # with the answer the id is free
        stream.finish(reply, failed)
        failed = (
            None  # Its traceback has this frame, which would keep the session in a reference cycle.
        )

    def _served(
        self, owner: HttpSession, stream: PostStream, rid: str | int, task: asyncio.Task[None]
    ) -> None:
        """Whatever became of a request; it may have been cancelled before it began."""
        owner.client.running -= 1
        self._admission.leave()
        self._open.pop(stream, None)
        if task.cancelled():
            cancelled = RpcError(REQUEST_CANCELLED, "Request cancelled")
            stream.finish(_failed(stream, cut_off() if owner.lost else cancelled))
        if owner.running.get(rid) is task:
            del owner.running[rid]

    def _initialize(
        self, exchange: Exchange, message: Json, visitor: Visitor, mode: str | None
    ) -> None:
        params = jsonrpc.params_of(message)
        try:
            weight = weight_of(params)
        except RpcError as error:
            return _refuse(exchange, 200, message["id"], error)
        owner = self.sessions.begin(visitor, weight)
        if owner is None:
            self._turn_away(exchange, message["id"], "gateway.sessions", too_many_sessions())
            return

        def greet() -> Json:
            return self._dispatcher.greet(
                params, owner.session, visitor, PostVoice(owner), solo=False, mode=mode
            )

        headers = [("mcp-session-id", owner.session.id)]
        if self._dispatcher.tracker is None:
            result = greet()
        else:
            result, request = self._dispatcher.tracker.note(
                message, exchange.headers, "http", greet
            )
            headers.append((REQUEST_ID, request.id))
        self._dispatcher.audience.join(owner.session)
        if self.neighbours is not None:
            self.neighbours.begun(owner)
        exchange.reply(200, encoded(jsonrpc.result(message["id"], result)), headers=headers)

    def _notified(self, owner: HttpSession, message: Json) -> None:
        method, params = message["method"], jsonrpc.params_of(message)
        if method == "notifications/cancelled":
            rid = params.get("requestId")
            if jsonrpc.is_id(rid):
                task = owner.running.pop(rid, None)
            else:
                task = None
            if task is not None:
                self._give_up(task)
            elif jsonrpc.is_id(rid):
                self._admission.cancel(owner.session.id, rid)
        else:
            self._dispatcher.notification(owner.session, method, params)

    def _answered(self, owner: HttpSession, message: Json) -> None:
        """The client's answer to a question of ours."""
        rid: Any = message.get("id")
        if isinstance(rid, str):
            answer = owner.questions.get(rid)
        else:
            answer = None
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(RpcError.from_json(message["error"]))
        elif isinstance(message["result"], dict):
            answer.set_result(cast(Json, message["result"]))
        else:
            answer.set_exception(RpcError(INVALID_REQUEST, "the client's answer is not an object"))

    def _turn_away(
        self, exchange: Exchange, rid: str | int | None, limit: str, denied: Denied
    ) -> None:
        self._dispatcher.gateway.refused[limit] += 1
        which = _named(exchange.headers)
        refuse(exchange, jsonrpc.failure(rid, denied, lambda: which), denied, [(REQUEST_ID, which)])

    # GET and DELETE
    # --------------------------------------------------------------------------------------------

    def _get(self, exchange: Exchange, visitor: Visitor) -> None:
        if not _accepts(exchange.headers.get("accept"), "text/event-stream"):
            return _refuse(
                exchange,
                406,
                None,
                RpcError(INVALID_REQUEST, "Accept must allow text/event-stream"),
            )
        owner = self._session(exchange, visitor)
        if owner is None:
            return
        name, _, position = (exchange.headers.get("last-event-id") or "").rpartition("-")
        at = whole_number(position) or 0
        stream = owner.streams.get(name)
        if stream is not None:
            exchange.on_disconnect = stream.detach
            stream.resume(exchange, at)
        else:
            owner.pushes.attach(exchange, at if name == "push" else None)

    def _delete(self, exchange: Exchange, visitor: Visitor) -> None:
        owner = self._session(exchange, visitor)
        if owner is not None:
            self.sessions.end(owner)
            exchange.reply(200)

    # Modern requests
    # -------------------------------------------------------------------------------------------

    def _modern_request(
        self, exchange: Exchange, message: Json, visitor: Visitor, mode: str | None
    ) -> None:
        headers = exchange.headers
        rid = message["id"]
        try:
            for name in ROUTING:
                if len(headers.all(name)) > 1:
                    raise RpcError(HEADER_MISMATCH, f"{name} appears more than once")
            era.check_envelope(message, {name: headers.get(name) for name in ROUTING})
            if (
                self.neighbours is not None
                and (holder := self.neighbours.holder(message)) is not None
            ):
                self.neighbours.hand_to(exchange, visitor, mode, holder)
                return
            stream = PostStream(exchange, "", request=rid)
            stream.visitor = visitor
            caller = self._dispatcher.modern_caller(
                message, visitor, ModernVoice(stream), solo=False, mode=mode
            )
            self._check_params(message, exchange, caller)
        except RpcError as error:
            _refuse(exchange, era.HTTP_STATUS.get(error.code, 400), rid, error)
            return
        task = self._tasks.start(self._serve_modern(stream, message, caller, exchange.headers))
        self._open[stream] = task
        # In this era closing the connection is how a client cancels.
        if message["method"] == LISTEN:
            exchange.on_disconnect = lambda: _cancel(task)
            task.add_done_callback(lambda _: self._open.pop(stream, None))
        else:
            exchange.on_disconnect = lambda: self._give_up(task)
            self._admission.running += 1
            task.add_done_callback(lambda _: self._finished(stream))

    def _finished(self, stream: PostStream) -> None:
        self._admission.leave()
        self._open.pop(stream, None)

    def _give_up(self, task: asyncio.Task[None]) -> None:
        if task.cancel():
            self._admission.gave_up()

    def _check_params(self, message: Json, exchange: Exchange, caller: Caller) -> None:
        """Headers that mirror arguments (`x-mcp-header`) must agree with them."""
        if message["method"] != "tools/call":
            return
        params: Json = message["params"]
        name = params.get("name")
        if isinstance(name, str):
            annotations = self._dispatcher.gateway.access.param_headers(name, caller)
        else:
            annotations = None
        if annotations:
            given: dict[str, list[str]] = {}
            for key, value in exchange.headers.items():
                if key.startswith("mcp-param-"):
                    given.setdefault(key, []).append(value)
            era.check_param_headers(annotations, params.get("arguments"), given)

    async def _serve_modern(
        self, stream: PostStream, message: Json, caller: Caller, headers: Headers
    ) -> None:
        listens = message["method"] == LISTEN
        if listens:
            serve = self._listen(stream, message, caller)
        else:
            serve = self._dispatcher.serve_modern(message, caller)
        if self._dispatcher.tracker is not None:
            serve = self._followed(self._dispatcher.tracker, stream, message, headers, serve)
        failed: RpcError | None = None
        try:
            result = await serve
            if self.neighbours is not None:
                result = self.neighbours.mark(result)
            reply = jsonrpc.result(message["id"], result)
        except RpcError as error:
            reply, failed = _failed(stream, error, headers), error
        except Exception:
            which = stream.request_id = stream.request_id or _named(headers)
            log.exception(
                "answering %s failed (request %s)", message["method"], which, extra=answering()
            )
            reply = jsonrpc.broken(message["id"], which)
        stream.finish(reply, failed)
        failed = None  # Its traceback has this frame: that is a reference cycle.

    async def _listen(self, stream: PostStream, message: Json, caller: Caller) -> Json:
        def push(method: str, params: Json) -> None:
            stream.send(jsonrpc.notification(method, params))

        listening = ListenStream(
            message["id"], message["params"].get("notifications"), push, caller
        )
        return await self._dispatcher.listen(listening, caller, self._ending)

    @staticmethod
    def _followed(
        tracker: Tracker,
        stream: PostStream,
        message: Json,
        headers: Headers,
        work: Coroutine[Any, Any, Json],
    ) -> Coroutine[Any, Any, Json]:
        request = tracker.begin(message, headers, "http")
        stream.request_id = request.id
        if tracker.attends:
            return tracker.attend(request, message, work)
        return work

    # Who leaves
    # ----------------------------------------------------------------------------------------------

    def see_off(self, leaves: Callable[[Visitor], bool]) -> None:
        """End the sessions, streams and calls of everybody for whom it holds; what stands in line
        is not begun."""
        self._admission.see_off(leaves, _gone())
        sessions = [owner for owner in self.sessions if leaves(owner.visitor)]
        streams = [
            stream for stream in self._open if stream.visitor is not None and leaves(stream.visitor)
        ]
        Turns().do(map(self._break_off, streams))
        Turns().do(map(self.sessions.end, sessions))

    def _break_off(self, stream: PostStream) -> None:
        stream.finish(_failed(stream, _gone()))
        if (task := self._open.get(stream)) is not None:
            task.cancel()

    # Upkeep
    # ----------------------------------------------------------------------------------------------

    def tend(self) -> None:
        """Signs of life on silent streams; an end for sessions nobody uses."""
        self._log_evictions()
        if not self._upkeep:  # else the last round is still on its way
            self._upkeep.do(self._tend())

    def _log_evictions(self) -> None:
        evictions = self.sessions.evicted - self._evictions_logged
        now = time.monotonic()
        if not evictions or now - self._evictions_logged_at < EVICTION_LOG_SECONDS:
            return
        self._evictions_logged = self.sessions.evicted
        self._evictions_logged_at = now
        log.warning(
            "sessions: evicted %d for new sessions, because the limit of %d is reached; raise "
            "server.limits.sessions, or add a replica",
            evictions,
            self.sessions.most,
        )

    def _tend(self) -> Iterator[None]:
        for stream in list(self._open):
            if stream.started or time.monotonic() - stream.opened_at >= SILENT_FOR:
                stream.ping()
            yield
        self._rounds += 1
        for owner in self.sessions:
            owner.tend(KEPT_FOR, READ_FOR)
            if (
                owner.journal is not None
                and self.neighbours is not None
                and self._rounds % KEEP == 0
            ):
                self.neighbours.records.keep(owner.session.id)
            self.sessions.end_if_idle(owner)
            yield

    # The end
    # ----------------------------------------------------------------------------------------------

    async def give_away(self, grace: float) -> None:
        """Have other replicas go on with all sessions, each when its calls are over, within
        `grace`."""
        neighbours = self.neighbours
        if neighbours is None:
            return
        neighbours.leaving = True
        until = asyncio.get_running_loop().time() + grace
        while busy := [owner for owner in self.sessions if owner.running]:
            for owner in self.sessions:
                if not owner.running:
                    neighbours.give_away(owner)
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                break
            calls = [task for owner in busy for task in owner.running.values()]
            await asyncio.wait(calls, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # for the answer to be on its way
        running = {task for owner in self.sessions for task in owner.running.values()}
        for stream in [stream for stream, task in self._open.items() if task in running]:
            stream.finish(_failed(stream, gateway_ending()))
        for owner in self.sessions:
            neighbours.give_away(owner)

    async def close(self, grace: float) -> None:
        """Let what runs finish within `grace`, then end every stream and session."""
        self._ending.set()
        self._admission.close(gateway_ending())
        if self._open:
            await asyncio.wait(self._open.values(), timeout=grace)
        for stream, task in list(self._open.items()):
            stream.finish(_failed(stream, gateway_ending()))
            task.cancel()
        for owner in self.sessions:
            if self.neighbours is not None:
                self.neighbours.give_away(owner)
            self.sessions.end(owner)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _gone() -> RpcError:
    return RpcError(REQUEST_CANCELLED, CLOSED)


def too_many_sessions() -> Denied:
    text = "too many sessions, and all of them are in use; end one (DELETE), or try again later"
    return overloaded(text, status=503, retry_after=5, limit="server.limits.sessions")


def _too_many(owner: HttpSession) -> Denied:
    running, whose = len(owner.running), "this session"
    if running < MOST_RUNNING:
        running, whose = owner.client.running, "this client"
    text = (
        f"{running:,} calls of {whose} are in flight, no more are taken; wait for some to end, "
        "or cancel them"
    )
    return overloaded(text, status=429)


def _id_of(message: Any) -> str | int | None:
    rid = as_object(message).get("id")
    if jsonrpc.is_id(rid):
        return rid
    return None


def _refuse(exchange: Exchange, status: int, rid: str | int | None, error: RpcError) -> None:
    which = _named(exchange.headers)
    exchange.reply(
        status, encoded(jsonrpc.failure(rid, error, lambda: which)), headers=[(REQUEST_ID, which)]
    )


def _failed(stream: PostStream, error: RpcError, headers: Headers | None = None) -> Json:
    which = stream.request_id
    if which is None:
        which = stream.request_id = _named(headers)
    return jsonrpc.failure(stream.request, error, lambda: which)


def _named(headers: Headers | None) -> str:
    """An id for a request that nobody follows: its client's own, if it gave one."""
    return (None if headers is None else clean(headers.get("x-request-id"))) or new_id()


def _accepts(header: str | None, *kinds: str) -> bool:
    """Whether `Accept` admits all of `kinds`; its absence admits anything."""
    if header is None:
        return True
    return (_admits_again if len(header) <= ORDINARY else _admits)(header, kinds)


def _admits(header: str, kinds: tuple[str, ...]) -> bool:
    offered = {part.partition(";")[0].strip().lower() for part in header.split(",")}
    return "*/*" in offered or all(
        kind in offered or kind.split("/")[0] + "/*" in offered for kind in kinds
    )


_admits_again = lru_cache(64)(_admits)
ORDINARY = 256
"""Characters of an `Accept` that is worth remembering."""
