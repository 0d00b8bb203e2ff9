"""The stdio front: one client on our standard input and output, newline or Content-Length framing, as it speaks.

Standard output carries messages and nothing else. While the client does not read, nothing more is taken from it.
"""

import asyncio
import contextlib
import os
import stat
import sys
from typing import Any, cast

from mcpx.front.connection import Connection
from mcpx.front.desk import Desk
from mcpx.model.errors import INVALID_REQUEST, RpcError
from mcpx.wire import jsonrpc
from mcpx.wire.framing import Framing, MessageReader, frame
from mcpx.wire.pipes import handed_over

CHUNK = 65536


class StdioFront:
    def __init__(self, desk: Desk, limit: int) -> None:
        self.ended = asyncio.Event()
        """The client closed its end, or asked for the shutdown."""
        self._gateway = desk.gateway
        self._output: asyncio.WriteTransport | None = None
        self._input: asyncio.ReadTransport | None = None
        self._congested = False
        self._sent = asyncio.Event()
        """Standard output is closed, and all that was written to it is out."""
        self._connection = Connection(
            desk,
            self._transmit,
            principal="local",
            solo=True,
            congested=lambda: self._congested,
            on_first=desk.gateway.start,
            on_shutdown=self.ended.set,
        )
        self._reader = MessageReader(self._connection.peer.receive, self._skipped, limit=limit, framing="detect")

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        # Our own copies of 0 and 1; what would print by mistake goes to stderr, never between messages.
        source, sink = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
        os.dup2(2, 1)
        if stat.S_ISREG(os.fstat(sink.fileno()).st_mode):
            self._output = cast(asyncio.WriteTransport, _FileOutput(sink))
            self._sent.set()
        else:
            self._output, _ = await loop.connect_write_pipe(lambda: _Output(self), handed_over(sink, loop))
        if stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            # A file cannot be watched for readiness; it is simply read.
            while data := source.read(CHUNK):
                self.received(data)
                await asyncio.sleep(0)
            source.close()
            self.at_end()
        else:
            self._input, _ = await loop.connect_read_pipe(lambda: _Input(self), handed_over(source, loop))

    def received(self, data: bytes) -> None:
        self._reader.feed(data)

    def at_end(self) -> None:
        self._reader.finish()
        self.ended.set()

    def room(self, there_is: bool) -> None:
        self._congested = not there_is
        if self._input is not None and not self._input.is_closing():
            self._input.resume_reading() if there_is else self._input.pause_reading()

    def _transmit(self, raw: bytes) -> None:
        if self._output is not None and not self._output.is_closing():
            framing: Framing = "content-length" if self._reader.framing == "content-length" else "newline"
            self._output.write(frame(raw, framing))

    def _skipped(self, size: int, reason: str, head: bytes = b"") -> None:
        error = RpcError(INVALID_REQUEST, f"skipped {size:,} bytes of input: {reason}")
        self._connection.peer.send(jsonrpc.failure(None, error))

    def output_closed(self) -> None:
        self._sent.set()
        self.ended.set()

    async def close(self, grace: float) -> None:
        deadline = asyncio.get_running_loop().time() + grace
        await self._connection.peer.finish(grace)
        await self._connection.close()
        if self._input is not None:
            self._input.close()
        if self._output is not None:
            self._output.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._sent.wait()
        sys.stderr.flush()


class _Input(asyncio.Protocol):
    def __init__(self, front: StdioFront) -> None:
        self._front = front

    def data_received(self, data: bytes) -> None:
        self._front.received(data)

    def eof_received(self) -> None:
        self._front.at_end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.ended.set()


class _Output(asyncio.BaseProtocol):
    def __init__(self, front: StdioFront) -> None:
        self._front = front

    def pause_writing(self) -> None:
        self._front.room(False)

    def resume_writing(self) -> None:
        self._front.room(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.output_closed()


class _FileOutput:
    """Standard output redirected to a file: it cannot block, so it is simply written."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def write(self, data: bytes) -> None:
        self._sink.write(data)

    def is_closing(self) -> bool:
        return self._sink.closed

    def close(self) -> None:
        self._sink.close()
