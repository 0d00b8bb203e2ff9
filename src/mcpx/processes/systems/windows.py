"""Windows: each child is started in a job object of its own, which its descendants cannot leave.

Promise: a child is put into its job before it runs its first instruction. The job ends, with all
that is in it, when it is killed, when it is let go, and by the kernel itself when mcpx is gone in
whatever way: no keeper is needed. To end is asked with Ctrl-Break, which reaches only a child on
the same console; others have had the end of their input. No promise: for a child that Windows does
not let into a job (mcpx itself runs in one that forbids it): of that one only the process itself is
ended, and it is said.

Everything that only Windows has is reached inside of functions: the file can be read, and its logic
tested, elsewhere.
"""

import asyncio
import ctypes
import errno
import functools
import importlib
import logging
import ntpath
import os
import signal
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mcpx.processes.systems.tree import (
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

_log = logging.getLogger("mcpx.process")

NAME: str = "windows"
LOOK: str = ""
SUSPENDED, NEW_GROUP, NO_WINDOW = 0x4, 0x200, 0x0800_0000
_KILL_ON_CLOSE = 0x2000
_LIMITS, _PIDS = 9, 3
"""JobObjectExtendedLimitInformation, JobObjectBasicProcessIdList"""
_MOST = 4096
"""Processes of one job that are listed."""
_KILLED = 137

_jobs: dict[int, int] = {}
"""Of those just started, by their pid, until they are a `Tree`."""


class BasicLimits(ctypes.Structure):
    _fields_ = (
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("least_memory", ctypes.c_size_t),
        ("most_memory", ctypes.c_size_t),
        ("most_processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority", ctypes.c_uint32),
        ("scheduling", ctypes.c_uint32),
    )


class Limits(ctypes.Structure):
    _fields_ = (
        ("basic", BasicLimits),
        ("io", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("process_peak", ctypes.c_size_t),
        ("job_peak", ctypes.c_size_t),
    )


class Pids(ctypes.Structure):
    _fields_ = (
        ("assigned", ctypes.c_uint32),
        ("listed", ctypes.c_uint32),
        ("pids", ctypes.c_size_t * _MOST),
    )


class Api:
    """The few calls that are needed; each raises an OSError, or says whether it went well."""

    def __init__(self) -> None:
        load: Any = getattr(ctypes, "WinDLL")  # noqa: B009 - there is none elsewhere
        self._kernel, self._nt = load("kernel32", use_last_error=True), load("ntdll")
        handle, whole, pointer = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p
        for name, result, arguments in (
            ("CreateJobObjectW", handle, (pointer, ctypes.c_wchar_p)),
            ("SetInformationJobObject", ctypes.c_int, (handle, ctypes.c_int, pointer, whole)),
            (
                "QueryInformationJobObject",
                ctypes.c_int,
                (handle, ctypes.c_int, pointer, whole, pointer),
            ),
            ("AssignProcessToJobObject", ctypes.c_int, (handle, handle)),
            ("TerminateJobObject", ctypes.c_int, (handle, ctypes.c_uint)),
            ("CloseHandle", ctypes.c_int, (handle,)),
            ("GetConsoleCP", ctypes.c_uint, ()),
        ):
            function = getattr(self._kernel, name)
            function.restype, function.argtypes = result, arguments
        self._nt.NtResumeProcess.argtypes = (handle,)

    def new_job(self) -> int:
        job = self._kernel.CreateJobObjectW(None, None)
        if not job:
            raise OSError(_last_error(), "no job object can be made")
        limits = Limits()
        limits.basic.flags = _KILL_ON_CLOSE
        if not self._kernel.SetInformationJobObject(
            job, _LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
        ):
            number = _last_error()
            self.close(job)
            raise OSError(number, "a job object cannot be set up")
        return int(job)

    def assign(self, job: int, process: int) -> bool:
        return bool(self._kernel.AssignProcessToJobObject(job, process))

    def resume(self, process: int) -> bool:
        return self._nt.NtResumeProcess(process) >= 0

    def pids(self, job: int) -> list[int]:
        found = Pids()
        # It fails when there are more than fit, and has filled in what does.
        self._kernel.QueryInformationJobObject(
            job, _PIDS, ctypes.byref(found), ctypes.sizeof(found), None
        )
        return list(found.pids[: found.listed])

    def terminate(self, job: int) -> None:
        self._kernel.TerminateJobObject(job, _KILLED)

    def close(self, job: int) -> None:
        self._kernel.CloseHandle(job)

    def has_console(self) -> bool:
        return bool(self._kernel.GetConsoleCP())

    def start(self, argv: str | Sequence[str], **options: Any) -> Popen:
        """With pipes that its event loop can wait for: those of `subprocess` it cannot."""
        return importlib.import_module("asyncio.windows_utils").Popen(argv, **options)


@functools.cache
def api() -> Api:
    return Api()


def _last_error() -> int:
    read: Any = getattr(ctypes, "get_last_error")  # noqa: B009
    return int(read())


def popen(argv: Sequence[str], **options: Any) -> Popen:
    """On our own console where there is one, that Ctrl-Break reaches it; Ctrl-C is kept from it by
    its group."""
    windows = api()
    line, program = command_line(argv, os.environ)
    flags = SUSPENDED | NEW_GROUP | (0 if windows.has_console() else NO_WINDOW)
    child = windows.start(line, executable=program, creationflags=flags, **options)
    handle = int(getattr(child, "_handle"))  # noqa: B009
    try:
        job = windows.new_job()
        if not windows.assign(job, handle):
            windows.close(job)
            raise OSError(_last_error(), "it may not be put into a job object")
        _jobs[child.pid] = job
    except OSError as error:
        _log.warning(
            "process %d is not owned as a whole (%s): what it starts may stay behind",
            child.pid,
            error,
        )
    if not windows.resume(handle):
        undo(child)
        child.wait()
        raise OSError(f"{argv[0]} was started and could not be let run")
    return child


def undo(popen: Popen) -> None:
    job = _jobs.pop(popen.pid, 0)
    if job:
        api().terminate(job)
        api().close(job)
    popen.kill()


def tree(popen: Popen, token: str, brand: int) -> Tree:
    return Tree(
        popen.pid, 1, token.encode(), brand, {popen.pid: 1}, popen, job=_jobs.pop(popen.pid, 0)
    )


def watch(
    loop: asyncio.AbstractEventLoop, popen: Popen, on_exit: Callable[[int], None]
) -> Callable[[], None]:
    return wait_aside(loop, popen.wait, on_exit)


def survey(trees: Sequence[Tree], passes: int = 4) -> list[dict[int, int]]:
    del passes  # a job misses nobody
    return [dict.fromkeys(_running(tree), 1) for tree in trees]


def still_alive(tree: Tree) -> bool:
    return bool(_running(tree))


def _running(tree: Tree) -> list[int]:
    if tree.job:
        return api().pids(tree.job)
    return [tree.pid] if tree.popen is not None and tree.popen.poll() is None else []


def interrupt(tree: Tree) -> None:
    ask(tree)  # Windows does not deliver Ctrl-C to a process group, only Ctrl-Break.


def ask(tree: Tree) -> None:
    try:
        os.kill(
            tree.pid, getattr(signal, "CTRL_BREAK_EVENT", 1)
        )  # the whole group: its number is the root's
    except OSError:
        pass  # on another console, or gone


def kill(tree: Tree) -> None:
    if tree.job:
        api().terminate(tree.job)
    elif tree.popen is not None:
        tree.popen.kill()


def release(tree: Tree) -> None:
    job, tree.job = tree.job, 0
    if job:
        api().close(job)  # with the last handle all that is in it is gone


# Command lines. `npx` is `npx.cmd` on Windows, a batch file, whose arguments `cmd.exe` reads a
# second time. No argument is taken for more than an argument: for a program, `subprocess` quotes
# the list. For a batch file, everything that `cmd.exe` could interpret is quoted, quotes are
# doubled, and variables are not expanded, as in Rust's standard library (CVE-2024-24576). A line
# break cannot be quoted, and is refused.

_HARMLESS = frozenset(string.ascii_letters + string.digits + "#$*+-./:?@\\_")


def command_line(
    argv: Sequence[str], environ: Mapping[str, str]
) -> tuple[str | Sequence[str], str | None]:
    """What to start: the words, or for a batch file one line and the program that reads it."""
    program = argv[0]
    if ntpath.splitext(program)[1].lower() not in (".bat", ".cmd"):
        return argv, None
    if '"' in program or program.endswith("\\"):
        raise OSError(errno.EINVAL, "no name that a batch file can have", program)
    words = " ".join([f'"{program}"', *(quoted(word) for word in argv[1:])])
    folder = environ.get("SystemRoot") or environ.get("SYSTEMROOT") or r"C:\Windows"
    # Extensions on: by them `%` is kept from being a variable. Delayed expansion off, and no
    # AutoRun.
    return f'cmd.exe /e:ON /v:OFF /d /c "{words}"', ntpath.join(folder, "System32", "cmd.exe")


def quoted(word: str) -> str:
    """One argument of a batch file. Raises OSError for one that cannot be handed to it."""
    if any(letter in word for letter in "\r\n\0"):
        raise OSError(
            errno.EINVAL, "a batch file cannot be given a line break in an argument", word[:80]
        )
    is_plain = (
        bool(word) and not word.endswith("\\") and all(_is_harmless(letter) for letter in word)
    )
    parts: list[str] = []
    backslashes = 0
    for letter in word:
        if letter == '"':
            parts.append(
                "\\" * backslashes + '"'
            )  # twice as many before a quote, and the quote twice
        elif letter == "%":
            parts.append(
                "%%cd:~,"
            )  # nothing of a variable that is always there, so that no name begins here
        backslashes = backslashes + 1 if letter == "\\" else 0
        parts.append(letter)
    text = "".join(parts)
    return text if is_plain else '"' + text + "\\" * backslashes + '"'


def _is_harmless(letter: str) -> bool:
    return letter in _HARMLESS if letter.isascii() else not "\x80" <= letter <= "\x9f"
