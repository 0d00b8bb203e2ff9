"""What becomes of the texts of one result: shown as they came, rendered anew, or kept back (SUR-7,
SUR-11).

Promise: the same decision in this process and in another (`worker`), for it needs nothing but the
texts. A text is rendered once, and only where its rendering may fit. Linear in the texts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from mcpx.formats.writing import value_writer
from mcpx.model.call import as_object
from mcpx.surfaces.large.excerpt import TIGHTEST, size_of, weigh
from mcpx.surfaces.large.kept import Kept, pack
from mcpx.surfaces.large.loss import is_too_deep, says_all
from mcpx.surfaces.large.preview import NOT_JSON, Preview, preview
from mcpx.surfaces.settings import Rendering
from mcpx.wire import codec

PREVIEW_BYTES = 1_500
ALL = -1
SPACE = " \t\r\n"
_ENDS = {"{": "}", "[": "]", '"': '"'}
_SCALAR = re.compile(r"true|false|null|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Piece:
    """A text that is kept back, and what is shown of it."""

    kept: Kept
    size: int
    """Bytes of the text; what is kept of it may be less."""
    begins: Preview


class Decision(NamedTuple):
    """One is made for every result, and a tuple is made in a third of the time."""

    shown: Sequence[str | None]
    """Each text as it is shown; None: as it came."""
    piece: Piece | None = None
    place: int = ALL
    """The text that the piece stands for."""
    value: object = NOT_JSON
    """What the one text of a result says, where that is JSON."""
    says_own: bool = False
    """A text says the same as the server's own `structuredContent`."""
    elsewhere: bool = False
    """Decided in another process: the value is there, and here only that there is one."""


class _Read:
    __slots__ = ("rendered", "says_own", "size", "text", "value")

    def __init__(
        self,
        text: str,
        value: object = NOT_JSON,
        rendered: str | None = None,
        says_own: bool = False,
    ) -> None:
        self.text = text
        self.value = value
        self.rendered = rendered
        self.size = size_of(text if rendered is None else rendered)
        self.says_own = says_own


def decide(texts: Sequence[str], own: object, how: Rendering, *, alone: bool) -> Decision:
    """`own`: the server's `structuredContent`, None for none. `alone`: there is nothing beside the
    one text."""
    read = [_read(text, own, how, alone=alone) for text in texts]
    if len(read) == 1 and (one := read[0]).size <= how.result_limit:
        return Decision((one.rendered,), None, ALL, one.value if alone else NOT_JSON, one.says_own)
    large = [at for at, each in enumerate(read) if each.size > how.result_limit]
    rest = sum(each.size for each in read) - sum(read[at].size for at in large)
    if len(large) > 1 or rest > how.result_limit:
        return Decision((None,) * len(texts), piece_of("\n".join(texts), NOT_JSON, how), ALL)
    piece = piece_of(read[large[0]].text, read[large[0]].value, how) if large else None
    return Decision(
        [each.rendered for each in read],
        piece,
        large[0] if large else ALL,
        read[0].value if alone and len(read) == 1 else NOT_JSON,
        any(each.says_own for each in read),
    )


def decide_elsewhere(
    texts: Sequence[str], own: bytes | None, how: Rendering, alone: bool
) -> Decision:
    """See `decide`. The value stays in this process."""
    value = None if own is None else codec.load(own)
    decision = decide(texts, value, how, alone=alone)
    if decision.value is not NOT_JSON:
        decision = decision._replace(value=None)
    return decision._replace(elsewhere=True)


def piece_of(text: str, value: object, how: Rendering) -> Piece:
    """A text to keep, and what it says where it is JSON."""
    raw = text.encode("utf-8", "replace")
    kept = pack(raw)
    if kept.size != len(raw):
        value = NOT_JSON  # its end is lost: what is left of it is a text
    at_most = min(PREVIEW_BYTES, how.result_limit)
    begins = preview(
        text, value, max_bytes=at_most, write=value_writer(how.value_format, how.toon_min_size)
    )
    return Piece(kept, len(raw), begins)


def may_be_json(bare: str) -> bool:
    """A look at its two ends: most texts are none, and to find that out by parsing takes as long as
    the rest."""
    end = _ENDS.get(bare[:1])
    return (
        bare.endswith(end)
        if end is not None
        else len(bare) < 400 and _SCALAR.fullmatch(bare) is not None
    )


def _read(text: str, own: object, how: Rendering, *, alone: bool) -> _Read:
    bare = text.strip(SPACE)
    if not may_be_json(bare):
        return _Read(text)
    is_data = how.compact_json or not ("\n" in bare or "\r" in bare)
    if not is_data and not alone and own is None:
        return _Read(text)
    try:
        value: object = codec.load(text.encode(), strict=True)
    except (codec.BadJson, UnicodeEncodeError):
        return _Read(text)
    if is_too_deep(text, value):
        return _Read(text)
    says_own = own is not None and (value == own or as_object(own) == {"result": value})
    if not isinstance(value, (dict, list)) or not (is_data or says_own):
        return _Read(text, cast(object, value), says_own=says_own)
    enough = TIGHTEST * how.result_limit
    if len(text) > enough and weigh(cast(object, value), enough) > enough:
        return _Read(text, cast(object, value), says_own=says_own)  # no rendering would fit
    rendered = value_writer(how.value_format, how.toon_min_size).better(cast(object, value), text)
    if rendered is not None and not says_all(text, codec.dump(cast(object, value))):
        rendered = None
    return _Read(text, cast(object, value), rendered, says_own=says_own)
