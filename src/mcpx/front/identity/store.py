"""Bearer tokens that were made by `mcpx token new`, in a file under the state folder.

Promised: a token itself is never kept, only its digest (it is 256 random bits: nobody guesses one
from that); the file is whole or not there, 0600 from its first moment, in a folder that is this
user's alone; several processes may change it at once. A file that anybody else could have written
counts for nothing.
"""

import contextlib
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from mcpx.model.call import Json, as_object, is_array
from mcpx.model.errors import McpxError
from mcpx.wire import codec
from mcpx.wire.folders import OURS, private_folder, read_small, replace_private, require_private

log = logging.getLogger(__name__)

FOLDER: Final = "tokens"
FILE: Final = "tokens.json"
PREFIX: Final = "mcpx_"
LARGEST: Final = 4 << 20
"""Bytes of the file: some ten thousand tokens."""
LATEST: Final = 253_402_300_799
"""The last second of the year 9999."""
PATIENCE: Final = 10.0
"""Seconds that another process may take to change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    name: str
    digest: str = field(repr=False)
    """Hex, of the SHA-256 of the token."""
    profile: str | None = None
    created: float
    expires: float | None = None


class Unreadable(McpxError):
    """There is a file, and it counts for nothing; says why."""


class TokenStore:
    def __init__(self, state: Path) -> None:
        self._folder = state / FOLDER
        self._file = self._folder / FILE

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
        raw = read_small(self._file, LARGEST + 1)
        try:
            return parsed(raw)
        except (codec.BadJson, ValueError):
            raise Unreadable(
                f"{self._file} is not what mcpx wrote; delete it and make new tokens"
            ) from None

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
        with self.turn():
            held = self.read()
            if any(stored.name == name for stored in held):
                raise KeyError(name)
            self._write([*held, made])
        return token

    def revoke(self, name: str) -> bool:
        """Whether there was one."""
        with self.turn():
            held = self.read()
            rest = [stored for stored in held if stored.name != name]
            if len(rest) < len(held):
                self._write(rest)
            return len(rest) < len(held)

    @contextlib.contextmanager
    def turn(self) -> Generator[None]:
        """One process at a time changes the file. Raises OSError."""
        private_folder(self._folder)
        handle = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | OURS, 0o600)
        try:
            _lock(handle)
            yield
        finally:
            os.close(handle)  # which unlocks it

    def _write(self, tokens: Iterable[Stored]) -> None:
        content = text_of([asdict(stored) for stored in tokens])
        if len(content) > LARGEST:
            raise OSError(
                f"{self._file} would be larger than mcpx reads; revoke tokens that nobody needs"
            )
        replace_private(self._file, content)


def parsed(raw: bytes) -> list[Stored]:
    """Raises ValueError or `codec.BadJson`."""
    return [_stored(entry) for entry in _listed(codec.load(raw))]


def text_of(tokens: Sequence[Json]) -> bytes:
    return codec.dump({"version": 1, "tokens": tokens})


def has_tokens(state: Path | None) -> bool:
    """Whether a store is there that lets anybody in."""
    try:
        return state is not None and bool(TokenStore(state).read())
    except (Unreadable, OSError):
        return False


def _listed(content: Any) -> list[Any]:
    """Raises ValueError."""
    tokens = as_object(content).get("tokens")
    if not is_array(tokens):
        raise ValueError("no list of tokens")
    return tokens


def _stored(entry: Any) -> Stored:
    """Raises ValueError."""
    about = as_object(entry)
    name, digest, profile, expires = (
        about.get(key) for key in ("name", "digest", "profile", "expires")
    )
    created = about.get("created")
    if not isinstance(name, str) or not isinstance(digest, str) or len(bytes.fromhex(digest)) != 32:
        raise ValueError("no token")
    if not isinstance(profile, str | None) or not all(
        _is_moment(at) for at in (created, expires) if at is not None
    ):
        raise ValueError("no token")
    return Stored(
        name=name, digest=digest, profile=profile, created=float(created or 0), expires=expires
    )


def _is_moment(value: Any) -> bool:
    """Whether it is one that has a date. One that compares with nothing (NaN) would never be
    over."""
    return isinstance(value, int | float) and 0 <= value <= LATEST


def _lock(handle: int) -> None:
    """Wait for it, but not without end: somebody may hold it and be stopped."""
    try:
        import fcntl
    except ImportError:  # Windows
        return
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise OSError("another process is changing the tokens, and does not end") from None
            time.sleep(0.01)
