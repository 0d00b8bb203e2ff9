"""LIF-4, LIF-5: the one task that connects a server, and everybody who waits for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.loop import run, yield_to_loop
from kit.server import ScriptedServer
from kit.until import until
from mcpx.model.errors import Unavailable
from mcpx.upstreams.life import ConnectFailure, Gate, Life


class Body:
    """A server as its life sees it: attempts that wait, fail or succeed."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.attempts = 0
        self.open = asyncio.Event()
        self.open.set()
        self.needs_auth = False
        self.retry_after: float | None = None
        self.states: list[str] = []
        self.life: Life | None = None

    async def connect(self) -> ConnectFailure | None:
        self.attempts += 1
        await self.open.wait()
        if self.problem is None:
            return None
        return ConnectFailure(self.problem, self.needs_auth, self.retry_after)

    def changed(self) -> None:
        assert self.life is not None
        self.states.append(self.life.status.state)


@asynccontextmanager
async def living(
    body: Body, *, gate: Gate | None = None, asleep: bool = False, **fields: Any
) -> AsyncIterator[Life]:
    life = body.life = Life(
        ScriptedServer().server(**fields), body.connect, body.changed, gate or Gate(8)
    )
    task = asyncio.ensure_future(life.run(asleep=asleep))
    try:
        yield life
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_many_callers_of_a_server_that_is_down_share_one_attempt_which_does_not_wait_for_the_timer() -> (
    None
):
    """LIF-4: shared wake-up."""

    async def main() -> None:
        body = Body()
        body.problem = "toy: broken"
        async with living(body, retry_delay=60) as life:
            await until(lambda: life.next_attempt_at is not None)
            body.problem = None
            await asyncio.gather(*(life.wait_for_attempt() for _ in range(50)))
            assert body.attempts == 2
            assert life.status.state == "connected"

    run(main())


def test_an_open_circuit_refuses_at_once_with_the_reason_and_the_time() -> None:
    """LIF-4: the server's name stands once in the message."""

    async def main() -> None:
        body = Body()
        body.problem = "toy: broken"
        async with living(body, retry_delay=60) as life:
            for _ in range(3):
                await until(lambda: life.next_attempt_at is not None)
                await life.wait_for_attempt()
            for _ in range(3):  # the one whose attempt opens it, and those that come later
                with pytest.raises(Unavailable, match=r"^toy: broken; next try in \d+ s$"):
                    await life.wait_for_attempt()
            assert body.attempts == 5

    run(main())


def test_the_call_whose_attempt_opens_the_circuit_is_told_so_too() -> None:
    """LIF-4: and one that comes between the loss and the pause does not wait for the pause."""

    async def main() -> None:
        body = Body()
        async with living(body, retry_delay=60) as life:
            await until(lambda: life.status.state == "connected")
            life.recovery.barren = 4
            life.connection_lost("toy: died")
            with pytest.raises(Unavailable, match="next try in"):
                await life.wait_for_attempt()
            assert body.attempts == 1

    run(main())


def test_a_server_that_wants_a_sign_in_is_left_alone_until_somebody_has_signed_in() -> None:
    """LIF-3, section 6: calls fail at once, however many; neither the circuit nor a pause stands in
    the way later."""

    async def main() -> None:
        body = Body()
        body.problem = "toy: sign in"

        body.needs_auth = True
        async with living(body, retry_delay=0.001, max_retries=100) as life:
            await until(lambda: life.next_attempt_at is not None)
            for _ in range(20):
                with pytest.raises(Unavailable, match=r"^toy: sign in$") as caught:
                    await life.wait_for_attempt()
                assert (caught.value.http_status, caught.value.retry_after) == (401, None)
            assert (body.attempts, life.status.state, life.recovery.restarts) == (
                1,
                "needs_auth",
                0,
            )
            body.problem = None
            life.skip_pause()
            await until(lambda: life.status.state == "connected")
            assert (body.attempts, life.recovery.circuit_open) == (2, False)

    run(main())


def test_a_server_that_asked_for_time_is_given_it() -> None:
    """LIF-4: `Retry-After`, also against a call; afterwards it is tried by itself."""

    async def main() -> None:
        body = Body()
        body.problem = "toy: answered with HTTP 503"
        body.retry_after = 0.3
        async with living(body, retry_delay=0.001, max_retries=100) as life:
            await until(lambda: life.next_attempt_at is not None)
            before = body.attempts
            with pytest.raises(Unavailable, match="503; next try in 1 s"):
                await life.wait_for_attempt()
            assert body.attempts <= before + 1  # one may have been on its way
            body.problem = None
            await until(lambda: life.status.state == "connected")

    run(main())


def test_a_caller_waits_no_longer_than_the_time_out_of_the_server() -> None:
    """LIF-6."""

    async def main() -> None:
        body = Body()
        body.open.clear()
        async with living(body, timeout=0.05) as life:
            with pytest.raises(Unavailable, match=r"not connected after 0\.05 s"):
                await life.wait_for_attempt()

    run(main())


def test_without_auto_reconnect_only_a_call_brings_it_back() -> None:
    """LIF-4."""

    async def main() -> None:
        body = Body()
        async with living(body, auto_reconnect=False, retry_delay=0.0) as life:
            await until(lambda: life.status.state == "connected")
            life.connection_lost("toy: died")
            await yield_to_loop()
            assert (body.attempts, life.status.state, life.next_attempt_at) == (
                1,
                "disconnected",
                None,
            )
            await life.wait_for_attempt()
            assert body.attempts == 2

    run(main())


def test_a_sleeping_server_is_not_tried_until_it_is_wanted_and_sleep_is_no_failure() -> None:
    """LIF-5."""

    async def main() -> None:
        body = Body()
        async with living(body, asleep=True) as life:
            await yield_to_loop()
            assert (body.attempts, life.status.state) == (0, "sleeping")
            for lives in (1, 2):
                await life.wait_for_attempt()
                assert (body.attempts, life.status.state) == (lives, "connected")
                life.connection_closed("sleep")
                await until(lambda: life.status.state == "sleeping")
            assert life.recovery.restarts == 0

    run(main())


def test_a_renewed_server_is_connected_again_at_once() -> None:
    """LIF-5."""

    async def main() -> None:
        body = Body()
        async with living(body) as life:
            await until(lambda: life.status.state == "connected")
            life.connection_closed("renew")
            await until(lambda: body.attempts == 2 and life.status.state == "connected")
            assert life.recovery.restarts == 0

    run(main())


def test_whoever_waits_when_the_life_ends_is_not_left_waiting() -> None:
    """LIF-8."""

    async def main() -> None:
        body = Body()
        body.open.clear()
        async with living(body, timeout=600) as life:
            waiting = asyncio.ensure_future(life.wait_for_attempt())
            await until(lambda: body.attempts == 1)
        await waiting

    run(main())


def test_a_status_is_told_once_and_keeps_its_error_while_it_connects() -> None:
    """LIF-3."""

    async def main() -> None:
        body = Body()
        body.problem = "toy: broken"
        async with living(body, retry_delay=0.001, max_retries=100) as life:
            await until(lambda: body.attempts == 2)
            assert life.status.last_error == "toy: broken"
            life.set_status("degraded", "x")
            told = len(body.states)
            since = life.status.since
            life.set_status("degraded", "x")
            assert (len(body.states), life.status.since) == (told, since)

    run(main())


# ---- the gate


def test_so_many_start_at_a_time_and_one_that_is_wanted_does_not_stand_in_line() -> None:
    """LIF-1."""

    async def main() -> None:
        gate, urgent, never = Gate(2), asyncio.Event(), asyncio.Event()
        assert await gate.acquire(never) and await gate.acquire(never)
        rushed = asyncio.ensure_future(gate.acquire(urgent))
        patient = asyncio.ensure_future(gate.acquire(never))
        await yield_to_loop()
        assert not rushed.done() and not patient.done()
        urgent.set()
        assert await rushed is False
        await yield_to_loop()
        assert not patient.done()
        gate.release()
        assert await patient is True

    run(main())


def test_no_place_is_lost_when_the_turn_comes_with_the_end() -> None:
    """LIF-1: a server that is removed just as it may start."""

    async def main() -> None:
        gate, never = Gate(1), asyncio.Event()
        for steps in range(6):
            assert await gate.acquire(never)
            waiting = asyncio.ensure_future(gate.acquire(never))
            await yield_to_loop()
            gate.release()
            await yield_to_loop(steps)
            waiting.cancel()
            if (await asyncio.gather(waiting, return_exceptions=True))[0] is True:
                gate.release()
            assert await gate.acquire(never)
            gate.release()

    run(main())
