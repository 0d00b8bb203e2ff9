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
    return bytes((number << 3 | 2,)) + _length(len(content)) + content


def attribute(key: str, value: str | int) -> bytes:
    """One attribute of a span, as it stands in it. Half an emoji becomes a question mark."""
    if isinstance(value, str):
        encoded = _field(1, value[:LONGEST].encode("utf-8", "replace"))
    else:
        encoded = b"\x18" + _length(value)
    return _field(9, _field(1, key.encode()) + _field(2, encoded))


@lru_cache(1024)
def usual(key: str, value: str | int) -> bytes:
    """The same of what comes again and again."""
    return attribute(key, value)


def span(its: Span, ended: int, *, failed: bool) -> bytes:
    """`ended` in nanoseconds, on the wall's clock."""
    flags = int(its.sampled)
    parts = [_field(1, bytes.fromhex(its.trace_id)), _field(2, bytes.fromhex(its.span_id))]
    if its.state:
        parts.append(_field(3, its.state.encode()))
    if its.parent_id:
        parts.append(_field(4, bytes.fromhex(its.parent_id)))
        flags |= _HAS_REMOTE
        if its.remote:
            flags |= _REMOTE
    parts.append(_field(5, its.name.encode("utf-8", "replace")))
    # Fields 6, 7, and 8: kind, start, and end.
    parts.append(struct.pack("<BBBQBQ", 0x30, its.kind, 0x39, its.began, 0x41, ended))
    parts += its.attributes
    if failed:
        parts.append(_FAILED)
    parts.append(struct.pack("<BBI", 0x85, 0x01, flags))  # Field 16.
    return b"".join(parts)


def request(
    spans: Iterable[bytes], resource: Iterable[tuple[str, str]], scope: tuple[str, str]
) -> bytes:
    """What is posted. `scope`: who made the spans, and in which version."""
    resource_fields = b"".join([_resource_attribute(key, value) for key, value in resource])
    name, version = scope
    scope_fields = _field(1, name.encode()) + _field(2, version.encode())
    span_fields = b"".join([_field(2, one) for one in spans])
    scope_spans = _field(1, scope_fields) + span_fields
    return _field(1, _field(1, resource_fields) + _field(2, scope_spans))


def _resource_attribute(key: str, value: str) -> bytes:
    text = _field(1, value.encode())
    return _field(1, _field(1, key.encode()) + _field(2, text))
