"""What of the guard would not do what its writer believes is told, by `load` or by `mcpx check`
(CFG-8, SEC-1)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpx.config import Config, load
from mcpx.config.guard_checks import missing

Loaded = Callable[..., Config]
Refused = Callable[..., str]

STDIO = "mcp_servers: [{name: a, connection: {type: stdio, command: x}}]\n"
TOKEN = "{name: ann, token: 0123456789abcdef}"
AUTH = f"server: {{auth: {{tokens: [{TOKEN}]}}}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiles: [{name: p, tokens: [ann]}]", "over HTTP nobody is let in to profile 'p'"),
        ("profiles: [{name: p, servers: []}]", "profile 'p' shows nothing"),
        (
            "profiles: [{name: p, tools: [], prompts: [], resources: []}]",
            "profile 'p' shows nothing",
        ),
        ("profiles: [{name: p, resources: [readme]}]", "'readme' is no URI"),
        ("policy: {default: deny}", "the policy hides everything"),
        (
            "policy: {default: deny, rules: [{effect: deny, servers: [a], reason: x}]}",
            "the policy hides everything",
        ),
        ("server: {limits: {queue: 5}}", "'queue' of server.limits has no effect"),
        ("profiles: [{name: p, limits: {queue: 5}}]", "'queue' of the limits of 'p' has no effect"),
        (
            "server: {auth: {tokens: [{name: a, token: t, expires: 2020-01-01}]}}",
            "'a' is over since 2020-01-01",
        ),
        ("server: {trusted_proxies: ['::/0']}", "anybody may say which address they come from"),
        (
            "policy: {rules: [{effect: deny}, {effect: allow, servers: [a]}]}",
            "rule 1 holds for every call",
        ),
        (
            "policy: {rules: [{effect: deny, servers: [a]}, {effect: ask, servers: [a], tools: "
            "[t]}]}",
            "rule 2 of the",
        ),
        (
            "policy: {rules: [{effect: deny, read_only: true, destructive: true}]}",
            "rule 1 of the policy can never",
        ),
    ],
)
def test_what_has_another_effect_than_it_reads_is_warned_about(
    text: str, message: str, loaded: Loaded
) -> None:
    """CFG-8."""
    (warning,) = loaded(STDIO + text).warnings
    assert message in warning


@pytest.mark.parametrize(
    "text",
    [
        f"{AUTH}profiles: [{{name: p, tokens: [ann], tools: []}}]",
        "profiles: [{name: p, resources: ['file:///x', '*'], limits: {in_flight: 1, queue: 0}}]",
        "policy: {default: deny, rules: [{effect: ask, servers: [a]}]}",
        "server: {auth: {tokens: [{name: a, token: t, expires: 2999-01-01}]}, trusted_proxies: "
        "[10.0.0.0/8]}",
        "policy: {rules: [{effect: deny, servers: [a], tools: [t]}, {effect: ask, servers: [a]}]}",
        "policy: {rules: [{effect: deny, arguments: {x: y}}, {effect: ask, arguments: {x: y}}]}",
        "policy: {rules: [{effect: allow}, {effect: deny, servers: [mcpx]}]}",
    ],
)
def test_what_is_as_it_reads_is_not(text: str, loaded: Loaded) -> None:
    assert loaded(STDIO + text).warnings == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("profiles: [{name: p, tools: [' fs_*']}]", "a pattern with spaces around it"),
        ("profiles: [{name: p, tools: ['! fs_*']}]", "a pattern with spaces around it"),
        ("policy: {rules: [{effect: deny, tools: ['fs_* ']}]}", "a pattern with spaces around it"),
        ("server: {auth: {tokens: [{name: a, token: 'Bearer abcdef'}]}}", "without 'Bearer'"),
        ("server: {auth: {tokens: [{name: a, token: ' abc'}]}}", "a token has no spaces"),
        ("global: {audit: true}", "write {} to have it as it comes"),
        ("server: {auth: bearer}", "write {type: …}"),
        ("server: {limits: {each_second: 5}}", "known: in_flight, per_minute, queue, sessions"),
    ],
)
def test_what_could_never_work_is_a_mistake(text: str, message: str, refused: Refused) -> None:
    """CFG-4."""
    said = refused(STDIO + text)
    assert message in said and "abcdef" not in said


def test_an_encrypted_token_that_cannot_be_read_is_told_once(refused: Refused) -> None:
    """CFG-3: that it is empty as well says nothing."""
    said = refused("server: {auth: {tokens: [{name: a, token: 'enc:v1:abcd'}]}}")
    assert said.count("error:") == 1 and "damaged" in said


def test_the_names_of_a_profiles_tokens_are_no_secrets(loaded: Loaded, folder: Path) -> None:
    """CFG-9."""
    loaded(f"{STDIO}server: {{auth: {{type: bearer}}}}\nprofiles: [{{name: p, tokens: [laptop]}}]")
    (folder / "config.yaml").chmod(0o644)
    config = load(folder / "config.yaml", {})
    assert config.warnings == () and "laptop" not in config.secrets


def test_tokens_that_nobody_made_are_told_by_check(loaded: Loaded) -> None:
    """CFG-8, SEC-1."""
    text = (
        "profiles: [{name: p, tokens: [anne, bob, zoe]}]\npolicy: {rules: [{effect: deny, "
        "principals: [an, 'x*']}]}"
    )
    first, second, third = missing(loaded(AUTH + text), ["bob"], None)
    assert "'anne'" in first and "did you mean 'ann'?" in first
    assert "mcpx token new zoe" in second and "rule 1" in third


def test_a_token_in_the_place_of_its_name_is_not_repeated(loaded: Loaded) -> None:
    """SEC-3."""
    (said,) = missing(loaded(f"{AUTH}profiles: [{{name: p, tokens: [mcpx_canary]}}]"), [], None)
    assert "canary" not in said and "names" in said


def test_a_short_token_and_a_port_of_grpc_are_reported_by_check(loaded: Loaded) -> None:
    """SEC-1."""
    (said,) = missing(loaded("server: {auth: {tokens: [{name: a, token: short}]}}"), [], None)
    assert "guessed" in said and "short'" not in said
    (said,) = missing(loaded("global: {traces: {endpoint: 'http://localhost:4317'}}"), [], None)
    assert "4318" in said
    assert not list(
        missing(loaded("server: {auth: {type: jwt, issuer: 'http://127.0.0.1:9'}}"), [], None)
    )


def test_a_trail_that_cannot_be_written_is_told_by_check(loaded: Loaded, tmp_path: Path) -> None:
    """OBS-1."""
    config = loaded("global: {audit: {}}")
    (tmp_path / "file").touch()
    assert not list(missing(config, [], tmp_path / "made" / "later" / "a.jsonl"))
    (said,) = missing(config, [], tmp_path)
    assert "it is a folder" in said
    (said,) = missing(config, [], tmp_path / "file" / "a.jsonl")
    assert "file is a file" in said
    (said,) = missing(config, [], tmp_path / ("a" * 300))
    assert "name too long" in said
