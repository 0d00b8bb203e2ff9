"""SCA-1, SCA-2: replicas die, leave and come back under load; nobody loses more than the calls that
a dead one ran."""

import asyncio
from pathlib import Path

from behaviour.load import call_of, connected, greeted
from kit.gateway import GatewayProcess
from kit.replicas import RedisServer, Replicas, ready
from kit.until import until, wait_until
from replicas.crowd import Crowd, journal, twice

SESSIONS = 500
CALLS = 20_000
GOES_ON = 1.0
"""Seconds in which a session of a dead replica goes on elsewhere."""


def test_a_killed_replica_costs_the_calls_it_ran_and_nothing_else(tmp_path: Path) -> None:
    """SCA-1: kill -9 under 500 sessions. Only calls in flight there fail, once; every session goes
    on within a second; no call with an effect was made twice."""
    file = tmp_path / "journal"

    async def run(replicas: Replicas) -> None:
        crowd = Crowd(replicas.port)
        there = await crowd.come(SESSIONS)
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            for number, (wire, session) in enumerate(there):
                group.create_task(crowd.call(number, wire, session, 1.5))
            await asyncio.sleep(4)
            replicas[1].process.kill()
            await asyncio.to_thread(
                replicas[1].process.wait
            )  # until then the system takes what is sent to it
            died = loop.time()
            await asyncio.sleep(6)
            crowd.stop.set()
        assert crowd.good > 2 * SESSIONS
        late = [at for at, _, _ in crowd.failed if at > died + 0.05]
        assert late == [], (
            f"{len(late)} calls failed that were made after it had died: {crowd.failed[:5]}"
        )
        assert len({text.partition("-")[0] for _, text, _ in crowd.failed}) == len(crowd.failed)
        lagging = [
            number
            for number in range(SESSIONS)
            if min(at for at in crowd.answered_at[number] if at > died) - died
            > 1.5 + GOES_ON  # one pause, and that
        ]
        assert lagging == []

    with RedisServer() as store, Replicas(store, {"mcp_servers": [journal(file)]}) as replicas:
        asyncio.run(run(replicas))
    assert twice(file) == []


def test_a_gateway_that_drains_says_so_first_and_serves_on(tmp_path: Path) -> None:
    """SCA-2: with `server.drain`, also without a store: `/ready` answers 404 while requests are
    still served."""
    config = {"mcp_servers": [journal(tmp_path / "journal")], "server": {"drain": 2}}

    async def run(gateway: GatewayProcess) -> None:
        wire = await connected(gateway.port)
        session = await greeted(gateway.port, wire)
        gateway.process.terminate()
        await asyncio.to_thread(
            wait_until, lambda: not ready(gateway), 5, what="it says that it is about to end"
        )
        fresh = await connected(gateway.port)
        for each in (wire, fresh):
            assert b'"result"' in await each.send(
                call_of(gateway.port, "older", session, "log_note", "still")
            )
        assert gateway.process.poll() is None
        for each in (wire, fresh):
            each.transport.close()

    with GatewayProcess(config) as gateway:
        asyncio.run(run(gateway))


def test_a_rolling_restart_of_all_replicas_loses_no_call(tmp_path: Path) -> None:
    """SCA-2: 20,000 calls of 100 sessions, and however many more are made until all three are
    restarted, one after the other; none fails."""
    file = tmp_path / "journal"
    clients = 100

    async def run(replicas: Replicas) -> int:
        crowd = Crowd(replicas.port)
        there = await crowd.come(clients)
        async with asyncio.TaskGroup() as group:
            for number, (wire, session) in enumerate(there):
                group.create_task(crowd.call(number, wire, session, 0.12))
            for number in range(len(replicas)):
                await asyncio.to_thread(replicas.restart, number)
            await until(lambda: crowd.good >= CALLS or crowd.failed, 90)
            crowd.stop.set()
        assert crowd.failed == []
        return crowd.good

    with RedisServer() as store, Replicas(store, {"mcp_servers": [journal(file)]}) as replicas:
        made = asyncio.run(run(replicas))
    assert made >= CALLS
    assert len(file.read_text().split()) == made
    assert twice(file) == []
