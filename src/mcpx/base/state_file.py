"""JSON files in the state folder that several processes of mcpx read and replace."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

from mcpx.base.build import build
from mcpx.base.files import (
    FileLock,
    private_folder,
    read_small,
    remove_leftovers,
    replace_private,
)

T = TypeVar("T")

LOCK_SECONDS: Final = 10.0


class UnreadableState(Exception):
    """The file exists, but its content cannot be used. The message says why and what to do."""


class StateFile(Generic[T]):
    """A dataclass in a file.

    Readers need no lock: the file is replaced as a whole, with mode 0600. A process that reads,
    changes, and writes the file holds `lock` meanwhile.
    """

    def __init__(
        self,
        path: Path,
        cls: type[T],
        *,
        max_bytes: int = 1 << 20,
        lock_name: str = ".lock",
        encode: Callable[[T], bytes] | None = None,
    ) -> None:
        """`encode` replaces the default format, for example to write large files piece by piece."""
        self.path = path
        self._cls = cls
        self._max_bytes = max_bytes
        self._lock_name = lock_name
        self._encode = encode or _as_json

    def read(self) -> T | None:
        """Return None if the file does not exist. Raises `UnreadableState` and OSError."""
        try:
            content = read_small(self.path, self._max_bytes + 1)
        except FileNotFoundError:
            return None
        return self.decode(content)

    def decode(self, content: bytes) -> T:
        """Raises `UnreadableState`."""
        if len(content) > self._max_bytes:
            raise UnreadableState(
                f"{self.path} has more than {self._max_bytes:,} bytes, so mcpx did not write it"
            )
        try:
            return build(self._cls, json.loads(content))
        except (ValueError, TypeError, RecursionError) as error:
            raise UnreadableState(
                f"{self.path} is damaged, or another version of mcpx wrote it: {error}"
            ) from None

    def write(self, value: T) -> None:
        """Replace the file, and create its folder. Raises OSError."""
        content = self._encode(value)
        if len(content) > self._max_bytes:
            raise OSError(f"{self.path} would have more than {self._max_bytes:,} bytes")
        private_folder(self.path.parent)
        remove_leftovers(self.path.parent)
        replace_private(self.path, content)

    def lock(self, timeout: float = LOCK_SECONDS) -> AbstractContextManager[None]:
        """Lock the file's folder. Raises OSError if another process keeps the lock."""
        private_folder(self.path.parent)
        return FileLock(self.path.parent / self._lock_name).held(timeout)


def _as_json(value: object) -> bytes:
    return json.dumps(asdict(cast(Any, value)), separators=(",", ":"), default=sorted).encode()
