"""What the process for large results does: shape one, or read in one that is kept. The other end of
`process`.

Promise: it ends as soon as whoever started it is gone, in the midst of a job too: a thread of its
own listens for that. Memory, and the processor time of each job, are bounded by the system where it
can; one that fails for want of memory says so and is the last of this process, and so is one that
left it large. It yields to the gateway: it is nice.
"""

import marshal
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import astuple
from queue import SimpleQueue
from typing import IO, Any

from mcpx.formats.writing import value_writer
from mcpx.surfaces.large.kept import Kept
from mcpx.surfaces.large.pages import BadReading
from mcpx.surfaces.large.preview import NOT_JSON
from mcpx.surfaces.large.process import HEAD, framed
from mcpx.surfaces.large.reading import read
from mcpx.surfaces.large.shaping import Piece, decide, piece_of
from mcpx.surfaces.settings import Rendering
from mcpx.wire import codec

GROWN = 256 << 20
"""Bytes in memory from which on a process is not used again."""

_Parts = Sequence[bytes]
_Answer = tuple[Any, _Parts]


def rendering(given: tuple[int, str, int, bool]) -> Rendering:
    limit, name, min_size, compact = given
    return Rendering(
        result_limit=limit, value_format=name, toon_min_size=min_size, compact_json=compact
    )


def shape(given: Any, parts: _Parts) -> _Answer:
    """See `shaping.decide`: the texts, and the server's `structuredContent` as JSON if it
    matters."""
    how, alone, with_own = given
    own: object = codec.load(parts[0]) if with_own else None
    texts = [str(part, "utf-8", "surrogatepass") for part in parts[with_own:]]
    decision = decide(texts, own, rendering(how), alone=alone)
    rendered = {
        at: text
        for at, text in enumerate(decision.shown)
        if text is not None and at != decision.place
    }
    back = [text.encode("utf-8", "surrogatepass") for text in rendered.values()]
    about = None
    if decision.piece is not None:
        about = _about(decision.piece)
        back.append(decision.piece.kept.packed)
    return (
        list(rendered),
        about,
        decision.place,
        decision.value is not NOT_JSON,
        decision.says_own,
    ), back


def keep(given: Any, parts: _Parts) -> _Answer:
    """See `shaping.piece_of`: one JSON text."""
    piece = piece_of(parts[0].decode(), codec.load(parts[0]), rendering(given))
    return _about(piece), [piece.kept.packed]


def _about(piece: Piece) -> Any:
    return piece.kept.size, piece.size, astuple(piece.begins)


def read_on(given: Any, parts: _Parts) -> _Answer:
    """See `reading.read`."""
    arguments, (limit_bytes, name, min_size, _) = given
    try:
        write = value_writer(name, min_size)
        page = read(Kept(parts[0], 0).text(), arguments, limit_bytes=limit_bytes, write=write)
    except BadReading as error:
        return (True, str(error), None), ()
    return (False, page.text, page.value), ()


JOBS: dict[str, Callable[[Any, _Parts], _Answer]] = {"shape": shape, "keep": keep, "read": read_on}


def main() -> None:
    processor, memory = map(int, sys.argv[1:3])
    _bound_memory(memory)
    if hasattr(os, "nice"):
        os.nice(2)
    source, send = _by_pipes() if sys.argv[3:] == ["pipes"] else _by_socket()
    jobs: SimpleQueue[tuple[Any, list[bytes]]] = SimpleQueue()
    threading.Thread(target=_listen, args=(source, jobs), daemon=True).start()
    while True:
        (name, given), parts = jobs.get()
        _bound_time(processor)
        try:
            said, back = JOBS[name](given, parts)
            last = _grown()
            head = framed((True, last, said), back)
        except MemoryError:
            del parts
            send(framed((False, True, "too much memory"), ()))
            return
        send(head)
        for part in back:
            send(part)
        if last:
            return
        del given, parts, said, back, head  # what is not needed while it waits


def _by_socket() -> tuple[IO[bytes], Callable[[bytes], object]]:
    ours = socket.socket(fileno=0)
    return ours.makefile("rb"), ours.sendall


def _by_pipes() -> tuple[IO[bytes], Callable[[bytes], object]]:
    """What would print by mistake goes nowhere, never between messages."""
    sink = os.fdopen(os.dup(1), "wb")
    void = os.open(os.devnull, os.O_WRONLY)
    os.dup2(void, 1)

    def send(data: bytes) -> None:
        sink.write(data)
        sink.flush()

    return os.fdopen(0, "rb", closefd=False), send


def _listen(source: IO[bytes], jobs: "SimpleQueue[tuple[Any, list[bytes]]]") -> None:
    try:
        while length := source.read(HEAD):
            head, sizes = marshal.loads(source.read(int.from_bytes(length, "big")))
            jobs.put((head, [source.read(size) for size in sizes]))
    finally:
        os._exit(0)  # whoever started this is gone, or what it says cannot be taken in


def _bound_memory(memory: int) -> None:
    try:
        import resource
    except ImportError:  # Windows: there, only the time on the wall counts
        return
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, memory)):
        try:
            resource.setrlimit(kind, (most, most))
        except (OSError, ValueError):  # macOS does not bound memory so
            pass


def _bound_time(processor: int) -> None:
    """From now on; the system ends what takes longer."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime) + processor + 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    except (OSError, ValueError):  # bounded more tightly by somebody else
        pass


def _grown() -> bool:
    # Not the most it ever had (`ru_maxrss`): that counts the gateway's own, of which it was a copy
    # for a moment.
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") > GROWN
    except (OSError, ValueError):
        return False


if __name__ == "__main__":
    main()
