"""SCA-2: the store is killed, paused, emptied and restarted under load, or one replica is cut off
from it. Calls that need nothing of it go on; what was lost is made anew, within seconds."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit.replicas import RedisServer, Replicas, free_port, health
from kit.until import wait_until
from replicas.crowd import Crowd, journal, twice

SESSIONS = 60
BACK = 5.0
"""Seconds in which all is as before."""
GOES_ON = 1.0
"""Seconds after a death in which every session goes on."""


@contextlib.asynccontextmanager
async def calling(replicas: Replicas) -> AsyncIterator[Crowd]:
    """Sessions that call all the time; leaving the block ends them."""
    crowd = Crowd(replicas.port)
    there = await crowd.come(SESSIONS)
    async with asyncio.TaskGroup() as group:
        for number, (wire, session) in enumerate(there):
            group.create_task(crowd.call(number, wire, session, 0.25))
        await asyncio.sleep(0.5)
        yield crowd
        crowd.stop.set()


def all_up(
    replicas: Replicas, sessions: int | None = SESSIONS, store: RedisServer | None = None
) -> bool:
    """Each sees the store and the others; and the store has all sessions."""
    told = [health(each) for each in replicas if each.process.poll() is None]
    seen = all(
        each["store"]["state"] == "up" and len(each["peers"]) == len(told) - 1 for each in told
    )
    return seen and (store is None or len(store.cli("KEYS", "*:session:*").split()) == sessions)


@pytest.mark.parametrize("trouble", ["killed", "paused", "flushed"])
def test_calls_go_on_while_the_store_fails_and_sessions_survive_the_next_death(
    tmp_path: Path, trouble: str
) -> None:
    """SCA-2: nobody notices; what was lost is there again, so that a replica may die after that."""
    file = tmp_path / "journal"

    async def run(store: RedisServer, replicas: Replicas) -> None:
        async with calling(replicas) as crowd:
            match trouble:
                case "killed":
                    store.kill()
                    await asyncio.sleep(3)
                    store.start()
                case "paused":
                    store.pause()
                    await asyncio.sleep(3)
                    store.go_on()
                case _:
                    store.cli("FLUSHALL")
            await asyncio.to_thread(
                wait_until, lambda: all_up(replicas, SESSIONS, store), BACK, what="all is as before"
            )
            assert crowd.failed == []
            replicas[0].process.kill()
            await asyncio.to_thread(
                replicas[0].process.wait
            )  # until then the system takes what is sent to it
            died = asyncio.get_running_loop().time()
            before = crowd.good
            await asyncio.sleep(2)
            assert crowd.good > before + SESSIONS
            assert [failed for failed in crowd.failed if failed[0] > died + GOES_ON] == []
            clients = [text.partition("-")[0] for _, text, _ in crowd.failed]
            assert len(set(clients)) == len(clients), crowd.failed

    with RedisServer() as store, Replicas(store, {"mcp_servers": [journal(file)]}) as replicas:
        asyncio.run(run(store, replicas))
        for replica in replicas:
            assert "Traceback" not in replica.stderr(), replica.stderr()
    assert twice(file) == []


def test_a_store_that_is_not_there_at_the_start_is_said_and_waited_for(tmp_path: Path) -> None:
    """SCA-2: a clear line, `/ready` says no, and it goes on by itself once the store is there."""
    import urllib.error
    import urllib.request

    from kit.gateway import GatewayProcess
    from kit.replicas import ready

    store = RedisServer()
    config = {
        "mcp_servers": [journal(tmp_path / "journal")],
        "server": {"store": store.url, "drain": 0},
    }
    with GatewayProcess(config) as replica:
        wait_until(lambda: "cannot be used" in replica.stderr(), what="it says so", seconds=10)
        assert not ready(replica)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(
                urllib.request.Request(replica.url, b"{}", method="POST"), timeout=5
            )
        with (
            refused.value
        ):  # else its socket is left to the collector, in the middle of some other test
            assert refused.value.code == 503
        assert replica.stderr().count("cannot be used") == 1
        with store:
            wait_until(lambda: ready(replica), what="it goes on", seconds=BACK)
            assert "Traceback" not in replica.stderr()


class Line:
    """A way to the store that can be cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = free_port()
        self._cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._there = threading.Event()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", self.port)
        )
        self._there.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _open(writer):
            if self._cut:
                return
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._target)
            async with _open(to_writer):
                if self._cut:  # meanwhile
                    return
                both = {writer, to_writer}
                self._writers |= both
                await asyncio.gather(_copy(reader, to_writer), _copy(to_reader, writer))
                self._writers -= both

    def cut(self, cut: bool = True) -> None:
        def act() -> None:
            self._cut = cut
            for writer in self._writers:
                writer.transport.abort()

        self._loop.call_soon_threadsafe(act)

    def close(self) -> None:
        """All connections are cut, and have ended."""
        self.cut()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=5)
            assert not left, left
        await self._server.wait_closed()


@contextlib.asynccontextmanager
async def _open(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Its socket is closed when the block is left."""
    try:
        yield
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
    sink.transport.abort()


@contextmanager
def line(target: int) -> Iterator[Line]:
    made = Line(target)
    made._thread.start()  # pyright: ignore[reportPrivateUsage]
    assert made._there.wait(5)  # pyright: ignore[reportPrivateUsage]
    try:
        yield made
    finally:
        made.close()


def test_a_replica_that_is_cut_off_from_the_store_serves_what_it_has_and_joins_again(
    tmp_path: Path,
) -> None:
    """SCA-2: its sessions go on through every replica: for the others it counts as gone after some
    seconds, and then they go on there; none is lost, and no call is made twice."""
    file = tmp_path / "journal"

    async def run(store: RedisServer, replicas: Replicas, way: Line) -> None:
        async with calling(replicas) as crowd:
            way.cut()
            await asyncio.sleep(6)  # longer than it takes to count as gone
            way.cut(False)
            await asyncio.to_thread(
                wait_until, lambda: all_up(replicas, SESSIONS, store), BACK, what="all is as before"
            )
            before = crowd.good
            await asyncio.sleep(1)
            assert crowd.good > before
            lost = [how for _, _, how in crowd.failed if "unknown or expired" in how]
            assert lost == []

    with RedisServer() as store, line(store.port) as way:
        config = {"mcp_servers": [journal(file)]}
        own = {0: {"MCPX_STORE": f"redis://127.0.0.1:{way.port}/0"}}
        with Replicas(store, config, each=own) as replicas:
            asyncio.run(run(store, replicas, way))
            for replica in replicas:
                assert "Traceback" not in replica.stderr(), replica.stderr()
    assert twice(file) == []
