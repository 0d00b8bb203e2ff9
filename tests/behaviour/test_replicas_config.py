"""SCA-1, CFG-5, CFG-6: one configuration over several replicas, changed at any of them, taken up by
all or by none."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kit.client import post_modern
from kit.gateway import GatewayProcess
from kit.http_client import Reply, fetch
from kit.messages import modern_request
from kit.replicas import RedisServer, Replicas
from kit.servers import raw_server
from kit.until import wait_until

LIVE = 1.0
"""Seconds within which a change is live on all."""
Json = dict[str, Any]
QUICK = {"hot_reload_interval": 0.1}
SOME = {0: {"NEEDED": "yes"}, 1: {"NEEDED": "yes"}}
"""A variable that the third replica lacks."""


class Lent:
    """Three replicas on a store, for one test after the other: each gets them well and without a
    server. What a test has broken is ended, and the next one gets new ones."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._there: tuple[RedisServer, Replicas] | None = None

    def lend(self) -> tuple[RedisServer, Replicas]:
        if self._there is None:
            store = self._stack.enter_context(RedisServer())
            config = {"mcp_servers": [], "global": QUICK}
            three = Replicas(store, config, 3, admin=True, balanced=False, each=SOME)
            self._there = store, self._stack.enter_context(three)
        wait_until(lambda three=self._there[1]: agreed(three), what="all run one configuration")
        return self._there

    def take_back(self) -> None:
        if self._there is None:
            return
        _, three = self._there
        if any(replica.process.poll() is not None for replica in three):
            self.end()
            return
        try:
            for name in names(
                three[0]
            ):  # refused until a replica has found a store again that was away
                path = f"/mcp-servers/{name}"
                wait_until(
                    lambda path=path: api(three[0], path, "DELETE").status == 200, what="removed"
                )
            wait_until(
                lambda: agreed(three) and not any(names(replica) for replica in three),
                what="as they were",
            )
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        self._there = None
        self._stack.close()


@pytest.fixture(scope="module")
def lent() -> Iterator[Lent]:
    lent = Lent()
    try:
        yield lent
    finally:
        lent.end()


@pytest.fixture
def store_and_three(lent: Lent) -> Iterator[tuple[RedisServer, Replicas]]:
    try:
        yield lent.lend()
    finally:
        lent.take_back()


@pytest.fixture
def three(store_and_three: tuple[RedisServer, Replicas]) -> Replicas:
    return store_and_three[1]


@pytest.fixture
def store(store_and_three: tuple[RedisServer, Replicas]) -> RedisServer:
    """That of the three."""
    return store_and_three[0]


@pytest.fixture
def empty_store() -> Iterator[RedisServer]:
    with RedisServer() as started:
        yield started


def api(
    replica: GatewayProcess, path: str, method: str = "GET", body: Any = b"", match: str = "*"
) -> Reply:
    return fetch(
        replica.admin_url, f"/api{path}", method, {**replica.admin_headers, "If-Match": match}, body
    )


def told(replica: GatewayProcess) -> list[Json]:
    return api(replica, "/replicas").json["replicas"]


def agreed(replicas: Replicas) -> bool:
    """All see all, on the revision they share."""
    rows = [told(replica) for replica in replicas]
    return all(len(each) == len(replicas) and all(row["shared"] for row in each) for each in rows)


def revision(replica: GatewayProcess) -> int:
    return next(row["revision"] for row in told(replica) if row["me"])


def names(replica: GatewayProcess) -> list[str]:
    """Of the servers, as its file says them."""
    return [server["name"] for server in json.loads(replica.file.read_text())["mcp_servers"]]


def callable_on(replica: GatewayProcess, tool: str) -> bool:
    call = modern_request("tools/call", {"name": tool, "arguments": {}})
    return "result" in post_modern(replica.port, call).message


def files(replicas: Replicas) -> list[str]:
    return [replica.file.read_text() for replica in replicas]


def test_a_server_added_at_one_replica_is_called_at_all_within_a_second(three: Replicas) -> None:
    """SCA-1, CFG-6: a change by the API of one replica is live on all within a second of its
    answer, is in the file of each, letter by letter, for its owner alone; and all tell the same
    revision."""
    answer = api(three[0], "/mcp-servers", "POST", raw_server("raw"))
    done = time.monotonic()
    assert answer.status == 201, answer.text
    wait_until(
        lambda: all(callable_on(replica, "raw_whoami") for replica in three),
        what="called at all",
        seconds=15,
    )
    took = time.monotonic() - done
    assert took < LIVE + 2, took  # a busy machine starts three servers at once
    assert len(set(files(three))) == 1 and names(three[2]) == ["raw"]
    assert all(replica.file.stat().st_mode & 0o777 == 0o600 for replica in three)
    wait_until(lambda: agreed(three), what="all tell it")
    assert {revision(replica) for replica in three} == {answer.json["revision"]}
    again = api(
        three[1], "/mcp-servers/raw", "DELETE", match=answer.headers["ETag"]
    )  # an ETag is good at any replica
    assert again.status == 200, again.text
    wait_until(
        lambda: all(names(replica) == [] for replica in three), what="gone at all", seconds=LIVE + 2
    )


def test_what_is_wrong_changes_no_replica(three: Replicas) -> None:
    """SCA-1, CFG-5: a configuration with a mistake is refused, and no file says it."""
    before = files(three)
    answer = api(three[0], "/mcp-servers", "POST", {"name": "odd", "connection": {"type": "smoke"}})
    assert answer.status == 422, answer.text
    assert files(three) == before and agreed(three)


def test_a_replica_that_lacks_a_variable_does_without_the_server(three: Replicas) -> None:
    """SCA-1, CFG-3: each replica applies the change with its own environment."""
    wants = raw_server("raw", connection={"env": {"X": "${NEEDED}"}})
    answer = api(three[0], "/mcp-servers", "POST", wants)
    assert answer.status == 201, answer.text
    wait_until(lambda: agreed(three) and names(three[2]) == ["raw"], what="taken up by all")


def test_of_two_changes_at_once_one_is_told_that_it_is_late(three: Replicas) -> None:
    """SCA-1, CFG-6: two replicas, one moment, one ETag: one change is made, the other told to look
    again."""
    etag = api(three[0], "/config").json["etag"]
    answers: dict[int, Reply] = {}

    def put(at: int) -> None:
        entry = {**raw_server(f"raw{at}"), "enabled": False}
        answers[at] = api(three[at], "/mcp-servers", "POST", entry, match=etag)

    both = [threading.Thread(target=put, args=(at,)) for at in (0, 1)]
    for each in both:
        each.start()
    for each in both:
        each.join(60)
    assert sorted(answer.status for answer in answers.values()) == [201, 412], answers
    wait_until(lambda: agreed(three), what="all run one configuration", seconds=LIVE + 2)
    won = next(at for at, answer in answers.items() if answer.status == 201)
    assert all(names(replica) == [f"raw{won}"] for replica in three)


def test_what_is_edited_by_hand_stays_there_is_seen_and_is_not_lost(three: Replicas) -> None:
    """SCA-1, CFG-5: a file of one replica is its own; the next change made elsewhere replaces it,
    and keeps its text."""
    mine = {
        **json.loads(three[2].file.read_text()),
        "mcp_servers": [{**raw_server("mine"), "enabled": False}],
    }
    three[2].file.write_text(json.dumps(mine))
    wait_until(
        lambda: [row["shared"] for row in told(three[0])] == [True, True, False],
        what="seen at another replica",
    )
    assert names(three[0]) == []
    entry = {**raw_server("raw"), "enabled": False}
    assert api(three[0], "/mcp-servers", "POST", entry).status == 201
    wait_until(lambda: agreed(three), what="all run one configuration", seconds=LIVE + 2)
    assert names(three[2]) == ["raw"]
    history = api(three[2], "/config/history").json["revisions"]
    texts = [api(three[2], f"/config/history/{row['number']}").text for row in history[:3]]
    assert any("mine" in text for text in texts), history


def restarted(replica: GatewayProcess) -> None:
    """The same files and state, another process."""
    replica._child.end()  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
    replica._start()  # pyright: ignore[reportPrivateUsage]


def test_a_replica_that_was_down_takes_up_what_it_missed(three: Replicas) -> None:
    """SCA-1: it starts with the file it had, finds that there is a newer revision, and writes and
    runs that."""
    three[2].process.kill()
    three[2].process.wait(20)
    wait_until(lambda: len(told(three[0])) == 2, what="it is gone")
    for name in ("one", "two"):
        assert (
            api(three[0], "/mcp-servers", "POST", {**raw_server(name), "enabled": False}).status
            == 201
        )
    assert names(three[2]) == []
    restarted(three[2])
    wait_until(lambda: agreed(three), what="all run one configuration")
    assert names(three[2]) == ["one", "two"]


def test_a_store_that_dies_in_a_change_leaves_all_on_one_revision(
    store: RedisServer, three: Replicas
) -> None:
    """SCA-1: whatever is answered, all replicas end up with the same files; without the store a
    change is refused, and one that came back empty is given what was agreed upon."""
    assert (
        api(three[0], "/mcp-servers", "POST", {**raw_server("kept"), "enabled": False}).status
        == 201
    )
    wait_until(lambda: agreed(three), what="all run one configuration", seconds=LIVE + 2)
    for delay in (0.0, 0.01, 0.03, 0.1):
        answers: list[Reply] = []
        entry = {**raw_server(f"raw{int(delay * 1000)}"), "enabled": False}
        change = threading.Thread(
            target=lambda entry=entry, answers=answers: answers.append(
                api(three[0], "/mcp-servers", "POST", entry)
            )
        )
        change.start()
        time.sleep(delay)
        store.kill()
        change.join(60)
        assert answers[0].status in (201, 409), answers[0].text
        refused = api(three[1], "/mcp-servers", "POST", {**raw_server("never"), "enabled": False})
        assert refused.status == 409 and "store" in refused.error["message"], refused.text
        store.start()
        wait_until(
            lambda: agreed(three) and len(set(files(three))) == 1, what="all run one configuration"
        )
        assert "kept" in names(three[1]) and "never" not in names(three[1])
        assert answers[0].status != 201 or entry["name"] in names(three[1])
    said = "".join(replica.stderr() for replica in three)
    assert "Traceback" not in said, said[said.find("Traceback") - 500 :][:4000]


def test_an_emptied_store_is_given_the_configuration_again(
    store: RedisServer, three: Replicas
) -> None:
    """SCA-1: flushed while everybody is connected; the revision, and what was before it, is there
    again."""
    assert (
        api(three[0], "/mcp-servers", "POST", {**raw_server("kept"), "enabled": False}).status
        == 201
    )
    wait_until(lambda: agreed(three), what="all run one configuration", seconds=LIVE + 2)
    before = store.cli("HMGET", "{mcpx}:config", "number", "etag")
    store.cli("FLUSHALL")
    wait_until(
        lambda: store.cli("HMGET", "{mcpx}:config", "number", "etag") == before, what="written anew"
    )
    assert (
        api(three[1], "/mcp-servers", "POST", {**raw_server("more"), "enabled": False}).status
        == 201
    )
    wait_until(
        lambda: agreed(three) and names(three[2]) == ["kept", "more"],
        what="taken up by all",
        seconds=LIVE + 4,
    )


class FromStore(GatewayProcess):
    """Without a file: `--config store:`."""

    @property
    def _program(self) -> list[str]:
        return [sys.executable, "-m", "mcpx", "--config", "store:"]


def mcpx(env: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mcpx", *words]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL
    )


def test_a_configuration_in_the_store_is_pushed_fetched_and_changed(
    empty_store: RedisServer, tmp_path: Path
) -> None:
    """SCA-1: one in the store: without it a start is a clear mistake; `mcpx config push` puts a
    checked one there, and replicas that run from it take up the next; what is wrong is refused
    before anybody sees it."""
    env = {**os.environ, "MCPX_STORE": empty_store.url, "MCPX_STATE_DIR": str(tmp_path / "state")}
    start = ("--config", "store:", "--transport", "http", "--port", "0")
    missing = mcpx(env, *start)
    assert missing.returncode == 2 and "mcpx config push" in missing.stderr, missing.stderr
    file = tmp_path / "first.yaml"
    file.write_text("global: {hot_reload_interval: 0.1}\nmcp_servers: []  # none yet\n")
    assert mcpx(env, "config", "push", str(file)).returncode == 0
    with ExitStack() as stack:
        made = [
            FromStore({}, env={"MCPX_STORE": empty_store.url}, admin=True, counted=False)
            for _ in range(2)
        ]
        two = [stack.enter_context(each) for each in made]
        wait_until(lambda: all(len(told(each)) == 2 for each in two), what="they know each other")
        laid = [each.folder / "state" / "shared" / "first.yaml" for each in two]
        assert [path.read_text() for path in laid] == [file.read_text()] * 2
        assert laid[0].stat().st_mode & 0o777 == 0o600
        other = tmp_path / "second.yaml"
        other.write_text(
            "global: {hot_reload_interval: 0.1}\nmcp_servers: [{name: b, url: "
            "http://127.0.0.1:9/mcp}]\n"
        )
        pushed = mcpx(env, "config", "push", "--json", str(other))
        assert pushed.returncode == 0 and json.loads(pushed.stdout)["replicas"] == 2, pushed
        assert all(path.read_text() == other.read_text() for path in laid)
        assert (
            api(two[0], "/mcp-servers", "POST", {**raw_server("raw"), "enabled": False}).status
            == 201
        )
        wait_until(
            lambda: "name: raw" in laid[1].read_text(),
            what="changed at one, taken up by the other",
            seconds=LIVE + 4,
        )
        other.write_text("mcp_servers: [{nam: b}]\n")
        assert mcpx(env, "config", "push", str(other)).returncode == 2
        assert "name: raw" in laid[1].read_text()


@pytest.mark.parametrize("loss", ["away", "empty"])
def test_what_was_fetched_before_is_used_while_the_store_has_nothing_to_give(
    empty_store: RedisServer, tmp_path: Path, loss: str
) -> None:
    """SCA-1, SCA-2: a replica that has run before starts without the store, or with one that was
    emptied, with what it had, and says so."""
    env = {**os.environ, "MCPX_STORE": empty_store.url}
    file = tmp_path / "config.yaml"
    file.write_text("mcp_servers: []\n")
    assert mcpx(env, "config", "push", str(file)).returncode == 0
    with FromStore({}, env={"MCPX_STORE": empty_store.url}) as gateway:
        gateway.process.kill()
        gateway.process.wait(20)
        empty_store.kill()
        if loss == "empty":
            empty_store.start()
        gateway._child.end()  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        gateway._start()  # pyright: ignore[reportPrivateUsage]
        assert "it starts with the config that it had last" in gateway.stderr()
        if loss == "away":
            empty_store.start()
        wait_until(
            lambda: empty_store.cli("HGET", "{mcpx}:config", "number") != "",
            what="it has joined and given it back",
        )
