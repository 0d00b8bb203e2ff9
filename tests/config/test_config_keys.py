"""Every key of the native shape loads, arrives where it belongs, and is missed when it is misspelt
(CFG-1, CFG-4)."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from mcpx.auth.api_key import ApiKey
from mcpx.auth.basic_auth import BasicAuth
from mcpx.auth.bearer_token import BearerToken
from mcpx.auth.custom_header import CustomHeader
from mcpx.auth.oauth2 import OAuth2
from mcpx.commands.http import HttpRequest
from mcpx.commands.script import Script
from mcpx.config import (
    AuthConfig,
    Command,
    Config,
    FrontAuth,
    FrontLimits,
    FrontServer,
    Global,
    Limits,
    Naming,
    Parameter,
    Policy,
    PolicyRule,
    Profile,
    Server,
    Tls,
    Token,
    ToolProxy,
)
from mcpx.transports import Http, Sse, Stdio, Websocket

EVERY_KEY = """
$schema: https://example.com/schema.json
x-note: mine
mode: inspect
naming: {separator: "_", prefix: always, uris: plain, max_length: 32, x-why: short}
server:
  host: 0.0.0.0
  port: 9000
  admin_port: 9001
  admin_token: admin
  auth: {type: bearer, tokens: [{name: alice, token: a, profile: team, expires: 2027-01-31T12:00:00Z}]}
  tls: {cert: cert.pem, key: /etc/key.pem}
  allowed_hosts: [tools.example.com]
  allowed_origins: ["https://app.example:8443"]
  trusted_proxies: [10.0.0.0/8]
  limits: {sessions: 1, in_flight: 2, per_minute: 3, queue: 0}
  store: redis://h
  drain: 5
mcp_servers:
  - name: one
    description: first
    enabled: true
    prefix: o
    connection:
      type: stdio
      command: npx
      args: [-y, server]
      env: {A: b}
      cwd: sub
      inherit_env: [DISPLAY]
      framing: content-length
    timeout: 5
    start_timeout: 8
    call_timeout: 6
    isolation: per_session
    max_links: 2
    lazy: true
    idle_timeout: 7
    auto_reconnect: false
    retry_on_failure: false
    max_retries: 8
    retry_delay: 9
    max_age: 100
    max_memory: 200
    cache_ttl: 10
    trust: quarantine
    limits: {in_flight: 4, per_minute: 5, queue: 6}
    health_check_enabled: false
    health_check_interval: 11
    max_message: 13
    schema_format: json
    value_format: toon
    schema_compression_enabled: false
    max_description_len: 14
    toon_compression_enabled: false
    toon_compression_min_size: 15
    json_compression_enabled: false
    structured_content: omit
    result_limit: 16
  - {name: two, auth: {ref: key}, connection: {type: http, url: "http://h/mcp", headers: {A: b}}}
  - {name: three, connection: {type: sse, url: "https://h/sse", headers: {A: b}}}
  - {name: four, connection: {type: websocket, url: "wss://h/ws", headers: {A: b}}}
commands:
  - name: fetch
    description: fetches
    type: http
    enabled: true
    http:
      method: POST
      url: https://h/{id}
      headers: {A: b}
      params: {q: "{id}", n: 1.50}
      body: {id: "{id}", n: 1, params: {k: 2}}
      auth: {ref: key}
      timeout: 17
      response_format: text
      body_format: json
      max_retries: 1
      retry_delay: 2
      result: a.b
      max_response: 3
      allow_private: true
    parameters:
      - {name: id, type: integer, required: true, default: 1, description: which, enum: [1, 2], min: 1, max: 2}
      - {name: words, type: array, items: {type: string}}
      - {name: word, pattern: "^a"}
      - {name: thing, type: object, properties: {a: {type: string}}}
    read_only: true
    cache_ttl: 5
  - name: run
    type: script
    script:
      interpreter: bash
      path: /bin/run.sh
      args: [a]
      env: {A: b}
      cwd: sub
      timeout: 18
      stdin: x
      result: r
      max_output: 5
      concurrency: 6
    input_schema: {type: object}
auth_configs:
  - {name: key, type: api_key, api_key: {location: query, name: k, value: v}}
  - {name: bearer, type: bearer_token, bearer_token: {token: t}}
  - {name: basic, type: basic_auth, basic_auth: {username: u, password: p}}
  - {name: oauth, type: oauth2, oauth2: {client_id: i, client_secret: s, token_url: "https://h/t", scope: r,
      client_auth: post, params: {audience: a}}}
  - {name: custom, type: custom_header, custom_header: {headers: {X-Key: k}}}
profiles:
  - name: team
    servers: [one, two]
    tools: [fetch_*, "!fetch_all"]
    prompts: ["*"]
    resources: ["file://*"]
    mode: search
    tokens: [t]
    limits: {per_minute: 7}
policy:
  default: deny
  rules:
    - effect: ask
      profiles: [team]
      principals: [alice]
      servers: [one]
      tools: [rm_*]
      read_only: false
      destructive: true
      arguments: {path: /etc/*}
      reason: ask first
    - {effect: allow}
global:
  default_timeout: 20
  call_timeout: 21
  max_retries: 22
  retry_delay: 23
  log_level: DEBUG
  log_file: mcp.log
  hot_reload: false
  hot_reload_interval: 24
  health_check_enabled: false
  health_check_interval: 25
  tool_proxy_mode: true
  tool_proxy: {enable_search: false, enable_execute: false, enable_list_services: false, search_limit: 26}
  schema_format: typescript
  value_format: json
  schema_compression_enabled: false
  max_description_len: 27
  toon_compression_enabled: false
  toon_compression_min_size: 28
  json_compression_enabled: false
  structured_content: omit
  menu_budget: 29
  auto_budget: 30
  auto_direct_limit: 301
  result_limit: 31
  startup_wait: 32
  max_message: 33
  max_request: 34
  script_paths: [scripts, /opt/scripts]
  trust: pin
"""


def test_every_key_arrives(loaded: Callable[..., Config], folder: Path) -> None:
    common: dict[str, Any] = {
        "call_timeout": 21.0,
        "max_retries": 22,
        "retry_delay": 23.0,
        "health_check_enabled": False,
        "health_check_interval": 25.0,
        "schema_format": "typescript",
        "value_format": "json",
        "schema_compression_enabled": False,
        "max_description_len": 27,
        "toon_compression_enabled": False,
        "toon_compression_min_size": 28,
        "json_compression_enabled": False,
        "structured_content": "omit",
        "result_limit": 31,
        "max_message": 33,
        "trust": "pin",
    }
    inherited: dict[str, Any] = {**common, "timeout": 20.0}
    assert loaded(EVERY_KEY) == Config(
        mode="inspect",
        naming=Naming(separator="_", prefix="always", uris="plain", max_length=32),
        server=FrontServer(
            host="0.0.0.0",
            port=9000,
            admin_port=9001,
            admin_token="admin",
            auth=FrontAuth(
                type="bearer",
                tokens=(
                    Token(name="alice", token="a", profile="team", expires="2027-01-31T12:00:00Z"),
                ),
            ),
            tls=Tls(cert=str(folder / "cert.pem"), key="/etc/key.pem"),
            allowed_hosts=("tools.example.com",),
            allowed_origins=("https://app.example:8443",),
            trusted_proxies=("10.0.0.0/8",),
            limits=FrontLimits(sessions=1, in_flight=2, per_minute=3, queue=0),
            store="redis://h",
            drain=5.0,
        ),
        mcp_servers=(
            Server(
                name="one",
                description="first",
                enabled=True,
                prefix="o",
                connection=Stdio(
                    command="npx",
                    args=("-y", "server"),
                    env={"A": "b"},
                    cwd=str(folder / "sub"),
                    inherit_env=("DISPLAY",),
                    framing="content-length",
                ),
                timeout=5.0,
                call_timeout=6.0,
                isolation="per_session",
                max_links=2,
                lazy=True,
                start_timeout=8.0,
                idle_timeout=7.0,
                auto_reconnect=False,
                retry_on_failure=False,
                max_retries=8,
                retry_delay=9.0,
                max_age=100.0,
                max_memory=200,
                cache_ttl=10.0,
                trust="quarantine",
                limits=Limits(in_flight=4, per_minute=5, queue=6),
                health_check_enabled=False,
                health_check_interval=11.0,
                max_message=13,
                schema_format="json",
                value_format="toon",
                schema_compression_enabled=False,
                max_description_len=14,
                toon_compression_enabled=False,
                toon_compression_min_size=15,
                json_compression_enabled=False,
                structured_content="omit",
                result_limit=16,
            ),
            Server(
                name="two",
                auth="key",
                connection=Http(url="http://h/mcp", headers={"A": "b"}),
                **inherited,
            ),
            Server(
                name="three", connection=Sse(url="https://h/sse", headers={"A": "b"}), **inherited
            ),
            Server(
                name="four", connection=Websocket(url="wss://h/ws", headers={"A": "b"}), **inherited
            ),
        ),
        commands=(
            Command(
                name="fetch",
                description="fetches",
                action=HttpRequest(
                    method="POST",
                    url="https://h/{id}",
                    headers={"A": "b"},
                    params={"q": "{id}", "n": "1.50"},
                    body={"id": "{id}", "n": 1, "params": {"k": 2}},
                    auth="key",
                    timeout=17.0,
                    response_format="text",
                    body_format="json",
                    max_retries=1,
                    retry_delay=2.0,
                    result="a.b",
                    max_response=3,
                    allow_private=True,
                ),
                parameters=(
                    Parameter(
                        name="id",
                        type="integer",
                        required=True,
                        default=1,
                        description="which",
                        enum=(1, 2),
                        min=1.0,
                        max=2.0,
                    ),
                    Parameter(name="words", type="array", items={"type": "string"}),
                    Parameter(name="word", pattern="^a"),
                    Parameter(name="thing", type="object", properties={"a": {"type": "string"}}),
                ),
                read_only=True,
                cache_ttl=5.0,
            ),
            Command(
                name="run",
                action=Script(
                    interpreter="bash",
                    path="/bin/run.sh",
                    args=("a",),
                    env={"A": "b"},
                    cwd=str(folder / "sub"),
                    timeout=18.0,
                    stdin="x",
                    result="r",
                    max_output=5,
                    concurrency=6,
                ),
                input_schema={"type": "object"},
            ),
        ),
        auth_configs=(
            AuthConfig(name="key", auth=ApiKey(location="query", name="k", value="v")),
            AuthConfig(name="bearer", auth=BearerToken(token="t")),
            AuthConfig(name="basic", auth=BasicAuth(username="u", password="p")),
            AuthConfig(
                name="oauth",
                auth=OAuth2(  # pyright: ignore[reportArgumentType]
                    client_id="i",
                    client_secret="s",
                    token_url="https://h/t",
                    scope="r",
                    client_auth="post",
                    params={"audience": "a"},
                ),
            ),
            AuthConfig(name="custom", auth=CustomHeader(headers={"X-Key": "k"})),
        ),
        profiles=(
            Profile(
                name="team",
                servers=("one", "two"),
                tools=("fetch_*", "!fetch_all"),
                prompts=("*",),
                resources=("file://*",),
                mode="search",
                tokens=("t",),
                limits=Limits(per_minute=7),
            ),
        ),
        policy=Policy(
            default="deny",
            rules=(
                PolicyRule(
                    effect="ask",
                    profiles=("team",),
                    principals=("alice",),
                    servers=("one",),
                    tools=("rm_*",),
                    read_only=False,
                    destructive=True,
                    arguments={"path": "/etc/*"},
                    reason="ask first",
                ),
                PolicyRule(effect="allow"),
            ),
        ),
        global_=Global(
            default_timeout=20.0,
            startup_wait=32.0,
            log_level="DEBUG",
            log_file=str(folder / "mcp.log"),
            hot_reload=False,
            hot_reload_interval=24.0,
            tool_proxy_mode=True,
            tool_proxy=ToolProxy(
                enable_search=False,
                enable_execute=False,
                enable_list_services=False,
                search_limit=26,
            ),
            menu_budget=29,
            auto_budget=30,
            auto_direct_limit=301,
            max_request=34,
            script_paths=(str(folder / "scripts"), "/opt/scripts"),
            **common,
        ),
        path=folder / "config.yaml",
    )


SECTIONS = {
    "the top": ("{0}", Config),
    "server": ("server: {{{0}}}", FrontServer),
    "server.auth": ("server: {{auth: {{{0}}}}}", FrontAuth),
    "server.tls": ("server: {{tls: {{cert: a, key: b, {0}}}}}", Tls),
    "naming": ("naming: {{{0}}}", Naming),
    "mcp_servers[]": (
        "mcp_servers: [{{name: a, connection: {{type: stdio, command: b}}, {0}}}]",
        Server,
    ),
    "a stdio connection": (
        "mcp_servers: [{{name: a, connection: {{type: stdio, command: b, {0}}}}}]",
        Stdio,
    ),
    "an http connection": (
        "mcp_servers: [{{name: a, connection: {{type: http, url: 'http://b', {0}}}}}]",
        Http,
    ),
    "commands[]": ("commands: [{{name: a, type: script, script: {{path: /b}}, {0}}}]", Command),
    "commands[].script": (
        "commands: [{{name: a, type: script, script: {{path: /b, {0}}}}}]",
        Script,
    ),
    "commands[].http": (
        "commands: [{{name: a, type: http, http: {{url: 'http://b', {0}}}}}]",
        HttpRequest,
    ),
    "auth_configs[]": (
        "auth_configs: [{{name: a, type: bearer_token, bearer_token: {{token: t}}, {0}}}]",
        AuthConfig,
    ),
    "server.limits": ("server: {{limits: {{{0}}}}}", FrontLimits),
    "policy": ("policy: {{{0}}}", Policy),
    "policy.rules[]": ("policy: {{rules: [{{effect: allow, {0}}}]}}", PolicyRule),
    "profiles[]": ("profiles: [{{name: a, {0}}}]", Profile),
    "global": ("global: {{{0}}}", Global),
    "global.tool_proxy": ("global: {{tool_proxy: {{{0}}}}}", ToolProxy),
}


OF_TYPE = {"commands[]": ("action",), "auth_configs[]": ("auth",)}
"""Fields that stand under the key that `type` says."""


@pytest.mark.parametrize("section", SECTIONS)
def test_a_misspelt_key_is_an_error_that_names_the_right_one(
    section: str, refused: Callable[..., str]
) -> None:
    """CFG-4, for every key of every section."""
    template, cls = SECTIONS[section]
    assert is_dataclass(cls)
    in_file = [
        field.name.rstrip("_") for field in fields(cls) if field.metadata.get("in_file", True)
    ]
    in_file = ["type" if key in OF_TYPE.get(section, ()) else key for key in in_file]
    assert in_file
    for key in in_file:
        typo = f"{key}_"
        message = refused(template.format(f"{typo}: 1"))
        assert f"unknown key '{typo}'" in message, key
        assert f"did you mean '{key}'?" in message, key


@pytest.mark.parametrize("section", SECTIONS)
def test_schema_and_x_keys_are_allowed_everywhere(
    section: str, loaded: Callable[..., Config]
) -> None:
    template, _ = SECTIONS[section]
    body = template.format("$schema: https://s, x-mine: {any: thing}")
    loaded(body if section != "the top" else "$schema: https://s\nx-mine: {any: thing}")


@pytest.mark.parametrize("key", ["dialect", "path", "sources", "warnings"])
def test_fields_we_fill_in_ourselves_are_no_keys(key: str, refused: Callable[..., str]) -> None:
    assert f"unknown key '{key}'" in refused(f"{key}: native")


def test_every_field_has_its_line_of_documentation() -> None:
    """The config reference is generated from them."""
    import ast

    folder = Path(__file__).parents[2] / "src" / "mcpx"
    for module in ("config/schema.py", "config/sections.py", "commands/parameters.py"):
        for cls in [
            node
            for node in ast.parse((folder / module).read_text()).body
            if isinstance(node, ast.ClassDef)
        ]:
            assert ast.get_docstring(cls), cls.name
            for field, doc in zip(cls.body, [*cls.body[1:], None], strict=True):
                if isinstance(field, ast.AnnAssign):
                    assert isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant), (
                        ast.unparse(field)
                    )


def test_a_global_key_at_a_server_counts_for_that_server(loaded: Callable[..., Config]) -> None:
    config = loaded(
        "global: {default_timeout: 5, call_timeout: 50, max_message: 1000}\n"
        "mcp_servers:\n"
        "  - {name: a, connection: {type: stdio, command: x}}\n"
        "  - {name: b, connection: {type: stdio, command: x}, call_timeout: 60, max_message: "
        "2000, timeout: 6}\n"
        "  - {name: c, connection: {type: stdio, command: x}, default_timeout: 7}\n"
        "commands: [{name: d, type: http, http: {url: 'http://h'}}]\n"
    )
    a, b, c = config.mcp_servers
    assert (a.timeout, a.call_timeout, a.max_message) == (5, 50, 1000)
    assert (b.timeout, b.call_timeout, b.max_message) == (6, 60, 2000)
    assert (c.timeout, c.call_timeout, c.max_message) == (7, 50, 1000)
    assert getattr(config.commands[0].action, "timeout", None) == 5


def test_tool_proxy_mode_makes_search_the_default_but_mode_wins(
    loaded: Callable[..., Config],
) -> None:
    """SUR-6."""
    assert loaded("mcp_servers: []").mode == "direct"
    assert loaded("global: {tool_proxy_mode: true}").mode == "search"
    assert loaded("global: {tool_proxy_mode: '${P}'}", P="true").mode == "search"
    assert loaded("global: {tool_proxy_mode: true}\nmode: inspect").mode == "inspect"


def test_a_key_without_value_is_as_if_it_were_not_there(loaded: Callable[..., Config]) -> None:
    config = loaded("mcp_servers:\ncommands:\nglobal:\nnaming:\nmode:\nserver:\n  port:\n")
    assert (config.mode, config.mcp_servers, config.server.port) == ("direct", (), 8000)
