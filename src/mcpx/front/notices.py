"""What is said to clients, as values: a notice that many hear is encoded once and stored once.

Promise: the bytes of a notice are made when they are first needed, and all who send or keep them
share them. What cannot be written as JSON becomes an error if it was an answer, and is not said if
it was a notice.
"""

from typing import Final

from mcpx.model.call import Json
from mcpx.model.errors import INTERNAL_ERROR, RpcError
from mcpx.model.requests import identity
from mcpx.wire import codec, jsonrpc

DROPPABLE: Final = ("notifications/progress", "notifications/message")
"""What a client that does not read may miss; everything else waits in its buffer."""


def encoded(message: Json) -> bytes:
    """A message as bytes. What cannot be written as JSON becomes an error, never silence."""
    try:
        return codec.dump(message)
    except codec.Unencodable as error:
        problem = RpcError(INTERNAL_ERROR, f"the answer cannot be written as JSON: {error}")
        return codec.dump(jsonrpc.failure(message.get("id"), problem, identity))


class Parcel:
    """One message as it goes out, and how many logs of events hold it."""

    __slots__ = ("data", "droppable", "holders")

    def __init__(self, data: bytes, droppable: bool = False) -> None:
        self.data = data
        self.droppable = droppable
        self.holders = 0

    @classmethod
    def of(cls, message: Json) -> "Parcel":
        return cls(encoded(message), message.get("method") in DROPPABLE)


class Notice:
    """One notification for any number of clients."""

    __slots__ = ("_parcel", "method", "params")

    def __init__(self, method: str, params: Json) -> None:
        self.method = method
        self.params = params
        self._parcel: Parcel | None = None

    @property
    def droppable(self) -> bool:
        return self.method in DROPPABLE

    @property
    def parcel(self) -> Parcel | None:
        """As it goes out; None if no JSON says it."""
        if self._parcel is None:
            try:
                data = codec.dump(jsonrpc.notification(self.method, self.params or None))
            except codec.Unencodable:
                data = b""
            self._parcel = Parcel(data, self.droppable)
        if self._parcel.data:
            return self._parcel
        return None
