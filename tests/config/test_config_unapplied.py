"""CFG-1: a key that is accepted and does nothing yet is said aloud, wherever a configuration is loaded."""

from collections.abc import Callable
from dataclasses import fields

import pytest

from mcpx.config import Config, FrontAuth, FrontServer, Global, Server, Token

Loaded = Callable[..., Config]

SAYS = "not applied by this version yet, without effect: "

SERVER = "name: a, connection: {type: stdio, command: x}"

USES = {
    "profiles": "profiles: [{name: p}]",
    "policy": "policy: {rules: [{effect: ask, destructive: true}]}",
    "server.admin_port": "server: {admin_port: 8080}",
    "server.admin_token": "server: {admin_token: '${T}'}",
    "server.allowed_hosts": "server: {allowed_hosts: [tools.example.com]}",
    "server.trusted_proxies": "server: {trusted_proxies: [10.0.0.0/8]}",
    "server.limits": "server: {limits: {sessions: 9}}",
    "server.store": "server: {store: 'redis://h'}",
    "server.drain": "server: {drain: 5}",
    "server.auth.issuer": "server: {auth: {type: jwt, issuer: 'https://i'}}",
    "global.trust": "global: {trust: open}",
    "trust of a": f"mcp_servers: [{{{SERVER}, trust: pin}}]",
    "limits of a": f"mcp_servers: [{{{SERVER}, limits: {{in_flight: 1}}}}]",
    "expires of token t": "server: {auth: {tokens: [{name: t, token: t, expires: 2027-01-31}]}}",
}


@pytest.mark.parametrize("key", USES)
def test_a_key_without_effect_is_named(key: str, loaded: Loaded) -> None:
    """Also where it says what is the default anyway."""
    assert loaded(USES[key], T="t").warnings == (SAYS + key,)


def test_all_keys_without_effect_are_one_warning(loaded: Loaded) -> None:
    config = loaded(
        "server: {admin_port: 1}\nmcp_servers:\n"
        f"  - {{{SERVER}, trust: pin, limits: {{queue: 1}}}}\n"
        "  - {name: b, connection: {type: stdio, command: x}, trust: pin}\n",
    )
    assert config.warnings == (f"{SAYS}server.admin_port; trust of a, b; limits of a",)


def test_every_key_that_is_marked_has_a_test_here() -> None:
    sections = [("", Config), ("server.", FrontServer), ("server.auth.", FrontAuth), ("global.", Global)]
    sections += [("", Server), ("", Token)]
    marked = {f"{where}{f.name}" for where, s in sections for f in fields(s) if not f.metadata.get("applied", True)}
    beside = {"server.auth.audience", "server.auth.jwks_url", "profile"}  # they need another key beside them
    assert marked == {key.partition(" of ")[0] for key in USES} | beside


@pytest.mark.parametrize(
    "text",
    [
        "mode: direct",
        "policy: {}\nprofiles:\nserver: {admin_token: }",
        "profiles: []",
        f"mcp_servers: [{{{SERVER}, enabled: false, trust: pin}}]",
    ],
)
def test_what_says_nothing_or_is_switched_off_is_not_warned_of(text: str, loaded: Loaded) -> None:
    assert loaded(text).warnings == ()


def test_a_server_of_any_shape_is_warned_of(loaded: Loaded) -> None:
    assert loaded("mcpServers: {a: {command: x, limits: {queue: 1}}}").warnings == (f"{SAYS}limits of a",)
    assert loaded("mcp_servers: [{name: a, command: x, trust: pin}]").warnings == (f"{SAYS}trust of a",)
