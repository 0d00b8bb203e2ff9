"""Kills a command of mcpx at each step of its save: `interrupted_save.py FIRST COMMAND...`.

For each line on standard input, a forked process runs the command and is killed at one more audit
event (`STEPS`) than its predecessor, counted from the first temporary file in the config's folder.
Prints the exit code of each process; 0 means that it ended before that event.
"""

import os
import signal
import sys
from typing import Any

from mcpx.cli.main import main
from mcpx.core import alone, saving, store

STEPS = (
    "tempfile.mkstemp",
    "open",
    "fcntl.flock",
    "os.chown",
    "os.chmod",
    "os.link",
    "os.rename",
    "os.remove",
)
LOADED = (alone, saving, store)
IN_FOLDER = os.path.join(os.path.dirname(sys.argv[-1]), ".mcpx-")


def kill_at(step: int) -> None:
    seen: list[str] = []

    def hear(event: str, details: tuple[Any, ...]) -> None:
        if event not in STEPS:
            return
        if seen or (event == "tempfile.mkstemp" and str(details[0]).startswith(IN_FOLDER)):
            seen.append(event)
        if len(seen) > step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hear)


for step, _ in enumerate(sys.stdin):
    child = os.fork()
    if child == 0:
        kill_at(step)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os._exit(main(sys.argv[1:]))
    sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
    sys.stdout.flush()
