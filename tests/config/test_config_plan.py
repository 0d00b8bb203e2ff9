"""What a reload does with each server and setting (CFG-5: only what changed restarts)."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpx.auth.bearer_token import BearerToken
from mcpx.config import (
    Admin,
    AuthConfig,
    Config,
    FrontAuth,
    FrontServer,
    Global,
    Limits,
    Naming,
    Plan,
    Policy,
    Profile,
    Server,
    Tls,
    plan,
)
from mcpx.config.plan import RESTARTS
from mcpx.transports import Http, Stdio

A = Server(name="a", connection=Stdio(command="x"))
B = Server(name="b", connection=Stdio(command="y"))


def config(*servers: Server, **settings: Any) -> Config:
    return Config(mcp_servers=servers, **settings)


OTHER: dict[str, Any] = {
    "description": "other",
    "prefix": "p",
    "timeout": 1.0,
    "call_timeout": 1.0,
    "max_links": 1,
    "start_timeout": 1.0,
    "idle_timeout": 1.0,
    "auto_reconnect": False,
    "retry_on_failure": False,
    "max_retries": 1,
    "retry_delay": 2.0,
    "cache_ttl": 1.0,
    "max_age": 1.0,
    "max_memory": 1,
    "trust": "pin",
    "health_check_enabled": False,
    "health_check_interval": 1.0,
    "schema_format": "json",
    "value_format": "json",
    "schema_compression_enabled": False,
    "max_description_len": 1,
    "toon_compression_enabled": False,
    "toon_compression_min_size": 1,
    "json_compression_enabled": False,
    "structured_content": "omit",
    "result_limit": 1,
    "link_idle": 1.0,
    "limits": Limits(in_flight=1),
    "connection": Http(url="http://h"),
    "isolation": "per_call",
    "auth": "k",
    "lazy": True,
    "max_message": 1,
}


def test_it_is_decided_for_every_key_whether_it_restarts_its_server() -> None:
    """A new key must be entered above, and thought about."""
    assert {
        field.name for field in fields(Server) if field.metadata.get("in_file", True)
    } == OTHER.keys() | {
        "name",
        "enabled",
    }
    assert OTHER.keys() >= RESTARTS


@pytest.mark.parametrize("key", OTHER)
def test_only_what_a_connection_is_made_with_restarts_its_server(key: str) -> None:
    changed = replace(A, **{key: OTHER[key]})
    found = plan(config(A, B), config(changed, B))
    if key in ("connection", "isolation", "auth", "lazy", "max_message"):
        assert found == Plan(kept=("b",), restarted=("a",))
    else:
        assert found == Plan(kept=("b",), updated=("a",))


def test_servers_that_come_go_or_are_switched_start_and_stop() -> None:
    off = replace(A, enabled=False)
    assert plan(config(), config(A)) == Plan(started=("a",))
    assert plan(config(off, B), config(A, B)) == Plan(started=("a",), kept=("b",))
    assert plan(config(A), config()) == Plan(stopped=("a",))
    assert plan(config(A, B), config(off, B)) == Plan(stopped=("a",), kept=("b",))


def test_a_server_under_another_name_is_another_server() -> None:
    assert plan(config(A), config(replace(A, name="z"))) == Plan(
        started=("z",), stopped=("a",), renamed=(("a", "z"),)
    )


def test_a_server_whose_auth_config_changed_is_restarted() -> None:
    def key(token: str) -> AuthConfig:
        return AuthConfig(name="k", auth=BearerToken(token=token))

    guarded = replace(A, auth="k")
    old = config(guarded, B, auth_configs=(key("one"),))
    found = plan(old, config(guarded, B, auth_configs=(key("two"),)))
    assert found == Plan(kept=("b",), restarted=("a",), settings=("auth_configs",))
    assert "two" not in str(found)


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"mode": "search"}, ["mode"]),
        (
            {"naming": Naming(separator="::", prefix="always")},
            ["naming.separator", "naming.prefix"],
        ),
        ({"policy": Policy(default="deny")}, ["policy.default"]),
        ({"profiles": (Profile(name="p"),)}, ["profiles"]),
        (
            {"global_": Global(log_level="DEBUG", hot_reload=False)},
            ["global.log_level", "global.hot_reload"],
        ),
    ],
)
def test_settings_are_taken_up_and_no_server_minds(
    settings: dict[str, Any], keys: list[str]
) -> None:
    assert plan(config(A), config(A, **settings)) == Plan(kept=("a",), settings=tuple(keys))


def test_who_is_let_in_is_taken_up() -> None:
    """SEC-1: a token that was removed must not be good until the next start."""
    front = FrontServer(
        auth=FrontAuth(),
        allowed_hosts=("gw.example",),
        allowed_origins=("https://a.example",),
        trusted_proxies=("::1",),
        admin_token="t",
        admin=Admin(
            allowed_ips=("::1",), allowed_hosts=("a.example",), cors_origins=("https://a.example",)
        ),
    )
    keys = (
        *("server.admin_token", "server.auth", "server.allowed_hosts", "server.allowed_origins"),
        *("server.trusted_proxies", "server.admin.allowed_hosts", "server.admin.allowed_ips"),
        "server.admin.cors_origins",
    )
    assert plan(config(A), config(A, server=front)) == Plan(kept=("a",), settings=keys)


def test_what_only_a_new_process_takes_up_is_said() -> None:
    tls = Tls(cert="c", key="k")
    front = FrontServer(host="::1", port=1, admin_port=2, tls=tls, admin=Admin(host="::", tls=tls))
    found = plan(config(A), config(A, server=front, global_=Global(log_file="f", max_request=1)))
    assert found.settings == ()
    assert found.needs_restart == (
        *("server.host", "server.port", "server.admin_port", "server.tls"),
        *("server.admin.host", "server.admin.tls"),
        *("global.log_file", "global.max_request"),
    )


def test_the_order_of_servers_and_what_is_switched_off_are_settings() -> None:
    """Nothing starts or stops, and yet the configuration is another one."""
    off = replace(B, enabled=False)
    assert plan(config(A, B), config(B, A)) == Plan(kept=("b", "a"), settings=("mcp_servers",))
    assert plan(config(A), config(A, off)) == Plan(kept=("a",), settings=("mcp_servers",))
    changed = replace(off, description="other")
    assert plan(config(A, off), config(A, changed)) == Plan(kept=("a",), settings=("mcp_servers",))


def test_where_a_configuration_came_from_is_no_change(loaded: Callable[..., Config]) -> None:
    """Another file, shape or warning with the same meaning."""
    first = loaded("mcp_servers: [{name: a, connection: {type: stdio, command: x}}]", "one.yaml")
    second = loaded("mode: direct\nmcp_servers: [{name: a, command: x}]", "two.yaml")
    assert (first.dialect, second.dialect) == ("native", "flat")
    assert plan(first, second) == Plan(kept=("a",))
    assert plan(first, second).empty


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (Plan(kept=("a", "b")), "nothing changed"),
        (
            Plan(
                started=("git",),
                restarted=("files",),
                stopped=("web",),
                kept=tuple("abcdefg"),
                needs_restart=("server.port",),
            ),
            "1 started (git), 1 restarted (files), 1 stopped (web), 7 kept; needs a restart: "
            "server.port",
        ),
        (Plan(updated=("a", "b")), "2 updated (a, b)"),
        (
            Plan(settings=("mode", "global.log_level"), kept=("a",)),
            "1 kept; settings: mode, global.log_level",
        ),
        (Plan(settings=("mode",)), "settings: mode"),
    ],
)
def test_a_plan_is_one_readable_line(found: Plan, line: str) -> None:
    assert str(found) == line


def test_the_line_of_a_plan_is_of_bounded_length() -> None:
    assert len(str(Plan(started=tuple(f"server number {n}" for n in range(1000))))) < 250


_server = st.builds(
    Server,
    name=st.sampled_from("abcdef"),
    connection=st.sampled_from([Stdio(command="x"), Stdio(command="y"), Http(url="http://h")]),
    enabled=st.booleans(),
    description=st.sampled_from(["", "d"]),
    lazy=st.booleans(),
)
_configs = st.builds(
    Config,
    mcp_servers=st.lists(_server, unique_by=lambda server: server.name, max_size=6).map(tuple),
    mode=st.sampled_from(["direct", "search"]),
    server=st.builds(FrontServer, port=st.integers(1, 2)),
    global_=st.builds(Global, log_file=st.sampled_from([None, "f"]), menu_budget=st.integers(1, 2)),
)


@given(_configs, _configs)
def test_every_server_stands_in_exactly_one_list(old: Config, new: Config) -> None:
    found = plan(old, new)
    before = [server.name for server in old.mcp_servers if server.enabled]
    after = [server.name for server in new.mcp_servers if server.enabled]
    going_on = [*found.kept, *found.updated, *found.restarted]
    assert sorted([*going_on, *found.started, *found.stopped]) == sorted({*before, *after})
    assert sorted([*going_on, *found.started]) == sorted(after)
    assert sorted([*going_on, *found.stopped]) == sorted(before)
    servers = {server.name: server for server in old.mcp_servers}
    for server in new.mcp_servers:
        assert (server.name in found.kept) == (
            server.enabled and servers.get(server.name) == server
        )


@given(_configs, _configs)
def test_a_plan_is_empty_if_and_only_if_nothing_changed(old: Config, new: Config) -> None:
    assert plan(old, old).empty and plan(new, new).empty
    # Where a server that is off stands among the others changes nothing.
    assert plan(old, new).empty == (_normal(old) == _normal(new))
    assert (str(plan(old, new)) == "nothing changed") == plan(old, new).empty


def _normal(config: Config) -> Config:
    return replace(
        config,
        mcp_servers=tuple(
            sorted(config.mcp_servers, key=lambda s: s.name if not s.enabled else "")
        ),
    )
