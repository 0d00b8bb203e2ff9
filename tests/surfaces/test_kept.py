"""SUR-11: large results are kept for their owner, for a while, within bounds."""

import random

import pytest

from kit.clock import Clock
from mcpx.surfaces.large.kept import SMALLEST, ResultStore, pack

KB = 1024


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> ResultStore:
    """Room for four results of 10 kB that cannot be packed, and for eight in all."""
    return ResultStore(owner_bytes=42 * KB, total_bytes=84 * KB, seconds=60, clock=clock)


def body(number: int, size: int = 10 * KB) -> bytes:
    """Nothing that could be packed."""
    return random.Random(number).randbytes(size)


def keep(store: ResultStore, owner: str, text: bytes) -> str:
    return store.keep(owner, pack(text, 42 * KB))


def read(store: ResultStore, owner: str, handle: str) -> bytes | None:
    kept = store.get(owner, handle)
    return None if kept is None else kept.text()


def test_what_is_kept_is_read_back_by_its_handle(store: ResultStore) -> None:
    """SUR-11"""
    first, second = keep(store, "ann", b"one"), keep(store, "ann", b"two")
    assert (read(store, "ann", first), read(store, "ann", second)) == (b"one", b"two")
    assert read(store, "ann", first) == b"one"


def test_handles_are_short_and_never_the_same(store: ResultStore) -> None:
    """SUR-11: nobody can guess one."""
    handles = {keep(store, "ann", b"x") for _ in range(300)}
    assert len(handles) == 300
    assert {len(handle) for handle in handles} == {12}


def test_anothers_handle_reads_as_unknown_and_stays_readable_for_its_owner(
    store: ResultStore,
) -> None:
    """SUR-11: bound to the caller."""
    handle = keep(store, "ann", body(1))
    for stranger in ("bob", "", "ann ", "ANN"):
        assert store.get(stranger, handle) is None
        assert store.get(stranger, "no-such-thing") is None
    assert read(store, "ann", handle) == body(1)


def test_a_handle_belongs_to_owner_and_handle_together(store: ResultStore) -> None:
    """SUR-11: no way to move a letter from one to the other."""
    handle = keep(store, "ann", b"x")
    assert store.get("an", f"n{handle}") is None
    assert store.get(f"ann{handle[0]}", handle[1:]) is None


def test_a_result_is_kept_for_so_long_from_the_moment_it_was_kept(
    store: ResultStore, clock: Clock
) -> None:
    """SUR-11: reading it does not prolong that."""
    handle = keep(store, "ann", b"x")
    clock.advance(59.9)
    assert read(store, "ann", handle) == b"x"
    clock.advance(0.1)
    assert store.get("ann", handle) is None


def test_fifteen_minutes_unless_told_otherwise(clock: Clock) -> None:
    """SUR-11"""
    store = ResultStore(clock=clock)
    handle = keep(store, "ann", b"x")
    clock.advance(899)
    assert read(store, "ann", handle) == b"x"
    clock.advance(1)
    assert store.get("ann", handle) is None


def test_of_one_owner_the_oldest_go(store: ResultStore) -> None:
    """SUR-11: bounded for each of them, and nobody else loses anything."""
    other = keep(store, "bob", body(0))
    handles = [keep(store, "ann", body(number)) for number in range(6)]
    assert [read(store, "ann", handle) for handle in handles] == [
        None,
        None,
        body(2),
        body(3),
        body(4),
        body(5),
    ]
    assert read(store, "bob", other) == body(0)


def test_what_is_read_stays_and_what_is_not_goes_first(store: ResultStore) -> None:
    """SUR-11: of one owner, and of whoever has most."""
    first, *others = [keep(store, "ann", body(number)) for number in range(4)]
    assert read(store, "ann", first) == body(0)
    more = keep(store, "ann", body(4))
    assert [read(store, "ann", handle) is None for handle in (first, *others, more)] == [
        False,
        True,
        False,
        False,
        False,
    ]


def test_what_went_early_leaves_nothing_behind(store: ResultStore) -> None:
    """SUR-11: neither its name nor its time."""
    for number in range(2_000):
        keep(store, f"owner {number}", body(number, 5 * KB))
    assert {len(store._kept), len(store._ends), len(store._cost)} == {16}


def test_of_all_it_is_whoever_has_most_that_loses_the_oldest(store: ResultStore) -> None:
    """SUR-11: bounded in all; many small owners do not push each other out."""
    one = [keep(store, "ann", body(number)) for number in range(4)]
    small = {owner: keep(store, owner, body(9, 5 * KB)) for owner in map(str, range(10))}
    assert read(store, "ann", one[0]) is None
    assert read(store, "ann", one[3]) == body(3)
    assert all(read(store, owner, handle) is not None for owner, handle in small.items())


def test_what_can_be_packed_takes_little(store: ResultStore) -> None:
    """SUR-11: compressed, many times as much fits."""
    texts = [f"row {number} of a table\n".encode() * 15_000 for number in range(6)]
    handles = [keep(store, "ann", text) for text in texts]
    assert [read(store, "ann", handle) for handle in handles] == texts
    assert sum(map(len, texts)) > 20 * 42 * KB
    assert [kept.size for handle in handles if (kept := store.get("ann", handle))] == [
        *map(len, texts)
    ]


def test_many_tiny_results_are_bounded_in_number(store: ResultStore) -> None:
    """SUR-11: what is kept about a result takes room as well."""
    handles = [keep(store, "ann", b"x") for _ in range(1_000)]
    left = [handle for handle in handles if store.get("ann", handle) is not None]
    assert left == handles[-(42 * KB // SMALLEST) :]


@pytest.mark.parametrize("letter", ["x", "ä", "🦆"])
def test_a_result_larger_than_an_owners_room_is_cut_and_says_so(
    store: ResultStore, letter: str
) -> None:
    """SUR-11: between characters."""
    text = "".join(random.Random(1).choices(letter + "ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=200 * KB))
    handle = keep(store, "ann", text.encode())
    shown = read(store, "ann", handle)
    assert shown is not None
    begins, note = shown.decode().rsplit("\n", 1)
    assert text.startswith(begins) and len(begins.encode()) > 41 * KB
    assert (
        note
        == f"[mcpx: the first {len(begins.encode()):,} of {len(text.encode()):,} bytes were kept]"
    )


def test_whatever_one_message_may_bring_is_kept_whole() -> None:
    """SUR-11: `max_message` is 16 MB unless told otherwise."""
    store, text = ResultStore(), body(1, 8 << 20).hex().encode()
    assert len(text) == 16 << 20
    assert read(store, "ann", store.keep("ann", pack(text))) == text


def test_what_is_too_old_makes_room_at_the_next_keep(store: ResultStore, clock: Clock) -> None:
    """SUR-11: no timer needed."""
    for owner in ("ann", "bob"):
        for number in range(4):
            keep(store, owner, body(number))
    clock.advance(60)
    handles = [keep(store, "cid", body(number)) for number in range(4)]
    assert [read(store, "cid", handle) for handle in handles] == [
        body(number) for number in range(4)
    ]


def test_what_was_kept_for_one_who_is_gone_is_let_go(store: ResultStore) -> None:
    """SUR-11: a session that ended; what others have stays."""
    gone, other = (
        [keep(store, "ann", body(number)) for number in range(3)],
        keep(store, "bob", body(9)),
    )
    store.forget("ann")
    store.forget("nobody")
    assert [store.get("ann", handle) for handle in gone] == [None] * 3
    assert read(store, "bob", other) == body(9)
    assert (len(store._kept), len(store._ends), len(store._cost)) == (1, 1, 1)


def test_closing_forgets_everything(store: ResultStore) -> None:
    """SUR-11"""
    handle = keep(store, "ann", b"x")
    store.let_go()
    assert store.get("ann", handle) is None
