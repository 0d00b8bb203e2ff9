"""Base of the stdio server programs: a JSON-RPC loop with the standard library alone.

The programs run as `python -I -S`, so they append this folder to `sys.path` and import
`stdio_server`. It must import nothing else of the tests.
"""

import json
import sys
import threading

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"


class RpcError(Exception):
    """A JSON-RPC error. `fields` are members of the error object besides `code` and `message`."""

    def __init__(self, code, message, **fields):
        super().__init__(message)
        self.error = {"code": code, "message": message, **fields}


def text_result(value, **fields):
    return {"content": [{"type": "text", "text": value}], **fields}


class StdioServer:
    """Reads newline-delimited messages from stdin and replies on stdout.

    A subclass implements `result(method, params)`. Returning None sends no reply. With `era`
    "modern" the server requires the envelope of 2026-07-28, otherwise `initialize`.
    """

    name = "stdio"
    capabilities = {"tools": {}}  # noqa: RUF012 - replaced, never changed
    threaded = False
    """Handle each request in a separate thread."""

    def __init__(self, era="older"):
        self.era = era
        self.client = {}
        """The parameters of `initialize`."""
        self.write_lock = threading.Lock()

    # Transport

    def write_bytes(self, data):
        with self.write_lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def send(self, message):
        self.write_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def messages(self):
        return map(json.loads, sys.stdin.buffer)

    def serve(self):
        for message in self.messages():
            if "method" not in message:
                self.receive_response(message)
            elif "id" not in message:
                self.receive_notification(message["method"], message.get("params") or {})
            elif self.is_threaded(message["method"]):
                threading.Thread(target=self.answer, args=(message,), daemon=True).start()
            else:
                self.answer(message)

    def is_threaded(self, method):
        return self.threaded

    def receive_response(self, message):
        """A response to a request of this server."""

    def receive_notification(self, method, params):
        pass

    def answer(self, message):
        reply = self.reply(message)
        if reply is not None:
            self.send({"id": message["id"], **reply})

    def reply(self, message):
        """`result` or `error` of the response, or None."""
        try:
            result = self.handle(message["id"], message["method"], message.get("params") or {})
        except RpcError as failure:
            return {"error": failure.error}
        except Exception as error:  # noqa: BLE001 - the test gets the error of its server
            return {"error": {"code": -32603, "message": f"{type(error).__name__}: {error}"}}
        return None if result is None else {"result": result}

    # Protocol

    def handle(self, request_id, method, params):
        meta = params.get("_meta") or {}
        if self.era == "modern":
            if meta.get(META + "protocolVersion") != MODERN:
                raise RpcError(-32022, "Unsupported protocol version", data={})
            self.client = {"capabilities": meta.get(META + "clientCapabilities") or {}}
            if method == "server/discover":
                return self.stamp(method, {"supportedVersions": [MODERN], **self.introduction()})
            return self.stamp(method, self.result(method, params))
        if method == "server/discover":
            raise RpcError(-32601, "Method not found")
        if method == "initialize":
            self.client = params
            return {"protocolVersion": params["protocolVersion"], **self.introduction()}
        return {} if method == "ping" else self.result(method, params)

    def stamp(self, method, result):
        """Add the members that each result of 2026-07-28 has."""
        if result is None:
            return None
        fresh = (
            {} if method in ("tools/call", "prompts/get") else {"ttlMs": 0, "cacheScope": "private"}
        )
        return {"resultType": "complete", **fresh, **result}

    def introduction(self):
        """What `initialize` and `server/discover` return about this server."""
        return {
            "capabilities": self.capabilities,
            "serverInfo": {"name": self.name, "version": "1"},
        }

    def result(self, method, params):
        raise RpcError(-32601, f"Method not found: {method}")
