"""Packed bodies: gzip, deflate, br and zstd, unpacked piece by piece.

Promise: whoever steps an `Unpacking` decides how much is made: a step takes a bounded time and
makes a bounded amount, whatever a few bytes may stand for. A body that ends too early, goes on
behind its end, or is not what its name says is `BadPacking`. Libraries that are seldom needed are
imported with the first body that needs them. No promise: a limit on all steps together (the caller
counts), dictionaries, windows beyond 8 MiB (RFC 9659).
"""

import zlib
from collections import deque
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, Protocol

from mcpx.wire.exchange import Headers

__all__ = ["ACCEPTED", "BadPacking", "Unpacking", "packings"]

ACCEPTED: Final = "gzip, deflate, br, zstd"
MOST_STACKED: Final = 2
STEP: Final = 131_072
"""Bytes that a step makes; zstd, which has no bound of its own, may make 4 MiB."""
MOST_MEMBERS: Final = 10_000
"""Of one gzip body. Tools that pack in parallel make one of every 64 KiB or more."""
ZSTD_PIECE: Final = 128
"""Bytes given to zstd at a time: four may stand for 128 KiB."""
ZSTD_WINDOW: Final = 2**23


class BadPacking(ValueError):
    """Says what is wrong in words that hold nothing of the body."""


class _Layer(Protocol):
    @property
    def hungry(self) -> bool:
        """It can make nothing more of what it was given."""
        ...

    @property
    def complete(self) -> bool:
        """It may end here."""
        ...

    def give(self, data: bytes) -> None:
        """Only if it is hungry."""

    def step(self) -> bytes:
        """What comes next, perhaps nothing. Only if it is not hungry."""
        ...


def packings(headers: Headers) -> Sequence[str]:
    """The content encodings of a message, in the order in which they were put on. Raises
    BadPacking."""
    if "content-encoding" not in headers:
        return ()
    named = [
        name.strip().lower()
        for value in headers.all("content-encoding")
        for name in value.split(",")
    ]
    names = [name for name in named if name and name != "identity"]
    if len(names) > MOST_STACKED:
        raise BadPacking(f"the body is packed more than {MOST_STACKED} times")
    for name in names:
        if name not in _LAYERS:
            shown = f"'{name[:40]}'" if name.isprintable() else "in an unknown way"
            raise BadPacking(
                f"the body is packed {shown}, which was not asked for: {ACCEPTED} are known"
            )
    return names


class Unpacking:
    """One body on its way out of its packings. Give what comes, step while there is `more`."""

    __slots__ = ("_given", "_layers")

    def __init__(self, names: Sequence[str]) -> None:
        """`names` as `packings` gives them."""
        self._layers: list[_Layer] = [_LAYERS[name]() for name in reversed(names)]
        self._given: deque[bytes] = deque()

    def give(self, data: bytes) -> None:
        self._given.append(data)

    @property
    def more(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._given) or any(not layer.hungry for layer in self._layers)

    @property
    def complete(self) -> bool:
        return all(layer.complete for layer in self._layers)

    def step(self) -> bytes:
        """Some of what was given, unpacked; often all of it, sometimes nothing yet. Raises
        BadPacking."""
        layers = self._layers
        at = len(layers) - 1
        while at >= 0 and layers[at].hungry:  # the innermost that has something to work on
            at -= 1
        data = self._given.popleft() if at < 0 else layers[at].step()
        for layer in layers[at + 1 :]:
            if not data:
                return b""
            layer.give(data)
            data = layer.step()
        return data


class _Zlib:
    """gzip and deflate."""

    __slots__ = ("_bits", "_data", "_full", "_members", "_stream", "complete")

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._stream = zlib.decompressobj(bits)
        self._data = b""
        # the last step made all it may: there can be more inside, though nothing is left to read
        self._full = False
        self._members = 0
        self.complete = False

    @property
    def hungry(self) -> bool:
        return not self._data and not self._full

    def give(self, data: bytes) -> None:
        self._data = data

    def step(self) -> bytes:
        stream = self._stream
        if self.complete:
            stream = self._next()
            if stream is None:
                return b""
        try:
            made = stream.decompress(self._data, STEP)
        except zlib.error:
            raise BadPacking("the body is not packed as its head says") from None
        self.complete = stream.eof
        self._data = stream.unused_data if stream.eof else stream.unconsumed_tail
        self._full = len(made) >= STEP and not stream.eof
        return made

    def _next(self) -> Any:
        """A gzip body may hold several members, and zeros behind the last."""
        if self._bits != _GZIP:
            raise BadPacking("the body goes on behind its end")
        if not self._data.strip(b"\0"):
            self._data = b""
            return None
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise BadPacking("the body is packed in too many pieces")
        self._stream = zlib.decompressobj(self._bits)
        self.complete = False
        return self._stream


_GZIP: Final = 16 + zlib.MAX_WBITS


def _gzip() -> _Layer:
    return _Zlib(_GZIP)


class _Deflate:
    """With the head that it should have, or without, as some send it."""

    __slots__ = ("_head", "_inner")

    def __init__(self) -> None:
        self._head = b""
        self._inner: _Zlib | None = None

    @property
    def hungry(self) -> bool:
        return self._inner is None or self._inner.hungry

    @property
    def complete(self) -> bool:
        return self._inner is not None and self._inner.complete

    def give(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.give(data)
            return
        self._head += data
        if len(self._head) >= 2:
            first, second = self._head[:2]
            headed = first & 0x0F == 8 and (first << 8 | second) % 31 == 0
            self._inner = _Zlib(zlib.MAX_WBITS if headed else -zlib.MAX_WBITS)
            self._inner.give(self._head)
            self._head = b""

    def step(self) -> bytes:
        return b"" if self._inner is None else self._inner.step()


class _Brotli:
    __slots__ = ("_bad", "_data", "_stream", "complete", "hungry")

    def __init__(self) -> None:
        brotli: Any = import_module("brotli")  # it has no types
        self._stream: Any = brotli.Decompressor()
        self._bad: type[Exception] = brotli.error
        self._data = b""
        self.hungry = True
        self.complete = False

    def give(self, data: bytes) -> None:
        if self.complete:
            raise BadPacking("the body goes on behind its end")
        self._data = data
        self.hungry = False

    def step(self) -> bytes:
        data, self._data = self._data, b""
        stream = self._stream
        try:
            made: bytes = stream.process(data, output_buffer_limit=STEP)
        except self._bad:
            raise BadPacking("the body is not packed as its head says") from None
        self.complete = stream.is_finished()
        self.hungry = self.complete or (stream.can_accept_more_data() and len(made) < STEP)
        return made


class _Zstd:
    __slots__ = ("_at", "_bad", "_data", "_decompressor", "_members", "_stream")

    def __init__(self) -> None:
        import zstandard

        self._decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
        self._bad = zstandard.ZstdError
        self._stream: Any = None
        self._data = b""
        self._at = 0
        self._members = 0

    @property
    def hungry(self) -> bool:
        return self._at >= len(self._data)

    @property
    def complete(self) -> bool:
        return self._stream is None and self._members > 0

    def give(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def step(self) -> bytes:
        stream = self._stream
        if stream is None:
            self._members += 1
            if self._members > MOST_MEMBERS:
                raise BadPacking("the body is packed in too many pieces")
            stream = self._stream = self._decompressor.decompressobj()
        piece = self._data[self._at : self._at + ZSTD_PIECE]
        try:
            made: bytes = stream.decompress(piece)
        except self._bad as error:
            if "memory" in str(error):
                raise BadPacking("the body is packed with a window of more than 8 MiB") from None
            raise BadPacking("the body is not packed as its head says") from None
        self._at += len(piece)
        if stream.eof:
            self._at -= len(stream.unused_data)
            self._stream = None
        return made


_LAYERS: Final = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _Deflate, "br": _Brotli, "zstd": _Zstd}
