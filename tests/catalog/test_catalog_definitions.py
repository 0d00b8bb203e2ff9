"""What clients are shown of a definition: the server's own, with our two fields put in and junk
left out."""

import copy
from typing import Any

import pytest

from mcpx.catalog.catalog import Catalog, Source
from mcpx.catalog.naming import Naming, wrap_uri
from mcpx.model.offer import KINDS, Kind


def only(catalog: Catalog, kind: Kind) -> dict[str, Any]:
    (offer,) = catalog.offers[kind]
    return offer.definition


def test_a_tool_keeps_every_field_and_says_where_it_comes_from() -> None:
    """SUR-1, NAM-3"""
    raw = {
        "name": "x",
        "inputSchema": {"type": "object", "$defs": {}},
        "x-new": [1, {"y": None}],
        "_meta": {"vendor": {"k": 1}, "proxy": "forged"},
    }
    kept = copy.deepcopy(raw)
    shown = only(Catalog.build([Source("s", "p", {"tools": [raw]})], Naming()), "tools")
    assert shown == {
        **kept,
        "name": "p_x",
        "_meta": {"vendor": {"k": 1}, "proxy": {"server": "s", "name": "x"}},
    }
    assert raw == kept, "what the server sent is not ours to change"
    assert shown["inputSchema"] is raw["inputSchema"]
    assert list(shown) == list(raw), "also the order of the fields stays"


@pytest.mark.parametrize("meta", [None, [], "text", 3, [{"a": 1}]])
def test_a_meta_that_is_no_object_is_replaced(meta: Any) -> None:
    """NAM-3"""
    source = Source("s", None, {"prompts": [{"name": "x", "_meta": meta}]})
    assert only(Catalog.build([source], Naming()), "prompts")["_meta"] == {
        "proxy": {"server": "s", "name": "x"}
    }


def test_a_local_command_carries_no_origin() -> None:
    """NAM-3, SRC-6"""
    source = Source(
        "local", None, {"tools": [{"name": "x", "_meta": {"a": 1}}, {"name": "y"}]}, local=True
    )
    first, second = (
        offer.definition for offer in Catalog.build([source], Naming()).offers["tools"]
    )
    assert first == {"name": "x", "_meta": {"a": 1}}
    assert second == {"name": "y"}


@pytest.mark.parametrize("uris", ["wrapped", "plain"])
def test_resources_are_wrapped_or_plain_and_templates_never_wrapped(uris: Any) -> None:
    """NAM-3, NAM-4"""
    definitions: dict[Kind, list[dict[str, Any]]] = {
        "resources": [{"uri": "file:///a", "name": "A", "size": 3}],
        "templates": [{"uriTemplate": "file:///{x}", "name": "T"}],
    }
    catalog = Catalog.build([Source("s", "p", definitions)], Naming(uris=uris))
    assert only(catalog, "resources") == {
        "uri": wrap_uri("s", "file:///a") if uris == "wrapped" else "file:///a",
        "name": "A",
        "size": 3,
        "_meta": {"proxy": {"server": "s", "originalUri": "file:///a"}},
    }
    assert only(catalog, "templates") == {
        "uriTemplate": "file:///{x}",
        "name": "T",
        "_meta": {"proxy": {"server": "s", "originalUri": "file:///{x}"}},
    }


@pytest.mark.parametrize("kind", KINDS)
def test_junk_is_dropped_alone_and_counted(kind: Kind) -> None:
    """Threats: junk entries"""
    key = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}[kind]
    junk: list[Any] = [None, 1, "x", [], {}, {key: None}, {key: 1}, {key: ""}, {key: ["a"]}]
    entries = [{key: "first"}, *junk, {key: "last"}]
    catalog = Catalog.build([Source("s", None, {kind: entries})], Naming())
    assert [offer.name for offer in catalog.offers[kind]] == ["first", "last"]
    assert len(catalog.warnings) == 1
    assert f"s: {kind} left out" in catalog.warnings[0]
    assert "(9)" in catalog.warnings[0]


def test_an_overlong_name_is_kept_and_an_overlong_uri_is_not() -> None:
    """NAM-5"""
    long = "x" * 100_000
    catalog = Catalog.build(
        [Source("s", None, {"tools": [{"name": long}], "resources": [{"uri": long}]})], Naming()
    )
    assert len(only(catalog, "tools")["name"]) == 64
    assert catalog.offers["tools"][0].name == long
    assert catalog.offers["resources"] == ()


def test_of_a_name_listed_twice_by_one_server_the_first_counts() -> None:
    """Threats: duplicate names"""
    source = Source("s", None, {"tools": [{"name": "x", "n": 1}, {"name": "x", "n": 2}]})
    catalog = Catalog.build([source], Naming())
    assert only(catalog, "tools")["n"] == 1
    assert "listed before" in catalog.warnings[0]


def test_warnings_are_fit_for_a_log_whatever_a_server_calls_its_things() -> None:
    """Threats: texts of servers come through raw"""
    nasty = "\x1b[31mred\r\nfake line\u202e" + "x" * 10_000
    sources = [Source(name, None, {"tools": [{"name": nasty}] * 2}) for name in ("a", "b")]
    for line in Catalog.build(sources, Naming(), {}).warnings:
        assert line.isprintable()
        assert len(line) < 500


def test_counts_are_per_server_and_kind() -> None:
    """LIF-4: counts tell the truth"""
    junk: Any = None
    a = Source(
        "a", None, {"tools": [{"name": "x"}, {"name": "y"}, junk], "resources": [{"uri": "r"}]}
    )
    catalog = Catalog.build([a, Source("b", None, {})], Naming())
    assert [catalog.count("a", kind) for kind in KINDS] == [2, 0, 1, 0]
    assert catalog.count("b", "tools") == catalog.count("nobody", "tools") == 0
