"""Scripts that may write in a few folders only (SEC-3): by Landlock, else by bubblewrap, else not
at all.

Promised: with `writable` a script, and whatever it starts, can create, change, rename and remove
files below these folders and in a temporary folder of its own only; it is told of that one by
TMPDIR, and it is removed afterwards. Reading and running programs is not restricted. It gains no
rights by running a setuid program. With Landlock of ABI 6 (Linux 6.12) it cannot signal processes
outside either. Where neither is there, the script is not run.

Landlock restricts a thread and what that thread starts: a thread gives its rights up, starts the
script and ends. That costs next to nothing, where a launcher would cost another start. No promise:
Landlock does not prevent changes of modes, owners, times, and attributes outside (decision 0044),
nor what a program outside does on request through a socket. The network is not restricted.
"""

import contextlib
import ctypes
import functools
import os
import shutil
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from mcpx.commands.work import CommandFailed

LEAST_ABI = 3
"""Before it (Linux 6.2) `truncate` was not held back."""

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION = 1
_NO_NEW_PRIVS = 38
_BENEATH = 1
_WRITE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGES = _WRITE | sum(1 << bit for bit in range(4, 15))
"""Write, remove, make, move and truncate; the bits 4 to 14."""
_SCOPE_SIGNAL = 1 << 1
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")


@dataclass(frozen=True, slots=True)
class Confinement:
    """How a script is started: behind these words, by a thread that has done this."""

    prefix: tuple[str, ...] = ()
    give_up: Callable[[], None] | None = None


@contextlib.contextmanager
def confined(
    writable: Sequence[str], cwd: str, environ: Mapping[str, str]
) -> Generator[Confinement]:
    """For the moment of a start. `environ` says where bubblewrap is looked for."""
    for folder in writable:
        if not os.path.isdir(folder):
            raise CommandFailed(f"it may write in {folder}, which is not a folder")
    if landlock_abi() >= LEAST_ABI:
        ruleset = _ruleset(writable)
        try:
            yield Confinement(give_up=lambda: _restrict(ruleset))
        finally:
            os.close(ruleset)
        return
    bwrap = shutil.which("bwrap", path=environ.get("PATH", os.defpath))
    if bwrap is None:
        raise CommandFailed(
            "it cannot be kept from writing elsewhere ('writable'): this system has no Landlock "
            "(Linux 6.2), and "
            "bubblewrap ('bwrap') is not found on PATH"
        )
    yield Confinement(prefix=behind_bubblewrap(bwrap, writable, cwd))


def behind_bubblewrap(bwrap: str, writable: Sequence[str], cwd: str) -> tuple[str, ...]:
    binds = [word for folder in writable for word in ("--bind", folder, folder)]
    return (bwrap, "--ro-bind", "/", "/", "--dev", "/dev", *binds, "--chdir", cwd, "--")


@functools.cache
def landlock_abi() -> int:
    """0 where there is none."""
    return max(0, _syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION))


def _ruleset(writable: Sequence[str]) -> int:
    """A descriptor of what a thread keeps that restricts itself by it."""
    scoped = _SCOPE_SIGNAL if landlock_abi() >= 6 else 0
    attributes = struct.pack("=QQQ", _CHANGES, 0, scoped)[: 24 if scoped else 8]
    ruleset = _checked(_syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0))
    try:
        for path, rights in (
            *((p, _CHANGES) for p in writable),
            *((p, _WRITE | _TRUNCATE) for p in _DEVICES),
        ):
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                _checked(_syscall(_ADD, ruleset, _BENEATH, struct.pack("=Qi", rights, place), 0))
            finally:
                os.close(place)
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def _restrict(ruleset: int) -> None:
    """For good, and for this thread and what it starts."""
    _checked(_libc().prctl(_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))))
    _checked(_syscall(_RESTRICT, ruleset, 0))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _syscall(number: int, *arguments: object) -> int:
    if os.name != "posix" or os.uname().sysname != "Linux":
        return -1
    return _libc().syscall(ctypes.c_long(number), *arguments)


def _checked(outcome: int) -> int:
    if outcome < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot confine it: {os.strerror(number)}")
    return outcome
