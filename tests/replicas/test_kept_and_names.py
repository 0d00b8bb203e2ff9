"""SCA-1: what clients were given by one replica (handles of large results, names, a way of showing)
is good at all."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from behaviour.compact import Visitor, config, held_up, next_notice, text, told
from behaviour.test_metrics import scrape, total
from kit.messages import Json
from kit.replicas import RedisServer, Replicas
from kit.until import wait_until
from replicas.looking import record_of

LINES = "\n".join(f"line {number} of the log" for number in range(4_000))
"""More than is shown at once."""


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp("kept")
    with (
        RedisServer() as store,
        Replicas(store, config(told("told", folder, {})), balanced=False) as replicas,
    ):
        yield replicas
        for replica in replicas:
            assert "Traceback" not in replica.stderr(), replica.stderr()


def large(client: Visitor) -> str:
    """The handle of a large result."""
    result = client.run("told", "give", {"result": {"content": [{"type": "text", "text": LINES}]}})
    return client.structured(result)["handle"]


def read(client: Visitor, handle: str, **more: object) -> Json:
    return client.run("mcpx", "result", {"handle": handle, **more})


def test_a_handle_that_one_replica_gave_is_read_at_all_others_by_its_owner_alone(
    replicas: Replicas,
) -> None:
    """SUR-11, SCA-1, SEC-6: a modern client has no session; somebody else learns nothing."""
    ann = [Visitor(replica.port, "search", "modern", name="ann") for replica in replicas]
    bob = [Visitor(replica.port, "search", "modern", name="bob") for replica in replicas]
    handle = large(ann[0])
    for client in (ann[1], ann[2], ann[0], ann[1]):
        assert "line 3999 of the log" in text(read(client, handle, grep="line 3999"))
    for stranger in bob:
        refused = read(stranger, handle)
        assert stranger.error(refused).startswith("This handle is not known")
        assert refused == read(stranger, "x" * len(handle))


def test_a_session_takes_its_large_results_along_to_another_replica(replicas: Replicas) -> None:
    """SUR-11, SCA-1: its replica has ended; and with the session they end everywhere."""
    client = Visitor(replicas[2].port, "search")
    handle = large(client)
    replicas.restart(2)
    client.port = replicas[0].port
    assert "line 77 of the log" in text(read(client, handle, grep="line 77 "))
    client.port = replicas[1].port
    assert "line 78 of the log" in text(read(client, handle, grep="line 78 "))
    stranger = Visitor(replicas[1].port, "search")
    assert stranger.error(read(stranger, handle))


def test_a_session_keeps_the_mode_that_auto_chose_at_another_replica(tmp_path: Path) -> None:
    """SUR-5, SCA-1: although that replica has a server less at the time."""
    many = {
        "tools": [
            {"name": f"tool_{n}", "description": "x" * 400, "inputSchema": {}} for n in range(100)
        ]
    }
    common = {"mode": "auto", "global": {"startup_wait": 0, "first_start_wait": 0}}
    servers = [
        told("few"),
        held_up(told("many", tmp_path, many), tmp_path / "hold.${MCPX_REPLICA}"),
    ]
    (tmp_path / "hold.r1").touch()
    with (
        RedisServer() as store,
        Replicas(store, {**config(*servers), **common}, 2, balanced=False) as replicas,
    ):
        here = Visitor(replicas[0].port, era="modern", name="some client")
        wait_until(lambda: "mcp_execute_tool" in here.names(), what="it is shown little of so much")
        session = Visitor(replicas[0].port, name="a session")
        record = record_of(store, session.headers["Mcp-Session-Id"])
        wait_until(lambda: store.cli("EXISTS", record) == "1", what="the session is written")
        size = int(store.cli("HSTRLEN", record, "about"))
        assert "mcp_execute_tool" in session.names()
        wait_until(
            lambda: int(store.cli("HSTRLEN", record, "about")) > size,
            what="what it is shown is written too",
        )
        replicas[0].excused = True
        replicas[0].process.kill()
        session.port = replicas[1].port
        assert "mcp_execute_tool" in session.names(), "a session keeps its surface"
        (tmp_path / "hold.r1").unlink()


def collide(folder: Path) -> Json:
    """Two servers that offer the same, each held up at a replica as long as a file is there."""
    servers = [
        held_up(told(name, folder, {}), folder / f"{name}.${{MCPX_REPLICA}}")
        for name in ("one", "two")
    ]
    for server in servers:
        del server["prefix"]
    return {**config(*servers), "global": {"startup_wait": 0, "first_start_wait": 0}}


def names(replica_port: int) -> dict[str, str]:
    """`server tool` → its public name."""
    tools = Visitor(replica_port, "direct", "modern").tools()
    origins = [tool["_meta"]["proxy"] for tool in tools]
    return {
        f"{its['server']} {its['name']}": tool["name"]
        for tool, its in zip(tools, origins, strict=True)
    }


def test_servers_that_come_up_in_opposite_orders_have_the_same_names_everywhere(
    tmp_path: Path,
) -> None:
    """NAM-1, SCA-1: and keep them when a replica is started anew, where by the configuration they
    would be others."""
    files = {(server, n): tmp_path / f"{server}.r{n}" for server in ("one", "two") for n in (0, 1)}
    for file in files.values():
        file.touch()
    with RedisServer() as store, Replicas(store, collide(tmp_path), 2, balanced=False) as replicas:
        first, second = replicas
        files["two", 0].unlink()
        wait_until(lambda: names(first.port), what="the second server is there")
        assert names(first.port)["two give"] == "give"
        files["one", 1].unlink()
        wait_until(
            lambda: names(second.port).get("one give") == "one_give",
            what="the name of the other is left alone",
        )
        files["one", 0].unlink()
        files["two", 1].unlink()
        for replica in replicas:
            wait_until(lambda replica=replica: len(names(replica.port)) == 8, what="all are there")
            wait_until(
                lambda replica=replica: names(replica.port) == names(first.port),
                what="names are the same",
                seconds=10,
            )
        expected = names(first.port)
        assert (expected["one give"], expected["two give"]) == ("one_give", "give")
        replicas.restart(1)
        replicas.restart(0)
        for replica in replicas:
            wait_until(
                lambda replica=replica: len(names(replica.port)) == 8, what="all are there again"
            )
            assert names(replica.port) == expected
            wait_until(
                lambda replica=replica: total(scrape(replica.port), "mcpx_store_up") == 1,
                what="the store is there",
            )
            wait_until(
                lambda replica=replica: total(scrape(replica.port), "mcpx_replicas") == 2,
                what="both are seen",
            )


def test_names_given_twice_while_the_store_was_away_are_settled_on_its_return(
    tmp_path: Path,
) -> None:
    """NAM-1, SCA-2: whoever was shown other names is told within a second or two; nobody waits for
    the store."""
    files = {(server, n): tmp_path / f"{server}.r{n}" for server in ("one", "two") for n in (0, 1)}
    for file in files.values():
        file.touch()
    with RedisServer() as store, Replicas(store, collide(tmp_path), 2, balanced=False) as replicas:
        first, second = replicas
        store.kill()
        files["two", 0].unlink()
        files["one", 1].unlink()
        for replica in replicas:
            wait_until(
                lambda replica=replica: "give" in names(replica.port).values(),
                what="one server is there",
            )
            began = time.monotonic()
            assert names(replica.port)
            assert time.monotonic() - began < 5
        files["one", 0].unlink()
        files["two", 1].unlink()
        for replica in replicas:
            wait_until(lambda replica=replica: len(names(replica.port)) == 8, what="all are there")
        assert names(first.port)["two give"] == names(second.port)["one give"] == "give"
        with (
            Visitor(first.port, "direct", "modern").listening() as at_first,
            Visitor(second.port, "direct", "modern").listening() as at_second,
        ):
            store.start()
            wait_until(
                lambda: names(first.port) == names(second.port),
                what="names are the same again",
                seconds=10,
            )
            loser = at_second if names(first.port)["two give"] == "give" else at_first
            assert next_notice(loser) == "notifications/tools/list_changed"
        for replica in replicas:
            assert total(scrape(replica.port), "mcpx_store_failures_total") >= 1
            assert "Traceback" not in replica.stderr()


def test_figures_tell_of_the_store_the_replicas_and_the_sessions_that_went_on(
    replicas: Replicas,
) -> None:
    """OBS-1, SCA-1"""
    wait_until(lambda: total(scrape(replicas[0].port), "mcpx_replicas") == 3, what="all are seen")
    before = total(scrape(replicas[0].port), "mcpx_sessions_adopted_total")
    client = Visitor(replicas[1].port, "search")
    replicas.restart(1)
    client.port = replicas[0].port
    assert client.tools()
    wait_until(
        lambda: total(scrape(replicas[0].port), "mcpx_store_up") == 1, what="the store is there"
    )
    assert "mcpx_store_failures_total" in scrape(replicas[0].port)
    everywhere = [
        total(scrape(replica.port), "mcpx_sessions_adopted_total") for replica in replicas
    ]
    assert sum(everywhere) > before
