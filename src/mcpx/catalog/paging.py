"""Cursors over a list that is already complete (NAM-6).

Promised: with any limit the pages put together are the list; without a limit one page has it all; a
cursor or a limit that is not one is refused with a message that says which. Not promised: that
pages taken before and after the list changed fit together. A cursor past the end of a list that has
become shorter gives an empty last page.
"""

import base64
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from mcpx.catalog.naming import decode_base64_json
from mcpx.model.errors import INVALID_PARAMS, RpcError

_LONGEST_CURSOR = 256

Item = TypeVar("Item")


def page_of(items: Sequence[Item], cursor: object, limit: object) -> tuple[list[Item], str | None]:
    """One page, and the cursor of the next one (None after the last)."""
    start = 0 if cursor is None else _offset(cursor)
    end = len(items) if limit is None else start + _count(limit)
    return list(items[start:end]), _cursor(end) if end < len(items) else None


def _cursor(offset: int) -> str:
    return base64.b64encode(b'{"offset":%d}' % offset).decode("ascii")


def _offset(cursor: object) -> int:
    if isinstance(cursor, str) and len(cursor) <= _LONGEST_CURSOR:
        fields = decode_base64_json(cursor)
        if isinstance(fields, dict):
            offset = cast(dict[str, Any], fields).get("offset")
            if type(offset) is int and offset >= 0:
                return offset
    raise RpcError(
        INVALID_PARAMS, "Invalid cursor: pass back `nextCursor` of the last page as it came"
    )


def _count(limit: object) -> int:
    # `type`, not `isinstance`: True is an int.
    if type(limit) is int and limit >= 1:
        return limit
    raise RpcError(INVALID_PARAMS, "Invalid limit: it is a whole number, 1 or more")
