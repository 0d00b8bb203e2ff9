"""Public URIs of app pages, the way back to their servers, and catalogs without tools that only
apps use."""

from typing import Any, Literal

import pytest

from mcpx.base.aio import at_once
from mcpx.catalog.apps import (
    is_app_only,
    page_label,
    public_page,
    result_with_public_pages,
    split_page,
)
from mcpx.catalog.catalog import Catalog, Source
from mcpx.catalog.naming import Naming
from mcpx.catalog.narrowed import Narrowed
from mcpx.model.call import Json
from mcpx.model.offer import Offer

PAGE = "ui://clock/app.html"


def serving(
    server: str, *uris: str, templates: tuple[str, ...] = (), tools: tuple[Json, ...] = ()
) -> Source:
    return Source(
        server,
        server,
        {
            "resources": [{"uri": uri, "name": uri} for uri in uris],
            "templates": [{"uriTemplate": template, "name": template} for template in templates],
            "tools": tools,
        },
    )


def tool(name: str, **ui: Any) -> Json:
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": {"ui": ui}}


@pytest.mark.parametrize(
    ("server", "label"),
    [
        ("time", "time"),
        ("my.server_2-x", "my.server_2-x"),
        ("Time", "time-33b934"),
        ("a/b c", "a-b-c-0af99a"),
        ("日志", "7dbac1"),
        ("x" * 64, "x" * 50 + "-7ce100"),
    ],
)
def test_a_label_is_a_lower_case_host_name(server: str, label: str) -> None:
    assert page_label(server) == label
    assert split_page(public_page(server, PAGE)) == (label, PAGE)


@pytest.mark.parametrize(
    "uri", ["ui://", "ui:///", "ui://clock", "ui://clock/", "ui:clock/app", "https://clock/app"]
)
def test_a_uri_without_label_and_page_resolves_to_no_server(uri: str) -> None:
    assert Catalog.build([serving("clock")], Naming()).resolve_uri(uri) is None


@pytest.mark.parametrize("uris", ["wrapped", "plain"])
@pytest.mark.parametrize("order", [("good", "evil"), ("evil", "good")])
def test_a_server_cannot_take_the_page_of_another(
    uris: Literal["wrapped", "plain"], order: tuple[str, str]
) -> None:
    """NAM-4, EXT-1: not by listing the same URI, the public one, or a template that matches
    both."""
    public = public_page("good", PAGE)
    sources = {
        "good": serving("good", PAGE),
        "evil": serving(
            "evil", PAGE, public, "ui://good/unlisted", templates=("{+all}", "ui://{+all}")
        ),
    }
    catalog = Catalog.build([sources[name] for name in order], Naming(uris=uris))
    assert catalog.resolve_uri(public) == ("good", PAGE)
    assert catalog.resolve_uri("ui://good/unlisted") == ("good", "ui://unlisted")
    assert catalog.resolve_uri(public_page("evil", PAGE)) == ("evil", PAGE)
    assert catalog.resolve_uri(PAGE) is None
    assert len(catalog.offers["resources"]) == 4


def test_the_uri_of_the_server_is_read_if_one_server_has_it() -> None:
    """NAM-4: listed, given by a template, or beginning with the server's own name."""
    sources = [
        serving("a", "ui://x/1", "ui://a/2"),
        serving("b", "ui://y/1", templates=("ui://t/{id}",)),
    ]
    catalog = Catalog.build(sources, Naming())
    assert catalog.resolve_uri("ui://x/1") == ("a", "ui://x/1")
    assert catalog.resolve_uri("ui://a/2") == ("a", "ui://a/2")
    assert catalog.resolve_uri("ui://t/7") == ("b", "ui://t/7")
    assert catalog.resolve_uri("ui://z/1") is None


def test_only_pages_are_rewritten() -> None:
    """PRO-6: other values and unknown fields pass unchanged, and the given objects are not
    changed."""
    meta: Json = {
        "ui": {"resourceUri": "https://example.com", "x": 1},
        "ui/resourceUri": 7,
        "openai/outputTemplate": PAGE,
    }
    result: Json = {
        "_meta": meta,
        "content": [1, {"type": "text", "text": PAGE}, {"_meta": {"ui/resourceUri": PAGE}}],
    }
    public = public_page("a", PAGE)
    assert result_with_public_pages("a", result) == {
        "_meta": {**meta, "openai/outputTemplate": public},
        "content": [1, {"type": "text", "text": PAGE}, {"_meta": {"ui/resourceUri": public}}],
    }
    assert meta["openai/outputTemplate"] == PAGE
    plain: Json = {"content": [{"type": "text", "text": PAGE}]}
    assert result_with_public_pages("a", plain) is plain


@pytest.mark.parametrize(
    ("visibility", "hidden"),
    [(["app"], True), ([], True), (["model", "app"], False), (["model"], False), ("app", False)],
)
def test_a_tool_is_for_apps_only_if_its_visibility_lacks_the_model(
    visibility: object, hidden: bool
) -> None:
    assert is_app_only(tool("t", visibility=visibility)) is hidden
    assert not is_app_only({"name": "t", "_meta": {"ui": None}})


class _Sight:
    """Sees all but one server."""

    picks = False

    def __init__(self, hidden: str) -> None:
        self._hidden = hidden

    def server(self, name: str) -> bool:
        return name != self._hidden

    def offer(self, offer: Offer) -> bool:
        return offer.server != self._hidden

    def resource(self, server: str, uri: str) -> bool:
        return server != self._hidden


def test_models_see_no_tools_for_apps() -> None:
    """EXT-1: in the whole catalog and in what a profile shows of it."""
    sources = [
        serving(name, tools=(tool("show"), tool("refresh", visibility=["app"])))
        for name in ("a", "b")
    ]
    whole = Catalog.build(sources, Naming())
    narrowed = at_once(Narrowed.narrowing(whole, _Sight("a")))
    for catalog, names in ((whole, ["a_show", "b_show"]), (narrowed, ["b_show"])):
        seen = catalog.for_models
        assert [offer.public for offer in seen.offers["tools"]] == names
        assert seen.find("tools", "b_refresh") is None
        assert seen.native("tools", "b", "refresh") is None
        assert [offer.public for offer in seen.tools_named("refresh")] == []
        assert not seen.index.search("refresh").hits
        assert seen is catalog.for_models is seen.for_models
        assert seen.whole is whole
    bare = Catalog.build([serving("a", tools=(tool("show"),))], Naming())
    assert bare.for_models is bare
