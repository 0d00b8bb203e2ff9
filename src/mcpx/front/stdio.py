"""The stdio front: one client on our standard input and output, newline or Content-Length framing,
as it speaks.

Standard output carries messages and nothing else. While the client does not read, nothing more is
taken from it.
"""

import asyncio
import contextlib
import logging
import os
import socket
import stat
import sys
from collections.abc import Callable
from typing import IO, cast

from mcpx.front.conversation import ClientConversation
from mcpx.front.dispatch import Dispatcher
from mcpx.front.visitor import Visitor
from mcpx.model.errors import INVALID_REQUEST, RpcError
from mcpx.wire import stdio_pipes
from mcpx.wire.flow import Intake
from mcpx.wire.framing import Framing, MessageReader, frame
from mcpx.wire.stdio_pipes import Gathered

log = logging.getLogger(__name__)

CHUNK = 65536


class StdioFront:
    def __init__(
        self, dispatcher: Dispatcher, limit: int, visitor: Visitor, mode: str | None = None
    ) -> None:
        self.ended = asyncio.Event()
        """The client closed its end, or asked for the shutdown."""
        self._gateway = dispatcher.gateway
        self._output: asyncio.WriteTransport | None = None
        self._pipe: Gathered | None = None
        self._input: asyncio.ReadTransport | None = None
        self._congested = False
        self._sent = asyncio.Event()
        """Standard output is closed, and all that was written to it is out."""
        self._connection = ClientConversation(
            dispatcher,
            self._transmit,
            visitor=visitor,
            solo=True,
            mode=mode,
            congested=lambda: self._congested,
            on_first=dispatcher.gateway.start,
            on_shutdown=self.ended.set,
        )
        self._reader = MessageReader(
            self._connection.peer.receive, self._skipped, limit=limit, framing="detect"
        )
        self._intake = Intake(self._reader.feed, read_ahead=0)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        # Our own copies of 0 and 1; what would print by mistake goes to stderr, never between
        # messages.
        source, sink = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        if _is_socket(source) and _are_one(source, sink):
            # One socket for both directions, as inetd gives it.
            both = socket.socket(fileno=os.dup(source.fileno()))
            source.close()
            sink.close()
            self._input, _ = await loop.connect_accepted_socket(lambda: _Both(self), both)
            self._output = self._input
            return
        if _is_pipe(sink) or _is_socket(sink):
            self._output = await stdio_pipes.write_pipe(_Output(self), sink)
        else:
            self._output = cast(asyncio.WriteTransport, _FileOutput(sink, self.output_closed))
            self._sent.set()
        if _is_pipe(source) or _is_socket(source) or source.isatty():
            self._input = await stdio_pipes.read_pipe(_Input(self), source)
            return
        # A file and the null device cannot be watched for readiness; they are simply read.
        while data := source.read(CHUNK):
            self._reader.feed(data)
            await asyncio.sleep(0)
        source.close()
        self.at_end()

    def opened(self, source: asyncio.ReadTransport) -> None:
        self._intake.read_from(source)

    def received(self, data: bytes) -> None:
        self._intake.take(data)

    def at_end(self) -> None:
        self._reader.finish()
        self.ended.set()

    def room(self, there_is: bool) -> None:
        self._congested = not there_is
        self._intake.hold(not there_is)

    def _transmit(self, raw: bytes) -> None:
        if self._output is None:
            return
        if self._pipe is None:
            self._pipe = Gathered(self._output)
        framing: Framing
        if self._reader.framing == "content-length":
            framing = "content-length"
        else:
            framing = "newline"
        self._pipe.write(frame(raw, framing), more_to_come=self._connection.peer.busy)

    def _skipped(self, size: int, reason: str, head: bytes) -> None:
        error = RpcError(INVALID_REQUEST, f"skipped {size:,} bytes of input: {reason}")
        self._connection.peer.refuse(None, error)

    def output_closed(self) -> None:
        self._sent.set()
        self.ended.set()

    async def close(self, grace: float) -> None:
        deadline = asyncio.get_running_loop().time() + grace
        await self._connection.finish(grace)
        await self._connection.close()
        if self._input is not None:
            self._input.close()
        if self._pipe is not None:
            self._pipe.flush()
        if self._output is not None:
            self._output.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._sent.wait()
        sys.stderr.flush()


class _Input(asyncio.Protocol):
    def __init__(self, front: StdioFront) -> None:
        self._front = front

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._front.opened(cast(asyncio.ReadTransport, transport))

    def data_received(self, data: bytes) -> None:
        self._front.received(data)

    def eof_received(self) -> bool | None:
        self._front.at_end()
        return None

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


class _Both(_Input, _Output):
    def eof_received(self) -> bool:
        self._front.at_end()
        return True  # the other direction stays open for the answers

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.output_closed()


class _FileOutput:
    """Standard output is a file, a terminal or the null device: it is simply written."""

    def __init__(self, sink: IO[bytes], on_broken: Callable[[], None]) -> None:
        self._sink = sink
        self._on_broken = on_broken
        self._broken = False

    def write(self, data: bytes) -> None:
        try:
            self._sink.write(data)
            self._sink.flush()
        except OSError as error:
            log.error("standard output cannot be written: %s", error.strerror)
            self._broken = True
            self._on_broken()

    def is_closing(self) -> bool:
        return self._broken or self._sink.closed

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sink.close()


def _is_pipe(file: IO[bytes]) -> bool:
    return stat.S_ISFIFO(os.fstat(file.fileno()).st_mode)


def _is_socket(file: IO[bytes]) -> bool:
    return stat.S_ISSOCK(os.fstat(file.fileno()).st_mode)


def _are_one(file: IO[bytes], other: IO[bytes]) -> bool:
    return os.path.sameopenfile(file.fileno(), other.fileno())
