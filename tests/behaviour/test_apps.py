"""EXT-1 in its interim form: app pages with the same URI on two servers, and tools that only apps
may use."""

from collections.abc import Iterator

import pytest

from behaviour.compact import MODES, Compact, Json, Visitor, config, text, told
from kit.gateway import Gateway

ERAS = ("older", "modern")
URI = "ui://clock/app.html"
PAGE_TYPE = "text/html;profile=mcp-app"
CSP = {"csp": {"connectDomains": ["https://api.example.com"]}, "prefersBorder": True}
SERVERS = ("first", "Second One")
LABELS = {"first": "first", "Second One": "second-one-414f72"}
EMPTY = {"type": "object", "properties": {}}


def page_of(server: str) -> str:
    return f"<!doctype html><title>{server}</title>"


def offers_of(server: str) -> Json:
    """Two tools with one page, and the page. `zebra_refresh` is for the app only."""
    ui = {"resourceUri": URI, "visibility": ["model", "app"]}
    page = {"uri": URI, "mimeType": PAGE_TYPE}
    return {
        "instructions": f"Clock of {server}.",
        "tools": [
            {
                "name": "show_clock",
                "description": "Shows the clock",
                "inputSchema": EMPTY,
                "_meta": {"ui": ui, "ui/resourceUri": URI, "other": 1},
            },
            {
                "name": "zebra_refresh",
                "description": "Refreshes the zebra clock",
                "inputSchema": EMPTY,
                "_meta": {"ui": {"resourceUri": URI, "visibility": ["app"]}},
            },
        ],
        "answer": {
            "content": [{"type": "text", "text": "12:00", "_meta": {"ui": {"resourceUri": URI}}}],
            "_meta": {"ui": {"resourceUri": URI, **CSP}, "ui/resourceUri": URI},
        },
        "resources": [{**page, "name": "clock", "_meta": {"ui": CSP}}],
        "contents": {URI: [{**page, "text": page_of(server), "_meta": {"ui": CSP}}]},
    }


@pytest.fixture(scope="module", params=["wrapped", "plain"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("apps")
    eras = dict(zip(SERVERS, ERAS, strict=True))
    servers = [
        told(server, folder, offers_of(server), "--era", eras[server], prefix=f"s{place}")
        for place, server in enumerate(SERVERS)
    ]
    profile = {"name": "second", "servers": ["Second One"]}
    with Gateway(config(*servers, profiles=[profile], naming={"uris": request.param})) as gateway:
        yield gateway


@pytest.mark.parametrize("era", ERAS)
def test_tools_of_two_servers_with_one_page_uri_read_their_own_pages(
    gateway: Gateway, era: str
) -> None:
    """EXT-1, NAM-4: both keys of `_meta` lead to the page of the tool's server. Other metadata
    stays."""
    client = Visitor(gateway.port, "direct", era)
    tools = {tool["name"]: tool for tool in client.tools()}
    for place, server in enumerate(SERVERS):
        meta = tools[f"s{place}_show_clock"]["_meta"]
        public = f"ui://{LABELS[server]}/clock/app.html"
        assert meta["ui"] == {"resourceUri": public, "visibility": ["model", "app"]}
        assert meta["ui/resourceUri"] == public
        assert meta["other"] == 1
        (contents,) = client.result("resources/read", {"uri": public})["contents"]
        assert (contents["mimeType"], contents["text"]) == (PAGE_TYPE, page_of(server))
        assert contents["_meta"]["ui"] == CSP


@pytest.mark.parametrize("era", ERAS)
def test_results_name_the_page_of_their_server(gateway: Gateway, era: str) -> None:
    """EXT-1: in `_meta` of the result and of its content."""
    client = Visitor(gateway.port, "direct", era)
    for place, server in enumerate(SERVERS):
        result = client.result("tools/call", {"name": f"s{place}_show_clock", "arguments": {}})
        public = f"ui://{LABELS[server]}/clock/app.html"
        assert result["_meta"]["ui"] == {"resourceUri": public, **CSP}
        assert result["_meta"]["ui/resourceUri"] == public
        assert result["content"][0]["_meta"] == {"ui": {"resourceUri": public}}


@pytest.mark.parametrize("era", ERAS)
def test_pages_are_listed_under_the_uris_of_their_tools(gateway: Gateway, era: str) -> None:
    """NAM-3, NAM-4: each page is listed, whatever `naming.uris` is."""
    listed = Visitor(gateway.port, "direct", era).result("resources/list")["resources"]
    assert [page["uri"] for page in listed] == [
        f"ui://{label}/clock/app.html" for label in LABELS.values()
    ]
    for page, server in zip(listed, SERVERS, strict=True):
        assert page["_meta"] == {"ui": CSP, "proxy": {"server": server, "originalUri": URI}}


@pytest.mark.parametrize("era", ERAS)
def test_the_uri_of_a_server_is_read_only_if_one_visible_server_has_it(
    gateway: Gateway, era: str
) -> None:
    """NAM-4, SEC-2: with both servers visible, no server answers. A profile that shows one server
    reads its page."""
    refused = Visitor(gateway.port, "direct", era).ask("resources/read", {"uri": URI})["error"]
    assert refused["message"] == f"Unknown resource: {URI}"
    narrow = Visitor(gateway.port, era=era, path="/p/second/mcp/direct")
    (contents,) = narrow.result("resources/read", {"uri": URI})["contents"]
    assert contents["text"] == page_of("Second One")
    hidden = narrow.ask("resources/read", {"uri": "ui://first/clock/app.html"})["error"]
    assert hidden["message"] == "Unknown resource: ui://first/clock/app.html"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("mode", MODES)
def test_compact_modes_do_not_show_tools_for_apps(
    gateway: Gateway, mode: Compact, era: str
) -> None:
    """EXT-1, SUR-10: not in the menu, in a listing, in a search, in hints, or as the target of a
    call."""
    client = Visitor(gateway.port, mode, era)
    seen = [client.menu()]
    match mode:
        case "inspect":
            seen.append(text(client.use("inspect", server_name="first")))
            seen.append(text(client.use("inspect", server_name="refresh zebra")))
        case "describe":
            seen.append(text(client.use("describe", method="first")))
            seen.append(text(client.use("describe", method="refresh zebra")))
        case "search":
            seen.append(text(client.use("mcp_search_tools", query="refresh zebra")))
            seen.append(text(client.use("mcp_search_tools", query="", service_name="first")))
    called = client.result("tools/call", client._meta("first", "zebra_refresh", {}))
    assert called["isError"] is True
    hint = client.result("tools/call", client._meta("first", "zebra_refres", {}))["content"][0][
        "text"
    ]
    assert "show_clock" in "".join(seen)
    assert "zebra_refresh" not in "".join((*seen, hint))


def test_direct_mode_shows_tools_for_apps(gateway: Gateway) -> None:
    """SUR-1: the host hides these tools from the model and lets the app call them."""
    client = Visitor(gateway.port, "direct")
    assert "s0_zebra_refresh" in client.names()
    assert "isError" not in client.result(
        "tools/call", {"name": "s0_zebra_refresh", "arguments": {}}
    )
