"""Ctrl-C in the middle of it all: real servers at work, and nothing of them is left (LIF-7, LIF-8)."""

import signal
import time
from pathlib import Path

import anyio
import pytest

from behaviour.clients import BOUND, Client, Person, RefusedError, connected
from e2e.peers import World
from e2e.people import door_to
from e2e.processes import left_running, needs_proc, running
from fixtures.gateway import STOP, Gateway

pytestmark = needs_proc


@pytest.mark.parametrize("kind", ["sdk-older", "sdk-modern"])
def test_an_interrupt_ends_mcpx_its_servers_and_the_call_that_runs(kind: str, earth: World, tmp_path: Path) -> None:
    """LIF-7, LIF-8: a call of a minute is not waited for, exit code 0, no traceback, no orphan."""
    servers = [peer.native for peer in earth.marked(str(tmp_path))]
    with Gateway({"mcp_servers": servers, "global": {"startup_wait": 20}}) as gateway:
        interrupted = anyio.run(_interrupt, gateway, kind, str(tmp_path))
        code = gateway.process.wait(STOP)
        assert (code, time.monotonic() - interrupted < STOP) == (0, True), gateway.stderr()
        assert "Traceback" not in gateway.stderr(), gateway.stderr()
    assert left_running(str(tmp_path)) == []


async def _interrupt(gateway: Gateway, kind: str, word: str) -> float:
    """Interrupts mcpx at a call's first progress; the time at which it did."""
    at: list[float] = []

    def progressed(_: object) -> None:
        if not at:
            at.append(time.monotonic())
            gateway.process.send_signal(signal.SIGINT)

    async def work(client: Client) -> None:
        assert len({tool["_meta"]["proxy"]["server"] for tool in await client.listed("tools/list")}) == 3
        assert len(running(word)) == 3
        arguments = {"duration": 60, "steps": 600}
        with pytest.raises(RefusedError), anyio.fail_after(BOUND):
            await client.call("everything_trigger-long-running-operation", arguments, progressed)

    async with connected(kind, door_to(gateway, "http"), Person("ada", quiet=True)) as client:
        await work(client)
    return at[0]
