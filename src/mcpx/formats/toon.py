"""Values as TOON where that is clearly smaller, else as compact JSON (FMT-2).

Promised: any parsed JSON value has a text and no error; the text decodes to the value again, as
TOON or as JSON (numbers by their value: TOON writes `1.0` as `1`). TOON is chosen for tables only:
rows of scalars under the same keys, alone or inside objects. Measured with two tokenizers, all else
(single objects, nested ones, lists of strings, tables of one column or of two rows) is as long in
TOON or longer, even where it has fewer characters.

Not promised: TOON for values beyond `MAX_TOON`. Nobody reads those in one piece, and the choice
costs time.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from mcpx.formats.json import as_json
from mcpx.formats.tokens import estimate

MAX_TOON = 1 << 20
"""Bytes of JSON up to which TOON is tried; about 10 ms."""
_MIN_ROWS = 3
_MIN_COLUMNS = 2
_MAX_DEPTH = 4  # of objects around a table: each level indents every row
_GAIN = 0.9  # TOON has to be at most this share of the JSON's tokens


@dataclass(frozen=True, slots=True)
class Toon:
    type: ClassVar[str] = "toon"

    min_size: int = 3
    """Rows, or keys around them, that TOON needs."""

    def value(self, value: object) -> str:
        """As TOON or compact JSON, whichever is smaller."""
        text = as_json(value)
        if len(text) > MAX_TOON:
            return text
        rows = _largest_table(value, 0)
        keys = 0
        if value.__class__ is dict:
            keys = len(cast(dict[str, Any], value))
        if rows < _MIN_ROWS or max(rows, keys) < self.min_size:
            return text
        table = _toon(value)
        if table is None or len(table) >= len(text) or estimate(table) > estimate(text) * _GAIN:
            return text
        return table


def _largest_table(value: object, depth: int) -> int:
    """How many rows the largest table has; -1 when TOON is not for this value, 0 when there is no
    table in it."""
    if isinstance(value, list):
        return _rows(cast(list[Any], value))
    if not isinstance(value, dict) or depth >= _MAX_DEPTH:
        return -1
    largest = 0
    for each in cast(dict[str, Any], value).values():
        if each.__class__ is dict or each.__class__ is list:
            rows = 0 if not each else _largest_table(each, depth + 1)
            if rows < 0:
                return -1
            largest = max(largest, rows)
        elif not _survives(each):
            return -1
    return largest


def _rows(rows: list[Any]) -> int:
    """The rows of a table; 0 for a list of scalars, -1 for any other list."""
    if not rows or rows[0].__class__ is not dict:
        return 0 if all(_survives(each) for each in rows) else -1
    keys = rows[0].keys()
    if len(keys) < _MIN_COLUMNS:
        return -1
    for row in rows:
        if row.__class__ is not dict or row.keys() != keys:
            return -1
        for cell in row.values():
            if not _survives(cell):
                return -1
    return len(rows)


def _survives(value: object) -> bool:
    """A scalar that comes back from TOON as it was."""
    kind = value.__class__
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return -(2**63) <= cast(int, value) < 2**64
    # TOON writes no exponents: 1e300 would be 301 digits, and come back as an integer. Minus zero
    # loses its sign.
    return kind is float and (1e-6 <= abs(cast(float, value)) < 1e15 or str(value) == "0.0")


def _toon(value: object) -> str | None:
    import toons

    try:
        return toons.dumps(value)
    except Exception:  # noqa: BLE001 - half an emoji, for example; JSON can represent it
        return None
    except BaseException as error:
        # A panic in Rust code is not an `Exception`. Everything else that is not one goes on its
        # way.
        if type(error).__name__ == "PanicException":
            return None
        raise
