"""How things are said in answers: moments, and the words of strangers."""

import time
from typing import Any, cast

import orjson


def moment(seconds: float | None) -> str | None:
    """RFC 3339, with milliseconds."""
    return None if seconds is None else told_at(seconds)


def told_at(seconds: float) -> str:
    whole, part = divmod(int(seconds * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{part:03d}Z"


def quoted(etag: str) -> str:
    """As it stands in headers, and so everywhere."""
    return f'"{etag}"'


def plain(value: Any) -> Any:
    """The same without halves of surrogate pairs, which no encoder takes; nearly always the very
    same object."""
    try:
        orjson.dumps(value)
        return value
    except TypeError:
        return _mended(value)


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_mended(key): _mended(its) for key, its in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_mended(its) for its in cast("list[Any]", value)]
    if isinstance(value, float) and value - value != 0:
        return None  # an infinity, which JSON cannot say
    return value
