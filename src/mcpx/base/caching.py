"""Bounded caches, and values that are built on first use."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lru(OrderedDict[K, V]):
    """Dictionary that keeps the `max` entries that were stored or `use`d last.

    Plain reads (`get`, `[]`) cost nothing extra and do not count as use.
    """

    def __init__(self, max: int) -> None:
        super().__init__()
        self.max = max

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self.max:
            self.popitem(last=False)

    def use(self, key: K) -> V | None:
        """Return the value and mark it as used, or return None."""
        value = self.get(key)
        if value is not None:
            self.move_to_end(key)
        return value


class TtlCache(Generic[K, V]):
    """The `max` entries that were stored last, each for `seconds`."""

    def __init__(
        self, max: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._entries: Lru[K, tuple[float, V]] = Lru(max)
        self._seconds = seconds
        self._clock = clock

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        expires_at, value = entry
        if self._clock() < expires_at:
            return value
        del self._entries[key]
        return None

    def put(self, key: K, value: V, seconds: float | None = None) -> None:
        """Store a value, for another time if `seconds` is given."""
        if seconds is None:
            seconds = self._seconds
        self._entries[key] = (self._clock() + seconds, value)

    def pop(self, key: K) -> V | None:
        """Remove a value, and return it if it has not expired."""
        value = self.get(key)
        self._entries.pop(key, None)
        return value

    def clear(self) -> None:
        self._entries.clear()


class Lazy(Generic[V]):
    """A value that is built by the first call, and that others can look at without building it."""

    __slots__ = ("_build", "built")

    def __init__(self, build: Callable[[], V]) -> None:
        self._build = build
        self.built: V | None = None
        """The value, or None if it is not built. The value itself is never None."""

    def __call__(self) -> V:
        if self.built is None:
            self.built = self._build()
        return self.built
