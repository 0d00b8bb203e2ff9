"""An import as a config file.

Promised: what is written loads again as exactly what was meant, texts included; a file is there
whole or not at all, for its owner alone, and never instead of another unless that was asked for.
"""

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from mcpx.config.nodes import MAX_NODES
from mcpx.config.source import MAX_BYTES
from mcpx.imports.made import Imported, Reference
from mcpx.imports.texts import clean, one_line
from mcpx.model.call import Json, is_array, is_object
from mcpx.model.errors import ConfigError

MOST_BYTES, MOST_NODES = MAX_BYTES * 9 // 10, MAX_NODES * 9 // 10
"""Something is left for the rest of a configuration."""


def fits(imported: Imported) -> bool:
    """Whether a configuration can hold it."""
    tree = imported.tree
    nodes, characters = _size(tree)
    if nodes > MOST_NODES or characters > MOST_BYTES:  # a quick look
        return False
    return len(to_yaml(tree).encode()) <= MOST_BYTES


def refuse_too_much(imported: Imported) -> None:
    """Raises `ConfigError` for what no configuration can hold, however it is cut."""
    if imported.shortened and not fits(imported):
        raise ConfigError(
            [
                f"error: {len(imported.commands):,} operations are more than a configuration holds "
                f"({MAX_BYTES:,} bytes, {MAX_NODES:,} values)\n"
                "  pick those you need with --only, --tag, --method or --skip; --list shows them "
                "all"
            ]
        )


def to_yaml(tree: Json) -> str:
    import yaml

    return yaml.dump(
        unexpanded(tree),
        Dumper=_dumper(),
        allow_unicode=True,
        sort_keys=False,
        default_flow_style=False,
        width=10**9,
    )


def to_file(path: Path, text: str, *, force: bool = False) -> None:
    """Raises `ConfigError`."""
    told = one_line(str(path), 200)
    if not force and os.path.lexists(path):
        raise ConfigError([f"error: {told} is there already: name another file, or use --force"])
    try:
        # Hidden, so that a gateway on this folder does not take up a part of it; 0600 by nature.
        handle, temporary = tempfile.mkstemp(prefix=".mcpx-", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            if force:
                os.replace(temporary, path)
            else:
                os.link(temporary, path)  # unlike a rename it fails where something is
                os.unlink(temporary)
        except BaseException:
            os.unlink(temporary)
            raise
    except FileExistsError:
        raise ConfigError(
            [f"error: {told} is there already: name another file, or use --force"]
        ) from None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ConfigError([f"error: {told} cannot be written: {reason}"]) from None


def unexpanded(value: Any) -> Any:
    """The same, so that a loader reads every text as it is, and only references as references."""
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, str):
        return clean(value).replace("$", "$$")
    if is_object(value):
        return {clean(key): unexpanded(item) for key, item in value.items()}
    if is_array(value):
        return [unexpanded(item) for item in value]
    return value


def _size(value: Any) -> tuple[int, int]:
    """Its values, and the characters of its texts and keys, without what YAML needs around them."""
    if isinstance(value, str):
        return 1, len(value)
    if is_object(value):
        parts = [(0, len(key)) for key in value] + [_size(item) for item in value.values()]
    else:
        parts = [_size(item) for item in value] if is_array(value) else []
    return 1 + sum(nodes for nodes, _ in parts), sum(characters for _, characters in parts)


@cache
def _dumper() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):
        def ignore_aliases(
            self, data: Any
        ) -> bool:  # each place says all of it: people read and edit this
            return True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar(
            "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
        )

    Dumper.add_representer(str, text)
    return Dumper
