"""Many clients at once, on one loop: kept connections, one request at a time on each, answers told
apart.

Fast enough to be more than the gateway can take, which is what it is for."""

import asyncio
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit.client import ACCEPT_BOTH
from kit.messages import (
    Json,
    initialize_request,
    modern_headers,
    modern_request,
    notification,
    request,
)

LENGTH = re.compile(rb"content-length: (\d+)")
SESSION = re.compile(rb"mcp-session-id: (\S+)")
TICKS = os.sysconf("SC_CLK_TCK")


class Wire(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self.transport: Any = None
        self._read = b""
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        head = self._read.find(b"\r\n\r\n")
        if head < 0:
            return
        length = LENGTH.search(self._read, 0, head)
        whole = head + 4 + int(length[1] if length else 0)
        if len(self._read) >= whole and self._answer is not None and not self._answer.done():
            answer, self._read = self._read[:whole], self._read[whole:]
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("closed"))

    async def send(self, data: bytes) -> bytes:
        """The answer: head and body."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        return await self._answer


async def connected(port: int) -> Wire:
    _, wire = await asyncio.get_running_loop().create_connection(Wire, "127.0.0.1", port)
    return wire


def encoded(port: int, message: Json, headers: Json, method: str = "POST") -> bytes:
    body = json.dumps(message).encode() if message else b""
    fields = {
        "Host": f"127.0.0.1:{port}",
        "Content-Type": "application/json",
        "Accept": ACCEPT_BOTH,
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} /mcp HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def call_of(port: int, era: str, session: str, tool: str, text: str, **arguments: Any) -> bytes:
    params = {"name": tool, "arguments": {"text": text, **arguments}}
    if era == "modern":
        message = modern_request("tools/call", params)
        return encoded(port, message, modern_headers(message))
    return encoded(port, request("tools/call", params), {"Mcp-Session-Id": session})


async def greeted(port: int, wire: Wire) -> str:
    """A session of the older era."""
    answer = await wire.send(encoded(port, initialize_request(), {}))
    found = SESSION.search(answer)
    assert found is not None, answer
    session = found[1].decode()
    headers = {"Mcp-Session-Id": session}
    assert (
        await wire.send(encoded(port, notification("notifications/initialized"), headers))
    ).startswith(b"HTTP/1.1 202")
    return session


async def left(port: int, wire: Wire, session: str) -> None:
    assert (await wire.send(encoded(port, {}, {"Mcp-Session-Id": session}, "DELETE"))).startswith(
        b"HTTP/1.1 200"
    )


@dataclass
class Score:
    good: int = 0
    late: int = 0
    """Given up by the client."""
    refused: dict[int, int] = field(default_factory=dict[int, int])
    seconds: float = 0.0
    cpu: float = 0.0
    """Seconds of the gateway's."""

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return self.good / self.seconds

    @property
    def economy(self) -> float:
        """Good answers for a second of the gateway's work: what else the machine does makes no
        difference to it."""
        return self.good / max(self.cpu, 0.01)


async def crowd(
    port: int,
    pid: int,
    clients: int,
    tools: list[str],
    seconds: float,
    patience: float,
    **arguments: Any,
):
    """So many clients that call as fast as they are answered; who is refused waits a moment, as it
    was told."""
    loop = asyncio.get_running_loop()
    score = Score()
    wires = [await connected(port) for _ in range(clients)]  # coming is not what is measured
    until = loop.time() + seconds

    async def client(number: int) -> None:
        wire: Wire | None = wires[number]
        tool = tools[number % len(tools)]
        turn = 0
        while loop.time() < until:
            turn += 1
            text = f"c{number}-{turn}."
            try:
                wire = wire or await connected(port)
                async with asyncio.timeout(patience):
                    answer = await wire.send(call_of(port, "modern", "", tool, text, **arguments))
            except TimeoutError:
                score.late += 1
                wire = _dropped(wire)
                continue
            except OSError:
                score.refused[0] = score.refused.get(0, 0) + 1
                wire = _dropped(wire)
                await asyncio.sleep(0.05)
                continue
            status = int(answer[9:12])
            if status == 200 and text.encode() in answer:
                score.good += 1
            else:
                score.refused[status] = score.refused.get(status, 0) + 1
                await asyncio.sleep(0.2)  # sooner than it was told: it is a rude one
                if b"connection: close" in answer:
                    wire = _dropped(wire)
        _dropped(wire)

    before, began = cpu_of(pid), loop.time()
    await asyncio.gather(*(client(number) for number in range(clients)))
    score.seconds, score.cpu = loop.time() - began, cpu_of(pid) - before
    return score


def _dropped(wire: Wire | None) -> None:
    if wire is not None:
        wire.transport.abort()


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_of(pid: int) -> float:
    """MiB."""
    return (
        int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    )
