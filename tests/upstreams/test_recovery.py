"""LIF-4: when a server that went away is tried again; arithmetic over a clock that the test
turns."""

from collections.abc import Callable

import pytest

from mcpx.upstreams import life as module
from mcpx.upstreams.life import BARREN_LIVES, LONGEST_PAUSE, Recovery


@pytest.fixture(autouse=True)
def no_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.random, "uniform", lambda low, high: 1.0)


class RecoverySimulation:
    def __init__(self, **settings: float) -> None:
        self.now = 1000.0
        self.recovery = Recovery(
            settings.get("retry_delay", 1.0), int(settings.get("max_retries", 10))
        )

    def run_connection(
        self, seconds: float = 0.0, *, served: bool = False, after: float | None = None
    ) -> float:
        """Simulate a connection of `seconds` and return the pause after it. `after` replaces that
        pause."""
        self.recovery.begin(self.now)
        self.now += seconds
        if served:
            self.recovery.served()
        pause = self.recovery.end(self.now)
        self.now += pause if after is None else after
        return pause


def test_the_first_restart_after_a_life_that_served_is_immediate_and_the_next_ones_are_not() -> (
    None
):
    """LIF-4: a server that dies with every call does not become a busy loop."""
    simulation = RecoverySimulation()
    assert [simulation.run_connection(1, served=True) for _ in range(4)] == [0, 2, 4, 8]


def test_a_life_that_served_nobody_is_followed_by_a_pause_that_doubles_up_to_a_minute() -> None:
    """LIF-4: `retry_delay` x 2^n."""
    simulation = RecoverySimulation()
    assert [simulation.run_connection() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_the_pause_falls_back_only_after_a_minute_of_life() -> None:
    """LIF-4: a short life, served or not, does not reset it."""
    simulation = RecoverySimulation()
    for _ in range(3):
        simulation.run_connection()
    assert simulation.run_connection(59, served=True) == 8
    assert simulation.run_connection(60, served=True) == 0
    assert simulation.run_connection(60) == 1


def test_after_the_quick_tries_it_is_once_a_minute() -> None:
    """LIF-4: `max_retries`."""
    simulation = RecoverySimulation(max_retries=2)
    assert [simulation.run_connection() for _ in range(4)] == [1, 2, LONGEST_PAUSE, LONGEST_PAUSE]
    assert RecoverySimulation(max_retries=0).run_connection() == LONGEST_PAUSE


def test_five_lives_without_an_answered_call_open_the_circuit_and_one_answer_closes_it() -> None:
    """LIF-4: however long they lasted."""
    simulation = RecoverySimulation()
    for _ in range(BARREN_LIVES - 1):
        simulation.run_connection(100)
    assert not simulation.recovery.circuit_open
    simulation.run_connection()
    assert simulation.recovery.circuit_open
    simulation.recovery.begin(simulation.now)
    assert simulation.recovery.circuit_open, "being up proves nothing yet"
    simulation.recovery.served()
    assert not simulation.recovery.circuit_open


def test_lives_that_calls_began_early_do_not_use_up_the_quick_tries() -> None:
    """LIF-4: calls that come while a server restarts open the circuit, for as long as the pause was
    anyway."""
    simulation = RecoverySimulation(retry_delay=4, max_retries=3)
    assert simulation.run_connection(1, served=True) == 0
    assert simulation.run_connection(after=0.5) == 8
    assert simulation.run_connection(after=0.5) == 7.5
    assert simulation.run_connection(after=1) == 7
    assert simulation.run_connection() == 6
    assert simulation.recovery.failures == 2
    simulation.run_connection()
    assert simulation.recovery.circuit_open
    assert simulation.recovery.failures == 3


def test_an_early_life_that_outlasts_the_pause_counts_like_any_other() -> None:
    """LIF-4."""
    simulation = RecoverySimulation()
    simulation.run_connection(after=0.5)
    assert simulation.run_connection(seconds=5) == 2


def test_an_end_on_purpose_is_neither_a_restart_nor_a_barren_life() -> None:
    """LIF-5: sleep and renewal."""
    recovery = Recovery(1.0, 3)
    for now in range(10):
        recovery.begin(now)
        recovery.rest()
    assert (recovery.restarts, recovery.failures, recovery.barren, recovery.circuit_open) == (
        0,
        0,
        0,
        False,
    )


@pytest.mark.parametrize("edge", [min, max])
def test_the_pause_varies_by_a_quarter_and_never_beyond_a_minute(
    monkeypatch: pytest.MonkeyPatch, edge: Callable[..., float]
) -> None:
    """LIF-4: jitter, so that fifty servers do not come back in step."""
    monkeypatch.setattr(module.random, "uniform", lambda low, high: edge(low, high))
    simulation = RecoverySimulation()
    pauses = [simulation.run_connection() for _ in range(8)]
    assert pauses[0] == edge(0.75, 1.25)
    assert max(pauses) == LONGEST_PAUSE
