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
from dataclasses import dataclass
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
    """`replaced`: entries of the client to disable, or to remove if the client cannot disable an
    entry."""
    refuse_link_out(place, file)
    before = content(file)
    reading = read(place, file, before or b"")
    made = entry(known, reading.shape, transport, target)
    text = connected(reading, made, asks(reading.shape, transport, target))
    after = before if text == reading.text and before is not None else reading.encoded(text)
    for own_place, names in _by_place(replaced):
        after = reading.encoded(without_own(read(own_place, file, after), names))
    own = tuple(replaced)
    return Change(
        "connect", known, place, file, before, after, old=reading.entry, new=made, replaced=own
    )


def places_in(known: Client, file: Path, project: Path) -> list[Place]:
    """The places in a file that have entries of the client. `~/.claude.json` has one for each
    project, too."""
    found: dict[tuple[tuple[str, ...], ...], Place] = {}
    for place in places_here(known, project):
        if Path(place.path) == file:
            found.setdefault(place.roots, place)
    return list(found.values())


def _by_place(own: Sequence[Own]) -> list[tuple[Place, list[str]]]:
    places = {each.place.roots: each.place for each in own}
    return [
        (place, [each.name for each in own if each.place.roots == roots])
        for roots, place in places.items()
    ]


def to_disconnect(known: Client, place: Place, file: Path, ledger: Ledger) -> Change | None:
    """None: there is no entry."""
    refuse_link_out(place, file)
    before = content(file)
    if before is None or (reading := read(place, file, before)).entry is None:
        return None
    as_it_was, record = _before_all(place, file, before, ledger)
    if record is not None:
        return Change(
            "disconnect", known, place, file, before, as_it_was, record=record, old=reading.entry
        )
    after = reading.encoded(without_entry(reading))
    records = [each for each in ledger.records() if each.file == str(file)]
    after = _with_own(known, file, after, records, ledger)
    return Change("disconnect", known, place, file, before, after, exact=False, old=reading.entry)


def _with_own(
    known: Client, file: Path, data: bytes, records: Sequence[Record], ledger: Ledger
) -> bytes:
    """The file with the client's own entries that `connect --replace` disabled or removed."""
    for record in reversed(records):
        for place in places_in(known, file, Path(record.project or ".")) if record.replaced else ():
            names = [name for label, name in record.replaced if label == place.label]
            with contextlib.suppress(OSError):
                former = read(place, file, ledger.before(record) or b"")
                now = read(place, file, data)
                entries = changed_by_us(now, former, names)
                data = now.encoded(with_own(now, entries)) if entries else data
    return data


def _before_all(
    place: Place, file: Path, now: bytes, ledger: Ledger
) -> tuple[bytes | None, Record | None]:
    """The file as it was before it was ever connected, where nobody else has changed it since."""
    state, found = digest(now), None
    for record in reversed([each for each in ledger.records() if each.file == str(file)]):
        if record.after != state:
            break
        state, found = record.before, record
    if found is None:
        return None, None
    with contextlib.suppress(OSError, ConfigError):
        before = ledger.before(found)
        if before is None or read(place, file, before).entry is None:
            return before, found
    return None, None


def to_undo(record: Record, ledger: Ledger) -> Change | None:
    """None: it is not there to be taken back any more. Raises `ConfigError`."""
    known, file = client(record.client), Path(record.file)
    place = None if known is None else _place(known, record)
    if known is None or place is None:
        return None
    refuse_link_out(place, file)
    now = content(file)
    if digest(now) == record.before:
        return None
    try:
        former = ledger.before(record)
        is_whole = True
    except OSError:
        former, is_whole = None, False
    then = _entry(place, file, former)
    if is_whole and digest(now) == record.after:
        return Change(
            "undo",
            known,
            place,
            file,
            now,
            former,
            record=record,
            old=_entry(place, file, now),
            new=then,
        )
    if now is None:
        return None
    reading = read(place, file, now)
    after = reading.encoded(without_entry(reading, then))
    after = _with_own(known, file, after, [record], ledger)
    if after == now:
        return None
    return Change(
        "undo",
        known,
        place,
        file,
        now,
        after,
        exact=False,
        record=record,
        old=reading.entry,
        new=then,
    )


def _entry(place: Place, file: Path, data: bytes | None) -> Json | None:
    with contextlib.suppress(ConfigError):  # none that could be read
        return read(place, file, data or b"").entry
    return None


def _place(known: Client, record: Record) -> Place | None:
    found = places_here(known, Path(record.project or "."))
    same = [place for place in found if place.label == record.label and place.scope == record.scope]
    return next((place for place in same if str(place.path) == record.file), next(iter(same), None))


# Making
# --------------------------------------------------------------------------------------------------


def make(change: Change, ledger: Ledger, run: str, project: Path) -> Path | None:
    """The copy of what was there, if one was kept. Raises `Overtaken` where somebody else wrote
    meanwhile, and `ConfigError` where it cannot be done."""
    if change.is_none:  # somebody has just done the same: a record of it would stand before theirs
        return None
    folders = _missing_folders(change.file)
    if change.kind == "undo":
        _write(change, folders)
        _forget(change, ledger)
        return None
    record = Record(
        new_id(change.client.id),
        run,
        change.client.id,
        str(change.file),
        digest(change.before),
        digest(change.after),
        [str(folder) for folder in folders],
        change.place.label,
        change.place.scope,
        str(project),
        [[each.place.label, each.name] for each in change.replaced],
    )
    try:
        copy = ledger.keep(
            record, change.before
        )  # first: what was written can always be taken back
    except OSError as error:
        raise ConfigError(
            [f"error: no copy of {change.file} can be kept: {error}. Nothing was changed"]
        ) from None
    try:
        _write(change, folders)
    except BaseException:
        ledger.drop(record)
        raise
    if change.kind == "disconnect":
        _forget(change, ledger, but=record)
    return copy


def _forget(change: Change, ledger: Ledger, but: Record | None = None) -> None:
    """What cannot be taken back any more: an undo takes the last one, a disconnect all of the
    file."""
    for record in ledger.records():
        mine = record.file == str(change.file) and record != but
        if mine and (
            change.kind == "disconnect" or (change.record and record.id >= change.record.id)
        ):
            ledger.drop(record)


def _missing_folders(file: Path) -> list[Path]:
    folder, missing = Path(os.path.realpath(file)).parent, list[Path]()
    while not os.path.lexists(folder):
        missing.insert(0, folder)
        folder = folder.parent
    return missing


def _write(change: Change, folders: Iterable[Path]) -> None:
    file = change.file
    refuse_link_out(change.place, file)
    try:
        if change.after is None:
            _remove(change)
            return
        for folder in folders:
            os.makedirs(folder, 0o755 if change.place.scope == "project" else 0o700, exist_ok=True)
        fresh = 0o644 if change.place.scope == "project" else 0o600
        replace_file(
            file, change.after, change.before, None if change.before is not None else fresh
        )
    except Unwritable as error:
        raise ConfigError([f"error: {error}"]) from None
    except OSError as error:
        raise ConfigError([f"error: {file}: {(error.strerror or str(error)).lower()}"]) from None


def _remove(change: Change) -> None:
    """A file that was made by a change that is taken back, and the folders that were made for it,
    if nothing else is in them."""
    if content(change.file) != change.before:
        raise Overtaken
    os.unlink(os.path.realpath(change.file))
    for folder in reversed(change.record.folders if change.record else []):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
