"""LIF-7: what an earlier run left behind is ended, and nothing that is not ours beyond doubt."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.process import START, Child
from mcpx.processes import leftovers
from mcpx.processes.systems import linux as descendants
from mcpx.processes.systems.tree import BRANDS, MARK, brand_of

pytestmark = pytest.mark.needs("linux")

GONE, HERE, OTHER, NOBODY = (os.urandom(16).hex() for _ in range(4))
"""Not the same twice: tests that run at the same time would end each other's processes."""
PROGRAM = [sys.executable, "-I", "-S", "-c", "print('up', flush=True)\nimport time\ntime.sleep(60)"]


@contextmanager
def process(marks: str | None) -> Iterator[Child]:
    env = {name: value for name, value in os.environ.items() if name != MARK} | (
        {} if marks is None else {MARK: marks}
    )
    with Child(PROGRAM, env) as child:
        assert child.stdout.wait_for("up", START) is not None
        yield child


def note_of_a_dead_run(folder: Path, run: str) -> Path:
    """A number that is somebody's by now: pid 1 lives, but was not started then."""
    first = descendants.read_stat(1)
    assert first is not None
    file = folder / run
    file.write_text(f"1 {first.start + 1}\n")
    return file


def test_a_note_names_this_process_for_good(tmp_path: Path) -> None:
    file = leftovers.note(tmp_path / "runs", HERE)
    assert file is not None
    stat = descendants.read_stat(os.getpid())
    assert stat is not None
    assert file.read_text().split() == [str(os.getpid()), str(stat.start)]
    assert file.parent.stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_written_or_is_none_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert leftovers.note(tmp_path / "file" / "runs", HERE) is None
    assert leftovers.end(tmp_path / "file") == 0
    assert leftovers.end(tmp_path / "nothing") == 0


def test_only_processes_that_carry_the_mark_of_a_run_that_is_gone_are_ended(tmp_path: Path) -> None:
    """Neither those of a run that lives, nor of one that left no note, nor what merely looks
    alike."""
    gone = note_of_a_dead_run(tmp_path, GONE)
    here = leftovers.note(tmp_path, HERE)
    with (
        process(f"{GONE}.00000001") as ours,
        process(f"{OTHER}.00000009,{GONE}.00000002") as nested,
        process(f"{HERE}.00000001") as living,
        process(f"{OTHER}.00000001") as foreign,
        process(f"x{GONE}.00000001") as alike,
        process(None) as plain,
    ):
        assert leftovers.end(tmp_path) == 2
        assert (ours.process.wait(START), nested.process.wait(START)) == (-9, -9)
        assert [child.process.poll() for child in (living, foreign, alike, plain)] == [None] * 4
    assert not gone.exists()
    assert here is not None and here.exists()


def test_a_note_that_makes_no_sense_is_left_alone_and_ends_nobody(tmp_path: Path) -> None:
    for name, body in {GONE: b"", HERE: b"one two", OTHER: b"\xff\xfe", NOBODY: b"1 2 3"}.items():
        (tmp_path / name).write_bytes(body)
    (tmp_path / "folder").mkdir()
    with process(f"{GONE}.00000001") as child:
        assert leftovers.end(tmp_path) == 0
        assert child.process.poll() is None
    assert len(list(tmp_path.iterdir())) == 5


def test_a_run_that_left_nothing_is_forgotten(tmp_path: Path) -> None:
    note = note_of_a_dead_run(tmp_path, GONE)
    assert leftovers.end(tmp_path) == 0
    assert not note.exists()


def test_it_never_ends_itself(tmp_path: Path) -> None:
    """A gateway that a server of a dead run has started carries that run's mark."""
    note_of_a_dead_run(tmp_path, GONE)
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from pathlib import Path\n"
        "from mcpx.processes import leftovers\n"
        f"print('ended', leftovers.end(Path({str(tmp_path)!r})), flush=True)"
    )
    with Child([sys.executable, "-c", program], {**os.environ, MARK: f"{GONE}.00000001"}) as child:
        assert child.stdout.wait_for("ended 0", START) is not None, child.stderr.text


def test_what_lost_its_environment_is_found_by_the_brand_of_its_run(tmp_path: Path) -> None:
    note_of_a_dead_run(tmp_path, GONE)
    with (
        descendants.branding(brand_of(GONE) * BRANDS + 7) as brand,
        Child(PROGRAM, {}) as ours,
    ):
        if not brand:
            pytest.skip("branded by somebody else")
        assert ours.stdout.wait_for("up", START) is not None
        assert descendants.read_brand(ours.process.pid) == brand
        assert leftovers.end(tmp_path) == 1
        assert ours.process.wait(START) == -9
    assert descendants.read_brand(os.getpid()) == 0


def test_a_folder_of_others_is_not_believed_and_a_pipe_is_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / OTHER)
    note_of_a_dead_run(tmp_path, GONE)
    with process(f"{GONE}.00000001") as ours:
        tmp_path.chmod(0o777)
        assert leftovers.end(tmp_path) == 0
        assert ours.process.poll() is None
        assert "can be written by other users" in caplog.text
        tmp_path.chmod(0o700)
        assert leftovers.end(tmp_path) == 1


def test_a_note_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = leftovers.note(tmp_path / "state" / "runs", HERE)
    finally:
        os.umask(before)
    assert file is not None
    assert [path.stat().st_mode & 0o777 for path in (file, file.parent, file.parent.parent)] == [
        0o600,
        0o700,
        0o700,
    ]
