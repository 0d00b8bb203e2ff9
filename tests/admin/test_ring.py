"""The latest events are kept in bounds, and whoever reads them goes on where they were."""

import pytest

from mcpx.admin import events as module
from mcpx.admin.events import EventBuffer
from mcpx.admin.shapes.watching import Reset


class Ring(EventBuffer):
    """With the names of what the tests look at."""

    def reset(self, reason: str = "") -> None:
        self.add("reset", Reset(reason=reason).model_dump_json())

    def knows(self, number: int) -> bool:
        return self._has_all_after(number)

    def after(self, number: int) -> tuple[int, bytes]:
        return self._after(number)


def test_each_reader_gets_what_comes_after_the_last_it_had() -> None:
    ring = Ring()
    for number in range(5):
        ring.reset(f"number {number}")
    last, some = ring.after(2)
    assert last == 5 and some.count(b"\n\n") == 3 and f"id: {ring.run}-3".encode() in some
    assert ring.after(5) == (5, b"")


def test_what_is_sent_in_one_go_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FRAME_BYTES", 3000)
    ring = Ring()
    for _ in range(10):
        ring.reset("x" * 1000)
    last, some = ring.after(0)
    assert last == 3 and len(some) < 4500
    monkeypatch.setattr(module, "MAX_FRAME_BYTES", 10**6)
    assert ring.after(last)[0] == 10


def test_it_is_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring()
    for _ in range(2500):
        ring.reset()
    assert ring.knows(1500) and not ring.knows(1499) and ring.last == 2500
    monkeypatch.setattr(module, "MAX_EVENT_BYTES", 10_000)
    ring.reset("x" * 5_000)
    ring.reset("x" * 5_000)
    assert not ring.knows(ring.last - 2) and ring.knows(ring.last - 1)


def test_an_id_of_another_run_or_of_nothing_cannot_be_resumed() -> None:
    ring = Ring()
    ring.reset()
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
    ring.reset()
    before = ring.id(ring.last)
    ring.clear()
    assert ring.number(before) is None


def test_foreign_text_cannot_begin_another_event() -> None:
    ring = Ring()
    ring.reset("x\n\nevent: config\ndata: {}\r\n\u2028")
    _, some = ring.after(0)
    assert some.count(b"\n") == 4 and b"\r" not in some
