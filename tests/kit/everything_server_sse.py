"""The HTTP+SSE transport of 2024-11-05: one GET per client for all replies, and one POST per
message."""

import os
from urllib.parse import parse_qs

from everything_server_features import Everything
from everything_server_http import MAX_BODY_BYTES, HttpRequest, HttpResponse
from everything_server_protocol import StreamConnection, message_kind

EVENTS_PATH = "/sse"
MESSAGES_PATH = "/messages/"


class SseTransport:
    """The two HTTP endpoints, and the clients that have a GET open."""

    def __init__(self, everything: Everything, era: str) -> None:
        self._everything = everything
        self._dispatcher = everything.dispatcher()
        self._era = era
        self._clients: dict[str, StreamConnection] = {}

    def handle(self, request: HttpRequest, response: HttpResponse) -> None:
        if request.path == EVENTS_PATH and request.method == "GET":
            self._open(response)
        elif not request.path.startswith(MESSAGES_PATH.rstrip("/")):
            response.send(404)
        elif request.method != "POST":
            response.send(405, headers=[("allow", "POST")])
        else:
            self._post(request, response)

    def _open(self, response: HttpResponse) -> None:
        session_id = os.urandom(16).hex()
        client = StreamConnection(
            self._dispatcher, self._everything.sessions, self._era, response.send_message
        )
        self._clients[session_id] = client
        response.on_disconnect = lambda: self._close(session_id)
        response.send_event(f"{MESSAGES_PATH}?session_id={session_id}", "endpoint")

    def _close(self, session_id: str) -> None:
        self._clients.pop(session_id).close()

    def _post(self, request: HttpRequest, response: HttpResponse) -> None:
        session_id = parse_qs(request.query).get("session_id", [""])[0]
        client = self._clients.get(session_id)
        if len(request.body) > MAX_BODY_BYTES:
            response.send_text(413, "Request body too large")
        elif not request.has_json_content():
            response.send_text(400, "Invalid Content-Type header")
        elif not session_id:
            response.send_text(400, "session_id is required")
        elif client is None:
            response.send_text(404, "Could not find session")
        else:
            self._receive(client, request, response)

    @staticmethod
    def _receive(client: StreamConnection, request: HttpRequest, response: HttpResponse) -> None:
        try:
            message = request.decode_body()
        except ValueError:
            message = None
        if message_kind(message) is None:
            response.send_text(400, "Could not parse message")
            return
        response.send_text(202, "Accepted")
        client.receive(message)
