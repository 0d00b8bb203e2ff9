"""What a system says that has nothing of the kind: shared by the files that are not Linux's."""

import contextlib
from collections.abc import Generator

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
