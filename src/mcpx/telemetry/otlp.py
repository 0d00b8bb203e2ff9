"""Spans as OTLP writes them: the protobuf of `opentelemetry.proto.collector.trace.v1`, as much of
it as is needed.

Written by hand: it is thirty lines, where the library and its exporter are four packages and a
thread. The test of it reads the bytes with the official definitions.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from mcpx.model.requests import Span

SERVER: Final = 2
CLIENT: Final = 3
"""Kinds of spans."""
LONGEST: Final = 256
"""Characters of a value."""

_HAS_REMOTE, _REMOTE = 0x100, 0x200
_FAILED: Final = b"\x7a\x02\x18\x02"
"""Field 15, a status: code ERROR. What was said is left out: it may quote what a call was about."""


def _length(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    """One of text, bytes or a message; all in use are below 16."""
    size = len(content)
    return (
        bytes((number << 3 | 2, size)) + content
        if size < 0x80
        else bytes((number << 3 | 2,)) + _length(size) + content
    )


def attribute(key: str, value: str | int) -> bytes:
    """One attribute of a span, as it stands in it. Half an emoji becomes a question mark."""
    is_text = isinstance(value, str)
    told = (
        _field(1, value[:LONGEST].encode("utf-8", "replace"))
        if is_text
        else b"\x18" + _length(value)
    )
    return _field(9, _field(1, key.encode()) + _field(2, told))


@lru_cache(1024)
def usual(key: str, value: str | int) -> bytes:
    """The same of what comes again and again."""
    return attribute(key, value)


def span(its: Span, ended: int, *, failed: bool) -> bytes:
    """`ended` in nanoseconds, on the wall's clock."""
    flags = (1 if its.sampled else 0) | (
        _HAS_REMOTE | (_REMOTE if its.remote else 0) if its.parent_id else 0
    )
    parts = [
        b"\x0a\x10" + bytes.fromhex(its.trace_id) + b"\x12\x08" + bytes.fromhex(its.span_id),
        _field(3, its.state.encode()) if its.state else b"",
        b"\x22\x08" + bytes.fromhex(its.parent_id) if its.parent_id else b"",
        _field(5, its.name.encode("utf-8", "replace")),
        struct.pack("<BBBQBQ", 0x30, its.kind, 0x39, its.began, 0x41, ended),
        *its.attributes,
        _FAILED if failed else b"",
        struct.pack("<BBI", 0x85, 0x01, flags),
    ]
    return b"".join(parts)


def request(
    spans: Iterable[bytes], resource: Iterable[tuple[str, str]], scope: tuple[str, str]
) -> bytes:
    """What is posted. `scope`: who made the spans, and in which version."""
    whose = b"".join(
        [_field(1, _field(1, k.encode()) + _field(2, _field(1, v.encode()))) for k, v in resource]
    )
    by = _field(1, scope[0].encode()) + _field(2, scope[1].encode())
    of_scope = _field(1, by) + b"".join([_field(2, one) for one in spans])
    return _field(1, _field(1, whose) + _field(2, of_scope))
