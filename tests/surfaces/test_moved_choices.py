"""SUR-5: what `auto` chose for a session goes with it to another replica."""

from mcpx.surfaces.surface import Choice, Lasting

SEARCH = Choice("some client", "search", "a reason")


def test_the_choice_of_a_session_is_taken_along() -> None:
    """SUR-5, SCA-1: and nothing else that somebody may have put there."""
    here, there = Lasting(), Lasting()
    assert here.choice_of("session") is None
    here.choices["session"] = SEARCH
    taken = here.choice_of("session")
    assert taken is not None
    there.take_choice("session", taken)
    assert there.choices.get("session") == SEARCH
    for odd in ({}, {"mode": "search"}, {**taken, "mode": 7}, {**taken, "mode": "no such mode"}):
        there.take_choice("other", odd)
    assert there.choices.get("other") is None
