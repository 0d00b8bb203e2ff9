"""What was changed in the files of client programs, so that it can be taken back.

Promised: each change is a record and a copy of the file as it was, both for this user alone, in the
state folder: no copy of somebody's secrets lies beside the file, or goes into a project's history.
Records stand side by side, so that two programs at once do not lose one. Of a file the last ones
are kept. Not done here: what is done with them.
"""

import contextlib
import hashlib
import json
import os
import secrets
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mcpx.base.files import private_folder, replace_private

KEPT = 20
"""Records of one file: more than anybody takes back."""


def digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    id: str
    """Sorts by time."""
    run: str
    """What was changed by one command has one."""
    client: str
    file: str
    before: str
    """What was there; nothing: the file was not."""
    after: str
    folders: list[str] = field(default_factory=list[str])
    """Made for the file, the uppermost first."""
    label: str = ""
    scope: str = "user"
    project: str = ""
    """The folder that was the project."""
    replaced: list[list[str]] = field(default_factory=list[list[str]])
    """The client's own entries that were disabled or removed: the label of their place, and the
    name."""


class Ledger:
    def __init__(self, state: Path) -> None:
        self._folder = state / "clients"

    def records(self) -> list[Record]:
        """The oldest first. What cannot be read is passed over: it is comfort."""
        found: list[Record] = []
        for file in sorted(self._folder.glob("*.json")) if self._folder.is_dir() else ():
            with contextlib.suppress(OSError, ValueError, TypeError):
                told: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
                found.append(Record(**told))
        return found

    def records_of(self, file: Path) -> list[Record]:
        return [record for record in self.records() if record.file == str(file)]

    def keep(self, record: Record, before: bytes | None) -> Path | None:
        """The copy, if there was something to copy."""
        private_folder(self._folder)
        copy = None if before is None else self._folder / f"{record.id}.backup"
        if copy is not None and before is not None:
            replace_private(copy, before)
        replace_private(
            self._folder / f"{record.id}.json", json.dumps(asdict(record), indent=2).encode()
        )
        for old in self.records_of(Path(record.file))[:-KEPT]:
            self.drop(old)
        return copy

    def before(self, record: Record) -> bytes | None:
        """The file as it was; None where it was not there. Raises an OSError where the copy is gone
        or not whole."""
        if not record.before:
            return None
        data = (self._folder / f"{record.id}.backup").read_bytes()
        if digest(data) != record.before:
            raise OSError(f"the copy {record.id}.backup is not whole")
        return data

    def drop(self, record: Record) -> None:
        for suffix in (".json", ".backup"):
            with contextlib.suppress(OSError):
                os.unlink(self._folder / f"{record.id}{suffix}")


def new_id(client: str) -> str:
    moment = time.time()
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(moment))
    return f"{stamp}.{int(moment % 1 * 1e6):06d}-{client}-{secrets.token_hex(3)}"
