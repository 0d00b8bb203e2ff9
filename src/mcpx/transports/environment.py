"""What a child process is started with (LIF-7): its environment, and the program as that environment finds
it.

Promise: a child sees the few variables a program needs to find its files, its language, its proxy and its
certificates, what `inherit_env` adds and what its own `env` says; nothing of `MCPX_*` unless its own `env`
says so by name. No promise: that a proxy URL or an `npm_config_*` value holds no password; the user put
them where programs look for them.
"""

import errno
import os
import stat
import sys
from collections.abc import Mapping

_NAMES = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TMPDIR", "TZ", "NODE_EXTRA_CA_CERTS"}
if sys.platform == "win32":
    _NAMES |= {"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERNAME"}
    _NAMES |= {
        "USERPROFILE",
        "HOMEDRIVE",
        "HOMEPATH",
        "APPDATA",
        "LOCALAPPDATA",
        "PROGRAMDATA",
        "PROGRAMFILES",
    }
    _NAMES |= {"PROGRAMFILES(X86)", "PROCESSOR_ARCHITECTURE", "NUMBER_OF_PROCESSORS"}
_PREFIXES = ("LC_", "XDG_", "SSL_CERT_", "npm_config_", "NPM_CONFIG_", "UV_", "PIP_")


def child_environment(
    own: Mapping[str, str], declared: Mapping[str, str], inherit: bool | tuple[str, ...]
) -> dict[str, str]:
    """The whole environment of a child: of `own` what is harmless or asked for, then `declared` over it."""
    asked = () if isinstance(inherit, bool) else inherit
    result = {
        name: value
        for name, value in own.items()
        if not name.upper().startswith("MCPX_") and (inherit is True or name in asked or _basic(name, value))
    }
    result.update(declared)
    return result


def _basic(name: str, value: str) -> bool:
    # A value that begins with "()" is a shell function in disguise: no program needs it, old shells run it.
    known = name in _NAMES or name.startswith(_PREFIXES) or name.upper().endswith("_PROXY")
    return known and not value.startswith("()")


def find_program(command: str, env: Mapping[str, str], cwd: str | None) -> str:
    """The file that `command` means to a child with this environment and directory. Raises the OSError that
    says what is wrong with it, or with the directory; the error's `filename` says which."""
    if cwd is not None and not stat.S_ISDIR(os.stat(cwd).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), cwd)
    if sys.platform == "win32":
        import shutil

        found = shutil.which(command, path=env.get("PATH", os.defpath))
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)
        return found
    if not command or "\0" in command:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)
    here = os.path.abspath(cwd or ".")
    places = [""] if os.path.dirname(command) else env.get("PATH", os.defpath).split(os.pathsep)
    problem = errno.ENOENT
    for place in places:
        path = os.path.join(here, place, command)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
        if os.path.exists(path):  # as execvp does: look on, and complain of this one if there is no other
            problem = errno.EACCES
    raise OSError(problem, os.strerror(problem), command)
