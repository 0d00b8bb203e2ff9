"""What a system says that has nothing of the kind, and what every system can do: for the files that
are not Linux's."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator

from mcpx.processes.systems.tree import Tree


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
