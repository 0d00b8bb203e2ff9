"""SCA-1, CFG-6: the configuration of several replicas on a real store, each with a file of its own,
in one process."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kit import replicas as fixture
from kit.loop import run, yield_to_loop
from kit.until import until
from mcpx.config import Config, load
from mcpx.config.edits import EditError, PutEntry, Where
from mcpx.core import joint
from mcpx.core.config_files import ConfigFiles
from mcpx.core.gateway import Gateway
from mcpx.core.joint import JointStore
from mcpx.core.saving import Unwritable, refuse_unwritable
from mcpx.core.sharing import Shared, Sharing, etag_of_texts
from mcpx.core.store import Committed, Stale
from mcpx.replicas.address import parse
from mcpx.replicas.replicas import Replicas
from mcpx.replicas.store import StoreDown

TEXT = (
    "# mine\nmcp_servers:\n  - {name: idle, enabled: false, connection: {type: stdio, command: "
    "geheim-1234}}\n"
)
NEW = {"enabled": False, "connection": {"type": "stdio", "command": "y"}}


@pytest.fixture
def server() -> Iterator[fixture.RedisServer]:
    with fixture.RedisServer() as store:
        yield store


class ReplicaStore:
    """One replica: a gateway on a file, its store, and the store of all."""

    def __init__(
        self,
        server: fixture.RedisServer,
        folder: Path,
        name: str,
        text: str,
        file: str,
        environ: dict[str, str],
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.path = path = folder / file
        path.write_text(text)

        def read(texts: Any = None) -> Config:
            return load(path, {}, texts=texts)

        self.replicas = Replicas(parse(server.url), {"MCPX_REPLICA": name, **environ}, "1")
        self.gateway = Gateway(read(), {}, None, replicas=self.replicas)
        where = Where(path, {})
        self.store = JointStore(
            self.gateway, read, lambda config: None, where=where, replicas=self.replicas
        )
        self.store.keep_history(folder / "state")

    async def commit(self, name: str, **more: Any) -> Committed:
        given = {"if_match": None, "author": "anna", "via": "api", "message": "why not", **more}
        return await self.store.commit(
            PutEntry("mcp_servers", name, {"name": name, **NEW}), **given
        )

    @property
    def shared(self) -> list[bool]:
        return [row["shared"] for row in self.store.replicas()]


@asynccontextmanager
async def replica_store(
    server: fixture.RedisServer,
    folder: Path,
    name: str,
    text: str = TEXT,
    file: str = "mcpx.yaml",
    **environ: str,
) -> AsyncIterator[ReplicaStore]:
    made = ReplicaStore(server, folder / name, name, text, file, environ)
    made.gateway.start()
    made.replicas.start()
    made.store.follow()
    await made.replicas.joined.wait()
    made.replicas.members.start()
    for prepare in made.replicas.preparations:
        await prepare()
    try:
        yield made
    finally:
        await made.store.close()
        await made.gateway.close()
        await made.replicas.close()


@asynccontextmanager
async def both(
    server: fixture.RedisServer, folder: Path
) -> AsyncIterator[tuple[ReplicaStore, ReplicaStore]]:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(replica_store(server, folder, "one"))
        two = await stack.enter_async_context(replica_store(server, folder, "two"))
        await until(lambda: one.shared == two.shared == [True, True])
        yield one, two


def test_a_commit_is_in_the_file_and_history_of_the_other_and_secret_in_the_store(
    server: fixture.RedisServer, tmp_path: Path
) -> None:
    """SCA-1, CFG-6: with its number, author and words; comments stay; nothing of it can be read in
    the store."""

    async def main() -> None:
        async with both(server, tmp_path) as (one, two):
            done = await one.commit("new")
            await until(
                lambda: two.path.read_text() == one.path.read_text() and two.store.revision > 1
            )
            assert "name: new" in two.path.read_text() and two.path.read_text().startswith(
                "# mine\n"
            )
            kept = two.store.revisions()[0]
            assert (kept.number, kept.author, kept.message) == (
                done.revision.number,
                "anna",
                "why not",
            )
            assert (await two.store.look()).etag == done.etag
            raw = server.cli("--no-raw", "HGETALL", "{mcpx}:config")
            assert "geheim" not in raw and "idle" not in raw

    run(main())


def test_of_two_commits_in_one_moment_one_is_told(
    server: fixture.RedisServer, tmp_path: Path
) -> None:
    """SCA-1: and both files end up the same."""

    async def main() -> None:
        async with both(server, tmp_path) as (one, two):
            etag = (await one.store.look()).etag
            told = await asyncio.gather(
                one.commit("a", if_match=etag),
                two.commit("b", if_match=etag),
                return_exceptions=True,
            )
            assert sorted(type(each).__name__ for each in told) == ["Committed", "Stale"], told
            assert any(isinstance(each, Stale) for each in told)
            await until(
                lambda: two.path.read_text() == one.path.read_text() and one.shared == [True, True]
            )

    run(main())


def test_commits_that_do_not_mind_come_one_after_the_other(
    server: fixture.RedisServer, tmp_path: Path
) -> None:
    """SCA-1: each is made to what the one before left, wherever that was made; nothing is lost."""

    async def main() -> None:
        async with both(server, tmp_path) as (one, two):
            await asyncio.gather(
                *(
                    each.commit(f"{name}{n}")
                    for n in range(3)
                    for name, each in (("a", one), ("b", two))
                )
            )
            await until(
                lambda: one.path.read_text() == two.path.read_text() and one.shared == [True, True]
            )
            assert [
                one.path.read_text().count(f"name: {name}{n}") for n in range(3) for name in "ab"
            ] == [1] * 6
            assert one.store.revision == two.store.revision

    run(main())


def test_a_replica_with_other_files_keeps_its_own_and_says_why(
    server: fixture.RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SCA-1: the commit counts for the others, and the replica is shown as different."""

    async def main() -> None:
        async with (
            replica_store(server, tmp_path, "one") as one,
            replica_store(server, tmp_path, "two", TEXT.replace("idle", "own")) as two,
        ):
            other = two.path.rename(two.path.with_name("other.yaml"))
            two.store.files = ConfigFiles(Where(other, {}), lambda texts: load(other, {}))
            await until(lambda: len(one.shared) == 2)
            await one.commit("new")
            await until(lambda: any("not in mcpx.yaml" in line for line in caplog.messages))
            assert "name: new" in one.path.read_text() and "new" not in other.read_text()
            assert one.shared == [True, False]

    run(main())


def test_what_a_file_says_at_the_start_counts_unless_it_is_an_older_revision(
    server: fixture.RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SCA-1: the first one gives its own to all; an older one is brought up to date; one that
    nobody knows stays, and that is said once."""

    async def main() -> None:
        async with replica_store(server, tmp_path, "one") as one:
            await one.commit("new")
            async with replica_store(server, tmp_path, "old") as old:
                assert old.path.read_text() == one.path.read_text()
                await until(lambda: one.shared == old.shared == [True, True])
                assert {row["revision"] for row in one.store.replicas()} == {one.store.revision}
            with caplog.at_level(logging.WARNING):
                async with replica_store(
                    server, tmp_path, "odd", TEXT.replace("idle", "own")
                ) as odd:
                    await until(lambda: one.shared == [False, True])  # odd, one
                    assert "own" in odd.path.read_text() and "own" not in one.path.read_text()
                    assert sum("is not that of the others" in line for line in caplog.messages) == 1
                    await one.commit("more")
                    await until(lambda: one.shared == [True, True])
                    texts = [
                        await odd.store.texts.revision_text(each.number)
                        for each in odd.store.revisions()
                    ]
                    assert any("name: own" in text for kept in texts for text in kept.values())

    run(main())


def test_without_the_store_nothing_is_changed_and_it_is_said_why(
    server: fixture.RedisServer, tmp_path: Path
) -> None:
    """SCA-2: a commit is that of all, or none."""

    async def main() -> None:
        async with both(server, tmp_path) as (one, two):
            server.kill()
            with pytest.raises(EditError, match="store"):
                await one.commit("new")
            assert one.path.read_text() == two.path.read_text() == TEXT
            server.start()
            await until(lambda: one.replicas.store.up and two.replicas.store.up)
            await until(lambda: one.shared == [True, True])
            await one.commit("new")
            await until(lambda: one.path.read_text() == two.path.read_text())

    run(main())


def test_a_replica_that_starts_first_on_an_empty_store_undoes_nothing_that_it_missed(
    server: fixture.RedisServer, tmp_path: Path
) -> None:
    """SCA-1: everything was switched off; the one that comes first was away when the last change
    was made."""

    async def main() -> None:
        async with replica_store(server, tmp_path, "one") as one:
            async with replica_store(server, tmp_path, "two") as two:
                await until(lambda: one.shared == two.shared == [True, True])
                await one.commit("seen")
                await until(
                    lambda: (
                        two.path.read_text() == one.path.read_text() and two.shared == [True, True]
                    )
                )
            await one.commit("missed")
        texts = {each: each.path.read_text() for each in (one, two)}
        assert "name: missed" in texts[one] and "name: missed" not in texts[two]
        server.cli("FLUSHALL")
        async with (
            replica_store(server, tmp_path, "two", texts[two]) as second,
            replica_store(server, tmp_path, "one", texts[one]) as first,
        ):
            await until(lambda: second.path.read_text() == first.path.read_text() == texts[one])
            await until(lambda: first.shared == second.shared == [True, True])

    run(main())


def test_what_a_newcomer_puts_into_an_emptied_store_replaces_nothing_that_runs(
    server: fixture.RedisServer, tmp_path: Path
) -> None:
    """SCA-1: it was quicker than those who were there before, and its own numbers are higher."""

    async def main() -> None:
        async with both(server, tmp_path) as (one, two):
            done = await one.commit("new")
            await until(
                lambda: (
                    one.shared == two.shared == [True, True]
                    and one.path.read_text() == two.path.read_text()
                )
            )
            texts = {"mcpx.yaml": TEXT.replace("idle", "own")}
            number = done.revision.number + 7
            server.cli("DEL", "{mcpx}:config", "{mcpx}:config:etags")
            assert await Sharing(one.replicas).put(
                Shared(number, etag_of_texts(texts), texts, first=True), None
            )
            await until(lambda: int(server.cli("HGET", "{mcpx}:config", "number")) > number)
            await until(lambda: one.shared == two.shared == [True, True])
            assert (await one.commit("more")).revision.number > number
            await until(lambda: one.path.read_text() == two.path.read_text())
            assert all(f"name: {name}" in two.path.read_text() for name in ("idle", "new", "more"))

    run(main())


def test_a_value_that_was_copied_to_another_place_in_the_store_is_not_accepted(
    server: fixture.RedisServer, tmp_path: Path
) -> None:
    """SEC-8: what a replica has encrypted for another purpose is no configuration."""

    async def main() -> None:
        async with both(server, tmp_path) as (one, two):
            await one.commit("new")
            other = one.replicas.seals.encrypt(b'{"number": 9, "texts": {}}', b"another place")
            await one.replicas.store.ask("HSET", "{mcpx}:config", "sealed", other)
            assert await Sharing(two.replicas).read() is None

    run(main())


def test_a_change_whose_fate_is_not_known_is_not_said_to_be_none(
    server: fixture.RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-2: the store took it, and could not say so."""

    async def main() -> None:
        async with both(server, tmp_path) as (one, two):
            put = Sharing.put

            async def unanswered(self: Sharing, *words: Any) -> bool:
                await put(self, *words)
                raise StoreDown("it did not answer in time")

            with monkeypatch.context() as patched:
                patched.setattr(Sharing, "put", unanswered)
                with pytest.raises(
                    EditError, match="whether they take it up is known when it is back"
                ):
                    await one.commit("new")
            await until(
                lambda: (
                    one.path.read_text() == two.path.read_text()
                    and "name: new" in two.path.read_text()
                )
            )

    run(main())


def test_a_change_that_takes_long_to_run_at_one_replica_holds_up_nobody_elses(
    server: fixture.RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-1: it is agreed upon; the next is made to it, and taken up after it, where the first is
    still under way."""

    async def main() -> None:
        async with both(server, tmp_path) as (one, two):
            apply, goes_on = one.gateway.apply, asyncio.Event()

            async def slow(config: Config) -> Any:
                await goes_on.wait()
                return await apply(config)

            monkeypatch.setattr(one.gateway, "apply", slow)
            first = asyncio.create_task(one.commit("first"))
            await until(lambda: "name: first" in two.path.read_text())
            async with asyncio.timeout(10):
                second = await two.commit("second")
            assert "name: first" in two.path.read_text() and "name: second" in two.path.read_text()
            goes_on.set()
            assert (await first).revision.number < second.revision.number
            await until(
                lambda: one.path.read_text() == two.path.read_text() and one.shared == [True, True]
            )

    run(main())


def test_what_a_replica_could_not_take_up_it_takes_up_as_soon_as_it_can_and_changes_nothing_before(
    server: fixture.RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-1: what others agreed upon, its disk being full at that moment, is not undone by way of
    it."""
    monkeypatch.setattr("mcpx.core.joint.RETRY", 0.05)

    async def main() -> None:
        async with both(server, tmp_path) as (one, two):
            write, full, tries = joint.write_all, True, asyncio.Event()

            def on_a_disk(written: Any, texts: Any) -> Any:
                if full and two.path in texts:
                    loop.call_soon_threadsafe(tries.set)
                    raise Unwritable(f"{two.path} cannot be written: no space left on device")
                return write(written, texts)

            loop = asyncio.get_running_loop()
            monkeypatch.setattr(joint, "write_all", on_a_disk)
            await one.commit("first")
            await tries.wait()
            with pytest.raises(EditError, match=r"takes it up as soon as it can: .*no space left"):
                await two.commit("never")
            second = await one.commit("second")
            tries.clear()
            await tries.wait()
            assert two.path.read_text() == TEXT and one.shared == [True, False]
            full = False
            await until(
                lambda: one.path.read_text() == two.path.read_text() and one.shared == [True, True]
            )
            assert two.store.revisions()[0].number == second.revision.number
            await two.commit("third")
            await until(lambda: "name: third" in one.path.read_text())
            full = True
            with pytest.raises(EditError, match="no space left"):
                await two.commit("fourth")
            await until(lambda: "name: fourth" in one.path.read_text())
            full = False
            await until(
                lambda: one.path.read_text() == two.path.read_text() and one.shared == [True, True]
            )

    run(main())


def test_a_replica_that_is_left_alone_with_what_it_cannot_take_up_can_be_changed(
    server: fixture.RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-2: there is no other at which it could be done."""

    async def main() -> None:
        async with replica_store(server, tmp_path, "two") as two:
            async with replica_store(server, tmp_path, "one") as one:
                await until(lambda: one.shared == two.shared == [True, True])
                write, tries = joint.write_all, asyncio.Event()

                def on_a_disk(written: Any, texts: Any) -> Any:
                    if "name: first" in texts.get(two.path, ""):
                        loop.call_soon_threadsafe(tries.set)
                        raise Unwritable(f"{two.path} cannot be written: no space left on device")
                    return write(written, texts)

                loop = asyncio.get_running_loop()
                monkeypatch.setattr(joint, "write_all", on_a_disk)
                await one.commit("first")
                await tries.wait()
            await until(lambda: not two.replicas.members.others)
            await two.commit("second")
            assert "name: second" in two.path.read_text() and two.shared == [True]

    run(main())


def test_two_keys_in_one_store_do_not_write_over_each_other(
    server: fixture.RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCA-3: somebody has deleted the mark of the old key while a replica with it still runs."""
    monkeypatch.setattr("mcpx.replicas.replicas.UNCLAIMED", 0.0)

    async def main() -> None:
        async with replica_store(server, tmp_path, "old", MCPX_KEY="old") as old:
            heard: list[int] = []
            old.replicas.members.watch("key", heard.append)
            await until(
                lambda: bool(heard)
            )  # of its own claim; it looks once more then, and would claim it again
            await yield_to_loop()
            await old.replicas.store.ask("PING")  # answered behind that look
            server.cli("DEL", "{mcpx}:fingerprint")
            async with replica_store(
                server, tmp_path, "new", TEXT.replace("idle", "own"), MCPX_KEY="new"
            ) as new:
                await until(old.replicas.parted.is_set)
                assert new.replicas.joined.is_set()
                with pytest.raises(EditError, match="store"):
                    await old.commit("never")
                done = await new.commit("more")  # nobody waits for the word of the other
                again = await new.commit("again")
                assert again.revision.number == done.revision.number + 1
                assert old.path.read_text() == TEXT
            server.cli("SET", "{mcpx}:fingerprint", old.replicas.seals.fingerprint)
            await until(old.replicas.joined.is_set)
            await until(lambda: old.shared == [True])
            assert (await old.commit("back")).revision.number > again.revision.number

    run(main())


def test_a_file_that_cannot_be_written_is_found_without_writing(tmp_path: Path) -> None:
    """SCA-1: so that a replica can say so before anybody has written."""
    file = tmp_path / "mcpx.yaml"
    file.write_text(TEXT)
    refuse_unwritable(file)
    assert [each.name for each in tmp_path.iterdir()] == ["mcpx.yaml"]
    with pytest.raises(Unwritable, match="cannot be written"):
        refuse_unwritable(tmp_path / "gone" / "mcpx.yaml")
    with pytest.raises(Unwritable, match="cannot be written"):
        refuse_unwritable(Path("/proc/self/mcpx.yaml"))
