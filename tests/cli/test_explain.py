"""SEC-6, RUN-2: `mcpx explain` knows which tokens come to a profile at all."""

import json
import subprocess
from pathlib import Path

import pytest

from kit.command import mcpx

CONFIG = {
    "server": {
        "auth": {
            "tokens": [
                {"name": "ann", "token": "t", "profile": "team"},
                {"name": "bob", "token": "u"},
            ]
        }
    },
    "profiles": [{"name": "team", "tokens": []}, {"name": "all"}],
    "commands": [{"name": "look", "type": "http", "http": {"url": "https://api.example/"}}],
}


def explain(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    file = folder / "config.json"
    file.write_text(json.dumps(CONFIG))
    file.chmod(0o600)
    return mcpx(folder, "explain", *words)


@pytest.mark.parametrize(
    ("profile", "principal", "why"),
    [
        ("all", "ann", "'ann' never comes there: it has team"),
        ("-", "ann", "'ann' never comes there: it has team, the first of them at /mcp"),
        ("team", "bob", "'bob' never comes there: the profile has other tokens"),
        ("all", "zoe", "there is no token 'zoe'"),
    ],
)
def test_who_never_comes_to_a_profile_is_told_so(
    tmp_path: Path, profile: str, principal: str, why: str
) -> None:
    told = explain(tmp_path, profile, "look", "--principal", principal)
    assert told.returncode == 6 and why in told.stdout, told.stderr


@pytest.mark.parametrize(
    ("profile", "principal"), [("team", "ann"), ("all", "bob"), ("-", "bob"), ("all", "anonymous")]
)
def test_who_does_is_judged_by_the_rules(tmp_path: Path, profile: str, principal: str) -> None:
    told = explain(tmp_path, profile, "look", "--principal", principal, "--json")
    assert told.returncode == 0 and "outside" not in json.loads(told.stdout), told.stderr
