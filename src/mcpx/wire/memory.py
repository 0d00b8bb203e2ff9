"""Memory that large messages took, handed back to the system when they are gone: the allocator
would keep it for ever.

Promise: nothing here fails or takes long; where there is no glibc, nothing happens.
"""

import functools
from typing import Any

LARGE = 2**20
"""Bytes of a message after which there may be something to hand back."""
_owed = False


@functools.cache
def _libc() -> Any:
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        return libc if hasattr(libc, "malloc_trim") else None
    except (ImportError, OSError, TypeError):
        return None


def took(size: int) -> None:
    """A message of that size was there."""
    global _owed
    _owed = _owed or size >= LARGE


def give_back(*, surely: bool = False) -> None:
    """Now and then, when it does not matter: what large messages since the last time have left."""
    global _owed
    if (_owed or surely) and (libc := _libc()) is not None:
        libc.malloc_trim(0)
    _owed = False
