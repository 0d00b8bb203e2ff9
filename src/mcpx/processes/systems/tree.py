"""What every system's file is about, a child and its descendants, and what each of them offers."""

import asyncio
import contextlib
import subprocess
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

MARK = "GATEWAY_OWNER"
"""The variable that carries the mark: a token per gateway above the process, outermost first,
commas between. Tokens are added, not replaced, so that a gateway behind a gateway leaves both able
to find what they own."""

BRANDS = 100_000
"""A brand is a number for the run, followed by five digits for the child."""

Popen = subprocess.Popen[bytes]


def brand_of(run: str) -> int:
    """The number of a run: always 13 digits."""
    return 10**12 + int(run[:15], 16) % (9 * 10**12)


@dataclass(slots=True)
class Tree:
    """A child and its descendants. Where the root can stay unreaped, it must while this is in use:
    that keeps its pid, and so the number of its session, from being given to anyone else."""

    pid: int
    start: int
    """0: not known yet."""
    token: bytes
    brand: int = 0
    """0: it has none."""
    alive: dict[int, int] = field(default_factory=dict[int, int])
    """pid -> start time of what the last survey found running, the root among it."""
    popen: Popen | None = None
    """The root, where its being reaped matters."""
    seen: float = 0.0
    """When `alive` was found, where it matters."""
    job: int = 0
    """What Windows owns it by."""


class System(Protocol):
    """One file per system; `systems.system` is the one that counts here."""

    NAME: str
    LOOK: str
    """What the keeper gives to `ps`; empty where it looks into /proc."""

    def popen(self, argv: Sequence[str], **options: Any) -> Popen:
        """Start a child as one that can be owned: in a session, or a job, of its own, its pipes fit
        for the loop."""
        ...

    def undo(self, popen: Popen) -> None:
        """Kill what was just started and not yet made a tree, with what it may have started
        itself."""
        ...

    def branding(self, brand: int) -> AbstractContextManager[int]:
        """In it, whoever is started gets the brand; gives 0 where that cannot be."""
        ...

    def tree(self, popen: Popen, token: str, brand: int) -> Tree: ...

    def watch(
        self, loop: asyncio.AbstractEventLoop, popen: Popen, on_exit: Callable[[int], None]
    ) -> Callable[[], None]:
        """Tell the loop once of its exit, by the code. Gives how to stop that."""
        ...

    def survey(self, trees: Sequence[Tree], passes: int = 4) -> list[dict[int, int]]:
        """What is running of each tree now. Blocking."""
        ...

    def still_alive(self, tree: Tree) -> bool:
        """Whether any that the last survey found runs yet; cheap, for waiting."""
        ...

    def interrupt(self, tree: Tree) -> None:
        """Send what Ctrl-C sends to all that the last survey found."""
        ...

    def ask(self, tree: Tree) -> None:
        """Ask all that the last survey found to end."""
        ...

    def kill(self, tree: Tree) -> None: ...

    def release(self, tree: Tree) -> None:
        """The last step, before the root is reaped: what holds it is let go."""
        ...

    def has_forked(self, pid: int) -> bool:
        """Whether a process may have started another; never False without certainty."""
        ...

    def runaway(self, tree: Tree) -> bool:
        """Whether some of it forks faster than a survey finds."""
        ...

    def chase(self, tree: Tree, seconds: float) -> None:
        """Kill such a chain. Blocking."""
        ...

    def adopt_orphans(self) -> None:
        """From now on, what our children leave behind becomes a child of ours."""
        ...

    def adopting(self) -> bool: ...

    def adopted(self, owned: set[int]) -> dict[int, int]:
        """What runs as a child of ours that we did not start: pid -> start."""
        ...

    def reap_strays(self, owned: set[int], before: set[int]) -> set[int]:
        """Reap the exited ones that nobody here waits for, at the second call that sees them; the
        candidates."""
        ...

    def put_aside(self) -> None:
        """What is needed to look when nothing more can be opened."""
        ...


# What a system offers that has none of it, and what every system can do: for all systems but Linux.


@contextlib.contextmanager
def branding(brand: int) -> Generator[int]:
    del brand
    yield 0


def has_forked(pid: int) -> bool:
    del pid
    return True  # it cannot be told


def runaway(tree: Tree) -> bool:
    del tree
    return False


def chase(tree: Tree, seconds: float) -> None:
    del tree, seconds


def adopt_orphans() -> None: ...


def adopting() -> bool:
    return False


def adopted(owned: set[int]) -> dict[int, int]:
    del owned
    return {}


def reap_strays(owned: set[int], before: set[int]) -> set[int]:
    del owned, before
    return set()


def put_aside() -> None: ...


def wait_aside(
    loop: asyncio.AbstractEventLoop, wait: Callable[[], int], on_exit: Callable[[int], None]
) -> Callable[[], None]:
    """Tell the loop of an exit that a thread of its own waits for. Gives how not to be told."""
    stopped = False

    def tell(code: int) -> None:
        if not stopped:
            on_exit(code)

    def run() -> None:
        code = wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to know
            loop.call_soon_threadsafe(tell, code)

    def stop() -> None:
        nonlocal stopped
        stopped = True

    threading.Thread(target=run, name="wait for a child", daemon=True).start()
    return stop
