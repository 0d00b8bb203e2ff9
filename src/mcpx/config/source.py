"""One configuration file as text: read, parsed, and asked where something stands.

Promised: a bounded, regular, UTF-8 file or a reason; JSON with comments and trailing commas as editors write
it; a tree of bounded size and depth. Positions cost nothing until somebody asks for one. Not done here: what
the tree means.
"""

import os
import re
import stat
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from mcpx.config import jsonc
from mcpx.config.nodes import Node, place_of, spelling_of, values_of
from mcpx.config.problems import Findings, GaveUpError, Place, Spot
from mcpx.config.tree import KeyPath, Tree, as_map, shorten

MAX_BYTES = 1024 * 1024
"""Three thousand servers; small enough that the worst text of this size is refused within half a second."""

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
        raise UnreadableError(f"is not UTF-8 text (line {line}, byte 0x{data[error.start]:02x})") from None


class Source:
    """A file's text, its tree, and where the tree's parts stand in the text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = _shown(path)
        self.text = ""
        self._root: Node | None = None
        self._composed = False
        self._doubled = Findings(self.trace)

    def trace(self, path: KeyPath) -> Spot:
        return self, path

    @property
    def size(self) -> int:
        """Of the file as it is now; nothing when that cannot be told."""
        try:
            return os.stat(self.path).st_size
        except (OSError, ValueError):
            return 0

    def parse(self, findings: Findings) -> Tree:
        """The file's tree; raises `GaveUpError` when there is none to go on with."""
        findings = findings.through(self.trace)
        try:
            self.text = read_text(self.path)
        except UnreadableError as error:
            findings.add(f"{self.name} {error}")
            raise GaveUpError from None
        if not self.text.strip():
            findings.add(f"{self.name} is empty")
            raise GaveUpError
        tree = self._parse_json(findings) if self._is_json else self._parse_yaml(findings)
        table = as_map(tree)
        if table is None:
            holds = "only comments" if tree is None else "no mapping"
            findings.add(f"{self.name} holds {holds}: expected keys such as 'mcp_servers'")
            raise GaveUpError
        return table

    def line(self, number: int) -> str:
        """One line, counted from 1; nothing beyond the last."""
        return self._lines[number - 1] if number <= len(self._lines) else ""

    def place(self, path: KeyPath, at: Literal["key", "value"]) -> Place | None:
        """Where a field stands, or the nearest thing above it that is there."""
        root = self._nodes()
        return place_of(root, path, at) if root and path else None

    def literal(self, path: KeyPath) -> str | None:
        """How a scalar is spelled in the file: `1.10` is 1.1 as a number, and text in an environment."""
        return spelling_of(self._nodes(), path)

    @cached_property
    def _lines(self) -> list[str]:
        return re.split(_LINE_BREAK, self.text)

    @property
    def _is_json(self) -> bool:
        suffix = self.path.suffix.lower()
        if suffix in (".yaml", ".yml"):
            return False
        return suffix in (".json", ".jsonc") or self.text.lstrip()[0] in "{/"

    def _parse_yaml(self, findings: Findings) -> Any:
        from mcpx.config.compose import compose

        self._composed = True
        self._root = compose(self.text, findings)
        return values_of(self._root)

    def _parse_json(self, findings: Findings) -> Any:
        try:
            tree, doubled = jsonc.loads(self.text)
        except jsonc.NotJsonError as error:
            findings.add(str(error), place=error.place)
            raise GaveUpError from None
        if doubled and not self._nodes():
            findings.add(f"duplicate key {shorten(doubled)!r}")
        elif doubled:
            findings.include(self._doubled)
        return tree

    def _nodes(self) -> Node | None:
        """The nodes; those of JSON are made at the first question, by reading it as the YAML it nearly is."""
        if not self._composed:
            self._composed = True
            from mcpx.config.compose import compose

            try:
                self._root = compose(jsonc.as_yaml(self.text), self._doubled)
            except GaveUpError:  # then there are no places to tell
                pass
        return self._root


def _shown(path: Path) -> str:
    """As a terminal in the working folder can open it."""
    with suppress(ValueError, OSError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
