"""The configuration as it is written: its files at one moment, and the entries in them, in the
native shape.

Promised: references stay as they are, literal secrets are masked in all that is given out; the
`etag` tells one state of the files from every other. A file that cannot be read is no error: it is
told why, and there are no entries. Not done here: changing (`edits`), judging (`load`).
"""

import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from mcpx.config.dialects import detect
from mcpx.config.edits import NOUNS, EntrySection, PlainSection, Where
from mcpx.config.files import find_files
from mcpx.config.load import Layers, Texts, read_layers
from mcpx.config.masking import Masks, mask, outlined, secrets_written
from mcpx.config.problems import Findings, GaveUpError, Place, Told, explain
from mcpx.config.schema import Dialect
from mcpx.config.source import MAX_BYTES, Source, tree_of
from mcpx.config.textedit import TEXTUAL, Unchangeable, rewritten
from mcpx.config.tree import KeyPath, Tree, map_leaves, maps_in
from mcpx.model.call import Json
from mcpx.model.redaction import is_worth_hiding

__all__ = [
    "NOUNS",
    "Document",
    "Entry",
    "EntrySection",
    "PlainSection",
    "Sheet",
    "Where",
    "Written",
    "absolute",
    "mask_text",
    "masked_text",
    "nothing_written",
    "read_written",
    "spelled",
]

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Entry:
    section: EntrySection
    name: str
    value: Json
    """Native, references unexpanded, secrets masked."""
    file: Path
    line: int | None


@dataclass(frozen=True, slots=True)
class Document:
    """One file."""

    path: Path
    name: str
    """As somebody in the working folder calls it."""
    text: str
    """Secrets are masked."""
    dialect: Dialect
    overlay: bool
    format: Literal["yaml", "json", "toml"]

    @property
    def editable(self) -> bool:
        return self.format != "toml"


@dataclass(slots=True)
class Sheet:
    """A file with everything in it; not to be shown."""

    path: Path
    data: bytes = field(repr=False)
    text: str = field(repr=False)
    overlay: bool
    source: Source
    tree: Tree | None = field(default=None, repr=False)
    """None: it cannot be read."""

    @property
    def dialect(self) -> Dialect:
        return detect(self.tree or {}, self.source)

    def bytes_of(self, text: str) -> bytes:
        return (_BOM if self.data.startswith(_BOM) else b"") + text.encode()


class Written:
    def __init__(self, sheets: list[Sheet], layers: Layers | None, told: list[Told]) -> None:
        self.sheets = sheets
        self.layers = layers
        self.told = tuple(told)
        """Why it cannot be read; then there are no entries."""
        self._entries: dict[EntrySection, tuple[Entry, ...]] = {}
        self.etag = etag_of({sheet.path.name: sheet.data for sheet in sheets})

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """Base files, then overlays; none while there is no file."""
        return tuple(
            Document(s.path, s.source.name, masked_text(s), s.dialect, s.overlay, s.source.form)
            for s in self.sheets
        )

    def text(self, file: Path | None = None) -> str:
        """Masked; of the first file where none is named."""
        return next((each.text for each in self.documents if file in (None, each.path)), "")

    def outlines(self) -> list[tuple[Document, Tree | None]]:
        """Each file with its content for a report: masked, without values of environments and
        without arguments."""
        trees = (
            None if sheet.tree is None else outlined(mask(sheet.tree)) for sheet in self.sheets
        )
        return list(zip(self.documents, trees, strict=True))

    def entries(self, section: EntrySection) -> list[Entry]:
        """Made once; what is in them is not to be changed."""
        if section not in self._entries:
            self._entries[section] = tuple(self._found(section))
        return list(self._entries[section])

    def _found(self, section: EntrySection) -> Iterator[Entry]:
        for index, name in self.names(section):
            file, path = (
                self.layers.whole.origins.trace((section, index)) if self.layers else (None, ())
            )
            if isinstance(file, Source):
                place: Place | None = file.place(path, "key")
                masked = mask({section: [self.native(section, index)]})
                value = cast(Json, masked[section][0])
                line = None
                if place is not None:
                    line = place.line
                yield Entry(section, name, value, absolute(file.path), line)

    def entry(self, section: EntrySection, name: str) -> Entry | None:
        return next((entry for entry in self.entries(section) if entry.name == name), None)

    def section(self, section: PlainSection) -> Any:
        """Masked; None where the files do not say it."""
        value = (self.layers.whole.tree if self.layers else {}).get(section)
        return mask({section: value})[section]

    def place(self, path: KeyPath) -> tuple[Path, int | None] | None:
        """Where something of the native shape stands: `("policy", "rules", 2)`."""
        if self.layers is None:
            return None
        file, own = self.layers.whole.origins.trace(path)
        if not isinstance(file, Source):
            return None
        place = file.place(own, "key")
        return absolute(file.path), None if place is None else place.line

    @cached_property
    def secrets(self) -> dict[str, Any]:
        """All secrets by the names of their masks. Not to be shown."""
        found: dict[str, Any] = {}
        for sheet in self.sheets:
            found |= masks_of(sheet)[1].secrets
        if self.layers is not None:
            for section in self.layers.whole.tree:
                masks = Masks()
                masks.of_tree({section: self.layers.whole.tree[section]})
                found |= masks.secrets
        return found

    # With everything in it, for `edits`

    def names(self, section: EntrySection) -> list[tuple[int, str]]:
        tree = self.layers.whole.tree if self.layers else {}
        return [(index, str(entry.get("name", ""))) for index, entry in maps_in(tree.get(section))]

    def native(self, section: EntrySection, index: int) -> Tree:
        """An entry as it is written, unmasked; what is text however it is spelled is spelled so."""
        assert self.layers is not None
        whole = self.layers.whole
        entry = spelled(whole.tree[section][index], (section, index), whole.origins.literal)
        if "default_timeout" in entry and section == "mcp_servers":
            timeout = entry.pop("default_timeout")
            entry.setdefault("timeout", timeout)
        return entry


def spelled(value: Any, path: KeyPath, literal: Any) -> Any:
    """What is text however it is spelled (`PORT: 8080`), as it is spelled."""

    def written(value: Any, path: KeyPath) -> Any:
        if isinstance(value, str) or value is None or path[-2] not in TEXTUAL:
            return value
        return literal(path) or value

    return map_leaves(value, written, path)


def read_written(where: Where, texts: Texts | None = None, known: Written | None = None) -> Written:
    """The files as they are now. `texts`: what some are taken to say, there or not. `known`: how
    they were, which is given back if they still are."""
    texts = texts or {}
    findings = Findings(Source(where.path).trace)
    layers = None
    sheets: list[Sheet] = []
    try:
        env = where.env or where.environ.get("MCPX_ENV")
        files = find_files(where.path, env, findings)
        sheets = [_sheet(file, texts, overlay=False) for file in files.base]
        sheets += [_sheet(file, texts, overlay=True) for file in files.overlays]
        if known is not None and known.etag == etag_of(
            {sheet.path.name: sheet.data for sheet in sheets}
        ):
            return known
        said = {sheet.path: sheet.text for sheet in sheets if sheet.source.is_given}
        layers = read_layers(where.path, where.environ, where.env, findings, [], said)
        for sheet, (source, _) in zip(sheets, layers.written, strict=True):
            sheet.source, sheet.tree = source, source.tree
    except GaveUpError:
        _read_alone(sheets)
    return Written(sheets, None if findings else layers, explain(findings))


def nothing_written() -> Written:
    """While there is no file."""
    return Written([], None, [])


def _read_alone(sheets: list[Sheet]) -> None:
    """What of several files can be read can be shown."""
    for sheet in sheets:
        findings = Findings(sheet.source.trace)
        try:
            sheet.tree = sheet.source.parse(findings)
        except GaveUpError:
            continue
        if findings:
            sheet.tree = None


def _sheet(file: Path, texts: Texts, *, overlay: bool) -> Sheet:
    path = absolute(file)
    try:
        data = _bytes(path)
    except OSError:
        data = b""
    given = texts.get(path)
    if given is not None:
        data = (_BOM if data.startswith(_BOM) else b"") + given.encode(errors="replace")
    text = data.decode("utf-8-sig", errors="replace")
    # One that cannot be read as it should is read again, for what to say of it.
    good = data and len(data) <= MAX_BYTES and (given is not None or "\ufffd" not in text)
    source = Source(file, text if good else None)
    source.text = text
    return Sheet(path, data, text, overlay, source)


def _bytes(path: Path) -> bytes:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError("not a regular file")  # a pipe nobody writes to would hold us for ever
    with path.open("rb") as file:
        return file.read(16 * MAX_BYTES)


def absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))


def etag_of(contents: Mapping[str, bytes]) -> str:
    """By name: all files of a configuration lie in one folder, and the same files elsewhere are the
    same."""
    digest = hashlib.sha256()
    for name, data in contents.items():
        digest.update(f"{name}\0{len(data)}\0".encode(errors="surrogateescape") + data)
    return digest.hexdigest()[:32]


def masked_text(sheet: Sheet) -> str:
    return masks_of(sheet)[0]


def masks_of(sheet: Sheet) -> tuple[str, Masks]:
    """The masked text of a file, and its masks."""
    masks = Masks()
    return mask_text(sheet.text, sheet.source.form, sheet.tree, masks), masks


def mask_text(
    text: str, form: str, tree: Tree | None, masks: Masks, hidden: Collection[str] = ()
) -> str:
    """`hidden`: secrets to mask in a text that cannot be read."""
    if tree is None:
        return masks.of_text(text, filter(is_worth_hiding, hidden))
    if form == "yaml" or form == "json":
        try:
            return masks.of_comments(rewritten(text, form, masks.of_tree(tree)))
        except Unchangeable:
            pass
    return masks.of_text(text, secrets_written(tree))


LONG_LINE = 80
"""Characters of a line with an object from which JSON is formatted anew for a diff."""


def in_lines(before: str, after: str) -> tuple[str, str]:
    """Format two JSON texts in several lines, if one of them has an object on a long line.

    Texts that are not JSON or have comments do not change.
    """
    if not _has_long_line(before) and not _has_long_line(after):
        return before, after
    formatted = [_formatted(text) for text in (before, after)]
    if None in formatted:
        return before, after
    return str(formatted[0]), str(formatted[1])


def _has_long_line(text: str) -> bool:
    lines = text.strip().splitlines()
    if not text.lstrip().startswith("{"):
        return False
    return len(lines) == 1 or any(len(line) > LONG_LINE and "{" in line for line in lines)


def _formatted(text: str) -> str | None:
    if not text.strip():
        return text
    if not text.lstrip().startswith("{") or (tree := tree_of(text.strip(), "json")) is None:
        return None
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"
