"""What a child process is started with (LIF-7): its environment, and the program as that
environment finds it.

Promise: a child sees the few variables a program needs to find its files, its language, its proxy
and its certificates, what `inherit_env` adds and what its own `env` says; nothing of `MCPX_*`
unless its own `env` says so by name, but for the mark by which a gateway can tell that it was
started by itself. No promise: that a proxy URL or an `npm_config_*` value holds no password; the
user put them where programs look for them.
"""

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from mcpx.base import WINDOWS

INSIDE = "MCPX_INSIDE"
"""The variable that tells a gateway which gateways it runs under: their ids, outermost first,
commas between."""
DEEPEST = 32
"""So many gateways may stand in it; whoever is deeper is told of the innermost."""

_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_NAMES = {
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TERM",
    "TMPDIR",
    "TZ",
    "NODE_EXTRA_CA_CERTS",
}
_OF_WINDOWS = {
    *(
        "SYSTEMROOT",
        "SYSTEMDRIVE",
        "WINDIR",
        "COMSPEC",
        "PATHEXT",
        "OS",
        "USERNAME",
        "USERPROFILE",
        "HOMEDRIVE",
    ),
    *(
        "HOMEPATH",
        "APPDATA",
        "LOCALAPPDATA",
        "PROGRAMDATA",
        "PROGRAMFILES",
        "PROGRAMFILES(X86)",
        "PROGRAMW6432",
    ),
    *("COMMONPROGRAMFILES", "ALLUSERSPROFILE", "PUBLIC", "TEMP", "TMP", "PROCESSOR_ARCHITECTURE"),
    "NUMBER_OF_PROCESSORS",
}
"""Without the first of them hardly a program starts there; the others say where its files are."""
_PATHEXT = ".COM;.EXE;.BAT;.CMD"
_PREFIXES = ("LC_", "XDG_", "SSL_CERT_", "npm_config_", "NPM_CONFIG_", "UV_", "PIP_")


def running_inside(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The ids of the gateways that this process was started by, outermost first."""
    given = [id.strip() for id in environ.get(INSIDE, "").split(",")]
    return tuple([id for id in given if _ID.fullmatch(id)][-DEEPEST:])


def child_environment(
    own: Mapping[str, str],
    declared: Mapping[str, str],
    inherit: bool | tuple[str, ...],
    itself: str = "",
    *,
    windows: bool = WINDOWS,
) -> dict[str, str]:
    """The whole environment of a child: of `own` what is harmless or asked for, then `declared`
    over it, then the mark of the gateways above it, `itself` the innermost. On Windows `Path` and
    `PATH` are one name."""
    asked = () if isinstance(inherit, bool) else inherit
    if windows:
        own, declared = _in_capitals(own), _in_capitals(declared)
        asked = tuple(name.upper() for name in asked)
    result = {
        name: value
        for name, value in own.items()
        if not name.upper().startswith("MCPX_")
        and (
            inherit is True
            or name in asked
            or _basic(name, value)
            or (windows and name in _OF_WINDOWS)
        )
    }
    result.update(declared)
    if inside := (*running_inside(own), *((itself,) if itself else ())):
        result[INSIDE] = ",".join(inside[-DEEPEST:])
    return result


def _in_capitals(environ: Mapping[str, str]) -> dict[str, str]:
    return {name.upper(): value for name, value in environ.items()}


def _basic(name: str, value: str) -> bool:
    # A value that begins with "()" is a shell function in disguise: no program needs it, old shells
    # run it.
    known = name in _NAMES or name.startswith(_PREFIXES) or name.upper().endswith("_PROXY")
    return known and not value.startswith("()")


def mark_of(path: Path | None, env: str | None) -> str:
    """What tells gateways on this configuration from others."""
    if path is None:
        return secrets.token_hex(8)
    identity = f"{os.path.realpath(path)}\0{env or ''}"
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def find_program(
    command: str, env: Mapping[str, str], cwd: str | None, *, windows: bool = WINDOWS
) -> str:
    """The file that `command` means to a child with this environment and directory; on Windows
    `npx` may be `npx.cmd`. Raises the OSError that says what is wrong with it, or with the
    directory; the error's `filename` says which."""
    if cwd is not None and not stat.S_ISDIR(os.stat(cwd).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), cwd)
    if not command or "\0" in command:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)
    here = os.path.abspath(cwd or ".")
    places = [""] if os.path.dirname(command) else env.get("PATH", os.defpath).split(os.pathsep)
    problem = errno.ENOENT
    for place in places:
        for name in _spellings(command, env) if windows else (command,):
            path = os.path.join(here, place, name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
            if os.path.exists(
                path
            ):  # as execvp does: look on, and complain of this one if there is no other
                problem = errno.EACCES
    raise OSError(problem, os.strerror(problem), command)


def _spellings(command: str, env: Mapping[str, str]) -> list[str]:
    """Windows runs what ends in one of a few ways; a name without such an end is given each. What
    is beside it under the bare name, as npm puts a shell script beside its `.cmd`, cannot be run
    there."""
    ends = [end for end in env.get("PATHEXT", _PATHEXT).lower().split(";") if end]
    return [command] if command.lower().endswith(tuple(ends)) else [command + end for end in ends]
