"""How processes are owned, one file per system; which of them counts is decided here and nowhere
else.

| file | what runs is found by | asked to end by | if mcpx is killed |
|---|---|---|---|
| `linux` | /proc: marks, brands, sessions, parents | SIGTERM through a pidfd | the keeper looks in
/proc |
| `posix` | `ps`: marks, process groups, parents | SIGTERM | the keeper ends the groups and what was
named to it |
| `windows` | the job object that it cannot leave | Ctrl-Break | the kernel closes the job, and
kills all in it |
"""

import sys

from mcpx.base import SIMULATES_WINDOWS, WINDOWS
from mcpx.processes.systems.tree import System, Tree

__all__ = ["System", "Tree", "system"]


def chosen() -> System:
    if WINDOWS:
        from mcpx.processes.systems import windows

        return windows
    if not SIMULATES_WINDOWS and sys.platform.startswith("linux"):
        from mcpx.processes.systems import linux

        if linux.AVAILABLE:
            return linux
    from mcpx.processes.systems import posix

    return posix


system = chosen()
