"""One process of our own for work that would hold up everybody: started when it is first needed,
ended when idle.

Promise: one job at a time, each bounded in processor time, time on the clock and memory; who
exceeds them has the process killed and hears of it (`Overrun`), and the next job has a new one.
Owners take turns, so that one with many jobs does not hold up the others; how many wait is bounded
for each owner and in all, in number and in bytes (`Busy`). A call that is cancelled frees its place
at once. On the loop a job costs the writing and reading of its bytes, a slice at a time. The
process ends with the gateway in whatever way that ends: as soon as its socket is closed (`jobs`),
or its pipe where no socket can be inherited.
"""

import asyncio
import logging
import marshal
import socket
import subprocess
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from mcpx.wire import memory
from mcpx.wire.pipes import handed_over
from mcpx.wire.system import PORTABLE

log = logging.getLogger(__name__)

SLICE = 128 * 1024
"""Bytes that are written or read in one turn of the loop."""
HEAD = 4
"""Bytes that say how long the head of a message is."""
_WORK = "mcpx.surfaces.large.jobs"


class Overrun(Exception):
    """A job that took too much time or memory, or whose process died."""


class Busy(Exception):
    """Too many wait already."""


@dataclass(frozen=True, slots=True)
class Bounds:
    processor: int = 3
    """Seconds of processor time for one job."""
    longest: float = 30.0
    """Seconds for one job on a busy machine."""
    memory: int = 1 << 30
    idle: float = 10.0
    """Seconds without a job after which the process is ended."""
    most_waiting: int = 64
    most_of_one: int = 8
    most_bytes: int = 256 << 20
    """Of what waits; it is in memory already, and stays there while it waits."""


class Process:
    def __init__(self, name: str, bounds: Bounds) -> None:
        self._name = name
        self._bounds = bounds
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._held = ExitStack()
        """What more is let go with the process."""
        self._ended: set[subprocess.Popen[bytes]] = set()
        """Killed, and not yet reaped: what held much memory takes a while to go."""
        self._idle: asyncio.TimerHandle | None = None
        self._taken = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By owner; whose turn is next stands first."""
        self._count = self._bytes = 0
        self._closed = False

    async def do(
        self, owner: str, job: str, given: object, parts: Callable[[], Sequence[bytes]], size: int
    ) -> tuple[Any, list[bytes]]:
        """`parts` is asked for when it is this job's turn; `size` is about how much it keeps in
        memory until then."""
        await self._turn(owner, size)
        try:
            return await self._work(job, given, parts())
        finally:
            self._next()

    def close(self) -> None:
        self._closed = True
        self._end("the gateway ends")
        for process in self._ended:
            process.wait()
        self._ended.clear()
        for queue in self._waiting.values():
            for turn in queue:
                if not turn.done():
                    turn.set_exception(Overrun("the gateway ends"))

    # Turns
    # ----------------------------------------------------------------------------------------------

    async def _turn(self, owner: str, size: int) -> None:
        if self._closed:
            raise Overrun("the gateway ends")
        if not self._taken:
            self._taken = True
            return
        bounds, queue = self._bounds, self._waiting.get(owner) or deque()
        if (
            self._count >= bounds.most_waiting
            or len(queue) >= bounds.most_of_one
            or self._bytes + size > bounds.most_bytes
        ):
            raise Busy
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[owner] = queue
        queue.append(turn)
        self._count += 1
        self._bytes += size
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.done() and turn.exception() is None:
                self._next()  # it came to be our turn as we left
            else:
                queue.remove(turn)
                if not queue:
                    del self._waiting[owner]
            raise
        finally:
            self._count -= 1
            self._bytes -= size

    def _next(self) -> None:
        if not self._waiting:
            self._taken = False
            if self._process is not None:
                loop = asyncio.get_running_loop()
                self._idle = loop.call_later(self._bounds.idle, self._rest)
            return
        owner, queue = self._waiting.popitem(last=False)
        turn = queue.popleft()
        if queue:
            self._waiting[owner] = queue
        if turn.done():  # it is leaving in this very turn of the loop
            self._next()
        else:
            turn.set_result(None)

    def _rest(self) -> None:
        self._end("nothing to do")
        memory.give_back(surely=True)

    # The process
    # ----------------------------------------------------------------------------------------------

    async def _work(
        self, job: str, given: object, parts: Sequence[bytes]
    ) -> tuple[Any, list[bytes]]:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        try:
            async with asyncio.timeout(self._bounds.longest):
                reader, writer = await self._started()
                await _send(writer, (job, given), parts)
                (went_well, last, said), back = await _receive(reader)
        except (OSError, EOFError) as error:  # TimeoutError is an OSError
            self._end(type(error).__name__)
            raise Overrun(str(error)) from None
        except BaseException:
            self._end("its job was cancelled")
            raise
        if last:
            self._end("it grew large" if went_well else said)
        if not went_well:
            raise Overrun(said)
        return said, back

    async def _started(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is not None and self._writer is not None and self._process is not None:
            if (
                not self._reader.at_eof()
                and not self._writer.is_closing()
                and self._process.poll() is None
            ):
                return self._reader, self._writer
            self._end("it had ended")
        if PORTABLE:
            return await self._started_with_pipes()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = self._spawned(theirs)
            self._reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=SLICE)
        except BaseException:
            ours.close()
            raise
        return self._reader, self._writer

    async def _started_with_pipes(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        from mcpx.processes.systems import system  # whose pipes the loop can wait for

        loop, pipe = asyncio.get_running_loop(), subprocess.PIPE
        argv = [*self._command, "pipes"]
        process = self._process = system.popen(
            argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0
        )
        self._held.callback(system.release, system.tree(process, "", 0))
        reader = asyncio.StreamReader(limit=SLICE)
        try:
            source, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), handed_over(process.stdout, loop)
            )
            transport, protocol = await loop.connect_write_pipe(
                lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
                handed_over(process.stdin, loop),
            )
        except BaseException:
            if process.stdin is not None:
                process.stdin.close()  # the loop may not have got it yet
            raise
        if self._process is not process:  # it was ended meanwhile
            source.close()
            transport.abort()
            raise EOFError("it was ended as it began")
        self._held.callback(source.close)
        self._reader, self._writer = reader, asyncio.StreamWriter(transport, protocol, None, loop)
        return self._reader, self._writer

    @property
    def _command(self) -> list[str]:
        # -P: the gateway's folder is not a place for modules.
        return [
            sys.executable,
            "-P",
            "-m",
            _WORK,
            str(self._bounds.processor),
            str(self._bounds.memory),
        ]

    def _spawned(self, theirs: socket.socket) -> "subprocess.Popen[bytes]":
        # A session of its own: Ctrl-C is not for it.
        return subprocess.Popen(
            self._command,
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _end(self, why: str) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._writer is not None and not self._writer.is_closing():
            self._writer.transport.abort()
        self._reader = self._writer = None
        self._held.close()
        process, self._process = self._process, None
        if process is not None:
            log.debug("the process for %s large results is ended: %s", self._name, why)
            with suppress(OSError):
                process.kill()
            self._ended.add(process)
            self._reap(process)

    def _reap(self, process: "subprocess.Popen[bytes]") -> None:
        if process.poll() is not None:
            self._ended.discard(process)
        elif process in self._ended:
            with suppress(RuntimeError):  # the loop has ended before: `close` waits for it
                asyncio.get_running_loop().call_later(0.05, self._reap, process)


async def _send(writer: asyncio.StreamWriter, head: Any, parts: Sequence[bytes]) -> None:
    writer.write(framed(head, parts))
    for part in parts:
        whole = memoryview(part)
        for begin in range(0, len(part), SLICE):
            writer.write(whole[begin : begin + SLICE])
            await writer.drain()
    await writer.drain()


async def _receive(reader: asyncio.StreamReader) -> tuple[Any, list[bytes]]:
    length = int.from_bytes(await reader.readexactly(HEAD), "big")
    head, sizes = marshal.loads(await reader.readexactly(length))
    return head, [await reader.readexactly(size) for size in sizes]


def framed(head: Any, parts: Sequence[bytes]) -> bytes:
    """What stands before the parts of a message: plain values, between the same Python on both
    sides."""
    text = marshal.dumps((head, [len(part) for part in parts]))
    return len(text).to_bytes(HEAD, "big") + text
