"""One child process: its pipes, its exit, its ending. Made by `process.spawn`, see there for the
promise.

Where the system lets us, it is reaped last of all: until then its pid, and with it the number of
its session, cannot be given to anyone else, so whatever bears that number is certainly ours. How it
is watched, found and ended: `systems`.
"""

import asyncio
import contextlib
import logging
import subprocess
from collections.abc import Awaitable, Callable
from typing import cast

from mcpx.processes.systems import system
from mcpx.wire.flow import Intake
from mcpx.wire.stdio_pipes import Gathered, handed_over

_log = logging.getLogger("mcpx.process")

EOF_GRACE = 1.0
"""Seconds for a clean exit after standard input was closed."""
TERM_GRACE = 0.7
END_BOUND = 2.7
"""Seconds for all of an ending."""
INTERRUPT_GRACE = 3.0
"""Seconds for a program that is still downloading to end after SIGINT. npm rolls back, and exits at
once at the next signal without doing so."""
DOWNLOADER_GRACE = 10.0
"""Seconds from the first request to end until a program that downloads itself gets SIGKILL."""
LATE_OUTPUT = 0.2
"""Seconds a descendant may hold the output pipes open after the child's exit and say nothing.
Looked at twice, with a turn of the loop between: on a busy machine what was printed may be read
later than that."""
HIGH_WATER = 256 * 1024

_Sink = Callable[[bytes], None]


class Child:
    def __init__(
        self,
        popen: "subprocess.Popen[bytes]",
        token: str,
        brand: int,
        *,
        grace: float | None = None,
        downloads: bool = False,
        on_exit: Callable[[int], None],
        look: Callable[[], Awaitable[None]],
        forget: Callable[["Child"], None],
    ) -> None:
        """`grace`: seconds for a clean exit after the end of input, None for `EOF_GRACE`;
        `downloads`: see `Spawn`; `look` brings `tree.alive` up to date; `forget` is called when
        nothing of this child is left."""
        self.pid = popen.pid
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        """Resolved when the child itself is gone; its descendants may need a moment more, see
        `end`."""
        self.tree = system.tree(popen, token, brand)
        self.busy = True
        """Something was written since the owner last set this to False."""
        self._popen = popen
        self._grace = EOF_GRACE if grace is None else grace
        self.downloads = downloads
        self.is_downloading = downloads
        """The owner sets this to False at the first byte of output, which comes after any
        download."""
        self._on_exit: Callable[[int], None] | None = on_exit
        self._look, self._forget = look, forget
        self._connecting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._asked = False
        self._stdin: asyncio.WriteTransport | None = None
        self._input: Gathered | None = None
        self._outputs: list[asyncio.ReadTransport] = []
        self._readers: list[_Output] = []
        self._open_outputs = 2
        self._late: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._unwatch: Callable[[], None] | None = None

    # --- the conversation

    def write(self, data: bytes, *, more_to_come: bool = False) -> None:
        """To standard input. Never blocks, never fails: when the pipe is broken, the exit will
        tell. `more_to_come`: it is sent together with what else is written in this turn of the
        loop."""
        self.busy = True
        if self._input is not None:
            self._input.write(data, more_to_come=more_to_come)

    def close_input(self) -> None:
        """The end of standard input, behind what was written."""
        if self._stdin is not None and self._input is not None:
            self._input.flush()
            self._stdin.close()

    @property
    def congested(self) -> bool:
        """More is waiting for the child to read than should."""
        return not self._room.is_set()

    @property
    def unread(self) -> int:
        """Bytes that wait for the child to read them."""
        return 0 if self._stdin is None else self._stdin.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until it is not congested, or gone."""
        await self._room.wait()

    # --- the end

    async def end(self) -> None:
        """End the child and all its descendants: close its input, then SIGTERM, then SIGKILL;
        within 3 s.

        A program that is downloading gets SIGINT first. A program that downloads itself is killed
        after `DOWNLOADER_GRACE` at the earliest, and has ended within a second more.

        Once begun it is finished whether or not anyone waits."""
        self._asked = True
        await asyncio.shield(self._begin_end())
        self._report()

    def abandon(self) -> None:
        """Its starter gave up: say nothing more, and end it."""
        self._on_exit = None
        self._asked = True
        self._begin_end()

    def _begin_end(self) -> "asyncio.Task[None]":
        if self._ending is None:
            self._ending = self._loop.create_task(self._end(), name=f"end {self.pid}")
        return self._ending

    async def _end(self) -> None:
        try:
            if self._connecting is not None:
                await asyncio.wait([self._connecting])
            await self._end_tree()
        except BaseException:
            # The loop is being torn down around us: no time is left, so no grace either.
            with contextlib.suppress(OSError):
                self.tree.alive = system.survey([self.tree])[0]
            system.kill(self.tree)
            raise
        finally:
            self._close()

    async def _end_tree(self) -> None:
        loop, tree = self._loop, self.tree
        killing_from = loop.time() + (DOWNLOADER_GRACE if self.downloads else 0.0)
        deadline = max(loop.time() + END_BOUND, killing_from + 1.0)
        if self.returncode is not None and not system.has_forked(self.pid):
            tree.alive = {}  # nothing to look for: spares a look at every process of the machine
            return
        if self.returncode is None:
            await (
                self._look()
            )  # who is there: once the child is gone its descendants may be nameless
            if self.is_downloading:
                system.interrupt(tree)
                await asyncio.wait([self.exited], timeout=INTERRUPT_GRACE)
            self.close_input()
            if self._grace:
                await asyncio.wait([self.exited], timeout=self._grace)
        if self._grace or self.returncode is not None:
            await self._look()
        if tree.alive:
            system.ask(tree)
            await self._until_gone(max(loop.time() + TERM_GRACE, killing_from))
            await self._look()
        # killed is once in any case: on a busy machine the looks before may have taken all the time
        late = False
        while (tree.alive or system.runaway(tree)) and not late:
            system.kill(tree)
            await self._until_gone(loop.time() + 0.2)
            late = loop.time() >= deadline
            if system.runaway(tree):
                await loop.run_in_executor(None, system.chase, tree, 0.2)
            await self._look()  # whoever was forked meanwhile
        if tree.alive:
            _log.error(
                "cannot end %s: not ours to signal, or stuck in the kernel", sorted(tree.alive)
            )

    async def _until_gone(self, deadline: float) -> None:
        # A grandchild's end is nobody's event: look again.
        while system.still_alive(self.tree) and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def _close(self) -> None:
        """The last step: the tree is gone (or beyond our reach), let go of what we hold."""
        system.release(self.tree)
        if self.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._exited(self._popen.wait(0.1))  # killed a moment ago
        if self._stdin is not None:
            self._stdin.abort()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:  # never connected
                pipe.close()
        if self.returncode is not None:
            self._popen.wait()  # only now: until here the unreaped child kept its number ours
        self._forget(self)
        if self._asked:
            self._report()

    # --- what happens to it

    def connect(self, on_stdout: _Sink, on_stderr: _Sink) -> "asyncio.Task[None]":
        """A task of its own, not to be cancelled: half a connected pipe is a descriptor closed
        twice."""
        self._connecting = self._loop.create_task(self._connect(on_stdout, on_stderr))
        return self._connecting

    async def _connect(self, on_stdout: _Sink, on_stderr: _Sink) -> None:
        loop, popen = self._loop, self._popen
        if popen.stdin is not None:
            pipe, popen.stdin = handed_over(popen.stdin, loop), None
            self._stdin, _ = await loop.connect_write_pipe(
                lambda: _Input(self._room, self._input_ended), pipe
            )
            self._stdin.set_write_buffer_limits(HIGH_WATER)
            self._input = Gathered(self._stdin)
        pipe, popen.stdout = handed_over(popen.stdout, loop), None
        output, reader = await loop.connect_read_pipe(
            lambda: _Output(on_stdout, self._output_ended), pipe
        )
        self._outputs.append(output)
        self._readers.append(reader)
        pipe, popen.stderr = handed_over(popen.stderr, loop), None
        output, reader = await loop.connect_read_pipe(
            lambda: _Output(on_stderr, self._output_ended), pipe
        )
        self._outputs.append(output)
        self._readers.append(reader)

    def watch(self) -> None:
        """From now on the exit is noticed."""
        if self.returncode is not None:
            return
        self._unwatch = system.watch(self._loop, self._popen, self._exited)

    def _exited(self, code: int) -> None:
        if self.returncode is not None:
            return
        self.returncode = code
        if self._unwatch is not None:
            self._unwatch()
        if not self.exited.done():
            self.exited.set_result(code)
        self._room.set()
        if self._begin_end().done():  # what it leaves behind goes too
            self._popen.wait()  # it was stuck, and outlived its own ending
        self._await_output()

    def _input_ended(self) -> None:
        self._stdin = self._input = None
        self._room.set()

    def _output_ended(self) -> None:
        self._open_outputs -= 1
        if self.returncode is not None:
            self._await_output()

    def _await_output(self) -> None:
        """Output first, then the exit; a pipe that a descendant holds is waited for only
        shortly."""
        if self._open_outputs == 0:
            self._report()
        elif self._late is None:
            self._look_later(0, round(2 * END_BOUND / LATE_OUTPUT))

    def _look_later(self, quiet: int, left: int) -> None:
        self._late = self._loop.call_later(LATE_OUTPUT / 2, self._await_quiet, quiet, left)

    def _await_quiet(self, quiet: int, left: int) -> None:
        """`quiet`: how often nothing had come since the last look. `left`: so many more looks at
        one that is never quiet; the clock would go on while this very process is held up and reads
        nothing."""
        looks = [
            reader.is_quiet() for reader in self._readers
        ]  # each is asked: the question resets it
        quiet = quiet + 1 if all(looks) else 0
        if quiet > 1 or not left:
            self._report()
        else:
            self._look_later(quiet, left - 1)

    def _report(self) -> None:
        if self._late is not None:
            self._late.cancel()
        for reader in self._readers:
            reader.tell_rest()
        for output in self._outputs:
            output.close()
        if self._on_exit is not None and self.returncode is not None:
            report, self._on_exit = self._on_exit, None
            report(self.returncode)


class _Input(asyncio.BaseProtocol):
    def __init__(self, room: asyncio.Event, on_end: Callable[[], None]) -> None:
        self._room, self._on_end = room, on_end

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()


class _Output(asyncio.Protocol):
    def __init__(self, on_data: _Sink, on_end: Callable[[], None]) -> None:
        self._on_data, self._on_end = on_data, on_end
        self._intake = Intake(on_data)
        self._heard = False

    def is_quiet(self) -> bool:
        """Whether nothing came since this was asked last, and nothing waits."""
        heard, self._heard = self._heard, False
        return not heard and not self._intake.waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._intake.read_from(cast(asyncio.ReadTransport, transport))

    def data_received(self, data: bytes) -> None:
        self._heard = True
        self._intake.take(data)

    def tell_rest(self) -> None:
        """Its last words, as far as they were read."""
        if rest := self._intake.let_go():
            self._on_data(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        try:
            self.tell_rest()
        finally:
            self._on_end()
