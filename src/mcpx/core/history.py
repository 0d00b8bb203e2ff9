"""What a configuration said before: revisions with their texts, kept in a folder or in memory.

Promised: bounded in number and in bytes; files are for this user alone; numbers go on after a
restart. A revision that cannot be read is left out, a folder that cannot be written costs the
history and nothing else. Texts are kept as they were, secrets included; showing them is for the
store, which masks.
"""

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast

from mcpx.wire.folders import private_folder, replace_private

log = logging.getLogger(__name__)

MOST = 200
"""Revisions that are kept."""
MOST_BYTES = 20 * 1024 * 1024
"""Bytes of their texts."""
Via = Literal["ui", "api", "cli", "file", "start"]
Kept = Mapping[str, str]
"""By path: what a file said."""


@dataclass(frozen=True, slots=True)
class Revision:
    number: int
    at: str
    by: str
    """Who proposed it: the file, a signal, somebody who asked."""
    plan: str
    """What it changed, in words."""
    via: Via = "start"
    author: str = ""
    message: str = ""
    etag: str = ""
    """Of the files as they were then."""


class History:
    """Kept in memory, newest last."""

    def __init__(self) -> None:
        self.revisions: list[Revision] = []
        self._texts: dict[int, Kept] = {}
        self._sizes: dict[int, int] = {}

    def add(self, revision: Revision, texts: Kept) -> None:
        self.revisions.append(revision)
        self._keep(revision, texts)
        while len(self.revisions) > 1 and (
            len(self.revisions) > MOST or sum(self._sizes.values()) > MOST_BYTES
        ):
            gone = self.revisions.pop(0)
            self._sizes.pop(gone.number, None)
            self._forget(gone.number)

    def replace_last(self, revision: Revision, texts: Kept) -> None:
        """`revision` has the number of the last one."""
        self.revisions[-1] = revision
        self._keep(revision, texts)

    def texts(self, number: int) -> Kept | None:
        return self._texts.get(number)

    def keeps(self, number: int) -> bool:
        return self._sizes.get(number, 0) > 0

    def _keep(self, revision: Revision, texts: Kept) -> None:
        self._texts[revision.number] = texts
        self._sizes[revision.number] = sum(
            len(path) + len(text.encode()) for path, text in texts.items()
        )

    def _forget(self, number: int) -> None:
        self._texts.pop(number, None)


class Outline(History):
    """Without the texts, for who only tells of it."""

    def _keep(self, revision: Revision, texts: Kept) -> None: ...


class Archive(History):
    """Kept in a folder: a file for each, its first line without the texts."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._works = True
        for file in self._files():
            if (revision := _outline(file)) is not None:
                self.revisions.append(revision)
                self._sizes[revision.number] = file.stat().st_size if revision.etag else 0

    def texts(self, number: int) -> Kept | None:
        try:
            _, _, body = (self._folder / _name(number)).read_text("utf-8").partition("\n")
            found = json.loads(body)
        except (OSError, ValueError):
            return self._texts.get(number)
        return cast(Kept, found) if isinstance(found, dict) else None

    def _files(self) -> list[Path]:
        try:
            names = sorted(
                name for name in os.listdir(self._folder) if re.fullmatch(r"\d{8}\.json", name)
            )
        except OSError:
            return []
        return [self._folder / name for name in names]

    def _keep(self, revision: Revision, texts: Kept) -> None:
        data = f"{json.dumps(asdict(revision))}\n{json.dumps(dict(texts), ensure_ascii=False)}\n".encode(
            errors="surrogatepass"
        )
        try:
            private_folder(self._folder.parent)
            private_folder(self._folder)
            replace_private(self._folder / _name(revision.number), data)
            self._sizes[revision.number] = len(data) if texts else 0
        except OSError as error:
            super()._keep(revision, texts)
            if self._works:
                self._works = False
                log.warning("the history of the configuration is kept in memory only: %s", error)

    def _forget(self, number: int) -> None:
        super()._forget(number)
        try:
            (self._folder / _name(number)).unlink(missing_ok=True)
        except OSError:
            pass  # it is tried again when the next start finds it


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def archive_folder(state: Path, config: Path, env: str | None) -> Path:
    """Where the history of a configuration is kept."""
    return state / "history" / hashlib.sha256(f"{config}\0{env or ''}".encode()).hexdigest()[:16]


def _name(number: int) -> str:
    return f"{number:08}.json"


def _outline(file: Path) -> Revision | None:
    try:
        with file.open("rb") as opened:
            found: Any = json.loads(opened.readline(100_000))
        known = {field.name for field in fields(Revision)}
        revision = Revision(**{key: value for key, value in found.items() if key in known})
        if file.name != _name(revision.number):
            return None
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    parts: list[Any] = [getattr(revision, name) for name in known if name != "number"]
    return revision if all(isinstance(part, str) for part in parts) else None
