"""What signing in leaves behind: one JSON object for each key, in files that only this user may
read.

Promised: a file is whole or not there, 0600 from its first moment; encrypted when there is a key
(`MCPX_KEY`, else one in the system's keyring). What another gateway wrote into the same folder is
seen with the next reading. A file that cannot be read counts as absent, and is said once with what
to do; what is written in its place leaves it aside. What cannot be written is kept in memory, and
said; what cannot be deleted counts as absent. Without a folder everything is in memory. No promise:
that nobody who can read this process's memory or environment can read it.
"""

import base64
import hashlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from mcpx.auth import sealing
from mcpx.auth.keychain import NoKeyring
from mcpx.auth.sealing import Sealed, Secret, Source
from mcpx.base.files import NOFOLLOW, private_folder, read_small, rename_over
from mcpx.model.call import Json, as_object
from mcpx.wire import codec

log = logging.getLogger(__name__)

FOLDER = "auth"
LARGEST = 2**20
"""Bytes of a file; a grant with its registration has some kilobytes."""
ASIDE = ".unreadable"
LEFT = 60.0
"""Seconds after which what is half written was left so: by a process that was killed."""


TURN = threading.RLock()
"""Files are read and written by one thread at a time; there are several, for deriving a key, or a
keyring, takes its time."""


class _Sealed(Exception):
    """There is a file, and it cannot be read; says why, and what to do."""


def name_of(key: str) -> str:
    """Of its file."""
    return f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


class Vault:
    def __init__(self, state: Path | None, environ: Mapping[str, str]) -> None:
        self._folder = None if state is None else state / FOLDER
        self._environ = environ
        self._seen: dict[str, tuple[object, bytes]] = {}
        """What was last read or written, and the mark of the file it was in; no mark: it is in no
        file."""
        self._buried: dict[str, object] = {}
        """Marks of files that were to be deleted, and could not be."""
        self._salts: dict[str, bytes] = {}
        """By the source of the secret: of the last file that it opened. New files get the same, so
        that most processes derive one key."""
        self._said: set[str] = set()
        self._turn = TURN

    @property
    def sealed_by(self) -> Source | None:
        """What the key comes from; None: files are not encrypted, or there are none."""
        with self._turn:
            secret = self._secret
        return None if secret is None else secret.source

    @property
    def kept(self) -> bool:
        """Whether anything outlives this process."""
        return self._folder is not None

    def read(self, key: str) -> Json | None:
        with self._turn:
            return self._read(key)

    def _read(self, key: str) -> Json | None:
        mark = self._mark(key)
        if mark is not None and mark == self._buried.get(key):
            return None
        seen = self._seen.get(key)
        if seen is None or (seen[0] != mark and seen[0] is not None):
            if mark is None:
                self._seen.pop(key, None)
                return None
            try:
                seen = mark, self._open(key)
            except _Sealed as problem:
                self._say(str(problem))
                return None
            self._seen[key] = seen
        return as_object(codec.load(seen[1]))

    def write(self, key: str, value: Json) -> None:
        with self._turn:
            self._write(key, value)

    def _write(self, key: str, value: Json) -> None:
        plain = codec.dump(value)
        self._seen[key] = None, plain
        if self._folder is None:
            return
        try:
            private_folder(self._folder)
            self._set_aside(key)
            self._replace(self._file(key), self._closed(key, plain))
            for left in self._left(self._file(key)):
                with suppress(OSError):
                    if left.lstat().st_mtime < time.time() - LEFT:
                        left.unlink()
        except OSError as error:
            self._say(f"sign-ins cannot be kept: {error}; the next start will ask for them again")
        else:
            self._seen[key] = self._mark(key), plain

    def is_absent(self, key: str) -> bool:
        """Whether there is nothing, not even a file that cannot be read; where the whole folder is
        gone, nobody meant this one."""
        with self._turn:
            held = self._seen.get(key)
            if held is not None and held[0] is None:
                return False
            return self._folder is None or (self._folder.is_dir() and self._mark(key) is None)

    def delete(self, key: str) -> str | None:
        """With what was set aside for it, or left half written. What cannot be deleted counts as
        absent from now on, and is said."""
        with self._turn:
            self._seen.pop(key, None)
            if self._folder is None:
                return None
            file = self._file(key)
            try:
                for each in (file, file.with_suffix(ASIDE), *self._left(file)):
                    each.unlink(missing_ok=True)
            except OSError as error:
                self._buried[key] = self._mark(key)
                return f"a kept sign-in cannot be deleted: {error}"
            return None

    # Files
    # ----------------------------------------------------------------------------------------------

    def _file(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / name_of(key)

    def _mark(self, key: str) -> object:
        """What changes with every writing of its file; None: there is none."""
        if self._folder is None:
            return None
        try:
            found = os.lstat(self._file(key))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _open(self, key: str) -> bytes:
        """The JSON text in its file. Raises `_Sealed`."""
        file = self._file(key)
        try:
            private_folder(file.parent)
            raw = read_small(file, LARGEST)
            outer = as_object(codec.load(raw))
        except (OSError, codec.BadJson) as error:
            raise _Sealed(
                f"a kept sign-in cannot be read ({file}: {error}); sign in again"
            ) from None
        if outer.get("sealed") != 1:
            value = outer.get("value")
            if outer.get("key") != key or not isinstance(value, dict):
                raise _Sealed(f"{file} is not a sign-in that mcpx kept; sign in again")
            return codec.dump(value)
        return self._unsealed(key, outer, file)

    def _closed(self, key: str, plain: bytes) -> bytes:
        """What is written for it."""
        secret = self._secret
        if secret is None:
            return codec.dump({"key": key, "value": codec.load(plain)})
        sealed = sealing.seal(secret, plain, key.encode(), self._salts.get(secret.source))
        self._salts[secret.source] = sealed.salt
        parts = {"salt": sealed.salt, "nonce": sealed.nonce, "data": sealed.data}
        encoded = {name: base64.b64encode(part).decode() for name, part in parts.items()}
        return codec.dump({"sealed": 1, "by": secret.source, **encoded})

    def _unsealed(self, key: str, outer: Json, file: Path) -> bytes:
        by: Any = outer.get("by")
        secret = self._secret
        if secret is None or secret.source != by:
            missing = (
                "MCPX_KEY is not set"
                if by == "MCPX_KEY"
                else f"the key in the {by} is not used or not there"
            )
            raise _Sealed(
                f"a kept sign-in is encrypted, and {missing}: set it as before, or sign in again "
                f"({file})"
            )
        try:
            sealed = Sealed(
                *(base64.b64decode(str(outer.get(part))) for part in ("salt", "nonce", "data"))
            )
            plain = sealing.unseal(secret, sealed, key.encode())
            codec.load(plain or b"")
        except (ValueError, codec.BadJson):
            sealed, plain = None, None
        if sealed is None or plain is None:
            raise _Sealed(
                f"a kept sign-in is encrypted with another {by}: set that again, or sign in again "
                f"({file})"
            )
        self._salts[secret.source] = sealed.salt
        return plain

    def _set_aside(self, key: str) -> None:
        """A file that cannot be read now may be readable to whoever finds the key."""
        file = self._file(key)
        if self._mark(key) is None:
            return
        try:
            self._open(key)
        except _Sealed:
            aside = file.with_suffix(ASIDE)
            with suppress(FileNotFoundError):
                file.replace(aside)
                log.warning(
                    "a new sign-in takes the place of one that cannot be read, which is left as %s",
                    aside,
                )

    def _replace(self, file: Path, content: bytes) -> None:
        fresh = file.with_name(f".{file.stem}-{secrets.token_hex(6)}")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW, 0o600)
        try:
            with os.fdopen(handle, "wb") as opened:
                opened.write(content)
            rename_over(fresh, file)
        except BaseException:
            with suppress(OSError):
                fresh.unlink()
            raise

    def _left(self, file: Path) -> list[Path]:
        """What was begun to be written in its place."""
        return [] if self._folder is None else list(self._folder.glob(f".{file.stem}-*"))

    def _say(self, problem: str) -> None:
        if problem not in self._said:
            self._said.add(problem)
            log.warning("%s", problem)

    # Keys
    # ----------------------------------------------------------------------------------------------

    @cached_property
    def _secret(self) -> Secret | None:
        if self._folder is None:
            return None
        try:
            return sealing.given(self._environ) or sealing.from_keyring()
        except NoKeyring as error:
            if not error.absent:
                until = " until the next start" if error.slow else ""
                log.warning("%s: sign-ins are kept unencrypted%s", error, until)
            return None
