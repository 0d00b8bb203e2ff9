"""LIF-1: what a server offered when it was last seen, on disk; comfort, never function."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from mcpx.upstreams import snapshot as module
from mcpx.upstreams.snapshot import FORMAT, Snapshot, Snapshots, key_of

EMPTY: Any = {"tools": [], "prompts": [], "resources": [], "templates": []}
FULL = Snapshot({**EMPTY, "tools": [{"name": "é✓😀", "x-unknown": {"big": 2**70, "half": 1.5}}]}, "Hello")


def test_what_was_saved_is_loaded_to_the_last_unknown_field(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "yet"
    Snapshots(folder).save("key", FULL)
    assert Snapshots(folder).load("key") == FULL
    assert Snapshots(folder).load("other") is None
    assert [file.name for file in folder.iterdir()] == ["key.json"]


def test_only_the_user_may_read_it(tmp_path: Path) -> None:
    """Definitions may tell of what is nobody else's business."""
    folder = tmp_path / "state"
    Snapshots(folder).save("key", FULL)
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "key.json").stat().st_mode & 0o077 == 0


def test_without_a_folder_nothing_is_kept() -> None:
    Snapshots(None).save("key", FULL)
    assert Snapshots(None).load("key") is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"format":1',
        json.dumps({"format": FORMAT + 1, "definitions": EMPTY}).encode(),
        json.dumps({"format": FORMAT}).encode(),
        json.dumps({"format": FORMAT, "definitions": []}).encode(),
        json.dumps({"format": FORMAT, "definitions": {**EMPTY, "tools": {}}}).encode(),
        json.dumps({"format": FORMAT, "definitions": {"tools": []}}).encode(),
    ],
)
def test_what_is_not_a_snapshot_is_passed_over(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "key.json").write_bytes(body)
    assert Snapshots(tmp_path).load("key") is None


def test_instructions_that_are_no_text_are_none(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text(json.dumps({"format": FORMAT, "definitions": EMPTY, "instructions": 7}))
    assert Snapshots(tmp_path).load("key") == Snapshot(EMPTY, "")


def test_a_file_no_snapshot_can_have_grown_to_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Snapshots(tmp_path).save("key", FULL)
    monkeypatch.setattr(module, "LARGEST", 10)
    assert Snapshots(tmp_path).load("key") is None


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        Snapshots(tmp_path / "file").save("key", FULL)
        Snapshots(tmp_path / "file").save("key", FULL)
    assert "could not be written" in caplog.text
    assert Snapshots(tmp_path / "file").load("key") is None


def test_a_failed_writing_leaves_the_old_one_whole_and_no_scrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Snapshots(tmp_path)
    store.save("key", FULL)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "replace", full)
    with caplog.at_level(logging.WARNING):
        store.save("key", Snapshot(EMPTY, ""))
    assert "No space left" in caplog.text
    assert store.load("key") == FULL
    assert [file.name for file in tmp_path.iterdir()] == ["key.json"]


def test_a_key_tells_servers_apart_and_tells_nothing_else() -> None:
    """It may be made of arguments and addresses, which hold secrets."""
    key = key_of(("name", "--token", "hidden"))
    assert key == key_of(["name", "--token", "hidden"])
    assert key != key_of(("name", "--token", "other"))
    assert "hidden" not in key
    assert key.isalnum() and len(key) == 32
