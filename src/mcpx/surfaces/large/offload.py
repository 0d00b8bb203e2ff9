"""Runs functions in a child process that the system bounds in time and memory (SUR-11).

Each `Offload` has one process and does one job at a time. The process starts with the first job and
ends when it is idle, when a job exceeds a limit, and with the gateway: a thread in it waits for the
end of its standard input, also during a job. Clients take turns (`FairQueue`). Functions,
arguments, results, and exceptions are pickled, so both sides must be code of mcpx.
"""

import asyncio
import logging
import os
import pickle
import sys
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from subprocess import DEVNULL, PIPE
from typing import Any, TypeVar

from mcpx.base.aio import FairQueue, QueueFull
from mcpx.wire import codec

log = logging.getLogger(__name__)

T = TypeVar("T")

_HEADER_BYTES = 8
_READ_AHEAD = 128 << 10
_MAX_IDLE_MEMORY = 256 << 20
_SERVE = "from mcpx.surfaces.large.offload import serve; serve({}, {})"


class Overrun(Exception):
    """A job took too much time or memory, or its process died."""


class Busy(Exception):
    """Too many jobs wait."""


@dataclass(frozen=True, slots=True)
class Limits:
    cpu_seconds: int = 3
    seconds: float = 30.0
    """For one job on a busy machine."""
    memory: int = 1 << 30
    idle_seconds: float = 10.0
    max_waiting: int = 64
    max_waiting_bytes: int = 256 << 20


class Offload:
    def __init__(self, name: str, limits: Limits) -> None:
        self._name = name
        self._limits = limits
        self._queue = FairQueue(1, limits.max_waiting, limits.max_waiting_bytes)
        self._process: asyncio.subprocess.Process | None = None
        self._killed: list[asyncio.subprocess.Process] = []
        self._idle_timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def run(
        self, client: Hashable, size: int, function: Callable[..., T], *arguments: object
    ) -> T:
        """Call the function in the process. `size`: bytes that the arguments hold while they wait.

        Raises `Busy`, `Overrun`, and exceptions of the function.
        """
        try:
            await self._queue.enter(client, size)
        except QueueFull:
            raise Busy from None
        try:
            return await self._run(pickle.dumps((function, arguments)))
        finally:
            self._queue.leave()
            if not self._queue.running and self._process is not None:
                loop = asyncio.get_running_loop()
                self._idle_timer = loop.call_later(self._limits.idle_seconds, self._rest)

    async def close(self) -> None:
        self._closed = True
        self._queue.close(Overrun("the gateway ends"))
        self._end("the gateway ends")
        for process in self._killed:
            await process.wait()

    async def _run(self, job: bytes) -> Any:
        self._cancel_idle_timer()
        try:
            async with asyncio.timeout(self._limits.seconds):
                result, error, is_last = await self._exchange(await self._started(), job)
        except (OSError, EOFError) as failure:  # TimeoutError is an OSError.
            self._end(type(failure).__name__)
            raise Overrun(str(failure)) from None
        except BaseException:
            self._end("its job was cancelled")
            raise
        if is_last:
            self._end("it grew large")
        if error is not None:
            raise error
        return result

    async def _exchange(self, process: asyncio.subprocess.Process, job: bytes) -> Any:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(len(job).to_bytes(_HEADER_BYTES, "big"))
        process.stdin.write(job)
        await process.stdin.drain()
        size = int.from_bytes(await process.stdout.readexactly(_HEADER_BYTES), "big")
        return pickle.loads(await process.stdout.readexactly(size))

    async def _started(self) -> asyncio.subprocess.Process:
        process = self._process
        if process is not None and process.stdout is not None:
            if process.returncode is None and not process.stdout.at_eof():
                return process
            self._end("it had ended")
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # The current folder is not a place for modules.
            "-c",
            _SERVE.format(self._limits.cpu_seconds, self._limits.memory),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            limit=_READ_AHEAD,
            start_new_session=True,  # Ctrl-C is for the gateway only.
        )
        if self._closed:
            raise EOFError("the gateway ends")
        return self._process

    def _rest(self) -> None:
        self._end("nothing to do")
        codec.release_memory(surely=True)

    def _end(self, why: str) -> None:
        self._cancel_idle_timer()
        process, self._process = self._process, None
        if process is None:
            return
        log.debug("the process for %s large results is ended: %s", self._name, why)
        with suppress(ProcessLookupError):
            process.kill()
        self._killed = [each for each in self._killed if each.returncode is None]
        self._killed.append(process)

    def _cancel_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None


# In the child process


def serve(cpu_seconds: int, max_memory: int) -> None:
    _set_limit("RLIMIT_CORE", 0)
    _set_limit("RLIMIT_AS", max_memory)
    if hasattr(os, "nice"):
        os.nice(2)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Nothing may print between replies.
    jobs: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(jobs,), daemon=True).start()
    is_last = False
    while not is_last:
        job = jobs.get()
        _set_limit("RLIMIT_CPU", cpu_seconds)
        try:
            function, arguments = pickle.loads(job)
            result, error = function(*arguments), None
            del function, arguments
        except MemoryError:
            result, error, is_last = None, Overrun("too much memory"), True
        except Exception as failure:  # noqa: BLE001 - raised again by the gateway
            result, error = None, failure
        is_last = is_last or _used_memory() > _MAX_IDLE_MEMORY
        reply = pickle.dumps((result, error, is_last))
        replies.write(len(reply).to_bytes(_HEADER_BYTES, "big"))
        replies.write(reply)
        replies.flush()
        del job, result, error, reply  # The process may wait for long.


def _receive(jobs: "SimpleQueue[bytes]") -> None:
    source = os.fdopen(0, "rb", closefd=False)
    try:
        while header := source.read(_HEADER_BYTES):
            jobs.put(source.read(int.from_bytes(header, "big")))
    finally:
        os._exit(0)  # The gateway has ended.


def _set_limit(name: str, limit: int) -> None:
    """The limit of CPU time counts from now. macOS does not limit memory, Windows nothing."""
    try:
        import resource
    except ImportError:
        return
    kind = getattr(resource, name)
    hard = limit
    if name == "RLIMIT_CPU":
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit += int(used.ru_utime + used.ru_stime) + 1
        hard = resource.getrlimit(kind)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(kind, (limit, hard))


def _used_memory() -> int:
    # `ru_maxrss` would count the memory of the gateway, of which this process was a copy.
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
