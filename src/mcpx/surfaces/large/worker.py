"""Shapes and reads large results in two child processes (SUR-11).

Small results are handled at once. One process shapes what servers send; the other reads kept
results, which takes as long as the client's expression needs. So no expression delays a result.
"""

from collections.abc import Sequence

from mcpx.formats.writing import value_writer
from mcpx.model.call import Json
from mcpx.surfaces.large.kept import Kept
from mcpx.surfaces.large.offload import Busy, Limits, Offload, Overrun
from mcpx.surfaces.large.reading import BadReading, Page, asked_for, read
from mcpx.surfaces.large.shaping import Decision, Piece, decide_elsewhere, piece_of
from mcpx.surfaces.settings import Rendering
from mcpx.wire import codec

AT_ONCE = 256 * 1024
"""Characters or bytes of a result that are handled on the event loop, without an expression."""
_TOO_MUCH = (
    "this takes too much time or memory on a result of this size; select less first, "
    'e.g. "jmespath": "[0:1000]" or "rows[0:1000] | …", or use grep alone'
)
_NOT_NOW = "too many large results are being read at this moment; try again"


class Worker:
    def __init__(self, limits: Limits | None = None) -> None:
        self._shaping = Offload("shaping", limits or Limits())
        self._reading = Offload("reading", limits or Limits())

    async def decide(
        self, owner: str, texts: Sequence[str], own: bytes | None, how: Rendering, *, alone: bool
    ) -> Decision:
        """See `shaping.decide`. `own` as JSON, or None if it does not matter.

        Raises `Busy` and `Overrun`.
        """
        size = sum(map(len, texts)) + len(own or b"")
        return await self._shaping.run(owner, size, decide_elsewhere, texts, own, how, alone)

    async def keep(self, owner: str, raw: bytes, value: object, how: Rendering) -> Piece:
        """See `shaping.piece_of`: a JSON text and its value. Raises `Busy` and `Overrun`."""
        if len(raw) <= AT_ONCE:
            return piece_of(raw.decode(), value, how)
        return await self._shaping.run(owner, len(raw), _keep, raw, how)

    async def read(self, owner: str, kept: Kept, arguments: Json, how: Rendering) -> Page:
        """See `reading.read`."""
        asked = asked_for(arguments)
        if kept.size <= AT_ONCE and asked.jmespath is None:
            return _read(kept, arguments, how)
        try:
            return await self._reading.run(owner, len(kept.packed), _read, kept, arguments, how)
        except Busy:
            raise BadReading(_NOT_NOW) from None
        except Overrun:
            raise BadReading(_TOO_MUCH) from None

    async def close(self) -> None:
        await self._shaping.close()
        await self._reading.close()


def _keep(raw: bytes, how: Rendering) -> Piece:
    return piece_of(raw.decode(), codec.load(raw), how)


def _read(kept: Kept, arguments: Json, how: Rendering) -> Page:
    write = value_writer(how.value_format, how.toon_min_size)
    return read(kept.text(), arguments, limit_bytes=how.result_limit, write=write)
