"""What becomes of the texts of one result: shown as they came, rendered anew, or kept back (SUR-7,
SUR-11).

Promise: the same decision in this process and in another (`worker`), for it needs nothing but the
texts. A text is rendered once, and only where its rendering may fit. Linear in the texts.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import orjson

from mcpx.formats.writing import value_writer
from mcpx.model.call import as_object
from mcpx.surfaces.large.kept import Kept, pack
from mcpx.surfaces.large.measure import TIGHTEST, size_of, weigh
from mcpx.surfaces.large.preview import NOT_JSON, Preview, preview
from mcpx.surfaces.settings import Rendering
from mcpx.wire import codec

PREVIEW_BYTES = 1_500
ALL = -1
SPACE = " \t\r\n"
_DEEPEST = 250
"""Levels of nesting up to which a text is taken for data."""
_DIGITS = 15
"""Significant digits that every float holds."""
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


class _Read(NamedTuple):
    text: str
    size: int
    value: object = NOT_JSON
    rendered: str | None = None
    says_own: bool = False


def decide(texts: Sequence[str], own: object, how: Rendering, *, alone: bool) -> Decision:
    """`own`: the server's `structuredContent`, None for none. `alone`: there is nothing beside the
    one text."""
    limit = how.result_limit
    read = [_read(text, own, how, alone=alone) for text in texts]
    value = NOT_JSON
    if alone and len(read) == 1:
        value = read[0].value
    large = [at for at, each in enumerate(read) if each.size > limit]
    small_size = sum(each.size for each in read if each.size <= limit)
    if len(large) > 1 or (small_size > limit and len(read) > 1):
        return Decision((None,) * len(texts), piece_of("\n".join(texts), NOT_JSON, how), ALL)
    shown = [each.rendered for each in read]
    says_own = any(each.says_own for each in read)
    if not large:
        return Decision(shown, None, ALL, value, says_own)
    place = large[0]
    piece = piece_of(read[place].text, read[place].value, how)
    return Decision(shown, piece, place, value, says_own)


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
    if end is not None:
        return bare.endswith(end)
    return len(bare) < 400 and _SCALAR.fullmatch(bare) is not None


def _read(text: str, own: object, how: Rendering, *, alone: bool) -> _Read:
    unread = _Read(text, size_of(text))
    bare = text.strip(SPACE)
    if not may_be_json(bare):
        return unread
    is_data = how.compact_json or not ("\n" in bare or "\r" in bare)
    if not is_data and not alone and own is None:
        return unread
    try:
        parsed = codec.load(text.encode(), strict=True)
    except (codec.BadJson, UnicodeEncodeError):
        return unread
    value = cast(object, parsed)
    if is_too_deep(text, value):
        return unread
    says_own = own is not None and (value == own or as_object(own) == {"result": value})
    read = unread._replace(value=value, says_own=says_own)
    if not isinstance(parsed, (dict, list)) or not (is_data or says_own):
        return read
    enough = TIGHTEST * how.result_limit
    if len(text) > enough and weigh(value, enough) > enough:
        return read  # No rendering would fit.
    rendered = value_writer(how.value_format, how.toon_min_size).better(value, text)
    if rendered is None or not says_all(text, codec.dump(value)):
        return read
    return read._replace(rendered=rendered, size=size_of(rendered))


# What a rendering would lose


def is_too_deep(text: str | bytes, value: object) -> bool:
    brackets = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if sum(map(text.count, brackets)) <= _DEEPEST:  # type: ignore[arg-type]
        return False
    try:
        orjson.dumps(value)
    except TypeError as error:
        return "ecursion" in str(error)
    return False


def says_all(text: str, written: bytes) -> bool:
    """Whether a text loses only white space and spelling when it is written anew.

    A key that comes twice and digits that a float does not hold would be lost. `written`: the value
    of the text as compact JSON.
    """
    if text.encode("utf-8", "replace") == written:
        return True
    try:
        json.loads(text, parse_float=_exact, object_pairs_hook=_unique)
    except (_Lossy, ValueError, RecursionError):
        return False
    return True


class _Lossy(Exception):
    """Caught in `says_all`."""


def _exact(literal: str) -> float:
    number = float(literal)
    if len(literal) > _DIGITS or "e" in literal or "E" in literal:
        from decimal import Decimal

        if Decimal(literal) != Decimal(repr(number)):
            raise _Lossy
    return number


def _unique(pairs: list[tuple[str, Any]]) -> int:
    """Only their number matters."""
    if len(dict(pairs)) < len(pairs):
        raise _Lossy
    return 0
