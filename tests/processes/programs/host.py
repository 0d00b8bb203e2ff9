"""A host that uses `spawn` as mcpx does, and ends in the way it is told to.

host.py LOOP END NOTES [word ...]     LOOP: asyncio | uvloop
END: waits (to be killed) | raises | clean | returns (without ending anything) | exits (os._exit)
"""

import asyncio
import os
import sys
from pathlib import Path

from mcpx.processes import process

FAMILY = str(Path(__file__).with_name("family.py"))


async def main(end: str, notes: Path, words: list[str]) -> None:
    ready = asyncio.Event()
    spec = process.Spawn(
        command=sys.executable,
        args=("-I", "-S", FAMILY, str(notes), *words),
        env=dict(os.environ),
        cwd=None,
    )
    child = await process.spawn(
        spec,
        on_stdout=lambda data: ready.set(),
        on_stderr=lambda data: None,
        on_exit=lambda code: None,
    )
    child.write(b"hello\n")
    await ready.wait()
    await child._look()  # what the census does every two seconds
    (notes / "run").write_text(process.RUN)
    (notes / "host").write_text(str(os.getpid()))
    match end:
        case "waits":
            await asyncio.Event().wait()
        case "raises":
            raise RuntimeError("on purpose")
        case "clean":
            await process.end_all()
        case "exits":
            os._exit(4)


if sys.argv[1] == "uvloop":
    import uvloop

    uvloop.run(main(sys.argv[2], Path(sys.argv[3]), sys.argv[4:]))
else:
    asyncio.run(main(sys.argv[2], Path(sys.argv[3]), sys.argv[4:]))
