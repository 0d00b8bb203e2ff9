"""One configuration file: its text, its values, and their positions."""

import os
import stat
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Literal

from mcpx.config.json_reader import read_json, read_toml
from mcpx.config.nodes import MAX_NODES, Lines, Node, span_of, spelling_of, values_of
from mcpx.config.problems import Findings, GaveUpError, Place, Spot
from mcpx.config.tree import KeyPath, Tree, as_map

MAX_BYTES = 1024 * 1024
"""3,000 servers. The worst text of this size is refused within half a second."""

Form = Literal["yaml", "json", "toml"]


class UnreadableError(Exception):
    """The message follows the name of the file."""


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise UnreadableError("is a folder")
        if not stat.S_ISREG(mode):  # Opening a pipe without a writer would block.
            raise UnreadableError("is not a regular file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        raise UnreadableError("does not exist") from None
    except OSError as error:
        raise UnreadableError(f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    except ValueError:  # A NUL in the name.
        raise UnreadableError("is not a possible file name") from None
    if len(data) > limit:
        raise UnreadableError(f"is larger than {limit:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise UnreadableError("is UTF-16 text; save it as UTF-8") from None
        line = data.count(b"\n", 0, error.start) + 1
        where = f"line {line}, byte 0x{data[error.start]:02x}"
        raise UnreadableError(f"is not UTF-8 text ({where})") from None


class Source:
    def __init__(self, path: Path, text: str | None = None, max_nodes: int = MAX_NODES) -> None:
        """`text` replaces the content of the file. `max_nodes` applies to JSON."""
        self.path = path
        self._given = text
        self._max_nodes = max_nodes
        self.name = _shown(path)
        self.text = ""
        self._root: Node | None = None

    def trace(self, path: KeyPath) -> Spot:
        return self, path

    @property
    def is_given(self) -> bool:
        return self._given is not None

    @property
    def size(self) -> int:
        """Bytes of the file now, or 0 if it cannot be determined."""
        if self._given is not None:
            return len(self._given)
        try:
            return os.stat(self.path).st_size
        except (OSError, ValueError):
            return 0

    def parse(self, findings: Findings) -> Tree:
        """Raises GaveUpError if there is no tree."""
        findings = findings.through(self.trace)
        try:
            self.text = read_text(self.path) if self._given is None else self._given
        except UnreadableError as error:
            findings.add(f"{self.name} {error}")
            raise GaveUpError from None
        if not self.text.strip():
            findings.add(f"{self.name} is empty")
            raise GaveUpError
        self._root = read_nodes(self.text, self.form, findings, self._max_nodes)
        tree = values_of(self._root)
        table = as_map(tree)
        if table is None:
            content = "no mapping"
            if tree is None:
                content = "only comments"
            findings.add(f"{self.name} holds {content}: expected keys such as 'mcp_servers'")
            raise GaveUpError
        return table

    @property
    def tree(self) -> Tree:
        """A new copy of what was parsed."""
        return as_map(values_of(self._root)) or {}

    def line(self, number: int) -> str:
        """Return an empty string behind the last line."""
        return self._lines.line(number)

    def place(self, path: KeyPath, at: Literal["key", "value"]) -> Place | None:
        """The position of a field, or of the nearest parent that exists."""
        if self._root is None or not path:
            return None
        return self._lines.place(*span_of(self._root, path, at))

    def literal(self, path: KeyPath) -> str | None:
        """A scalar as written: `1.10` is the number 1.1, and the text "1.10" in an environment."""
        return spelling_of(self._root, path)

    @property
    def is_toml(self) -> bool:
        return self.form == "toml"

    @cached_property
    def _lines(self) -> Lines:
        return Lines(self.text)

    @property
    def form(self) -> Form:
        suffix = self.path.suffix.lower()
        if suffix == ".toml":
            return "toml"
        if suffix in (".json", ".jsonc"):
            return "json"
        if suffix not in (".yaml", ".yml") and self.text.lstrip()[:1] in ("{", "/"):
            return "json"
        return "yaml"


def read_nodes(
    text: str, form: Form, findings: Findings, max_nodes: int = MAX_NODES
) -> Node | None:
    """Raises GaveUpError."""
    if form == "toml":
        return read_toml(text, findings)
    if form == "json":
        return read_json(text, findings, max_nodes)
    from mcpx.config.yaml_reader import read_yaml  # Importing YAML takes longer than reading JSON.

    return read_yaml(text, findings)


def root_of(text: str, form: Form, max_nodes: int = MAX_NODES) -> Node | None:
    """Return None if the text has no values or has mistakes."""
    findings = Findings(Source(Path()).trace)
    try:
        root = read_nodes(text, form, findings, max_nodes)
    except GaveUpError:
        return None
    if findings:
        return None
    return root


def tree_of(text: str, form: Form) -> Tree | None:
    """Return None if the text is not a map or has mistakes."""
    return as_map(values_of(root_of(text, form)))


def _shown(path: Path) -> str:
    """The path as a terminal in the working folder can open it."""
    with suppress(ValueError, OSError):
        here = Path.cwd()
        if here != Path(here.anchor):  # Below / every path is relative to it.
            return str(path.relative_to(here))
    return str(path)
