"""LIF-1: what a server offered when it was last seen, on disk; comfort, never function."""

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpx.upstreams import snapshot as module
from mcpx.upstreams.snapshot import FORMAT, Snapshot, Snapshots, key_of

EMPTY: Any = {"tools": [], "prompts": [], "resources": [], "templates": []}
FULL = Snapshot(
    {**EMPTY, "tools": [{"name": "é✓😀", "x-unknown": {"big": 2**70, "half": 1.5}}]}, "Hello"
)


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
    (tmp_path / "key.json").write_text(
        json.dumps({"format": FORMAT, "definitions": EMPTY, "instructions": 7})
    )
    assert Snapshots(tmp_path).load("key") == Snapshot(EMPTY, "")


@pytest.mark.parametrize("common", [{**EMPTY, "tools": [{"name": "a"}, 1, [2]]}, None])
def test_the_lists_of_kinds_of_clients_are_saved(tmp_path: Path, common: Any) -> None:
    """LIF-1: in their order; a definition that all clients get is saved once. Servers may list any
    JSON."""
    shared: list[Any] = common["tools"] if common else []
    lists = {
        **EMPTY,
        "tools": [{"name": "b"}, *reversed(shared), 1, [0], True],
        "prompts": [{"name": "p"}],
    }
    by_kind = {frozenset({"sampling"}): lists, frozenset({"roots", "sampling"}): EMPTY}
    saved = Snapshot(common, "Hello", {}, [["roots"]], by_kind, [[], ["elicitation"]])
    Snapshots(tmp_path).save("key", saved)
    loaded = Snapshots(tmp_path).load("key")
    assert loaded is not None
    assert (loaded.definitions, loaded.by_kind) == (common, by_kind)
    assert (list(loaded.same), list(loaded.awaited)) == ([["roots"]], [[], ["elicitation"]])
    assert (tmp_path / "key.json").read_text().count('{"name":"a"}') == (1 if common else 0)


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {"kind": ["sampling"]},
        {"kind": [], "definitions": EMPTY},
        {"kind": [7], "definitions": EMPTY},
        {"kind": ["sampling"], "definitions": {"tools": []}},
        *(
            {"kind": ["sampling"], "definitions": {**EMPTY, "tools": [wrong]}}
            for wrong in (0, -1, "a", {}, [], [1, 2])
        ),
    ],
)
def test_lists_of_a_kind_that_cannot_be_read_are_left_out(tmp_path: Path, entry: Any) -> None:
    good = {"kind": ["roots"], "definitions": EMPTY}
    body = {
        "format": FORMAT,
        "definitions": EMPTY,
        "by_kind": [entry, good],
        "awaited": [7, ["roots"], [8]],
    }
    (tmp_path / "key.json").write_text(json.dumps(body))
    loaded = Snapshots(tmp_path).load("key")
    assert loaded is not None
    assert dict(loaded.by_kind) == {frozenset({"roots"}): EMPTY} and list(loaded.awaited) == [
        ["roots"]
    ]


def test_a_file_no_snapshot_can_have_grown_to_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Snapshots(tmp_path).save("key", FULL)
    monkeypatch.setattr(module, "LARGEST", 10)
    assert Snapshots(tmp_path).load("key") is None


def test_a_folder_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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


# --- files that are none of ours


def in_time(work: Callable[[], object], seconds: float = 10.0) -> object:
    """What would hang fails instead."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "it hangs"
    return found[0]


def test_a_fifo_a_device_a_folder_or_a_link_in_its_place_is_passed_over_and_replaced(
    tmp_path: Path,
) -> None:
    """Neither hangs nor fails the start."""
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    Snapshots(tmp_path).save("target", FULL)
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    for key in ("fifo", "folder", "endless", "link"):
        assert in_time(lambda key=key: Snapshots(tmp_path).load(key)) is None
    for key in ("fifo", "endless", "link"):
        Snapshots(tmp_path).save(key, FULL)
        assert Snapshots(tmp_path).load(key) == FULL
    Snapshots(tmp_path).save("folder", FULL)  # which cannot be replaced, and is said


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_makes_the_whole_file_none_of_ours(
    tmp_path: Path, number: str
) -> None:
    body = json.dumps(
        {"format": FORMAT, "definitions": {**EMPTY, "tools": [{"name": "a", "n": 0}]}}
    )
    (tmp_path / "key.json").write_text(body.replace('"n": 0', f'"n": {number}'))
    assert Snapshots(tmp_path).load("key") is None


def test_what_is_too_large_to_be_ours_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshots = Snapshots(tmp_path)
    snapshots.save("key", FULL)
    monkeypatch.setattr(module, "LARGEST", 10)
    assert snapshots.load("key") is None


def test_while_clients_are_served_only_a_small_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a large one takes long; whoever is added while running is asked itself."""
    snapshots = Snapshots(tmp_path)
    snapshots.save("key", FULL)
    monkeypatch.setattr(module, "QUICK", 10)
    assert snapshots.load("key") == FULL
    snapshots.serving = True
    assert snapshots.load("key") is None


def test_a_snapshot_is_written_beside_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpx.base.aio.SLICE_SECONDS", 0.0)
    many = Snapshot(
        {**EMPTY, "tools": [{"name": f"t{n}"} for n in range(2_000)]},
        "Hello",
        {"asks": []},
        (["roots"],),
    )

    async def main() -> int:
        writing = asyncio.create_task(Snapshots(tmp_path).keep("key", many))
        between = 0
        while not writing.done():
            between += 1
            await asyncio.sleep(0)
        return between

    assert asyncio.run(main()) > 50
    assert Snapshots(tmp_path).load("key") == many
    json.loads((tmp_path / "key.json").read_text())


# --- what nobody needs any more


def test_snapshots_of_servers_that_are_long_gone_are_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LIF-1."""
    snapshots = Snapshots(tmp_path)
    present, gone, lately = key_of(["present"]), key_of(["gone"]), key_of(["lately"])
    for key in (present, gone, lately):
        snapshots.save(key, FULL)
    strange = {
        "notes.json": "not one of ours",
        f"{gone}.json.bak": "nor this",
        f".{gone}-abc123": "left behind by a run that was killed",
        f".{lately}-abc123": "being written",
    }
    for name, text in strange.items():
        (tmp_path / name).write_text(text)
    (tmp_path / f"{key_of(['folder'])}.json").mkdir()
    long_ago = time.time() - module.UNUSED - 1
    for name in (
        f"{present}.json",
        f"{gone}.json",
        "notes.json",
        f"{gone}.json.bak",
        f".{gone}-abc123",
    ):
        os.utime(tmp_path / name, (long_ago, long_ago))
    snapshots.prune([present])
    left = {entry.name for entry in tmp_path.iterdir()}
    assert f"{gone}.json" not in left and f".{gone}-abc123" not in left
    expected = {
        f"{present}.json",
        f"{lately}.json",
        "notes.json",
        f"{gone}.json.bak",
        f".{lately}-abc123",
    }
    assert left - {f"{key_of(['folder'])}.json"} == expected
    monkeypatch.setattr(module, "MOST_UNUSED", 0)
    snapshots.prune([present])
    assert not (tmp_path / f"{lately}.json").exists() and (tmp_path / f"{present}.json").exists()


def test_one_that_is_in_use_stays_however_old(tmp_path: Path) -> None:
    snapshots, key = Snapshots(tmp_path), key_of(["a"])
    assert not snapshots.use(key)
    snapshots.save(key, FULL)
    os.utime(tmp_path / f"{key}.json", (0, 0))
    assert snapshots.use(key)
    snapshots.prune([])
    assert snapshots.load(key) == FULL


def test_where_there_is_no_folder_there_is_nothing_to_prune(tmp_path: Path) -> None:
    Snapshots(None).prune([])
    Snapshots(tmp_path / "none").prune([])
    (tmp_path / "file").write_text("x")
    Snapshots(tmp_path / "file").prune([])
