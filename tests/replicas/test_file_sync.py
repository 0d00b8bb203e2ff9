"""Files that all replicas have: two or three mirrors on folders of their own, in one process, on a
real store."""

import asyncio
import os
import re
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.loop import run
from kit.replicas import RedisServer
from kit.until import until
from mcpx.auth.shared import SIGN_INS
from mcpx.auth.vault import Vault, name_of
from mcpx.front.identity.shared import SharedTokens
from mcpx.front.identity.store import TokenStore
from mcpx.policy.pins.fingerprint import Item, fingerprint
from mcpx.policy.pins.pin_file import Held, Kept, PinFile, SharedPins
from mcpx.replicas.address import parse
from mcpx.replicas.file_sync import FileSync
from mcpx.replicas.merge_rules import Whole
from mcpx.replicas.replicas import Replicas

KEY = {"MCPX_KEY": "the same on all"}
SNAPSHOTS = Whole("snapshots", re.compile(r"[0-9a-f]{32}\.json"), 8, 1 << 20, lasting=False)
SNAPSHOT = f"{'5' * 32}.json"
BOUND = 10.0
SOON = 1.0 + 2.0
"""Seconds in which what was changed on one counts on all, and what a busy machine takes."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as store:
        yield store


@pytest.fixture
def store(server: RedisServer) -> RedisServer:
    server.cli("FLUSHALL")
    return server


class Replica:
    """The files of one, as its rooms and commands see them."""

    def __init__(self, folder: Path, replicas: Replicas, mirror: FileSync) -> None:
        self.folder, self.replicas, self.mirror = folder, replicas, mirror
        self.tokens = TokenStore(folder)
        self.vault = Vault(folder, {})

    def names(self) -> list[str]:
        return sorted(token.name for token in self.tokens.read())


@asynccontextmanager
async def replica(
    store: RedisServer, folder: Path, *, joins: bool = True
) -> AsyncIterator[Replica]:
    replicas = Replicas(parse(store.url), KEY, "1")
    replicas.store._queue.patience = BOUND  # a busy machine is not a store that is away
    replicas.files = FileSync(replicas, folder, (SharedTokens(), SIGN_INS, SharedPins(), SNAPSHOTS))
    replicas.start()
    await replicas.files.start()
    try:
        if joins:
            await asyncio.wait_for(replicas.files.ready.wait(), BOUND)
        yield Replica(folder, replicas, replicas.files)
    finally:
        await replicas.files.close()
        await replicas.close()


# --- tokens


def test_a_token_made_or_revoked_on_one_counts_on_the_other_within_a_second(
    store: RedisServer, tmp_path: Path
) -> None:
    """SCA-1; the file is as its room writes it."""

    async def main() -> None:
        async with replica(store, tmp_path / "a") as a, replica(store, tmp_path / "b") as b:
            a.tokens.add("ann")
            await until(lambda: b.names() == ["ann"], seconds=SOON)
            assert b.tokens.read() == a.tokens.read()
            about = os.lstat(tmp_path / "b/tokens/tokens.json")
            assert stat.S_IMODE(about.st_mode) == 0o600
            assert b.tokens.revoke("ann")
            await until(lambda: a.names() == [], seconds=SOON)

    run(main())


def test_changes_made_at_once_on_two_replicas_all_survive(
    store: RedisServer, tmp_path: Path
) -> None:
    """SCA-1: added here and revoked there in the same moment."""

    async def main() -> None:
        async with replica(store, tmp_path / "a") as a, replica(store, tmp_path / "b") as b:
            a.tokens.add("old")
            await until(lambda: b.names() == ["old"])
            for number in range(10):
                a.tokens.add(f"a{number}")
                b.tokens.add(f"b{number}")
            b.tokens.revoke("old")
            a.tokens.revoke("a3")
            wanted = sorted({f"{who}{number}" for who in "ab" for number in range(10)} - {"a3"})
            await until(lambda: a.names() == b.names() == wanted)

    run(main())


def test_an_old_copy_of_the_folder_brings_back_no_revoked_token(
    store: RedisServer, tmp_path: Path
) -> None:
    """SCA-1: neither of a replica that was away, nor with what it remembers lost, nor put there
    while it runs."""

    async def main() -> None:
        async with replica(store, tmp_path / "a") as a:
            a.tokens.add("lost")
            a.tokens.add("kept")
            await a.mirror.settle("tokens/tokens.json")
            async with replica(store, tmp_path / "b") as b:
                assert b.names() == ["kept", "lost"]
            copy = (tmp_path / "b/tokens/tokens.json").read_bytes()
            a.tokens.revoke("lost")
            await a.mirror.settle("tokens/tokens.json")
            async with replica(store, tmp_path / "b") as b:
                assert b.names() == ["kept"]
                (tmp_path / "b/tokens/tokens.json").write_bytes(copy)
                os.utime(tmp_path / "b/tokens")
                await until(lambda: b.names() == ["kept"])
            (tmp_path / "b/tokens/tokens.json").write_bytes(copy)
            (tmp_path / "b/replicas.json").unlink()
            async with replica(store, tmp_path / "b") as b:
                assert b.names() == ["kept"]
            assert a.names() == ["kept"]

    run(main())


def test_what_was_changed_while_a_replica_was_away_is_told_when_it_comes(
    store: RedisServer, tmp_path: Path
) -> None:
    """SCA-1: `mcpx token revoke` where no gateway runs."""

    async def main() -> None:
        async with replica(store, tmp_path / "a") as a:
            a.tokens.add("one")
            a.tokens.add("two")
            await a.mirror.settle("tokens/tokens.json")
            async with replica(store, tmp_path / "b"):
                pass
            TokenStore(tmp_path / "b").revoke("one")
            TokenStore(tmp_path / "b").add("three")
            async with replica(store, tmp_path / "b") as b:
                await until(lambda: a.names() == b.names() == ["three", "two"])

    run(main())


def test_a_lost_file_is_no_revocation(store: RedisServer, tmp_path: Path) -> None:
    """Somebody deletes the folder of one replica: it gets everything anew."""

    async def main() -> None:
        async with replica(store, tmp_path / "a") as a, replica(store, tmp_path / "b") as b:
            a.tokens.add("ann")
            await until(lambda: b.names() == ["ann"])
            for file in (tmp_path / "b/tokens").iterdir():
                file.unlink()
            (tmp_path / "b/tokens").rmdir()
            await until(lambda: b.names() == ["ann"])
            (tmp_path / "b/tokens/tokens.json").unlink()
            await until(lambda: b.names() == ["ann"])
            assert a.names() == ["ann"]

    run(main())


def test_a_file_that_others_can_write_is_left_alone(
    store: RedisServer, tmp_path: Path, caplog: Any
) -> None:
    async def main() -> None:
        async with replica(store, tmp_path / "a") as a, replica(store, tmp_path / "b") as b:
            b.tokens.add("own")
            await until(lambda: a.names() == ["own"])
            (tmp_path / "b/tokens/tokens.json").chmod(0o666)
            a.tokens.add("ann")
            await until(lambda: "not a file of this user alone" in caplog.text)
            assert b"ann" not in (tmp_path / "b/tokens/tokens.json").read_bytes()

    run(main())


# --- the store


def test_an_emptied_store_is_filled_again_and_what_was_revoked_stays_so(
    store: RedisServer, tmp_path: Path
) -> None:
    """SCA-2: flushed under way, with a replica coming back that has an old copy."""

    async def main() -> None:
        async with replica(store, tmp_path / "a") as a:
            a.tokens.add("lost")
            a.tokens.add("kept")
            await a.mirror.settle("tokens/tokens.json")
            async with replica(store, tmp_path / "b"):
                pass
            a.tokens.revoke("lost")
            await a.mirror.settle("tokens/tokens.json")
            store.cli("FLUSHALL")
            async with replica(store, tmp_path / "b") as b:
                await until(lambda: b.names() == ["kept"])
                assert a.names() == ["kept"]
                store.cli("FLUSHALL")
                b.tokens.add("late")
                await until(lambda: a.names() == b.names() == ["kept", "late"])
            store.cli("FLUSHALL")
            await until(lambda: store.cli("EXISTS", "{mcpx}:files:file:tokens/tokens.json") == "1")
            async with replica(store, tmp_path / "c") as c:
                assert c.names() == ["kept", "late"]

    run(main())


def test_while_the_store_is_away_each_works_on_its_files_and_all_is_merged_when_it_is_back(
    tmp_path: Path,
) -> None:
    """SCA-2: killed, and back without what it had."""

    async def main() -> None:
        with RedisServer() as store:
            async with replica(store, tmp_path / "a") as a, replica(store, tmp_path / "b") as b:
                a.tokens.add("one")
                a.tokens.add("two")
                await until(lambda: b.names() == ["one", "two"])
                store.kill()
                await until(lambda: not a.replicas.store.up and not b.replicas.store.up)
                a.tokens.revoke("one")
                b.tokens.add("three")
                await a.mirror.settle("tokens/tokens.json")  # does not wait for it
                assert (a.names(), b.names()) == (["two"], ["one", "three", "two"])
                store.start()
                await until(lambda: a.names() == b.names() == ["three", "two"])

    run(main())


def test_a_store_that_is_not_there_holds_up_no_start(tmp_path: Path) -> None:
    """SCA-2"""

    async def main() -> None:
        store = RedisServer()
        async with replica(store, tmp_path / "a", joins=False) as a:
            await a.mirror.complete(0.1)
            a.tokens.add("ann")
            assert a.names() == ["ann"]
            with store:
                async with replica(store, tmp_path / "b") as b:
                    await until(lambda: b.names() == ["ann"])

    run(main())


def test_nothing_in_the_store_can_be_read_and_nothing_stays_for_ever(
    store: RedisServer, tmp_path: Path
) -> None:
    """SEC-6, SCA-1"""

    async def main() -> None:
        async with replica(store, tmp_path / "a") as a:
            a.tokens.add("canary-name")
            a.vault.write("grant x", {"secret": "canary-secret"})
            await a.mirror.settle("tokens/tokens.json")
            await a.mirror.settle(f"auth/{name_of('grant x')}")
            keys = [key for key in store.cli("KEYS", "*:files:*").splitlines() if key]
            assert len(keys) == 5
            for key in keys:
                assert 0 < int(store.cli("TTL", key)) <= 30 * 86_400
                if ":file:" in key:
                    assert "canary" not in store.cli("--no-raw", "GET", key)

    run(main())


# --- sign-ins


def test_a_sign_in_serves_all_and_a_sign_out_ends_all(store: RedisServer, tmp_path: Path) -> None:
    """SCA-1: also against one that renews at that moment, and one that comes with an old copy."""
    file = f"auth/{name_of('grant x')}"

    async def main() -> None:
        async with replica(store, tmp_path / "a") as a, replica(store, tmp_path / "b") as b:
            a.vault.write("grant x", {"token": 1})
            await until(lambda: b.vault.read("grant x") == {"token": 1}, seconds=SOON)
            b.vault.write("grant x", {"token": 2})
            await until(lambda: a.vault.read("grant x") == {"token": 2}, seconds=SOON)
            async with replica(store, tmp_path / "c"):
                pass
            a.vault.delete("grant x")
            b.vault.write("grant x", {"token": 3})  # renewed, in ignorance of it
            await until(lambda: b.vault.read("grant x") is None and a.vault.read("grant x") is None)
            async with replica(store, tmp_path / "c") as c:
                assert c.vault.read("grant x") is None
                c.vault.write("grant x", {"token": 4})  # somebody signs in again
                await c.mirror.settle(file)
                await until(
                    lambda: a.vault.read("grant x") == b.vault.read("grant x") == {"token": 4}
                )

    run(main())


def test_a_sign_in_is_settled_at_once_by_who_cannot_wait(
    store: RedisServer, tmp_path: Path
) -> None:
    """SCA-1: what one has settled, another finds as soon as it asks."""
    file = f"auth/{name_of('grant x')}"

    async def main() -> None:
        async with replica(store, tmp_path / "a") as a, replica(store, tmp_path / "b") as b:
            for number in range(20):
                one, other = (a, b) if number % 2 else (b, a)
                one.vault.write("grant x", {"token": number})
                await one.mirror.settle(file)
                await other.mirror.settle(file)
                assert other.vault.read("grant x") == {"token": number}

    run(main())


def test_where_browsers_come_back_to_is_each_ones_own(store: RedisServer, tmp_path: Path) -> None:
    async def main() -> None:
        async with replica(store, tmp_path / "a") as a, replica(store, tmp_path / "b") as b:
            a.vault.write("callback", {"ports": [1]})
            a.vault.write("grant x", {})
            await until(lambda: b.vault.read("grant x") is not None)
            assert b.vault.read("callback") is None

    run(main())


# --- pins and snapshots


def _item(name: str, text: str = "") -> Item:
    definition = {"name": name, "description": text}
    return Item("tools", name, fingerprint(definition), definition)


def test_what_is_approved_on_one_is_approved_on_all_and_what_waits_is_its_own(
    store: RedisServer, tmp_path: Path
) -> None:
    """SCA-1, SEC-5: two approvals at once both count."""

    async def main() -> None:
        async with replica(store, tmp_path / "a"), replica(store, tmp_path / "b") as b:
            heard = asyncio.Event()
            b.mirror.hear("pins", heard.set)
            files = [PinFile(tmp_path / one / "pins", "srv") for one in "ab"]
            for file, name in zip(files, ("x", "y"), strict=True):
                kept = Kept(since=1.0)
                kept.approve(_item(name), 2.0, "ann")
                held = _item(f"waits at {name}")
                kept.held[held.key, held.fingerprint] = Held(held, 1.0)
                file.save(kept)

            def both() -> bool:
                loaded = [file.load() for file in files]
                return all(
                    one is not None and {key[1] for key in one.approved} == {"x", "y"}
                    for one in loaded
                )

            await until(both, seconds=SOON)
            await until(heard.is_set)
            for file, name in zip(files, ("x", "y"), strict=True):
                kept = file.load()
                assert kept is not None and [held.item.name for held in kept.held.values()] == [
                    f"waits at {name}"
                ]

    run(main())


def test_a_new_replica_has_the_last_snapshots_and_removing_one_is_nobody_elses_business(
    store: RedisServer, tmp_path: Path
) -> None:
    """SCA-1"""

    def write(replica: str, text: str) -> None:
        folder = tmp_path / replica / "snapshots"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "new").write_text(text)
        (folder / "new").chmod(0o600)
        (folder / "new").rename(folder / SNAPSHOT)

    def read(replica: str) -> str | None:
        file = tmp_path / replica / "snapshots" / SNAPSHOT
        return file.read_text() if file.exists() else None

    async def main() -> None:
        (tmp_path / "a").mkdir(mode=0o700)
        async with replica(store, tmp_path / "a") as a:
            write("a", "{1}")
            await a.mirror.settle(f"snapshots/{SNAPSHOT}")
            async with replica(store, tmp_path / "b"):
                assert read("b") == "{1}"
                write("b", "{2}")
                await until(lambda: read("a") == "{2}")
                (tmp_path / "b/snapshots" / SNAPSHOT).unlink()
                TokenStore(tmp_path / "b").add("later")
                await until(lambda: a.names() == ["later"])
                assert read("a") == "{2}" and read("b") is None

    run(main())


def test_what_is_too_large_is_said_once_and_not_tried_again_and_again(
    store: RedisServer, tmp_path: Path, caplog: Any
) -> None:
    """Nothing is unbounded."""

    async def main() -> None:
        async with replica(store, tmp_path / "a") as a, replica(store, tmp_path / "b") as b:
            file = f"auth/{name_of('grant x')}"
            a.vault.write("grant x", {"x": os.urandom(1 << 20).hex()})
            await until(
                lambda: f"{file} is not shared with other replicas: it is too large" in caplog.text
            )
            a.tokens.add("ann")
            await until(lambda: b.names() == ["ann"])
            assert b.vault.read("grant x") is None
            assert caplog.text.count("it is too large") == 1

    run(main())
