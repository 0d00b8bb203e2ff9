"""LIF-3, LIF-5: what is done about a connection that is silent, unwanted, old or large; and what is
never done."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.callers import older_caller
from kit.loop import never_return, run
from kit.server import ScriptedConnection, ScriptedServer, echo
from kit.until import until
from mcpx.config import Server
from mcpx.model.call import Call, Json
from mcpx.model.errors import METHOD_NOT_FOUND, RpcError, Unavailable
from mcpx.model.events import UpstreamChanged
from mcpx.upstreams.connection import THRESHOLD, HealthMonitor, Verdict
from mcpx.upstreams.context import UpstreamContext, UpstreamEvent
from mcpx.upstreams.life import Gate
from mcpx.upstreams.link import Link
from mcpx.upstreams.snapshot import Snapshots
from mcpx.upstreams.upstream import Upstream

TICK = 0.05
"""The shortest time between two looks."""


class Connection(Link):
    """A link as far as it is probed."""

    def __init__(self, *answers: Exception | None) -> None:
        self.alive = True
        self.probes = 0
        self.size = 0
        self._answers = list(answers)
        self.on_probe: Callable[[], None] = lambda: None

    async def probe(self, timeout: float) -> None:
        self.probes += 1
        self.on_probe()
        answer = self._answers.pop(0) if self._answers else None
        if answer is not None:
            raise answer

    def memory(self) -> int:
        return self.size


class Patient(HealthMonitor):
    def __init__(self, **fields: Any) -> None:
        fields.setdefault("health_check_interval", TICK)
        self._server: Server = ScriptedServer().server(**fields)
        self.calls = 0
        self.running = False
        self.listeners = False
        self.findings: list[tuple[bool, str | None]] = []

    @property
    def server(self) -> Server:
        return self._server

    def traffic(self) -> int:
        return self.calls

    def is_busy(self) -> bool:
        return self.running

    def has_listeners(self) -> bool:
        return self.listeners

    def probed(self, latency: float | None, problem: str | None) -> None:
        self.findings.append((latency is not None, problem))


@asynccontextmanager
async def looked_after(patient: Patient, link: Any) -> AsyncIterator["asyncio.Task[Verdict]"]:
    task = asyncio.ensure_future(patient.verdict(link))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


SILENCE = Unavailable("toy", -33002, "no answer within 1 s")


def test_three_probes_without_an_answer_in_a_row_are_the_end_and_each_is_told() -> None:
    """LIF-3: the failure threshold."""

    async def main() -> None:
        patient, link = Patient(), Connection(SILENCE, SILENCE, None, SILENCE, SILENCE, SILENCE)
        assert await patient.verdict(link) == "lost"
        assert link.probes == 3 + THRESHOLD
        silent = (False, "toy: no answer within 1 s")
        assert patient.findings == [silent, silent, (True, None), silent, silent, silent]

    run(main())


def test_an_error_is_a_sign_of_life() -> None:
    """LIF-3: a server that knows no ping is there all the same."""

    async def main() -> None:
        patient, link = Patient(), Connection(*[RpcError(METHOD_NOT_FOUND, "ping")] * 4)
        async with looked_after(patient, link):
            await until(lambda: link.probes == 4)
        assert set(patient.findings) == {(True, None)}

    run(main())


@pytest.mark.parametrize("what", ["a call that runs", "calls since the last look"])
def test_nothing_is_done_while_there_is_traffic(what: str) -> None:
    """LIF-3, LIF-5: neither probed nor put to sleep nor replaced."""

    async def main() -> None:
        patient = Patient(lazy=True, idle_timeout=TICK, max_age=TICK)
        link = Connection()

        def traffic() -> int:
            patient.calls += what != "a call that runs"
            return patient.calls

        patient.running = what == "a call that runs"
        patient.traffic = traffic
        async with looked_after(patient, link) as task:
            await until(lambda: task.done() or len(patient.findings) >= 3)
            assert not task.done()
        assert link.probes == 0
        assert set(patient.findings) == {(False, None)}

    run(main())


def test_who_listens_for_a_resource_keeps_it_awake_and_it_is_probed_all_the_same() -> None:
    """LIF-3: a server that hangs must not go unnoticed because somebody waits for it."""

    async def main() -> None:
        patient = Patient(lazy=True, idle_timeout=TICK, max_age=TICK)
        patient.listeners = True
        link = Connection(None, None, SILENCE, SILENCE, SILENCE)
        assert await patient.verdict(link) == "lost"
        assert link.probes == 5

    run(main())


def test_a_lazy_server_sleeps_after_its_idle_time_and_one_that_is_not_lazy_never() -> None:
    """LIF-5."""

    async def main() -> None:
        began = time.monotonic()
        assert await Patient(lazy=True, idle_timeout=0.2).verdict(Connection()) == "sleep"
        assert time.monotonic() - began >= 0.2
        patient, link = Patient(idle_timeout=0.01), Connection()
        async with looked_after(patient, link) as task:
            await until(lambda: link.probes == 4)
            assert not task.done()

    run(main())


def test_old_and_large_connections_are_renewed() -> None:
    """LIF-5: `max_age`, `max_memory`."""

    async def main() -> None:
        assert await Patient(max_age=0.1).verdict(Connection()) == "renew"
        link = Connection()
        link.size = 1000
        assert await Patient(max_memory=999).verdict(link) == "renew"
        patient, link = Patient(max_memory=1000), Connection()
        link.size = 1000
        async with looked_after(patient, link) as task:
            await until(lambda: link.probes == 2)
            assert not task.done()

    run(main())


def test_without_health_checks_nothing_is_probed_but_the_rest_is_done() -> None:
    """LIF-3: `health_check_enabled: false`."""

    async def main() -> None:
        link = Connection()
        assert await Patient(health_check_enabled=False, max_age=0.1).verdict(link) == "renew"
        assert link.probes == 0

    run(main())


@pytest.mark.parametrize("when", ["between two looks", "while it is probed"])
def test_a_connection_that_is_gone_is_looked_after_no_more_and_says_nothing_of_the_next(
    when: str,
) -> None:
    """LIF-3: what was found of the old one must not make the new one degraded."""

    async def main() -> None:
        patient, link = Patient(), Connection(SILENCE)
        if when == "between two looks":
            link.alive = False
        else:
            link.on_probe = lambda: setattr(link, "alive", False)
        assert await patient.verdict(link) == "lost"
        assert patient.findings == []

    run(main())


# ---- with a real upstream


class Hub:
    def __init__(self) -> None:
        self.states: list[str] = []
        self.upstream: Upstream | None = None

    def publish(self, event: UpstreamEvent) -> None:
        if isinstance(event, UpstreamChanged):
            assert self.upstream is not None
            self.states.append(self.upstream.status.state)


@asynccontextmanager
async def upstream_of(toy: ScriptedServer, **fields: Any) -> AsyncIterator[tuple[Upstream, Hub]]:
    hub = Hub()
    upstream = hub.upstream = Upstream(
        toy.server(**fields), UpstreamContext({}, Snapshots(None), Gate(8), hub.publish)
    )
    upstream.connection.start()
    try:
        await until(lambda: upstream.status.state in ("connected", "disconnected"))
        yield upstream, hub
    finally:
        await upstream.close()


async def call(upstream: Upstream, tool: str = "echo") -> Json:
    params: Json = {"name": tool, "arguments": {"text": "x"}}
    return await upstream.call(Call("tools/call", params, older_caller()), params)


def test_a_silent_server_is_degraded_then_replaced_and_a_good_word_makes_it_well() -> None:
    """LIF-3: connected, degraded, connected; degraded, disconnected, connected."""

    async def main() -> None:
        silent = False

        async def ping(line: ScriptedConnection, params: Json) -> Json:
            return await never_return() if silent else {}

        toy = ScriptedServer("older", answers={"ping": ping})
        async with upstream_of(toy, health_check_interval=0.3) as (
            upstream,
            hub,
        ):  # also the time of an answer
            silent = True
            await until(lambda: upstream.status.state == "degraded")
            silent = False
            await until(lambda: upstream.status.state == "connected")
            assert upstream.life.recovery.restarts == 0 and upstream.health.latency is not None
            silent = True
            await until(lambda: upstream.life.recovery.restarts == 1)
            silent = False
            await until(lambda: upstream.status.state == "connected")
            assert await call(upstream)
            assert len(toy.alive) == 1
            order = [state for state in hub.states if state != "connecting"]
            assert order[-3:] == ["degraded", "disconnected", "connected"]

    run(main())


def test_short_calls_on_links_of_their_own_keep_a_lazy_server_awake() -> None:
    """LIF-5: a link that is gone with its call has still carried one."""

    async def main() -> None:
        toy = ScriptedServer("older")
        async with upstream_of(toy, lazy=True, idle_timeout=1.0, isolation="per_call") as (
            upstream,
            hub,
        ):
            began = time.monotonic()
            while time.monotonic() - began < 2.5:
                await call(upstream)
                await asyncio.sleep(0.05)
            assert "sleeping" not in hub.states
            await until(lambda: upstream.status.state == "sleeping")

    run(main())


def test_an_error_of_the_server_is_an_answered_call() -> None:
    """LIF-4: a life that said no has served."""

    async def main() -> None:
        async def refuse(line: ScriptedConnection, params: Json) -> Json:
            raise RpcError(-32000, "no")

        toy = ScriptedServer("older", tools={"echo": echo, "refuse": refuse})
        async with upstream_of(toy) as (upstream, _):
            with pytest.raises(RpcError, match="no"):
                await call(upstream, "refuse")
            toy.lines[0].die()
            await until(
                lambda: (
                    upstream.status.state == "connected" and upstream.life.recovery.restarts == 1
                )
            )
            assert len(toy.lines) == 2, "at once"

    run(main())
