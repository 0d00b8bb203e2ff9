"""Large results are shaped and read where nobody has to wait for it (SUR-11).

Promise: what is certainly quick is done at once, without giving way to anybody; all else in one of
two processes: one shapes what servers say, which takes as long as it is large; one reads on in what
is kept, which takes as long as a client's expression makes it. So no expression holds up a result.
Both are bounded in every way (`process`).
"""

from collections.abc import Sequence
from typing import Any

from mcpx.formats.writing import value_writer
from mcpx.model.call import Json
from mcpx.surfaces.large.kept import Kept
from mcpx.surfaces.large.pages import BadReading, Page
from mcpx.surfaces.large.preview import NOT_JSON, Preview
from mcpx.surfaces.large.process import Bounds, Busy, Overrun, Process
from mcpx.surfaces.large.reading import asked_for, read
from mcpx.surfaces.large.shaping import Decision, Piece, piece_of
from mcpx.surfaces.settings import Rendering

__all__ = ["AT_ONCE", "Bounds", "Busy", "Overrun", "Worker"]

AT_ONCE = 256 * 1024
"""Characters or bytes of a result that are worked on while everybody waits, unless there is an
expression."""
_TOO_MUCH = (
    "this takes too much time or memory on a result of this size; select less first, "
    'e.g. "jmespath": "[0:1000]" or "rows[0:1000] | …", or use grep alone'
)
_NOT_NOW = "too many large results are being read at this moment; try again"
Style = tuple[int, str, int, bool]
"""What the other process needs of a `Rendering`."""
_SHRINKS = 16
"""No text is rendered to less than this share of it."""


class Worker:
    def __init__(self, bounds: Bounds | None = None) -> None:
        self._shaping = Process("shaping", bounds or Bounds())
        self._reading = Process("reading", bounds or Bounds())

    async def decide(
        self, owner: str, texts: Sequence[str], own: bytes | None, how: Rendering, *, alone: bool
    ) -> Decision:
        """See `shaping.decide`; for texts that are too large to be looked at here. Raises `Busy`
        and `Overrun`.

        `own` as JSON, or None where it is certain not to matter."""

        def parts() -> list[bytes]:
            encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
            return encoded if own is None else [own, *encoded]

        given = (_style(how), alone, own is not None)
        size = sum(map(len, texts)) + len(own or b"")
        (which, about, place, is_json, says_own), back = await self._shaping.do(
            owner, "shape", given, parts, size
        )
        shown: list[str | None] = [None] * len(texts)
        for at, text in zip(which, back, strict=False):
            shown[at] = str(text, "utf-8", "surrogatepass")
        piece = None if about is None else _piece(about, back[-1])
        return Decision(
            shown, piece, place, None if is_json else NOT_JSON, says_own, elsewhere=True
        )

    async def keep(self, owner: str, raw: bytes, value: object, how: Rendering) -> Piece:
        """See `shaping.piece_of`: a JSON text and what it says. Raises `Busy` and `Overrun`."""
        if len(raw) <= AT_ONCE:
            return piece_of(raw.decode(), value, how)
        about, (packed,) = await self._shaping.do(
            owner, "keep", _style(how), lambda: [raw], len(raw)
        )
        return _piece(about, packed)

    async def read(self, owner: str, kept: Kept, arguments: Json, how: Rendering) -> Page:
        """See `reading.read`."""
        asked = asked_for(arguments)
        if kept.size <= AT_ONCE and asked.jmespath is None:
            write = value_writer(how.value_format, how.toon_min_size)
            return read(kept.text(), arguments, limit_bytes=how.result_limit, write=write)
        given = (arguments, _style(how))
        try:
            said, _ = await self._reading.do(
                owner, "read", given, lambda: [kept.packed], len(kept.packed)
            )
        except Busy:
            raise BadReading(_NOT_NOW) from None
        except Overrun:
            raise BadReading(_TOO_MUCH) from None
        mistake, text, value = said
        if mistake:
            raise BadReading(text)
        return Page(text, value)

    def close(self) -> None:
        self._shaping.close()
        self._reading.close()


def matters(own: object, text_size: int, how: Rendering) -> bool:
    """Whether the server's `structuredContent` can change what becomes of a text of that size."""
    return own is not None and text_size <= _SHRINKS * how.result_limit


def _style(how: Rendering) -> Style:
    return how.result_limit, how.value_format, how.toon_min_size, how.compact_json


def _piece(about: Any, packed: bytes) -> Piece:
    kept_size, size, begins = about
    return Piece(Kept(packed, kept_size), size, Preview(*begins))
