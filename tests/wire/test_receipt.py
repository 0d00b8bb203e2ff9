"""Packed bodies: whole, in parts, cut off, mislabeled, and made to expand without end."""

import asyncio
import gzip
import random
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.loop import run
from mcpx.wire import receipt
from mcpx.wire.exchange import Headers
from mcpx.wire.receipt import MAX_MEMBERS, OUTPUT_BYTES, BadBody, Receipt, TooLarge


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
}
WORDS = b" ".join(b"%d bottles" % n for n in range(20_000))
NOISE = random.Random(7).randbytes(300_000)


def unpack(encoding: str, packed: bytes, limit: int = 1 << 30, seconds: float = 60) -> bytes:
    async def main() -> bytes:
        deadline = asyncio.get_running_loop().time() + seconds
        return await receipt.unpack(packed, encoding, limit, deadline)

    return run(main())


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize(
    "body",
    [b"", b"x", WORDS, NOISE, *map(bytes, (OUTPUT_BYTES - 1, OUTPUT_BYTES, 2 * OUTPUT_BYTES))],
    ids=["empty", "tiny", "words", "noise", "below a step", "a step", "two steps"],
)
def test_a_packed_body_comes_out_as_it_was(kind: str, body: bytes) -> None:
    encoding, pack = PACKERS[kind]
    assert unpack(encoding, pack(body)) == body


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.binary(max_size=50_000), min_size=1, max_size=4),
    st.sampled_from(sorted(PACKERS)),
    st.integers(1, 9),
)
def test_whatever_was_packed_comes_out(parts: list[bytes], kind: str, times: int) -> None:
    encoding, pack = PACKERS[kind]
    body = b"".join(parts) * times
    assert unpack(encoding, pack(body)) == body
    if encoding == "gzip":
        assert unpack(encoding, b"".join(map(pack, parts))) == b"".join(parts)


@settings(deadline=None)
@given(st.sampled_from(sorted(PACKERS)), st.integers(1, 5_000), st.integers(0, 7))
def test_a_changed_body_is_refused_or_comes_out_as_something_else(
    kind: str, place: int, bit: int
) -> None:
    encoding, pack = PACKERS[kind]
    packed = bytearray(pack(WORDS[:20_000]))
    packed[place % len(packed)] ^= 1 << bit
    try:
        unpack(encoding, bytes(packed))
    except BadBody:
        pass


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("left", [0.1, 0.5, 0.999])
def test_a_body_that_ends_too_early_is_refused(kind: str, left: float) -> None:
    encoding, pack = PACKERS[kind]
    packed = pack(WORDS)
    with pytest.raises(BadBody):
        unpack(encoding, packed[: int(left * len(packed))])


@pytest.mark.parametrize("kind", PACKERS)
def test_a_body_that_goes_on_behind_its_end_is_refused(kind: str) -> None:
    encoding, pack = PACKERS[kind]
    for wrong in (b'{"plain": "json"}' * 10, b"\xff" * 300, pack(b"body") + b"and more of it"):
        with pytest.raises(BadBody):
            unpack(encoding, wrong)


def test_zeros_may_follow_a_gzip_body() -> None:
    assert unpack("gzip", gzip.compress(b"padded") + bytes(100_000)) == b"padded"
    with pytest.raises(BadBody, match="behind its end"):
        unpack("gzip", gzip.compress(b"padded") + bytes(100_000) + b"x")


@pytest.mark.parametrize("kind", PACKERS)
def test_a_bomb_ends_at_the_limit(kind: str) -> None:
    """SEC-4: at most one step more than the limit is unpacked."""
    encoding, pack = PACKERS[kind]
    with pytest.raises(TooLarge, match="1,000,000 bytes unpacked"):
        unpack(encoding, pack(bytes(2**26)), limit=1_000_000)


def test_a_body_of_nothing_but_empty_members_is_refused() -> None:
    with pytest.raises(BadBody, match="too many"):
        unpack("gzip", gzip.compress(b"") * (MAX_MEMBERS + 2))


def test_unpacking_ends_at_its_deadline() -> None:
    with pytest.raises(TimeoutError):
        unpack("gzip", gzip.compress(bytes(2**27)), seconds=0)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (["identity"], None),
        ([""], None),
        (["GZip"], None),
        (["x-gzip"], None),
        ([" deflate ,identity,"], None),
        (["br"], "'br'"),
        (["gzip, zstd"], "'gzip, zstd'"),
        (["gzip", "gzip"], "'gzip,gzip'"),
        (["\x01"], "in an unknown way"),
    ],
)
def test_an_encoding_that_was_not_requested_is_refused(
    values: list[str], problem: str | None
) -> None:
    async def main() -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        response = Receipt(done, 100, False, False)
        response.head(200, Headers.of((b"content-encoding", value.encode()) for value in values))
        assert done.done() == (problem is not None)
        if problem is not None:
            assert problem in str(response.error)

    run(main())
