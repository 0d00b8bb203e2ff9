"""The streamable HTTP transport of the test server: sessions of the older era, and requests of the
modern era.

The MCP-Protocol-Version header decides the era of a request. The older endpoint serves requests
without the header.
"""

import base64
import binascii
import os
import re
import threading
from typing import Any

from everything_server_features import Everything
from everything_server_http import JSON_TYPE, MAX_BODY_BYTES, Header, HttpRequest, HttpResponse
from everything_server_protocol import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LATEST_OLDER_VERSION,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    MODERN_VERSION,
    OLDER_VERSIONS,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    Call,
    Client,
    Connection,
    Dispatcher,
    Json,
    OlderConnection,
    RpcError,
    check_version,
    message_kind,
    read_envelope,
    unsupported_version,
)

PATH = "/mcp"
RETRY_MS = 100
HEADERLESS_VERSION = "2025-03-26"
"""The version of an older request without the MCP-Protocol-Version header."""
PRIMING_VERSION = "2025-11-25"
"""Clients of earlier versions cannot parse an event without data. Versions are dates, which compare
as text."""
SESSION_STREAM = "session"
"""Key of the stream that a GET opens. The key of any other stream is "request-" and the id of a
request."""

VERSION_HEADER = "mcp-protocol-version"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"
PARAM_HEADER_PREFIX = "Mcp-Param-"
SESSION_HEADER = "mcp-session-id"
ROUTING_HEADERS = (VERSION_HEADER, METHOD_HEADER, NAME_HEADER)
NAMED_PARAMS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
BASE64_VALUE = re.compile(r"=\?base64\?(.*)\?=")
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")

STATUS_BY_CODE = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""HTTP status of a JSON-RPC error in the modern era. The status of all other errors is 200."""


class StreamableHttp:
    """The HTTP endpoint. Chooses the era of a request, or refuses it as a server of one era
    does."""

    def __init__(self, everything: Everything, era: str, resumable: bool) -> None:
        dispatcher = everything.dispatcher()
        self._era = era
        self._older = OlderEndpoint(everything, dispatcher, resumable)
        self._modern = ModernEndpoint(everything, dispatcher)

    def handle(self, request: HttpRequest, response: HttpResponse) -> None:
        version = request.header(VERSION_HEADER)
        is_older = version is None or version in OLDER_VERSIONS
        if self._era == "older" and not is_older:
            text = (
                f"Bad Request: Unsupported protocol version: {version}. Known: "
                f"{', '.join(OLDER_VERSIONS)}"
            )
            response.send_error(400, INVALID_REQUEST, text)
        elif self._era == "modern" and is_older:
            self._refuse_older(request, response)
        elif request.path != PATH:
            response.send_text(404, "Not Found")
        elif len(request.body) > MAX_BODY_BYTES:
            response.send_text(413, "Request body too large")
        elif not self._is_secure(request, response):
            return
        elif is_older:
            self._older.handle(request, response)
        else:
            self._modern.handle(request, response)

    @staticmethod
    def _refuse_older(request: HttpRequest, response: HttpResponse) -> None:
        if request.method != "POST":
            response.send(405, headers=[("allow", "POST")])
            return
        try:
            decoded = request.decode_body()
        except ValueError:
            response.send_error(400, PARSE_ERROR, "Parse error")
            return
        message = decoded if isinstance(decoded, dict) else {}
        params = message.get("params")
        asked = params.get("protocolVersion") if isinstance(params, dict) else None
        requested = (
            asked
            if isinstance(asked, str)
            else request.header(VERSION_HEADER) or LATEST_OLDER_VERSION
        )
        refusal = RpcError(
            UNSUPPORTED_VERSION,
            "This server serves the 2026-07-28 protocol; the initialize handshake is not accepted",
            {"supported": [MODERN_VERSION], "requested": requested},
        )
        response.send_json(400, refusal.reply(message.get("id")))

    @staticmethod
    def _is_secure(request: HttpRequest, response: HttpResponse) -> bool:
        """Check the content type, and refuse a request for another host (DNS rebinding). Send the
        refusal."""
        origin = request.header("origin")
        if request.method == "POST" and not request.has_json_content():
            response.send_text(400, "Invalid Content-Type header")
        elif not _is_local(request.header("host") or ""):
            response.send_text(421, "Invalid Host header")
        elif origin and not (
            origin.startswith("http://") and _is_local(origin.removeprefix("http://"))
        ):
            response.send_text(403, "Invalid Origin header")
        else:
            return True
        return False


def _is_local(address: str) -> bool:
    host, _, _ = address.rpartition(":")
    return host in LOCAL_HOSTS


# The older era.


class HttpError(Exception):
    """The refusal of a request: an HTTP status, and a JSON-RPC error that belongs to no request."""

    def __init__(self, status: int, message: str, code: int = INVALID_REQUEST) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


class EventLog:
    """The events of a session's streams, for clients that resume one with Last-Event-ID."""

    def __init__(self) -> None:
        # The message is None for a priming event, which has an id and no data.
        self._events: list[tuple[str, Json | None]] = []

    def add(self, stream: str, message: Json | None) -> str:
        self._events.append((stream, message))
        return f"event-{len(self._events) - 1}"

    def after(self, event_id: str) -> tuple[str | None, list[tuple[str, Json]]]:
        """Return the stream of an event, and its later messages with their ids."""
        kind, _, number = event_id.partition("-")
        if kind != "event" or not number.isdecimal() or int(number) >= len(self._events):
            return None, []
        stream = self._events[int(number)][0]
        later = []
        for position in range(int(number) + 1, len(self._events)):
            owner, message = self._events[position]
            if owner == stream and message is not None:
                later.append((f"event-{position}", message))
        return stream, later


class HttpSession(OlderConnection):
    """A session, and the HTTP responses that its messages are sent on."""

    def __init__(self, everything: Everything, dispatcher: Dispatcher, resumable: bool) -> None:
        super().__init__(dispatcher, self._route, everything.sessions)
        self.id = os.urandom(16).hex()
        self.header: Header = (SESSION_HEADER, self.id)
        self._log = EventLog() if resumable else None
        self._streams: dict[str, HttpResponse] = {}
        self._streams_lock = threading.RLock()

    def open_request_stream(self, request_id: Any, version: str, response: HttpResponse) -> None:
        """Send the messages of a request on its response."""
        stream = self._stream_of(request_id)
        with self._streams_lock:
            response.start_events([self.header])
            self._prime(stream, version, response)
            self._attach(stream, response)

    def open_session_stream(self, response: HttpResponse) -> bool:
        """Send the messages that belong to no request on a response. Return False if the stream is
        open already."""
        with self._streams_lock:
            if SESSION_STREAM in self._streams:
                return False
            response.start_events([self.header])
            self._attach(SESSION_STREAM, response)
            return True

    def resume_stream(self, event_id: str, version: str, response: HttpResponse) -> None:
        """Repeat the messages after an event, and then continue the stream that it belongs to."""
        if self._log is None:
            response.send_text(500, "Internal Server Error")
            return
        with self._streams_lock:
            stream, later = self._log.after(event_id)
            response.start_events([self.header])
            for later_id, message in later:
                response.send_message(message, later_id)
            if stream is None or stream in self._streams:
                response.end_events()
                return
            self._prime(stream, version, response)
            self._attach(stream, response)

    def close(self) -> None:
        with self._streams_lock:
            for response in self._streams.values():
                response.end_events()
            self._streams.clear()
        super().close()

    def on_unanswered(self, call: Call) -> None:
        # In this era, only a response ends the stream of a request.
        call.send(RpcError(REQUEST_CANCELLED, "Request cancelled").reply(call.request_id))

    def _prime(self, stream: str, version: str, response: HttpResponse) -> None:
        """Send an event without data, so that a client can resume the stream before the first
        message."""
        if self._log is not None and version >= PRIMING_VERSION:
            response.send_event("", event_id=self._log.add(stream, None), retry_ms=RETRY_MS)

    def _attach(self, stream: str, response: HttpResponse) -> None:
        self._streams[stream] = response
        response.on_disconnect = lambda: self._detach(stream, response)

    def _detach(self, stream: str, response: HttpResponse) -> None:
        # The call continues: a broken connection is not a cancellation in this era.
        with self._streams_lock:
            if self._streams.get(stream) is response:
                del self._streams[stream]

    def _route(self, message: Json, request_id: Any) -> None:
        stream = SESSION_STREAM if request_id is None else self._stream_of(request_id)
        is_last = message_kind(message) == "response"
        with self._streams_lock:
            event_id = None if self._log is None else self._log.add(stream, message)
            response = self._streams.get(stream)
            if response is None:
                return
            response.send_message(message, event_id)
            if is_last:
                del self._streams[stream]
                response.end_events()

    @staticmethod
    def _stream_of(request_id: Any) -> str:
        return f"request-{request_id}"


class OlderEndpoint:
    """Requests of the older era: each belongs to a session, which `initialize` opens."""

    def __init__(self, everything: Everything, dispatcher: Dispatcher, resumable: bool) -> None:
        self._everything = everything
        self._dispatcher = dispatcher
        self._resumable = resumable
        self._sessions: dict[str, HttpSession] = {}

    def handle(self, request: HttpRequest, response: HttpResponse) -> None:
        session_id = request.header(SESSION_HEADER)
        session = None if session_id is None else self._sessions.get(session_id)
        try:
            if session_id is not None and session is None:
                raise HttpError(404, "Session not found")
            if request.method == "POST":
                self._post(request, response, session)
            elif request.method == "GET":
                self._get(request, response, session)
            elif request.method == "DELETE":
                self._delete(response, session)
            else:
                raise HttpError(405, "Method Not Allowed")
        except HttpError as error:
            headers = [] if session is None else [session.header]
            if error.status == 405:
                headers.append(("allow", "GET, POST, DELETE"))
            response.send_error(error.status, error.code, error.message, headers)

    def _post(
        self, request: HttpRequest, response: HttpResponse, session: HttpSession | None
    ) -> None:
        message = self._read_message(request)
        kind = message_kind(message)
        if kind is None:
            raise HttpError(400, "Validation error: not a JSON-RPC message", INVALID_PARAMS)
        version = request.header(VERSION_HEADER) or HEADERLESS_VERSION
        if kind == "request" and message["method"] == "initialize":
            session = session or self._open_session()
            version = str((message.get("params") or {}).get("protocolVersion", version))
        if session is None:
            raise HttpError(400, "Bad Request: Missing session ID")
        if kind == "request":
            session.open_request_stream(message["id"], version, response)
        else:
            response.send(202, headers=[JSON_TYPE, session.header])
        session.receive(message)

    @staticmethod
    def _read_message(request: HttpRequest) -> Any:
        if request.accepts() != (True, True):
            text = "Not Acceptable: Client must accept both application/json and text/event-stream"
            raise HttpError(406, text)
        try:
            return request.decode_body()
        except ValueError as error:
            raise HttpError(400, f"Parse error: {error}", PARSE_ERROR) from None

    def _open_session(self) -> HttpSession:
        session = HttpSession(self._everything, self._dispatcher, self._resumable)
        self._sessions[session.id] = session
        return session

    def _get(
        self, request: HttpRequest, response: HttpResponse, session: HttpSession | None
    ) -> None:
        _, accepts_events = request.accepts()
        if not accepts_events:
            raise HttpError(406, "Not Acceptable: Client must accept text/event-stream")
        if session is None:
            raise HttpError(400, "Bad Request: Missing session ID")
        last_event_id = request.header("last-event-id")
        if last_event_id:
            version = request.header(VERSION_HEADER) or HEADERLESS_VERSION
            session.resume_stream(last_event_id, version, response)
        elif not session.open_session_stream(response):
            raise HttpError(409, "Conflict: Only one SSE stream is allowed per session")

    def _delete(self, response: HttpResponse, session: HttpSession | None) -> None:
        if session is None:
            raise HttpError(400, "Bad Request: Missing session ID")
        del self._sessions[session.id]
        session.close()
        response.send(200, headers=[JSON_TYPE, session.header])


# The modern era.


class ModernEndpoint:
    """Requests of the modern era: each is served alone, and ends when its client disconnects."""

    def __init__(self, everything: Everything, dispatcher: Dispatcher) -> None:
        self._everything = everything
        self._dispatcher = dispatcher

    def handle(self, request: HttpRequest, response: HttpResponse) -> None:
        if request.method != "POST":
            response.send(405, headers=[("allow", "POST")])
            return
        if request.accepts() != (True, True):
            response.send(406)
            return
        try:
            message = request.decode_body()
        except ValueError:
            response.send_error(400, PARSE_ERROR, "Parse error")
            return
        kind = message_kind(message)
        if kind == "request":
            self._serve(message, request, response)
        elif kind == "notification" and "id" not in message:
            self._acknowledge(request, response)
        else:
            text = "Body must be a single JSON-RPC request or notification object"
            response.send_error(400, INVALID_REQUEST, text)

    @staticmethod
    def _acknowledge(request: HttpRequest, response: HttpResponse) -> None:
        version = request.header(VERSION_HEADER) or ""
        if version == MODERN_VERSION:
            response.send(202)
        else:
            _send_reply(response, unsupported_version(version).reply(None))

    def _serve(self, message: Json, request: HttpRequest, response: HttpResponse) -> None:
        try:
            check_single_headers(request)
            meta = read_envelope(message)
            check_routing_headers(message, request)
            check_version(meta[VERSION_KEY])
            self._check_param_headers(message, request)
        except RpcError as error:
            _send_reply(response, error.reply(message["id"]))
            return
        call = Call(
            message, Client.from_envelope(meta), lambda sent: _send_on_response(response, sent)
        )
        response.on_disconnect = call.cancel
        Connection(self._dispatcher).start(call)

    def _check_param_headers(self, message: Json, request: HttpRequest) -> None:
        """Compare the Mcp-Param-* headers with the arguments that the tool's schema names for
        them."""
        params = message["params"]
        arguments = params.get("arguments") or {}
        if message["method"] != "tools/call" or not isinstance(arguments, dict):
            return
        schema = self._everything.input_schema(params.get("name"))
        if schema is None:
            return
        for argument, property_schema in schema["properties"].items():
            if "x-mcp-header" in property_schema:
                header = PARAM_HEADER_PREFIX + property_schema["x-mcp-header"]
                check_param_header(
                    header, request.header_values(header.lower()), argument, arguments.get(argument)
                )


def _send_on_response(response: HttpResponse, message: Json) -> None:
    """Send a message of a call. A call without notifications is answered with JSON."""
    is_last = message_kind(message) == "response"
    if is_last and not response.has_events:
        _send_reply(response, message)
        return
    response.send_message(message)
    if is_last:
        response.end_events()


def _send_reply(response: HttpResponse, reply: Json) -> None:
    status = STATUS_BY_CODE.get(reply["error"]["code"], 200) if "error" in reply else 200
    response.send_json(status, reply)


def check_single_headers(request: HttpRequest) -> None:
    for header in ROUTING_HEADERS:
        if len(request.header_values(header)) > 1:
            raise RpcError(HEADER_MISMATCH, f"{header} header appears more than once")


def check_routing_headers(message: Json, request: HttpRequest) -> None:
    """Compare the headers that a proxy may route by with the body of the request."""
    params = message["params"]
    if request.header(VERSION_HEADER) != params["_meta"][VERSION_KEY]:
        text = f"{VERSION_HEADER} header does not match the request envelope's protocol version"
        raise RpcError(HEADER_MISMATCH, text)
    method = message["method"]
    if request.header(METHOD_HEADER) != method:
        raise RpcError(
            HEADER_MISMATCH, f"{METHOD_HEADER} header does not match the request body's method"
        )
    name = params.get(NAMED_PARAMS[method]) if method in NAMED_PARAMS else None
    if name is not None and decode_header_value(request.header(NAME_HEADER)) != name:
        text = (
            f"{NAME_HEADER} header does not match the request body's {NAMED_PARAMS[method]!r} "
            "parameter"
        )
        raise RpcError(HEADER_MISMATCH, text)


def check_param_header(header: str, values: list[str], argument: str, value: Any) -> None:
    """Compare the values of one Mcp-Param-* header with the argument that it repeats."""
    rendered = render_header_value(value)
    if len(values) > 1:
        raise RpcError(HEADER_MISMATCH, f"{header} header appears more than once")
    if not values and rendered is None:
        return
    if not values:
        text = f"{header} header is missing but the request body's {argument!r} argument is present"
        raise RpcError(HEADER_MISMATCH, text)
    if value is None:
        text = f"{header} header is present but the request body's {argument!r} argument is absent"
        raise RpcError(HEADER_MISMATCH, text)
    decoded = decode_header_value(values[0])
    if decoded is None:
        raise RpcError(
            HEADER_MISMATCH, f"{header} header carries a malformed base64 sentinel value"
        )
    if decoded != rendered:
        raise RpcError(
            HEADER_MISMATCH,
            f"{header} header does not match the request body's {argument!r} argument",
        )


def render_header_value(value: Any) -> str | None:
    """Return the text that a client sends for an argument, or None if a client sends no header for
    it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int, float)) else None


def decode_header_value(value: str | None) -> str | None:
    """Decode `=?base64?...?=`. Return any other value unchanged, and None if the base64 text is not
    canonical."""
    wrapped = None if value is None else BASE64_VALUE.fullmatch(value)
    if wrapped is None:
        return value
    encoded = wrapped[1]
    try:
        decoded = base64.b64decode(encoded, validate=True)
        text = decoded.decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text if base64.b64encode(decoded).decode() == encoded else None
