"""JSON in and out: orjson for what is well formed, `json` for what real peers send besides.

Promise: what `load` accepted is dumped with the same meaning or refused by `Unencodable`; cut emoji
(lone surrogates), integers of any size and nesting beyond orjson's 254 levels pass. `load` raises
`BadJson` and nothing else, `dump` raises `Unencodable` and nothing else, and both end for any
input: depth is bounded by orjson's 1,024 levels and by the interpreter's recursion limit, the
number of arrays and objects by a limit of its own.

No promise: the spelling of numbers (`1e2` becomes `100.0`), duplicate keys (the last wins), NaN and
infinities that did not come through `load` (orjson writes `null`; those that `load` let in are
refused).
"""

import functools
import gc
import json
import re
from typing import Any

from orjson import JSONDecodeError
from orjson import dumps as _dumps
from orjson import loads as _loads

__all__ = ["BadJson", "Unencodable", "dump", "load", "release_memory"]


LARGE = 65536
"""Bytes from which it is worth a thought how long the parser will hold everybody up."""
MOST_CONTAINERS = 500_000
"""A megabyte of text is read in a millisecond; a megabyte of empty lists takes thirty, and ten
times its size."""
_NO_BRACKETS = bytes(c for c in range(256) if c not in b'[{"')
_STRINGS = re.compile(rb'"[^"]*"')


class BadJson(ValueError):
    """Not JSON. The text says where, never what: the bytes may hold a secret."""


class Unencodable(ValueError):
    """No JSON text says this value: an infinity, a cycle, too deep, or not a JSON type at all."""


class _NotFinite(float):
    """An `Infinity`, `NaN` or `1e400` from a peer. orjson refuses subclasses of float: no silent
    null."""


# orjson turns integers beyond 64 bits into floats without a word. They are found in two steps,
# since the first is paid by every message: 0.2 µs at 200 bytes, 0.2 ms at 800 kB, where parsing
# takes 0.5 µs and 1.4 ms (a regex for long runs of digits: 1.5 µs and 6.6 ms). A run of 19 digits,
# the shortest that can be too long, holds two neighbours among every ninth byte. Many numbers do by
# chance: only then all of it is looked at.
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
# Digits, minus, what may stand before a number, all else: so not "123…" in quotes, nor 0.123….
_CLASSES = {
    **dict.fromkeys(b"0123456789", ord("0")),
    **dict.fromkeys(b":,[ \t\r\n", ord(",")),
    ord("-"): ord("-"),
}
_PLAIN = bytes([_CLASSES.get(c, ord("x")) for c in range(256)])
_LONG_POSITIVE = b"," + b"0" * 20  # 2**64 has 20 digits
_LONG_NEGATIVE = b"-" + b"0" * 19  # -2**63 - 1 has 19


def _has_long_integer(data: bytes | bytearray) -> bool:
    plain = (b"," + data).translate(_PLAIN)
    return _LONG_POSITIVE in plain or _LONG_NEGATIVE in plain


def load(data: bytes | bytearray | memoryview, *, mend: bool = False, strict: bool = False) -> Any:
    """The value of one JSON text. With `mend`, bytes that are not UTF-8 become U+FFFD, not a
    refusal; with `strict`, infinities and NaN are refused, so that what was loaded can be
    dumped."""
    if isinstance(data, memoryview):
        data = bytes(data)
    try:
        if data[::9].translate(_DIGITS).find(b"00") < 0 or not _has_long_integer(data):
            return _loads(data) if len(data) < LARGE else _load_large(data)
    except JSONDecodeError as e:
        if e.msg.startswith("depth limit"):
            raise BadJson(e.msg) from None
    return _load_slowly(data, "replace" if mend else "surrogatepass", strict)


def _load_large(data: bytes | bytearray) -> Any:
    global _has_garbage
    _has_garbage = _has_garbage or len(data) >= GARBAGE_BYTES
    if (
        len(data) > 3 * MOST_CONTAINERS and _containers(data) > MOST_CONTAINERS
    ):  # the least of each is `[],`
        raise BadJson(f"more than {MOST_CONTAINERS:,} arrays and objects")
    # Of millions of small lists all but one are young: a collector that looks at them again and
    # again while they are being made takes several times as long as the parser.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _loads(data)
    finally:
        if collects:
            gc.enable()


def _containers(data: bytes | bytearray) -> int:
    """How many arrays and objects there are, those in strings left out. (With those it is a first,
    quick look.)"""
    if (most := data.count(b"[") + data.count(b"{")) <= MOST_CONTAINERS:
        return most
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_BRACKETS)
    if plain.count(b'"') > 4 * MOST_CONTAINERS:  # so many strings cannot be taken out in time
        return MOST_CONTAINERS + 1
    return len(_STRINGS.sub(b"", plain))


def _finite(text: str) -> float:
    value = float(text)
    return value if value - value == 0 else _NotFinite(value)


def _refused(text: str) -> float:
    raise BadJson("a number that is not finite")


def _finite_only(text: str) -> float:
    value = float(text)
    return value if value - value == 0 else _refused(text)


def _load_slowly(data: bytes | bytearray, errors: str, strict: bool) -> Any:
    # `from None` everywhere: the errors of json carry the whole document with them.
    try:
        text = data.decode("utf-8", errors).removeprefix("\ufeff")
        if strict:
            return json.loads(text, parse_float=_finite_only, parse_constant=_refused)
        return json.loads(text, parse_float=_finite, parse_constant=_NotFinite)
    except BadJson:
        raise
    except json.JSONDecodeError as e:
        raise BadJson(f"{e.msg}: line {e.lineno} column {e.colno}") from None
    except UnicodeDecodeError as e:
        raise BadJson(f"not UTF-8 at byte {e.start}") from None
    except RecursionError:
        raise BadJson("nested too deeply") from None
    except ValueError:
        # The interpreter's bound on int(), 4,300 digits: its work is quadratic.
        raise BadJson("an integer with too many digits") from None


def dump(value: Any) -> bytes:
    """The JSON text of a value: compact, UTF-8; in plain ASCII where orjson cannot write it."""
    try:
        return _dumps(value)
    except TypeError:
        pass
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
    except (TypeError, ValueError) as e:
        raise Unencodable(str(e)) from None
    except RecursionError:
        raise Unencodable("nested too deeply") from None


def is_writable(value: object) -> bool:
    """Whether `dump` can write it."""
    try:
        dump(value)
    except Unencodable:
        return False
    return True


# Memory

GARBAGE_BYTES = 2**20
"""Size of a message after which the allocator may keep memory that is no longer used."""
_has_garbage = False


@functools.cache
def _libc() -> Any:
    try:
        import ctypes

        libc = ctypes.CDLL(None)
    except (ImportError, OSError, TypeError):
        return None
    return libc if hasattr(libc, "malloc_trim") else None


def release_memory(*, surely: bool = False) -> None:
    """Give memory of large messages back to the system. Without glibc, nothing happens.

    Unless `surely`, only if there was a large message since the last call.
    """
    global _has_garbage
    if (_has_garbage or surely) and (libc := _libc()) is not None:
        libc.malloc_trim(0)
    _has_garbage = False
