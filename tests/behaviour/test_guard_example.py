"""CFG-8, SEC-1: the example of a guarded gateway is right as it stands, and has every key of the
guard."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from kit.process import START
from mcpx.config import load
from mcpx.config.schema import Profile
from mcpx.config.sections import Audit, FrontAuth, FrontLimits, Policy, PolicyRule, Token, Traces

EXAMPLE = Path(__file__).parents[2] / "examples" / "guard.yaml"
TEXT = EXAMPLE.read_text(encoding="utf-8")
NAMED = {
    name: f"{name.lower()}-0123456789abcdef"
    for name in re.findall(r"[A-Z][A-Z_]+_TOKEN", TEXT.partition("\n\n")[0])
}


def check(folder: Path, text: str) -> "subprocess.CompletedProcess[str]":
    """With nothing but what the example says it needs."""
    (folder / "mcpx.yaml").write_text(text, encoding="utf-8")
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **NAMED}
    command = [sys.executable, "-m", "mcpx", "check"]
    return subprocess.run(
        command,
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=START,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_the_example_is_good_with_the_variables_that_it_names(tmp_path: Path) -> None:
    told = check(tmp_path, TEXT)
    assert told.returncode == 0 and "good" in told.stdout, told.stderr
    odd = [
        line for line in told.stderr.splitlines() if "npx" not in line
    ]  # it need not be installed
    assert odd == []


def test_what_it_has_as_an_alternative_is_good_too(tmp_path: Path) -> None:
    """Signed tokens, traces and the trail's file, with their comment signs taken off."""
    tokens = re.compile(r"    type: bearer.*?(?=    # Instead)", re.S)
    text = tokens.sub("", TEXT)
    for key in ("type: jwt", "issuer", "audience", "jwks_url", "scopes", "file: audit"):
        text = re.sub(rf"(?m)^( *)# ({key})", r"\1\2", text)
    text = re.sub(r"(?m)^  # (traces:|  endpoint|  sample)", r"  \1", text).replace(
        "tokens: [ci]", "read_only: true"
    )
    told = check(tmp_path, text)
    assert told.returncode == 0, told.stderr
    config = yaml.safe_load(text)
    assert config["server"]["auth"]["type"] == "jwt" and "traces" in config["global"]


@pytest.mark.parametrize(
    "section", [Profile, Token, FrontAuth, FrontLimits, Policy, PolicyRule, Audit, Traces]
)
def test_every_key_of_the_guard_is_in_it(section: type) -> None:
    missing = [field.name for field in fields(section) if not re.search(rf"\b{field.name}:", TEXT)]
    assert missing == []


def test_its_views_and_rules_are_those_that_its_comments_tell(tmp_path: Path) -> None:
    (tmp_path / "mcpx.yaml").write_text(TEXT, encoding="utf-8")
    config = load(tmp_path / "mcpx.yaml", NAMED)
    assert [profile.name for profile in config.profiles] == ["readers", "team"]
    assert [server.trust for server in config.mcp_servers] == ["pin", "quarantine"]
    assert [rule.effect for rule in config.policy.rules] == ["deny", "deny", "ask", "allow", "ask"]
