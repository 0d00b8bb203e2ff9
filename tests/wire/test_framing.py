"""Readers: the same messages for every chunking, bounded, linear, and unbreakable."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kit.cost import cost_ratio
from mcpx.wire.framing import HEADER_LIMIT, Framing, MessageReader, Patience, frame
from mcpx.wire.sse import SseEvent, SseReader, sse_frame

LIMIT = 64


def read(
    data: list[bytes],
    framing: Any = "newline",
    limit: int = LIMIT,
    heads: list[bytes] | None = None,
) -> tuple[list[bytes], list[tuple[int, str]]]:
    messages: list[bytes] = []
    skipped: list[tuple[int, str]] = []

    def note(size: int, why: str, head: bytes) -> None:
        skipped.append((size, why))
        if heads is not None:
            heads.append(head)

    reader = MessageReader(messages.append, note, limit=limit, framing=framing)
    for chunk in data:
        reader.feed(chunk)
    reader.finish()
    return messages, skipped


def read_events(data: list[bytes], limit: int = LIMIT) -> tuple[list[SseEvent], list[int]]:
    events: list[SseEvent] = []
    skipped: list[int] = []
    reader = SseReader(events.append, limit=limit, on_skipped=lambda n, *_: skipped.append(n))
    for chunk in data:
        reader.feed(chunk)
    return events, skipped


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks: list[bytes] = []
    at = 0
    for size in sizes:
        chunks.append(data[at : at + size])
        at += size
    return [*chunks, data[at:]]


def bytewise(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


# --- lines


def test_each_line_is_a_message_and_blank_lines_are_none() -> None:
    assert read([b'{"a":1}\n\n  \r\n{"b":2}\r\n']) == ([b'{"a":1}', b'{"b":2}'], [])


def test_the_last_line_needs_no_newline() -> None:
    assert read([b"one\ntw", b"o"]) == ([b"one", b"two"], [])


def test_a_line_over_the_limit_is_skipped_and_the_next_one_read() -> None:
    messages, skipped = read(
        [b"x" * 40, b"x" * 40, b"x" * 20 + b"\nnext\n" + b"y" * 65 + b"\nlast"]
    )
    assert messages == [b"next", b"last"]
    assert [n for n, _ in skipped] == [100, 65]


def test_a_line_of_exactly_the_limit_passes_with_either_ending() -> None:
    line = b"x" * LIMIT
    for ending in (b"\n", b"\r\n"):
        assert read(bytewise(line + ending)) == ([line], [])
        assert read(bytewise(b"x" + line + ending))[0] == []


def test_a_line_that_never_ends_is_reported_at_the_end() -> None:
    assert [n for n, _ in read([b"x" * 50] * 4)[1]] == [200]


def test_bytes_that_are_no_text_are_still_a_line() -> None:
    assert read([b"\xff\x00\xfe\n{}\n"]) == ([b"\xff\x00\xfe", b"{}"], [])


# --- Content-Length


def block(body: bytes, *more: bytes) -> bytes:
    return b"".join([*(m + b"\r\n" for m in more), b"Content-Length: %d\r\n\r\n" % len(body), body])


def test_a_block_holds_exactly_the_declared_bytes_newlines_included() -> None:
    data = (
        block(b'{"a":\n1}')
        + block(b"{}", b"Content-Type: application/json; charset=utf-8")
        + b"\r\n"
        + block(b"[]")
    )
    for chunks in ([data], bytewise(data)):
        assert read(chunks, "content-length") == ([b'{"a":\n1}', b"{}", b"[]"], [])


def test_header_names_are_read_in_any_case_and_with_bare_newlines() -> None:
    assert read([b"CONTENT-length :2\n\n{}"], "content-length") == ([b"{}"], [])


def test_a_body_over_the_limit_is_skipped_by_its_length() -> None:
    data = block(b"Content-Length: 5\r\n\r\n" * 10) + block(b"{}")
    for chunks in ([data], bytewise(data)):
        messages, skipped = read(chunks, "content-length")
        assert messages == [b"{}"]
        assert [n for n, _ in skipped] == [210]


@pytest.mark.parametrize(
    "bad",
    [
        b"Content-Length: -5\r\n\r\n{...}",
        b"Content-Length: five\r\n\r\n{...}",
        b"Content-Length: \r\n\r\n{...}",
        b"Content-Length: 99999999999999999999999\r\n\r\n{...}",
        b"Content-Length: 5000000000\r\n\r\n{...}",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{...}",
        b"Content-Type: application/json\r\n\r\n{...}",
        b"Server started on port 80\n",
        b'{"jsonrpc":"2.0"}\n',
        b"X: " + b"y" * HEADER_LIMIT + b"\r\n\r\n",
        b"X: y\r\n" * (HEADER_LIMIT // 6 + 1) + b"\r\n",
        b"y" * (5 * HEADER_LIMIT),
        b"\xff\xfe\x00\n\n\n",
    ],
)
def test_after_nonsense_the_next_header_is_found(bad: bytes) -> None:
    data = bad + block(b"[1]") + block(b"[2]")
    results = [
        read(chunks, "content-length") for chunks in ([data], cut(data, [7] * (len(data) // 7)))
    ]
    assert results[0] == results[1]
    messages, skipped = results[0]
    assert messages == [b"[1]", b"[2]"]
    assert sum(n for n, _ in skipped) == len(bad)


def test_a_length_counted_in_characters_costs_one_message_only() -> None:
    body = '{"text":"äöü"}'.encode()
    data = b"Content-Length: %d\r\n\r\n%b" % (len(body.decode()), body) + block(b"[2]")
    messages, skipped = read([data], "content-length")
    assert messages == [body[:-3], b"[2]"]
    assert [n for n, _ in skipped] == [3]


def test_an_empty_body_is_no_message() -> None:
    assert read([block(b"") + block(b"{}")], "content-length") == ([b"{}"], [])


def test_a_block_that_breaks_off_is_reported() -> None:
    assert [n for n, _ in read([b"Content-Length: 10\r\n\r\n12345"], "content-length")[1]] == [5]
    assert [n for n, _ in read([b"Content-Length: 10\r\n"], "content-length")[1]] == [20]
    heads: list[bytes] = []
    too_large = [b"Content-Length: 1000\r\n\r\n", b"12345" * 20]
    assert [n for n, _ in read(too_large, "content-length", heads=heads)[1]] == [100]
    assert heads == [b"12345" * 20]


# --- detection


@pytest.mark.parametrize(
    ("data", "framing"),
    [
        (b'\r\n {"a":1}\n', "newline"),
        (b"content-length:2\r\n\r\n{}", "content-length"),
        (b"\n\n\xef\xbb\xbfContent-Type: x\r\nContent-Length: 2\r\n\r\n{}", "content-length"),
        (b"Content-Lengthy explanations\n", "newline"),
        (b"Content", "newline"),
        (b"\xef\xbb", "newline"),
    ],
)
def test_the_first_bytes_tell_the_framing(data: bytes, framing: Framing) -> None:
    for chunks in ([data], bytewise(data)):
        messages: list[bytes] = []
        reader = MessageReader(messages.append, lambda *_: None, limit=LIMIT, framing="detect")
        for chunk in chunks:
            reader.feed(chunk)
        reader.finish()
        assert reader.framing == framing
        assert len(messages) == 1


def test_a_frame_has_that_one_header_only() -> None:
    assert frame(b"{}", "content-length") == b"Content-Length: 2\r\n\r\n{}"
    assert frame(b"{}", "newline") == b"{}\n"


# --- every chunking, any bytes

LINES = [b"\n", b"\r", b"\r\n", b"\r\n\r\n", b" ", b"{}", b"x" * 20, b"\xff", b"\xef\xbb\xbf", b":"]
FIELDS = [b"data: ", b"data", b"id: 7\n", b"event: e\n", b"retry: 5\n", b": c\n"]
BLOCKS = [b"Content-Length: 3\r\n\r\nabc", b"content-length", b"3", b"Content-Length: 300\r\n\r\n"]
MORE = [b"Content-Type: x\r\n", b"X" * HEADER_LIMIT, b"A: b\r\n"]
PIECES = st.sampled_from([*LINES, *FIELDS, *BLOCKS, *MORE])
STREAMS = st.lists(PIECES | st.binary(max_size=8), max_size=30).map(b"".join)
CUTS = st.lists(st.integers(1, 40), max_size=60)


@given(STREAMS, CUTS, st.sampled_from(["newline", "content-length", "detect"]))
@example(b"x" * 65 + b"\r\n", [64, 1, 1], "newline")
def test_every_chunking_gives_the_same_messages_and_skips(
    data: bytes, sizes: list[int], framing: str
) -> None:
    heads: tuple[list[bytes], list[bytes]] = ([], [])
    whole = read([data], framing, heads=heads[0])
    assert read(cut(data, sizes), framing, heads=heads[1]) == whole
    assert heads[0] == heads[1]
    assert all(len(m) <= LIMIT for m in whole[0])


@given(STREAMS, CUTS)
def test_every_chunking_gives_the_same_events_and_skips(data: bytes, sizes: list[int]) -> None:
    assert read_events(cut(data, sizes)) == read_events([data])


@given(
    st.lists(st.binary(min_size=1, max_size=LIMIT).filter(lambda b: not b.isspace()), max_size=8),
    CUTS,
)
def test_blocks_round_trip(bodies: list[bytes], sizes: list[int]) -> None:
    data = b"".join(frame(b, "content-length") for b in bodies)
    assert read(cut(data, sizes), "content-length") == (bodies, [])


@given(st.lists(st.binary(max_size=40).filter(lambda b: b"\r" not in b), max_size=8), CUTS)
def test_events_round_trip(bodies: list[bytes], sizes: list[int]) -> None:
    data = b"".join(sse_frame(b, id=str(i)) for i, b in enumerate(bodies))
    events, skipped = read_events(cut(data, sizes), limit=1000)
    assert [e.data for e in events] == bodies
    assert [e.id for e in events] == [str(i) for i in range(len(bodies))]
    assert skipped == []


# --- server-sent events


def test_an_event_has_data_name_id_and_retry() -> None:
    assert read_events([b"event: ping\nid: 7\nretry: 50\ndata: {}\n\n"])[0] == [
        SseEvent(b"{}", "ping", "7", 50)
    ]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_lines_end_in_three_ways(ending: bytes) -> None:
    data = ending.join([b"data: a", b"data:b", b"data:  c", b"", b": comment", b"data", b"", b""])
    for chunks in ([data], bytewise(data)):
        assert [e.data for e in read_events(chunks)[0]] == [b"a\nb\n c", b""]


def test_an_event_of_id_or_retry_only_has_no_data() -> None:
    events, _ = read_events([b"id: a\n\nretry: 9\n\nevent: x\n\n\n\n"])
    assert events == [SseEvent(None, "message", "a", None), SseEvent(None, "message", None, 9)]


def test_odd_fields_are_left_out() -> None:
    data = b"\xef\xbb\xbfid: a\0b\nretry: soon\nretry: -1\nfoo: bar\ndata: 1\ndatax: 2\n\n"
    for chunks in ([data], bytewise(data)):
        assert read_events(chunks)[0] == [SseEvent(b"1", "message", None, None)]


def test_an_event_over_the_limit_is_skipped_to_its_blank_line() -> None:
    data = (
        b"id: 1\ndata: "
        + b"x" * 100
        + b"\ndata: more\n\ndata: next\n\n"
        + b"data: 12345\n" * 10
        + b"\ndata: last\n\n"
    )
    for chunks in ([data], bytewise(data)):
        events, skipped = read_events(chunks)
        assert [e.data for e in events] == [b"next", b"last"]
        assert skipped == [5 + 106 + 10, 110]


def test_comments_of_any_length_are_free() -> None:
    assert [
        e.data for e in read_events([b": ", b"x" * 500, b"\n", b": y\n" * 200, b"data: 1\n\n"])[0]
    ] == [b"1"]


def test_a_frame_of_data_with_newlines_has_several_data_lines() -> None:
    assert (
        sse_frame(b"a\r\nb\n", event="e", retry=3)
        == b"event: e\nretry: 3\ndata: a\ndata: b\ndata: \n\n"
    )


def test_an_id_cannot_carry_a_line_break() -> None:
    with pytest.raises(ValueError, match="line break"):
        sse_frame(b"", id="a\ndata: forged")


# --- callbacks that raise


def test_an_exception_of_a_callback_surfaces_and_costs_no_other_message() -> None:
    seen: list[bytes] = []

    def on_message(body: bytes) -> None:
        seen.append(body)
        if body.startswith(b"bad"):
            raise RuntimeError(body.decode())

    reader = MessageReader(on_message, lambda *_: None, limit=LIMIT)
    with pytest.raises(RuntimeError, match="bad1"):
        reader.feed(b"one\nbad1\nbad2\ntwo\nthr")
    reader.feed(b"ee\n")
    assert seen == [b"one", b"bad1", b"bad2", b"two", b"three"]


# --- linear and bounded


@pytest.mark.parametrize("framing", ["newline", "content-length", "sse"])
def test_time_is_linear_in_the_input(framing: str) -> None:
    def work(n: int) -> Callable[[], object]:
        body = b"x" * n
        if framing == "sse":
            data = b"data: " + body + b"\n\n" + b"data:\n" * (n // 6) + b"\n"
            return lambda: read_events(cut(data, [16] * (len(data) // 16)), limit=2 * n)
        data = frame(body, "newline" if framing == "newline" else "content-length")
        return lambda: read(cut(data, [16] * (len(data) // 16)), framing, limit=n)

    times = cost_ratio(work(200_000), work(1_600_000))
    assert times < 4 * 8, (
        "eight times the input; whoever copies all there is at each piece takes 64 times as long"
    )


@pytest.mark.parametrize("framing", ["newline", "content-length", "detect"])
def test_an_endless_message_is_not_kept(framing: Any) -> None:
    reader = MessageReader(lambda _: None, lambda *_: None, limit=1000, framing=framing)
    for chunk in (b"{", *[b"x" * 5000] * 100):
        reader.feed(chunk)
        inner: Any = reader._inner  # pyright: ignore[reportPrivateUsage]
        assert len(inner._kept) <= HEADER_LIMIT


@pytest.mark.parametrize("framing", ["newline", "content-length"])
@pytest.mark.parametrize("step", [1, 7, 4096])
def test_a_skipped_message_is_reported_with_its_head(framing: Framing, step: int) -> None:
    """SRC-8: the head tells which request an oversized answer belonged to."""
    heads: list[bytes] = []
    reader = MessageReader(
        lambda _: None, lambda n, why, head: heads.append(head), limit=1000, framing=framing
    )
    body = b'{"jsonrpc":"2.0","id":7,"result":{"text":"' + b"x" * 3000 + b'"}}'
    stream = frame(body, framing)
    for at in range(0, len(stream), step):
        reader.feed(stream[at : at + step])
    assert [head[:24] for head in heads] == [body[:24]]


@pytest.mark.parametrize("step", [1, 7, 4096])
def test_a_skipped_event_is_reported_with_the_head_of_its_data(step: int) -> None:
    """SRC-8."""
    heads: list[bytes] = []
    reader = SseReader(
        lambda _: None, limit=1000, on_skipped=lambda n, why, head: heads.append(head)
    )
    body = b'{"jsonrpc":"2.0","id":7,"result":{"text":"' + b"x" * 3000 + b'"}}'
    stream = sse_frame(body, id="a-1")
    for at in range(0, len(stream), step):
        reader.feed(stream[at : at + step])
    assert [head[:24] for head in heads] == [body[:24]]


# --- how much may be noise


@pytest.mark.parametrize(
    ("data", "framing", "unfinished"),
    [
        (b'{"a":1}\n', "newline", 0),
        (b'\n\n{"a', "newline", 3),
        (b"x" * (LIMIT + 50), "newline", LIMIT + 50),
        (b"Content-Length: 9\r\n\r\n1234", "content-length", 4),
        (b"Content-Length: %d\r\n\r\n1234" % (LIMIT + 1), "content-length", 4),
        (b"Content-Length: 4\r\n\r\n1234\r\nnonsense", "content-length", 0),
    ],
)
def test_a_reader_tells_how_much_of_a_message_it_holds(
    data: bytes, framing: Any, unfinished: int
) -> None:
    reader = MessageReader(lambda _: None, lambda *_: None, limit=LIMIT, framing=framing)
    reader.feed(data)
    assert reader.unfinished == unfinished


@pytest.mark.parametrize(
    ("data", "holds"),
    [
        (b"", False),
        (b"\n\n\n", False),
        (b": comment", False),
        (b"id: 7\nevent: x\nretry: 5\n", False),
        (b"nonsense", False),
        (b"data: x", True),
        (b"data: x\n", True),
        (b"data: x\n\n", False),
        (b"data: " + b"x" * (LIMIT + 9) + b"\n", True),
    ],
)
def test_an_event_is_held_only_as_far_as_it_has_data(data: bytes, holds: bool) -> None:
    reader = SseReader(lambda _: None, limit=LIMIT, on_skipped=lambda *_: None)
    reader.feed(data)
    assert (reader.unfinished > 0) is holds


def test_patience_counts_from_message_to_message_and_not_what_may_become_one() -> None:
    patience = Patience(100)
    assert not patience.lost(100, 0)
    assert not patience.lost(1000, 1000)
    patience.message()
    assert not patience.lost(100, 0)
    assert patience.lost(1, 0)
    assert not patience.lost(100, 0), "whoever is tried again begins anew"


def test_an_id_over_a_kilobyte_is_dropped_and_its_event_kept() -> None:
    events, _ = read_events(
        [b"id: " + b"x" * 1025 + b"\ndata: y\n\nid: " + b"x" * 1024 + b"\n\n"], limit=10_000
    )
    assert [(event.data, event.id) for event in events] == [(b"y", None), (None, "x" * 1024)]


@pytest.mark.parametrize("retry", ["²", "٣", "+5", "-1", "1e3", "", "5" * 16, " "])
def test_a_retry_that_is_no_plain_number_is_none(retry: str) -> None:
    events, _ = read_events([f"retry: {retry}\ndata: x\n\n".encode()])
    assert [event.retry for event in events] == [None]
