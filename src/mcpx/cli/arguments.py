"""Arguments of a tool on the command line: `key=value`, `key:=JSON`, `key=@FILE`, one JSON object,
or `-` for standard input.

A value becomes what the tool's schema wants, if that is plain: `limit=5` is a number if the schema
says so, otherwise a text. `key:=` is always JSON. The argument checker of the compact modes reports
wrong arguments.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mcpx.cli.running import mistake
from mcpx.model.call import Json, as_object

MAX_BYTES = 4 << 20
"""Of a file or of standard input: the size limit of a request (SEC-6)."""
_PAIR = re.compile(r"(?P<key>[^\s=:{\[][^=:]*?)(?P<how>:=|=)(?P<value>.*)", re.DOTALL)
_TYPES: Mapping[object, tuple[type, ...]] = {
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
}


def given(words: Sequence[str], schema: Mapping[str, Any]) -> Json:
    """Whole objects first, single values over them, in their order."""
    whole: Json = {}
    values: Json = {}
    single: dict[str, list[Any]] = {}
    properties = as_object(schema.get("properties"))
    for word in words:
        if word == "-":
            whole.update(_object(_standard_input(), "standard input"))
            continue
        if word.startswith("{"):
            whole.update(_object(word, "the arguments"))
            continue
        pair = _PAIR.fullmatch(word)
        if pair is None:
            raise mistake(f"{word!r} is no argument; say key=value, key:=JSON, or one JSON object")
        key, text = pair["key"], _text(pair["key"], pair["value"])
        value = _json(text, key) if pair["how"] == ":=" else text
        single.setdefault(key, []).append(value)
        if pair["how"] == "=" and len(single[key]) == 1:
            value = _converted(text, as_object(properties.get(key)))
        values[key] = value if len(single[key]) == 1 else single[key]
    return {**whole, **values}


def _converted(text: str, schema: Json) -> Any:
    """The value that a schema wants. A value that does not fit stays a text."""
    wanted = schema.get("type")
    if wanted == "array":
        return text if text.lstrip().startswith("[") else [text]
    if wanted not in _TYPES:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_wanted = isinstance(value, _TYPES[wanted])
    return value if is_wanted and isinstance(value, bool) == (wanted == "boolean") else text


def _text(key: str, value: str) -> str:
    if not value.startswith("@"):
        return value
    if value.startswith("@@"):
        return value[1:]
    if value == "@-":
        return _standard_input()
    name = value[1:]
    try:
        with Path(name).expanduser().open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise mistake(f"{key}: {name} cannot be read: {error.strerror or error}") from None
    return _decoded(content, f"{key}: {name}")


def _standard_input() -> str:
    return _decoded(sys.stdin.buffer.read(MAX_BYTES + 1), "-")


def _decoded(content: bytes, what: str) -> str:
    if len(content) > MAX_BYTES:
        raise mistake(f"{what} has more than {MAX_BYTES:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise mistake(f"{what} is no text: arguments are JSON, bytes have no place in it") from None


def _object(text: str, what: str) -> Json:
    value = _json(text, what)
    if not isinstance(value, dict):
        raise mistake('the arguments are one JSON object: {"key": value}')
    return as_object(value)


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise mistake(f"{what}: not JSON: {error}") from None
    except ValueError as error:
        hint = "in a shell JSON stands in single quotes"
        raise mistake(f"{what}: not JSON: {error}; {hint}") from None
