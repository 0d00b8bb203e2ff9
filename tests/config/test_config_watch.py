"""The watcher notices what happens to the files of a configuration, and ends in their last state
(CFG-5)."""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from kit.loop import run
from kit.until import until
from mcpx.config import load, watch
from mcpx.config.watch import Watcher


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "REST", 0.02)
    monkeypatch.setattr(watch, "PATIENCE", 3600.0)


class Watch:
    """A running watcher; `told` holds what the files held each time a change was told."""

    def __init__(
        self, *sources: Path, changed: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self.sources: Iterable[Path] = sources
        self.told: list[str | None] = []
        self.looks = 0
        self.on_look: Callable[[int], object] = lambda look: None
        self._changed = changed
        self._watcher = Watcher(self._sources, self._interval, self._tell)

    async def __aenter__(self) -> "Watch":
        self._task = asyncio.create_task(self._watcher.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def hears(self, times: int = 1) -> None:
        await until(lambda: len(self.told) >= times)

    async def goes_on(self, looks: int = 20) -> None:
        """Until it has looked that many times more."""
        wanted = self.looks + looks
        await until(lambda: self.looks >= wanted)

    def _sources(self) -> Iterable[Path]:
        self.looks += 1
        self.on_look(self.looks)
        return self.sources

    def _interval(self) -> float:
        return 0.002

    async def _tell(self) -> None:
        first = next(iter(self.sources))
        self.told.append(text_of(first))
        if self._changed:
            await self._changed()


@pytest.fixture
def file(folder: Path) -> Path:
    """Older than whatever comes after it, by the clock of the file system, which ticks a hundred
    times a second."""
    file, probe = folder / "mcpx.yaml", folder / ".probe"
    file.write_text("old")
    probe.write_text("")
    while probe.stat().st_ctime_ns == file.stat().st_ctime_ns:
        probe.write_text("")
    return file


def text_of(file: Path) -> str | None:
    return file.read_text() if file.is_file() else None


def put(file: Path, text: str) -> None:
    file.write_text(text)


def moved_over(file: Path, text: str) -> None:
    beside = file.with_name(".new")
    beside.write_text(text)
    beside.replace(file)


def same_size_and_date(file: Path) -> None:
    """As `cp -p` and some backup tools do."""
    times = file.stat()
    beside = file.with_name(".new")
    beside.write_text("new")
    os.utime(beside, ns=(times.st_atime_ns, times.st_mtime_ns))
    beside.replace(file)


def written_in_place_with_its_date_kept(file: Path) -> None:
    times = file.stat()
    file.write_text("new")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def deleted_and_made_again(file: Path) -> None:
    file.unlink()
    file.write_text("new")


CHANGES: dict[str, Callable[[Path], object]] = {
    "written in place": lambda file: file.write_text("new text"),
    "written with the same size": lambda file: file.write_text("new"),
    "written with its date kept": written_in_place_with_its_date_kept,
    "moved over": lambda file: moved_over(file, "new"),
    "moved over with the same size and date": same_size_and_date,
    "emptied": lambda file: file.write_text(""),
    "deleted": lambda file: file.unlink(),
    "deleted and made again": deleted_and_made_again,
    "made unreadable for others": lambda file: file.chmod(0o600),
    "a folder in its place": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_is_told_when_it_was(change: str, file: Path) -> None:
    async def main() -> None:
        async with Watch(file) as watch:
            await watch.goes_on(3)
            CHANGES[change](file)
            await watch.hears()
            await watch.goes_on()
            assert watch.told == [text_of(file)]

    file.chmod(0o644)
    run(main())


def test_a_file_that_comes_to_be_is_told(folder: Path, file: Path) -> None:
    """An overlay, a `.env` or a secret that was looked for in vain."""

    async def main() -> None:
        async with Watch(file, folder / ".env") as watch:
            (folder / ".env").write_text("A=b")
            await watch.hears()

    run(main())


def test_a_link_that_points_elsewhere_is_told(folder: Path) -> None:
    """How Kubernetes changes a mounted file: a folder in the middle of the way is exchanged."""
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "mcpx.yaml").write_text(name)
    (folder / "data").symlink_to("one")
    (folder / "mcpx.yaml").symlink_to("data/mcpx.yaml")

    async def main() -> None:
        async with Watch(folder / "mcpx.yaml") as watch:
            (folder / "data.new").symlink_to("two")
            (folder / "data.new").replace(folder / "data")
            await watch.hears()
            assert watch.told == ["two"]

    run(main())


def test_a_folder_is_told_when_a_config_file_comes_goes_or_gets_another_name(folder: Path) -> None:
    """CFG-7."""
    (folder / "a.yaml").write_text("")

    async def main() -> None:
        async with Watch(folder) as watch:
            (folder / "b.yaml").write_text("")
            await watch.hears(1)
            (folder / "b.yaml").rename(folder / "c.prod.json")
            await watch.hears(2)
            (folder / "c.prod.json").unlink()
            await watch.hears(3)

    run(main())


def test_what_editors_and_others_leave_in_a_folder_is_not_told(folder: Path) -> None:
    async def main() -> None:
        async with Watch(folder) as watch:
            for name in (".a.yaml.swp", "a.yaml~", "4913", "notes.txt", ".#a.yaml"):
                (folder / name).write_text("")
                await watch.goes_on(3)
            await watch.goes_on()
            assert watch.told == []

    run(main())


def test_nothing_is_told_while_nothing_changes(folder: Path, file: Path) -> None:
    async def main() -> None:
        async with Watch(file, folder, folder / "nope", Path("a\0b")) as watch:
            await watch.goes_on(50)
            text_of(file)
            await watch.goes_on(50)
            assert watch.told == []

    run(main())


def test_what_comes_and_goes_at_once_is_not_told(folder: Path, file: Path) -> None:
    """Traefik: ignores transient configuration."""
    passing = folder / ".env"

    async def main() -> None:
        async with Watch(file, passing) as watch:
            start = watch.looks
            watch.on_look = lambda look: (
                passing.write_text("") if look == start + 2 else passing.unlink(missing_ok=True)
            )
            await watch.goes_on()
            assert watch.told == []

    run(main())


def test_a_file_is_not_told_while_it_is_being_written(file: Path) -> None:
    """An editor that empties, writes a part, and writes the rest, one step before each look."""
    steps = ["", "mode: ", "mode: dir", "mode: direct\n"]

    def write(look: int) -> None:
        if steps:
            put(file, steps.pop(0))

    async def main() -> None:
        async with Watch(file) as watch:
            watch.on_look = write
            await watch.hears()
            await watch.goes_on()
            assert watch.told == ["mode: direct\n"]

    run(main())


def test_a_file_that_never_comes_to_rest_is_told_all_the_same(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PATIENCE", 0.1)

    async def main() -> None:
        async with Watch(file) as watched:
            watched.on_look = lambda look: moved_over(file, "x" * look)
            await watched.hears(3)

    run(main())


def test_what_changes_while_a_change_is_taken_up_is_told_afterwards(file: Path) -> None:
    """Traefik: a slow apply gets only the newest."""
    go_on = asyncio.Event()

    async def main() -> None:
        async with Watch(file, changed=go_on.wait) as watch:
            put(file, "one")
            await watch.hears(1)
            for text in ("two", "three", "last one"):
                moved_over(file, text)
            go_on.set()
            await watch.hears(2)
            await watch.goes_on()
            assert watch.told == ["one", "last one"]

    run(main())


def test_a_storm_of_edits_ends_in_the_last_state(file: Path) -> None:
    """From another thread, as fast as it can, in every manner."""

    def storm() -> None:
        for number in range(300):
            (moved_over if number % 3 else Path.write_text)(file, f"{number}")
            if number % 7 == 0:
                file.unlink()
        file.write_text("the end")

    async def main() -> None:
        async with Watch(file) as watch:
            thread = threading.Thread(target=storm)
            thread.start()
            await asyncio.to_thread(thread.join)
            await until(lambda: watch.told and watch.told[-1] == "the end")
            heard = len(watch.told)
            await watch.goes_on()
            assert len(watch.told) == heard

    run(main())


def test_a_file_that_came_to_be_watched_is_told_if_it_changed_since_it_was_read(
    folder: Path, file: Path
) -> None:
    secret = folder / "secret"
    secret.write_text("early")

    async def take_up() -> None:
        """Reads the secret, and is still busy when it changes."""
        watch.sources = (file, secret)
        if len(watch.told) == 1:
            moved_over(secret, "late")

    async def main() -> None:
        async with watch:
            put(file, "refers to the secret")
            await watch.hears(2)
            await watch.goes_on()
            assert len(watch.told) == 2

    watch = Watch(file, changed=take_up)
    run(main())


def test_a_file_that_came_to_be_watched_and_is_old_is_not_told(
    folder: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SLACK_NS", 0)
    secret = folder / "secret"
    secret.write_text("old")

    async def main() -> None:
        async with Watch(file) as watched:
            put(file, "refers to the secret")
            await watched.hears()
            watched.sources = (file, secret, folder / "missing", folder)
            await watched.goes_on()
            assert len(watched.told) == 1
            moved_over(secret, "new")
            await watched.hears(2)

    run(main())


def test_a_failure_to_take_a_change_up_is_logged_and_the_next_one_is_told(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise RuntimeError("a bug")

    async def main() -> None:
        async with Watch(file, changed=fail) as watch:
            put(file, "one")
            await watch.hears(1)
            put(file, "three")
            await watch.hears(2)

    with caplog.at_level(logging.ERROR):
        run(main())
    assert [record.getMessage() for record in caplog.records] == [
        "a changed configuration could not be taken up"
    ] * 2


def test_the_interval_is_asked_for_anew_each_time(file: Path) -> None:
    """`hot_reload_interval` may change with the file."""
    intervals = [0.001, 0.002, 0.003]

    async def main() -> None:
        async def changed() -> None: ...

        watcher = Watcher(lambda: [file], lambda: intervals.pop() if intervals else 60.0, changed)
        task = asyncio.create_task(watcher.run())
        await until(lambda: not intervals)
        task.cancel()
        await asyncio.wait([task])

    run(main())


def test_with_waits_as_they_are_a_saved_file_is_told(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert 0.1 <= watch.REST <= 0.2

    async def main() -> None:
        async with Watch(file) as watched:
            put(file, "new")
            await watched.hears()

    run(main())


def test_what_load_names_as_its_sources_is_all_there_is_to_watch(folder: Path) -> None:
    """CFG-5, CFG-7: a folder, its overlays, `.env` and a secret, through the real loader."""
    conf = folder / "conf"
    conf.mkdir()
    (conf / "a.yaml").write_text("mode: ${M:-direct}\nserver: {admin_token: '${file:../secret}'}")
    (conf / "a.prod.yaml").write_text("server: {port: 1}")
    (folder / "secret").write_text("s")
    config = load(conf, {}, "prod")

    async def main() -> None:
        async with Watch(*config.sources) as watch:
            for times, change in enumerate(
                (
                    lambda: (conf / ".env").write_text("M=search"),
                    lambda: (folder / "secret").write_text("other"),
                    lambda: (conf / "a.prod.yaml").write_text("server: {port: 22}"),
                    lambda: (conf / "b.yaml").write_text("server: {host: h}"),
                ),
                start=1,
            ):
                change()
                await watch.hears(times)
                await watch.goes_on(5)
                assert len(watch.told) == times

    run(main())
    changed = load(conf, {}, "prod")
    assert (changed.mode, changed.server.admin_token, changed.server.port) == (
        "search",
        "other",
        22,
    )
    assert changed.server.host == "h"
