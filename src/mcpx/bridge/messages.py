"""As much of JSON as a bridge needs: whose answer a message is, and what it asks for. The rest
passes as it came.

Python's own `json`: orjson starts in three times the time and takes two megabytes more, and most of
what a gateway says is told apart by its first bytes.
"""

import json
import re
from typing import Any, TypeGuard, cast

Json = dict[str, Any]
Id = str | int

_ANSWER = re.compile(
    rb'\{"jsonrpc":"2\.0","id":(?:(-?\d{1,18})|"([\x20\x21\x23-\x5b\x5d-\x7e]{1,200})"),"result":'
)


def table(value: Any) -> Json:
    """A JSON object as it is, anything else as an empty one."""
    return cast(Json, value) if isinstance(value, dict) else {}


def is_id(value: Any) -> TypeGuard[Id]:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def read(raw: bytes) -> Json:
    """A message; an empty one for what is none, which the gateway is left to judge."""
    try:
        return table(json.loads(raw.decode("utf-8", "surrogatepass").removeprefix("\ufeff")))
    except (ValueError, RecursionError):
        return {}


def write(message: Json) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode("ascii")


def answered(raw: bytes) -> Id | None:
    """Which request a result answers, if that can be seen at a glance; results may be large."""
    found = _ANSWER.match(raw)
    if found is None:
        return None
    return int(found[1]) if found[1] is not None else found[2].decode("ascii")
