"""Writes a native server as an entry of another shape.

What the entry has and what does not change stays. The caller checks by reading the entry again
that it means what was wanted.
"""

from typing import Any

from mcpx.config.entries import OPENCODE_TIMEOUT, Target, targets_of, word_of
from mcpx.config.schema import Dialect
from mcpx.config.textedit import alike
from mcpx.config.tree import Tree, as_list, as_map, is_list, is_map

_WITH_DISABLED: tuple[Dialect, ...] = ("mcpServers", "gemini", "vscode", "zed")
"""Shapes that write `disabled` instead of `enabled`."""
_WITHOUT_TYPE: tuple[Dialect, ...] = ("mcpServers", "gemini", "codex", "zed", "proxy")
"""Shapes in which a program needs no type."""
_TYPE_WORDS: dict[Dialect, dict[Any, str]] = {
    "opencode": {"stdio": "local", "http": "remote", "sse": "remote", "websocket": "remote"},
    "goose": {"http": "streamable_http"},
}
_PROGRAM, _ARGUMENTS = ("connection", "command"), ("connection", "args")
_TIMEOUTS: dict[Target, str] = {("timeout",): "init", ("call_timeout",): "call"}
"""Keys of the pair that the shape `proxy` may have."""


def entry_of(dialect: Dialect, native: Tree, before: Tree | None, was: Tree | None) -> Tree:
    """`before`: the entry as it is, and `was`: its native form. None for a new entry."""
    changes = _changes(was or {}, native)
    entry = dict(before or {})
    if is_map(older := entry.get("command")):  # Zed's former shape.
        entry |= {"command" if key == "path" else key: value for key, value in older.items()}
    if dialect == "proxy" or is_list(entry.get("command")):
        _join_command(entry, changes, as_map(native.get("connection")) or {})
    for target, value in changes.items():
        _write(entry, dialect, target, value, is_new=before is None)
    return entry


def _changes(was: Tree, native: Tree) -> dict[Target, Any]:
    """What differs, by its place in a native server. None for a value that is removed."""
    old, new = _flattened(was), _flattened(native)
    changed = {key: value for key, value in new.items() if not alike(old.get(key), value)}
    return {**dict.fromkeys(old.keys() - new.keys()), **changed}


def _flattened(server: Tree) -> dict[Target, Any]:
    connection = as_map(server.get("connection")) or {}
    flat: dict[Target, Any] = {(key,): value for key, value in server.items()}
    flat.pop(("connection",), None)
    return flat | {("connection", key): value for key, value in connection.items()}


def _join_command(entry: Tree, changes: dict[Target, Any], connection: Tree) -> None:
    """Write the command line as one list."""
    if _PROGRAM not in changes and _ARGUMENTS not in changes:
        return
    if connection.get("command") is None:
        return
    entry["command"] = [connection["command"], *(as_list(connection.get("args")) or [])]
    entry.pop("args", None)
    changes.pop(_PROGRAM, None)
    changes.pop(_ARGUMENTS, None)


def _write(entry: Tree, dialect: Dialect, target: Target, value: Any, *, is_new: bool) -> None:
    if target == ("connection", "type"):
        _write_type(entry, dialect, value)
        return
    if target == ("name",):
        if dialect == "flat":
            entry["name"] = value
        elif dialect == "proxy":
            key = "id" if is_new or "id" in entry else "name"
            entry[key] = value
        return
    has_disabled = dialect in _WITH_DISABLED or "disabled" in entry
    if target == ("enabled",) and has_disabled and "enabled" not in entry:
        entry.pop("disabled", None)
        if value is False:
            entry["disabled"] = True
        return
    for key, place in targets_of(dialect).items():
        if place == target:
            entry.pop(key, None)
    pair = entry.get("timeouts")
    if target in _TIMEOUTS and is_map(pair):
        pair = {**pair, _TIMEOUTS[target]: value}
        entry["timeouts"] = {key: item for key, item in pair.items() if item is not None}
    elif value is not None:
        if dialect == "opencode" and target == ("timeout",):
            value = round(value * OPENCODE_TIMEOUT)
        entry[word_of(dialect, target)] = value


def _write_type(entry: Tree, dialect: Dialect, kind: Any) -> None:
    key = "type"
    if "transport" in entry:
        key = "transport"
    is_implied = kind == "stdio" and key not in entry and dialect in _WITHOUT_TYPE
    if kind is None or is_implied or dialect == "codex":  # Codex has `command` or `url` only.
        entry.pop(key, None)
    else:
        entry[key] = _TYPE_WORDS.get(dialect, {}).get(kind, kind)
