"""How mistakes are told: all at once, with place, path, cause and what was meant (CFG-4)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpx.config import Config, load
from mcpx.config.problems import MAX_FINDINGS
from mcpx.model.errors import ConfigError

Refused = Callable[..., str]


def test_all_mistakes_are_told_at_once_in_this_look(refused: Refused) -> None:
    text = """\
auth_configs:
  - {name: github-token, type: basic_auth, basic_auth: {username: u, password: p}}
mcp_servers:
  - name: one
    command: npx
    auth: github-tokn
  - name: two
    lazy: true
    comand: npx
    timeout: "30"
mode: serach
"""
    assert (
        refused(text)
        == """\
error: no auth config named 'github-tokn'
  --> config.yaml:6:11  (mcp_servers[0].auth)
   |
 6 |     auth: github-tokn
   |           ^^^^^^^^^^^ did you mean 'github-token'?

error: unknown key 'comand'
  --> config.yaml:9:5  (mcp_servers[1].comand)
   |
 9 |     comand: npx
   |     ^^^^^^ did you mean 'command'?

error: expected a number, not text
   --> config.yaml:10:14  (mcp_servers[1].timeout)
    |
 10 |     timeout: "30"
    |              ^^^^ take off the quotes

error: unknown mode 'serach'
   --> config.yaml:11:7  (mode)
    |
 11 | mode: serach
    |       ^^^^^^ did you mean 'search'?

4 errors in config.yaml."""
    )


def test_each_finding_is_one_problem_of_the_error(folder: Path) -> None:
    Path("config.yaml").write_text("a: 1\nb: 2\n")
    with pytest.raises(ConfigError) as caught:
        load(Path("config.yaml"), {})
    first, second = caught.value.problems
    assert first.startswith("error: unknown key 'a'")
    assert second.endswith("2 errors in config.yaml.")


def test_a_single_mistake_is_counted_in_the_singular(refused: Refused) -> None:
    assert refused("a: 1").endswith("\n\n1 error in config.yaml.")


def test_a_file_below_the_working_folder_is_named_as_a_terminal_can_open_it(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "c.yaml").write_text("a: 1")
    with pytest.raises(ConfigError, match=r"--> sub/c\.yaml:1:1"):
        load(folder / "sub" / "c.yaml", {})


def test_a_mistake_in_json_is_told_as_one_in_yaml(refused: Refused) -> None:
    """Tabs, comments and escaped emoji do not shift the place."""
    text = (
        '{\n\t// a comment\n\t"mcp_servers": [\n\t\t{"name": "\\ud83d\\ude00", /* why */ '
        '"comand": "npx"},\n\t]\n}\n'
    )
    assert (
        refused(text, "config.json")
        == """\
error: unknown key 'comand'
  --> config.json:4:38  (mcp_servers[0].comand)
   |
 4 |   {"name": "\\ud83d\\ude00", /* why */ "comand": "npx"},
   |                                      ^^^^^^^^ did you mean 'command'?

1 error in config.json."""
    )


def test_a_mistake_in_a_client_file_is_told_in_the_words_of_that_file(refused: Refused) -> None:
    text = '{"mcpServers": {\n  "my server": {"command": "npx", "args": 3}\n}}'
    message = refused(text, "mcp.json")
    assert "--> mcp.json:2:43  (mcpServers['my server'].args)" in message


def test_a_mistake_in_a_global_word_is_told_once_where_it_stands(refused: Refused) -> None:
    servers = ", ".join(
        f"{{name: s{n}, connection: {{type: stdio, command: x}}}}" for n in range(5)
    )
    message = refused(f"global:\n  call_timeout: -1\nmcp_servers: [{servers}]")
    assert message.count("error:") == 1
    assert "--> config.yaml:2:17  (global.call_timeout)" in message


def test_chinese_text_before_the_place_does_not_shift_the_carets(refused: Refused) -> None:
    text = "mcp_servers:\n  - {name: 文件系统, connection: {type: stdio, command: x}, lazy: 3}\n"
    lines = refused(text).splitlines()
    assert lines[1] == "  --> config.yaml:2:63  (mcp_servers[0].lazy)"
    # Four characters that take two columns each.
    assert lines[4].index("^") == lines[3].index("3}") + 4


def test_a_long_line_is_cut_around_the_place(refused: Refused) -> None:
    args = ", ".join(["word"] * 60)
    message = refused(f"mcp_servers: [{{name: a, args: [{args}], lazy: 3, command: x}}]")
    assert all(len(line) < 120 for line in message.splitlines())
    assert "lazy: 3" in message


def test_a_file_of_another_kind_ends_in_a_bounded_number_of_errors(refused: Refused) -> None:
    message = refused("\n".join(f"key{n}: 1" for n in range(1000)))
    assert message.count("error:") == MAX_FINDINGS
    assert message.endswith("; there may be more.")


def test_a_key_of_any_length_is_told_briefly(refused: Refused) -> None:
    message = refused('{"' + "command" * 20_000 + '": 1}', "config.json")
    assert len(message) < 400


def test_a_typo_hides_the_missing_key_it_explains(refused: Refused) -> None:
    native = "mcp_servers: [{name: a, connection: {type: stdio, comand: x}}]"
    flat = "mcp_servers: [{name: a, comand: x}]"
    for text in (native, flat):
        message = refused(text)
        assert "did you mean 'command'?" in message
        assert message.count("error:") == 1


def test_a_connection_at_the_wrong_level_is_told_where_it_belongs(refused: Refused) -> None:
    message = refused(
        "mcp_servers:\n  - {name: a, connection: {type: stdio, command: x}}\n  - {name: b, "
        "command: x}\n"
    )
    assert "unknown key 'command'" in message
    assert "it belongs under 'connection'" in message
    assert "missing" not in message
    assert "it belongs under 'global'" in refused("server: {}\nhot_reload: true")


def test_a_missing_key_is_told_at_what_lacks_it(refused: Refused) -> None:
    message = refused("mcp_servers:\n  - connection:\n      type: stdio\n")
    assert "missing key 'name'\n  --> config.yaml:2:5  (mcp_servers[0])" in message
    assert "missing key 'command'\n  --> config.yaml:2:5  (mcp_servers[0].connection)" in message


@pytest.mark.parametrize(
    ("connection", "hint"),
    [
        ("{command: x}", "did you mean 'type: stdio'?"),
        ("{url: 'http://x'}", "did you mean 'type: http'?"),
        ("{}", "one of http, sse, stdio, websocket"),
    ],
)
def test_a_connection_without_type_is_told_what_was_meant(
    connection: str, hint: str, refused: Refused
) -> None:
    message = refused(f"mcp_servers: [{{name: a, connection: {connection}}}]")
    assert "missing key 'type'" in message
    assert hint in message


def test_a_key_of_another_connection_type_is_told_so(refused: Refused) -> None:
    message = refused(
        "mcp_servers: [{name: a, connection: {type: stdio, command: x, url: 'http://y'}}]"
    )
    assert "unknown key 'url'" in message
    assert "it goes with 'type: http'" in message


def test_a_syntax_error_in_yaml_has_its_place_and_a_hint(refused: Refused) -> None:
    assert (
        refused("mode: direct\nserver:\n\tport: 1\n")
        == """\
error: not valid YAML: found character that cannot start any token
  --> config.yaml:3:1
   |
 3 |  port: …
   | ^ indent with spaces, not tabs; quote text that begins with @ ` or %

1 error in config.yaml."""
    )


def test_a_syntax_error_in_json_has_its_place(refused: Refused) -> None:
    message = refused('{\n  "mode": "direct"\n  "server": {}\n}', "config.json")
    assert message.startswith(
        "error: not valid JSON: expecting ',' delimiter\n  --> config.json:3:3\n"
    )


def test_the_value_of_a_secret_is_never_printed(refused: Refused) -> None:
    """CFG-9: neither the wrong value itself nor one that stands on the same line or beside a syntax
    error."""
    texts = [
        "mcp_servers: [{name: a, comand: x, env: {GITHUB_TOKEN: sesame}}]",
        "mcp_servers:\n  - name: a\n    command: x\n    env:\n      FOO: [sesame]\n",
        "mcp_servers:\n  - {name: a, url: 'ftp://me:sesame@host/'}\n",
        "mcp_servers:\n  - {name: a, url: 'http://h', headers: {Authorization: \"Bearer "
        'sesame\\nX: y"}}\n',
        "mcp_servers:\n  - {name: a, command: x, args: [--token, sesame], lazy: 3}\n",
        "server: {admin_token: {t: sesame}}",
        "auth_configs:\n  - name: a\n    type: bearer_token\n    bearer_token:\n      tokn: "
        "sesame\n",
        "auth_configs: [{name: a, type: basic_auth, basic_auth: {username: u, password: "
        "[sesame]}}]",
        "mcp_servers:\n  - name: a\n    command: x\n    env:\n      FOO: 'sesame\n",
        "mcp_servers:\n  - name: a\n    env:\n      FOO: sesame: x\n",
        "mode: ${SECRET}",
        "server: {port: '${SECRET}'}",
        "mcp_servers: [{name: a, url: '${SECRET}'}]",
    ]
    for text in texts:
        assert "sesame" not in refused(text, SECRET="sesame"), text


def test_control_characters_of_a_file_do_not_reach_the_terminal(refused: Refused) -> None:
    message = refused('{"\\u001b[31mred": 1}', "config.json")
    assert "\x1b" not in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lazy: 1", "expected true or false, not a number"),
        ("lazy: 'yes'", "expected true or false, not text"),
        ("lazy: 'true'", "take off the quotes"),
        ("max_links: 1.5", "expected a whole number, not a number"),
        ("max_links: true", "expected a number, not true or false"),
        ("max_links: 0", "must be more than 0"),
        ("timeout: 0", "must be more than 0"),
        ("timeout: .inf", "too large a number"),
        ("timeout: .nan", "too large a number"),
        ("timeout: 1e400", "expected a number, not text"),
        ("timeout: 9" + "9" * 400, "too large a number"),
        ("retry_delay: -1", "must not be less than 0"),
        ("description: 3", "put it in quotes"),
        ("description: no", "expected text, not true or false"),
        ("description: [a]", "expected text, not a list"),
        ("isolation: shard", "did you mean 'shared'?"),
        ("isolation: 3", "expected one of shared, per_session, per_call, not a number"),
        ("auth: {}", "missing key 'ref'"),
        ("auth: {reff: a}", "did you mean 'ref'?"),
        ("auth: [a]", "expected text, not a list"),
    ],
)
def test_a_wrong_value_is_told_with_what_was_expected(
    text: str, message: str, refused: Refused
) -> None:
    assert message in refused(
        f"mcp_servers:\n  - name: a\n    connection: {{type: stdio, command: x}}\n    {text}\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mcp_servers: {}", "expected a list, not a mapping"),
        ("commands: {a: {type: http}}", "write each as an item of a list: - name: …"),
        ("policy: {rules: {deny: x}}", "write each as an item of a list: - …"),
        ("profiles: [{name: p, tools: {allow: [a], deny: [b]}}]", 'write one list: ["a", "!b"]; '),
        ("profiles: [{name: p, tools: {exclude: [b]}}]", 'write one list: ["!b"]; '),
        ("profiles: [{name: p, tools: {a: b}}]", "write it in brackets: [ … ]"),
        (
            "commands: [{name: a, type: http, http: {url: 'http://x', params: {q: {q}}}}]",
            "put it in quotes",
        ),
        ("commands: [{name: a, type: http, http: {ulr: 'http://x'}}]", "did you mean 'url'?"),
        (
            "commands: [{name: a, type: http, http: {url: 'http://x'}, timeout: 3}]",
            "it belongs under 'http'",
        ),
        ("mcp_servers: [text]", "expected a mapping, not text"),
        ("mcp_servers: [{name: a, connection: text}]", "expected a mapping, not text"),
        (
            "mcp_servers: [{name: a, connection: {type: stdio, command: x, args: -y}}]",
            "write it in brackets",
        ),
        (
            "mcp_servers: [{name: a, connection: {type: stdio, command: x, env: [A]}}]",
            "expected a mapping, not a list",
        ),
        (
            "mcp_servers: [{name: a, connection: {type: pipe}}]",
            "one of http, sse, stdio, websocket",
        ),
        (
            "mcp_servers: [{name: a, connection: {type: 3}}]",
            "expected one of http, sse, stdio, websocket",
        ),
        ("mcp_servers: [{name: , connection: {type: stdio, command: x}}]", "'name' has no value"),
        ("server: {port: 65536}", "must be a port, 0 to 65535"),
        ("server: {admin_token: ''}", "must not be empty"),
        ("naming: {max_length: 3}", "naming.max_length is at least 16"),
        ("global: [a]", "expected a mapping, not a list"),
        ("policy: 3", "expected a mapping, not a number"),
    ],
)
def test_a_wrong_shape_is_told_with_what_was_expected(
    text: str, message: str, refused: Refused
) -> None:
    assert message in refused(text)


def test_numbers_and_booleans_in_lists_and_maps_of_text_are_taken_as_spelled(
    loaded: Callable[..., Config],
) -> None:
    """What people mean by `env: {VERSION: 1.10, DEBUG: yes}`."""
    yaml = (
        "mcp_servers: [{name: a, command: x, args: [-p, 8080, 010], env: {V: 1.10, D: yes, E: "
        "1_0, on: 2024-01-02}}]"
    )
    json = (
        '{"mcp_servers": [{"name": "a", "command": ["x", 1.0], "args": [2.50, 3], "env": {"V": '
        '1.10, "D": true}}]}'
    )
    first = loaded(yaml).mcp_servers[0].connection
    second = loaded(json, "config.json").mcp_servers[0].connection
    assert getattr(first, "args") == ("-p", "8080", "010")  # noqa: B009
    assert getattr(first, "env") == {"V": "1.10", "D": "yes", "E": "1_0", "on": "2024-01-02"}  # noqa: B009
    assert getattr(second, "args") == ("1.0", "2.50", "3")  # noqa: B009
    assert getattr(second, "env") == {"V": "1.10", "D": "true"}  # noqa: B009


def test_choices_are_read_in_any_case(loaded: Callable[..., Config]) -> None:
    config = loaded(
        "global: {log_level: debug}\nmcp_servers: [{name: a, connection: {type: STDIO, command: "
        "x}}]"
    )
    assert config.global_.log_level == "DEBUG"
    assert len(config.mcp_servers) == 1


@pytest.mark.parametrize(
    "entry",
    [
        "commands: [{name: a, type: http, htpp: {url: 'https://x.example'}}]",
        "auth_configs: [{name: a, type: bearer_token, bearer_tokn: {token: t}}]",
    ],
)
def test_a_misspelt_section_is_told_once_and_not_missed_as_well(
    entry: str, refused: Callable[..., str]
) -> None:
    """CFG-4."""
    told = refused(entry)
    assert "did you mean" in told and "1 error in" in told and "missing key" not in told
