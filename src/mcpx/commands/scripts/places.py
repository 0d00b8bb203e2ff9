"""Which scripts may be run, and by what program (SEC-3).

Promised: a script is a regular file below one of the allowed folders, with every link resolved at
each run, that of the folder too; the file that was found so is the one that is run, whatever the
link says a moment later. No promise: against somebody who may change the allowed folder itself; he
may put any script there.
"""

import os
import stat
import sys
from collections.abc import Mapping, Sequence

from mcpx.commands.work import CommandFailed
from mcpx.processes.environment import find_program

OURS = ("python3", "python")
"""Interpreters that this Python stands in for where none is on PATH."""


def allowed(path: str, folders: Sequence[str]) -> str:
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


def program(interpreter: str | None, script: str, env: Mapping[str, str], cwd: str) -> list[str]:
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
        if interpreter in OURS and sys.executable:
            return [sys.executable, script]
    hint = "; 'interpreter' is one program, without options" if " " in interpreter else ""
    if os.path.dirname(interpreter):
        where = "" if os.path.isabs(interpreter) else f" in {cwd}"
        raise CommandFailed(f"the interpreter {interpreter} is not there{where}{hint}")
    raise CommandFailed(
        f"{interpreter} is not found on PATH; install it or give its full path{hint}"
    )
