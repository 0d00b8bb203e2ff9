"""One peer, whatever it sends, takes its turn like everybody else (SRC-8, SEC-6)."""

from typing import Any

import pytest

from attacks.harness import LASTING, Hostile, Siege
from behaviour.raw import Session


def begin(siege: Siege, tool: str, **arguments: Any) -> None:
    """A call that starts something at a hostile server and is answered at once."""
    reply = Session(siege.port).call(tool, **arguments)
    assert "result" in reply, reply


@pytest.mark.parametrize("what", ["newlines", "comments", "empty events", "tiny chunks"])
def test_noise_down_the_stream_of_an_http_server_slows_nobody_else(what: str) -> None:
    """SRC-8, SEC-6: an HTTP server that pours nothing but noise down its GET stream."""
    with Hostile() as hostile, Siege([hostile.server("bad")]) as siege:
        siege.stays_fair(lambda: begin(siege, "bad_pour", where="stream", what=what, seconds=LASTING))
