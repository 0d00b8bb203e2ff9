"""CFG-1: a key that is accepted and does nothing yet is said aloud, wherever a configuration is loaded."""

from collections.abc import Callable
from dataclasses import fields

import pytest

from mcpx.config import Config, FrontAuth, FrontServer, Global, Server, Token

Loaded = Callable[..., Config]

SAYS = "not applied by this version yet, without effect: "

USES = {
    "server.store": "server: {store: 'redis://h'}",
    "server.drain": "server: {drain: 5}",
}


@pytest.mark.parametrize("key", USES)
def test_a_key_without_effect_is_named(key: str, loaded: Loaded) -> None:
    """Also where it says what is the default anyway."""
    assert loaded(USES[key], T="t").warnings == (SAYS + key,)


def test_all_keys_without_effect_are_one_warning(loaded: Loaded) -> None:
    assert loaded("server: {store: 'redis://h', drain: 5}").warnings == (f"{SAYS}server.store; server.drain",)


def test_every_key_that_is_marked_has_a_test_here() -> None:
    marked = {f"server.{f.name}" for f in fields(FrontServer) if not f.metadata.get("applied", True)}
    assert marked == set(USES)


def test_no_other_section_has_such_a_key() -> None:
    sections = (Config, FrontAuth, Global, Server, Token)
    assert [f.name for section in sections for f in fields(section) if not f.metadata.get("applied", True)] == []


@pytest.mark.parametrize(
    "text",
    [
        "mode: direct",
        "policy: {}\nprofiles:\nserver: {store: }",
        "profiles: []",
    ],
)
def test_what_says_nothing_or_is_switched_off_is_not_warned_of(text: str, loaded: Loaded) -> None:
    assert loaded(text).warnings == ()
