"""Script commands at work: one process for each call, owned as servers are (SRC-4, SEC-3; LIF-7).

Promised: the time that a call may take counts from its first moment, waiting included. However a
call ends (its result, a failure, too much output, the time, a cancel, a reload, the end of mcpx),
the whole tree of its process is ended, and its turn and its temporary folder are given back when
nothing of it is left.
"""

import asyncio
import contextlib
import errno
import functools
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from mcpx.base.aio import FairQueue, QueueFull
from mcpx.commands.scripts import arguments as given
from mcpx.commands.scripts.arguments import Template
from mcpx.commands.scripts.output import Reports, ended_by, failure_of, result_of
from mcpx.commands.work import Bench, CommandFailed, Progress, Resolved
from mcpx.model.call import Json
from mcpx.model.redaction import blotted, spellings
from mcpx.model.secret_rules import hide_secrets, learnable_secrets, map_texts
from mcpx.processes import process
from mcpx.processes.environment import find_program
from mcpx.processes.stderrlog import Allowance, StderrLog, redaction

if TYPE_CHECKING:
    from mcpx.commands.script import Script

GRACE = 0.0
"""Seconds between the decision to end a script and SIGTERM; its input has ended long ago."""
MOST_FILES = 4096
"""Descriptors it may have open."""
LINES_TOLD = 100
MAX_RUNNING = 32
"""Scripts of all commands that run at a time."""
MAX_WAITING = 100
"""Calls of one command that wait."""

_all_commands: "WeakKeyDictionary[asyncio.AbstractEventLoop, FairQueue]" = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Order:
    """One call as its process will get it."""

    line: list[str]
    env: dict[str, str]
    stdin: bytes


class Scripts:
    """Implements `work.Work`."""

    def __init__(self, script: "Script", bench: Bench) -> None:
        self._script, self._bench = script, bench
        self._args = [Template.parse(text) for text in script.args]
        self._env = {name: Template.parse(text) for name, text in script.env.items()}
        self._stdin = None if script.stdin is None else Template.parse(script.stdin)
        self._redact = redaction(script.env, script.args)
        self._allowance = Allowance()
        self._queue = FairQueue(script.concurrency, MAX_WAITING)
        self._children: set[process.Child] = set()
        self._closed = False

    async def run(self, arguments: Mapping[str, Any], progress: Progress | None) -> Json:
        order = self._order(arguments)
        script = self._script
        run: _Run | None = None
        try:
            async with asyncio.timeout(script.timeout):
                await self._enter()
                if self._closed:  # those who ran were ended: who waited for them must not be next
                    self._leave()
                    raise CommandFailed(
                        "was removed or changed while this call waited for its turn"
                    )
                run = _Run(
                    self._bench.name, script.max_output, self._redact, self._allowance, progress
                )
                code = await self._finished(order, run)
        except TimeoutError:
            if run is None:
                raise CommandFailed(
                    f"waited {script.timeout:g} s for its turn, in vain: {script.concurrency} run "
                    "at a time"
                ) from None
            raise run.failure(
                f"took longer than {script.timeout:g} s ('timeout') and was ended"
            ) from None
        if code is None:
            raise run.failure(
                f"printed more than {script.max_output:,} bytes ('max_output') and was ended"
            )
        if code != 0:
            raise run.failure(ended_by(code))
        return await result_of(run.printed, script.result, self._redact)

    async def _enter(self) -> None:
        """Wait for a place among the calls of this command, and one among those of all commands."""
        try:
            await self._queue.enter()
        except QueueFull:
            running, waiting = self._queue.running, self._queue.waiting
            raise CommandFailed(
                f"{running} run and {waiting} wait already; try again later"
            ) from None
        try:
            await _queue_of_all().enter(self)
        except BaseException:
            self._queue.leave()
            raise

    def _leave(self) -> None:
        _queue_of_all().leave()
        self._queue.leave()

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(child.end() for child in tuple(self._children)))

    def resolved(self, arguments: Mapping[str, Any], mask: str) -> Resolved:
        order = self._order(arguments)
        script = self._script
        known = spellings(
            learnable_secrets({"env": script.env, "args": script.args, "stdin": script.stdin or ""})
        )

        def masked(value: Any, *path: str) -> Any:
            return map_texts(
                hide_secrets(value, path, mask), lambda text: blotted(text, known, mask)
            )

        return Resolved(
            argv=tuple(masked(order.line, "args")),
            cwd=script.cwd,
            env=masked({name: order.env[name] for name in self._env if name in order.env}, "env"),
            body=masked(order.stdin.decode("utf-8", "replace"), "stdin")
            if self._stdin is not None
            else None,
        )

    def _order(self, arguments: Mapping[str, Any]) -> Order:
        script, values = self._script, given.with_all(arguments)
        script_args = given.command_line(self._args, values, dashes=script.allow_dashes)
        env = process.child_environment(
            self._bench.environ, given.variables(self._env, values), False
        )
        real = _allowed(script.path, self._bench.script_paths)
        line = [*_program(script.interpreter, real, env, script.cwd), *script_args]
        given.require_room(line, env)
        text = "" if self._stdin is None else self._stdin.fill(values)
        return Order(line, env, text.encode("utf-8", "surrogatepass"))

    async def _finished(self, order: Order, run: "_Run") -> int | None:
        """The exit code; None for one that printed too much. Gives back the turn that was taken."""
        left = contextlib.ExitStack()  # what is done when nothing of it is left
        left.callback(self._leave)
        try:
            child = await self._started(order, run, left)
        except asyncio.CancelledError:
            raise  # only a child can be waited for, and it clears up behind itself
        except (OSError, ValueError) as error:
            left.close()
            raise _cannot_start(order.line[0], error) from None
        except BaseException:  # a thread that cannot be started, say
            left.close()
            raise
        try:
            if order.stdin:
                child.write(order.stdin)
            child.close_input()
            return await run.over
        finally:
            run.stop()
            if child.returncode is None:
                child.abandon()

    async def _started(
        self, order: Order, run: "_Run", left: contextlib.ExitStack
    ) -> process.Child:
        script, line, env = self._script, order.line, order.env
        confining = contextlib.ExitStack()
        give_up: Callable[[], None] | None = None
        with confining:
            if script.writable is not None:
                from mcpx.commands.scripts.confine import (
                    confined,
                )  # only a script that is confined pays for it

                folder = tempfile.mkdtemp(prefix="mcpx-script-")
                left.callback(_remove, folder)
                env = {**env, "TMPDIR": folder}
                within = (*script.writable, folder)
                how = confining.enter_context(confined(within, script.cwd, self._bench.environ))
                line, give_up = [*how.prefix, *line], how.give_up
            ours: list[process.Child] = []

            def gone() -> None:
                self._children.difference_update(ours)
                left.close()

            spec = process.Spawn(
                command=line[0],
                args=tuple(line[1:]),
                env=env,
                cwd=script.cwd,
                input=bool(order.stdin),
                grace=GRACE,
                limits=_limits(script),
                confine=give_up,
            )
            child = await process.spawn(
                spec,
                on_stdout=run.read,
                on_stderr=run.reports.take,
                on_exit=run.exited,
                on_gone=gone,
            )
        ours.append(child)
        self._children.add(child)
        if self._closed:
            child.abandon()
            raise CommandFailed("was removed or changed while this call began")
        return child


class _Run:
    """What one process says until it is over."""

    def __init__(
        self,
        name: str,
        most: int,
        redact: Callable[[str], str],
        allowance: Allowance,
        progress: Progress | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[int | None] = loop.create_future()
        """Its exit code; None when it printed too much."""
        self._stderr = StderrLog(name, redact, loop.call_later, allowance)
        self.reports = Reports(self._stderr.feed, progress)
        self._redact = redact
        self._most, self._size = most, 0
        self._pieces: list[bytes] = []

    @property
    def printed(self) -> bytes:
        return b"".join(self._pieces)

    def read(self, data: bytes) -> None:
        if self._size > self._most:
            return
        self._size += len(data)
        self._pieces.append(data)
        if self._size > self._most and not self.over.done():
            self.over.set_result(None)

    def exited(self, code: int) -> None:
        if not self.over.done():
            self.reports.end()
            self.over.set_result(code)

    def stop(self) -> None:
        self.reports.stop()
        self._stderr.close()

    def failure(self, how: str) -> CommandFailed:
        return failure_of(how, self._stderr.tail(LINES_TOLD), self.printed, self._redact)


def _remove(folder: str) -> None:
    """Beside everything else: a script may have left much."""
    remove = functools.partial(removed, folder)
    try:
        asyncio.get_running_loop().run_in_executor(None, remove)
    except RuntimeError:  # the loop is closing and has no threads left
        remove()


def removed(folder: str) -> None:
    """Also folders in it that its script had closed: caches of packages are."""
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        return
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)
    for here, folders, _ in os.walk(folder):  # from above: each is opened before it is looked into
        for path in (os.path.join(here, name) for name in folders):
            with contextlib.suppress(OSError):
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _limits_of(timeout: float, file: int, memory: int) -> Mapping[int, int]:
    try:
        import resource
    except ImportError:  # Windows
        return {}
    seconds = (
        int(timeout * (os.cpu_count() or 1)) + 2
    )  # never before the time is up, however many threads it has
    return {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: file,
        # not the address space, of which node reserves more than there is
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_NOFILE: MOST_FILES,
    }


def _limits(script: "Script") -> Mapping[int, int]:
    return _limits_of(script.timeout, script.max_file, script.max_memory)


_ENDS = ": its lines end as on Windows (CR LF), and the CR is taken for a part of the name"


def _is_of_windows(program: str) -> bool:
    try:
        with open(program, "rb") as file:
            return file.readline(1024).endswith(b"\r\n")
    except OSError:
        return False


def _cannot_start(program: str, error: Exception) -> CommandFailed:
    if not isinstance(error, OSError):  # a text that the system's encoding does not have
        return CommandFailed(
            f"cannot be started: an argument cannot be given to a program: {type(error).__name__}"
        )
    match error.errno:
        case errno.E2BIG:
            why = "the arguments are too long for a command line"
        case errno.ENOEXEC:
            why = f"{program} is no program and has no '#!' line: name its 'interpreter'"
        case errno.ENOENT if os.path.exists(program):
            why = f"what the first line of {program} names is not there"
            why += _ENDS if _is_of_windows(program) else ": name its 'interpreter'"
        case _:
            why = f"{error.strerror or error}: {error.filename or program}"
    return CommandFailed(f"cannot be started: {why}")


def _queue_of_all() -> FairQueue:
    loop = asyncio.get_running_loop()
    if loop not in _all_commands:
        _all_commands[loop] = FairQueue(MAX_RUNNING, float("inf"))
    return _all_commands[loop]


# Which scripts may run, and by what program (SEC-3). A script is a regular file below one of the
# allowed folders, with every link resolved at each run. The file that was found is the one that is
# run, even if the link changes afterwards.

_PYTHON_NAMES = ("python3", "python")
"""Interpreters that the Python of mcpx replaces if none is on PATH."""


def _allowed(path: str, folders: Sequence[str]) -> str:
    """The script itself, behind all links."""
    try:
        real = os.path.realpath(path, strict=True)
        kind = os.stat(real).st_mode
    except OSError as error:
        raise CommandFailed(f"the script cannot be used: {error.strerror}: {path}") from None
    if not any(
        _below(real, os.path.realpath(folder)) for folder in folders if folder
    ):  # "" is where mcpx was started
        behind = "" if real == os.path.normpath(path) else f" (in truth {real})"
        raise CommandFailed(
            f"the script {path}{behind} is outside of the folders that scripts may stand in; "
            "'global.script_paths' in the config says which"
        )
    if not stat.S_ISREG(kind):
        raise CommandFailed(f"the script {path} is not a file")
    return real


def _below(path: str, folder: str) -> bool:
    return path.startswith(os.path.join(folder, ""))


def _program(interpreter: str | None, script: str, env: Mapping[str, str], cwd: str) -> list[str]:
    """The beginning of the command line: the script, behind the program that runs it if there is
    one."""
    if not os.path.isdir(cwd):
        raise CommandFailed(f"its working folder is not there: {cwd}")
    if interpreter is None:
        if not os.access(script, os.X_OK):
            raise CommandFailed(
                f"the script {script} is not executable: chmod +x it, or name its 'interpreter'"
            )
        return [script]
    try:
        return [find_program(interpreter, env, cwd), script]
    except PermissionError:
        raise CommandFailed(f"{interpreter} cannot be run: permission denied") from None
    except OSError:
        if interpreter in _PYTHON_NAMES and sys.executable:
            return [sys.executable, script]
    hint = "; 'interpreter' is one program, without options" if " " in interpreter else ""
    if os.path.dirname(interpreter):
        where = "" if os.path.isabs(interpreter) else f" in {cwd}"
        raise CommandFailed(f"the interpreter {interpreter} is not there{where}{hint}")
    raise CommandFailed(
        f"{interpreter} is not found on PATH; install it or give its full path{hint}"
    )
