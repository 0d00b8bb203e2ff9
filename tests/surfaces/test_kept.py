"""SUR-11: large results are kept for their owner, for a while, within bounds."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcpx.surfaces.large.kept import SMALLEST, ResultStore

KB = 1024


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[ResultStore]:
    """Room for four results of 10 kB in memory and for eight on disk."""
    store = ResultStore(memory_bytes=40 * KB, disk_bytes=80 * KB, seconds=60, folder=tmp_path, clock=clock)
    yield store
    store.close()


def body(number: int, size: int = 10 * KB) -> bytes:
    return f"{number} ".encode() * (size // len(f"{number} "))


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def size_on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in files(folder))


def test_what_is_kept_is_read_back_by_its_handle(store: ResultStore) -> None:
    """SUR-11"""
    first, second = store.keep("ann", b"one"), store.keep("ann", b"two")
    assert (store.get("ann", first), store.get("ann", second)) == (b"one", b"two")
    assert store.get("ann", first) == b"one"


def test_handles_are_short_and_never_the_same(store: ResultStore) -> None:
    """SUR-11: nobody can guess one."""
    handles = {store.keep("ann", b"x") for _ in range(300)}
    assert len(handles) == 300
    assert {len(handle) for handle in handles} == {12}


@pytest.mark.parametrize("spilled", [False, True])
def test_anothers_handle_reads_as_unknown_and_stays_readable_for_its_owner(store: ResultStore, spilled: bool) -> None:
    """SUR-11: bound to the caller."""
    handle = store.keep("ann", body(1))
    if spilled:
        for number in range(4):
            store.keep("bob", body(number))
    for stranger in ("bob", "", "ann ", "ANN"):
        assert store.get(stranger, handle) is None
        assert store.get(stranger, "no-such-thing") is None
    assert store.get("ann", handle) == body(1)


def test_a_handle_belongs_to_owner_and_handle_together(store: ResultStore) -> None:
    """SUR-11: no way to move a letter from one to the other."""
    handle = store.keep("ann", b"x")
    assert store.get("an", f"n{handle}") is None
    assert store.get(f"ann{handle[0]}", handle[1:]) is None


def test_a_result_is_kept_for_so_long_from_the_moment_it_was_kept(store: ResultStore, clock: Clock) -> None:
    """SUR-11: reading it does not prolong that."""
    handle = store.keep("ann", b"x")
    clock.now += 59.9
    assert store.get("ann", handle) == b"x"
    clock.now += 0.1
    assert store.get("ann", handle) is None


def test_fifteen_minutes_unless_told_otherwise(clock: Clock) -> None:
    """SUR-11"""
    store = ResultStore(clock=clock)
    handle = store.keep("ann", b"x")
    clock.now += 899
    assert store.get("ann", handle) == b"x"
    clock.now += 1
    assert store.get("ann", handle) is None


def test_files_of_results_that_are_too_old_go_at_the_next_keep_or_get(
    store: ResultStore, clock: Clock, tmp_path: Path
) -> None:
    """SUR-11: no timer needed."""
    for read in (True, False):
        for number in range(6):
            store.keep("ann", body(number))
        assert len(files(tmp_path)) == 2
        clock.now += 60
        if read:
            store.get("bob", "whatever")
        else:
            store.keep("bob", b"x")
        assert files(tmp_path) == []


def test_small_results_never_touch_the_disk(store: ResultStore, tmp_path: Path) -> None:
    """SUR-11: the folder is made when it is first needed."""
    for number in range(4):
        store.keep("ann", body(number))
    assert list(tmp_path.iterdir()) == []


def test_beyond_the_memory_the_oldest_move_to_files_and_stay_readable(store: ResultStore, tmp_path: Path) -> None:
    """SUR-11"""
    handles = [store.keep("ann", body(number)) for number in range(10)]
    assert len(files(tmp_path)) == 6
    assert [store.get("ann", handle) for handle in handles] == [body(number) for number in range(10)]


def test_beyond_the_disk_the_oldest_go(store: ResultStore, tmp_path: Path) -> None:
    """SUR-11: the total is bounded whatever comes."""
    handles = [store.keep("ann", body(number)) for number in range(30)]
    read = [store.get("ann", handle) for handle in handles]
    assert read[:18] == [None] * 18
    assert read[18:] == [body(number) for number in range(18, 30)]
    assert len(files(tmp_path)) == 8
    assert size_on_disk(tmp_path) <= 80 * KB


def test_whoever_fills_the_disk_loses_their_own_results_first(store: ResultStore) -> None:
    """SUR-11: one client that asks for much does not cost another one what it was given."""
    kept = store.keep("ann", body(0))
    flood = [store.keep("bob", body(number)) for number in range(1, 31)]
    assert store.get("ann", kept) == body(0)
    assert sum(store.get("bob", handle) is not None for handle in flood) == 11


def test_many_tiny_results_are_bounded_in_number(tmp_path: Path) -> None:
    """SUR-11: an empty result counts as well."""
    with_files = ResultStore(memory_bytes=4 * SMALLEST, disk_bytes=4 * SMALLEST, folder=tmp_path)
    handles = [with_files.keep("ann", b"") for _ in range(50)]
    assert sum(with_files.get("ann", handle) is not None for handle in handles) == 8
    assert len(files(tmp_path)) == 4
    with_files.close()


def test_a_result_larger_than_the_memory_goes_to_a_file_at_once(tmp_path: Path) -> None:
    """SUR-11: what is in memory may stay there."""
    store = ResultStore(memory_bytes=20 * KB, disk_bytes=400 * KB, folder=tmp_path)
    small, large = store.keep("ann", body(1)), store.keep("ann", body(2, 90 * KB))
    assert [file.read_bytes() for file in files(tmp_path)] == [body(2, 90 * KB)]
    assert (store.get("ann", small), store.get("ann", large)) == (body(1), body(2, 90 * KB))
    store.close()


@pytest.mark.parametrize("letter", ["a", "ä", "€", "😀"])
@pytest.mark.parametrize("disk", [0, 40 * KB])
def test_a_result_larger_than_a_quarter_of_the_room_is_cut_and_says_so(tmp_path: Path, letter: str, disk: int) -> None:
    """SUR-11: whole characters, and a last line for whoever reads that far."""
    store = ResultStore(memory_bytes=16 * KB, disk_bytes=disk, folder=tmp_path)
    text = ("x" + letter * 20_000).encode()
    kept = store.get("ann", store.keep("ann", text))
    assert kept is not None
    assert len(kept) <= max(disk, 16 * KB) // 4
    beginning, _, note = kept.decode().rpartition("\n")
    assert text.startswith(beginning.encode())
    assert len(beginning.encode()) > max(disk, 16 * KB) // 4 - 120
    assert note == f"[cut by mcpx: the first {len(beginning.encode()):,} of {len(text):,} bytes were kept]"
    store.close()


def test_files_and_their_folder_are_for_us_alone(store: ResultStore, tmp_path: Path) -> None:
    """SUR-11"""
    for number in range(6):
        store.keep("ann", body(number))
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith(f"mcpx-results-{os.getpid()}-")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in files(tmp_path)} == {0o600}


def test_nothing_in_a_file_name_tells_the_handle(store: ResultStore, tmp_path: Path) -> None:
    """SUR-11: who can list the folder cannot read through the gateway."""
    handles = [store.keep("ann", body(number)) for number in range(6)]
    names = " ".join(file.name for file in files(tmp_path))
    assert not [handle for handle in handles if handle in names]


def test_closing_removes_everything_and_later_results_stay_in_memory(store: ResultStore, tmp_path: Path) -> None:
    """SUR-11: a call that ends late does not bring the folder back."""
    handles = [store.keep("ann", body(number)) for number in range(8)]
    store.close()
    assert list(tmp_path.iterdir()) == []
    assert [store.get("ann", handle) for handle in handles] == [None] * 8
    late = [store.keep("ann", body(number)) for number in range(8)]
    assert list(tmp_path.iterdir()) == []
    assert store.get("ann", late[-1]) == body(7)
    assert store.get("ann", late[0]) is None
    store.close()


def test_a_folder_that_cannot_be_made_leaves_the_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SUR-11: `keep` never fails; one line in the log says why less is kept."""
    (tmp_path / "file").write_text("")
    store = ResultStore(memory_bytes=40 * KB, disk_bytes=800 * KB, folder=tmp_path / "file")
    with caplog.at_level(logging.WARNING, "mcpx.results"):
        handles = [store.keep("ann", body(number)) for number in range(10)]
        large = store.keep("ann", body(1, 100 * KB))
    assert [store.get("ann", handle) for handle in handles[:6]] == [None] * 6
    assert store.get("ann", handles[-1]) == body(9)
    kept = store.get("ann", large)
    assert kept is not None and kept.startswith(b"1 1 1 ") and b"[cut by mcpx" in kept
    assert len(caplog.messages) == 1
    store.close()


def test_a_folder_removed_under_us_loses_its_results_and_is_made_anew(store: ResultStore, tmp_path: Path) -> None:
    """SUR-11: somebody tidies up the temporary files."""
    handles = [store.keep("ann", body(number)) for number in range(6)]
    (folder,) = tmp_path.iterdir()
    for file in files(folder):
        file.unlink()
    folder.rmdir()
    assert [store.get("ann", handle) for handle in handles[:2]] == [None, None]
    assert store.get("ann", handles[2]) == body(2)
    store.keep("ann", body(6))
    assert store.get("ann", handles[2]) == body(2)
    assert len(files(tmp_path)) == 1
    for number in range(20):
        store.keep("ann", body(number))
    assert len(files(tmp_path)) == 8


def test_a_disk_that_takes_nothing_costs_the_oldest_and_leaves_no_halves(tmp_path: Path) -> None:
    """SUR-11: a real error of the system while writing."""
    program = f"""
import json, resource
from pathlib import Path
from mcpx.surfaces.large.kept import ResultStore
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
store = ResultStore(memory_bytes=40960, disk_bytes=1 << 20, folder=Path({str(tmp_path)!r}))
handles = [store.keep("ann", b"x" * 10240) for _ in range(10)]
large = store.keep("ann", b"y" * 100_000)
print(json.dumps([
    [store.get("ann", handle) is not None for handle in handles],
    len(store.get("ann", large)),
    [path.name for path in Path({str(tmp_path)!r}).glob("*/*")],
]))
store.close()
"""
    read, large, left = json.loads(in_another_process(program))
    assert read == [False] * 7 + [True] * 3
    assert 4096 < large <= 10240
    assert left == []
    assert list(tmp_path.iterdir()) == []


def in_another_process(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def spill(folder: Path) -> ResultStore:
    store = ResultStore(memory_bytes=10 * KB, disk_bytes=100 * KB, folder=folder)
    store.keep("ann", body(1))
    store.keep("ann", body(2))
    return store


posix = pytest.mark.skipif(sys.platform == "win32", reason="locks on folders")


@posix
def test_what_a_killed_run_left_behind_is_removed_by_the_next_one_that_needs_the_disk(tmp_path: Path) -> None:
    """SUR-11"""
    program = f"""
import os
from pathlib import Path
from mcpx.surfaces.large.kept import ResultStore
store = ResultStore(memory_bytes=10240, disk_bytes=102400, folder=Path({str(tmp_path)!r}))
store.keep("ann", b"x" * 10000), store.keep("ann", b"x" * 10000)
os._exit(0)
"""
    in_another_process(program)
    (left,) = tmp_path.iterdir()
    assert len(files(left)) == 1
    quiet = ResultStore(folder=tmp_path)
    quiet.keep("ann", b"x")
    assert left.exists()
    store = spill(tmp_path)
    assert not left.exists()
    store.close()


@posix
def test_folders_of_runs_that_live_stay(tmp_path: Path) -> None:
    """SUR-11: by their process or by their lock, whichever can be seen from here."""
    import fcntl

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(30)
    living = tmp_path / f"mcpx-results-{os.getppid()}-a"
    elsewhere = tmp_path / f"mcpx-results-{ended.pid}-a"  # of another container: a lock, and no process here
    dead = tmp_path / f"mcpx-results-{ended.pid}-b"
    ours_before = tmp_path / f"mcpx-results-{os.getpid()}-a"  # of a container before ours, with the same number
    for folder in (living, elsewhere, dead, ours_before):
        folder.mkdir()
        (folder / "x").write_text("x")
    lock = os.open(elsewhere, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    first = spill(tmp_path)
    second = spill(tmp_path)
    assert (living.exists(), elsewhere.exists(), dead.exists(), ours_before.exists()) == (True, True, False, False)
    assert len(list(tmp_path.glob(f"mcpx-results-{os.getpid()}-*"))) == 2
    os.close(lock)
    first.close()
    second.close()


@posix
def test_only_our_own_folders_are_removed(tmp_path: Path) -> None:
    """SUR-11: no link is followed, no name that merely looks alike is touched."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(30)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "x").write_text("x")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (temporary / f"mcpx-results-{ended.pid}-link").symlink_to(precious)
    (temporary / f"mcpx-results-{ended.pid}-file").write_text("x")
    for name in ("mcpx-results-x-a", f"mcpx-results-{ended.pid}", f"other-{ended.pid}-a", "mcpx-results--1-a"):
        (temporary / name).mkdir()
    (temporary / f"mcpx-results-{'9' * 30}-a").mkdir()  # no process ever had that number
    store = spill(temporary)
    store.close()
    assert (precious / "x").read_text() == "x"
    assert len(list(temporary.iterdir())) == 6
