"""A native server as an entry of another shape, for files that are written in one.

Promised: what stood in the entry and did not change stays as it stands; what is new is said in the
words of that shape. Whether it means what was wanted is for the caller to check, by reading it
again. Not done here: where it goes.
"""

from typing import Any

from mcpx.config.entries import CLIENT, FLAT, PROXY
from mcpx.config.schema import Dialect
from mcpx.config.textedit import alike
from mcpx.config.tree import Tree, as_list, as_map

_WORDS: dict[Dialect, dict[tuple[str, ...], str]] = {
    "codex": {
        ("connection", "headers"): "http_headers",
        ("connection", "inherit_env"): "env_vars",
        ("timeout",): "startup_timeout_sec",
        ("call_timeout",): "tool_timeout_sec",
    },
    "opencode": {("connection", "env"): "environment", ("timeout",): "timeout"},
    "goose": {
        ("connection", "command"): "cmd",
        ("connection", "env"): "envs",
        ("connection", "url"): "uri",
    },
}
_OFF: tuple[Dialect, ...] = ("mcpServers", "gemini", "vscode", "zed")
"""Shapes that say `disabled` rather than `enabled`."""
_UNSAID: tuple[Dialect, ...] = ("mcpServers", "gemini", "codex", "zed")
"""Shapes in which a program needs no type."""


def entry_of(dialect: Dialect, native: Tree, before: Tree | None, was: Tree | None) -> Tree:
    """`before`: the entry as it stands, and `was`, what it meant; None for a new one."""
    changes = _changes(was or {}, native)
    entry = dict(before or {})
    if (older := as_map(entry.get("command"))) is not None:  # Zed's former way to say it
        entry |= {"command" if key == "path" else key: value for key, value in older.items()}
    if dialect == "proxy" or as_list(entry.get("command")) is not None:
        _join_command(entry, changes, native, new=before is None)
    for target, value in changes.items():
        _say(entry, dialect, target, value, new=before is None)
    return entry


def _changes(was: Tree, native: Tree) -> dict[tuple[str, ...], Any]:
    """What differs, by its place in a native server; None for what goes."""
    old, new = _flattened(was), _flattened(native)
    gone = {target: None for target in old if target not in new}
    return gone | {
        target: value for target, value in new.items() if not alike(old.get(target), value)
    }


def _flattened(server: Tree) -> dict[tuple[str, ...], Any]:
    flat = {(key,): value for key, value in server.items() if key != "connection"}
    return flat | {
        ("connection", key): value
        for key, value in (as_map(server.get("connection")) or {}).items()
    }


def _join_command(
    entry: Tree, changes: dict[tuple[str, ...], Any], native: Tree, *, new: bool
) -> None:
    """A whole command line as one list."""
    program, rest = ("connection", "command"), ("connection", "args")
    connection = as_map(native.get("connection")) or {}
    if (program in changes or rest in changes) and connection.get("command") is not None:
        entry["command"] = [connection["command"], *(as_list(connection.get("args")) or [])]
        entry.pop("args", None)
        changes.pop(program, None)
        changes.pop(rest, None)
    elif new:
        changes.pop(rest, None) if not connection.get("args") else None


def _say(entry: Tree, dialect: Dialect, target: tuple[str, ...], value: Any, *, new: bool) -> None:
    if target == ("name",):
        if dialect in ("flat", "proxy"):
            entry["id" if dialect == "proxy" and ("id" in entry or new) else "name"] = value
        return
    if (
        target == ("enabled",)
        and (dialect in _OFF or "disabled" in entry)
        and "enabled" not in entry
    ):
        if value is False:
            entry["disabled"] = True
        else:
            entry.pop("disabled", None)
        return
    if target == ("connection", "type"):
        _say_type(entry, dialect, value, new=new)
        return
    for key in [
        key for key, there in _targets(dialect).items() if there == target and key in entry
    ]:
        del entry[key]
    if target in ((("timeout",)), ("call_timeout",)) and as_map(entry.get("timeouts")) is not None:
        pair = dict(entry["timeouts"])
        pair["init" if target == ("timeout",) else "call"] = value
        entry["timeouts"] = {key: item for key, item in pair.items() if item is not None}
        return
    if value is not None:
        in_milliseconds = dialect == "opencode" and target == ("timeout",)
        entry[_word(dialect, target)] = round(value * 1000) if in_milliseconds else value


def _say_type(entry: Tree, dialect: Dialect, kind: Any, *, new: bool) -> None:
    key = "transport" if "transport" in entry else "type"
    if dialect == "opencode":
        entry["type"] = "local" if kind == "stdio" else "remote"
    elif dialect == "goose":
        entry["type"] = "streamable_http" if kind == "http" else kind
    elif kind is None or (kind == "stdio" and key not in entry and dialect in (*_UNSAID, "proxy")):
        entry.pop(key, None)
    elif dialect == "codex":
        entry.pop(key, None)  # it tells by `command` or `url`
    else:
        entry[key] = kind


def _targets(dialect: Dialect) -> dict[str, tuple[str, ...]]:
    own = {word: target for target, word in _WORDS.get(dialect, {}).items()}
    return {**(FLAT if dialect == "flat" else PROXY if dialect == "proxy" else CLIENT), **own}


def _word(dialect: Dialect, target: tuple[str, ...]) -> str:
    if (word := _WORDS.get(dialect, {}).get(target)) is not None:
        return word
    # What clients call `timeout` bounds a call.
    return (
        "default_timeout"
        if target == ("timeout",) and dialect not in ("flat", "proxy")
        else target[-1]
    )
