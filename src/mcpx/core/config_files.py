"""The files of one configuration: read, edited, and validated, with or without a gateway.

Nothing here writes a file (`saving`) or changes a running gateway (`store`).
"""

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from mcpx.base.files import private_folder, replace_private
from mcpx.config import Config
from mcpx.config.edits import Edit, EditError, Where
from mcpx.config.load import Texts
from mcpx.config.problems import Told
from mcpx.model.errors import ConfigError

if TYPE_CHECKING:
    from mcpx.config.written import Written

log = logging.getLogger(__name__)

MOST = 200
"""Revisions that are kept."""
MOST_BYTES = 20 * 1024 * 1024
"""Bytes of their texts."""
Via = Literal["ui", "api", "cli", "file", "start"]
Kept = Mapping[str, str]
"""The text of each file, by path."""


@dataclass(frozen=True, slots=True)
class Revision:
    number: int
    at: str
    by: str
    """The cause of the change, such as "the file changed" or an author."""
    plan: str
    """What changed, in words."""
    via: Via = "start"
    author: str = ""
    message: str = ""
    etag: str = ""
    """Of the files of this revision."""


class History:
    def __init__(self, folder: Path | None = None) -> None:
        """Without a folder, texts are kept in memory."""
        self.revisions: list[Revision] = []
        """Oldest first."""
        self._folder = folder
        self._texts: dict[int, Kept] = {}
        self._sizes: dict[int, int] = {}
        if folder is not None:
            self._load(folder)

    def _load(self, folder: Path) -> None:
        for file in sorted(folder.glob("*.json")):
            revision = _read_revision(file)
            if revision is not None:
                self.revisions.append(revision)
                # A revision without an etag has no texts.
                self._sizes[revision.number] = file.stat().st_size * bool(revision.etag)

    @property
    def last(self) -> Revision:
        return self.revisions[-1]

    def add(self, revision: Revision, texts: Kept) -> None:
        self.revisions.append(revision)
        self._keep(revision, texts)
        while len(self.revisions) > 1 and self._is_full():
            number = self.revisions.pop(0).number
            self._sizes.pop(number, None)
            self._texts.pop(number, None)
            if self._folder is not None:
                _delete(self._folder / _name(number))

    def _is_full(self) -> bool:
        return len(self.revisions) > MOST or sum(self._sizes.values()) > MOST_BYTES

    def replace_last(self, revision: Revision, texts: Kept) -> None:
        """`revision` has the number of the last one."""
        self.revisions[-1] = revision
        self._keep(revision, texts)

    def texts(self, number: int) -> Kept | None:
        if self._folder is None or number in self._texts:
            return self._texts.get(number)
        try:
            _, _, body = (self._folder / _name(number)).read_text("utf-8").partition("\n")
            found = json.loads(body)
        except (OSError, ValueError):
            return None
        return cast(Kept, found) if isinstance(found, dict) else None

    def keeps(self, number: int) -> bool:
        """Whether the texts of a revision are available."""
        return self._sizes.get(number, 0) > 0

    def _keep(self, revision: Revision, texts: Kept) -> None:
        lines = json.dumps(asdict(revision)), json.dumps(dict(texts), ensure_ascii=False), ""
        data = "\n".join(lines).encode(errors="surrogatepass")
        self._sizes[revision.number] = len(data) * bool(texts)
        self._texts.pop(revision.number, None)
        if self._folder is not None:
            try:
                private_folder(self._folder.parent)
                private_folder(self._folder)
                replace_private(self._folder / _name(revision.number), data)
                return
            except OSError as error:
                if not self._texts:
                    log.warning(
                        "the history of the configuration is kept in memory only: %s", error
                    )
        self._texts[revision.number] = texts


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def archive_folder(state: Path, config: Path, env: str | None) -> Path:
    """The folder for the history of a configuration."""
    return state / "history" / hashlib.sha256(f"{config}\0{env or ''}".encode()).hexdigest()[:16]


def _name(number: int) -> str:
    return f"{number:08}.json"


def _delete(file: Path) -> None:
    try:
        os.unlink(file)
    except OSError:
        pass  # The next start finds the file, and it is deleted in its turn.


def _read_revision(file: Path) -> Revision | None:
    """The first line of a file, without the texts."""
    if not re.fullmatch(r"\d{8}\.json", file.name):
        return None
    known = {field.name for field in fields(Revision)}
    try:
        with file.open("rb") as opened:
            found: Any = json.loads(opened.readline(100_000))
        revision = Revision(**{key: value for key, value in found.items() if key in known})
        if file.name != _name(revision.number):
            return None
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    words: list[Any] = [getattr(revision, name) for name in known if name != "number"]
    return revision if all(isinstance(word, str) for word in words) else None


Read = Callable[[Texts | None], Config]
"""Reads the configuration. With texts, as if the files had these texts."""


class ConfigFiles:
    def __init__(self, where: Where | None, read: Read | None, *, is_new: bool = False) -> None:
        """`where` and `read` are None if the gateway has no config file.

        `is_new`: the file does not exist yet, and the first change creates it.
        """
        self._where = where
        self._read = read
        self.is_new = is_new
        self._seen: Written | None = None

    @property
    def where(self) -> Where | None:
        """The files that exist."""
        return None if self.is_new else self._where

    @property
    def destination(self) -> Path | None:
        """The file that the first change creates."""
        if self._where is None or not self.is_new:
            return None
        return self._where.path

    def look(self) -> "Written":
        from mcpx.config.written import nothing_written, read_written

        if self.where is None:
            return nothing_written()
        self._seen = read_written(self.where, known=self._seen)
        return self._seen

    def edited(self, written: "Written", edits: Edit | Sequence[Edit]) -> Texts:
        """The texts that differ after an edit. Raises `EditError`."""
        from mcpx.config.editing import edited
        from mcpx.config.written import read_written

        where = self._where
        if where is None:
            raise _no_file()
        new_file = where.path if self.is_new else None
        texts = edited(written, edits, lambda texts: read_written(where, texts), new_file)
        return changed_texts(written, texts)

    def judged(self, texts: Texts) -> Config:
        """The configuration with these texts. Raises `ConfigError`."""
        if self._read is None:
            raise _no_file()
        return self._read(texts)


def changed_texts(written: "Written", texts: Texts) -> Texts:
    current = {sheet.path: sheet.text for sheet in written.sheets}
    return {path: text for path, text in texts.items() if current.get(path) != text}


def told_of(error: ConfigError) -> tuple[Told, ...]:
    """The problems of a configuration, with their positions if they are known."""
    told: tuple[Told, ...] = getattr(error, "told", ())
    return told or tuple(Told(problem.removeprefix("error: ")) for problem in error.problems)


def _no_file() -> EditError:
    return EditError(
        "not_possible", "there is no config file to write to", hint="start mcpx with one"
    )
