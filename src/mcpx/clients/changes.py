"""Changes of the files of client programs: planned, shown, made, taken back.

Promised: nothing is written by planning. A change is made at once or not at all, of the file as it
was when it was planned: who wrote meanwhile is not overwritten (`Overtaken`). Mode and links stay.
A change that is taken back gives the file as it was byte for byte, where nobody has changed it
since; else only the entry goes, or the former one comes back. Not done here: asking, telling.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from mcpx.clients.catalogue import Client, Place, client, places_here
from mcpx.clients.entry import Json, Target, asks, entry
from mcpx.clients.ledger import Ledger, Record, digest, new_id
from mcpx.clients.texts import (
    MAX_BYTES,
    Reading,
    changed_by_us,
    connected,
    read,
    with_own,
    without_entry,
    without_own,
)
from mcpx.core.saving import Overtaken, Unwritable, replace_file
from mcpx.model.errors import ConfigError

Kind = Literal["connect", "disconnect", "undo"]


@dataclass(frozen=True, slots=True)
class Own:
    """An entry of the client itself."""

    place: Place
    name: str


@dataclass(frozen=True, slots=True)
class Change:
    """One file, as it is and as it would be."""

    kind: Kind
    client: Client
    place: Place
    file: Path
    before: bytes | None
    """None: it is not there."""
    after: bytes | None
    """None: it goes."""
    exact: bool = True
    """Of an undo: the file is as it was before, byte for byte."""
    record: Record | None = None
    """What is taken back by it."""
    old: Json | None = None
    new: Json | None = None
    """The gateway's entry, before and after."""
    replaced: tuple[Own, ...] = ()
    """The client's own entries that are disabled or removed."""

    @property
    def is_none(self) -> bool:
        return self.before == self.after


# Finding
# --------------------------------------------------------------------------------------------------


def files_of(known: Client, project: Path, *, in_project: bool) -> list[tuple[Place, Path]]:
    """The files that an entry belongs into: all that are there; else those of which the folder is;
    else the first."""
    scope = "project" if in_project else "user"
    groups: dict[str, list[Place]] = {}
    for place in places_here(known, project):
        if place.scope == scope and not place.spec.reads:
            groups.setdefault(place.label, []).append(place)
    chosen = [next((each for each in group if each.there()), group[0]) for group in groups.values()]
    there = [place for place in chosen if place.there()]
    signed = [place for place in chosen if not in_project and Path(place.sign).exists()]
    several = there + [place for place in signed if place not in there]
    return [(place, Path(place.path)) for place in several or chosen[:1]]


def is_used_here(known: Client, project: Path, *, in_project: bool) -> bool:
    """Whether there is a sign of it on this machine, or in this project: a file, a folder, a
    program."""
    scope = "project" if in_project else "user"
    places = [place for place in places_here(known, project) if place.scope == scope]
    signs = [Path(place.sign) for place in places if Path(place.sign) != project]
    if any(place.there() for place in places) or any(sign.exists() for sign in signs):
        return True
    return not in_project and _is_installed(known)


def _is_installed(known: Client) -> bool:
    return any(shutil.which(program) for program in known.programs) or any(
        map(os.path.isdir, known.apps)
    )


def content(file: Path) -> bytes | None:
    """Raises `ConfigError` for what is no plain file."""
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise ConfigError([f"error: {file} is not a plain file; nothing was changed"])
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError([f"error: {file} cannot be read: {reason}"]) from None
    if len(data) > MAX_BYTES:
        raise ConfigError(
            [f"error: {file} is larger than {MAX_BYTES:,} bytes; nothing was changed"]
        )
    return data


def refuse_link_out(place: Place, file: Path) -> None:
    """Raises `ConfigError` if symbolic links lead from a file of a project out of the project."""
    if place.project is None:
        return
    folder, real = os.path.realpath(place.project), os.path.realpath(file)
    if not real.startswith(os.path.join(folder, "")):
        raise ConfigError(
            [
                f"error: {file} is a symbolic link to {real}, outside of the project. The file "
                "was not changed\n"
                "  replace the link with a file, or edit the file by hand (--print shows the entry)"
            ]
        )


def look(place: Place, file: Path) -> Reading | None:
    refuse_link_out(place, file)
    data = content(file)
    return None if data is None else read(place, file, data)


# Planning
# --------------------------------------------------------------------------------------------------


def to_connect(
    known: Client,
    place: Place,
    file: Path,
    transport: Literal["http", "stdio"],
    target: Target,
    replaced: Sequence[Own] = (),
) -> Change:
    """`replaced`: entries of the client to disable, or to remove if it cannot disable them."""
    refuse_link_out(place, file)
    before = content(file)
    reading = read(place, file, before or b"")
    made = entry(known, reading.shape, transport, target)
    text = connected(reading, made, asks(reading.shape, transport, target))
    after = before
    if before is None or text != reading.text:
        after = reading.encoded(text)
    for own_place in {own.place.roots: own.place for own in replaced}.values():
        names = [own.name for own in replaced if own.place.roots == own_place.roots]
        after = reading.encoded(without_own(read(own_place, file, after or b""), names))
    own = tuple(replaced)
    old = reading.entry
    return Change("connect", known, place, file, before, after, old=old, new=made, replaced=own)


def places_in(known: Client, file: Path, project: Path) -> list[Place]:
    """The places in a file that have entries of the client. `~/.claude.json` has several."""
    places = [place for place in places_here(known, project) if Path(place.path) == file]
    return list({place.roots: place for place in reversed(places)}.values())[::-1]


def to_disconnect(known: Client, place: Place, file: Path, ledger: Ledger) -> Change | None:
    """Returns None if there is no entry of the gateway."""
    refuse_link_out(place, file)
    before = content(file)
    if before is None:
        return None
    reading = read(place, file, before)
    if reading.entry is None:
        return None
    records = ledger.records_of(file)
    change = Change("disconnect", known, place, file, before, None, old=reading.entry)
    record = _unchanged_since(records, digest(before))
    with contextlib.suppress(OSError, ConfigError):
        former = record and ledger.before(record)
        if record is not None and (former is None or read(place, file, former).entry is None):
            return replace(change, after=former, record=record)
    after = _with_own(known, file, reading.encoded(without_entry(reading)), records, ledger)
    return replace(change, after=after, exact=False)


def _unchanged_since(records: Sequence[Record], state: str) -> Record | None:
    """The oldest of the changes since which only mcpx has written the file."""
    found = None
    for record in reversed(records):
        if record.after != state:
            break
        state, found = record.before, record
    return found


def _with_own(
    known: Client, file: Path, data: bytes, records: Sequence[Record], ledger: Ledger
) -> bytes:
    """The file with the client's entries that `connect --replace` disabled or removed."""
    for record in reversed(records):
        for place in places_in(known, file, Path(record.project or ".")):
            names = [name for label, name in record.replaced if label == place.label]
            if not names:
                continue
            with contextlib.suppress(OSError):
                former = read(place, file, ledger.before(record) or b"")
                now = read(place, file, data)
                entries = changed_by_us(now, former, names)
                if entries:
                    data = now.encoded(with_own(now, entries))
    return data


def to_undo(record: Record, ledger: Ledger) -> Change | None:
    """Returns None if the change was already undone. Raises ConfigError."""
    known, file = client(record.client), Path(record.file)
    place = known and _place(known, record)
    if known is None or place is None:
        return None
    refuse_link_out(place, file)
    now = content(file)
    if digest(now) == record.before:
        return None
    former, is_complete = None, False
    with contextlib.suppress(OSError):
        former, is_complete = ledger.before(record), True
    old, new = _entry(place, file, now), _entry(place, file, former)
    change = Change("undo", known, place, file, now, former, True, record, old, new)
    if is_complete and digest(now) == record.after:
        return change
    if now is None:
        return None
    reading = read(place, file, now)
    after = reading.encoded(without_entry(reading, new))
    after = _with_own(known, file, after, [record], ledger)
    if after == now:
        return None
    return replace(change, after=after, exact=False)


def _entry(place: Place, file: Path, data: bytes | None) -> Json | None:
    with contextlib.suppress(ConfigError):
        return read(place, file, data or b"").entry
    return None


def _place(known: Client, record: Record) -> Place | None:
    found = places_here(known, Path(record.project or "."))
    same = [place for place in found if place.label == record.label and place.scope == record.scope]
    return min(same, key=lambda place: str(place.path) != record.file, default=None)


# Making
# --------------------------------------------------------------------------------------------------


def make(change: Change, ledger: Ledger, run: str, project: Path) -> Path | None:
    """Write the file, and return the copy of the old file if one was kept.

    Raises Overtaken if another program has changed the file, and ConfigError.
    """
    if change.is_none:  # Another mcpx has made the change, and its record comes first.
        return None
    folders = _missing_folders(change.file)
    if change.kind == "undo":
        _write(change, folders)
        _forget(change, ledger)
        return None
    record = Record(
        id=new_id(change.client.id),
        run=run,
        client=change.client.id,
        file=str(change.file),
        before=digest(change.before),
        after=digest(change.after),
        folders=list(map(str, folders)),
        label=change.place.label,
        scope=change.place.scope,
        project=str(project),
        replaced=[[each.place.label, each.name] for each in change.replaced],
    )
    try:
        copy = ledger.keep(record, change.before)  # Before the change, so that it can be undone.
    except OSError as error:
        problem = f"no copy of {change.file} can be kept: {error}. Nothing was changed"
        raise ConfigError([f"error: {problem}"]) from None
    try:
        _write(change, folders)
    except BaseException:
        ledger.drop(record)
        raise
    if change.kind == "disconnect":
        _forget(change, ledger, but=record)
    return copy


def _forget(change: Change, ledger: Ledger, but: Record | None = None) -> None:
    """Drop records that can no longer be undone: by an undo the newer ones, else all."""
    since = change.record.id if change.kind == "undo" and change.record else ""
    for record in ledger.records_of(change.file):
        if record != but and record.id >= since:
            ledger.drop(record)


def _missing_folders(file: Path) -> list[Path]:
    parents = Path(os.path.realpath(file)).parents
    return [folder for folder in parents if not os.path.lexists(folder)][::-1]


def _write(change: Change, folders: Iterable[Path]) -> None:
    file, is_project = change.file, change.place.scope == "project"
    refuse_link_out(change.place, file)
    try:
        if change.after is None:
            _remove(change)
            return
        for folder in folders:
            os.makedirs(folder, 0o755 if is_project else 0o700, exist_ok=True)
        mode = None
        if change.before is None:
            mode = 0o644 if is_project else 0o600
        replace_file(file, change.after, change.before, mode)
    except Unwritable as error:
        raise ConfigError([f"error: {error}"]) from None
    except OSError as error:
        raise ConfigError([f"error: {file}: {(error.strerror or str(error)).lower()}"]) from None


def _remove(change: Change) -> None:
    """Remove a file that mcpx created, and the empty folders that it created for it."""
    if content(change.file) != change.before:
        raise Overtaken
    os.unlink(os.path.realpath(change.file))
    for folder in reversed(change.record.folders if change.record else []):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
