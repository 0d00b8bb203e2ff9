"""CFG-4: keys are case-sensitive. A key in wrong case would be ignored without a message."""

from collections.abc import Callable

import pytest

SERVER = "mcp_servers: [{name: one, command: npx%s}]\n"


@pytest.mark.parametrize(
    ("text", "key", "meant"),
    [
        (SERVER % ", Timeout: 5", "Timeout", "timeout"),
        (SERVER % ", ENABLED: false", "ENABLED", "enabled"),
        ("Policy: {default: deny}\n", "Policy", "policy"),
        ("server: {auth: {type: bearer, Tokens: []}}\n", "Tokens", "tokens"),
        ("policy: {Default: deny}\n", "Default", "default"),
    ],
)
def test_a_key_in_wrong_case_is_an_unknown_key(
    refused: Callable[..., str], text: str, key: str, meant: str
) -> None:
    """CFG-4"""
    told = refused(text)
    assert f"unknown key '{key}'" in told and f"did you mean '{meant}'?" in told
