"""macOS, the BSDs, and a Linux whose /proc is not ours: who descends from a child of ours is found
by asking `ps`.

Promise: a process is named only when it is certain to descend from the tree's root: it carries the
root's mark in the environment that `ps` shows, or sits in the root's process group, or its parent
is already named, or an earlier survey named it. A name is a pid with the second it was started in,
looked at again before it is signalled unless that was done in the same second. No promise: one that
left its group, lost its parents and gave up its environment between two looks is not found; nor one
whose environment the system hides (macOS does so for programs of its own) once it is a daemon.
Where `ps` is missing, or counts otherwise than we do, only the process group is ended.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from mcpx.processes.systems.tree import (
    MARK,
    Popen,
    Tree,
    adopt_orphans,
    adopted,
    adopting,
    branding,
    chase,
    has_forked,
    put_aside,
    reap_strays,
    runaway,
    wait_aside,
)

__all__ = ["adopt_orphans", "adopted", "adopting", "branding", "chase"]
__all__ += ["has_forked", "put_aside", "reap_strays", "runaway"]

NAME: str = "posix"
PATIENCE = 2.0
"""Seconds for `ps` to answer."""
FRESH = 1.0
"""Seconds in which no number is given out again."""
_COLUMNS = "pid=,ppid=,pgid=,stat=,lstart=,command="
PS = {"darwin": ("-A", "-E", "-ww"), "linux": ("axeww",)}.get(sys.platform, ("-A", "-e", "-ww"))
"""How each `ps` is made to tell of everybody, uncut, with their environments."""
LOOK: str = " ".join(PS)
_KEEPS_UNREAPED = hasattr(os, "waitid")
"""Else (macOS before Python 3.13) a child is reaped when its exit is noticed."""


@dataclass(frozen=True, slots=True)
class Row:
    parent: int
    group: int
    start: int
    """The digits of its date and time: all that is needed to tell it from others that had its
    number."""
    said: str
    """Its command line and its environment."""


def popen(argv: Sequence[str], **options: Any) -> Popen:
    return cast(Popen, subprocess.Popen(argv, start_new_session=True, **options))


def undo(popen: Popen) -> None:
    with contextlib.suppress(OSError):
        os.killpg(popen.pid, signal.SIGKILL)
    popen.kill()


def tree(popen: Popen, token: str, brand: int) -> Tree:
    return Tree(popen.pid, 0, token.encode(), brand, {popen.pid: 0}, popen)


def watch(
    loop: asyncio.AbstractEventLoop, popen: Popen, on_exit: Callable[[int], None]
) -> Callable[[], None]:
    """A thread that waits: the one way that every system has."""
    return wait_aside(loop, lambda: _exit_of(popen), on_exit)


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
    """Some 10 to 50 ms a pass. A daemon in the making slips through one: its parent is gone by
    then, it is not yet there. So two must agree, unless there is to be only one."""
    found = [tree.alive for tree in trees]
    for number in range(passes if trees else 0):
        rows = table()
        if rows is None:  # what was known counts
            return [{pid: start for pid, start in now.items() if _is_there(pid)} for now in found]
        for tree in trees:
            tree.seen = time.monotonic()
        before, found = (
            found,
            [_members(tree, now, rows) for tree, now in zip(trees, found, strict=True)],
        )
        if number and all(
            now.keys() == then.keys() for now, then in zip(found, before, strict=True)
        ):
            break
    return found


def table() -> dict[int, Row] | None:
    """Everybody who runs; None when it cannot be had, or is not about the processes that we mean by
    their numbers."""
    rows = dict(_parsed(_ps(*PS, "-o", _COLUMNS)))
    mine = rows.get(os.getpid())
    return (
        rows
        if mine is not None and (mine.parent, mine.group) == (os.getppid(), os.getpgrp())
        else None
    )


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
    except (subprocess.TimeoutExpired, OSError):  # a machine that is stuck, or no descriptor left
        return ""
    return done.stdout.decode("utf-8", "replace")


def _parsed(text: str) -> Iterable[tuple[int, Row]]:
    for line in text.split("\n"):
        words = line.split(None, 9)  # five of them are a date: Tue Nov 17 23:29:05 2026
        if len(words) < 9 or not words[0].isdigit() or words[3][:1] in "ZX":
            continue
        yield (
            int(words[0]),
            Row(int(words[1]), int(words[2]), _digits(words[4:9]), words[9] if words[9:] else ""),
        )


def _digits(date: Iterable[str]) -> int:
    """Day, hour, minute, second, year: what the keeper's shell can make of it, too."""
    return int("".join(letter for letter in "".join(date) if letter in "0123456789") or 0)


def are_one(start: int, other: int) -> bool:
    """Whether two dates may be of one process: some reckon back from now, and are a second off."""
    return abs(_seconds(start) - _seconds(other)) <= 1


def _seconds(digits: int) -> int:
    clock = digits // 10_000
    return (
        clock // 1_000_000 * 86_400
        + clock // 10_000 % 100 * 3_600
        + clock // 100 % 100 * 60
        + clock % 100
    )


def _members(tree: Tree, known: dict[int, int], rows: dict[int, Row]) -> dict[int, int]:
    root = rows.get(tree.pid)
    if root is not None and not tree.start and not _is_reaped(tree):
        tree.start = root.start  # whoever has its number now is it
    todo: list[int] = []
    if root is None or are_one(
        root.start, tree.start
    ):  # else the number has been given to somebody else
        todo += [pid for pid, row in rows.items() if row.group == tree.pid]
        todo += [tree.pid]
    mark = f"{MARK}=".encode()
    for pid, row in rows.items():
        said = row.said.encode()
        if (
            tree.token in said
            and mark in said
            and pid != os.getpid()
            and tree.token in marks(row.said)
        ):
            todo.append(pid)
    todo += [
        pid
        for pid, start in known.items()
        if pid in rows and start and are_one(rows[pid].start, start)
    ]
    children: dict[int, list[int]] = {}
    for pid, row in rows.items():
        children.setdefault(row.parent, []).append(pid)
    found: dict[int, int] = {}
    while todo:
        pid = todo.pop()
        if pid in found or pid not in rows:
            continue
        found[pid] = known.get(pid) or rows[pid].start
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


def interrupt(tree: Tree) -> None:
    _send(tree, signal.SIGINT)


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
    is_fresh = time.monotonic() - tree.seen < FRESH
    now = (
        dict(_parsed(_ps("-o", _COLUMNS, "-p", ",".join(map(str, named)))))
        if named and not is_fresh
        else {}
    )
    for pid, start in tree.alive.items():
        certain = not _is_reaped(tree) if pid == tree.pid else is_fresh and start
        if not certain and (not start or pid not in now or not are_one(now[pid].start, start)):
            continue  # gone, or another by now
        for number in signals:
            with contextlib.suppress(OSError):
                if pid == tree.pid:
                    os.killpg(pid, number)
                else:
                    os.kill(pid, number)
