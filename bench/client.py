"""Raw clients: JSON-RPC over a child's pipes or over streamable HTTP, in both eras. An answer must bear its id."""

import asyncio
import itertools
from abc import ABC, abstractmethod
from asyncio.subprocess import Process
from typing import Any, Literal

import orjson

from bench.upstream import VERSION, Json

Era = Literal["older", "modern"]
LIMIT = 64 * 2**20

CLIENT = {"name": "bench", "version": "1"}
GREETING: Json = {"protocolVersion": VERSION["older"], "capabilities": {}, "clientInfo": CLIENT}
ENVELOPE: Json = {
    "io.modelcontextprotocol/protocolVersion": VERSION["modern"],
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Refused(Exception):
    """An error, a wrong answer, or none."""


class Client(ABC):
    def __init__(self, era: Era) -> None:
        self.era = era
        self._ids = itertools.count(1)

    async def open(self) -> None:
        """What comes before the first request: a handshake in the older era, nothing in the modern one."""
        if self.era == "older":
            await self.request("initialize", GREETING)
            await self._notify({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def request(self, method: str, params: Json) -> Json:
        if self.era == "modern":
            params = {**params, "_meta": ENVELOPE}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        reply = await self._exchange(message)
        if reply.get("id") != message["id"] or "result" not in reply:
            raise Refused(f"{method} got {str(reply)[:300]}")
        return reply["result"]

    @abstractmethod
    async def _exchange(self, message: Json) -> Json: ...

    @abstractmethod
    async def _notify(self, message: Json) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...


class StdioClient(Client):
    """Speaks to a process by its pipes."""

    def __init__(self, era: Era, process: Process) -> None:
        super().__init__(era)
        assert process.stdin is not None and process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        self._waiting: dict[Any, asyncio.Future[Json]] = {}
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        reason = "the process closed its output"
        try:
            async for line in self._output:
                message = orjson.loads(line)
                if "method" not in message and message.get("id") in self._waiting:
                    self._waiting.pop(message["id"]).set_result(message)
        except ValueError as error:
            reason = f"not a message: {error}"
        for answer in self._waiting.values():
            answer.set_exception(Refused(reason))

    async def _exchange(self, message: Json) -> Json:
        if self._reading.done():
            raise Refused("the process closed its output")
        answer = self._waiting[message["id"]] = asyncio.get_running_loop().create_future()
        await self._notify(message)
        try:
            return await answer
        finally:
            self._waiting.pop(message["id"], None)

    async def _notify(self, message: Json) -> None:
        self._input.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])


async def _content(head: str, reader: asyncio.StreamReader) -> bytes:
    """The body of an answer; of an event stream what its last event says."""
    if _field(head, "transfer-encoding") != "chunked":
        return await reader.readexactly(int(_field(head, "content-length") or 0))
    chunks: list[bytes] = []
    while size := int(await reader.readline(), 16):
        chunks.append((await reader.readexactly(size + 2))[:-2])
    await reader.readexactly(2)
    content = b"".join(chunks)
    if _field(head, "content-type").startswith("text/event-stream"):
        content = [line[5:] for line in content.splitlines() if line.startswith(b"data:")][-1]
    return content


def _field(head: str, name: str) -> str:
    """The value of a header; empty when it is absent."""
    at = head.lower().find(f"\r\n{name}:")
    return head[at + len(name) + 3 : head.index("\r\n", at + 2)].strip() if at >= 0 else ""


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HttpClient(Client):
    """One session (older era) or none (modern), on as many kept connections as there are requests at a time."""

    def __init__(self, era: Era, port: int) -> None:
        super().__init__(era)
        self._port = port
        self._idle: list[Stream] = []
        self._session = ""

    async def _exchange(self, message: Json) -> Json:
        status, head, body = await self._post(message)
        if status != 200:
            raise Refused(f"HTTP {status}: {body[:300]!r}")
        if message["method"] == "initialize":
            session = _field(head, "mcp-session-id")
            self._session = f"mcp-protocol-version: {VERSION['older']}\r\n"
            self._session += f"mcp-session-id: {session}\r\n" if session else ""
        try:
            return orjson.loads(body)
        except ValueError as error:
            raise Refused(f"not a message: {error}") from error

    async def _notify(self, message: Json) -> None:
        status, _, body = await self._post(message)
        if status != 202:
            raise Refused(f"HTTP {status}: {body[:300]!r}")

    async def _post(self, message: Json) -> tuple[int, str, bytes]:
        body = orjson.dumps(message)
        head = (
            f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\ncontent-type: application/json\r\n"
            f"accept: application/json, text/event-stream\r\n{self._headers(message)}"
            f"content-length: {len(body)}\r\n\r\n"
        )
        try:
            reader, writer = stream = await self._connection()
        except OSError as error:
            raise Refused(f"no connection: {error}") from error
        try:
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            content = await _content(answer, reader)
        except (OSError, EOFError, ValueError) as error:
            writer.close()
            raise Refused(f"no whole answer: {error!r}") from error
        except BaseException:
            writer.close()
            raise
        self._idle.append(stream)
        return int(answer.split(" ", 2)[1]), answer, content

    def _headers(self, message: Json) -> str:
        if self.era == "older":
            return self._session
        named = f"mcp-name: {message['params']['name']}\r\n" if message["method"] == "tools/call" else ""
        return f"mcp-protocol-version: {VERSION['modern']}\r\nmcp-method: {message['method']}\r\n{named}"

    async def _connection(self) -> Stream:
        while self._idle:
            reader, writer = stream = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return stream
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self._port, limit=LIMIT)

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()
