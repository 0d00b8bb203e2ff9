"""Changes of a configuration, as values.

Promised: they say what shall be, not how it is written; `editing` makes them. What is nested so
deeply that no reader would take it is refused (`refuse_deep`) before anything walks through it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mcpx.config.nodes import MAX_DEPTH
from mcpx.config.tree import KeyPath, is_deeper, spell
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError

EntrySection = Literal["mcp_servers", "commands", "auth_configs", "profiles"]
PlainSection = Literal["mode", "naming", "server", "policy", "global"]
NOUNS: dict[str, str] = {
    "mcp_servers": "server",
    "commands": "command",
    "auth_configs": "auth config",
    "profiles": "profile",
}
Code = Literal["not_found", "exists", "invalid", "not_possible"]


@dataclass(frozen=True, slots=True)
class Where:
    """Which configuration."""

    path: Path
    """The file or folder, absolute."""
    environ: Mapping[str, str] = field(repr=False)
    env: str | None = None


@dataclass(frozen=True, slots=True)
class PutEntry:
    """Add an entry, or replace one."""

    section: EntrySection
    name: str
    """The one it has now; another in `entry` renames it."""
    entry: Json
    """Native. A mask keeps what is stored."""
    create: bool | None = None
    """True: it must not be there yet. False: it must. None: either."""


@dataclass(frozen=True, slots=True)
class SetFields:
    """Change single fields of an entry."""

    section: EntrySection
    name: str
    fields: Mapping[str, Any]
    """`{"enabled": False, "connection.url": "…"}`; None takes a field out."""


@dataclass(frozen=True, slots=True)
class RemoveEntry:
    section: EntrySection
    name: str


@dataclass(frozen=True, slots=True)
class OrderEntries:
    section: EntrySection
    names: Sequence[str]
    """All of them, in their new order."""


@dataclass(frozen=True, slots=True)
class SetSection:
    section: PlainSection
    value: Any
    """None takes it out. A mask keeps what is stored."""


@dataclass(frozen=True, slots=True)
class Convert:
    """Files of other shapes, written anew in the native one; their comments go."""


@dataclass(frozen=True, slots=True)
class NewText:
    """A file says this."""

    text: str
    """A mask keeps what is stored."""
    file: Path | None = None
    """None: the first one."""


@dataclass(frozen=True, slots=True)
class Restore:
    """The files say again what they said in a revision: a change of its own, known to the store
    alone."""

    number: int


Edit = PutEntry | SetFields | RemoveEntry | OrderEntries | SetSection | Convert | NewText
Change = Edit | Sequence[Edit] | Restore


class EditError(ConfigError):
    """A change that cannot be made."""

    def __init__(self, code: Code, message: str, *, path: str = "", hint: str = "") -> None:
        super().__init__([f"error: {message}" + (f"; {hint}" if hint else "")])
        self.code: Code = code
        self.message = message
        self.path = path
        self.hint = hint


def refuse_deep(edit: Edit) -> None:
    """Raises `EditError`."""
    for path, value in _values(edit).items():
        if is_deeper(value, MAX_DEPTH - len(path)):
            raise EditError(
                "invalid", f"nested more than {MAX_DEPTH} levels deep", path=spell(path)
            )


def _values(edit: Edit) -> dict[KeyPath, Any]:
    match edit:
        case PutEntry():
            return {(edit.section, 0, key): value for key, value in edit.entry.items()}
        case SetFields():
            return {(edit.section, 0, *key.split(".")): value for key, value in edit.fields.items()}
        case SetSection():
            return {(edit.section,): edit.value}
        case _:
            return {}
