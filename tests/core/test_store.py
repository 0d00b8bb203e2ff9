"""CFG-6, ADM-2: the configuration read, changed, written, kept and restored, inside one process."""

import asyncio
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit.loop import run
from kit.masks import plain_masks
from mcpx.config import Config, load
from mcpx.config.edits import (
    EditError,
    NewText,
    PutEntry,
    RemoveEntry,
    Restore,
    SetFields,
    SetSection,
    Where,
)
from mcpx.config.masking import MASK
from mcpx.config.problems import Refused
from mcpx.core import config_files
from mcpx.core.gateway import Gateway
from mcpx.core.store import Committed, ConfigStore, Fresh, Read, Stale, Unwritable
from mcpx.model.events import ConfigApplied

TEXT = """\
# mine
mcp_servers:
  - name: idle   # not now
    enabled: false
    connection: {type: stdio, command: x, env: {TOKEN: geheim-1234}}
"""
NEW = {"enabled": False, "connection": {"type": "stdio", "command": "y"}}


class StoredGateway:
    """A gateway on a file, and its store."""

    def __init__(self, path: Path, state: Path | None = None, *, text: str | None = TEXT) -> None:
        if text is not None:
            path.write_text(text)
            path.chmod(0o600)
        self.path = path

        def read(texts: Any = None) -> Config:
            return load(path, {}, texts=texts)

        self.gateway = Gateway(read(), {}, None)
        self.events: list[ConfigApplied] = []
        self.gateway.bus.subscribe(self.events.append, ConfigApplied)
        self.applied: list[Config] = []
        self.store = ConfigStore(self.gateway, read, self.applied.append, where=Where(path, {}))
        self.store.keep_history(state)

    async def __aenter__(self) -> "StoredGateway":
        self.gateway.start()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.store.close()
        await self.gateway.close()

    @property
    def servers(self) -> list[str]:
        return [server.name for server in self.gateway.generation.config.mcp_servers]

    async def put(self, name: str, etag: str | None = None, **more: Any) -> Committed:
        entry = {**NEW, **more}
        return await self.store.commit(
            PutEntry("mcp_servers", name, entry), if_match=etag, author="eve", via="api"
        )


def inside(make: Callable[[], Any]) -> None:
    run(make())


def test_a_commit_is_written_taken_up_and_kept(tmp_path: Path) -> None:
    """CFG-6: atomically, mode 0600, with who and why; comments stay."""

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:
            stored.path.chmod(0o644)
            etag = (await stored.store.look()).etag
            done = await stored.store.commit(
                PutEntry("mcp_servers", "new", NEW, create=True),
                if_match=etag,
                author="eve",
                via="ui",
                message="why",
            )
            assert (
                stored.servers == ["idle", "new"]
                and stored.applied[-1].mcp_servers[1].name == "new"
            )
            assert (
                stored.path.read_text().startswith(TEXT)
                and "- name: new" in stored.path.read_text()
            )
            assert stat.S_IMODE(stored.path.stat().st_mode) == 0o600 and os.listdir(tmp_path) == [
                "c.yaml"
            ]
            assert (done.changed, done.error, done.files) == (
                True,
                "",
                (stored.path,),
            ) and done.etag != etag
            assert done.etag == (await stored.store.look()).etag
            newest = stored.store.revisions()[0]
            assert (newest.number, newest.via, newest.author, newest.message) == (
                2,
                "ui",
                "eve",
                "why",
            )
            assert [(event.ok, event.by) for event in stored.events] == [(True, "eve (ui)")]

    inside(main)


def test_a_preview_says_what_would_be_and_changes_nothing(tmp_path: Path) -> None:
    """ADM-2: the new text, the difference and the plan, without a secret."""

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:
            seen = await stored.store.preview(
                SetFields("mcp_servers", "idle", {"connection.env.TOKEN": "geheim-5678"})
            )
            assert (
                seen.ok and seen.plan is not None and seen.etag == (await stored.store.look()).etag
            )
            diff = seen.files[0].diff
            assert "geheim" not in diff + seen.files[0].text
            new = f"+    connection: {{type: stdio, command: x, env: {{TOKEN: {MASK} (new)}}}}"
            assert new in plain_masks(diff)
            assert (
                stored.path.read_text() == TEXT and stored.store.revision == 1 and not stored.events
            )
            wrong = await stored.store.preview(
                SetFields("mcp_servers", "idle", {"timeout": -1, "enabled": True})
            )
            (told,) = wrong.told
            assert not wrong.ok and wrong.plan is None
            assert (
                told.path == "mcp_servers[0].timeout"
                and told.line
                and told.column
                and told.file.endswith("c.yaml")
            )

    inside(main)


def test_what_is_wrong_is_never_written(tmp_path: Path) -> None:
    """CFG-6: all mistakes at once, in their parts."""

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:
            for change in (
                SetFields("mcp_servers", "idle", {"nope": 1}),
                NewText("mcp_servers: [\n"),
                NewText(""),
                SetSection("mode", "nope"),
                PutEntry("mcp_servers", "x", {"connection": {"type": "stdio"}, "timeout": "soon"}),
            ):
                with pytest.raises(Refused) as caught:
                    await stored.store.commit(change, if_match=None, author="", via="api")
                assert caught.value.told and caught.value.told[0].message
            assert (
                stored.path.read_text() == TEXT
                and stored.servers == ["idle"]
                and stored.store.revision == 1
            )

    inside(main)


def test_of_two_who_saw_the_same_only_one_can_save(tmp_path: Path) -> None:
    """CFG-6: two editors cannot overwrite each other unseen."""

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:
            etag = (await stored.store.look()).etag
            outcomes = await asyncio.gather(
                *(stored.put(f"n{at}", etag) for at in range(8)), return_exceptions=True
            )
            stale = [each for each in outcomes if isinstance(each, Stale)]
            (done,) = [each for each in outcomes if isinstance(each, Committed)]
            assert len(stale) == 7 and {each.etag for each in stale} == {done.etag}
            assert len(stored.servers) == 2 and stored.store.revision == 2

    inside(main)


def test_a_hand_edit_between_look_and_commit_is_not_overwritten(tmp_path: Path) -> None:
    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:
            etag = (await stored.store.look()).etag
            stored.path.write_text(TEXT + "# by hand\n")
            with pytest.raises(Stale) as caught:
                await stored.put("new", etag)
            assert stored.path.read_text() == TEXT + "# by hand\n"
            done = await stored.put("new", caught.value.etag)
            assert "# by hand" in stored.path.read_text() and done.changed

    inside(main)


def test_a_hand_edit_in_the_very_moment_of_the_save_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CFG-6: one who writes into the old file between the look and the exchange is not lost
    either."""
    replace = os.replace

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:

            def late(source: Any, target: Any) -> None:
                monkeypatch.setattr(os, "replace", replace)
                with stored.path.open("r+") as file:
                    file.write("# HAND")
                replace(source, target)

            monkeypatch.setattr(os, "replace", late)
            with pytest.raises(Stale) as caught:
                await stored.put("new")
            assert (
                stored.path.read_text().startswith("# HAND")
                and "new" not in stored.path.read_text()
            )
            assert caught.value.etag == (await stored.store.look()).etag

    inside(main)


def test_the_watcher_hears_nothing_new_of_a_commit_and_everything_of_a_hand_edit(
    tmp_path: Path,
) -> None:
    """CFG-5, CFG-6: the same door, once."""

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:
            await stored.put("new")
            await stored.store.file_changed()
            assert len(stored.events) == 1 and stored.store.revision == 2
            stored.path.write_text(stored.path.read_text().replace("name: new", "name: newer"))
            await stored.store.file_changed()
            assert len(stored.events) == 2 and stored.servers == ["idle", "newer"]
            newest = stored.store.revisions()[0]
            assert (newest.number, newest.via, newest.by) == (3, "file", "the file changed")

    inside(main)


def test_a_comment_by_hand_is_a_revision_too_and_a_save_of_the_same_is_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:
            stored.path.write_text(TEXT + "# by hand\n")
            await stored.store.file_changed()
            await stored.store.propose(by="SIGHUP")
            assert [revision.number for revision in stored.store.revisions()] == [2, 1]
            done = await stored.store.commit(
                NewText(TEXT + "# by hand\n"), if_match=None, author="", via="ui"
            )
            assert not done.changed and done.revision.number == 2

    inside(main)


def test_a_hand_edit_that_was_never_taken_up_is_kept_when_it_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:
            stored.path.write_text("mcp_servers: [broken\n")
            await stored.store.file_changed()
            assert stored.servers == ["idle"] and stored.store.revision == 1
            await stored.store.commit(NewText(TEXT), if_match=None, author="eve", via="ui")
            texts = [await stored.store.texts.revision_text(number) for number in (1, 2, 3)]
            assert [text[str(stored.path)].splitlines()[0] for text in texts] == [
                "# mine",
                "mcp_servers: [broken",
                "# mine",
            ]

    inside(main)


def test_any_two_revisions_are_compared_and_one_is_restored(tmp_path: Path) -> None:
    """CFG-6: a rollback is a new revision; differences tell no secret."""

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml", tmp_path / "state") as stored:
            await stored.put("new")
            await stored.store.commit(
                RemoveEntry("mcp_servers", "idle"), if_match=None, author="", via="ui"
            )
            assert "-  - name: idle   # not now" in await stored.store.texts.diff(1)
            assert "+  - name: new" in await stored.store.texts.diff(1, 2)
            assert "geheim" not in await stored.store.texts.diff(1) + await stored.store.texts.diff(
                3, 1
            )
            done = await stored.store.commit(Restore(1), if_match=None, author="eve", via="ui")
            assert stored.path.read_text() == TEXT and stored.servers == ["idle"]
            assert done.revision.number == 4
            for number in (0, 99):
                with pytest.raises(EditError) as caught:
                    await stored.store.texts.diff(number)
                assert caught.value.code == "not_found"

    inside(main)


def test_the_history_outlives_a_restart_and_notes_what_happened_meanwhile(tmp_path: Path) -> None:
    """CFG-6: numbers go on; files are for this user alone."""
    state = tmp_path / "state"

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml", state) as stored:
            await stored.put("new")
        async with StoredGateway(tmp_path / "c.yaml", state, text=None) as stored:
            assert [each.number for each in stored.store.revisions()] == [2, 1]
        (tmp_path / "c.yaml").write_text(TEXT)
        async with StoredGateway(tmp_path / "c.yaml", state, text=None) as stored:
            newest = stored.store.revisions()[0]
            assert (newest.number, newest.via, newest.plan) == (
                3,
                "file",
                "changed while mcpx was not running",
            )
            assert "new" in (await stored.store.texts.revision_text(2))[str(stored.path)]
        kept = [path for path in (state / "history").rglob("*") if path.is_file()]
        assert len(kept) == 3 and {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
        assert stat.S_IMODE((state / "history").stat().st_mode) == 0o700

    inside(main)


def test_files_that_did_not_change_add_nothing_to_the_history_of_another_version(
    tmp_path: Path,
) -> None:
    """CFG-6: earlier versions computed the etag of the same files in another way."""
    state = tmp_path / "state"

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml", state) as stored:
            await stored.put("new")
            etag = stored.store.revisions()[0].etag
        [newest] = (state / "history").rglob("00000002.json")
        newest.write_text(newest.read_text().replace(etag, "0" * len(etag)))
        for _ in range(2):
            async with StoredGateway(tmp_path / "c.yaml", state, text=None) as stored:
                assert [(each.number, each.via) for each in stored.store.revisions()] == [
                    (2, "api"),
                    (1, "start"),
                ]
                assert stored.store.revisions()[0].etag == etag
        assert etag in newest.read_text()

    inside(main)


def test_a_damaged_history_is_no_error(tmp_path: Path) -> None:
    state = tmp_path / "state"

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml", state) as stored:
            for name in "abc":
                await stored.put(name)
        one, two, three, _ = sorted((state / "history").rglob("*.json"))
        one.write_bytes(b"\xff\x00")
        two.write_text('{"number": 2}\n')
        three.write_text(three.read_text().partition("\n")[0] + "\n{broken")
        async with StoredGateway(tmp_path / "c.yaml", state, text=None) as stored:
            assert [each.number for each in stored.store.revisions()] == [4, 3]
            with pytest.raises(EditError):
                await stored.store.texts.diff(3)
            await stored.put("d")
            assert stored.store.revision == 5

    inside(main)


def test_the_history_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_files, "MOST", 3)
    monkeypatch.setattr(config_files, "MOST_BYTES", 4_000)

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml", tmp_path / "state") as stored:
            for at in range(5):
                await stored.put("new", description=f"d{at}")
            assert [each.number for each in stored.store.revisions()] == [6, 5, 4]
            assert len(list((tmp_path / "state").rglob("*.json"))) == 3
            await stored.put("new", description="x" * 3_000)
            assert [each.number for each in stored.store.revisions()] == [7]

    inside(main)


def test_a_state_folder_that_cannot_be_written_costs_the_history_on_disk_and_no_more(
    tmp_path: Path,
) -> None:
    (tmp_path / "state").write_text("a file")

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml", tmp_path / "state") as stored:
            await stored.put("new")
            assert stored.store.revision == 2 and "+  - name: new" in await stored.store.texts.diff(
                1, 2
            )

    inside(main)


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    """CFG-6: what it leads to is replaced."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link.yaml").symlink_to(tmp_path / "real" / "c.yaml")

    async def main() -> None:
        async with StoredGateway(tmp_path / "link.yaml") as stored:
            await stored.put("new")
            assert stored.path.is_symlink() and "new" in (tmp_path / "real" / "c.yaml").read_text()
            await stored.store.file_changed()
            assert len(stored.events) == 1

    inside(main)


@pytest.mark.skipif(
    os.geteuid() == 0 and not Path("/proc/self").exists(), reason="root may write everywhere"
)
def test_a_folder_that_cannot_be_written_is_said_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:

            def refuse(*_: Any, **__: Any) -> Any:
                raise PermissionError(13, "Permission denied")

            monkeypatch.setattr(tempfile, "mkstemp", refuse)
            with pytest.raises(
                Unwritable, match=r"c\.yaml cannot be written: permission.*edit the file by hand"
            ):
                await stored.put("new")
            assert (
                stored.path.read_text() == TEXT
                and stored.servers == ["idle"]
                and stored.store.revision == 1
            )

    inside(main)


def test_what_a_cut_save_left_is_cleared_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:
            left = tmp_path / ".mcpx-abc.new"
            left.write_text("geheim")
            await stored.put("new")
            assert not left.exists()

    inside(main)


def test_one_who_leaves_does_not_cut_a_save_short(tmp_path: Path) -> None:
    """ADM-2: a browser that goes away in the middle of it."""

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:
            asked = asyncio.ensure_future(stored.put("new"))
            await asyncio.sleep(0)
            asked.cancel()
            await asyncio.wait([asked])
            await stored.store.close()  # which waits for it
            assert stored.servers == ["idle", "new"] and "new" in stored.path.read_text()

    inside(main)


def test_what_is_written_and_cannot_be_taken_up_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:

            async def fail(config: Config) -> Any:
                raise RuntimeError("geheim")

            monkeypatch.setattr(stored.gateway, "apply", fail)
            done = await stored.put("new")
            assert done.changed and done.plan is None and "could not be taken up" in done.error
            assert "geheim" not in done.error and "new" in stored.path.read_text()
            assert [event.ok for event in stored.events] == [False]

    inside(main)


def test_reloads_and_commits_in_a_storm_end_in_the_last_state(tmp_path: Path) -> None:
    """CFG-5, CFG-6: nothing is lost, nothing is applied twice."""

    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml", tmp_path / "state") as stored:
            work = [stored.put(f"n{at}") for at in range(12)]
            storm = [stored.store.propose(by="SIGHUP") for _ in range(6)] + [
                stored.store.asked() for _ in range(6)
            ]
            await asyncio.gather(*work, *storm, *(stored.store.file_changed() for _ in range(6)))
            assert sorted(stored.servers) == sorted(["idle", *(f"n{at}" for at in range(12))])
            assert [each.number for each in stored.store.revisions()] == list(range(13, 0, -1))
            assert load(stored.path, {}).mcp_servers == stored.gateway.generation.config.mcp_servers

    inside(main)


def test_the_bytes_before_a_text_stay(tmp_path: Path) -> None:
    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml") as stored:
            stored.path.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
            await stored.put("new")
            data = stored.path.read_bytes()
            assert data.startswith(b"\xef\xbb\xbf# mine\r\n") and data.count(b"\n") == data.count(
                b"\r\n"
            )

    inside(main)


def test_secrets_are_in_no_words_of_the_store(tmp_path: Path) -> None:
    async def main() -> None:
        async with StoredGateway(tmp_path / "c.yaml", tmp_path / "state") as stored:
            written = await stored.store.look()
            said = [
                written,
                written.documents,
                written.entries("mcp_servers"),
                written.sheets,
                stored.store.revisions(),
            ]
            said += [
                stored.store.status(),
                await stored.store.texts.revision_text(1),
                await stored.store.texts.export("yaml"),
            ]
            assert "geheim" not in repr(said)

    inside(main)


def demo(path: Path, begun: list[str]) -> ConfigStore:
    gateway = Gateway(Config(), {}, None)

    def read(texts: Any = None) -> Config:
        return load(path, {}, texts=texts)

    reading: Read = read
    fresh = Fresh(Where(path, {}), reading, lambda: begun.append("watch"))
    return ConfigStore(gateway, None, lambda config: None, fresh=fresh)


def test_without_a_file_the_first_write_makes_one(tmp_path: Path) -> None:
    """RUN-3, CFG-6: nothing is written before; the folder is 0700, the file 0600, and it goes on
    with that file."""
    path, begun = tmp_path / "xdg" / "mcpx" / "config.yaml", list[str]()

    async def main() -> None:
        store = demo(path, begun)
        store.keep_history(tmp_path / "state")
        written = await store.look()
        assert store.files.destination == path and written.documents == () and not written.told
        seen = await store.preview(PutEntry("mcp_servers", "new", NEW))
        assert seen.ok and "+  - name: new" in seen.files[0].diff
        assert os.listdir(tmp_path) == []
        with pytest.raises(Refused):
            await store.commit(SetSection("mode", "nope"), if_match=None, author="", via="ui")
        assert os.listdir(tmp_path) == [] and not begun
        done = await store.commit(
            PutEntry("mcp_servers", "new", NEW), if_match=written.etag, author="", via="ui"
        )
        assert store.files.destination is None and begun == ["watch"] and done.revision.number == 2
        assert (store.texts.keeps(1), store.texts.keeps(2)) == (False, True)
        assert (
            stat.S_IMODE(path.stat().st_mode) == 0o600
            and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        )
        assert store.sources[0] == path and [
            server.name for server in load(path, {}).mcp_servers
        ] == ["new"]
        with pytest.raises(Stale):
            await store.commit(
                RemoveEntry("mcp_servers", "new"), if_match=written.etag, author="", via="ui"
            )
        assert (await store.propose(by="the file changed"))["ok"]
        await store.close()

    run(main())


def test_a_file_that_came_meanwhile_is_not_overwritten_by_the_first_write(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"

    async def main() -> None:
        store = demo(path, [])
        path.write_text(TEXT)
        with pytest.raises(Stale):
            await store.commit(
                PutEntry("mcp_servers", "new", NEW), if_match=None, author="", via="ui"
            )
        assert path.read_text() == TEXT
        await store.close()

    run(main())
