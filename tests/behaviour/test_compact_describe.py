"""SUR-3: `describe`, `call` and `resources`."""

import base64
from collections.abc import Iterator

import pytest

from behaviour.compact import ERAS, Visitor, config, text, told
from fixtures.told_server import NOTE
from kit.gateway import Gateway
from mcpx.catalog.naming import wrap_uri

BLOB = base64.b64encode(bytes(range(200))).decode()
LIST = "things: 3"

SHOP = {
    "instructions": "A shop.",
    "tools": [
        {"name": "a.b", "description": "Of the server `shop`", "inputSchema": {"type": "object"}},
        {
            "name": "tool",
            "description": "Of the server `shop` too",
            "inputSchema": {"type": "object"},
        },
    ],
    "resources": [
        {
            "uri": "shop://list",
            "name": "list",
            "description": "What there is",
            "mimeType": "text/plain",
        },
        {"uri": "shop://logo", "name": "logo", "mimeType": "image/png", "size": 200},
        {"uri": "shop://both", "name": "both"},
        {"uri": "every://one", "name": "same uri"},
    ],
    "templates": [{"uriTemplate": "shop://item/{id}", "name": "item"}],
    "contents": {
        "shop://list": [{"uri": "shop://list", "mimeType": "text/plain", "text": LIST}],
        "shop://logo": [
            {"uri": "shop://logo", "mimeType": "image/png", "blob": BLOB, "_meta": {"x": 1}}
        ],
        "shop://both": [
            {"uri": "shop://both/1", "text": "one"},
            {"uri": "shop://both/2", "mimeType": "image/png", "blob": BLOB},
            {"uri": "shop://both/3", "text": "three"},
        ],
        "shop://item/7": [{"uri": "shop://item/7", "text": "item 7"}],
        "shop://hidden": [{"uri": "shop://hidden", "text": "never listed"}],
        "every://one": [{"uri": "every://one", "text": "of shop"}],
    },
}
DOTTED = {
    "tools": [
        {"name": "b", "description": "Of the server `shop.a`", "inputSchema": {"type": "object"}}
    ],
    "resources": [{"uri": "every://one", "name": "same uri"}],
    "contents": {"every://one": [{"uri": "every://one", "text": "of shop.a"}]},
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("describe")
    servers = (told("shop", folder, SHOP), told("shop.a", folder, DOTTED))
    with Gateway(config(*servers)) as gateway:
        yield gateway
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@pytest.fixture(params=ERAS)
def client(gateway: Gateway, request: pytest.FixtureRequest) -> Visitor:
    return Visitor(gateway.port, "describe", request.param)


def test_there_are_three_tools_with_the_parameters_of_the_document(client: Visitor) -> None:
    """SUR-3, SUR-12."""
    tools = {tool["name"]: tool["inputSchema"] for tool in client.tools()}
    names = {name: list(schema["properties"]) for name, schema in tools.items()}
    assert names == {
        "describe": ["method"],
        "call": ["method", "arguments", "calls", "continue"],
        "resources": ["server_name", "uri"],
    }
    required = {name: schema.get("required", []) for name, schema in tools.items()}
    assert required == {"describe": ["method"], "call": [], "resources": []}
    menu = client.menu()
    assert "  Server: shop - A shop.\n    - give: Returns the result it is given\n" in menu
    assert "  Server: shop.a\n" in menu and "    - b: Of the server `shop.a`" in menu


def test_a_server_and_a_tool_are_described(client: Visitor) -> None:
    """SUR-3, SUR-7: for the model as text, for programs as the server's own JSON."""
    server = client.use("describe", method="shop")
    assert [tool["name"] for tool in server["structuredContent"]["tools"]][-2:] == ["a.b", "tool"]
    assert "shop.note({path: string" in text(server)
    tool = client.use("describe", method="shop.note")
    assert (tool["structuredContent"]["name"], tool["structuredContent"]["inputSchema"]) == (
        "note",
        NOTE,
    )
    assert text(tool).startswith("shop.note({path: string")
    assert "Notes its arguments" in text(tool)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("shop.tool", "tool {}"),
        ("shop.a.b", "b {}"),
        ("shop.a.give", None),
        ("shop.note", None),
    ],
)
def test_a_method_is_split_after_the_longest_server_name(
    client: Visitor, method: str, answer: str | None
) -> None:
    """SUR-3: `shop.a` is a server and `a.b` is a tool of `shop`; the longer server name wins."""
    described = client.use("describe", method=method)["structuredContent"]
    assert f"{described['server']}.{described['name']}" == method
    if answer is None:
        return
    assert text(client.use("call", method=method)) == answer
    assert described["description"] == (
        "Of the server `shop.a`" if method == "shop.a.b" else "Of the server `shop` too"
    )


def test_a_server_whose_name_begins_like_another_is_described_as_itself(client: Visitor) -> None:
    """SUR-3: `shop.a` is the server, though `shop` might have a tool `a`."""
    described = client.use("describe", method="shop.a")["structuredContent"]
    assert described["tools"][-1]["name"] == "b"


def test_resources_are_listed_all_or_of_one_server(client: Visitor) -> None:
    """SUR-3: without `uri`; templates are told too."""
    everything = client.use("resources")
    told = text(everything)
    for uri in ("shop://list", "shop://logo", "shop://item/{id}", "every://one"):
        assert uri in told
    assert "What there is" in told and "text/plain" in told
    listed = everything["structuredContent"]["resources"]
    assert [(entry["server"], entry["uri"]) for entry in listed] == [
        ("shop", "shop://list"),
        ("shop", "shop://logo"),
        ("shop", "shop://both"),
        ("shop", "every://one"),
        ("shop.a", "every://one"),
    ]
    assert listed[0] | SHOP["resources"][0] == listed[0]
    one = client.use("resources", server_name="shop.a")
    assert [entry["uri"] for entry in one["structuredContent"]["resources"]] == ["every://one"]
    assert "shop://" not in text(one)


def test_a_text_resource_is_read_as_text(client: Visitor) -> None:
    """SUR-3."""
    read = client.use("resources", server_name="shop", uri="shop://list")
    assert read["content"] == [{"type": "text", "text": LIST}]
    assert client.use("resources", uri="shop://list")["content"] == read["content"]
    assert read["structuredContent"] == {"contents": SHOP["contents"]["shop://list"]}


def test_a_binary_resource_is_read_as_an_embedded_resource(client: Visitor) -> None:
    """SUR-3: with everything that stood beside it; mixed with text in order."""
    (logo,) = SHOP["contents"]["shop://logo"]
    assert client.use("resources", uri="shop://logo")["content"] == [
        {"type": "resource", "resource": logo}
    ]
    both = SHOP["contents"]["shop://both"]
    assert client.use("resources", uri="shop://both")["content"] == [
        {"type": "text", "text": "one"},
        {"type": "resource", "resource": both[1]},
        {"type": "text", "text": "three"},
    ]


def test_a_resource_is_read_by_any_form_of_its_uri(client: Visitor) -> None:
    """SUR-3, NAM-4: the wrapped one that other clients see, an expanded template, one that was
    never listed."""
    for uri, expected in (
        (wrap_uri("shop", "shop://list"), LIST),
        ("shop://item/7", "item 7"),
        (wrap_uri("shop.a", "every://one"), "of shop.a"),
        ("every://one", "of shop"),
    ):
        assert text(client.use("resources", uri=uri)) == expected
    assert text(client.use("resources", server_name="shop.a", uri="every://one")) == "of shop.a"
    assert text(client.use("resources", server_name="shop", uri="shop://hidden")) == "never listed"


def test_an_unknown_resource_is_a_mistake_that_helps(client: Visitor) -> None:
    """SUR-9: of nobody; a server's own refusal stays as it is (PRO-6)."""
    unknown = client.use("resources", uri="nobody://here")
    assert "nobody://here" in client.error(unknown)
    other = client.error(client.use("resources", server_name="shopp", uri="shop://list"))
    assert '"shopp"' in other and '"shop"' in other
    refused = client.ask(
        "tools/call",
        {"name": "resources", "arguments": {"server_name": "shop", "uri": "shop://none"}},
    )
    assert refused["error"] == {
        "code": -32002,
        "message": "No such resource",
        "data": {"uri": "shop://none"},
    }
