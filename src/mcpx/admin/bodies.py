"""Bodies of requests: read whole before a route sees them, within bounds of bytes and time, and
only JSON."""

import asyncio
from typing import Final

import orjson
from starlette.types import Receive, Scope

from mcpx.admin.errors import ApiError
from mcpx.admin.visit import values

LARGEST: Final = 4 * 2**20
LARGEST_UNKNOWN: Final = 4096
"""Of somebody who has yet to come in."""
ALL: Final = 64 * 2**20
"""Bytes of all that are being answered."""
SECONDS: Final = 30.0


class Gone(Exception):
    """Whoever sent it is not there any more."""


class Bodies:
    def __init__(self) -> None:
        self._held = 0

    async def read(self, scope: Scope, receive: Receive, largest: int) -> bytes:
        """Raises ApiError, or `Gone`. What was read is to be let go of by `done`."""
        declared = values(scope, b"content-length")
        if (
            declared and int(declared[0]) > largest
        ):  # the parser has seen to it that it is one number
            raise _too_large(largest)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(SECONDS):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    part: bytes = message.get("body", b"")
                    more = message.get("more_body", False)
                    size += len(part)
                    self._held += len(part)
                    if size > largest:
                        raise _too_large(largest)
                    if self._held > ALL:
                        raise ApiError(
                            503, None, "too much is sent at once", headers={"retry-after": "1"}
                        )
                    parts.append(part)
        except TimeoutError:
            self.done(size)
            told = f"the body did not arrive within {SECONDS:.0f} seconds"
            raise ApiError(408, None, told, headers={"connection": "close"}) from None
        except BaseException:
            self.done(size)
            raise
        return b"".join(parts)

    def done(self, size: int) -> None:
        self._held -= size


def require_json(scope: Scope, body: bytes) -> None:
    """Raises ApiError. Text that is no JSON to the letter (half surrogates, NaN) is refused here,
    for all routes."""
    if not body:
        return
    kind = b",".join(values(scope, b"content-type")).partition(b";")[0].strip().lower()
    if kind != b"application/json" and not (
        kind.startswith(b"application/") and kind.endswith(b"+json")
    ):
        raise ApiError(
            415, None, "the body has to be JSON", hint="send it with Content-Type: application/json"
        )
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as problem:
        raise ApiError(400, "bad_json", f"the body is not JSON: {problem}"[:300]) from None


def _too_large(largest: int) -> ApiError:
    return ApiError(413, None, f"the body is larger than {largest} bytes")
