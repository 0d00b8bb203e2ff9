"""Packed bodies: as they should be, cut off, mislabelled, and made to burst."""

import gzip
import random
import sys
import time
import zlib
from collections.abc import Callable
from subprocess import run

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpx.wire.exchange import Headers
from mcpx.wire.unpack import MOST_MEMBERS, STEP, BadPacking, Unpacking, packings


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "br": ("br", lambda data: brotli.compress(data, quality=4)),
    "zstd": ("zstd", zstd),
}
WORDS = b" ".join(b"%d bottles" % n for n in range(20_000))
NOISE = random.Random(7).randbytes(300_000)


def unpack(names: list[str], packed: bytes, size: int = 65_536, limit: int = sys.maxsize) -> bytes:
    unpacking = Unpacking(names)
    made = bytearray()
    for at in range(0, len(packed), size):
        unpacking.give(packed[at : at + size])
        while unpacking.more:
            made += unpacking.step()
            if len(made) > limit:
                raise OverflowError
    if not unpacking.complete:
        raise BadPacking("ends too early")
    return bytes(made)


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("size", [1, 7, 1000, 65_536, 10_000_000])
@pytest.mark.parametrize("body", [b"", b"x", WORDS, NOISE], ids=["empty", "tiny", "words", "noise"])
def test_a_packed_body_comes_out_as_it_was_however_it_is_cut(
    kind: str, size: int, body: bytes
) -> None:
    name, pack = PACKERS[kind]
    packed = pack(body)
    if size == 1 and len(packed) > 20_000:
        body = body[:5000]
        packed = pack(body)
    assert unpack([name], packed, size) == body


@settings(max_examples=30, deadline=None)
@given(
    st.binary(max_size=100_000),
    st.sampled_from(sorted(PACKERS)),
    st.integers(1, 70_000),
    st.integers(1, 9),
)
def test_whatever_was_packed_comes_out(body: bytes, kind: str, size: int, times: int) -> None:
    name, pack = PACKERS[kind]
    assert unpack([name], pack(body * times), max(size, len(body) // 100 + 1)) == body * times


@pytest.mark.parametrize("length", [STEP - 1, STEP, STEP + 1, 2 * STEP, 3 * STEP + 1])
@pytest.mark.parametrize("kind", PACKERS)
def test_the_end_is_found_where_a_step_ends_with_it(kind: str, length: int) -> None:
    name, pack = PACKERS[kind]
    for size in (5, 10_000_000):
        assert unpack([name], pack(bytes(length)), size) == bytes(length)


def test_several_members_are_one_body() -> None:
    parts = [b"one ", b"", b"two ", WORDS, b"three"]
    for size in (1000, 10_000_000):
        assert unpack(["gzip"], b"".join(map(gzip.compress, parts)), size) == b"".join(parts)
        assert unpack(["zstd"], b"".join(map(zstd, parts)), size) == b"".join(parts)
    assert unpack(["gzip"], gzip.compress(b"padded") + bytes(100), 10) == b"padded"


def test_two_packings_are_taken_off_in_turn() -> None:
    for first, (one, pack) in PACKERS.items():
        for two, again in PACKERS.values():
            packed = again(pack(WORDS))
            assert unpack([one, two], packed, 999) == WORDS, (first, two)
            with pytest.raises(BadPacking):
                unpack([one, two], packed[: len(packed) // 2])


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("left", [0.0, 0.1, 0.5, 0.999])
def test_a_body_that_ends_too_early_is_not_taken_for_whole(kind: str, left: float) -> None:
    name, pack = PACKERS[kind]
    packed = pack(WORDS)
    with pytest.raises(BadPacking):
        unpack([name], packed[: int(left * len(packed))])


@pytest.mark.parametrize("kind", PACKERS)
def test_what_is_not_packed_as_it_says_is_refused(kind: str) -> None:
    name, pack = PACKERS[kind]
    for wrong in (b'{"plain": "json"}' * 10, b"\xff" * 300, pack(b"body") + b"and more of it"):
        with pytest.raises(BadPacking):
            unpack([name], wrong)
    packed = bytearray(gzip.compress(WORDS))
    packed[-6] ^= 1  # of the checksum
    with pytest.raises(BadPacking):
        unpack(["gzip"], bytes(packed))


@pytest.mark.parametrize("kind", PACKERS)
def test_a_bomb_is_unpacked_step_by_small_step(kind: str) -> None:
    """SEC-4: nothing is made that was not asked for; who counts can stop."""
    name, pack = PACKERS[kind]
    packed = pack(bytes(2**26))
    unpacking = Unpacking([name])
    unpacking.give(packed)
    longest = made = 0
    while unpacking.more and made < 2**24:
        some = len(unpacking.step())
        longest, made = max(longest, some), made + some
    assert made >= 2**24
    assert unpacking.more, "the rest was not made"
    assert longest <= (2**22 if name == "zstd" else 2 * STEP)


def test_a_bomb_in_a_bomb_is_unpacked_step_by_small_step() -> None:
    """SEC-4."""
    packed = gzip.compress(gzip.compress(bytes(2**27)))
    assert len(packed) < 2000
    began = time.process_time()
    with pytest.raises(OverflowError):
        unpack(["gzip", "gzip"], packed, limit=2**20)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("name", "member"), [("gzip", gzip.compress(b"")), ("zstd", zstd(b""))], ids=["gzip", "zstd"]
)
def test_a_body_of_nothing_but_empty_members_is_refused(name: str, member: bytes) -> None:
    """They make no bytes that could be counted."""
    with pytest.raises(BadPacking, match="too many"):
        unpack([name], member * (MOST_MEMBERS + 2))


def test_a_window_that_takes_too_much_memory_is_refused() -> None:
    """RFC 9659."""
    large = zstandard.ZstdCompressionParameters.from_level(3, window_log=26)
    packer = zstandard.ZstdCompressor(compression_params=large).compressobj()
    with pytest.raises(BadPacking, match="8 MiB"):
        unpack(["zstd"], packer.compress(NOISE) + packer.flush())


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([], []),
        (["identity"], []),
        ([""], []),
        (["GZip"], ["gzip"]),
        (["gzip, br"], ["gzip", "br"]),
        (["gzip", "br"], ["gzip", "br"]),
        ([" deflate ,identity,"], ["deflate"]),
    ],
)
def test_the_head_names_the_packings(values: list[str], names: list[str]) -> None:
    headers = Headers.of((b"content-encoding", value.encode()) for value in values)
    assert list(packings(headers)) == names


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("compress", "'compress'"),
        ("gzip, exi", "'exi'"),
        ("gzip,gzip,gzip", "more than 2"),
        ("\x01", "unknown"),
    ],
)
def test_a_packing_that_is_not_known_is_named(value: str, said: str) -> None:
    with pytest.raises(BadPacking, match=said):
        packings(Headers({b"content-encoding": value.encode()}))


def test_the_libraries_are_imported_with_the_first_body_that_needs_them() -> None:
    script = (
        "import sys; import mcpx.wire.fetch as _; from mcpx.wire.unpack import Unpacking as U; "
        "U(['gzip', 'deflate']);"
        "assert not {'brotli', '_brotli', 'zstandard'} & set(sys.modules);"
        "U(['br', 'zstd']); assert {'brotli', 'zstandard'} <= set(sys.modules)"
    )
    run([sys.executable, "-c", script], check=True, timeout=60)
