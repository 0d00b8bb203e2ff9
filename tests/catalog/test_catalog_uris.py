"""From a URI in any form back to the server that answers for it."""

import base64
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.cost import count_steps
from mcpx.catalog.catalog import Catalog, Source
from mcpx.catalog.naming import Naming, wrap_uri

# How long a busy machine takes says nothing here.
calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

MODES: tuple[Literal["wrapped", "plain"], ...] = ("wrapped", "plain")
both_modes = pytest.mark.parametrize("uris", MODES)


def serving(server: str, *uris: str, templates: tuple[str, ...] = ()) -> Source:
    return Source(
        server,
        None,
        {
            "resources": [{"uri": uri, "name": uri} for uri in uris],
            "templates": [{"uriTemplate": template, "name": template} for template in templates],
        },
    )


@both_modes
def test_a_read_takes_the_wrapped_form_the_plain_one_and_an_expansion(uris: Any) -> None:
    """NAM-4"""
    catalog = Catalog.build(
        [serving("a", "file:///1", templates=("user://{id}",)), serving("b")], Naming(uris=uris)
    )
    assert catalog.resolve_uri("file:///1") == ("a", "file:///1")
    assert catalog.resolve_uri(wrap_uri("a", "file:///1")) == ("a", "file:///1")
    assert catalog.resolve_uri(wrap_uri("b", "not://listed")) == ("b", "not://listed")
    assert catalog.resolve_uri("user://7") == ("a", "user://7")
    assert catalog.resolve_uri("user://7/8") is None
    assert catalog.resolve_uri("") is None


@both_modes
def test_a_wrapped_uri_in_the_other_alphabet_is_found_too(uris: Any) -> None:
    """NAM-4"""
    catalog = Catalog.build([serving("a", "x:~~~???")], Naming(uris=uris))
    other = base64.b64encode(b'{"uri":"x:~~~???","server":"a"}').decode()
    assert catalog.resolve_uri("proxy://resource/" + other) == ("a", "x:~~~???")


@both_modes
def test_a_wrapped_uri_of_a_server_that_is_gone_is_nobodys(uris: Any) -> None:
    """NAM-4: not even a template that takes everything gets to see it."""
    catalog = Catalog.build([serving("a", templates=("{+all}",))], Naming(uris=uris))
    assert catalog.resolve_uri(wrap_uri("gone", "file:///1")) is None
    assert catalog.resolve_uri("anything:else") == ("a", "anything:else")


@both_modes
def test_what_two_servers_offer_is_answered_by_the_first_in_the_config(uris: Any) -> None:
    """NAM-4"""
    sources = [serving(name, "file:///1", templates=("t://{x}",)) for name in ("b", "a")]
    catalog = Catalog.build(sources, Naming(uris=uris))
    assert catalog.resolve_uri("file:///1") == ("b", "file:///1")
    assert catalog.resolve_uri("t://1") == ("b", "t://1")
    assert catalog.resolve_uri(wrap_uri("a", "file:///1")) == ("a", "file:///1")
    assert len(catalog.offers["resources"]) == (2 if uris == "wrapped" else 1)
    assert len(catalog.offers["templates"]) == 1
    assert any("'b' offers the same" in line for line in catalog.warnings)


@both_modes
def test_a_listed_resource_goes_before_the_template_of_an_earlier_server(uris: Any) -> None:
    """NAM-4"""
    catalog = Catalog.build(
        [serving("a", templates=("{+all}",)), serving("b", "file:///1")], Naming(uris=uris)
    )
    assert catalog.resolve_uri("file:///1") == ("b", "file:///1")


@both_modes
def test_the_uris_of_a_gateway_behind_us_lead_to_that_gateway(uris: Any) -> None:
    """NAM-4: it wraps like we do, and may have a server of a name that we have too."""
    nested = wrap_uri("git", "file:///1")
    catalog = Catalog.build([serving("inner", nested), serving("git")], Naming(uris=uris))
    assert catalog.resolve_uri(catalog.offers["resources"][0].public) == ("inner", nested)
    foreign = Catalog.build([serving("inner", nested)], Naming(uris=uris))
    assert foreign.resolve_uri(nested) == ("inner", nested)


def test_nobody_takes_over_the_wrapped_uris_of_another_by_listing_them() -> None:
    """NAM-4, threats: names"""
    stolen = wrap_uri("bank", "account://1")
    catalog = Catalog.build([serving("thief", stolen), serving("bank", "account://2")], Naming())
    assert catalog.resolve_uri(stolen) == ("bank", "account://1")


def test_a_public_uri_is_in_the_form_that_is_listed() -> None:
    """NAM-4"""
    wrapped, plain = (Catalog.build([serving("a", "u:1")], Naming(uris=uris)) for uris in MODES)
    assert wrapped.offers["resources"][0].public == wrap_uri("a", "u:1")
    assert plain.offers["resources"][0].public == "u:1"


@calmly
@given(
    st.lists(st.lists(st.text(min_size=1, max_size=5), max_size=4), max_size=3),
    st.sampled_from(MODES),
)
def test_what_is_listed_resolves_to_who_listed_it(uris: list[list[str]], mode: Any) -> None:
    """NAM-4"""
    catalog = Catalog.build(
        [serving(f"s{n}", *found) for n, found in enumerate(uris)], Naming(uris=mode)
    )
    for offer in catalog.offers["resources"]:
        assert catalog.resolve_uri(offer.public) == (offer.server, offer.name)
        assert catalog.resolve_uri(wrap_uri(offer.server, offer.name)) == (offer.server, offer.name)


def test_a_flood_of_hostile_templates_does_not_slow_a_lookup_down() -> None:
    """NAM-4: they stay listed, and a warning says that some are not matched."""

    def flooded(count: int) -> Catalog:
        flood = tuple(f"{{+x}}{'a' * 1_000}{n}" for n in range(count))
        return Catalog.build(
            [serving("bad", templates=flood), serving("good", templates=("{+x}a",))], Naming()
        )

    some, catalog = flooded(100), flooded(5_000)
    assert catalog.resolve_uri("a" * 8_192) == ("good", "a" * 8_192)
    enough = count_steps(
        lambda: some.resolve_uri("a" * 8_192)
    )  # a hundred are more than are matched already
    assert count_steps(lambda: catalog.resolve_uri("a" * 8_192), 2 * enough) <= enough
    assert catalog.resolve_uri("a" * 8_193) is None
    assert catalog.count("bad", "templates") == 5_000
    assert any("never matched" in line for line in catalog.warnings)
