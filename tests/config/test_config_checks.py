"""What must hold between fields, and what is odd but allowed (CFG-4, CFG-9)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpx.config import Config, load

Loaded = Callable[..., Config]
Refused = Callable[..., str]

STDIO = "connection: {type: stdio, command: x}"
HTTP = "connection: {type: http, url: 'http://h/mcp'}"
BEARER = "auth_configs: [{name: k, type: bearer_token, bearer_token: {token: t}}]"
IN_BODY = "auth_configs: [{name: k, type: api_key, api_key: {name: a, value: b, location: Body}}]"
OF_OURS = (
    "auth_configs: [{name: k, type: custom_header, custom_header: {headers: {Mcp-Session-Id: s}}}]"
)


def odd(config: Config) -> list[str]:
    """The warnings beside the one about keys without effect (test_config_unapplied.py)."""
    return [warning for warning in config.warnings if not warning.startswith("not applied")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"mcp_servers: [{{name: a, {STDIO}}}, {{name: a, {STDIO}}}]", "two servers are named 'a'"),
        ("servers: [{id: a, command: [x]}, {id: a, command: [y]}]", "two servers are named 'a'"),
        (f"mcp_servers: [{{name: mcpx, {STDIO}}}]", "the server name 'mcpx' is reserved"),
        (f"mcp_servers: [{{name: commands, {STDIO}}}]", "the server name 'commands' is reserved"),
        ("mcp_servers: [{name: mcpx, command: x}]", "the server name 'mcpx' is reserved"),
        ("servers: [{id: commands, command: [x]}]", "the server name 'commands' is reserved"),
        ("server: {auth: {type: jwt}}", "missing key 'issuer'"),
        (
            "server: {auth: {type: jwt, issuer: 'https://i', tokens: [{name: a, token: t}]}}",
            "'tokens' goes with",
        ),
        ("server: {auth: {issuer: 'https://i'}}", "'issuer' goes with 'type: jwt'"),
        ("server: {auth: {type: jwt, issuer: me}}", "must begin with http:// or https://"),
        ("server: {auth: {type: jwt, issuer: 'http://i.example'}}", "must begin with https://"),
        (
            "server: {auth: {type: jwt, issuer: 'http://localhost.example'}}",
            "must begin with https://",
        ),
        (
            "server: {auth: {type: jwt, issuer: 'https://i', jwks_url: 'http://10.0.0.1/keys'}}",
            "must begin with https://",
        ),
        ("server: {auth: {tokens: [{name: a, token: t, profile: p}]}}", "no profile named 'p'"),
        (
            "server: {auth: {tokens: [{name: a, token: t, expires: soon}]}}",
            "must be a date, or a date and time",
        ),
        (
            "server: {auth: {tokens: [{name: a, token: t}, {name: b, token: t}]}}",
            "two tokens are the same",
        ),
        (
            "profiles: [{name: p}]\nserver: {auth: {scopes: {a: p}}}",
            "'scopes' goes with 'type: jwt'",
        ),
        (
            "server: {auth: {type: jwt, issuer: 'https://i', scopes: {a: p}}}",
            "no profile named 'p'",
        ),
        ("server: {allowed_hosts: ['https://gw.example']}", "not the name of a host"),
        ("server: {allowed_hosts: ['gw.example:443']}", "not the name of a host"),
        ("server: {allowed_hosts: ['*']}", "not the name of a host"),
        ("server: {trusted_proxies: [proxy.example]}", "not an address or network"),
        ("server: {trusted_proxies: [10.0.0.0/99]}", "not an address or network"),
        ("server: {trusted_proxies: [7.5]}", "not an address or network"),
        ("server: {trusted_proxies: [true]}", "not an address or network"),
        ("server: {allowed_origins: [7]}", "not the origin of a web page"),
        ("policy: {rules: [{effect: deny, profiles: [p]}]}", "no profile named 'p'"),
        ("policy: {rules: [{tools: [rm_*]}]}", "missing key 'effect'"),
        ("policy: {rules: [{effect: forbid}]}", "one of allow, deny, ask"),
        ("policy: {default: ask}", "one of allow, deny"),
        ("policy: {rules: [{effect: deny, servers: [nope]}]}", "no server named 'nope'"),
        ("policy: {rules: [{effect: deny, servers: ['!nope']}]}", "no server named 'nope'"),
        ("policy: {rules: [{effect: deny, tools: []}]}", "must not be empty"),
        ("policy: {rules: [{effect: deny, tools: ['!']}]}", "not a pattern: it matches nothing"),
        ("policy: {rules: [{effect: deny, arguments: {}}]}", "must not be empty"),
        ("policy: {rules: [{effect: deny, arguments: {a: []}}]}", "must not be empty"),
        ("policy: {rules: [{effect: deny, arguments: {a: null}}]}", "not a pattern"),
        ("policy: {rules: [{effect: deny, arguments: {a: [[x]]}}]}", "not a pattern"),
        ("policy: {rules: [{effect: deny, arguments: {a: {regex: x}}}]}", "not a pattern"),
        ("policy: {rules: [{effect: deny, arguments: {a: {jmespath: 5}}}]}", "not a pattern"),
        (
            "policy: {rules: [{effect: deny, arguments: {a..b: x}}]}",
            "not a possible name of an argument",
        ),
        (
            "policy: {rules: [{effect: deny, arguments: {a: {jmespath: 'b['}}}]}",
            "not a JMESPath expression",
        ),
        (
            "policy: {rules: [{effect: deny, arguments: {a: {jmespath: ''}}}]}",
            "not a JMESPath expression",
        ),
        (
            f"policy: {{rules: [{{effect: deny, arguments: {{a: {{jmespath: {'a' * 1001}}}}}}}]}}",
            "1,000 characters",
        ),
        ("global: {traces: {endpoint: 'localhost:4318'}}", "must begin with http:// or https://"),
        ("global: {traces: {endpoint: 'http://h', sample: 2}}", "must be between 0 and 1"),
        ("global: {traces: {endpoint: 'http://h', headers: {'a b': c}}}", "header"),
        (f"mcp_servers: [{{name: '', {STDIO}}}]", "not a possible server name"),
        (f"mcp_servers: [{{name: ' a', {STDIO}}}]", "not a possible server name"),
        (f'mcp_servers: [{{name: "a\\nb", {STDIO}}}]', "not a possible server name"),
        (f"mcp_servers: [{{name: {'a' * 65}, {STDIO}}}]", "not a possible server name"),
        (f"mcp_servers: [{{name: '..', {STDIO}}}]", "not a possible server name"),
        ("profiles: [{name: '.'}]", "not a possible profile name"),
        ("servers: [{id: 'a::b', command: [x]}]", "a name must not hold '::', the separator"),
        ("profiles: [{name: a}, {name: a}]", "two profiles are named 'a'"),
        ("profiles: [{name: a, servers: [nope]}]", "no server named 'nope'"),
        (
            "server: {auth: {tokens: [{name: a, token: t}, {name: a, token: u}]}}",
            "two tokens are named 'a'",
        ),
        (f"mcp_servers: [{{name: a, {STDIO}, auth: {{ref: b}}}}]", "no auth config named 'b'"),
        (
            "commands: [{name: a, type: http, http: {url: 'http://h', auth: {ref: b}}}]",
            "no auth config named 'b'",
        ),
        ("commands: [{name: a, type: http}]", "missing key 'http'"),
        (
            "commands: [{name: a, type: script, script: {path: /a}, http: {url: 'http://h'}}]",
            "'http' goes with",
        ),
        (
            "commands: [{name: a, type: http, http: {url: '{base}/x'}}]",
            "must begin with http:// or https://",
        ),
        ("commands: [{name: a, type: script, script: {path: ''}}]", "must not be empty"),
        ("auth_configs: [{name: a, type: oauth2}]", "missing key 'oauth2'"),
        (
            "auth_configs: [{name: a, type: oauth2, oauth2: {client_id: a, client_secret: b, "
            "token_url: c}}]",
            "must begin with http:// or https://",
        ),
        (
            'auth_configs: [{name: a, type: bearer_token, bearer_token: {token: "a\\nb"}}]',
            "holds a line break or NUL",
        ),
        (
            "auth_configs: [{name: a, type: bearer_token, bearer_token: {token: ''}}]",
            "must not be empty",
        ),
        (
            "auth_configs: [{name: a, type: oauth2, oauth2: {client_id: a, client_secret: b, "
            "token_url: 'http://h', "
            "params: {grant_type: password}}}]",
            "'grant_type' is set by mcpx",
        ),
        (
            f"{BEARER}\nmcp_servers: [{{name: a, {STDIO}, auth: {{ref: k}}}}]",
            "(mcp_servers[0].auth.ref)",
        ),
        (f"{BEARER}\nmcp_servers: [{{name: a, {STDIO}, auth: k}}]", "nobody signs in to it"),
        (
            f"{IN_BODY}\nmcp_servers: [{{name: a, {HTTP}, auth: k}}]",
            "in the body cannot be sent to an MCP server",
        ),
        (
            f"{OF_OURS}\nmcp_servers: [{{name: a, {HTTP}, auth: k}}]",
            "the header 'Mcp-Session-Id' of this auth config",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(text: str, message: str, refused: Refused) -> None:
    told = refused(text)
    assert message in told
    assert told.count("error:") == 1


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "app.example",
            "https://app.example/",
            "https://app.example/ui",
            "https://*.example",
            "'null'",
            "'*'",
            "''",
        ),
        *(
            "ws://app.example",
            "https://u@app.example",
            "https://app.example:0",
            "https://app.example:70000",
        ),
    ],
)
def test_what_is_no_origin_is_told_with_its_place(origin: str, refused: Refused) -> None:
    """CFG-4, SEC-1."""
    told = refused(f"server:\n  allowed_origins:\n    - https://good.example\n    - {origin}\n")
    assert "not the origin of a web page" in told and ":4:7" in told
    assert "https://app.example:8443" in told
    assert told.count("error:") == 1


@pytest.mark.parametrize(
    "name", ["a", "my server", "文件系统", "a.b-c_d", "io.github/x", "a::b", "x" * 64]
)
def test_a_server_may_have_any_name_people_give(name: str, loaded: Loaded) -> None:
    assert loaded(f"mcp_servers: [{{name: '{name}', {STDIO}}}]").mcp_servers[0].name == name


@pytest.mark.parametrize(
    ("kind", "url", "message"),
    [
        ("http", "ftp://h", "must begin with http:// or https://"),
        ("http", "h:3000/mcp", "must begin with http:// or https://"),
        ("http", "", "must begin with http:// or https://"),
        ("http", "ws://h", "it goes with 'type: websocket'"),
        ("sse", "ws://h", "must begin with http:// or https://"),
        ("websocket", "http://h", "it goes with 'type: http'"),
        ("http", "http://", "no host in the address"),
        ("http", "http:///mcp", "no host in the address"),
        ("http", "http://:80/mcp", "no host in the address"),
        ("http", "http://a b", "not a possible address"),
        ("http", "http://h/\\nx", "not a possible address"),
        ("http", "http://user:pw@h/mcp", "put credentials into 'headers'"),
        ("http", "http://user@h/mcp", "a user name or password in an address"),
        ("sse", "https://:pw@h/mcp", "a user name or password in an address"),
        ("websocket", "ws://user:pw@h/mcp", "a user name or password in an address"),
        ("http", "http://h:0/mcp", "a number from 1 to 65535"),
        ("http", "http://h:70000/mcp", "not a possible port"),
        ("http", "http://h:99999999999999999999/mcp", "not a possible port"),
        ("http", "http://h:-1/mcp", "not a possible port"),
        ("http", "http://h:²/mcp", "not a possible port"),
        ("http", "http://h:٣/mcp", "not a possible port"),
        ("http", "http://h:http/mcp", "not a possible port"),
        ("http", "http://h:80:90/mcp", "not a possible port"),
        ("http", "http://h:/mcp", "no port after the colon"),
        ("websocket", "wss://h:70000", "not a possible port"),
        ("http", "http://[fe80::1%eth0]/mcp", "an IPv6 address with a zone"),
        ("http", "http://[fe80::1%25eth0]/mcp", "an IPv6 address with a zone"),
        ("http", "http://[::1/mcp", "not a possible"),
        ("http", "http://[1.2.3.4]/mcp", "not a possible"),
        ("http", "http://a..b/mcp", "not a possible host"),
        ("http", "http://a_%41/mcp", "not a possible host"),
        ("http", "http://ex\u2100mple/mcp", "not a possible"),
        ("http", f"http://{'a' * 64}.test/mcp", "not a possible host"),
        ("http", f"http://{'ä' * 64}.test/mcp", "not a possible host"),
        ("http", "http://h\\\\@evil/mcp", "a user name or password in an address"),
        ("http", f"http://h/{'a' * 9000}", "longer than 8,192 characters"),
    ],
)
def test_an_address_that_cannot_be_right_is_refused(
    kind: str, url: str, message: str, refused: Refused
) -> None:
    assert message in refused(
        f'mcp_servers: [{{name: a, connection: {{type: {kind}, url: "{url}"}}}}]'
    )


@pytest.mark.parametrize(
    "url", ["HTTPS://h", "http://[::1]:80/x?y#z", "http://例え.テスト:81/ä?ö=ü", "http://a_b"]
)
def test_an_address_that_can_be_right_is_taken(url: str, loaded: Loaded) -> None:
    loaded(f"mcp_servers: [{{name: a, connection: {{type: http, url: '{url}'}}}}]")


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        ('{type: http, url: "http://h", headers: {"A b": c}}', "not a possible header name"),
        ('{type: http, url: "http://h", headers: {"": c}}', "not a possible header name"),
        ('{type: http, url: "http://h", headers: {A: "b\\r\\nC: d"}}', "holds a line break or NUL"),
        ('{type: http, url: "http://h", headers: {A: "b\\0"}}', "holds a line break or NUL"),
        ('{type: http, url: "http://h", headers: {A: "b\\x1b[1m"}}', "holds a line break or NUL"),
        (
            '{type: http, url: "http://h", headers: {A: 文}}',
            "holds a character that a header cannot",
        ),
        (
            '{type: http, url: "http://h", headers: {Content-Length: "3"}}',
            "'Content-Length' is set by mcpx",
        ),
        (
            '{type: sse, url: "http://h", headers: {transfer-encoding: chunked}}',
            "'transfer-encoding' is set by mcpx",
        ),
        ('{type: websocket, url: "ws://h", headers: {HOST: x}}', "'HOST' is set by mcpx"),
        (
            '{type: http, url: "http://h", headers: {Connection: close}}',
            "'Connection' is set by mcpx",
        ),
        (
            '{type: http, url: "http://h", headers: {Mcp-Session-Id: x}}',
            "'Mcp-Session-Id' is set by mcpx",
        ),
        (
            '{type: http, url: "http://h", headers: {mcp-anything: x}}',
            "'mcp-anything' is set by mcpx",
        ),
        (
            '{type: websocket, url: "ws://h", headers: {Sec-WebSocket-Key: x}}',
            "'Sec-WebSocket-Key' is set by mcpx",
        ),
        ('{type: stdio, command: x, env: {"A=B": c}}', "not a possible variable name"),
        ('{type: stdio, command: x, env: {"": c}}', "not a possible variable name"),
        ('{type: stdio, command: x, env: {A: "b\\0c"}}', "holds a NUL character"),
        ('{type: stdio, command: x, args: ["b\\0c"]}', "holds a NUL character"),
        ('{type: stdio, command: "x\\0"}', "holds a NUL character"),
        ('{type: stdio, command: x, cwd: "a\\0b"}', "holds a NUL character"),
        ('{type: stdio, command: ""}', "must not be empty"),
    ],
)
def test_what_no_header_and_no_process_can_carry_is_refused(
    connection: str, message: str, refused: Refused
) -> None:
    assert message in refused(f"mcp_servers: [{{name: a, connection: {connection}}}]")


def test_headers_that_only_sound_like_ours_are_taken(loaded: Loaded) -> None:
    headers = "{X-Mcp-Session: a, Host-Name: b, Mcp: c, Accept: '*/*', X-Ü: d}".replace(
        "X-Ü: d", "X-U: ü"
    )
    loaded(
        f"mcp_servers: [{{name: a, connection: {{type: http, url: 'http://h', headers: "
        f"{headers}}}}}]"
    )


def test_what_is_wrong_is_told_with_its_place_and_without_the_password(refused: Refused) -> None:
    told = refused(
        "mcp_servers:\n- name: a\n  connection: {type: http, url: 'http://user:hunter2@h'}\n"
    )
    assert "config.yaml:3:33" in told
    assert "hunter2" not in told
    assert "put credentials into 'headers'" in told


@pytest.mark.parametrize(
    "proxy",
    ["socks5://p:1080", "socks5h://u:pw@p", "SOCKS4://p", "https://p:3128", "p:²", "http://"],
)
def test_a_proxy_that_cannot_be_used_is_refused_where_it_would_be(
    proxy: str, refused: Refused, loaded: Loaded
) -> None:
    text = "mcp_servers: [{name: a, connection: {type: http, url: 'https://h.test/mcp'}}]"
    told = refused(text, HTTPS_PROXY=proxy)
    assert "error: HTTPS_PROXY: " in told
    assert "config.yaml:1:" in told
    assert "NO_PROXY" in told
    assert "pw" not in told
    loaded(text, HTTPS_PROXY=proxy, NO_PROXY="h.test")
    loaded(text, HTTP_PROXY=proxy)
    loaded(text.replace("h.test", "localhost"), HTTPS_PROXY=proxy)
    loaded(f"mcp_servers: [{{name: a, {STDIO}}}]", HTTPS_PROXY=proxy)


@pytest.mark.parametrize("port", ["²", "٣", "70000", "-1", "8_0", "http"])
def test_a_port_is_written_in_plain_digits(port: str, refused: Refused) -> None:
    assert "error:" in refused("server: {port: '${P}'}", P=port)


def test_a_variable_cannot_smuggle_a_header(refused: Refused) -> None:
    text = (
        "mcp_servers: [{name: a, connection: {type: http, url: 'http://h', headers: {A: '${V}'}}}]"
    )
    assert "holds a line break or NUL" in refused(text, V="b\r\nHost: evil")


def test_the_connection_of_a_disabled_server_is_not_judged(loaded: Loaded) -> None:
    loaded("mcp_servers: [{name: a, enabled: false, connection: {type: http, url: soon}}]")
    loaded("commands: [{name: a, enabled: false, type: http, http: {url: soon}}]")


def test_mistakes_between_fields_are_told_beside_wrong_types(refused: Refused) -> None:
    """An auth config with a mistake of its own is still there to be referred to."""
    message = refused(
        "auth_configs: [{name: key, type: bearer_token, bearer_token: {token: 3}}]\n"
        f"mcp_servers: [{{name: a, {HTTP}, auth: {{ref: key}}}}, {{name: a, {STDIO}, lazy: 3}}]\n"
    )
    assert "expected text, not a number" in message
    assert "two servers are named 'a'" in message
    assert "expected true or false" in message
    assert message.count("error:") == 3


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("{name: a, type: integer, default: x}", "not of type integer"),
        ("{name: a, type: integer, default: true}", "not of type integer"),
        ("{name: a, type: boolean, default: 1}", "not of type boolean"),
        ("{name: a, enum: [1]}", "not of type string"),
        ("{name: a, enum: [b], default: c}", "the default is not in 'enum'"),
        ("{name: a, type: text}", "unknown type 'text'"),
        ("{name: a}, {name: a}", "two parameters are named 'a'"),
    ],
)
def test_a_parameter_that_contradicts_itself_is_refused(
    parameter: str, message: str, refused: Refused
) -> None:
    """SRC-5."""
    text = (
        f"commands: [{{name: c, type: script, script: {{path: /bin/sh}}, parameters: "
        f"[{parameter}]}}]"
    )
    assert message in refused(text)


def test_a_script_that_is_not_there_is_a_warning(loaded: Loaded, folder: Path) -> None:
    """It may appear later; the command says so when it is called."""
    config = loaded("commands: [{name: run, type: script, script: {path: scripts/run.sh}}]")
    (warning,) = odd(config)
    assert warning == f"the script of command 'run' is not there: {folder}/scripts/run.sh"
    assert getattr(config.commands[0].action, "path", None) == f"{folder}/scripts/run.sh"


def test_a_script_outside_of_the_folders_is_a_warning(loaded: Loaded, folder: Path) -> None:
    """SEC-3: a call would be refused; whoever checks the file hears it before."""
    (folder / "run.sh").write_text("")
    inside = "commands: [{name: run, type: script, script: {path: run.sh}}]"
    assert odd(loaded(inside)) == []
    (warning,) = odd(loaded(f"{inside}\nglobal: {{script_paths: [scripts]}}"))
    assert warning.startswith("the script of command 'run' is outside of 'global.script_paths'")
    assert warning.endswith(f"{folder}/run.sh")


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("http: {url: 'https://x.example', method: post}", True),
        ("http: {url: 'https://x.example', method: POST}, read_only: true", False),
        ("http: {url: 'https://x.example'}", False),
    ],
)
def test_a_cache_that_keeps_nothing_is_a_warning(keys: str, told: bool, loaded: Loaded) -> None:
    warnings = odd(loaded(f"commands: [{{name: a, type: http, cache_ttl: 5, {keys}}}]"))
    assert [
        warning.startswith("the 'cache_ttl' of command 'a' has no effect") for warning in warnings
    ] == [True] * told


def test_a_pattern_that_cannot_be_checked_is_refused(refused: Callable[..., str]) -> None:
    """SRC-5: it would guard nothing."""
    url = "type: http, http: {url: 'https://x.example/{q}'}"
    told = refused(f"commands: [{{name: a, {url}, parameters: [{{name: q, pattern: '[a-'}}]}}]")
    assert (
        "no JSON Schema that can be checked here" in told and "(commands[0].parameters[0])" in told
    )


@pytest.mark.parametrize(
    ("http", "warning"),
    [
        (
            "url: 'http://127.0.0.1:8080/{q}'",
            "command 'a' will not reach 127.0.0.1, which is not public, without",
        ),
        ("url: 'http://localhost/{q}'", "command 'a' will not reach localhost"),
        ("url: 'http://[::1]/{q}'", "command 'a' will not reach ::1"),
        ("url: 'http://10.0.0.1/{q}', allow_private: true", None),
        ("url: 'https://x.example/{q}'", None),
        (
            "url: 'https://x.example', method: POST, body: '{\"a\": \"{q}\"}'",
            "the 'body' of command 'a' looks like JSON",
        ),
        (
            "url: 'https://x.example', method: POST, body_format: json, body: '{\"a\": \"{q}\"}'",
            None,
        ),
        ("url: 'https://x.example', method: POST, body: '{q}'", None),
    ],
)
def test_what_a_request_would_stumble_over_is_a_warning(
    http: str, warning: str | None, loaded: Loaded
) -> None:
    """SRC-3: whoever checks the file hears it before a call does."""
    found = odd(
        loaded(
            f"commands: [{{name: a, type: http, http: {{{http}}}, parameters: [{{name: q, "
            f"required: true}}]}}]"
        )
    )
    assert [text.startswith(warning or "") for text in found] == [True] * (warning is not None)


def test_scripts_may_be_in_the_folder_of_a_config_with_an_empty_global_section(
    folder: Path,
) -> None:
    path = folder / "config.yaml"
    path.write_text("global: {}\n")
    assert load(path, {}).global_.script_paths == (str(folder),)


def test_paths_are_relative_to_the_folder_of_the_config(folder: Path) -> None:
    (folder / "sub").mkdir()
    path = folder / "sub" / "config.yaml"
    path.write_text(
        "mcp_servers: [{name: a, connection: {type: stdio, command: ./run, cwd: ../work}}]\n"
        "global: {log_file: ~/mcp.log}\n"
    )
    config = load(Path("sub/config.yaml"), {})
    assert getattr(config.mcp_servers[0].connection, "cwd") == str(folder / "work")  # noqa: B009
    assert config.global_.log_file == str(Path.home() / "mcp.log")
    assert config.global_.script_paths == (str(folder / "sub"),)
    assert config.path == path


SECRETS = {
    "headers": "mcp_servers: [{name: a, url: 'http://h', headers: {Authorization: Bearer abc}}]",
    "env": "mcp_servers: [{name: a, command: x, env: {GITHUB_TOKEN: abc}}]",
    "admin": "server: {admin_token: abc}",
    "api key": "auth_configs: [{name: a, type: api_key, api_key: {name: k, value: abc}}]",
    "password": (
        "auth_configs: [{name: a, type: basic_auth, basic_auth: {username: u, password: abc}}]"
    ),
    "client": "mcpServers: {a: {command: x, env: {API_KEY: abc}}}",
}


@pytest.mark.parametrize("where", SECRETS)
def test_a_literal_secret_in_a_file_others_may_read_is_warned_about(
    where: str, loaded: Loaded, folder: Path
) -> None:
    """CFG-9."""
    assert odd(loaded(SECRETS[where])) == []
    (folder / "config.yaml").chmod(0o644)
    (warning,) = odd(load(folder / "config.yaml", {}))
    assert warning.startswith("config.yaml holds a secret (")
    assert "mode 0644" in warning
    assert "abc" not in warning


def test_a_literal_secret_in_a_file_that_the_group_may_read_is_warned_about(
    loaded: Loaded, folder: Path
) -> None:
    """CFG-9."""
    loaded(SECRETS["admin"])
    (folder / "config.yaml").chmod(0o640)
    warnings = odd(load(folder / "config.yaml", {}))
    assert ["mode 0640" in warning for warning in warnings] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers: [{name: a, url: 'http://h', headers: {Authorization: 'Bearer ${T}'}}]",
        "mcp_servers: [{name: a, command: x, env: {MAX_TOKENS: 500, TOKEN: '${T}'}}]",
        "auth_configs: [{name: a, type: oauth2, oauth2: "
        "{client_id: a, client_secret: '${T}', token_url: 'https://h'}}]",
        "commands: [{name: a, type: http, http: {url: 'http://h', params: {api_key: "
        "'{api_key}'}}}]",
        "auth_configs: [{name: a, type: custom_header, custom_header: {headers: {X-Tenant: acme, "
        "X-Key: '${T}'}}}]",
    ],
)
def test_a_secret_kept_elsewhere_is_no_reason_to_warn(
    text: str, loaded: Loaded, folder: Path
) -> None:
    loaded(text, T="t")
    (folder / "config.yaml").chmod(0o644)
    assert odd(load(folder / "config.yaml", {"T": "t"})) == []


def test_a_warning_does_not_make_a_configuration_different(loaded: Loaded, folder: Path) -> None:
    before = loaded(SECRETS["admin"])
    (folder / "config.yaml").chmod(0o644)
    after = load(folder / "config.yaml", {})
    assert before.warnings != after.warnings
    assert before == after


def test_the_place_of_a_mistake_in_a_rule_is_told(refused: Refused) -> None:
    text = "policy:\n  rules:\n    - effect: deny\n      arguments: {a: {jmespath: 'b['}}"
    assert "policy.rules[0].arguments.a.jmespath" in refused(text)


def test_all_that_a_rule_may_say_of_arguments_is_taken(loaded: Loaded) -> None:
    config = loaded(
        "policy: {rules: [{effect: ask, servers: [mcpx, commands, 'x*'], arguments: "
        "{a: 'b*', c.d: [1, true, '!x'], '*': {jmespath: 'length(@) > `1`'}}}]}"
    )
    assert config.policy.rules[0].arguments is not None and odd(config) == []


def test_a_rule_that_is_never_reached_is_told(loaded: Loaded) -> None:
    config = loaded(
        "policy: {rules: [{effect: deny, reason: closed}, {effect: allow, tools: [a]}]}"
    )
    assert odd(config) == ["rule 2 of the policy is never reached: rule 1 holds for every call"]
