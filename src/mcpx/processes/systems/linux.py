"""Linux: who descends from a child of ours is found in /proc, named beyond doubt, signalled safely.

Promise: `survey` names a process only when it is certain to descend from the tree's root: it
carries the root's mark in its environment or the root's brand, or sits in the root's session, or
its parent is already named, or an earlier survey named it. A name is a pid with its start time, and
`send` signals through a pidfd whose start time was checked, so a reused pid is never hit.

The brand is the soft limit for the time of a realtime process (RLIMIT_RTTIME), a number of
thousands of years, without other effect: a daemon that forks twice, leaves its session and runs
with an empty environment keeps it. A process that rid itself of that too falls to us when its
parents are gone (`adopt_orphans`), and is `adopted`. No promise: that one which runs as another
user can be signalled.
"""

import asyncio
import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple, cast

from mcpx.processes.systems.tree import MARK, Popen, Tree
from mcpx.wire.descriptors import Reserve, ran_out

NAME: str = "linux"
LOOK: str = ""


def _is_ours() -> bool:
    """Not where /proc counts otherwise than we do: in a namespace of processes that kept the mount
    of the outer one its numbers are those of strangers."""
    try:
        return sys.platform.startswith("linux") and os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


AVAILABLE = _is_ours()

_KEY = MARK.encode() + b"="
_TIME = b"Max realtime timeout"
_LOAD = "/proc/loadavg"
"""Its last word is the last pid given out."""
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER"""
_adopting = False

RESERVE = Reserve(4)
"""What is ours must be found and ended also when no file more can be opened."""


def popen(argv: Sequence[str], **options: Any) -> Popen:
    return cast(Popen, subprocess.Popen(argv, start_new_session=True, **options))


def undo(popen: Popen) -> None:
    """With what it may have started in that moment, if that stayed in its session."""
    with contextlib.suppress(OSError):
        os.killpg(popen.pid, signal.SIGKILL)
    popen.kill()


def tree(popen: Popen, token: str, brand: int) -> Tree:
    stat = read_stat(popen.pid)
    start = 0 if stat is None else stat.start
    return Tree(popen.pid, start, token.encode(), brand, {popen.pid: start})


def watch(
    loop: asyncio.AbstractEventLoop, popen: Popen, on_exit: Callable[[int], None]
) -> Callable[[], None]:
    """Through a pidfd; the child is not reaped by it."""
    pid, fd = popen.pid, -1
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal timer
        try:
            status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            code = 255  # reaped behind our back: this process was started with SIGCHLD ignored
        else:
            if status is None:
                if fd < 0:
                    timer = loop.call_later(0.05, look)
                return
            code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        stop()
        on_exit(code)

    def stop() -> None:
        nonlocal fd
        if timer is not None:
            timer.cancel()
        if fd >= 0:
            loop.remove_reader(fd)
            os.close(fd)
            fd = -1

    try:
        fd = os.pidfd_open(pid)
        loop.add_reader(fd, look)
    except (OSError, AttributeError):  # an old kernel, or out of descriptors
        timer = loop.call_later(0.05, look)
    return stop


class Stat(NamedTuple):
    state: bytes
    ppid: int
    session: int
    start: int
    """In clock ticks since boot; with the pid it names a process for good."""

    @property
    def alive(self) -> bool:
        return self.state not in b"ZXx"


def read_stat(pid: int) -> Stat | None:
    """None when there is no such process."""
    text = _read(f"/proc/{pid}/stat")
    # The name in parentheses may hold anything, parentheses and newlines too: count from the last
    # one.
    rest = text[text.rfind(b")") + 2 :].split(b" ", 20)
    if len(rest) < 20:
        return None
    return Stat(rest[0], int(rest[1]), int(rest[3]), int(rest[19]))


def tokens(pid: int) -> list[bytes]:
    """The marks a process carries."""
    return _tokens(_read(f"/proc/{pid}/environ"))


def _tokens(environ: bytes) -> list[bytes]:
    text = b"\0" + environ
    at = text.find(b"\0" + _KEY)
    if at < 0:
        return []
    return text[at + 1 + len(_KEY) :].partition(b"\0")[0].split(b",")


@contextlib.contextmanager
def branding(brand: int) -> Generator[int]:
    """In it, whoever is started gets the brand; nothing may be awaited in it. Gives 0 where that
    cannot be: when a gateway above us has branded us, which must stay."""
    import resource

    which = resource.RLIMIT_RTTIME
    soft, hard = resource.getrlimit(which)
    if soft != resource.RLIM_INFINITY:
        yield 0
        return
    try:
        resource.setrlimit(which, (brand, hard))
    except (OSError, ValueError):  # a sandbox that does not let us
        brand = 0
    try:
        yield brand
    finally:
        resource.setrlimit(which, (soft, hard))


def read_brand(pid: int) -> int:
    """The brand a process carries, or another number; 0 for none."""
    limits = _read(f"/proc/{pid}/limits")
    at = limits.find(_TIME)
    soft = limits[at + len(_TIME) :].split(None, 1)[:1] if at >= 0 else []
    return int(soft[0]) if soft and soft[0].isdigit() else 0


def adopt_orphans() -> None:
    """From now on, what our children leave behind becomes a child of ours, not of init. Not where
    something was a child of this process from the beginning (`daemon & exec mcpx`): its own could
    not be told from a server's."""
    global _adopting
    if _children():
        return
    try:
        import ctypes

        _adopting = ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):  # a Python or a libc without it
        pass


def adopting() -> bool:
    """Whether orphans fall to us; to pid 1 they always do."""
    return _adopting or os.getpid() == 1


def adopted(owned: set[int]) -> dict[int, int]:
    """What runs as a child of ours that we did not start: pid -> start. What we start ourselves is
    in `owned`, or stays in our session, which a descendant of a server never is in."""
    if not _adopting:
        return {}
    own = os.getsid(0)
    seen = ((pid, read_stat(pid)) for pid in _children() if pid not in owned)
    return {
        pid: stat.start
        for pid, stat in seen
        if stat is not None and stat.alive and stat.session != own
    }


def _children() -> list[int]:
    me = os.getpid()
    try:
        tasks = os.listdir("/proc/self/task")
        with open(f"/proc/self/task/{me}/children", "rb"):
            pass
    except OSError:  # a kernel that does not tell
        return [pid for pid in _pids() if (stat := read_stat(pid)) is not None and stat.ppid == me]
    return [int(pid) for task in tasks for pid in _read(f"/proc/self/task/{task}/children").split()]


def survey(trees: Sequence[Tree], passes: int = 4) -> list[dict[int, int]]:
    """What is running of each tree now. Blocking: some 10 to 30 µs per process of the machine and
    pass.

    A daemon in the making can slip through one pass: the parent is gone before we read it, the
    child was not yet there when we listed. So a pass counts only if nobody forked meanwhile; on a
    busy machine there are several."""
    known = [tree.alive for tree in trees]
    for _ in range(passes if trees else 0):
        before = _read(_LOAD).split()[-1:]
        known = _pass(trees, known)
        if _read(_LOAD).split()[-1:] == before:
            break
    return known


def _pass(trees: Sequence[Tree], known: Sequence[dict[int, int]]) -> list[dict[int, int]]:
    eldest = min(
        tree.start for tree in trees
    )  # nobody descends from someone younger: most need no second look
    seen: dict[int, Stat] = {}
    children: dict[int, list[int]] = {}
    marked: dict[bytes | int, list[int]] = {}
    sessions: dict[int, list[int]] = {}
    blank: list[int] = []
    brands = {tree.brand for tree in trees} - {0}
    for pid in _pids():
        stat = read_stat(pid)
        if stat is None or stat.start < eldest or not stat.alive:
            continue
        seen[pid] = stat
        children.setdefault(stat.ppid, []).append(pid)
        sessions.setdefault(stat.session, []).append(pid)
        environ = _read(f"/proc/{pid}/environ")
        if not environ and stat.session:  # the kernel's own threads have no session
            blank.append(pid)
        found = _tokens(environ)
        for token in found:
            marked.setdefault(token, []).append(pid)
        if brands and not found and stat.session and (brand := read_brand(pid)) in brands:
            marked.setdefault(brand, []).append(pid)
    if blank:
        time.sleep(0.002)  # in the midst of an exec there is no environment for a moment
        for pid in blank:
            for token in tokens(pid):
                marked.setdefault(token, []).append(pid)
    return [
        _members(*one, seen, children, marked, sessions) for one in zip(trees, known, strict=True)
    ]


def _members(
    tree: Tree,
    known: dict[int, int],
    seen: dict[int, Stat],
    children: dict[int, list[int]],
    marked: dict[bytes | int, list[int]],
    sessions: dict[int, list[int]],
) -> dict[int, int]:
    found: dict[int, int] = {}
    todo = [*marked.get(tree.token, ()), *marked.get(tree.brand, ())]
    if (
        tree.pid not in seen or seen[tree.pid].start == tree.start
    ):  # else it was reaped behind our back
        todo += [tree.pid, *sessions.get(tree.pid, ())]
    todo += [pid for pid, start in known.items() if pid in seen and seen[pid].start == start]
    while todo:
        pid = todo.pop()
        if pid in found or pid not in seen:
            continue
        found[pid] = seen[pid].start
        todo += children.get(pid, ())
    return found


def has_forked(pid: int) -> bool:
    """Whether a process may have started another, itself or through others: not if its number is
    the last that the kernel gave out. Numbers only go on, also of those that a namespace, a thread
    or a failed fork took; when they wrap round, one that is in use, as an unreaped one is, is
    passed over."""
    try:
        return not _tells_last() or _read(_LOAD).split()[-1:] != [b"%d" % pid]
    except OSError:  # it cannot be looked at now
        return True


def runaway(tree: Tree) -> bool:
    return bool(head(tree))


def head(tree: Tree) -> dict[int, int]:
    """The process that was started last, if it is of this tree: of a chain in which each forks and
    ends the only one that matters, and no survey is quick enough for it."""
    try:
        last = _read(_LOAD).split()[-1:] if _tells_last() else []
        pid = int(last[0]) if last and last[0].isdigit() else 0
        stat = read_stat(pid) if pid and pid != tree.pid else None
        if stat is None or not stat.alive or stat.start < tree.start:
            return {}
        ours = tree.token in tokens(pid) or (tree.brand and read_brand(pid) == tree.brand)
    except OSError:  # it cannot be looked at now
        return {}
    return {pid: stat.start} if ours else {}


def chase(tree: Tree, seconds: float) -> None:
    """Kill such a chain: sooner or later its head is hit between two forks. Blocking."""
    end = time.monotonic() + seconds
    missed = 0
    while time.monotonic() < end and missed < 20:
        found = head(tree)
        send(found, signal.SIGKILL)
        missed = 0 if found else missed + 1


@functools.cache
def _tells_last() -> bool:
    """Whether the kernel itself speaks there. What containers put over it (lxcfs) says it seconds
    late."""
    try:
        return os.stat(_LOAD).st_dev == os.stat("/proc/self/stat").st_dev
    except OSError:
        return False


def still_alive(tree: Tree) -> bool:
    return bool(running(tree.alive))


def interrupt(tree: Tree) -> None:
    send(tree.alive, signal.SIGINT)


def ask(tree: Tree) -> None:
    send(tree.alive, signal.SIGTERM, signal.SIGCONT)  # a stopped process takes no SIGTERM


def kill(tree: Tree) -> None:
    send(tree.alive, signal.SIGKILL)


def release(tree: Tree) -> None:
    del tree  # it is held by nothing but the names of its processes


def put_aside() -> None:
    RESERVE.fill()


def running(found: dict[int, int]) -> dict[int, int]:
    """Those of `found` that run yet; cheap, for waiting."""
    left: dict[int, int] = {}
    for pid, start in found.items():
        try:
            stat = read_stat(pid)
        except OSError:  # it cannot be looked at now
            left[pid] = start
            continue
        if stat is not None and stat.alive and stat.start == start:
            left[pid] = start
    return left


def send(found: dict[int, int], *signals: signal.Signals) -> None:
    """Signal exactly these processes. Whoever is gone, or not ours to signal, or cannot be looked
    at now, is passed over."""
    for pid, start in found.items():
        for number in signals:
            try:
                _send(pid, start, number)
            except OSError:
                break


def reap_strays(owned: set[int], before: set[int]) -> set[int]:
    """For a process that orphans fall to: reap the exited ones that nobody here waits for. One is
    reaped at the second call that sees it, so that whoever started it as a child has had time to.
    Returns the candidates, for the next call."""
    try:
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return set()
    except ChildProcessError:
        return set()
    strays: set[int] = set()
    for pid in _children():
        stat = read_stat(pid)
        if stat is None or stat.alive or pid in owned:
            continue
        if pid in before:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        else:
            strays.add(pid)
    return strays


def _send(pid: int, start: int, number: signal.Signals) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (
        OSError
    ):  # an old kernel, or out of descriptors: the check and the kill are then a few µs apart
        fd = -1
    try:
        stat = read_stat(pid)
        if stat is None or stat.start != start:
            return
        if fd >= 0:
            signal.pidfd_send_signal(fd, number)
        else:
            os.kill(pid, number)
    finally:
        if fd >= 0:
            os.close(fd)


def _pids() -> Iterator[int]:
    own = os.getpid()
    for name in RESERVE.use(lambda: os.listdir("/proc")):
        if name.isdigit() and (pid := int(name)) != own:
            yield pid


def _read(path: str) -> bytes:
    """A whole file of /proc; empty when it is gone or not ours to read. Raises an OSError only when
    no file can be opened at all, which must not be taken for that."""
    try:
        fd = RESERVE.use(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if ran_out(error):
            raise
        return b""
    try:
        data = os.read(fd, 65536)
        if len(data) < 4096:  # shorter than any page boundary the kernel might stop at
            return data
        parts = [data]
        while data := os.read(fd, 65536):
            parts.append(data)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)
