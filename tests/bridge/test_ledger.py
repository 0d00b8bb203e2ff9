"""SCA-1: which requests a bridge sends again when the gateway that had them has ended."""

import socket

import pytest

from mcpx.bridge.ledger import Ledger
from mcpx.bridge.link import Link


@pytest.mark.parametrize(
    ("method", "repeated"),
    [
        ("tools/call", False),
        ("shutdown", False),
        ("tools/list", True),
        ("resources/read", True),
        ("ping", True),
    ],
)
def test_a_request_that_may_have_had_an_effect_is_not_sent_again(
    method: str, repeated: bool
) -> None:
    """SCA-1: a call that was not sent has had no effect, so the next gateway gets it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link, ledger = Link(ours, 1, lambda link, raw: None), Ledger()
        raw = b'{"jsonrpc":"2.0","id":1}'
        entry = ledger.begin(1, method, {"method": method}, raw)
        assert entry.text() == (raw if repeated else None)
        entry.link, entry.end = link, link.say(raw)
        assert entry.text() == raw, "it is not sent yet"
        assert link.flush() and theirs.recv(100) == raw + b"\n"
        assert entry.text() == (raw if repeated else None)
