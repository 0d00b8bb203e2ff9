"""Keeps one server connected: attempts, pauses between them, sleep (LIF-4, LIF-5).

One task per server, the only one that connects it. Everybody else waits for the outcome of the present or the next
attempt, which a waiting call brings forward; so many callers cause one attempt.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from mcpx.config import Server
from mcpx.model.errors import SERVER_DOWN, Unavailable
from mcpx.upstreams.recovery import Recovery

State = Literal["connecting", "connected", "degraded", "sleeping", "disconnected", "needs_auth", "disabled"]
DOWN = ("disconnected", "needs_auth")


@dataclass(frozen=True, slots=True)
class Status:
    state: State
    since: float = field(default_factory=time.time)
    """Since when it is so; of one that fails: since when it fails, however often it was tried again."""
    last_error: str | None = None


HELD = 0.75
"""Most seconds a starting server holds a place: what has not answered by then is slow or mute, not busy."""


SIGN_IN = 60.0
"""Seconds between two tries of a server that wants somebody to sign in; it is tried at once when somebody has."""


class Gate:
    """So many servers start at a time; one that a call waits for does not stand in line."""

    def __init__(self, places: int) -> None:
        self._places = asyncio.Semaphore(places)

    async def enter(self, urgent: asyncio.Event) -> bool:
        """Whether a place was taken; False when it became urgent before there was one."""
        turn = asyncio.ensure_future(self._places.acquire())
        rush = asyncio.ensure_future(urgent.wait())
        try:
            await asyncio.wait((turn, rush), return_when=asyncio.FIRST_COMPLETED)
            return turn.done()
        except asyncio.CancelledError:
            if turn.done():
                self.leave()  # the turn came with the end
            raise
        finally:
            rush.cancel()
            if not turn.done():
                turn.cancel()

    def leave(self) -> None:
        self._places.release()


class Life:
    def __init__(
        self,
        server: Server,
        connect: Callable[[], Awaitable[str | None]],
        changed: Callable[[], None],
        gate: Gate,
    ) -> None:
        """`connect` makes the connection and says what went wrong, if anything; `changed` hears of a new status."""
        self.server = server
        self.status = Status("connecting" if server.enabled else "disabled", last_error=server.switched_off)
        self.recovery = Recovery(server.retry_delay, server.max_retries)
        self.settled = asyncio.Event()
        """Set once it is known what the server offers, or that it cannot be known yet."""
        self.came = asyncio.Event()
        """Set once it was connected, and has listed what it offers, for the first time."""
        self.next_try: float | None = None
        """While it pauses: when the next attempt comes, by the monotonic clock."""
        self.needs_auth = False
        """Whether the present attempt failed for want of a sign-in."""
        self._connect = connect
        self._changed = changed
        self._gate = gate
        self._outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted = asyncio.Event()
        self._over = asyncio.Event()
        self._hurried = asyncio.Event()
        self._resting: Literal["sleep", "renew"] | None = None
        self._retry_after = self._no_use_before = 0.0

    # For the upstream ----------------------------------------------------------------------------------------

    async def run(self, *, asleep: bool) -> None:
        """Keep the server connected until cancelled; `asleep`: not before somebody wants it."""
        try:
            await self._run(asleep)
        finally:
            if not self._outcome.done():
                self._outcome.set_result(None)  # nobody waits for what will not come

    async def _run(self, asleep: bool) -> None:
        self._resting = "sleep" if asleep else None
        renewing = False
        while True:
            if self._resting == "sleep":
                self.set("sleeping")
                await self._wanted.wait()
            self._resting = None
            problem = await self._attempt(renewing)
            renewing = False
            if problem is None:
                await self._over.wait()
                if self._resting is not None:
                    renewing = self._resting == "renew"
                    self.recovery.rest()
                    continue
            await self._pause(self.server.retry_on_failure if problem is not None else True)

    async def ready(self) -> None:
        """Wait, bounded, until the present or the next attempt is over; a call does not wait for a timer."""
        self._refuse_if_forbidden()
        self._wanted.set()
        try:
            async with asyncio.timeout(self.server.timeout):
                await asyncio.shield(self._outcome)
        except TimeoutError:
            raise Unavailable(self.server.name, SERVER_DOWN, f"not connected after {self.server.timeout:g} s") from None
        if self.status.state in DOWN:
            self._refuse_if_forbidden()

    def _refuse_if_forbidden(self) -> None:
        left = self._forbidden_for()
        if left > 0:
            reason = (self.status.last_error or "not connected").removeprefix(f"{self.server.name}: ")
            if self.status.state == "needs_auth":
                raise Unavailable(self.server.name, SERVER_DOWN, reason, http_status=401)
            error = Unavailable(self.server.name, SERVER_DOWN, f"{reason}; next try in {max(left, 1):.0f} s")
            if not self.recovery.circuit_open:
                error.retry_after = left  # the server's own wish
            raise error

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        self.set("disconnected", reason)
        self._over.set()

    def rest(self, how: Literal["sleep", "renew"]) -> None:
        """Let the connection go on purpose: until it is wanted again, or to make it anew at once."""
        self._resting = how
        self._over.set()

    def hold_off(self, seconds: float) -> None:
        """The server asked not to be tried for so long (`Retry-After`)."""
        self._retry_after = time.monotonic() + seconds

    def hurry(self) -> None:
        """What the server was waiting for is there: it is tried now, if it pauses."""
        self._no_use_before = 0.0
        self._hurried.set()

    def set(self, state: State, error: str | None = None) -> None:
        if (state, error) != (self.status.state, self.status.last_error):
            failing = error is not None and self.status.last_error is not None
            self.status = Status(state, self.status.since if failing else time.time(), error)
            self._changed()

    # Inside ----------------------------------------------------------------------------------------------------

    async def _attempt(self, renewing: bool) -> str | None:
        if not renewing:  # else nothing is wrong with it
            self.set("connecting", self.status.last_error)
        placed = await self._gate.enter(self._wanted)
        held = asyncio.get_running_loop().call_later(HELD, self._gate.leave) if placed else None
        self.recovery.begin(time.monotonic())
        self._over.clear()
        self._hurried.clear()
        self.needs_auth = False
        try:
            problem = await self._connect()
        finally:
            if held is not None and held.when() > asyncio.get_running_loop().time():
                held.cancel()
                self._gate.leave()
        if problem is None:
            self._hurried.clear()
            self.set("connected")
            self.came.set()
        else:
            self.set("needs_auth" if self.needs_auth else "disconnected", problem)
        self.settled.set()
        self._conclude()
        return problem

    def _conclude(self) -> None:
        """Whoever waits learns how it stands; from here on a caller means the next attempt."""
        self._wanted.clear()
        over, self._outcome = self._outcome, asyncio.get_running_loop().create_future()
        over.set_result(None)

    async def _pause(self, by_itself: bool) -> None:
        now = time.monotonic()
        if self.needs_auth:
            self.recovery.rest()  # it is well
            self._no_use_before = 0.0 if self._hurried.is_set() else now + SIGN_IN
            pause: float | None = SIGN_IN
        else:
            pause = self.recovery.end(now)
        pause = max(pause, self._retry_after - now)
        if not by_itself or not self.server.auto_reconnect:
            pause = None  # only when a call asks for it
        self.next_try = None if pause is None else now + pause
        if pause is not None and self._forbidden_for() > 0:
            self._conclude()  # for a call that came between the loss and this
            await self._wait(pause, self._hurried)
        else:
            await self._wait(pause, self._hurried, self._wanted)
        self.next_try = None

    async def _wait(self, seconds: float | None, *signs: asyncio.Event) -> None:
        """For so long, or until there is one of these."""
        waits = [asyncio.ensure_future(sign.wait()) for sign in signs]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _forbidden_for(self) -> float:
        """Seconds for which not even a call may start an attempt: an open circuit, the server's own wish, or somebody
        has to sign in first."""
        now = time.monotonic()
        wish = max(self._retry_after, self._no_use_before) - now
        if self.recovery.circuit_open and self.next_try is not None:
            return max(self.next_try - now, wish)
        return wish
