"""JSON-RPC core of the test server: calls, client connections of both protocol eras, and reply
shapes.

The older era has a handshake (`initialize`) and keeps state per session. The modern era
(2026-07-28) has neither: each request carries an envelope in `params._meta`. Transports deliver
decoded messages and send encoded ones.
"""

import json
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

OLDER_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LATEST_OLDER_VERSION = OLDER_VERSIONS[-1]
MODERN_VERSION = "2026-07-28"
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

META_PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = META_PREFIX + "protocolVersion"
CAPABILITIES_KEY = META_PREFIX + "clientCapabilities"
CLIENT_INFO_KEY = META_PREFIX + "clientInfo"
SERVER_INFO_KEY = META_PREFIX + "serverInfo"
LOG_LEVEL_KEY = META_PREFIX + "logLevel"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
HEADER_MISMATCH = -32020
MISSING_CLIENT_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

MODERN_RESULT_FIELDS = ("resultType", "ttlMs", "cacheScope")
THREADED_METHODS = ("tools/call", "subscriptions/listen")
"""Requests that may take long. All others are answered in order by the thread that received
them."""

MAX_EARLY_MESSAGES = 8
CLOSE_TIMEOUT_SECONDS = 2.0

REQUIRED_PARAMS: dict[str, dict[str, type]] = {
    "initialize": {"protocolVersion": str, "capabilities": dict, "clientInfo": dict},
    "tools/call": {"name": str},
    "resources/read": {"uri": str},
    "resources/subscribe": {"uri": str},
    "resources/unsubscribe": {"uri": str},
    "prompts/get": {"name": str},
    "completion/complete": {"ref": dict, "argument": dict},
    "logging/setLevel": {"level": str},
    "subscriptions/listen": {"notifications": dict},
}
OPTIONAL_PARAMS: dict[str, type] = {
    "_meta": dict,
    "arguments": dict,
    "cursor": str,
    "inputResponses": dict,
}


class RpcError(Exception):
    """A JSON-RPC error. The request that causes it is answered with it."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def reply(self, request_id: Any) -> Json:
        error: Json = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return {"jsonrpc": "2.0", "id": request_id, "error": error}


class CallCancelled(Exception):
    """The client has cancelled the call, or its connection has ended."""


def invalid_params() -> RpcError:
    return RpcError(INVALID_PARAMS, "Invalid request parameters", "")


def unsupported_version(requested: str) -> RpcError:
    data = {"supported": [MODERN_VERSION], "requested": requested}
    return RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)


def encode(message: Json) -> bytes:
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    # UTF-8 has no lone surrogates. "backslashreplace" writes one as \udXXX, which is its JSON
    # escape.
    return text.encode("utf-8", "backslashreplace")


def notification(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def message_kind(message: Any) -> str | None:
    """Classify a decoded message: "request", "notification", "response", or None if it is
    invalid."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return None
    if isinstance(message.get("method"), str):
        params = message.get("params")
        if params is not None and not isinstance(params, dict):
            return None
        return "request" if is_request_id(message.get("id")) else "notification"
    if isinstance(message.get("result"), dict) and is_request_id(message.get("id")):
        return "response"
    error = message.get("error")
    if isinstance(error, dict) and "id" in message:
        return (
            "response"
            if isinstance(error.get("code"), int) and isinstance(error.get("message"), str)
            else None
        )
    return None


def is_request_id(value: Any) -> bool:
    return isinstance(value, (int, str)) and not isinstance(value, bool)


def has_envelope(message: Json) -> bool:
    meta = (message.get("params") or {}).get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def read_envelope(message: Json) -> Json:
    """Return the request's `_meta`. Raise RpcError if a required key of the modern era is
    missing."""
    meta = (message.get("params") or {}).get("_meta")
    if not isinstance(meta, dict):
        raise RpcError(
            INVALID_PARAMS,
            f"params._meta must be an object carrying the required {VERSION_KEY!r} and "
            f"{CAPABILITIES_KEY!r} "
            "envelope keys",
        )
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise RpcError(
            INVALID_PARAMS,
            f"params._meta is missing the required envelope key(s): {', '.join(missing)}",
        )
    return meta


def check_version(version: Any) -> None:
    if not isinstance(version, str):
        raise RpcError(INVALID_PARAMS, "the protocol-version envelope value must be a string")
    if version != MODERN_VERSION:
        raise unsupported_version(version)


class Client:
    """The client's version, name, and capabilities: of a session in the older era, of one request
    in the modern."""

    def __init__(
        self, version: str, info: Json | None = None, capabilities: Json | None = None
    ) -> None:
        self.version = version
        self.info = info
        self.capabilities = capabilities

    @classmethod
    def from_envelope(cls, meta: Json) -> "Client":
        capabilities = meta[CAPABILITIES_KEY]
        info = meta.get(CLIENT_INFO_KEY)
        return cls(
            meta[VERSION_KEY],
            info if isinstance(info, dict) else None,
            capabilities if isinstance(capabilities, dict) else None,
        )


class Call:
    """One request while it is served. The handler waits and sends through the call."""

    def __init__(
        self,
        request: Json,
        client: Client,
        send: Callable[[Json], None],
        session: "OlderConnection | None" = None,
    ) -> None:
        self.request_id = request["id"]
        self.method: str = request["method"]
        self.params: Json = request.get("params") or {}
        self.client = client
        self.session = session
        self.send = send
        self.is_cancelled = False
        # Receives the answer to a question, or CallCancelled.
        self._mailbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

    @property
    def is_modern(self) -> bool:
        return self.session is None

    @property
    def meta(self) -> Json:
        return self.params.get("_meta") or {}

    def notify(self, method: str, params: Json) -> None:
        self.send(notification(method, params))

    def report_progress(self, progress: float, total: float, message: str) -> None:
        token = self.meta.get("progressToken")
        if is_request_id(token):
            params = {
                "progressToken": token,
                "progress": progress,
                "total": total,
                "message": message,
            }
            self.notify("notifications/progress", params)

    def log(self, level: str, data: Any, logger: str) -> None:
        """Send a log message if its level reaches the session's level, or the level that the modern
        request names."""
        wanted = self.meta.get(LOG_LEVEL_KEY) if self.session is None else self.session.log_level
        if wanted in LEVELS and LEVELS.index(level) >= LEVELS.index(wanted):
            self.notify("notifications/message", {"level": level, "data": data, "logger": logger})

    def wait(self, seconds: float | None = None) -> None:
        """Sleep for the given time, or forever. Raise CallCancelled when the call is cancelled."""
        try:
            self._mailbox.get(timeout=seconds)
        except queue.Empty:
            return
        raise CallCancelled

    def ask(self, method: str, params: Json) -> Json:
        """Send a request to an older client on the stream of this call, and return the result."""
        assert self.session is not None
        question_id = self.session.add_question(self)
        question: Json = {"jsonrpc": "2.0", "id": question_id, "method": method}
        if params:
            question["params"] = params
        self.send(question)
        answer = self._mailbox.get()
        self.session.remove_question(question_id)
        if answer is CallCancelled:
            self.notify(
                "notifications/cancelled", {"requestId": question_id, "reason": "caller cancelled"}
            )
            raise CallCancelled
        if "error" in answer:
            error = answer["error"]
            raise RpcError(error["code"], error["message"], error.get("data"))
        return answer["result"]

    def receive_answer(self, message: Json) -> None:
        self._mailbox.put(message)

    def cancel(self) -> None:
        self.is_cancelled = True
        self._mailbox.put(CallCancelled)


Handler = Callable[[Call], Json]


class Dispatcher:
    """Chooses a call's handler, checks the params, and shapes the reply for the call's era."""

    def __init__(
        self, server_info: Json, older: dict[str, Handler], modern: dict[str, Handler]
    ) -> None:
        self._server_info = server_info
        self._older = older
        self._modern = modern

    def reply(self, call: Call) -> Json | None:
        """Serve a call and return its response, or None if it was cancelled."""
        try:
            result = self._serve(call)
        except CallCancelled:
            return None
        except RpcError as error:
            return error.reply(call.request_id)
        except Exception as error:  # noqa: BLE001 - a defect in a handler must reach the client that ran into it
            sys.stderr.write(f"everything: {call.method}: {type(error).__name__}: {error}\n")
            # The SDK hides the text from modern clients and uses code 0 for older ones.
            hidden = (
                RpcError(INTERNAL_ERROR, "Internal server error")
                if call.is_modern
                else RpcError(0, str(error))
            )
            return hidden.reply(call.request_id)
        if call.is_cancelled:
            return None
        return {"jsonrpc": "2.0", "id": call.request_id, "result": self._shape(call, result)}

    def _serve(self, call: Call) -> Json:
        handlers = self._modern if call.is_modern else self._older
        handler = handlers.get(call.method)
        if handler is None:
            raise RpcError(METHOD_NOT_FOUND, "Method not found", call.method)
        self._check_params(call)
        if call.session is not None and not call.session.allows(call.method):
            raise invalid_params()
        return handler(call)

    def _check_params(self, call: Call) -> None:
        for name, required_type in REQUIRED_PARAMS.get(call.method, {}).items():
            if not isinstance(call.params.get(name), required_type):
                raise invalid_params()
        for name, optional_type in OPTIONAL_PARAMS.items():
            if not isinstance(call.params.get(name), (optional_type, type(None))):
                raise invalid_params()
        if call.is_modern and not isinstance(call.meta.get(CAPABILITIES_KEY), dict):
            raise invalid_params()
        if call.meta.get(LOG_LEVEL_KEY) not in (None, *LEVELS):
            raise invalid_params()

    def _shape(self, call: Call, result: Json) -> Json:
        """Add the fields that each modern result has, or remove the fields that no older result
        has."""
        if not call.is_modern:
            return {
                name: value for name, value in result.items() if name not in MODERN_RESULT_FIELDS
            }
        meta = {SERVER_INFO_KEY: self._server_info, **result.get("_meta", {})}
        return {"resultType": "complete", **result, "_meta": meta}


class Connection:
    """The calls in flight of one client."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._lock = threading.Lock()
        self._calls: dict[str, Call] = {}
        self._threads: set[threading.Thread] = set()

    def start(self, call: Call) -> None:
        """Serve a call: in a thread if it may take long, else before this method returns."""
        with self._lock:
            self._calls[str(call.request_id)] = call
        if call.method in THREADED_METHODS:
            thread = threading.Thread(target=self._serve_in_thread, args=(call,), daemon=True)
            with self._lock:
                self._threads.add(thread)
                thread.start()
        else:
            self._serve(call)

    def _serve_in_thread(self, call: Call) -> None:
        self._serve(call)
        with self._lock:
            self._threads.discard(threading.current_thread())

    def _serve(self, call: Call) -> None:
        reply = self._dispatcher.reply(call)
        with self._lock:
            # A client may have reused the id for a newer call.
            if self._calls.get(str(call.request_id)) is call:
                del self._calls[str(call.request_id)]
        if reply is None or call.is_cancelled:
            self.on_unanswered(call)
        else:
            call.send(reply)

    def on_unanswered(self, call: Call) -> None:
        """Called when a cancelled call has ended. Stream transports send nothing."""

    def cancel(self, request_id: Any) -> None:
        with self._lock:
            call = self._calls.get(str(request_id)) if is_request_id(request_id) else None
        if call is not None:
            call.cancel()

    def close(self) -> None:
        """Cancel all calls, and wait until their threads have ended."""
        with self._lock:
            calls = list(self._calls.values())
            threads = list(self._threads)
        for call in calls:
            call.cancel()
        for thread in threads:
            thread.join(CLOSE_TIMEOUT_SECONDS)


class OlderConnection(Connection):
    """A session of the older era. `write` sends a message on the stream of a request, or on the
    session's stream."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        write: Callable[[Json, Any], None],
        sessions: "Sessions",
        refuses_envelopes: bool = False,
    ) -> None:
        super().__init__(dispatcher)
        self.client = Client(LATEST_OLDER_VERSION)
        self.log_level = "debug"
        self.subscribed: set[str] = set()
        self.token: str | None = None
        self._write = write
        self._sessions = sessions
        self._refuses_envelopes = refuses_envelopes
        self._is_initialized = False
        self._questions: dict[str, Call] = {}
        self._last_question_id = 0

    def receive(self, message: Json) -> None:
        kind = message_kind(message)
        if kind == "request":
            self._receive_request(message)
        elif kind == "notification":
            self._receive_notification(message)
        elif kind == "response":
            self._receive_response(message)

    def _receive_request(self, message: Json) -> None:
        request_id = message["id"]
        if self._refuses_envelopes and message["method"] != "initialize" and has_envelope(message):
            refusal = RpcError(
                INVALID_REQUEST,
                "this connection serves the handshake protocol era; "
                "requests carrying the 2026-07-28 envelope are not accepted on it",
            )
            self._write(refusal.reply(request_id), request_id)
            return
        self._sessions.add(self)
        self.start(Call(message, self.client, lambda reply: self._write(reply, request_id), self))

    def _receive_notification(self, message: Json) -> None:
        if message["method"] == "notifications/initialized":
            self._is_initialized = True
        elif message["method"] == "notifications/cancelled":
            self.cancel((message.get("params") or {}).get("requestId"))

    def _receive_response(self, message: Json) -> None:
        with self._lock:
            call = self._questions.get(str(message["id"]))
        if call is not None:
            call.receive_answer(message)

    def accept(self, params: Json) -> None:
        """Record the client that `initialize` names."""
        requested = params["protocolVersion"]
        version = requested if requested in OLDER_VERSIONS else LATEST_OLDER_VERSION
        self.client = Client(version, params["clientInfo"], params["capabilities"])
        self._is_initialized = True

    def allows(self, method: str) -> bool:
        return self._is_initialized or method in ("initialize", "ping")

    def notify(self, method: str, params: Json | None = None) -> None:
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        self._write(message, None)

    def add_question(self, call: Call) -> int:
        with self._lock:
            self._last_question_id += 1
            self._questions[str(self._last_question_id)] = call
            return self._last_question_id

    def remove_question(self, question_id: int) -> None:
        with self._lock:
            del self._questions[str(question_id)]

    def close(self) -> None:
        self._sessions.remove(self)
        super().close()


class Sessions:
    """The open sessions of the older era. Change notifications go to all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: set[OlderConnection] = set()

    def add(self, session: OlderConnection) -> None:
        with self._lock:
            self._sessions.add(session)

    def remove(self, session: OlderConnection) -> None:
        with self._lock:
            self._sessions.discard(session)

    def all(self) -> list[OlderConnection]:
        with self._lock:
            return list(self._sessions)


class ModernConnection(Connection):
    """A stream of modern requests. Each request carries its own envelope."""

    def __init__(self, dispatcher: Dispatcher, write: Callable[[Json, Any], None]) -> None:
        super().__init__(dispatcher)
        self._write = write

    def receive(self, message: Json) -> None:
        kind = message_kind(message)
        if kind == "request":
            self._receive_request(message)
        elif kind == "notification" and message["method"] == "notifications/cancelled":
            self.cancel((message.get("params") or {}).get("requestId"))

    def _receive_request(self, message: Json) -> None:
        request_id = message["id"]
        try:
            if message["method"] == "initialize":
                raise self._refusal_of_handshake(message)
            meta = read_envelope(message)
            check_version(meta[VERSION_KEY])
        except RpcError as error:
            self._write(error.reply(request_id), request_id)
            return
        client = Client.from_envelope(meta)
        self.start(Call(message, client, lambda reply: self._write(reply, request_id)))

    def _refusal_of_handshake(self, message: Json) -> RpcError:
        data: Json = {"supported": [MODERN_VERSION]}
        requested = (message.get("params") or {}).get("protocolVersion")
        if isinstance(requested, str):
            data["requested"] = requested
        text = (
            "connection is serving the 2026-07-28 protocol; the initialize handshake is not "
            "accepted"
        )
        return RpcError(UNSUPPORTED_VERSION, text, data)


class StreamConnection:
    """A client on a duplex stream (stdio, HTTP+SSE, WebSocket).

    With the era "dual", the client's first request decides the era of the connection.
    """

    def __init__(
        self, dispatcher: Dispatcher, sessions: Sessions, era: str, write: Callable[[Json], None]
    ) -> None:
        self._dispatcher = dispatcher
        self._sessions = sessions
        self._write_message = write
        self._connection: OlderConnection | ModernConnection | None = None
        self._early_messages: list[Json] = []
        if era == "older":
            self._connection = OlderConnection(dispatcher, self._write, sessions)
        elif era == "modern":
            self._connection = ModernConnection(dispatcher, self._write)

    def _write(self, message: Json, request_id: Any) -> None:
        # A duplex stream carries all messages, so the request that a message belongs to does not
        # matter.
        del request_id
        self._write_message(message)

    def receive(self, message: Any) -> None:
        if self._connection is None:
            if message_kind(message) != "request":
                self._early_messages.append(message)
                del self._early_messages[MAX_EARLY_MESSAGES:]
                return
            self._connection = self._open(message)
            for early_message in self._early_messages:
                self._connection.receive(early_message)
        self._connection.receive(message)

    def _open(self, request: Json) -> OlderConnection | ModernConnection:
        if request["method"] != "initialize" and has_envelope(request):
            return ModernConnection(self._dispatcher, self._write)
        return OlderConnection(
            self._dispatcher, self._write, self._sessions, refuses_envelopes=True
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
