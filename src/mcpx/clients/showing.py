"""Unified diff of a change of a client's file, without values of other servers.

The diff shows the entry of the gateway without its secrets. Of other entries it shows the names,
and the keys that disable them.
"""

import difflib
import re
from typing import Any

from mcpx.clients.changes import Change
from mcpx.clients.entry import NAME, PLACEHOLDER, Json, as_text, toml_table
from mcpx.clients.texts import read
from mcpx.config.tree import as_list, as_map
from mcpx.model.errors import ConfigError
from mcpx.model.secret_rules import replace_secrets

HIDDEN = "…"
_VARIABLE = re.compile(r"\$?\{.*\}")


def difference(change: Change) -> str:
    name = str(change.file)
    before, after = _lines(change, change.before), _lines(change, change.after)
    return "\n".join(difflib.unified_diff(before, after, name, name, n=2, lineterm=""))


def _lines(change: Change, data: bytes | None) -> list[str]:
    """The entries of the file in its format."""
    if data is None:
        return []
    try:
        reading = read(change.place, change.file, data)
    except ConfigError:
        return []
    off = reading.shape.off
    shown: Json = {}
    for name, entry in reading.entries.items():
        if name == NAME:
            shown[name] = replace_secrets(entry, (), _mask)
        else:
            kept = {key: value for key, value in (as_map(entry) or {}).items() if key in off}
            shown[name] = HIDDEN
            if kept:
                shown[name] = {**kept, HIDDEN: HIDDEN}
    if change.place.spec.format == "toml":
        tables = [
            toml_table((*reading.root, name), as_map(entry) or {HIDDEN: HIDDEN})
            for name, entry in shown.items()
        ]
        return "\n".join(tables).splitlines()
    tree: Any = shown
    if reading.shape.listed:
        tree = list(shown.values())
    for key in reversed(reading.root):
        tree = {key: tree}
    for key, item in reading.shape.asks.items():
        items = as_list(reading.tree.get(key)) or []
        tree[key] = [dict(item) if _id(each) == item["id"] else HIDDEN for each in items]
    return as_text(tree, change.place.spec.format).splitlines()


def _id(item: Any) -> Any:
    return (as_map(item) or {}).get("id")


def _mask(secret: str, path: tuple[str | int, ...], presumed: bool) -> str:
    if secret == PLACEHOLDER or _VARIABLE.fullmatch(secret):
        return secret
    return HIDDEN
