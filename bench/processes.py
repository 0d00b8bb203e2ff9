"""The processes a benchmark starts: each is ended on every way out; CPU and memory are read from
the kernel (Linux).

A process is known by its number and its start time, so that nothing else is ever ended in its
place. Should the benchmark itself be killed, the kernel ends them (`PR_SET_PDEATHSIG`).
"""

import asyncio
import ctypes
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

UPSTREAM = str(Path(__file__).with_name("upstream.py"))
PAGE = os.sysconf("SC_PAGE_SIZE")
ODD = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONDEVMODE", "PYTHONASYNCIODEBUG")
LIMIT = 64 * 2**20
"""Longest line that is read."""
GRACE = 5.0
"""Seconds for a process to end by itself once it was asked to."""

_prctl = ctypes.CDLL(None).prctl
_PR_SET_PDEATHSIG = 1

Identity = tuple[int, int]
"""Number and start time of a process."""


class Started:
    """A process that was started here, with whatever it started itself."""

    def __init__(self, process: Process, log: Path, pipes: bool) -> None:
        self.process = process
        self._log = log
        self._pipes = pipes

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        folder: Path,
        *,
        pipes: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> "Started":
        """With `pipes` it has our pipes as standard input and output, and is asked to end by
        closing them."""
        # As a user has it: whoever forbids Python to keep bytecode would measure the compiler.
        usual = {
            key: value
            for key, value in os.environ.items()
            if key not in ODD and not key.startswith("MCPX_")
        }
        usual["MCPX_STANDALONE"] = "true"  # what is started is what is measured, and ends with it
        log = folder / "stderr.log"
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=PIPE if pipes else DEVNULL,
                stdout=PIPE if pipes else DEVNULL,
                stderr=stderr,
                cwd=folder,
                env={**usual, "MCPX_STATE_DIR": str(folder / "state"), **(env or {})},
                # Ctrl-C is for the benchmark, which then ends them in order
                start_new_session=True,
                preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
                limit=LIMIT,
            )
        return cls(process, log, pipes)

    @property
    def running(self) -> bool:
        return self.process.returncode is None

    def complaint(self) -> str:
        """The end of what it wrote to standard error."""
        return (
            self._log.read_text(encoding="utf-8", errors="replace")[-600:].strip()
            or "it said nothing"
        )

    def cpu(self) -> float:
        """CPU seconds so far, upstreams left out."""
        return sum(_cpu(pid) for pid in self._own())

    def rss(self) -> float:
        """Resident megabytes, upstreams left out."""
        return sum(_rss(pid) for pid in self._own())

    def upstreams(self, number: int) -> list[int]:
        """The processes of one upstream (it may have several, for several sessions)."""
        own = (b"--id", str(number).encode())
        return [
            pid for pid, _ in family(self.process.pid) if own in pairwise(_upstream_arguments(pid))
        ]

    def _own(self) -> list[int]:
        return [pid for pid, _ in family(self.process.pid) if not _upstream_arguments(pid)]

    async def stop(self) -> None:
        members: list[Identity] = []
        if self.running:
            members = family(self.process.pid)
            if self._pipes and self.process.stdin is not None:
                self.process.stdin.close()
            else:
                self.process.terminate()
        try:
            await asyncio.wait_for(self.process.wait(), GRACE)
        except TimeoutError:
            pass
        finally:
            if self.running:
                self.process.kill()
                await self.process.wait()
            await _end(members)


async def _end(members: Sequence[Identity]) -> None:
    """What a process started ends with it, a moment later; what does not is ended."""
    left = members
    for _ in range(int(GRACE / 0.01)):
        left = [(pid, start) for pid, start in left if _start_of(pid) == start]
        if not left:
            return
        await asyncio.sleep(0.01)
    for pid, _ in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def family(root: int) -> list[Identity]:
    """A process and its descendants, those that are alive."""
    found: dict[int, list[str]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _stat(int(name))):
            found[int(name)] = fields
    members = [root] if root in found else []
    for parent in members:
        members += [pid for pid, fields in found.items() if int(fields[1]) == parent]
    return [(pid, int(found[pid][19])) for pid in members]


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name (state first); empty for a process that is gone
    or a zombie."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return []
    return [] if fields[0] in "ZX" else fields


def _start_of(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _upstream_arguments(pid: int) -> list[bytes]:
    """The arguments of an upstream; empty for any other process, also for one that has an
    upstream's command in its own."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
    return arguments[4:] if arguments[1:4] == [b"-I", b"-S", UPSTREAM.encode()] else []


def _cpu(pid: int) -> float:
    """Of all its threads, in nanoseconds where `stat` counts hundredths of a second."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3)
    except OSError:
        return 0.0


def _rss(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE / 2**20
    except OSError:
        return 0.0
