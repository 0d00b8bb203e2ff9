"""Ctrl-C in the middle of it all: real servers at work, and nothing of them is left (LIF-7,
LIF-8)."""

import signal
from pathlib import Path

import anyio
import pytest

from behaviour.clients import BOUND, AnsweringUser, RefusedError, connected
from e2e.peers import World
from e2e.people import door_to
from e2e.processes import left_running, needs_proc, running
from kit.gateway import GatewayProcess

pytestmark = needs_proc


def test_an_interrupt_ends_mcpx_its_servers_and_the_call_that_runs(
    earth: World, tmp_path: Path
) -> None:
    """LIF-7, LIF-8: a call of a minute is not waited for; exit code 0, no traceback, no orphan."""
    servers = [peer.native for peer in earth.marked(str(tmp_path))]
    with GatewayProcess(
        {"mcp_servers": servers, "global": {"startup_wait": 20, "first_start_wait": 20}}
    ) as gateway:
        anyio.run(_interrupt, gateway, str(tmp_path))
        assert gateway.process.wait(BOUND) == 0
        assert "Traceback" not in gateway.stderr(), gateway.stderr()
    assert left_running(str(tmp_path)) == []


async def _interrupt(gateway: GatewayProcess, word: str) -> None:
    """Interrupts mcpx at each progress of a call, as somebody impatient does, until the call has
    failed."""
    async with connected(
        "sdk-older", door_to(gateway, "http"), AnsweringUser("ada", quiet=True)
    ) as client:
        assert (
            len({tool["_meta"]["proxy"]["server"] for tool in await client.listed("tools/list")})
            == 3
        )
        assert len(running(word)) == 3
        with pytest.raises(RefusedError), anyio.fail_after(BOUND):
            await client.call(
                "everything_trigger-long-running-operation",
                {"duration": 60, "steps": 600},
                lambda _: gateway.process.send_signal(signal.SIGINT),
            )
