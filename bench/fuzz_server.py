"""Servers that answer nearly right: the fuzzer's side behind the gateway, in a process of its own.

    python -m bench.fuzz_server --seed 1 --port 9001     streamable HTTP (both eras), HTTP+SSE and WebSocket
    python -m bench.fuzz_server --seed 1 --stdio         standard input and output
    python -m bench.fuzz_server --stdio --well           the one that is always right

About half of all calls are answered as they should be; greetings and lists nearly always, so that
the gateway stays connected. `echo` answers with its `text`. Whoever gets a text that is not his got
somebody else's answer, and no answer here justifies that: on a connection that many calls share, an
id that another call waits for is never used, and bytes are changed only in answers that have no
such text.

`GET /counts` tells what was sent so far, by kind; `GET /last` the newest sends.
"""

import argparse
import asyncio
import base64
import contextlib
import hashlib
import json
import sys
from collections import Counter, deque
from random import Random
from typing import Any

from bench.fuzz_inputs import (
    MODERN,
    VALUES,
    bent,
    chunks,
    deep,
    encoded,
    event,
    frame,
    frames,
    mutated,
    pieces,
)

Json = dict[str, Any]

KEPT = 60
"""Newest sends that are told."""
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
ESSENTIAL = ("initialize", "server/discover", "tools/list")


class Answers:
    """What all servers of this process share: what is right, and what was sent."""

    def __init__(self, seed: str, *, well: bool = False) -> None:
        self._seed = seed
        self.well = well
        self._made = 0
        self.counts: Counter[str] = Counter()
        self.last: deque[tuple[str, str]] = deque(maxlen=KEPT)
        self.before: Json | None = None

    def rng(self) -> Random:
        self._made += 1
        return Random(f"{self._seed}-{self._made}")

    def sent(self, kind: str, data: bytes) -> bytes:
        self.counts[kind] += 1
        self.last.append((kind, repr(data[:2000])))
        return data

    def reply(self, message: Json, modern: bool, text: str | None = None) -> Json:
        """The right one; with `text` it says that instead."""
        method = message["method"]
        if (method == "server/discover" and not modern) or (method == "initialize" and modern):
            return {
                "jsonrpc": "2.0",
                "id": message["id"],
                "error": {"code": -32601, "message": "not in this era"},
            }
        result: Json = {}
        about = {
            "capabilities": {
                "tools": {"listChanged": True},
                "logging": {},
                "resources": {"subscribe": True},
            }
        }
        if method == "initialize":
            result = {
                **about,
                "protocolVersion": "2025-06-18",
                "serverInfo": {"name": "fuzz", "version": "1"},
            }
        elif method == "server/discover":
            result = {**about, "supportedVersions": [MODERN]}
        elif method == "tools/list":
            schema = {"type": "object", "properties": {"text": {"type": "string"}}}
            result = {"tools": [{"name": "echo", "inputSchema": schema}]}
        elif method == "tools/call":
            given = message["params"].get("arguments")
            value = given.get("text", "") if isinstance(given, dict) else given
            said = text if text is not None else str(value)
            result = {"content": [{"type": "text", "text": said}]}
        if modern:
            result |= {"resultType": "complete"}
            if method in ("tools/list", "server/discover"):
                result |= {"ttlMs": 0, "cacheScope": "private"}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def unasked(rng: Random) -> bytes:
    """What a server says by itself: a notification, a question, a reply to nothing, or none of
    these."""
    values: list[Any] = [
        {
            "jsonrpc": "2.0",
            "method": "notifications/message",
            "params": {"level": "info", "data": rng.choice(VALUES)},
        },
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": 1, "progress": 1},
        },
        {
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": {"uri": rng.choice(VALUES)},
        },
        {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": rng.choice(VALUES)},
        },
        {"jsonrpc": "2.0", "id": rng.choice(VALUES), "method": "ping"},
        {
            "jsonrpc": "2.0",
            "id": "q",
            "method": "sampling/createMessage",
            "params": {"messages": [], "maxTokens": 1},
        },
        {"jsonrpc": "2.0", "id": "r", "method": "roots/list"},
        {
            "jsonrpc": "2.0",
            "id": rng.choice(("x", None, 10**9, -1, 1.5)),
            "result": rng.choice(VALUES),
        },
        {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": rng.choice(VALUES), "message": rng.choice(VALUES)},
        },
        rng.choice(VALUES),
        deep("x", rng.choice((100, 300, 1100))),
    ]
    value = rng.choice(values)
    return encoded(bent(rng, value)) if rng.random() < 0.7 else mutated(rng, encoded(value))


# ---- streamable HTTP


def head(status: str, *lines: str) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", *lines, "", "")).encode("utf-8", "replace")


def plain(body: bytes, status: str = "200 OK", *lines: str) -> bytes:
    return (
        head(status, "content-type: application/json", *lines, f"content-length: {len(body)}")
        + body
    )


STREAM = head("200 OK", "content-type: text/event-stream", "transfer-encoding: chunked")

STATUSES = (
    *(
        "400 Bad Request",
        "401 Unauthorized",
        "403 Forbidden",
        "404 Not Found",
        "408 x",
        "409 x",
        "413 x",
        "429 x",
    ),
    *(
        "500 x",
        "502 x",
        "503 x",
        "504 x",
        "301 x",
        "307 x",
        "204 No Content",
        "206 x",
        "304 x",
        "999 x",
        "20 x",
        "2000",
    ),
)


def http_answer(
    rng: Random, answers: Answers, message: Json, modern: bool
) -> tuple[str, bytes, bool]:
    """Kind, bytes, and whether the connection is kept."""
    right = answers.reply(message, modern)
    body = encoded(right)
    if rng.random() > (0.04 if message["method"] in ESSENTIAL else 0.5):
        return (
            ("right", plain(body), True)
            if rng.random() < 0.7
            else ("right stream", stream(event(rng, body)), True)
        )
    before, answers.before = answers.before or right, right
    match rng.randrange(20):
        case 0:
            return "shifted", plain(encoded(before)), True
        case 1:
            return "no id", plain(encoded({**before, "id": None})), True
        case 2:
            return (
                "another id",
                plain(
                    encoded(
                        {**right, "id": rng.choice(("x", 1.5, -1, 2**63, [], str(right["id"])))}
                    )
                ),
                True,
            )
        case 3:
            return "twice", plain(body) * 2, True
        case 4:
            return (
                "surplus",
                plain(body) + rng.choice((b"\r\n", b"x", plain(encoded(before)), STREAM)),
                True,
            )
        case 5:
            return "changed body", plain(mutated(rng, body, 8)), True
        case 6:
            return "changed head", mutated(rng, plain(body), 3), True
        case 7:
            return "bent", plain(encoded(bent(rng, right, 0.3))), True
        case 8:
            return "stream of others", stream(event(rng, encoded(before)) + event(rng, body)), True
        case 9:
            said = b"".join(event(rng, unasked(rng)) for _ in range(rng.randrange(6)))
            return "chatty stream", stream(said + event(rng, body)), True
        case 10:
            return (
                "changed stream",
                stream(mutated(rng, event(rng, unasked(rng)) + event(rng, body), 8)),
                True,
            )
        case 11:
            return "odd chunks", STREAM + chunks(rng, event(rng, body)), rng.random() < 0.5
        case 12:
            after = rng.choice(
                ("0", "-1", "²", "1.5", "Wed, 21 Oct 2015 07:28:00 GMT", "x", "1e9", "")
            )
            text = rng.choice((body, b"", b"<html>no</html>", encoded(bent(rng, right))))
            return (
                "status",
                plain(text, rng.choice(STATUSES), f"retry-after: {after}", "location: /x"),
                True,
            )
        case 13:
            length = rng.choice((0, len(body) - 1, len(body) + 10, 10**12, -1))
            return (
                "wrong length",
                head("200 OK", "content-type: application/json", f"content-length: {length}")
                + body,
                False,
            )
        case 14:
            return "half", plain(body)[: rng.randrange(len(body))], False
        case 15:
            return "nothing", b"", False
        case 16:
            return (
                "packed",
                plain(rng.choice((body, b"\x1f\x8b\x08xx")), "200 OK", "content-encoding: gzip"),
                True,
            )
        case 17:
            return (
                "interim",
                head("103 Early Hints", "link: x") * rng.choice((1, 2, 50)) + plain(body),
                True,
            )
        case 18:
            return "no length", head("200 OK", "content-type: application/json") + body, False
        case _:
            odd = rng.choice(
                (
                    "mcp-session-id: " + "s" * 3000,
                    "x: " + "y" * 70_000,
                    "set-cookie: a",
                    ": x",
                    "x",
                    "a\0b: c",
                )
            )
            return "odd header", plain(body, "200 OK", odd), True


def stream(content: bytes) -> bytes:
    return STREAM + b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)


class Server:
    """One connection at a time in a task of its own; the path says which server is meant."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._streams: dict[str, asyncio.StreamWriter] = {}

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rng = self._answers.rng()
        try:
            while await self._exchange(rng, reader, writer):
                pass
        except (EOFError, OSError, ValueError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _exchange(
        self, rng: Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection is kept."""
        asked = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = asked.split("\r\n")
        verb, path, _ = first.split(" ", 2)
        headers = {
            name.lower(): value.strip()
            for name, _, value in (text.partition(":") for text in lines)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if path in ("/counts", "/last"):
            known = dict(self._answers.counts) if path == "/counts" else list(self._answers.last)
            writer.write(plain(encoded(known)))
            return True
        if path == "/ws":
            await self._websocket(rng, headers, reader, writer)
            return False
        if path == "/sse":
            await self._sse(rng, writer)
            return False
        if verb == "GET":
            await self._stream(rng, writer)
            return False
        if verb != "POST":
            writer.write(plain(b""))
            return True
        message = json.loads(body)
        if path.startswith("/messages"):
            return await self._posted(rng, path, message, writer)
        return await self._answer(rng, message, path.startswith("/modern"), writer)

    async def _answer(
        self, rng: Random, message: Json, modern: bool, writer: asyncio.StreamWriter
    ) -> bool:
        if "id" not in message or "method" not in message:
            said = head("202 Accepted", "content-length: 0")
            if rng.random() < 0.1:
                said = rng.choice(
                    (
                        plain(b"{}"),
                        plain(b"x" * 5000),
                        mutated(rng, said),
                        stream(event(rng, unasked(rng))),
                    )
                )
            await self._send(writer, "notified", said)
            return True
        if rng.random() < 0.02 and message["method"] not in ESSENTIAL:
            await asyncio.sleep(rng.choice((0.1, 1.0, 3.0)))
        kind, data, kept = http_answer(rng, self._answers, message, modern)
        for piece in pieces(rng, data):
            await self._send(writer, f"http {kind}", piece)
        return kept

    async def _stream(self, rng: Random, writer: asyncio.StreamWriter) -> None:
        """The stream of a server that speaks by itself."""
        if rng.random() < 0.3:
            await self._send(writer, "no stream", head("405 No", "content-length: 0"))
            return
        await self._send(writer, "stream", STREAM)
        for _ in range(rng.randrange(1, 60)):
            await asyncio.sleep(rng.choice((0, 0.01, 0.05)))
            content = event(rng, unasked(rng))
            if rng.random() < 0.2:
                content = mutated(rng, content)
            if content:
                await self._send(writer, "stream event", b"%x\r\n%b\r\n" % (len(content), content))

    async def _send(self, writer: asyncio.StreamWriter, kind: str, data: bytes) -> None:
        writer.write(self._answers.sent(kind, data))
        await writer.drain()

    # -- HTTP+SSE

    async def _sse(self, rng: Random, writer: asyncio.StreamWriter) -> None:
        name = f"{id(writer)}"
        self._streams[name] = writer
        endpoint = f"/messages/{name}".encode()
        if rng.random() < 0.05:
            endpoint = rng.choice(
                (b"", b"http://evil.example/x", b"//", b"x" * 5000, b"\xff", b"/messages/0")
            )
        first = b"event: endpoint\ndata: " + endpoint + b"\n\n"
        try:
            await self._send(writer, "sse endpoint", STREAM + b"%x\r\n%b\r\n" % (len(first), first))
            while not writer.is_closing():
                await asyncio.sleep(rng.choice((0.05, 0.2, 0.5)))
                content = mutated(rng, event(rng, unasked(rng)), 2) or b":\n"
                await self._send(writer, "sse event", b"%x\r\n%b\r\n" % (len(content), content))
        finally:
            self._streams.pop(name, None)

    async def _posted(
        self, rng: Random, path: str, message: Json, writer: asyncio.StreamWriter
    ) -> bool:
        await self._send(writer, "sse posted", head("202 Accepted", "content-length: 0"))
        answer_to = self._streams.get(path.rpartition("/")[2])
        if answer_to is not None and "id" in message and "method" in message:
            for kind, data in shared_answers(rng, self._answers, message):
                content = event(rng, data)
                await self._send(
                    answer_to, f"sse {kind}", b"%x\r\n%b\r\n" % (len(content), content)
                )
        return True

    # -- WebSocket

    async def _websocket(
        self,
        rng: Random,
        headers: dict[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        key = base64.b64encode(
            hashlib.sha1((headers.get("sec-websocket-key", "") + GUID).encode()).digest()
        ).decode()
        lines = [
            "upgrade: websocket",
            "connection: Upgrade",
            f"sec-websocket-accept: {key}",
            "sec-websocket-protocol: mcp",
        ]
        if rng.random() < 0.05:
            lines[rng.randrange(4)] = rng.choice(
                ("", "x: y", "sec-websocket-accept: x", "sec-websocket-extensions: x")
            )
        await self._send(writer, "ws handshake", head("101 Switching Protocols", *lines))
        while True:
            opcode, length = await reader.readexactly(2)
            length &= 127
            if length >= 126:
                length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
            mask = await reader.readexactly(4)
            payload = await reader.readexactly(length)
            if opcode & 15 == 8:
                return
            if opcode & 15 != 1:
                continue
            message = json.loads(bytes(byte ^ mask[at & 3] for at, byte in enumerate(payload)))
            if "id" not in message or "method" not in message:
                continue
            for kind, data in shared_answers(rng, self._answers, message):
                made = (
                    frame(data, mask=None) if kind == "right" else frames(rng, data, masked=False)
                )
                for piece in pieces(rng, made):
                    await self._send(writer, f"ws {kind}", piece)


def shared_answers(rng: Random, answers: Answers, message: Json) -> list[tuple[str, bytes]]:
    """What is said to a request on a connection that many share: the right answer in the end, or
    what is none."""
    right = answers.reply(message, False)
    if answers.well:
        return [("right", encoded(right))]
    said = (
        [("unasked", unasked(rng)) for _ in range(rng.randrange(4))] if rng.random() < 0.2 else []
    )
    if rng.random() > (0.03 if message["method"] in ESSENTIAL else 0.35):
        return [*said, ("right", encoded(right))]
    blank = answers.reply(message, False, text="changed")
    match rng.randrange(6):
        case 0:
            return [*said, ("right", encoded(right)), ("twice", encoded(right))]
        case 1:
            return [
                *said,
                (
                    "another id",
                    encoded({**right, "id": rng.choice(("x", 1.5, -1, 2**63, None, [], {}))}),
                ),
            ]
        case 2:
            # Another number would be another call's id.
            spoilt = {**blank, "id": rng.choice((blank["id"], "x", None))}
            return [*said, ("bent", encoded(bent(rng, spoilt, 0.3)))]
        case 3:
            return [*said, ("changed", mutated(rng, encoded(blank), 8))]
        case 4:
            return [*said, ("unanswered", unasked(rng))]
        case _:
            return [
                *said,
                (
                    "huge",
                    encoded(
                        answers.reply(message, False, text="x" * rng.choice((10_000, 1_000_000)))
                    ),
                ),
            ]


# ---- standard input and output


def serve_stdio(answers: Answers) -> None:
    rng = answers.rng()
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        if rng.random() < 0.002 and not answers.well:
            sys.exit(rng.choice((0, 1, 7)))
        if rng.random() < 0.05 and not answers.well:
            sys.stderr.write(
                rng.choice(
                    ("\x1b[31mred\n", "x" * 10_000 + "\n", "a\rb\n", "12:00:00 INFO not ours\n")
                )
            )
            sys.stderr.flush()
        for kind, data in shared_answers(rng, answers, message):
            end = (
                b"\n"
                if answers.well
                else rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b"\n\xff\xfe\n"))
            )
            out.write(answers.sent(f"stdio {kind}", data.replace(b"\n", b" ") + end))
        out.flush()


async def serve(answers: Answers, port: int) -> None:
    server = await asyncio.start_server(
        Server(answers).converse, "127.0.0.1", port, limit=64 * 2**20, backlog=1024
    )
    async with server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", default="1")
    parser.add_argument("--port", type=int)
    parser.add_argument("--stdio", action="store_true")
    parser.add_argument("--well", action="store_true")
    options = parser.parse_args()
    answers = Answers(options.seed, well=options.well)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        if options.stdio:
            serve_stdio(answers)
        else:
            asyncio.run(serve(answers, options.port))


if __name__ == "__main__":
    main()
