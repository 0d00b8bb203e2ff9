"""Raw clients over HTTP: streamable HTTP in both eras, and the HTTP+SSE of 2024-11-05 for a peer
that has only that."""

import asyncio

import orjson

from bench.client import LIMIT, Client, Era, Refused, Waiting
from bench.upstream import VERSION, Json

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def field_of(head: str, name: str) -> str:
    """The value of a header; empty when it is absent."""
    at = head.lower().find(f"\r\n{name}:")
    return head[at + len(name) + 3 : head.index("\r\n", at + 2)].strip() if at >= 0 else ""


async def _content(head: str, reader: asyncio.StreamReader) -> bytes:
    """The body of an answer; of an event stream what its last event says."""
    if field_of(head, "transfer-encoding") == "chunked":
        chunks: list[bytes] = []
        while size := int(await reader.readline(), 16):
            chunks.append((await reader.readexactly(size + 2))[:-2])
        await reader.readexactly(2)
        content = b"".join(chunks)
    else:
        content = await reader.readexactly(int(field_of(head, "content-length") or 0))
    if field_of(head, "content-type").startswith("text/event-stream"):
        content = [line[5:] for line in content.splitlines() if line.startswith(b"data:")][-1]
    return content


class Connections:
    """As many kept connections to one port as there are requests at a time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._idle: list[Stream] = []

    async def send(
        self, method: str, path: str, headers: str, body: bytes
    ) -> tuple[int, str, bytes]:
        """Status, head and body of the answer."""
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n{headers}"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        try:
            reader, writer = stream = await self._connection()
        except OSError as error:
            raise Refused(f"no connection: {error}") from error
        try:
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            content = await _content(answer, reader)
        except (OSError, EOFError, ValueError, LookupError) as error:
            writer.close()
            raise Refused(f"no whole answer: {error!r}") from error
        except BaseException:
            writer.close()
            raise
        self._idle.append(stream)
        return int(answer.split(" ", 2)[1]), answer, content

    async def _connection(self) -> Stream:
        while self._idle:
            reader, writer = stream = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing():
                return stream
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self.port, limit=LIMIT)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


class HttpClient(Client):
    """One session (older era) or none (modern) of streamable HTTP."""

    def __init__(self, era: Era, port: int, path: str = "/mcp", token: str | None = None) -> None:
        super().__init__(era)
        self._connections = Connections(port)
        self._path = path
        self._session = ""
        self._token = "" if token is None else f"authorization: Bearer {token}\r\n"

    async def _exchange(self, message: Json) -> Json:
        status, head, body = await self._post(message)
        if status != 200:
            raise Refused(f"HTTP {status}: {body[:300]!r}")
        if message["method"] == "initialize":
            session = field_of(head, "mcp-session-id")
            self._session = f"mcp-protocol-version: {VERSION['older']}\r\n"
            self._session += f"mcp-session-id: {session}\r\n" if session else ""
        try:
            return orjson.loads(body)
        except ValueError as error:
            raise Refused(f"not a message: {error}") from error

    async def _notify(self, message: Json) -> None:
        status, _, body = await self._post(message)
        if status not in (200, 202):
            raise Refused(f"HTTP {status}: {body[:300]!r}")

    async def _post(self, message: Json) -> tuple[int, str, bytes]:
        headers = (
            f"accept: application/json, text/event-stream\r\n{self._token}{self._headers(message)}"
        )
        return await self._connections.send("POST", self._path, headers, orjson.dumps(message))

    def _headers(self, message: Json) -> str:
        if self.era == "older":
            return self._session
        named = (
            f"mcp-name: {message['params']['name']}\r\n"
            if message["method"] == "tools/call"
            else ""
        )
        return (
            f"mcp-protocol-version: {VERSION['modern']}\r\nmcp-method: "
            f"{message['method']}\r\n{named}"
        )

    def move(self, port: int) -> None:
        """The same session at another port from now on: that of another replica."""
        self._connections.close()
        self._connections = Connections(port)

    async def end_session(self) -> None:
        await self._connections.send("DELETE", self._path, self._token + self._session, b"")

    async def close(self) -> None:
        self._connections.close()


class SseClient(Client):
    """One session of HTTP+SSE: answers come on a stream that stays open, questions go to the
    address it names."""

    def __init__(self, port: int, path: str) -> None:
        super().__init__("older")
        self._connections = Connections(port)
        self._path = path
        self._address = ""
        self._waiting = Waiting()
        self._reading: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        try:
            reader, self._writer = await asyncio.open_connection(
                "127.0.0.1", self._connections.port, limit=LIMIT
            )
            host = f"host: 127.0.0.1:{self._connections.port}\r\n"
            self._writer.write(
                f"GET {self._path} HTTP/1.1\r\n{host}accept: text/event-stream\r\n\r\n".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
        except (OSError, EOFError) as error:
            raise Refused(f"no event stream: {error!r}") from error
        if b" 200 " not in head[:20]:
            raise Refused(f"no event stream: {head[:100]!r}")
        named: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(reader, named))
        self._address = await named
        await super().open()

    async def _read(self, reader: asyncio.StreamReader, named: "asyncio.Future[str]") -> None:
        try:
            rest = b""
            while size := int(await reader.readline() or b"0", 16):
                *events, rest = (rest + (await reader.readexactly(size + 2))[:-2]).split(b"\n\n")
                for event in events:
                    data = b"".join(
                        line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")
                    )
                    if b"event: endpoint" in event:
                        named.set_result(data.decode())
                    elif data:
                        self._waiting.arrived(data)
        except (OSError, EOFError, ValueError):
            pass
        self._waiting.end("the event stream was closed")
        if not named.done():
            named.set_exception(Refused("the event stream was closed"))

    async def _exchange(self, message: Json) -> Json:
        answer = self._waiting.add(message["id"])
        try:
            await self._notify(message)
            return await answer
        finally:
            self._waiting.forget(message["id"])

    async def _notify(self, message: Json) -> None:
        status, _, body = await self._connections.send(
            "POST", self._address, "", orjson.dumps(message)
        )
        if status >= 300:
            raise Refused(f"HTTP {status}: {body[:300]!r}")

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self._writer is not None:
            self._writer.close()
        self._connections.close()
