"""Bearer tokens that were made by `mcpx token new`, in a file under the state folder.

Promised: a token itself is never kept, only its digest (it is 256 random bits: nobody guesses one
from that); the file is whole or not there, 0600 from its first moment, in a folder that is this
user's alone; several processes may change it at once. A file that anybody else could have written
counts for nothing.
"""

import hashlib
import logging
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mcpx.base.build import build
from mcpx.base.files import require_private
from mcpx.base.state_file import StateFile, UnreadableState
from mcpx.model.call import Json
from mcpx.model.errors import McpxError
from mcpx.wire import codec

log = logging.getLogger(__name__)

FOLDER: Final = "tokens"
FILE: Final = "tokens.json"
PREFIX: Final = "mcpx_"
LARGEST: Final = 4 << 20
"""Bytes of the file: some ten thousand tokens."""
LATEST: Final = 253_402_300_799
"""The last second of the year 9999."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    name: str
    digest: str = field(repr=False)
    """Hex, of the SHA-256 of the token."""
    profile: str | None = None
    created: float = 0.0
    expires: float | None = None

    def __post_init__(self) -> None:
        if len(bytes.fromhex(self.digest)) != 32:
            raise ValueError("not a digest")
        for moment in (self.created, self.expires or 0.0):
            if not 0 <= moment <= LATEST:
                raise ValueError("not a date")


@dataclass(frozen=True, slots=True)
class _Content:
    version: int = 1
    tokens: tuple[Stored, ...] = field(kw_only=True)


class Unreadable(McpxError):
    """There is a file, and it counts for nothing; says why."""


class TokenStore:
    def __init__(self, state: Path) -> None:
        self._folder = state / FOLDER
        self._file = self._folder / FILE
        self._state = StateFile(self._file, _Content, max_bytes=LARGEST, lock_name="lock")
        self.lock = self._state.lock

    def mark(self) -> object:
        """What changes with every writing, and with who may write; None: there is no file."""
        try:
            found, folders = (
                os.lstat(self._file),
                (os.lstat(self._folder), os.stat(self._folder.parent)),
            )
        except OSError:
            return None
        may_write = tuple((folder.st_mode, folder.st_uid) for folder in folders)
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size, may_write

    def read(self) -> list[Stored]:
        """All of them, in the order in which they were made. Raises `Unreadable`; OSError for what
        may pass."""
        try:
            found = os.lstat(self._file)
        except FileNotFoundError:
            return []
        try:
            require_private(self._folder)
        except OSError as error:
            raise Unreadable(str(error)) from None
        if os.name == "posix" and (found.st_mode & 0o022 or found.st_uid != os.geteuid()):
            raise Unreadable(
                f"{self._file} can be written by other users; chmod 600 it once you know what is "
                "in it"
            )
        try:
            content = self._state.read()
        except UnreadableState:
            raise Unreadable(
                f"{self._file} is not what mcpx wrote; delete it and make new tokens"
            ) from None
        if content:
            return list(content.tokens)
        return []

    def add(self, name: str, profile: str | None = None, expires: float | None = None) -> str:
        """A new token, which is told this once. Raises KeyError for a name that there is
        already."""
        token = PREFIX + secrets.token_urlsafe(32)
        made = Stored(
            name=name,
            digest=hashlib.sha256(token.encode()).hexdigest(),
            profile=profile,
            created=float(int(time.time())),
            expires=expires,
        )
        with self.lock():
            held = self.read()
            if any(stored.name == name for stored in held):
                raise KeyError(name)
            self._write([*held, made])
        return token

    def revoke(self, name: str) -> bool:
        """Whether there was one."""
        with self.lock():
            held = self.read()
            rest = [stored for stored in held if stored.name != name]
            if len(rest) < len(held):
                self._write(rest)
            return len(rest) < len(held)

    def _write(self, tokens: Iterable[Stored]) -> None:
        self._state.write(_Content(tokens=tuple(tokens)))


def parsed(raw: bytes) -> list[Stored]:
    """Raises ValueError or `codec.BadJson`."""
    return list(build(_Content, codec.load(raw)).tokens)


def text_of(tokens: Sequence[Json]) -> bytes:
    return codec.dump({"version": 1, "tokens": tokens})


def has_tokens(state: Path | None) -> bool:
    """Whether a store is there that lets anybody in."""
    try:
        return state is not None and bool(TokenStore(state).read())
    except (Unreadable, OSError):
        return False
