"""What clients are told of a server that is of no use now."""

import pytest

from mcpx.surfaces.view import Service


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        ("connected", None, None),
        ("connecting", None, None),
        ("connecting", "s: exited with code 1", "is down"),
        ("disconnected", "s: exited with code 1", "is down"),
        ("needs_auth", "s: wants the gateway to sign in", "needs a sign-in"),
    ],
)
def test_a_server_that_failed_is_down_also_while_it_is_tried_again(
    status: str, error: str | None, told: str | None
) -> None:
    """SUR-4, LIF-4."""
    assert Service("s", "", "", status, error).trouble == told
