"""Arguments of a tool as somebody types them: `key=value`, `key:=JSON`, `key=@FILE`, one JSON
object, `-` for stdin.

Promised: a value is what the tool's schema wants, where that is plain (`limit=5` is a number if the
schema says so), and a text otherwise; `key:=` is JSON whatever the schema says. What is wrong with
them the checker of the compact modes tells.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mcpx.model.call import Json, as_object
from mcpx.model.errors import ConfigError

LARGEST = 4 << 20
"""Bytes of a file or of standard input: what a request may have (SEC-6)."""
_PAIR = re.compile(r"(?P<key>[^\s=:{\[][^=:]*?)(?P<how>:=|=)(?P<value>.*)", re.DOTALL)


def given(words: Sequence[str], schema: Mapping[str, Any]) -> Json:
    """Whole objects first, single values over them, in the order they stand there."""
    whole: Json = {}
    single: dict[str, list[Any]] = {}
    stated: set[str] = set()
    """Keys that were given as JSON: they are what they are."""
    for word in words:
        if word == "-" or word.startswith("{"):
            whole.update(_object(_standard_input() if word == "-" else word, word))
            continue
        pair = _PAIR.fullmatch(word)
        if pair is None:
            raise ConfigError(
                [f"error: {word!r} is no argument; say key=value, key:=JSON, or one JSON object"]
            )
        key, is_json = pair["key"], pair["how"] == ":="
        text = _text(key, pair["value"])
        single.setdefault(key, []).append(_json(text, key) if is_json else text)
        stated |= {key} if is_json else set()
    properties = as_object(schema.get("properties"))
    for key, values in single.items():
        whole[key] = _one(values, as_object(properties.get(key)), key in stated)
    return whole


def _one(values: list[Any], schema: Json, stated: bool) -> Any:
    """A key that is said twice is a list; one value is a list where only a list is wanted."""
    if len(values) > 1:
        return values
    value, wanted = values[0], schema.get("type")
    if stated or not isinstance(value, str):
        return value
    if wanted in ("number", "integer", "boolean"):
        return _spelled(value, bool if wanted == "boolean" else (int, float))
    return value if wanted != "array" or value.lstrip().startswith("[") else [value]


def _spelled(text: str, wanted: type | tuple[type, ...]) -> Any:
    """What a text spells, if that is wanted: what is wrong with another argument is then no fault
    of this one."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return (
        value if isinstance(value, wanted) and isinstance(value, bool) == (wanted is bool) else text
    )


def _text(key: str, value: str) -> str:
    if not value.startswith("@"):
        return value
    if value.startswith("@@"):
        return value[1:]
    if value == "@-":
        return _standard_input()
    try:
        with Path(value[1:]).expanduser().open("rb") as file:
            read = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(
            [f"error: {key}: {value[1:]} cannot be read: {error.strerror or error}"]
        ) from None
    return _decoded(read, f"{key}: {value[1:]}")


def _standard_input() -> str:
    return _decoded(
        sys.stdin.buffer.read(LARGEST + 1)
        if hasattr(sys.stdin, "buffer")
        else sys.stdin.read().encode(),
        "-",
    )


def _decoded(read: bytes, what: str) -> str:
    if len(read) > LARGEST:
        raise ConfigError([f"error: {what} has more than {LARGEST:,} bytes"])
    try:
        return read.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(
            [f"error: {what} is no text: arguments are JSON, bytes have no place in it"]
        ) from None


def _object(text: str, word: str) -> Json:
    value = _json(text, "standard input" if word == "-" else "the arguments")
    if not isinstance(value, dict):
        raise ConfigError(['error: the arguments are one JSON object: {"key": value}'])
    return as_object(value)


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = (
            "; in a shell JSON stands in single quotes"
            if not isinstance(error, RecursionError)
            else ""
        )
        raise ConfigError([f"error: {what}: not JSON: {error}{hint}"]) from None
