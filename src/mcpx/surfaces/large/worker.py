"""Reads kept results in a process of its own, so that nothing a client asks for can hold up the gateway (SUR-11).

Promise: one process at a time, for one reading, with bounds on its time and its memory; who exceeds them is told to
select less. What is certainly quick is read at once. No process waits for work, and none outlives its bounds, even if
the gateway is killed meanwhile.
"""

import asyncio
import logging
import marshal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mcpx.model.call import Json
from mcpx.surfaces.large.kept import Kept
from mcpx.surfaces.large.pages import BadReading, Page
from mcpx.surfaces.large.reading import asked_for, read

log = logging.getLogger(__name__)

AT_ONCE = 256 * 1024
"""Bytes of a result that are read while everybody waits, unless there is an expression to evaluate."""
PROCESSOR = 3
"""Seconds of processor time for one reading."""
LONGEST = 15.0
"""Seconds for one reading on a busy machine."""
MEMORY = 1 << 30
MOST_WAITING = 32
_TOO_MUCH = (
    "this takes too much time or memory on a result of this size; select less first, "
    "e.g. jmespath=\"[0:1000]\" or 'rows[0:1000] | …', or use grep alone"
)


class Worker:
    def __init__(self, *, processor: int = PROCESSOR, longest: float = LONGEST, memory: int = MEMORY) -> None:
        self._bounds = (processor, memory)
        self._longest = longest
        self._thread = ThreadPoolExecutor(1, "mcpx-reading")  # started with the first reading
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting = 0

    async def read(self, kept: Kept, arguments: Json, limit_bytes: int, toon: bool, min_size: int) -> Page:
        """See `reading.read`."""
        how = (limit_bytes, toon, min_size)
        asked = asked_for(arguments)
        if kept.size <= AT_ONCE and asked.jmespath is None:
            return read(kept.text(), arguments, limit_bytes=limit_bytes, toon=toon, min_size=min_size)
        if self._waiting >= MOST_WAITING:
            raise BadReading("too many large results are being read at this moment; try again")
        job = marshal.dumps((self._bounds, kept.packed, arguments, how))
        self._waiting += 1
        try:
            said = await asyncio.get_running_loop().run_in_executor(self._thread, self._run, job)
        finally:
            self._waiting -= 1
        if not said:
            raise BadReading(_TOO_MUCH)
        mistake, text, value = marshal.loads(said)
        if mistake:
            raise BadReading(text)
        return Page(text, value)

    def _run(self, job: bytes) -> bytes:
        """In the thread. Empty when it had to be ended."""
        command = [sys.executable, "-P", "-m", __name__]  # -P: the gateway's folder is not a place for modules
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as it:
            self._process = it
            try:
                said, _ = it.communicate(job, self._longest)
            except subprocess.TimeoutExpired:
                it.kill()
                return b""
            finally:
                self._process = None
            if it.wait() == 0:
                return said
            log.info("reading a kept result was ended: code %s", it.returncode)
            return b""

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._process is not None:
            self._process.kill()


def main() -> None:
    """One reading from standard input to standard output: plain values, by the same Python on both sides."""
    (processor, memory), packed, arguments, (limit_bytes, toon, min_size) = marshal.load(sys.stdin.buffer)
    _bound(processor, memory)
    try:
        page = read(Kept(packed, 0).text(), arguments, limit_bytes=limit_bytes, toon=toon, min_size=min_size)
        said: Any = (False, page.text, page.value)
    except BadReading as error:
        said = (True, str(error), None)
    marshal.dump(said, sys.stdout.buffer)


def _bound(processor: int, memory: int) -> None:
    try:
        import resource
    except ImportError:  # Windows: there, only the time on the wall counts
        return
    bounds = {resource.RLIMIT_CORE: 0, resource.RLIMIT_CPU: processor, resource.RLIMIT_AS: memory}
    for kind, most in bounds.items():
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):  # macOS does not bound memory so
            pass


if __name__ == "__main__":
    main()
