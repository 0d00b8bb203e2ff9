"""Servers that mean harm, on one port of one process: streamable HTTP, HTTP+SSE and WebSocket, by
hand.

    python -I -S hostile_server.py        prints `ready PORT`
    python -I -S hostile_server.py stdio  one server on standard input and output

The address is `/<habit>/<kind>`, the kind `http`, `sse` or `websocket`; a habit that ends in
`.modern` speaks 2026-07-28. All greet and list as they should. What is bad is done when a tool is
called (`pour`, `ids`), so that there is a quiet time before, or by the habits of `ANSWERS`, which
break every answer to a call. A thread for each connection, and nothing but blocking sends: whoever
does not read stops us, and costs nothing. What was poured, how much of it and whether the other
side cut it is told on standard output.
"""

import base64
import hashlib
import json
import socket
import struct
import sys
import threading
import time

MODERN = "2026-07-28"
BLOCK = 1 << 16
LOG_BYTES = 60_000

said = threading.Lock()


def say(line):
    with said:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def log_message(size=LOG_BYTES):
    params = {"level": "error", "data": "x" * size}
    return json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
    ).encode()


def progress(token, size):
    params = {"progressToken": token, "progress": 1, "message": "p" * size}
    return json.dumps(
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    ).encode()


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

SMALL = b'{"jsonrpc":"2.0","method":"notifications/x"}'

LINES = {
    "newlines": b"\n",
    "carriage returns": b"\r\n",
    "comments": b":\n",
    "empty events": b"data:\n\n",
    "empty ids": b"id\n\n",
    "retries": b"retry: 1\n\n",
    "unknown fields": b"a\n",
    "notifications": b"data: " + SMALL + b"\n\n",
    "logs": b"data: " + log_message() + b"\n\n",
    "small logs": b"data: " + log_message(10) + b"\n\n",
}
"""What can be poured down an event stream."""


class Gone(Exception):
    """The other side has ended the connection."""


class Wire:
    """One connection."""

    def __init__(self, connection):
        self.connection = connection
        self.buffer = b""
        self.lock = threading.Lock()

    def more(self):
        try:
            data = self.connection.recv(1 << 18)
        except OSError as error:
            raise Gone from error
        if not data:
            raise Gone
        self.buffer += data

    def until(self, mark):
        while mark not in self.buffer:
            self.more()
        before, _, self.buffer = self.buffer.partition(mark)
        return before

    def take(self, number):
        while len(self.buffer) < number:
            self.more()
        taken, self.buffer = self.buffer[:number], self.buffer[number:]
        return taken

    def send(self, data):
        with self.lock:
            try:
                self.connection.sendall(data)
            except OSError as error:
                raise Gone from error

    def pour(self, name, block, seconds):
        """The same block again and again; says how it ended."""
        began, sent = time.monotonic(), 0
        how = "whole"
        try:
            while time.monotonic() - began < seconds:
                self.send(block)
                sent += len(block)
        except Gone:
            how = "cut"
            raise
        finally:
            say(f"poured {name}: {sent} bytes, {time.monotonic() - began:.1f} s, {how}")


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def repeated(unit):
    return unit * max(1, BLOCK // len(unit))


def frame(payload=b"", opcode=1, fin=True):
    head = opcode | (0x80 if fin else 0)
    if len(payload) < 126:
        return struct.pack("!BB", head, len(payload)) + payload
    if len(payload) < 65536:
        return struct.pack("!BBH", head, 126, len(payload)) + payload
    return struct.pack("!BBQ", head, 127, len(payload)) + payload


FRAMES = {
    "tiny": frame(b"1"),
    "empty": frame(),
    "binary": frame(opcode=2),
    "pings": frame(opcode=9),
    "pongs": frame(opcode=10),
    "full pings": frame(b"p" * 125, opcode=9),
    "fragments": frame(opcode=0, fin=False),
    "notifications": frame(SMALL),
    "logs": frame(log_message()),
    "small logs": frame(log_message(10)),
}


class Habit:
    """What all connections to one address share."""

    def __init__(self, name):
        self.name, _, era = name.partition(".")
        self.modern = era == "modern"
        self.lock = threading.Lock()
        self.news = threading.Condition()
        self.order = None
        """What the streams that are open are to pour: (number, what, seconds)."""
        self.orders = 0
        self.id_bytes = 0
        self.polls = 0
        self.before = None
        """The reply before this one, for those that are always one behind."""

    def tools(self):
        text = {"type": "object", "properties": {"text": {"type": "string"}}}
        headed = {
            "type": "object",
            "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        }
        other = {"type": "object"}
        named = {
            "echo": text,
            "headed": headed,
            "hang": other,
            "pour": other,
            "ids": other,
            "big": other,
        }
        return [{"name": name, "inputSchema": schema} for name, schema in named.items()]

    def result(self, method, params):
        """The result of what is asked; None: it is never answered."""
        about = {"capabilities": {"tools": {}, "logging": {}}}
        if method == "initialize":
            return {
                **about,
                "protocolVersion": "2025-06-18",
                "serverInfo": {"name": "hostile", "version": "1"},
            }
        if method == "server/discover":
            return {**about, "supportedVersions": [MODERN], "ttlMs": 0, "cacheScope": "private"}
        if method == "tools/list":
            return {
                "tools": self.tools(),
                **({"ttlMs": 0, "cacheScope": "private"} if self.modern else {}),
            }
        if method != "tools/call":
            return {}
        tool, given = params["name"], params.get("arguments") or {}
        if tool == "hang":
            return None
        if tool == "big":
            return text_result("x" * given.get("bytes", 1_000_000))
        if tool == "ids":
            self.id_bytes = given["bytes"]
            self.begin("ids", 0)
        if tool == "pour" and given.get("where") == "stream":
            self.begin(given["what"], given["seconds"])
            return text_result("begun")
        return text_result(str(given.get("text", given.get("region", ""))[:100]))

    def reply(self, message):
        result = self.result(message["method"], message.get("params") or {})
        if result is None:
            return None
        if self.modern:
            result["resultType"] = "complete"
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def begin(self, what, seconds):
        with self.news:
            self.orders += 1
            self.order = (self.orders, what, seconds)
            self.news.notify_all()

    def next_order(self, done):
        with self.news:
            while self.order is None or self.order[0] <= done:
                self.news.wait()
            return self.order


def text_result(text):
    return {"content": [{"type": "text", "text": text}]}


habits = {}
making = threading.Lock()


def habit_of(name):
    with making:
        if name not in habits:
            habits[name] = Habit(name)
        return habits[name]


# ---- answers that are not those of the request: (habit, wire, reply) -> None


def plain(wire, body, *headers, status="200 OK"):
    more = "".join(f"{line}\r\n" for line in headers)
    kind = "content-type: application/json\r\n" if body else ""
    wire.send(
        f"HTTP/1.1 {status}\r\n{kind}{more}content-length: {len(body)}\r\n\r\n".encode() + body
    )


def answer_of(reply):
    body = json.dumps(reply).encode()
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def event_stream(*data):
    """A whole answer as an event stream."""
    events = b"".join(b"data: " + json.dumps(message).encode() + b"\n\n" for message in data)
    return STREAM + chunk(events) + b"0\r\n\r\n"


def twice(habit, wire, reply):
    wire.send(answer_of(reply) * 2)


def twice_later(habit, wire, reply):
    """The second one comes when the first was read, perhaps when the connection has its next
    request."""
    wire.send(answer_of(reply))
    time.sleep(0.003)
    wire.send(answer_of(reply))


def one_behind(habit, wire, reply):
    with habit.lock:
        late, habit.before = habit.before or reply, reply
    wire.send(answer_of(late))


def one_behind_stream(habit, wire, reply):
    with habit.lock:
        late, habit.before = habit.before or reply, reply
    wire.send(event_stream(late))


def surplus(habit, wire, reply):
    """Bytes behind the end of the body, which begin the next answer."""
    head, body = answer_of(reply).split(b"\r\n\r\n")
    wire.send(head + b"\r\n\r\n" + body + answer_of({**reply, "result": text_result("surplus")}))


def surplus_stream(habit, wire, reply):
    wire.send(event_stream(reply) + answer_of(reply))


def others_first(habit, wire, reply):
    """On the event stream of a request first the reply to another one, then the right one."""
    with habit.lock:
        late, habit.before = habit.before, reply
    wire.send(event_stream(*([late] if late else []), reply))


def no_id(habit, wire, reply):
    """The text of the one before, as a result with the id null."""
    with habit.lock:
        late, habit.before = habit.before or reply, reply
    wire.send(answer_of({**late, "id": None}))


def text_id(habit, wire, reply):
    """The text of the one before, with the right number as a text."""
    with habit.lock:
        late, habit.before = habit.before or reply, reply
    wire.send(answer_of({**late, "id": str(reply["id"])}))


def twice_in_stream(habit, wire, reply):
    """Answered, and answered again with another text on the same event stream."""
    wire.send(event_stream(reply, {**reply, "result": text_result("again")}))


ANSWERS = {
    answer.__name__: answer
    for answer in (
        *(twice, twice_later, one_behind, one_behind_stream, surplus, surplus_stream, others_first),
        *(no_id, text_id, twice_in_stream),
    )
}


# ---- streamable HTTP


def serve_http(habit, wire, verb, headers, body):
    if verb == "GET":
        return http_stream(habit, wire, headers)
    if verb != "POST":
        return plain(wire, b"")
    message = json.loads(body)
    method = message.get("method", "")
    if "id" not in message or not method:
        if habit.name == "endless" and method == "notifications/cancelled":
            wire.send(
                b"HTTP/1.1 202 Accepted\r\ncontent-type: text/plain\r\ntransfer-encoding: "
                b"chunked\r\n\r\n"
            )
            wire.pour("endless body", chunk(b"x" * BLOCK), 60)
        return plain(wire, b"", status="202 Accepted")
    if (method == "server/discover") != habit.modern and method in (
        "server/discover",
        "initialize",
    ):
        error = {"code": -32601, "message": "not in this era"}
        return plain(
            wire,
            json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode(),
            status="400 No",
        )
    reply = habit.reply(message)
    if reply is None:
        return wait_for_end(wire)
    params = message.get("params") or {}
    if method == "tools/call" and habit.name in ANSWERS:
        return ANSWERS[habit.name](habit, wire, reply)
    given = params.get("arguments") or {}
    if method == "tools/call" and params["name"] == "pour" and given.get("where") == "reply":
        return http_pour(wire, given, reply, (params.get("_meta") or {}).get("progressToken"))
    if method == "tools/call" and params["name"] == "ids":
        return http_ids(habit, wire)
    if method == "initialize":
        return plain(wire, json.dumps(reply).encode(), f"mcp-session-id: {habit.name}")
    plain(wire, json.dumps(reply).encode())


def wait_for_end(wire):
    while True:
        wire.more()


def http_ids(habit, wire):
    """An event with an id that nobody had before, and the end: it has to be asked for what comes
    behind it."""
    with habit.lock:
        habit.polls += 1
        number = habit.polls
    event = b"retry: 0\nid: %d-%b\ndata: \n\n" % (number, b"i" * habit.id_bytes)
    wire.send(STREAM + chunk(event) + b"0\r\n\r\n")
    if number % 100 == 0:
        say(f"polled {number} times")


def http_pour(wire, given, reply, token):
    what = given["what"]
    wire.send(STREAM)
    if what == "progress":
        block = chunk(b"data: " + progress(token, given["bytes"]) + b"\n\n")
    else:
        block = (
            chunk(b"\n") * (BLOCK // 6) if what == "tiny chunks" else chunk(repeated(LINES[what]))
        )
    wire.pour(f"{what} down the reply", block, given["seconds"])
    wire.send(chunk(b"data: " + json.dumps(reply).encode() + b"\n\n") + b"0\r\n\r\n")


def http_stream(habit, wire, headers):
    if habit.id_bytes:
        return http_ids(habit, wire)
    wire.send(STREAM)
    done = 0
    while True:
        done, what, seconds = habit.next_order(done)
        if what == "ids":
            return wire.send(b"0\r\n\r\n")
        if what in LINES:
            wire.pour(f"{what} down the GET stream", chunk(repeated(LINES[what])), seconds)
        elif what == "tiny chunks":
            wire.pour(f"{what} down the GET stream", chunk(b"\n") * (BLOCK // 6), seconds)


# ---- HTTP+SSE


streams = {}


def serve_sse(habit, wire, verb, headers, body, path):
    if verb == "GET":
        wire.send(STREAM)
        number = f"{id(wire)}"
        streams[number] = wire
        wire.send(chunk(f"event: endpoint\ndata: {path}/{number}\n\n".encode()))
        done = 0
        while True:
            done, what, seconds = habit.next_order(done)
            if what in LINES:
                wire.pour(f"{what} down the SSE stream", chunk(repeated(LINES[what])), seconds)
        return
    message = json.loads(body)
    plain(wire, b"", status="202 Accepted")
    if "id" in message and "method" in message:
        if message["method"] == "server/discover":
            error = {"code": -32601, "message": "not in this era"}
            reply = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        else:
            reply = habit.reply(message)
        if reply is not None:
            data = b"event: message\ndata: " + json.dumps(reply).encode() + b"\n\n"
            streams[path.rpartition("/")[2]].send(chunk(data))


# ---- WebSocket


def serve_websocket(habit, wire, headers):
    key = headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    head = f"upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: {accept}\r\n"
    wire.send(f"HTTP/1.1 101 Switching\r\n{head}sec-websocket-protocol: mcp\r\n\r\n".encode())
    threading.Thread(target=websocket_stream, args=(habit, wire), daemon=True).start()
    while True:
        first, second = wire.take(2)
        length = second & 127
        if length >= 126:
            length = int.from_bytes(wire.take(2 if length == 126 else 8), "big")
        mask = wire.take(4) if second & 128 else b"\0\0\0\0"
        payload = wire.take(length)
        payload = bytes(byte ^ mask[at & 3] for at, byte in enumerate(payload))
        if first & 15 == 8:
            raise Gone
        if first & 15 != 1:
            continue
        message = json.loads(payload)
        if "id" not in message or "method" not in message:
            continue
        if message["method"] == "server/discover":
            error = {"code": -32601, "message": "not in this era"}
            reply = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        else:
            reply = habit.reply(message)
        if reply is not None:
            wire.send(frame(json.dumps(reply).encode()))


def websocket_stream(habit, wire):
    done = 0
    try:
        while True:
            done, what, seconds = habit.next_order(done)
            if what == "fragments":
                wire.send(frame(b"", fin=False))
            if what in FRAMES:
                wire.pour(f"{what} down the WebSocket", repeated(FRAMES[what]), seconds)
    except Gone:
        pass


# ---- standard input and output

PIPED = {
    "newlines": b"\n",
    "tiny": b"1\n",
    "notifications": SMALL + b"\n",
    "small logs": log_message(10) + b"\n",
    "logs": log_message() + b"\n",
    "endless line": b"x",
}


class Pipe(Wire):
    """Standard output; whoever does not read it stops us as well."""

    def __init__(self):
        self.lock = threading.Lock()

    def send(self, data):
        with self.lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def serve_stdio():
    global say
    say = lambda line: None  # noqa: E731 - standard output is for messages
    habit, wire = Habit("pour"), Pipe()
    threading.Thread(target=stdio_stream, args=(habit, wire), daemon=True).start()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        if message["method"] == "server/discover":
            error = {"code": -32601, "message": "not in this era"}
            reply = {"jsonrpc": "2.0", "id": message["id"], "error": error}
        else:
            reply = habit.reply(message)
        if reply is not None:
            wire.send(json.dumps(reply).encode() + b"\n")


def stdio_stream(habit, wire):
    done = 0
    while True:
        done, what, seconds = habit.next_order(done)
        wire.pour(what, repeated(PIPED[what]), seconds)


# ---- all


def converse(connection):
    wire = Wire(connection)
    try:
        while True:
            first, *lines = wire.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            verb, path, _ = first.split(" ", 2)
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines)
            }
            body = wire.take(int(headers.get("content-length", "0")))
            _, name, kind = path.split("/")[:3]
            habit = habit_of(name)
            if kind == "websocket":
                serve_websocket(habit, wire, headers)
            elif kind == "sse":
                serve_sse(habit, wire, verb, headers, body, path)
            else:
                serve_http(habit, wire, verb, headers, body)
    except Gone:
        pass
    finally:
        connection.close()


def main():
    if sys.argv[1:] == ["stdio"]:
        return serve_stdio()
    server = socket.create_server(("127.0.0.1", 0), backlog=512)
    say(f"ready {server.getsockname()[1]}")
    while True:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=converse, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
