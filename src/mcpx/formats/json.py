"""Compact JSON, of values and of schemas: what everything can be written as.

Promised: any parsed JSON value has a text and no error, and the text says the value.
"""

import json
from typing import ClassVar, cast

import orjson


class Json:
    type: ClassVar[str] = "json"

    def value(self, value: object) -> str:
        return as_json(value)

    schema = value


def as_json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass  # an integer beyond 64 bits, half an emoji, more than 254 levels, an infinity
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    except RecursionError:
        text = _json_of_deep(value)
    # Inside a string, `\ud83d` is how JSON says half an emoji; UTF-8 has no way to.
    return text.encode("utf-8", "backslashreplace").decode()


def _json_of_deep(value: object) -> str:
    """The same without recursion, for nesting that the interpreter's stack does not hold."""
    said: list[str] = []
    waiting: list[object] = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, _Text):
            said.append(here)
        elif isinstance(here, dict):
            waiting.append(_Text("}"))
            pairs = list(cast(dict[str, object], here).items())
            for number, (key, each) in reversed(list(enumerate(pairs))):
                waiting.append(each)
                waiting.append(
                    _Text(f"{',' if number else ''}{json.dumps(key, ensure_ascii=False)}:")
                )
            waiting.append(_Text("{"))
        elif isinstance(here, list):
            waiting.append(_Text("]"))
            for number, each in reversed(list(enumerate(cast(list[object], here)))):
                waiting.append(each)
                if number:
                    waiting.append(_Text(","))
            waiting.append(_Text("["))
        else:
            said.append(json.dumps(here, ensure_ascii=False, default=str))
    return "".join(said)


class _Text(str):
    """Punctuation on the stack, told from the strings of the value."""

    __slots__ = ()
