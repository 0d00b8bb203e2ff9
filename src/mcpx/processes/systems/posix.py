"""macOS, the BSDs, and a Linux whose /proc is not ours: who descends from a child of ours is found by asking `ps`.

Promise: a process is named only when it is certain to descend from the tree's root: it carries the root's mark in the
environment that `ps` shows, or sits in the root's process group, or its parent is already named, or an earlier survey
named it. A name is a pid with the second it was started in, looked at again before it is signalled.
No promise: one that left its group, lost its parents and gave up its environment between two looks is not found; nor
one whose environment the system hides (macOS does so for programs of its own) once it is a daemon. Where `ps` is
missing, or counts otherwise than we do, only the process group is ended.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mcpx.processes.systems.plain import (
    adopt_orphans,
    adopted,
    adopting,
    branding,
    chase,
    has_forked,
    put_aside,
    reap_strays,
    runaway,
)
from mcpx.processes.systems.tree import MARK, Popen, Tree

__all__ = ["adopt_orphans", "adopted", "adopting", "branding", "chase"]
__all__ += ["has_forked", "put_aside", "reap_strays", "runaway"]

NAME = "posix"
PATIENCE = 2.0
"""Seconds for `ps` to answer."""
_COLUMNS = "pid=,ppid=,pgid=,stat=,lstart=,command="
# How each says: everybody, uncut, with their environments.
_PS = {"darwin": ("-A", "-E", "-ww"), "linux": ("axeww",)}.get(sys.platform, ("-A", "-e", "-ww"))
_KEEPS_UNREAPED = hasattr(os, "waitid")
"""Else (macOS before Python 3.13) a child is reaped when its exit is noticed."""


@dataclass(frozen=True, slots=True)
class Row:
    parent: int
    group: int
    start: int
    """The digits of its date and time: all that is needed to tell it from others that had its number."""
    said: str
    """Its command line and its environment."""


def popen(argv: Sequence[str], **options: Any) -> Popen:
    return subprocess.Popen(argv, start_new_session=True, **options)


def undo(popen: Popen) -> None:
    with contextlib.suppress(OSError):
        os.killpg(popen.pid, signal.SIGKILL)
    popen.kill()


def tree(popen: Popen, token: str, brand: int) -> Tree:
    return Tree(popen.pid, 0, token.encode(), brand, {popen.pid: 0}, popen)


def watch(loop: asyncio.AbstractEventLoop, popen: Popen, on_exit: Callable[[int], None]) -> Callable[[], None]:
    """A thread that waits: the one way that every system has."""
    return wait_aside(loop, lambda: _exit_of(popen), on_exit)


def wait_aside(
    loop: asyncio.AbstractEventLoop, wait: Callable[[], int], on_exit: Callable[[int], None]
) -> Callable[[], None]:
    stopped = False

    def tell(code: int) -> None:
        if not stopped:
            on_exit(code)

    def run() -> None:
        code = wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
            loop.call_soon_threadsafe(tell, code)

    def stop() -> None:
        nonlocal stopped
        stopped = True

    threading.Thread(target=run, name="wait for a child", daemon=True).start()
    return stop


def _exit_of(popen: Popen) -> int:
    if _KEEPS_UNREAPED:
        try:
            status = os.waitid(os.P_PID, popen.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return 255 if popen.returncode is None else popen.returncode
        if status is not None:
            return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
    return popen.wait()


# --- who runs


def survey(trees: Sequence[Tree], passes: int = 4) -> list[dict[int, int]]:
    """Some 10 to 50 ms: one `ps`, two where anybody new is found, for a daemon in the making slips through one."""
    rows = table()
    if rows is None:
        return [{tree.pid: tree.start} if _runs(tree) else {} for tree in trees]
    found = [_members(tree, tree.alive, rows) for tree in trees]
    for _ in range(passes - 1):
        if all(now.keys() <= tree.alive.keys() for now, tree in zip(found, trees, strict=True)):
            break
        if (rows := table()) is None:
            break
        before, found = found, [_members(tree, now, rows) for tree, now in zip(trees, found, strict=True)]
        if [set(now) for now in found] == [set(now) for now in before]:
            break
    return found


def table() -> dict[int, Row] | None:
    """Everybody who runs; None when it cannot be had, or is not about the processes that we mean by their numbers."""
    rows = dict(_parsed(_ps(*_PS, "-o", _COLUMNS)))
    mine = rows.get(os.getpid())
    return rows if mine is not None and (mine.parent, mine.group) == (os.getppid(), os.getpgrp()) else None


def _ps(*arguments: str) -> str:
    program = shutil.which("ps", path="/bin:/usr/bin:/usr/local/bin")
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C", "PATH": os.defpath},
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.decode("utf-8", "replace")


def _parsed(text: str) -> Iterable[tuple[int, Row]]:
    for line in text.split("\n"):
        words = line.split(None, 9)  # five of them are a date: Tue Nov 17 23:29:05 2026
        if len(words) < 9 or not words[0].isdigit() or words[3][:1] in "ZX":
            continue
        yield int(words[0]), Row(int(words[1]), int(words[2]), _digits(words[4:9]), words[9] if words[9:] else "")


def _digits(date: Iterable[str]) -> int:
    return int("".join(letter for letter in "".join(date) if letter in "0123456789") or 0)


def _members(tree: Tree, known: dict[int, int], rows: dict[int, Row]) -> dict[int, int]:
    root = rows.get(tree.pid)
    if root is not None and not tree.start and not _is_reaped(tree):
        tree.start = root.start
    todo: list[int] = []
    if root is None or root.start == tree.start:  # else the number has been given to somebody else
        todo += [pid for pid, row in rows.items() if row.group == tree.pid]
        todo += [tree.pid]
    mark = f"{MARK}=".encode()
    for pid, row in rows.items():
        said = row.said.encode()
        if tree.token in said and mark in said and pid != os.getpid() and tree.token in marks(row.said):
            todo.append(pid)
    todo += [pid for pid, start in known.items() if pid in rows and start and rows[pid].start == start]
    children: dict[int, list[int]] = {}
    for pid, row in rows.items():
        children.setdefault(row.parent, []).append(pid)
    found: dict[int, int] = {}
    while todo:
        pid = todo.pop()
        if pid in found or pid not in rows:
            continue
        found[pid] = rows[pid].start
        todo += children.get(pid, ())
    return found


def marks(said: str) -> list[bytes]:
    """The marks that a process carries, as far as `ps` tells words from each other."""
    return [
        token
        for word in said.split()
        if word.startswith(f"{MARK}=")
        for token in word.partition("=")[2].encode().split(b",")
    ]


def _is_reaped(tree: Tree) -> bool:
    return tree.popen is not None and tree.popen.returncode is not None


def _runs(tree: Tree) -> bool:
    return not _is_reaped(tree) and not _has_exited(tree.pid)


def _has_exited(pid: int) -> bool:
    """Whether a child of ours has, and waits to be reaped."""
    if not _KEEPS_UNREAPED:
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False  # somebody else's


def still_alive(tree: Tree) -> bool:
    return any(_is_there(pid) for pid in tree.alive)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return not _has_exited(pid)


# --- its end


def ask(tree: Tree) -> None:
    _send(tree, signal.SIGTERM, signal.SIGCONT)  # a stopped process takes no SIGTERM


def kill(tree: Tree) -> None:
    _send(tree, signal.SIGKILL)


def release(tree: Tree) -> None:
    """Whoever is left in the group, while its number is certainly ours."""
    if _KEEPS_UNREAPED and not _is_reaped(tree):
        with contextlib.suppress(OSError):
            os.killpg(tree.pid, signal.SIGKILL)


def _send(tree: Tree, *signals: signal.Signals) -> None:
    named = [pid for pid, start in tree.alive.items() if start]
    now = dict(_parsed(_ps("-o", _COLUMNS, "-p", ",".join(map(str, named))))) if named else {}
    for pid, start in tree.alive.items():
        if start and (pid not in now or now[pid].start != start):
            continue  # gone, or another by now
        if not start and (pid != tree.pid or _is_reaped(tree)):
            continue
        for number in signals:
            with contextlib.suppress(OSError):
                if pid == tree.pid:
                    os.killpg(pid, number)
                else:
                    os.kill(pid, number)
