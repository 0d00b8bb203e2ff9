"""The latest events are kept in bounds, and whoever reads them goes on where they were."""

import pytest

from mcpx.admin import ring as module
from mcpx.admin.ring import Ring
from mcpx.admin.shapes.events import Reset


def test_each_reader_gets_what_comes_after_the_last_it_had() -> None:
    ring = Ring()
    for number in range(5):
        ring.add("reset", Reset(reason=f"number {number}"))
    last, some = ring.after(2)
    assert last == 5 and some.count(b"\n\n") == 3 and f"id: {ring.run}-3".encode() in some
    assert ring.after(5) == (5, b"")


def test_what_is_sent_in_one_go_is_bounded() -> None:
    ring = Ring()
    for _ in range(10):
        ring.add("reset", Reset(reason="x" * 1000))
    last, some = ring.after(0, most=3000)
    assert last == 3 and len(some) < 4500
    assert ring.after(last)[0] == 10


def test_it_is_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring()
    for _ in range(2500):
        ring.add("reset", Reset())
    assert ring.knows(1500) and not ring.knows(1499) and ring.last == 2500
    monkeypatch.setattr(module, "MOST_BYTES", 10_000)
    ring.add("reset", Reset(reason="x" * 5_000))
    ring.add("reset", Reset(reason="x" * 5_000))
    assert not ring.knows(ring.last - 2) and ring.knows(ring.last - 1)


def test_an_id_of_another_run_or_of_nothing_cannot_be_resumed() -> None:
    ring = Ring()
    ring.add("reset", Reset())
    assert ring.number(ring.id(1)) == 1 and ring.number(ring.id(0)) == 0
    for odd in (
        f"{Ring().run}-1",
        ring.id(2),
        ring.id(-1),
        "",
        "-",
        ring.run,
        f"{ring.run}-",
        f"{ring.run}-١",
    ):
        assert ring.number(odd) is None, odd


def test_what_happened_while_nobody_listened_is_not_passed_off_as_nothing() -> None:
    ring = Ring()
    ring.add("reset", Reset())
    before = ring.id(ring.last)
    ring.clear()
    assert ring.number(before) is None


def test_foreign_text_cannot_begin_another_event() -> None:
    ring = Ring()
    ring.add("reset", Reset(reason="x\n\nevent: config\ndata: {}\r\n\u2028"))
    _, some = ring.after(0)
    assert some.count(b"\n") == 4 and b"\r" not in some
