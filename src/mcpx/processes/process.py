"""Child processes: started with pipes, owned as a whole tree, ended as a whole tree (LIF-7).

Promise: a child runs in a session of its own. It and every descendant that the system's file
(`systems`) can name are ended when `Child.end` is called, when the child exits by itself, and (by
the `keeper`) when mcpx dies in whatever way; within three seconds, also those that left the
session, became daemons or ignore SIGTERM. A program that downloads itself (`Spawn.downloads`) has
eleven seconds. Nothing else is ever signalled. No promise: that outside Linux one is found which
left its session, lost its parents and gave up its environment between two looks.

Why not `loop.subprocess_exec`: uvloop gives children sockets for pipes (`echo >/dev/stderr` fails
in their scripts) and leaks descriptors into them; asyncio on 3.11 keeps a thread per child; and
both reap a child at once, while we need it unreaped (see `child`). PR_SET_CHILD_SUBREAPER is the
last resort only: adoption tells nothing about whose child it was, so what is found by nothing else
is ended when all is (`end_all`).
"""

import asyncio
import contextlib
import errno
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from mcpx.processes.child import Child
from mcpx.processes.environment import child_environment, find_program
from mcpx.processes.keeper import Keeper
from mcpx.processes.systems import system
from mcpx.processes.systems.tree import BRANDS, MARK, Tree, brand_of
from mcpx.wire import descriptors

_log = logging.getLogger("mcpx.process")

__all__ = ["Child", "Spawn", "adopt_orphans", "child_environment", "end_all", "let_go", "spawn"]

CENSUS = 2.0
"""Seconds between looks at who descends from whom, while there is traffic. What was named in time
stays ours when its parent crashes, though it left the session and overwrote its environment:
browsers do both."""

ORPHANS = 0.5
"""Seconds for orphans to go when asked, and when killed."""


@dataclass(frozen=True, slots=True)
class Spawn:
    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    """All of it; see `child_environment`."""
    cwd: str | None
    input: bool = True
    """Whether it has a standard input to write to; else it finds an empty one."""
    grace: float | None = None
    """Seconds for a clean exit after the end of its input, when it is to end; None: what servers
    get."""
    downloads: bool = False
    """Whether the program may have to download itself: it gets SIGINT first while
    `Child.is_downloading`, and more time before SIGKILL."""
    limits: Mapping[int, int] = field(default_factory=dict[int, int])
    """Resource limits by number (`resource.RLIMIT_…`); see `limits`."""
    confine: Callable[[], None] | None = None
    """Called in a thread that does nothing but start the child: what the thread gives up, the child
    does not have. What it raises, `spawn` raises."""


async def spawn(
    spec: Spawn,
    *,
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
    on_exit: Callable[[int], None],
    on_gone: Callable[[], None] | None = None,
) -> Child:
    """Start a child. Raises an OSError for a command or directory that is not there or not usable.

    `on_exit` is called once, never before `spawn` has returned, and after all output; output may
    come earlier. `on_gone` is called once, when nothing of it and its descendants is left, also of
    one that was not waited for (a cancel)."""
    return await _brood().start(spec, on_stdout, on_stderr, on_exit, on_gone)


def adopt_orphans() -> None:
    """From now on, what our children leave behind becomes a child of ours, where the system can do
    so."""
    system.adopt_orphans()


async def end_all() -> None:
    """End the children of this event loop concurrently.

    The keeper process ends too, unless another loop has children. A later `spawn` starts another
    keeper.
    """
    brood = _brood()
    while brood.children:
        ends = (child.end() for child in tuple(brood.children))
        for problem in await asyncio.gather(*ends, return_exceptions=True):
            if problem is not None:
                _log.error("an ending failed: %r", problem)
    await brood.close()


async def let_go() -> None:
    """End the keeper if no child of this event loop is left: other gateways in the process may have
    theirs."""
    brood = _brood()
    if brood.children:
        return
    await brood.close()
    if brood.children:  # Started while the keeper ended.
        brood.keep()


class _Brood:
    """The children of one event loop, with their marks and their shared surveys.

    All loops of the process share one keeper process.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.children: set[Child] = set()
        self._next: asyncio.Task[None] | None = None
        self._current: asyncio.Task[None] | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._strays: set[int] = set()

    async def start(
        self,
        spec: Spawn,
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
        on_exit: Callable[[int], None],
        on_gone: Callable[[], None] | None = None,
    ) -> Child:
        number = next(_NUMBERS)
        token = f"{RUN}.{number:08x}"
        above = os.environ.get(MARK)  # a gateway behind a gateway: both must find what is theirs
        env = {**spec.env, MARK: f"{above},{token}" if above else token}
        program = find_program(spec.command, env, spec.cwd)
        if any("\0" in text for text in (*spec.args, *env, *env.values())) or any(
            "=" in name or not name for name in env
        ):
            raise OSError(
                errno.EINVAL, "NUL in an argument or variable, or a bad variable name", spec.command
            )
        _KEEPER.start()  # before the child: from its first moment on it is looked after
        with _start_lock, system.branding(_BRAND * BRANDS + number % BRANDS) as brand:
            popen = _popen([program, *spec.args], env, spec)
        try:
            child = Child(
                popen,
                token,
                brand,
                grace=spec.grace,
                downloads=spec.downloads,
                on_exit=on_exit,
                look=self.look,
                forget=partial(self._forget, on_gone),
            )
        except BaseException:  # no descriptor was left to look at it: nobody would own it
            _undo(popen)
            raise
        self.children.add(child)
        self._tell()
        try:
            await asyncio.shield(child.connect(on_stdout, on_stderr))
        except BaseException:
            child.abandon()
            raise
        finally:
            child.watch()
            if self._tick is None:
                self._tick = self.loop.call_later(CENSUS, self._census)
        return child

    def keep(self) -> None:
        _KEEPER.start()
        self._tell()
        if self._tick is None:
            self._tick = self.loop.call_later(CENSUS, self._census)

    async def look(self) -> None:
        """Bring every tree up to date, by a survey that begins after this call. Who asks at the
        same time shares it; it runs in a thread, for on a large machine it takes some
        milliseconds."""
        if self._next is None:
            self._next = self.loop.create_task(self._look(self._current))
        await asyncio.shield(self._next)

    async def _look(self, before: "asyncio.Task[None] | None") -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._current, self._next = self._next, None
        await self._survey(4)

    async def _survey(self, passes: int) -> None:
        trees = [child.tree for child in self.children]
        try:
            try:
                found = await self.loop.run_in_executor(None, system.survey, trees, passes)
            except RuntimeError:  # the loop is closing and has no threads left
                found = system.survey(trees, passes)
        except OSError as error:
            _log.warning("cannot look who is running: %s; what was known counts", error.strerror)
            found = [tree.alive for tree in trees]
        for tree, alive in zip(trees, found, strict=True):
            tree.alive = alive
        self._tell()

    def _tell(self) -> None:
        named = [name for child in _all_children() for name in child.tree.alive.items()]
        with contextlib.suppress(OSError):
            named += system.adopted(self._owned).items()
        _KEEPER.tell(set(named))
        system.put_aside()

    @property
    def _owned(self) -> set[int]:
        """Child processes that this process started itself."""
        return {child.pid for child in _all_children()} | {_KEEPER.pid or 0}

    def _forget(self, on_gone: Callable[[], None] | None, child: Child) -> None:
        self.children.discard(child)
        self._tell()
        if on_gone is not None:
            on_gone()

    def _census(self) -> None:
        self._tick = None
        idle = self._next is None and (self._current is None or self._current.done())
        if idle and any(child.busy for child in self.children):
            for child in self.children:
                child.busy = False
            self._current = self.loop.create_task(self._survey(1))
        if system.adopting():
            with contextlib.suppress(OSError):
                self._strays = system.reap_strays(self._owned, self._strays)
        if self.children or self._strays:
            self._tick = self.loop.call_later(CENSUS, self._census)

    async def end_orphans(self) -> None:
        """What our children left behind and nothing else names."""
        for kill in (False, True):
            try:
                orphans = Tree(0, 0, b"", alive=system.adopted(self._owned))
            except OSError:
                return  # the keeper was told of them
            (system.kill if kill else system.ask)(orphans)
            deadline = self.loop.time() + ORPHANS
            while (  # noqa: ASYNC110
                orphans.alive and system.still_alive(orphans) and self.loop.time() < deadline
            ):
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        if self._current is not None and not self._current.done():
            await asyncio.wait([self._current])
        await self.end_orphans()
        if not _all_children():
            await _KEEPER.close()
            if _all_children():  # Another loop started a child during the close.
                _KEEPER.start()
                self._tell()


RUN = os.urandom(16).hex()
"""What marks the processes of this run (see `systems.tree.MARK`)."""
_BRAND = brand_of(RUN)
_NUMBERS = count(1)
_KEEPER = Keeper(RUN)
_broods: dict[asyncio.AbstractEventLoop, _Brood] = {}
"""By event loop: a process may run several, one after the other or in threads."""
_broods_lock = threading.Lock()
_start_lock = threading.Lock()
"""Starting a child changes resource limits of the whole process for a moment."""


def _brood() -> _Brood:
    """The children of the running loop."""
    loop = asyncio.get_running_loop()
    with _broods_lock:
        brood = _broods.get(loop)
        if brood is None:
            for closed in [each for each in _broods if each.is_closed()]:
                del _broods[closed]
            brood = _broods[loop] = _Brood()
        return brood


def _all_children() -> list[Child]:
    """The children of all loops that still run."""
    with _broods_lock:
        running = [brood for brood in _broods.values() if not brood.loop.is_closed()]
    return [child for brood in running for child in tuple(brood.children)]


def _popen(argv: list[str], env: Mapping[str, str], spec: Spawn) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE

    def start() -> "subprocess.Popen[bytes]":
        given = pipe if spec.input else subprocess.DEVNULL
        return system.popen(
            argv, stdin=given, stdout=pipe, stderr=pipe, env=env, cwd=spec.cwd, bufsize=0
        )

    with descriptors.as_found():
        child = start() if spec.confine is None else _aside(spec.confine, start)
    try:
        descriptors.give_back(child.pid)
        _limit_resources(child.pid, spec.limits)
    except BaseException:  # without its limits it must not run
        _undo(child)
        raise
    return child


def _undo(popen: "subprocess.Popen[bytes]") -> None:
    """A start, a moment later."""
    system.undo(popen)
    popen.wait()
    for pipe in (popen.stdin, popen.stdout, popen.stderr):
        if pipe is not None:
            pipe.close()


def _aside(
    confine: Callable[[], None], start: "Callable[[], subprocess.Popen[bytes]]"
) -> "subprocess.Popen[bytes]":
    """Start in a thread that has confined itself, and ends with that."""
    outcome: list[subprocess.Popen[bytes] | BaseException] = []

    def both() -> None:
        try:
            confine()
            outcome.append(start())
        except BaseException as error:  # noqa: BLE001 - raised below
            outcome.append(error)

    thread = threading.Thread(target=both, name="start confined")
    thread.start()
    thread.join()  # nothing may be awaited here, and starting takes no longer in another thread
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _limit_resources(pid: int, limits: Mapping[int, int]) -> None:
    """Lower these limits (`resource.RLIMIT_…`) of a child, soft and hard.

    Linux only. `preexec_fn` would fork all of our memory, and is unsafe beside threads. Instead,
    the limits apply some ten microseconds after the start, while the program is being loaded. They
    do not apply to a program that runs as another user.
    """
    if not limits:
        return
    import resource

    prlimit = getattr(resource, "prlimit", None)
    if prlimit is None:
        return
    none = resource.RLIM_INFINITY
    for which, most in limits.items():
        try:
            soft, hard = prlimit(pid, which)
            hard = most if hard == none else min(most, hard)
            prlimit(pid, which, (hard if soft == none else min(soft, hard), hard))
        except ProcessLookupError:
            return
        except (OSError, ValueError) as error:
            _log.debug("no limit %d for %d: %s", which, pid, error)
