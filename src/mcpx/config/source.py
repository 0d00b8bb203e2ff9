"""One configuration file as text: read, parsed, and asked where something stands.

Promised: a bounded, regular, UTF-8 file or a reason; YAML, JSON as editors write it, or TOML; a
tree of bounded size and depth. Not done here: what the tree means.
"""

import os
import re
import stat
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Literal

from mcpx.config.json_reader import read_json
from mcpx.config.nodes import MAX_NODES, Node, place_of, spelling_of, values_of
from mcpx.config.problems import Findings, GaveUpError, Place, Spot
from mcpx.config.tree import KeyPath, Tree, as_map

MAX_BYTES = 1024 * 1024
"""Three thousand servers; small enough that the worst text of this size is refused within half a
second."""

_LINE_BREAK = "\r\n|[\n\r\x85\u2028\u2029]"


class UnreadableError(Exception):
    """Why a file cannot be read, in words that follow its name."""


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            # A pipe nobody writes to would hold us for ever.
            raise UnreadableError("is a folder" if stat.S_ISDIR(mode) else "is not a regular file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise UnreadableError("does not exist") from None
    except OSError as error:
        raise UnreadableError(f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError:  # a NUL in the name
        raise UnreadableError("is not a possible file name") from None
    if len(data) > limit:
        raise UnreadableError(f"is larger than {limit:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise UnreadableError("is UTF-16 text; save it as UTF-8") from None
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableError(
            f"is not UTF-8 text (line {line}, byte 0x{data[error.start]:02x})"
        ) from None


class Source:
    """A file's text, its tree, and where the tree's parts stand in the text."""

    def __init__(self, path: Path, text: str | None = None, most: int = MAX_NODES) -> None:
        """`text`: what it is taken to say, instead of what stands in it. `most`: values of JSON."""
        self.path = path
        self._given = text
        self._most = most
        self.name = _shown(path)
        self.text = ""
        self._root: Node | None = None

    def trace(self, path: KeyPath) -> Spot:
        return self, path

    @property
    def is_given(self) -> bool:
        """Whether it is taken to say something, whatever stands in it."""
        return self._given is not None

    @property
    def size(self) -> int:
        """Of the file as it is now; nothing when that cannot be told."""
        if self._given is not None:
            return len(self._given)
        try:
            return os.stat(self.path).st_size
        except (OSError, ValueError):
            return 0

    def parse(self, findings: Findings) -> Tree:
        """The file's tree; raises `GaveUpError` when there is none to go on with."""
        findings = findings.through(self.trace)
        try:
            self.text = read_text(self.path) if self._given is None else self._given
        except UnreadableError as error:
            findings.add(f"{self.name} {error}")
            raise GaveUpError from None
        if not self.text.strip():
            findings.add(f"{self.name} is empty")
            raise GaveUpError
        self._root = self._read(findings)
        tree = values_of(self._root)
        table = as_map(tree)
        if table is None:
            holds = "only comments" if tree is None else "no mapping"
            findings.add(f"{self.name} holds {holds}: expected keys such as 'mcp_servers'")
            raise GaveUpError
        return table

    @property
    def tree(self) -> Tree:
        """What was parsed, anew each time: others work into theirs."""
        return as_map(values_of(self._root)) or {}

    def line(self, number: int) -> str:
        """One line, counted from 1; nothing beyond the last."""
        return self._lines[number - 1] if number <= len(self._lines) else ""

    def place(self, path: KeyPath, at: Literal["key", "value"]) -> Place | None:
        """Where a field stands, or the nearest thing above it that is there."""
        return place_of(self._root, path, at) if self._root and path else None

    def literal(self, path: KeyPath) -> str | None:
        """How a scalar is spelled in the file: `1.10` is 1.1 as a number, and text in an
        environment."""
        return spelling_of(self._root, path)

    @property
    def is_toml(self) -> bool:
        return self.path.suffix.lower() == ".toml"

    @cached_property
    def _lines(self) -> list[str]:
        return re.split(_LINE_BREAK, self.text)

    @property
    def form(self) -> Literal["yaml", "json", "toml"]:
        """How it is written."""
        suffix = self.path.suffix.lower()
        if self.is_toml:
            return "toml"
        if suffix in (".json", ".jsonc") or (
            suffix not in (".yaml", ".yml") and self.text.lstrip()[:1] in ("{", "/")
        ):
            return "json"
        return "yaml"

    def _read(self, findings: Findings) -> Node | None:
        if self.form == "toml":
            from mcpx.config.toml_reader import read_toml

            return read_toml(self.text, findings)
        return _read_text(self.text, self.form, findings, self._most)


def _read_text(text: str, form: str, findings: Findings, most: int = MAX_NODES) -> Node | None:
    if form == "json":
        starts = [0, *(found.end() for found in re.finditer(_LINE_BREAK, text))]
        return read_json(text, starts, findings, most)
    from mcpx.config.compose import compose

    return compose(text, findings)


def tree_of(text: str, form: Literal["yaml", "json"]) -> Tree | None:
    """What a text says; None where it cannot be read without a finding."""
    findings = Findings(Source(Path()).trace)
    try:
        tree = as_map(values_of(_read_text(text, form, findings)))
    except GaveUpError:
        return None
    return None if findings else tree


def _shown(path: Path) -> str:
    """As a terminal in the working folder can open it."""
    with suppress(ValueError, OSError):
        here = Path.cwd()
        return str(
            path if here == Path(here.anchor) else path.relative_to(here)
        )  # below / everything is, and misread
    return str(path)
