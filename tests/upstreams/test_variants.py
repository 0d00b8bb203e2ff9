"""Who is offered what, where a server does not offer the same to all."""

from mcpx.model.call import Json
from mcpx.upstreams.variants import Offers, Variants, answers_key


def offers(*tools: str) -> Offers:
    listed: list[Json] = [{"name": name} for name in tools]
    return {"tools": listed, "prompts": [], "resources": [], "templates": []}


ROOTS = {"roots": {}}
COMMON, MORE, OWN = offers("a"), offers("a", "b"), offers("c")


def test_clients_that_can_be_asked_the_same_things_have_one_key() -> None:
    """What else they can do, and in which order they say it, makes no difference."""
    assert answers_key({}) == answers_key({"experimental": {"x": 1}})
    assert answers_key({"sampling": {}, "roots": {}}) == answers_key({"roots": {}, "sampling": {}, "other": 1})
    assert answers_key({"roots": {}}) != answers_key({"roots": {"listChanged": True}})
    assert answers_key({"elicitation": {"form": {}}}) != answers_key({"elicitation": {"url": {}}})


def test_what_all_are_offered_is_no_variant() -> None:
    variants = Variants()
    assert not variants.learn(answers_key(ROOTS), COMMON, COMMON)
    assert not variants
    assert answers_key(ROOTS) in variants.known
    assert variants.find(None, ROOTS) is None


def test_a_variant_is_news_once_and_again_when_it_is_gone() -> None:
    variants, key = Variants(), answers_key(ROOTS)
    assert variants.learn(key, MORE, COMMON)
    assert not variants.learn(key, MORE, COMMON)
    assert variants.find("any session", ROOTS) == MORE
    assert variants.find("any session", {}) is None
    assert variants.learn(key, COMMON, COMMON)
    assert not variants


def test_a_sessions_own_lists_come_before_those_of_its_like() -> None:
    variants = Variants()
    variants.learn(answers_key(ROOTS), MORE, COMMON)
    variants.learn_session("one", OWN)
    assert variants.find("one", ROOTS) == OWN
    assert variants.find("two", ROOTS) == MORE
    assert variants.forget_session("one")
    assert not variants.forget_session("one")
    assert variants.find("one", ROOTS) == MORE


def test_a_server_that_was_started_anew_is_asked_again_but_sessions_keep_their_own() -> None:
    """LIF-4."""
    variants = Variants()
    variants.learn(answers_key(ROOTS), MORE, COMMON)
    variants.learn_session("one", OWN)
    variants.forget_answers()
    assert variants.known == set()
    assert variants.find(None, ROOTS) is None
    assert variants.find("one", ROOTS) == OWN
