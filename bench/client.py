"""Raw clients: JSON-RPC over a child's pipes, in both eras; over HTTP see `http_client`. An answer
must bear its id."""

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
INITIALIZED: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}
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
        """What comes before the first request: a handshake in the older era, nothing in the modern
        one."""
        if self.era == "older":
            await self.request("initialize", GREETING)
            await self._notify(INITIALIZED)

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
    async def close(self) -> None:
        """Lets go of the connection; whoever is behind it is not told."""


class Waiting:
    """Questions that were sent, by id, for answers that come on a stream of their own."""

    def __init__(self) -> None:
        self._answers: dict[Any, asyncio.Future[Json]] = {}
        self._ended = ""

    def add(self, rid: Any) -> asyncio.Future[Json]:
        if self._ended:
            raise Refused(self._ended)
        answer = self._answers[rid] = asyncio.get_running_loop().create_future()
        return answer

    def forget(self, rid: Any) -> None:
        self._answers.pop(rid, None)

    def arrived(self, data: bytes) -> None:
        """What is not an answer to an open question (a notification, a late reply) is passed
        over."""
        message = orjson.loads(data)
        if "method" not in message and message.get("id") in self._answers:
            answer = self._answers.pop(message["id"])
            if not answer.done():
                answer.set_result(message)

    def end(self, reason: str) -> None:
        self._ended = reason
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(Refused(reason))


class StdioClient(Client):
    """Speaks to a process by its pipes."""

    def __init__(self, era: Era, process: Process) -> None:
        super().__init__(era)
        assert process.stdin is not None and process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        self._waiting = Waiting()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        reason = "the process closed its output"
        try:
            async for line in self._output:
                self._waiting.arrived(line)
        except ValueError as error:
            reason = f"not a message: {error}"
        self._waiting.end(reason)

    async def _exchange(self, message: Json) -> Json:
        answer = self._waiting.add(message["id"])
        await self._notify(message)
        try:
            return await answer
        finally:
            self._waiting.forget(message["id"])

    async def _notify(self, message: Json) -> None:
        self._input.write(orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE))

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
