"""Other shapes load as they are, each with its own default mode and naming (CFG-2, NAM-2,
SUR-6)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcpx.config import Config, Naming, load
from mcpx.transports import Http, Sse, Stdio, Transport, Websocket

Loaded = Callable[..., Config]
Refused = Callable[..., str]


def client(entry: dict[str, Any], key: str = "mcpServers", **beside: Any) -> str:
    return json.dumps({key: {"a": entry}, **beside})


@pytest.mark.parametrize(
    ("entry", "connection"),
    [
        ({"command": "npx", "args": ["-y"]}, Stdio(command="npx", args=("-y",))),
        (
            {"type": "stdio", "command": "npx", "env": {"A": "b"}},
            Stdio(command="npx", env={"A": "b"}),
        ),
        ({"command": ["npx", "-y"], "args": ["x"]}, Stdio(command="npx", args=("-y", "x"))),
        ({"url": "http://h/mcp"}, Http(url="http://h/mcp")),
        ({"url": "http://h/sse"}, Sse(url="http://h/sse")),
        ({"url": "http://h/sse/?a=b"}, Sse(url="http://h/sse/?a=b")),
        ({"url": "http://h/sse", "type": "http"}, Http(url="http://h/sse")),
        ({"url": "wss://h/ws"}, Websocket(url="wss://h/ws")),
        ({"serverUrl": "http://h/mcp"}, Http(url="http://h/mcp")),
        ({"serverUrl": "http://h/sse"}, Sse(url="http://h/sse")),
        ({"httpUrl": "http://h/sse"}, Http(url="http://h/sse")),
        (
            {"url": "http://h", "transport": "http", "headers": {"A": "b"}},
            Http(url="http://h", headers={"A": "b"}),
        ),
        ({"type": "streamable-http", "url": "http://h"}, Http(url="http://h")),
        ({"type": "streamableHttp", "url": "http://h"}, Http(url="http://h")),
        ({"type": "sse", "url": "http://h"}, Sse(url="http://h")),
        ({"type": "ws", "url": "ws://h"}, Websocket(url="ws://h")),
        ({"type": "websocket", "url": "ws://h"}, Websocket(url="ws://h")),
        ({"type": "http", "url": "http://h", "env": {}, "args": []}, Http(url="http://h")),
    ],
)
@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_an_entry_of_a_client_file_loads(
    key: str, entry: dict[str, Any], connection: Transport, loaded: Loaded
) -> None:
    config = loaded(client(entry, key), "mcp.json")
    assert config.mcp_servers[0].connection == connection
    assert (config.mode, config.naming) == ("auto", Naming(prefix="always"))
    own = "gemini" if "httpUrl" in entry else "mcpServers"  # nobody else has that word
    assert config.dialect == (own if key == "mcpServers" else "vscode")


def test_keys_of_a_client_are_passed_over_with_one_warning(loaded: Loaded) -> None:
    entry = {
        "command": "x",
        "autoApprove": ["a"],
        "dev": {},
        "trust": True,
        "auth": {"CLIENT_ID": "i"},
    }
    config = loaded(client(entry, theme="dark", inputs=[]), "mcp.json")
    (warning,) = config.warnings
    assert (
        warning
        == "mcp.json: keys mcpx does not know are passed over: theme, autoApprove, dev, trust, auth"
    )
    assert (config.mcp_servers[0].trust, config.mcp_servers[0].auth) == ("open", None)


def test_many_foreign_keys_make_a_bounded_warning(loaded: Loaded) -> None:
    (warning,) = loaded(
        json.dumps({"mcpServers": {}, **{f"k{n}": 1 for n in range(60)}}), "mcp.json"
    ).warnings
    assert warning.endswith("k9 and 50 more")


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "x", "env": {"KEY": "${input:key}"}},
        {"command": "x", "args": ["--key=${input:key}", "${NOT_SET}"]},
        {"url": "https://${input:host}/mcp", "headers": {"Authorization": "Bearer ${input:key}"}},
    ],
)
def test_a_server_that_only_the_client_could_ask_for_is_switched_off_and_the_others_load(
    key: str, entry: dict[str, Any], loaded: Loaded
) -> None:
    """CFG-2, CFG-3: a literal `${input:…}` is never sent, and one such server does not cost the
    whole file."""
    config = loaded(
        json.dumps({"inputs": [{"id": "key"}], key: {"asks": entry, "b": {"command": "y"}}}),
        "mcp.json",
    )
    assert [(server.name, server.enabled) for server in config.mcp_servers] == [
        ("asks", False),
        ("b", True),
    ]
    (warning,) = config.warnings
    assert (
        "server 'asks' is switched off: '${input:…}' is not supported yet (mcp.json:1:" in warning
    )
    assert "${VAR}" in warning


def test_a_server_that_is_off_or_was_given_its_input_by_an_overlay_is_not_warned_of(
    loaded: Loaded, folder: Path
) -> None:
    """CFG-2, CFG-7: nor is one that escapes its dollar."""
    asks = {"command": "x", "env": {"KEY": "${input:key}"}}
    assert loaded(client({**asks, "disabled": True}), "mcp.json").warnings == ()
    assert (
        loaded(client({"command": "x", "args": ["$${input:key}"]}), "mcp.json")
        .mcp_servers[0]
        .enabled
    )
    loaded(client(asks), "mcp.json")
    (folder / "mcp.prod.json").write_text(client({"env": {"KEY": "${KEY}"}}))
    (folder / "mcp.prod.json").chmod(0o600)
    config = load(folder / "mcp.json", {"KEY": "k"}, "prod")
    assert (config.warnings, config.mcp_servers[0].enabled) == ((), True)
    assert config.mcp_servers[0].connection == Stdio(command="x", env={"KEY": "k"})


def test_a_typo_in_a_client_file_is_found_by_what_is_missing(refused: Refused) -> None:
    message = refused(client({"comand": "npx"}), "mcp.json")
    assert "neither 'command' nor 'url'" in message
    assert "did you mean one of them by 'comand'?" in message


def test_disabled_and_timeout_of_clients_are_understood(loaded: Loaded) -> None:
    """Claude and Gemini count milliseconds, Cline seconds; both mean a request."""
    assert (
        loaded(client({"command": "x", "disabled": True}), "mcp.json").mcp_servers[0].enabled
        is False
    )
    assert (
        loaded(client({"command": "x", "disabled": False}), "mcp.json").mcp_servers[0].enabled
        is True
    )
    assert (
        loaded(client({"command": "x", "timeout": 600_000}), "mcp.json").mcp_servers[0].call_timeout
        == 600
    )
    assert (
        loaded(client({"command": "x", "timeout": 60}), "mcp.json").mcp_servers[0].call_timeout
        == 60
    )


def test_our_own_keys_may_stand_in_a_client_file(loaded: Loaded, refused: Refused) -> None:
    config = loaded(
        client(
            {"command": "x", "lazy": True, "prefix": "p", "isolation": "per_call"},
            mode="search",
            naming={"separator": "::"},
            **{"global": {"call_timeout": 7}},
        ),
        "mcp.json",
    )
    server = config.mcp_servers[0]
    assert (config.mode, config.naming) == ("search", Naming(separator="::", prefix="always"))
    assert (server.lazy, server.prefix, server.isolation, server.call_timeout) == (
        True,
        "p",
        "per_call",
        7,
    )
    assert config.warnings == ()
    assert "unknown key 'cal_timeout'" in refused(
        client({"command": "x"}, **{"global": {"cal_timeout": 7}}), "mcp.json"
    )


def test_a_list_of_named_servers_under_mcpservers_loads(loaded: Loaded) -> None:
    """Continue writes it so."""
    config = loaded(
        "mcpServers:\n  - {name: a, command: x}\n  - {name: b, type: sse, url: 'http://h'}\n"
    )
    assert [server.name for server in config.mcp_servers] == ["a", "b"]


def test_comments_and_trailing_commas_of_editors_are_read(loaded: Loaded) -> None:
    text = (
        '// mine\n{"servers": {\n  "a": {"command": "x", "args": ["http://h", "/*no*/", '
        '",]",],}, /* last */\n},}'
    )
    connection = loaded(text, "mcp.json").mcp_servers[0].connection
    assert getattr(connection, "args") == ("http://h", "/*no*/", ",]")  # noqa: B009


def test_two_lists_of_servers_are_refused(refused: Refused) -> None:
    message = refused('{"mcp_servers": [], "mcpServers": {}}', "c.json")
    assert "'mcp_servers' and 'mcpServers' in one file" in message


@pytest.mark.parametrize(
    "text",
    ['{"mcpServers": 3}', '{"mcpServers": null}', '{"mcpServers": {"a": 3}}', '{"servers": 3}'],
)
def test_a_client_file_of_a_wrong_shape_is_refused(text: str, refused: Refused) -> None:
    assert "expected" in refused(text, "mcp.json")


def test_the_flat_shape_takes_global_words_at_the_top(loaded: Loaded, refused: Refused) -> None:
    config = loaded(
        "mcp_servers: [{name: a, command: x, call_timeout: 3}]\ncall_timeout: "
        "4\nhealth_check_interval: 5"
    )
    assert (config.mode, config.dialect, config.global_.call_timeout) == ("describe", "flat", 4)
    assert (config.mcp_servers[0].call_timeout, config.mcp_servers[0].health_check_interval) == (
        3,
        5,
    )
    assert loaded("mcp_servers: [{name: a, command: x}]\nmode: inspect").mode == "inspect"
    assert loaded("mcp_servers: [{name: a, command: x}]\ntool_proxy_mode: true").mode == "search"
    assert loaded("mcp_servers: [{name: a, url: 'http://h/sse'}]").mcp_servers[0].connection == Sse(
        url="http://h/sse"
    )
    both = "mcp_servers: [{name: a, command: x}]\ncall_timeout: 4\nglobal: {call_timeout: 5}"
    assert "'call_timeout' stands here and under 'global'" in refused(both)
    typo = refused("mcp_servers: [{name: a, command: x}]\nhelth_check_interval: 5")
    assert "did you mean 'health_check_interval'?" in typo


def test_unknown_keys_in_the_flat_and_the_proxy_shape_are_errors(refused: Refused) -> None:
    assert "unknown key 'autoApprove'" in refused(
        "mcp_servers: [{name: a, command: x, autoApprove: []}]"
    )
    assert "unknown key 'autoApprove'" in refused(
        "servers: [{id: a, command: [x], autoApprove: []}]"
    )
    assert "neither 'command' nor 'url'" in refused("mcp_servers: [{name: a}]")


def test_the_proxy_shape_takes_a_pair_of_timeouts(loaded: Loaded, refused: Refused) -> None:
    server = loaded(
        "servers: [{id: a, command: [x, y], timeouts: {init: 3, call: 4}}]"
    ).mcp_servers[0]
    assert (server.name, server.timeout, server.call_timeout) == ("a", 3, 4)
    single = loaded("servers: [{id: a, command: x, timeout: 3}]").mcp_servers[0]
    assert (single.timeout, single.call_timeout) == (3, 300)
    message = refused("servers: [{id: a, command: [x], timeouts: {init: -3, cal: 4}}]")
    assert "(servers[0].timeouts.init)" in message
    assert "did you mean 'call'?" in message
    assert "expected 'init' and 'call'" in refused("servers: [{id: a, command: [x], timeouts: 3}]")


def test_a_variable_decides_as_what_it_holds_would(loaded: Loaded, refused: Refused) -> None:
    """CFG-3: the type of a connection and whether a server is on may hang on one."""
    entry = {"url": "${URL}", "type": "${TYPE}", "disabled": "${OFF}"}
    held = {"URL": "http://h/sse", "TYPE": "ws", "OFF": "false"}
    assert loaded(client({"url": "${URL}"}), "mcp.json", **held).mcp_servers[0].connection == Sse(
        url="http://h/sse"
    )
    assert loaded(client({"url": "${URL}", "type": "${T:-HTTP}"}), "mcp.json", **held).mcp_servers[
        0
    ].connection == (Http(url="http://h/sse"))
    assert loaded(client(entry), "mcp.json", **{**held, "URL": "ws://h"}).mcp_servers[
        0
    ].connection == (Websocket(url="ws://h"))
    off = client({"url": "${URL}", "disabled": "${OFF}"})
    assert loaded(off, "mcp.json", OFF="true").mcp_servers[0].enabled is False
    flat = "mcp_servers: [{name: a, url: '${URL}'}]"
    assert loaded(flat, **held).mcp_servers[0].connection == Sse(url="http://h/sse")
    assert loaded(client(entry), "mcp.json").mcp_servers[0].enabled is False
    told = refused(client(entry), "mcp.json", strict=True)
    assert [f"variable {name} is not set" in told for name in ("URL", "TYPE", "OFF")] == [True] * 3
    assert "unknown type\n" in refused(client(entry), "mcp.json", **{**held, "TYPE": "${URL}"})


def test_an_error_in_a_moved_part_points_to_where_it_was_written(refused: Refused) -> None:
    message = refused(
        '{"servers": [\n  {"id": "a", "command": ["x", {"y": 1}], "env": {"A": []}}\n]}', "c.json"
    )
    assert "(servers[0].command[1])" in message
    assert "(servers[0].env.A)" in message
    assert "(mcpServers.a.serverUrl)" in refused(client({"serverUrl": "ftp://h"}), "mcp.json")
    assert "(mcpServers.a.disabled)" in refused(client({"command": "x", "disabled": 3}), "mcp.json")


def test_the_native_shape_needs_nothing_but_its_keys(loaded: Loaded) -> None:
    assert loaded("mcp_servers: []").dialect == "native"
    assert loaded("commands: []").dialect == "native"
    assert (
        loaded("mcp_servers: [{name: a, connection: {type: stdio, command: x}}]").mode == "direct"
    )
