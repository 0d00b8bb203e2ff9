"""Entries of a configuration that an import produces, and their text as a YAML file.

Entries hold text as a configuration file does: a `$` of the source is written as `$$`, and only
`reference` produces references such as `${TOKEN}`.
"""

import os
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Any

from mcpx.config.nodes import MAX_NODES
from mcpx.config.source import MAX_BYTES
from mcpx.core.saving import Overtaken, Unwritable, replace_file
from mcpx.imports.source import clean, one_line
from mcpx.model.call import Json, is_array, is_object
from mcpx.model.errors import ConfigError

MAX_IMPORT_BYTES, MAX_IMPORT_NODES = MAX_BYTES * 9 // 10, MAX_NODES * 9 // 10
"""The rest is left for other parts of a configuration."""
_MARK = token_hex(8)
"""Surrounds the names of variables. A source cannot guess it, so that it cannot refer to one."""
_MARKED = re.compile(f"{_MARK}(.*?){_MARK}")


@dataclass(slots=True)
class Imported:
    commands: list[Json] = field(default_factory=list[Json])
    auths: list[Json] = field(default_factory=list[Json])
    variables: dict[str, str] = field(default_factory=dict[str, str])
    """Variables that the entries refer to, with a description."""
    secrets: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """Values of these variables that the source contained."""
    skipped: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Operations that did not become a command, with the reason."""
    notes: list[str] = field(default_factory=list[str])
    """Differences between the source and the entries."""
    shortened: bool = False
    """Descriptions and schemas were cut so that a configuration can hold them."""

    @property
    def tree(self) -> Json:
        if not self.auths:
            return {"commands": self.commands}
        return {"commands": self.commands, "auth_configs": self.auths}

    def preview(self, hidden: str = "") -> Json:
        """The entries and what the user should know about them. `hidden`: a reason for skipping
        that is not shown."""
        needs = [f"set the variable {name}: {what}" for name, what in self.variables.items()]
        skipped = [f"{what}: {why}" for what, why in self.skipped if why != hidden]
        warnings = [one_line(line, 300) for line in (*needs, *skipped, *self.notes)]
        return {
            "commands": self.commands,
            "auth_configs": self.auths,
            "warnings": warnings[:50],
        }


def reference(name: str) -> str:
    """Text that `config_value` turns into `${name}`."""
    return f"{_MARK}{name}{_MARK}"


def references(text: str) -> list[str]:
    return _MARKED.findall(text)


def without_marks(text: str) -> str:
    return _MARKED.sub(r"\1", text)


def config_value(value: Any) -> Any:
    """The value as a configuration file holds it."""
    if isinstance(value, str):
        return _MARKED.sub(r"${\1}", clean(value).replace("$", "$$"))
    if is_object(value):
        return {clean(key): config_value(item) for key, item in value.items()}
    if is_array(value):
        return [config_value(item) for item in value]
    return value


def fits(imported: Imported) -> bool:
    """Return True if a configuration can hold all entries."""
    tree = imported.tree
    nodes = characters = 0
    pending: list[Any] = [tree]
    while pending:
        value = pending.pop()
        nodes += 1
        if isinstance(value, str):
            characters += len(value)
        elif is_object(value):
            characters += sum(map(len, value))
            pending += value.values()
        elif is_array(value):
            pending += value
    if nodes > MAX_IMPORT_NODES or characters > MAX_IMPORT_BYTES:
        return False
    return len(to_yaml(tree).encode()) <= MAX_IMPORT_BYTES


def refuse_too_much(imported: Imported) -> None:
    """Raises ConfigError if the entries are too many for a configuration even with short texts."""
    if imported.shortened and not fits(imported):
        problem = (
            f"error: {len(imported.commands):,} operations are more than a configuration holds "
            f"({MAX_BYTES:,} bytes, {MAX_NODES:,} values)\n"
            "  choose operations with --only, --tag, --method, or --skip; --list shows all"
        )
        raise ConfigError([problem])


def to_yaml(tree: Json) -> str:
    import yaml

    return yaml.dump(
        tree,
        Dumper=_dumper(),
        allow_unicode=True,
        sort_keys=False,
        default_flow_style=False,
        width=10**9,
    )


def to_file(path: Path, text: str, *, force: bool = False) -> None:
    """Write a file with mode 0600. Only `force` replaces an existing file. Raises ConfigError."""
    shown = one_line(str(path), 200)
    before = None
    try:
        if os.path.lexists(path):
            if not force:
                raise Overtaken
            before = path.read_bytes()
        replace_file(path, text.encode(), before)
    except Overtaken:
        problem = f"error: {shown} already exists: name another file, or use --force"
        raise ConfigError([problem]) from None
    except Unwritable as error:
        raise ConfigError([f"error: {error}"]) from None
    except (OSError, ValueError) as error:
        raise ConfigError([f"error: {shown} cannot be written: {error}"]) from None


@cache
def _dumper() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_text(dumper: Any, value: str) -> Any:
        if "\n" in value:
            return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|")
        return dumper.represent_scalar("tag:yaml.org,2002:str", value)

    Dumper.add_representer(str, represent_text)
    return Dumper
