"""SEC-1: `mcpx token`, as it is typed."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from kit.client import post
from kit.command import run_command
from kit.gateway import Gateway
from kit.messages import initialize_request
from kit.until import wait_until

AUTH = {"type": "bearer", "tokens": [{"name": "fixed", "token": "t"}]}
CONFIG = {"server": {"auth": AUTH}, "profiles": [{"name": "developer"}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mcpx.yaml").write_text(json.dumps({**CONFIG, "mcp_servers": []}), encoding="utf-8")
    (tmp_path / "mcpx.yaml").chmod(0o600)
    return tmp_path


def typed(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "MCPX_STATE_DIR": str(folder / "state"), "HOME": str(folder)}
    return run_command(["token", *words], folder, env)


def test_a_token_is_made_listed_and_revoked(folder: Path) -> None:
    """SEC-1: shown once, alone on standard output."""
    made = typed(folder, "new", "laptop", "--profile", "developer", "--expires", "30d")
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    assert token.startswith("mcpx_") and made.stdout.count("\n") == 1
    table = typed(folder, "list").stdout
    assert table.splitlines()[0].split() == ["NAME", "PROFILE", "CREATED", "EXPIRES"]
    assert table.splitlines()[1].split()[:2] == ["laptop", "developer"]
    (listed,) = json.loads(typed(folder, "list", "--json").stdout)["tokens"]
    assert (listed["name"], listed["profile"], listed["expired"]) == ("laptop", "developer", False)
    assert token not in table
    assert typed(folder, "revoke", "laptop").returncode == 0
    assert typed(folder, "revoke", "laptop").returncode == 2
    assert json.loads(typed(folder, "list", "--json").stdout) == {"tokens": []}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["new"], "say: mcpx token new NAME [CONFIG]"),
        (["new", "a", "mcpx.yaml", "more"], "say: mcpx token new NAME [CONFIG]"),
        (["list", "a"], "say: mcpx token list"),
        (["new", "fixed"], "names a token 'fixed' already"),
        (
            ["new", "a", "--profile", "developers"],
            "no profile named 'developers'; did you mean 'developer'?",
        ),
        (["new", "a", "--expires", "tomorrow"], "is not understood"),
        (["new", "a", "--expires", "2020-01-31"], "is over already"),
        (["new", "a", "--expires", "9999999999d"], "is not understood"),
        (["new", " a"], "not a possible name"),
        (["new", "a", "none.yaml"], "none.yaml"),
        (["revoke", "nobody"], "no kept token named 'nobody'"),
    ],
)
def test_mistakes_are_told_and_nothing_is_made(folder: Path, words: list[str], said: str) -> None:
    found = typed(folder, *words)
    assert (found.returncode, found.stdout) == (2, "")
    assert said in found.stderr and "Traceback" not in found.stderr
    assert not (folder / "state" / "tokens" / "tokens.json").exists()


def test_a_broken_config_keeps_nobody_from_revoking(folder: Path) -> None:
    assert typed(folder, "new", "laptop").returncode == 0
    assert typed(folder, "new", "laptop").returncode == 2
    (folder / "mcpx.yaml").write_text("server: [", encoding="utf-8")
    assert typed(folder, "new", "other", "mcpx.yaml").returncode == 2
    assert typed(folder, "list").returncode == 0
    assert typed(folder, "revoke", "laptop").returncode == 0


def test_a_running_gateway_takes_what_was_made_and_drops_what_was_revoked() -> None:
    """SEC-1: without being told."""
    with Gateway({"server": {"auth": {"type": "bearer"}}, "mcp_servers": []}) as gateway:
        assert "mcpx token new NAME" in gateway.stderr()
        token = typed(gateway.folder, "new", "laptop").stdout.strip()
        shown = {"Authorization": f"Bearer {token}"}
        wait_until(lambda: post(gateway.port, initialize_request(), shown).status == 200)
        assert typed(gateway.folder, "revoke", "laptop").returncode == 0
        wait_until(lambda: post(gateway.port, initialize_request(), shown).status == 401)
        assert token not in gateway.stderr()


def test_programs_get_what_was_made_and_revoked_as_json(folder: Path) -> None:
    """RUN-2."""
    made = json.loads(typed(folder, "new", "laptop", "--profile", "developer", "--json").stdout)
    assert made.pop("token").startswith("mcpx_")
    assert made == {"name": "laptop", "profile": "developer", "expires": None}
    assert json.loads(typed(folder, "revoke", "laptop", "--json").stdout) == {"revoked": "laptop"}
