"""`base.state_file` and `base.build`: state files are private, whole, and decoded strictly."""

import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from mcpx.base.build import Mismatch, build
from mcpx.base.files import FileLock, temporary_file
from mcpx.base.state_file import StateFile, UnreadableState


@dataclass(frozen=True)
class Entry:
    name: str
    count: int = 0
    kind: Literal["a", "b"] = "a"
    expires: float | None = None


@dataclass(frozen=True)
class Content:
    entries: tuple[Entry, ...]
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    marks: frozenset[str] = frozenset()
    raw: Any = None


@pytest.fixture
def file(tmp_path: Path) -> StateFile[Content]:
    return StateFile(tmp_path / "state" / "content.json", Content, max_bytes=1_000)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"entries": []}, Content(())),
        ({"entries": [{"name": "x", "unknown": 1}]}, Content((Entry("x"),))),
        (
            {
                "entries": [{"name": "x", "count": 2, "kind": "b", "expires": 1.5}],
                "labels": {"k": "v"},
                "marks": ["m"],
                "raw": [1, {"any": None}],
            },
            Content((Entry("x", 2, "b", 1.5),), {"k": "v"}, frozenset({"m"}), [1, {"any": None}]),
        ),
    ],
)
def test_builds_dataclasses_from_json_values(value: Any, expected: Content) -> None:
    assert build(Content, value) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "value: expected a mapping, not a list"),
        ({}, "value: missing key 'entries'"),
        ({"entries": {}}, "entries: expected a list, not a mapping"),
        ({"entries": [{"name": 1}]}, "entries[0].name: expected text, not a number"),
        (
            {"entries": [{"name": "x", "count": True}]},
            "entries[0].count: expected a number, not true",
        ),
        ({"entries": [{"name": "x", "count": 1.5}]}, "entries[0].count: expected a whole number"),
        ({"entries": [{"name": "x", "kind": "c"}]}, "entries[0].kind: expected one of a, b"),
        (
            {"entries": [{"name": "x", "expires": float("nan")}]},
            "entries[0].expires: expected a finite number",
        ),
        ({"entries": [], "labels": {"k": None}}, "labels.k: expected text, not nothing"),
    ],
)
def test_a_mismatch_names_the_place_and_not_the_value(value: Any, message: str) -> None:
    with pytest.raises(Mismatch) as caught:
        build(Content, value)
    assert str(caught.value).startswith(message)


def test_a_file_is_private_and_reads_back(file: StateFile[Content]) -> None:
    assert file.read() is None
    content = Content((Entry("é" * 10),), {"k": "v"})
    with file.lock():
        file.write(content)
    assert file.read() == content
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    assert sorted(path.name for path in file.path.parent.iterdir()) == [".lock", "content.json"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"entries":[{}]}', b"\xff", b"[" * 500, b"x" * 1_001],
)
def test_a_damaged_or_large_file_is_unreadable(file: StateFile[Content], content: bytes) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(content)
    with pytest.raises(UnreadableState, match=str(file.path)):
        file.read()


def test_a_link_and_a_folder_are_errors(file: StateFile[Content], tmp_path: Path) -> None:
    file.path.parent.mkdir()
    (tmp_path / "target").write_text('{"entries":[]}')
    file.path.symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        file.read()
    file.path.unlink()
    file.path.mkdir()
    with pytest.raises(OSError):
        file.read()


def test_content_that_could_not_be_read_again_is_not_written(file: StateFile[Content]) -> None:
    file.write(Content(()))
    with pytest.raises(OSError, match="1,000 bytes"):
        file.write(Content((Entry("x" * 1_000),)))
    assert file.read() == Content(())


def test_writing_removes_what_a_killed_writer_has_left(file: StateFile[Content]) -> None:
    folder = file.path.parent
    folder.mkdir(mode=0o700)
    (folder / ".mcpx-killed.new").write_text("part")
    with temporary_file(folder) as (_, in_use):
        file.write(Content(()))
        assert {path.name for path in folder.iterdir()} == {"content.json", Path(in_use).name}


HOLD = """
import sys, pathlib
from mcpx.base.files import FileLock
lock = FileLock(pathlib.Path(sys.argv[1]))
print(lock.acquire(10), flush=True)
sys.stdin.read()
"""


def test_a_lock_excludes_other_processes_until_they_end(file: StateFile[Content]) -> None:
    with file.lock():
        pass
    path = file.path.parent / ".lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == b"True\n"
        assert not FileLock(path).acquire(0)
        with pytest.raises(OSError, match="another process has held"), file.lock(0):
            pass
        holder.stdin.close()
    with file.lock(10):
        pass
