"""SUR-5, SUR-6: which surface a client is shown: by the config, by the path, by the command line,
by its own name."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from behaviour.compact import ERAS, Json, Visitor, command, config, next_notice, replace, text, told
from kit.client import StdioClient
from kit.gateway import Gateway, GatewayProcess
from kit.process import FIXTURES
from kit.servers import raw_server
from kit.until import wait_until

SHOWN = {
    "direct": ["told_give", "told_refuse", "told_note", "told_calls"],
    "inspect": ["inspect", "exec"],
    "describe": ["describe", "call", "resources"],
    "search": ["mcp_search_tools", "mcp_execute_tool", "mcp_list_services"],
}
CHANGED = "notifications/tools/list_changed"
MANY = raw_server("many", "--name-count", "300")
PROGRAM = [sys.executable, "-I", "-S", str(FIXTURES / "told_server.py")]
PARTS: Json = {"command": PROGRAM[0], "args": PROGRAM[1:]}
QUICK = {"hot_reload_interval": 0.05}


def mode_of(names: list[str]) -> str:
    plain = [name.removeprefix("told_") for name in names]
    found = [
        mode
        for mode, shown in SHOWN.items()
        if plain == [name.removeprefix("told_") for name in shown]
    ]
    assert len(found) == 1, names
    return found[0]


# ---- the default


@pytest.mark.parametrize(
    ("shape", "mode", "shown"),
    [
        (config(told("told")), "direct", "direct"),
        (config(told("told"), **{"global": {"tool_proxy_mode": True}}), "search", "search"),
        (
            config(told("told"), mode="inspect", **{"global": {"tool_proxy_mode": True}}),
            "inspect",
            "inspect",
        ),
        ({"mcp_servers": [{"name": "told", "type": "stdio", **PARTS}]}, "describe", "describe"),
        (
            {"mcp_servers": [{"name": "told", "type": "stdio", **PARTS}], "mode": "inspect"},
            "inspect",
            "inspect",
        ),
        ({"mcpServers": {"told": PARTS}}, "auto", "direct"),
        ({"servers": [{"id": "told", "command": PROGRAM}]}, "direct", "direct"),
    ],
    ids=["native", "tool_proxy_mode", "mode", "flat", "flat-inspect", "mcpServers", "proxy"],
)
def test_the_default_mode_is_that_of_the_configs_own_document(
    shape: Json, mode: str, shown: str
) -> None:
    """SUR-6, CFG-2."""
    with Gateway(shape) as gateway:
        wait_until(lambda: Visitor(gateway.port, "direct").names())
        names = [name.replace("::", "_") for name in Visitor(gateway.port).names()]
        assert mode_of(names) == shown
        assert json.loads(command(gateway, "servers", "--json"))["mode"] == mode


@pytest.mark.parametrize("mode", [*SHOWN, "auto"])
def test_the_command_line_wins_over_the_config_also_after_a_reload(mode: str) -> None:
    """SUR-6, RUN-2: on every front; the paths of the modes stay what they are."""
    shape = config(
        told("told"), mode="inspect" if mode == "describe" else "describe", **{"global": QUICK}
    )
    shown = "direct" if mode == "auto" else mode
    with GatewayProcess(shape, "--mode", mode) as gateway:
        assert mode_of(Visitor(gateway.port).names()) == shown
        assert mode_of(Visitor(gateway.port, "search").names()) == "search"
        replace(gateway, {**shape, "mode": "search" if mode != "search" else "inspect"})
        wait_until(lambda: "reloaded: " in gateway.stderr() or "nothing to do" in gateway.stderr())
        assert mode_of(Visitor(gateway.port).names()) == shown
    with (
        GatewayProcess(shape, "--mode", mode, transport="stdio") as alone,
        StdioClient(alone.stdio_command, alone.env) as pipe,
    ):
        pipe.greet()
        assert (
            mode_of([tool["name"] for tool in pipe.request("tools/list")["result"]["tools"]])
            == shown
        )


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayProcess]:
    rules = [
        {"client": "special*", "mode": "inspect", "reason": "they asked for it"},
        {"client": "claude-code", "mode": "describe"},
    ]
    settings = {"auto_budget": 100, "auto_rules": rules}
    with GatewayProcess(config(told("told"), mode="auto", **{"global": settings})) as gateway:
        yield gateway
        assert "Traceback" not in gateway.stderr(), gateway.stderr()


@pytest.mark.parametrize("era", ERAS)
def test_each_mode_is_at_its_own_path(gateway: GatewayProcess, era: str) -> None:
    """SUR-6: beside the default one."""
    for mode in SHOWN:
        assert mode_of(Visitor(gateway.port, mode, era).names()) == mode
    assert mode_of(Visitor(gateway.port, "auto", era).names()) == "search"
    assert mode_of(Visitor(gateway.port, "", era).names()) == "search"


@pytest.mark.parametrize("era", ERAS)
def test_a_tool_of_another_mode_is_not_to_be_called(gateway: GatewayProcess, era: str) -> None:
    """SUR-6: a session has the surface of its path, for lists and for calls."""
    direct = Visitor(gateway.port, "direct", era)
    assert "error" in direct.ask(
        "tools/call", {"name": "inspect", "arguments": {"server_name": "told"}}
    )
    compact = Visitor(gateway.port, "inspect", era)
    assert "error" in compact.ask(
        "tools/call", {"name": "describe", "arguments": {"method": "told"}}
    )


# ---- a change of mind


@pytest.mark.parametrize("era", ERAS)
def test_a_changed_mode_is_announced_and_shown_to_a_live_client(era: str) -> None:
    """SUR-6, CFG-5: clients of the default path; the surface answers at once."""
    shape = config(told("told"), mode="direct", **{"global": QUICK})
    with Gateway(shape) as gateway:
        client, fixed = Visitor(gateway.port, "", era), Visitor(gateway.port, "inspect", era)
        assert mode_of(client.names()) == "direct"
        assert mode_of(fixed.names()) == "inspect"
        with client.listening() as stream:
            for mode in ("search", "describe", "direct"):
                replace(gateway, {**shape, "mode": mode})
                assert next_notice(stream) == CHANGED
                assert mode_of(client.names()) == mode
                assert mode_of(fixed.names()) == "inspect"


def test_a_changed_mode_is_announced_on_stdio() -> None:
    """SUR-6, CFG-5."""
    shape = config(told("told"), mode="direct", **{"global": QUICK})
    with (
        GatewayProcess(shape, transport="stdio") as alone,
        StdioClient(alone.stdio_command, alone.env) as pipe,
    ):
        pipe.greet()
        assert (
            mode_of([tool["name"] for tool in pipe.request("tools/list")["result"]["tools"]])
            == "direct"
        )
        replace(alone, {**shape, "mode": "inspect"})
        assert pipe.message()["method"] == CHANGED
        assert (
            mode_of([tool["name"] for tool in pipe.request("tools/list")["result"]["tools"]])
            == "inspect"
        )


@pytest.mark.parametrize("key", ["menu_budget", "tool_proxy"])
def test_a_changed_menu_is_announced(key: str) -> None:
    """SUR-6, CFG-5: a list that differs, whatever makes it differ."""
    shape = config(told("told"), **{"global": QUICK})
    mode = "inspect" if key == "menu_budget" else "search"
    value = 200 if key == "menu_budget" else {"enable_list_services": False}
    with Gateway(shape) as gateway:
        client = Visitor(gateway.port, mode)
        before = client.tools()
        with client.listening() as stream:
            replace(gateway, {**shape, "global": {**shape["global"], key: value}})
            assert next_notice(stream) == CHANGED
            assert client.tools() != before


def test_what_the_user_says_of_a_server_is_announced_where_it_is_shown() -> None:
    """SUR-2, CFG-5: the description stands in the menu; the tools are the same."""
    shape = config(told("told", description="before"), **{"global": QUICK})
    with Gateway(shape) as gateway:
        client = Visitor(gateway.port, "inspect")
        assert "  Server: told - before\n" in client.menu()
        with client.listening() as stream:
            replace(
                gateway,
                {**shape, "mcp_servers": [{**shape["mcp_servers"][0], "description": "after"}]},
            )
            wait_until(lambda: "  Server: told - after\n" in client.menu())
            assert next_notice(stream) == CHANGED


# ---- auto


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("client", "mode"),
    [
        ("somebody", "search"),
        ("special agent", "inspect"),
        ("SPECIAL", "inspect"),
        ("claude-code", "describe"),
        ("Visual Studio Code", "direct"),
        ("Visual Studio Code - Insiders", "direct"),
    ],
)
def test_auto_goes_by_the_name_of_the_client_and_the_users_own_rules(
    gateway: GatewayProcess, client: str, mode: str, era: str
) -> None:
    """SUR-5: the user's rules come before those that are built in."""
    visitor = Visitor(gateway.port, "", era, name=client)
    assert mode_of(visitor.names()) == mode
    chosen = json.loads(command(gateway, "servers", "--json"))["auto"]
    assert (client, mode) in [(choice["client"], choice["mode"]) for choice in chosen]
    (reason,) = {choice["reason"] for choice in chosen if choice["client"] == client}
    assert reason
    wait_until(
        lambda: any(
            client in line and mode in line and reason in line
            for line in gateway.stderr().splitlines()
        )
    )
    if client.lower().startswith("special"):
        assert reason == "they asked for it"
    if client == "somebody":
        assert "4 tools" in reason and "100" in reason


def test_a_client_that_defers_tools_by_itself_is_shown_all() -> None:
    """SUR-5: without any rule of the user; so is everybody while the tools are few."""
    big = raw_server("told", "--name-count", "100")
    with Gateway(config(big, mode="auto")) as gateway:
        assert len(Visitor(gateway.port, name="claude-code").names()) == 108
        assert mode_of(Visitor(gateway.port, name="claude-coder").names()) == "search"


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_defers_tools_is_shown_the_compact_mode_above_the_limit(era: str) -> None:
    """SUR-5: by default above 25,000 tokens. A lower or higher limit is a setting."""
    huge = raw_server("told", "--name-count", "300")
    settings: Json
    for settings, mode in (({}, "search"), ({"auto_direct_limit": 50_000}, "direct")):
        with Gateway(config(huge, mode="auto", **{"global": settings})) as gateway:
            shown = Visitor(gateway.port, "", era, name="claude-code").names()
            assert (len(shown) == 308) == (mode == "direct")
            assert len(Visitor(gateway.port, "direct", era).names()) == 308
            (choice,) = json.loads(command(gateway, "servers", "--json"))["auto"]
            assert choice["mode"] == mode
            assert mode == "direct" or choice["reason"].endswith(
                "tokens, the limit auto_direct_limit is 25,000"
            )


def test_what_auto_chose_is_kept_for_the_session_while_the_catalog_grows() -> None:
    """SUR-5: decided at the first list; who comes later is shown what fits then."""
    shape = config(told("told"), mode="auto", **{"global": QUICK})
    with Gateway(shape) as gateway:
        early = Visitor(gateway.port)
        assert mode_of(early.names()) == "direct"
        with early.listening() as stream:
            replace(gateway, {**shape, "mcp_servers": [*shape["mcp_servers"], MANY]})
            assert next_notice(stream) == CHANGED
        assert len(early.names()) == 312
        assert mode_of(Visitor(gateway.port).names()) == "search"
        assert len(early.names()) == 312


def test_auto_chooses_for_each_list_of_a_client_that_has_no_session() -> None:
    """SUR-5: all who give the same name look the same, so what the first one was shown cannot bind
    the others."""
    shape = config(told("told"), mode="auto", **{"global": QUICK})
    with Gateway(shape) as gateway:
        client = Visitor(gateway.port, "", "modern")
        assert mode_of(client.names()) == "direct"
        assert text(client.use("told_note", path="a")) == 'note {"path": "a"}'
        with client.listening() as stream:
            replace(gateway, {**shape, "mcp_servers": [*shape["mcp_servers"], MANY]})
            assert next_notice(stream) == CHANGED
        assert mode_of(client.names()) == "search"
        assert (
            text(client.use("mcp_execute_tool", tool_name="note", arguments={"path": "a"}))
            == 'note {"path": "a"}'
        )
        ruled = {
            **QUICK,
            "startup_wait": 15,
            "first_start_wait": 15,
            "auto_rules": [{"client": "visitor", "mode": "inspect"}],
        }
        replace(gateway, {**shape, "global": ruled})
        wait_until(lambda: mode_of(client.names()) == "inspect")


def nested(depth: int) -> Json:
    schema: Json = {"type": "object"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    "tool",
    [
        {"name": "odd", "inputSchema": {"type": "object"}, "x-unknown": 12345678901234567890123},
        {"name": "odd", "inputSchema": {"type": "object"}, "description": "half \ud83d an emoji"},
        {"name": "odd", "inputSchema": nested(300)},
    ],
    ids=["large number", "half an emoji", "deep schema"],
)
def test_auto_measures_whatever_servers_send(tool: Json, tmp_path: Path) -> None:
    """SUR-5, SRC-8: what `direct` lists, `auto` lists as well; one server spoils no other."""
    with Gateway(config(told("told", tmp_path, {"tools": [tool]}), mode="auto")) as gateway:
        assert len(Visitor(gateway.port, "direct").names()) == 5
        assert len(Visitor(gateway.port).names()) == 5


@pytest.mark.parametrize("era", ERAS)
def test_the_name_a_client_gives_itself_is_told_in_few_words(
    gateway: GatewayProcess, era: str
) -> None:
    """SUR-5, SEC-6: on one line of the log, and not kept for ever in full."""
    begun = len(gateway.stderr())
    for name in (f"forger {era}\n13:00:00 ERROR all is lost", f"{era}-{'n' * 50_000}"):
        assert mode_of(Visitor(gateway.port, "", era, name=name).names()) == "search"
    wait_until(lambda: f"{era}-nnn" in gateway.stderr()[begun:])
    lines = gateway.stderr()[begun:].splitlines()
    assert not any(line.startswith("13:00:00 ERROR") for line in lines)
    assert max(map(len, lines)) < 1_000
    assert len(command(gateway, "servers", "--json")) < 20_000
