"""Raw clients of a soak: every front, both eras, able to be asked or not. Each keeps account of
what reached it.

`Account` holds what must never happen: an answer nobody waited for, a second answer, somebody
else's question. A client answers questions in its own name; a call's value starts with that name,
so a question that carries another one's value came to the wrong place.
"""

import asyncio
import itertools
import random
from abc import ABC, abstractmethod
from asyncio.subprocess import Process
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Literal

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

Json = dict[str, Any]
Era = Literal["older", "modern"]

OLDER, MODERN = "2025-11-25", "2026-07-28"
META = "io.modelcontextprotocol/"
LIMIT = 16 * 2**20
PROGRAM = {"name": "soak", "version": "1"}
"""All are the same program: a gateway must not tell them apart by that."""
ROUNDS = 10
EXAMPLES = 5
"""Kept of each kind of thing that must not happen."""


class Gone(Exception):
    """The connection ended before the answer came."""


class Account:
    """What happened, counted; of what must not happen the first few in words."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.examples: defaultdict[str, list[str]] = defaultdict(list)

    def must_not(self, what: str, words: str) -> None:
        self.wrong[what] += 1
        if len(self.examples[what]) < EXAMPLES:
            self.examples[what].append(words[:400])


class Client(ABC):
    def __init__(self, name: str, era: Era, askable: bool, account: Account) -> None:
        self.name = name
        self.era = era
        self.askable = askable
        self.account = account
        self.capabilities: Json = (
            {"elicitation": {"form": {}}, "roots": {"listChanged": True}} if askable else {}
        )
        self._ids = itertools.count(1)
        self._waiting: dict[Any, asyncio.Future[Json]] = {}
        self._answered: set[Any] = set()
        self._given_up: set[Any] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ended = ""

    @property
    def modern(self) -> bool:
        return self.era == "modern"

    # -- requests

    async def open(self) -> None:
        if self.modern:
            return
        greeting = {
            "protocolVersion": OLDER,
            "capabilities": self.capabilities,
            "clientInfo": PROGRAM,
        }
        await self.request("initialize", greeting)
        await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, tool: str, arguments: Json) -> Json:
        """The reply to the call, questions on the way answered: it has `result` or `error`."""
        plain: Json = {"name": tool, "arguments": arguments}
        params = plain
        for _ in range(ROUNDS):
            reply = await self._exchange("tools/call", params)
            result = reply.get("result", {})
            if result.get("resultType") != "input_required":
                return reply
            answers = {key: self._answer(asked) for key, asked in result["inputRequests"].items()}
            params = {**plain, "inputResponses": answers}
            if "requestState" in result:
                params["requestState"] = result["requestState"]
        return {"error": {"message": f"asked {ROUNDS} times"}}

    async def request(self, method: str, params: Json) -> Json:
        reply = await self._exchange(method, params)
        if "result" not in reply:
            raise Gone(f"{method}: {reply.get('error')}")
        return reply["result"]

    async def _exchange(self, method: str, params: Json) -> Json:
        """Cancelling the task that waits cancels the request, in the way of the carrier."""
        if self.modern:
            envelope = {
                "protocolVersion": MODERN,
                "clientInfo": PROGRAM,
                "clientCapabilities": self.capabilities,
            }
            params = {**params, "_meta": {META + key: value for key, value in envelope.items()}}
        if self._ended:
            raise Gone(self._ended)
        number = next(self._ids)
        reply = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            return await reply
        except asyncio.CancelledError:
            self._given_up.add(number)
            self._start(self._cancel(number))
            raise
        finally:
            self._waiting.pop(number, None)

    async def _cancel(self, number: int) -> None:
        gone = {"requestId": number, "reason": "enough"}
        await self._send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone})

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        async def quietly() -> None:
            try:
                await work
            except (OSError, EOFError, Gone, ConnectionClosed, ValueError):
                pass  # it is leaving, or the gateway is

        task = asyncio.create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may have been cancelled before it began

    # -- what comes back

    def _hear(self, message: Json) -> None:
        if "method" in message:
            if "id" in message:
                self._start(self._answer_request(message))
            return
        number = message.get("id")
        if number in self._answered:
            self.account.must_not("answered twice", f"{self.name}: {message}")
        elif (reply := self._waiting.pop(number, None)) is not None:
            if not reply.done():  # else: just cancelled
                reply.set_result(message)
        elif number not in self._given_up:
            self.account.must_not("an answer to nothing", f"{self.name}: {message}")
        self._answered.add(number)

    async def _answer_request(self, message: Json) -> None:
        if self.modern:
            self.account.must_not("a request to a modern client", f"{self.name}: {message}")
        if message["method"] == "ping":
            result: Json = {}
        else:
            await asyncio.sleep(random.random() * 0.05)
            result = self._answer(message)
        await self._send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _answer(self, question: Json) -> Json:
        self.account.counts["questions"] += 1
        if not self.askable:
            self.account.must_not(
                "asked, though it can be asked nothing", f"{self.name}: {question}"
            )
        if question["method"] == "roots/list":
            return {"roots": [{"uri": f"file:///{self.name}"}]}
        words = question["params"]["message"]
        if words.partition(" ")[0] != self.name:
            self.account.must_not(
                "asked somebody else's question", f"{self.name} was asked {words!r}"
            )
        return {"action": "accept", "content": {"name": self.name}}

    def _end(self, reason: str) -> None:
        self._ended = reason
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(Gone(reason))
                reply.exception()  # whoever waits for it hears of it; perhaps nobody does any more

    async def close(self, *, politely: bool) -> None:
        if politely:
            try:
                await self._say_goodbye()
            except (OSError, EOFError, Gone):
                pass
        self._end("left")
        await self._cut()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @abstractmethod
    async def _send(self, message: Json) -> None: ...

    @abstractmethod
    async def _say_goodbye(self) -> None:
        """What a client does that leaves in order, where there is such a thing."""

    @abstractmethod
    async def _cut(self) -> None:
        """Let go of the connection, without a word."""


# ---- HTTP


class Exchange:
    """One HTTP request on a connection of its own, and its answer as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}

    @classmethod
    async def begin(
        cls, port: int, method: str, path: str, headers: dict[str, str], body: bytes = b""
    ) -> "Exchange":
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=LIMIT)
        self = cls(reader, writer)
        try:
            lines = {"host": f"127.0.0.1:{port}", "content-length": str(len(body)), **headers}
            head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
            first, *rest = (
                (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
            )
            self.status = int(first.split(" ", 2)[1])
            self.headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in rest)
            }
        except BaseException:
            writer.close()
            raise
        return self

    async def messages(self) -> AsyncIterator[tuple[str, bytes]]:
        """Kind and data of each event, or the one body there is."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            if body := await self._reader.readexactly(int(self.headers.get("content-length", 0))):
                yield "message", body
            return
        rest = b""
        while size := int(await self._reader.readline() or b"0", 16):
            *events, rest = (rest + (await self._reader.readexactly(size + 2))[:-2]).split(b"\n\n")
            for event in events:
                fields = dict(line.partition(b": ")[::2] for line in event.split(b"\n"))
                if data := fields.get(b"data"):
                    yield fields.get(b"event", b"message").decode(), data

    def cut(self) -> None:
        self._writer.close()


class HttpClient(Client):
    def __init__(self, name: str, era: Era, askable: bool, account: Account, port: int) -> None:
        super().__init__(name, era, askable, account)
        self._port = port
        self._session: dict[str, str] = {}
        self._posts: dict[Any, asyncio.Task[None]] = {}

    async def open(self) -> None:
        await super().open()
        if not self.modern and random.random() < 0.5:
            self._start(self._listen())

    async def _listen(self) -> None:
        stream = await Exchange.begin(
            self._port, "GET", "/mcp", {"accept": "text/event-stream", **self._session}
        )
        try:
            async for _, data in stream.messages():
                self._hear(orjson.loads(data))
        finally:
            stream.cut()

    def _headers(self, message: Json) -> dict[str, str]:
        both = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if not self.modern:
            return both | self._session
        named = (
            {"mcp-name": message["params"]["name"]} if message.get("method") == "tools/call" else {}
        )
        return both | {"mcp-protocol-version": MODERN, "mcp-method": message["method"]} | named

    async def _send(self, message: Json) -> None:
        if "id" in message and "method" in message:
            task = self._posts[message["id"]] = asyncio.create_task(self._post(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: self._posts.pop(message["id"], None))
        else:
            await self._post(message)

    async def _post(self, message: Json) -> None:
        number = message.get("id") if "method" in message else None
        try:
            posted = await Exchange.begin(
                self._port, "POST", "/mcp", self._headers(message), orjson.dumps(message)
            )
            try:
                if message.get("method") == "initialize":
                    session = posted.headers.get("mcp-session-id", "")
                    self._session = {"mcp-session-id": session, "mcp-protocol-version": OLDER}
                async for _, data in posted.messages():
                    self._hear(orjson.loads(data))
            finally:
                posted.cut()
        except (OSError, EOFError, ValueError) as error:
            self._lost(number, f"HTTP: {error!r}")
        else:
            self._lost(number, "the answer ended without a response")

    def _lost(self, number: Any, reason: str) -> None:
        reply = self._waiting.get(number)
        if reply is not None and not reply.done():
            reply.set_exception(Gone(reason))
            reply.exception()

    async def _cancel(self, number: int) -> None:
        """In the modern era closing the connection of the POST is how a client cancels."""
        if not self.modern:
            await super()._cancel(number)
        elif (task := self._posts.get(number)) is not None:
            task.cancel()

    async def _say_goodbye(self) -> None:
        if self._session:
            (await Exchange.begin(self._port, "DELETE", "/mcp", self._session)).cut()

    async def _cut(self) -> None:
        """The connections go with the tasks that hold them."""


class SseClient(Client):
    def __init__(self, name: str, askable: bool, account: Account, port: int) -> None:
        super().__init__(name, "older", askable, account)
        self._port = port
        self._address = ""
        self._stream: Exchange | None = None

    async def open(self) -> None:
        self._stream = await Exchange.begin(
            self._port, "GET", "/sse", {"accept": "text/event-stream"}
        )
        named = asyncio.get_running_loop().create_future()
        self._start(self._read(self._stream, named))
        self._address = await named
        await super().open()

    async def _read(self, stream: Exchange, named: "asyncio.Future[str]") -> None:
        try:
            async for kind, data in stream.messages():
                if kind == "endpoint":
                    named.set_result(data.decode())
                else:
                    self._hear(orjson.loads(data))
        finally:
            self._end("the event stream was closed")
            if not named.done():
                named.set_exception(Gone("no endpoint"))

    async def _send(self, message: Json) -> None:
        kind = {"content-type": "application/json"}
        posted = await Exchange.begin(
            self._port, "POST", self._address, kind, orjson.dumps(message)
        )
        posted.cut()
        if posted.status != 202:
            raise Gone(f"HTTP {posted.status}")

    async def _say_goodbye(self) -> None:
        """The end of the stream is all there is."""

    async def _cut(self) -> None:
        if self._stream is not None:
            self._stream.cut()


class SocketClient(Client):
    def __init__(self, name: str, era: Era, askable: bool, account: Account, port: int) -> None:
        super().__init__(name, era, askable, account)
        self._port = port
        self._socket: ClientConnection | None = None

    async def open(self) -> None:
        url = f"ws://127.0.0.1:{self._port}/ws"
        self._socket = await connect(
            url, subprotocols=[Subprotocol("mcp")], max_size=LIMIT, proxy=None
        )
        self._start(self._read(self._socket))
        await super().open()

    async def _read(self, socket: ClientConnection) -> None:
        try:
            async for frame in socket:
                self._hear(orjson.loads(frame))
        finally:
            self._end("the WebSocket was closed")

    async def _send(self, message: Json) -> None:
        assert self._socket is not None
        try:
            await self._socket.send(orjson.dumps(message).decode())
        except ConnectionClosed as error:
            raise Gone(str(error)) from error

    async def _say_goodbye(self) -> None:
        if self._socket is not None:
            await self._socket.close()

    async def _cut(self) -> None:
        if self._socket is not None:
            self._socket.transport.abort()


class PipeClient(Client):
    """Has started the gateway itself and speaks to it by its pipes."""

    def __init__(
        self, name: str, era: Era, askable: bool, account: Account, process: Process
    ) -> None:
        super().__init__(name, era, askable, account)
        self._process = process
        self._start(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                self._hear(orjson.loads(line))
        finally:
            self._end("the gateway closed its output")

    async def _send(self, message: Json) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))
        await self._process.stdin.drain()

    async def _say_goodbye(self) -> None:
        """The end of its input is all there is."""

    async def _cut(self) -> None:
        """Whoever started the process ends it."""
