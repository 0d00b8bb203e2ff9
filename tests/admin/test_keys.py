"""ADM-6: what lets in, for how long, and how often one may guess; by a clock that the test
turns."""

import asyncio

import pytest

from kit.clock import Clock
from mcpx.admin.keys import (
    IDLE,
    MOST_ADDRESSES,
    MOST_PASSES,
    MOST_SESSIONS,
    PASS_LIFE,
    Attempts,
    Keys,
    Passes,
    Sessions,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_session_ends_after_twelve_hours_without_a_request(clock: Clock) -> None:
    sessions = Sessions(clock)
    session = sessions.begin_with_token("token")
    for _ in range(5):
        clock.advance(IDLE - 1)
        assert sessions.find_with_token(b"token") is session
    clock.advance(IDLE + 1)
    assert sessions.find_with_token(b"token") is None and len(sessions) == 0


def test_a_session_that_is_being_answered_is_not_left_alone(clock: Clock) -> None:
    sessions = Sessions(clock)
    session = sessions.begin_with_token("token")
    session.open.add(asyncio.Event())
    clock.advance(2 * IDLE)
    assert sessions.find_with_token(b"token") is session


def test_the_session_that_was_left_alone_for_longest_makes_room(clock: Clock) -> None:
    sessions = Sessions(clock)
    begun = [sessions.begin_with_token(f"token-{number}") for number in range(MOST_SESSIONS)]
    running = asyncio.Event()
    begun[1].open.add(running)
    assert sessions.find_with_token(b"token-0") is begun[0]
    sessions.begin_in_browser()
    assert len(sessions) == MOST_SESSIONS
    assert sessions.find_with_token(b"token-0") is begun[0]
    assert sessions.find_with_token(b"token-1") is None and running.is_set()


def test_a_browser_session_needs_both_credentials(clock: Clock) -> None:
    sessions = Sessions(clock)
    id, secret = (part.encode() for part in sessions.begin_in_browser())
    _, another = (part.encode() for part in sessions.begin_in_browser())
    assert sessions.find_in_browser(id, secret) is not None
    for wrong in ((id, another), (id, b""), (b"", secret), (secret, id), (id, id)):
        assert sessions.find_in_browser(*wrong) is None
    assert sessions.find_with_token(id) is None and sessions.find_with_token(secret) is None


def test_a_pass_is_good_once_and_for_ten_minutes(clock: Clock) -> None:
    passes = Passes(clock)
    first, second = passes.make(), passes.make()
    assert passes.spend(first.encode()) and not passes.spend(first.encode())
    clock.advance(PASS_LIFE + 1)
    assert not passes.spend(second.encode())


def test_only_so_many_passes_are_kept(clock: Clock) -> None:
    passes = Passes(clock)
    made = [passes.make() for _ in range(MOST_PASSES + 1)]
    assert [passes.spend(each.encode()) for each in made] == [False] + [True] * MOST_PASSES


def test_nothing_that_lets_in_is_kept_as_it_is(clock: Clock) -> None:
    async def held() -> tuple[str, str]:
        keys = Keys("the-token-of-it", clock)
        secret = "the-token-of-it", *keys.sessions.begin_in_browser(), keys.passes.make()
        everything = repr(
            [vars(part) for part in (keys, keys.sessions, keys.passes, keys.attempts)]
        )
        return everything, "|".join(secret)

    everything, secret = asyncio.run(held())
    assert [each for each in secret.split("|") if each in everything] == []


def test_guesses_of_one_address_do_not_hold_up_another(clock: Clock) -> None:
    attempts = Attempts(clock)
    for _ in range(10):
        attempts.wrong("10.0.0.1")
    assert 0 < attempts.wait("10.0.0.1") <= 6
    assert attempts.wait("10.0.0.2") == 0
    clock.advance(6)
    assert attempts.wait("10.0.0.1") == 0


def test_an_address_of_a_network_is_as_good_as_another(clock: Clock) -> None:
    """Whoever has IPv6 has a whole network of them; and an IPv4 address has two spellings."""
    attempts = Attempts(clock)
    for number in range(5):
        attempts.wrong(f"2001:db8::{number}")
        attempts.wrong("::ffff:10.0.0.1")
        attempts.wrong(f"2001:db8::1:{number}%eth0")
    assert attempts.wait("2001:db8::beef") > 0
    assert attempts.wait("2001:db8:1::1") == 0


def test_guesses_from_everywhere_hold_up_whoever_was_never_right(clock: Clock) -> None:
    attempts = Attempts(clock)
    attempts.right("10.0.0.1")
    for number in range(3 * MOST_ADDRESSES):
        attempts.wrong(f"10.1.{number // 250}.{number % 250}")
    assert attempts.wait("10.9.9.9") > 0
    assert attempts.wait("10.0.0.1") == 0
    assert len(vars(attempts)["_each"]) == MOST_ADDRESSES


def test_the_same_token_again_ends_nothing(clock: Clock) -> None:
    async def work() -> tuple[tuple[int, bool], bool, int]:
        keys = Keys("a", clock)
        keys.sessions.begin_in_browser()
        running = asyncio.Event()
        keys.by_token.open.add(running)
        keys.take_up("a")
        kept = len(keys.sessions), running.is_set()
        keys.take_up("b")
        return kept, running.is_set(), len(keys.sessions)

    assert asyncio.run(work()) == ((1, False), True, 0)


def test_a_token_that_was_generated_is_kept_over_reloads(clock: Clock) -> None:
    async def work() -> int:
        keys = Keys(None, clock)
        keys.sessions.begin_in_browser()
        keys.take_up(None)
        return len(keys.sessions)

    assert asyncio.run(work()) == 1
