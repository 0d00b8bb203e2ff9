"""`${…}` in values, and the `.env` file beside the config (CFG-3)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mcpx.config import Config
from mcpx.config.environment import parse_dotenv
from mcpx.config.load import load

Loaded = Callable[..., Config]
Refused = Callable[..., str]


def described(loaded: Loaded, text: str, **environ: str) -> str:
    """What one value becomes."""
    quoted = text.replace("'", "''")
    return (
        loaded(f"mcp_servers: [{{name: a, command: x, description: '{quoted}'}}]", **environ)
        .mcp_servers[0]
        .description
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "one"),
        ("${env:A}", "one"),
        ("<${A}-${B}>", "<one-two>"),
        ("${A:-x}", "one"),
        ("${C:-x}", "x"),
        ("${C:-}", ""),
        ("${EMPTY:-x}", "x"),
        ("${EMPTY}", ""),
        ("${env:C:-x}", "x"),
        ("${C:-${B}}", "two"),
        ("${C:-${D:-x}}", "x"),
        ("${C:-{a: b}}", "{a: b}"[:-1] + "}"),
        ("${A:-${C}}", "one"),
        ("$$", "$"),
        ("$${A}", "${A}"),
        ("$$$${A}", "$${A}"),
        ("$$${A}", "$one"),
        ("$A $ a$", "$A $ a$"),
        ("it's ${A:-it's}", "it's one"),
        ("no reference", "no reference"),
    ],
)
def test_a_reference_becomes(text: str, value: str, loaded: Loaded) -> None:
    assert described(loaded, text, A="one", B="two", EMPTY="") == value


def test_an_unset_variable_of_a_server_switches_that_one_off(loaded: Loaded) -> None:
    """CFG-3: with a message that names variable and place; the rest runs."""
    config = loaded(
        "mcp_servers:\n  - name: a\n    command: ${NOT_HERE}\n  - {name: b, command: y}\n"
        "commands:\n  - {name: c, type: http, http: {url: 'https://h', headers: {K: '${GONE}'}}}\n"
    )
    a, b = config.mcp_servers
    assert (a.enabled, a.switched_off) == (False, "variable NOT_HERE is not set (config.yaml:3:14)")
    assert (b.enabled, b.switched_off) == (True, None)
    assert (config.commands[0].enabled, config.commands[0].switched_off) == (
        False,
        "variable GONE is not set (config.yaml:6:65)",
    )
    told = [warning for warning in config.warnings if "switched off" in warning]
    assert told[0].startswith(
        "server 'a' is switched off: variable NOT_HERE is not set (config.yaml:3:14); neither in"
    )
    assert told[1].startswith(
        "command 'c' is switched off: variable GONE is not set (config.yaml:6:65); neither in"
    )


@pytest.mark.parametrize(
    "own",
    [
        "enabled: '${NOPE}', connection: {type: stdio, command: x}",
        "connection: {type: '${NOPE}', command: x}",
        "connection: {type: '${NOPE}', url: 'http://h'}",
        "connection: {type: http, url: '${NOPE}', headers: {A: '${NOPE}'}}",
        "connection: {type: stdio, command: x, env: {A: '${NOPE}'}, cwd: '${NOPE}', framing: "
        "'${NOPE}'}",
        "connection: {type: stdio, command: x}, call_timeout: '${NOPE}', lazy: '${NOPE}', "
        "isolation: '${NOPE}'",
        "connection: {type: stdio, command: x}, description: '${NOPE}', auth: '${NOPE}'",
        "connection: {type: stdio, command: x, args: ['${file:nope}', '${input:key}', "
        "'${keyring:a/b}']}",
        "connection: {type: stdio, command: x, args: [" + ", ".join(["'${NOPE}'"] * 80) + "]}",
    ],
)
def test_whatever_value_of_a_server_cannot_be_had_only_that_one_is_off(
    own: str, loaded: Loaded
) -> None:
    """CFG-3."""
    config = loaded(
        f"mcp_servers: [{{name: a, {own}}}, {{name: b, connection: {{type: stdio, command: y}}}}]"
    )
    assert [(server.name, server.enabled) for server in config.mcp_servers] == [
        ("a", False),
        ("b", True),
    ]
    assert len(config.mcp_servers[0].switched_off or "") < 1000


@pytest.mark.parametrize(
    "text",
    [
        "mode: '${NOPE}'",
        "server: {host: '${NOPE}'}",
        "global: {call_timeout: '${NOPE}'}\nmcp_servers: [{name: a, command: x}]",
        "auth_configs: [{name: a, type: bearer_token, bearer_token: {token: '${NOPE}'}}]",
        "mcp_servers: [{name: '${NOPE}', command: x}]",
    ],
)
def test_an_unset_variable_elsewhere_is_an_error(text: str, refused: Refused) -> None:
    """CFG-3: in what all servers share, and in a name, which has to be known."""
    message = refused(text)
    assert "variable NOPE is not set" in message
    assert message.count("error:") == 1


def test_a_server_that_got_its_variable_is_on_again(loaded: Loaded, folder: Path) -> None:
    """CFG-5: the `.env` file that may bring it is among what is watched."""
    config = loaded("mcp_servers: [{name: a, command: '${X}'}]")
    assert folder / ".env" in config.sources
    (folder / ".env").write_text("X=x")
    assert load(folder / "config.yaml", {}).mcp_servers[0].switched_off is None


def test_a_mistake_in_a_server_that_is_switched_off_is_still_told(refused: Refused) -> None:
    """CFG-4."""
    assert "unknown key 'lazzy'" in refused(
        "mcp_servers: [{name: a, command: '${NOPE}', lazzy: true}]"
    )


def test_an_unset_variable_is_an_error_that_names_it_where_that_is_asked_for(
    refused: Refused,
) -> None:
    """CFG-3: `mcpx check` and `--strict`."""
    message = refused("mcp_servers:\n  - name: a\n    command: ${NOT_HERE}\n", strict=True)
    assert message.startswith(
        "error: variable NOT_HERE is not set\n  --> config.yaml:3:14  (mcp_servers[0].command)"
    )
    assert "neither in the environment nor in a .env file" in message
    assert "${NOT_HERE:-…}" in message
    assert message.count("error:") == 1


def test_every_unset_variable_is_told(refused: Refused) -> None:
    message = refused(
        "mcp_servers: [{name: a, command: '${A}${B}', args: ['${C:-${D}}']}]", strict=True
    )
    assert [name for name in "ABCD" if f"variable {name} is not set" in message] == ["A", "B", "D"]


def test_what_a_variable_holds_is_not_looked_into_again(loaded: Loaded) -> None:
    assert described(loaded, "${A}", A="${B}", B="no") == "${B}"
    assert described(loaded, "${A}", A="$$ a: [b, *c] # d") == "$$ a: [b, *c] # d"
    assert described(loaded, "${A:-x}", A="${A}") == "${A}"


def test_yaml_in_a_variable_stays_text(loaded: Loaded, refused: Refused) -> None:
    config = loaded("mcp_servers: [{name: a, command: x, args: ['${A}']}]", A="b]\nmode: search")
    assert config.mode == "describe"
    assert "expected a list, not text" in refused(
        "mcp_servers: [{name: a, command: x, args: '${A}'}]", A="[b]"
    )


def test_keys_are_not_expanded(loaded: Loaded) -> None:
    connection = (
        loaded("mcp_servers: [{name: a, command: x, env: {'${A}': '${A}'}}]", A="b")
        .mcp_servers[0]
        .connection
    )
    assert getattr(connection, "env") == {"${A}": "b"}  # noqa: B009


def test_a_variable_may_be_a_number_or_a_boolean(loaded: Loaded, refused: Refused) -> None:
    text = (
        "server: {port: '${PORT:-8000}'}\nglobal: {hot_reload: '${RELOAD}', startup_wait: "
        "'${WAIT}'}"
    )
    config = loaded(text, PORT="9", RELOAD="False", WAIT="1.5")
    assert (config.server.port, config.global_.hot_reload, config.global_.startup_wait) == (
        9,
        False,
        1.5,
    )
    assert loaded(text, RELOAD="true", WAIT="1").server.port == 8000
    assert "expected a number, not text" in refused(text, PORT="x", RELOAD="true", WAIT="1")
    assert "expected true or false, not text" in refused(text, RELOAD="yes", WAIT="1")


def test_a_file_is_read_relative_to_the_config_without_its_last_newline(
    loaded: Loaded, folder: Path
) -> None:
    (folder / "secret").write_text("a\nb: ${X}\n\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "c.yaml").write_text(
        "mcp_servers: [{name: a, command: x, description: '${file:../secret}'}]"
    )
    assert load(folder / "sub" / "c.yaml", {}).mcp_servers[0].description == "a\nb: ${X}"
    assert described(loaded, "${file:${NAME}}", NAME=str(folder / "secret")) == "a\nb: ${X}"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("${file:nope}", "file 'nope' does not exist"),
        ("${file:${NOPE}/a}", "variable NOPE is not set"),
        ("${file:.}", "file '.' is a folder"),
        ("${file:/dev/zero}", "is not a regular file"),
        ("${file:big}", "is larger than"),
        ("${file:binary}", "is not UTF-8 text"),
        ("${input:key}", "'${input:…}' is not supported yet"),
        ("${keyring:a b}", "'${keyring:a b}' is no name of a secret"),
        ("${vault:a}", "a '${…}' that is not understood"),
        ("${1A}", "a '${…}' that is not understood"),
        ("${A-b}", "a '${…}' that is not understood"),
        ("${}", "a '${…}' that is not understood"),
        ("${A", "'${' without '}'"),
        ("${A:-${B}", "'${' without '}'"),
        ("${workspaceFolder}", "variable workspaceFolder is not set"),
        ("${A:-" * 20 + "}" * 20, "defaults nested more than"),
    ],
)
def test_a_bad_reference_is_told(
    reference: str, message: str, refused: Refused, folder: Path
) -> None:
    (folder / "big").write_bytes(b"x" * 100_000)
    (folder / "binary").write_bytes(b"a\xff")
    told = refused(f"mcp_servers: [{{name: a, command: '{reference}'}}]", strict=True)
    assert message in told
    assert told.count("error:") == 1


def test_a_disabled_entry_is_not_looked_up(loaded: Loaded) -> None:
    config = loaded(
        "mcp_servers:\n"
        "  - {name: a, enabled: no, connection: {type: http, url: '${URL}', headers: {A: "
        "'${T}'}}, timeout: '${N}'}\n"
        "  - name: b\n"
        "    enabled: ${ON:-false}\n"
        "    connection: {type: stdio, command: '${file:/nope}', cwd: '${D}', args: ['${E}', "
        "'$$']}\n"
        "commands:\n"
        "  - {name: c, enabled: false, type: http, http: {url: '${URL}'}}\n"
        "  - {name: d, enabled: false, type: script, script: {path: '${P}'}}\n"
        "  - {name: '${N}', enabled: false, type: http, http: {url: 'http://h'}}\n"
    )
    a, b = config.mcp_servers
    assert (a.enabled, b.enabled, a.timeout) == (False, False, 30.0)
    assert getattr(a.connection, "url") == "${URL}"  # noqa: B009
    assert getattr(b.connection, "cwd") == "${D}"  # noqa: B009
    assert getattr(b.connection, "args") == ("${E}", "$")  # noqa: B009


@pytest.mark.parametrize("reference", ["${1A}", "${}", "${A", "${vault:a}"])
def test_a_reference_that_is_written_wrong_is_an_error_in_a_server_too(
    reference: str, refused: Refused
) -> None:
    assert "error:" in refused(f"mcp_servers: [{{name: a, command: '{reference}'}}]")


def test_a_word_of_some_client_switches_off_its_server(loaded: Loaded) -> None:
    """CFG-2: what other programs replace is not a mistake of the file."""
    text = (
        '{"servers": {"a": {"command": "${config:tool.path}"}, "b": {"command": '
        '"${workspaceFolder:x}/y"}}}'
    )
    assert [server.enabled for server in loaded(text, "mcp.json").mcp_servers] == [False, False]


def test_a_disabled_server_of_a_client_file_is_not_looked_up(
    loaded: Loaded, refused: Refused
) -> None:
    text = '{"mcpServers": {"a": {"command": "x", "env": {"K": "${K}"}, "disabled": %s}}}'
    assert loaded(text % "true", "mcp.json").mcp_servers[0].enabled is False
    assert "variable K is not set" in refused(text % "false", "mcp.json", strict=True)


def test_foreign_keys_and_x_keys_are_not_looked_into(loaded: Loaded) -> None:
    loaded("x-common: &c {env: {A: '${NOPE}'}}\nmode: direct")
    config = loaded(
        "mcp_servers: [{name: a, url: 'http://h', headers: {x-key: '${K}'}, x-note: '${NOPE}'}]",
        K="k",
    )
    assert getattr(config.mcp_servers[0].connection, "headers") == {"x-key": "k"}  # noqa: B009
    loaded('{"mcpServers": {}, "history": ["echo ${NOPE}"]}', "mcp.json")


def test_client_words_are_known_in_client_files(loaded: Loaded, folder: Path) -> None:
    args = (
        '["${workspaceFolder}", "${workspaceFolderBasename}", "${userHome}", '
        '"a${/}b${pathSeparator}c"]'
    )
    for shape in (
        '{"mcpServers": {"a": {"command": "x", "args": %s}}}',
        '{"servers": {"a": {"command": "x", "args": %s}}}',
    ):
        connection = loaded(shape % args, "mcp.json", HOME="/home/me").mcp_servers[0].connection
        assert getattr(connection, "args") == (str(folder), folder.name, "/home/me", "a/b/c")  # noqa: B009


def test_the_env_file_is_read_and_the_process_environment_wins(
    loaded: Loaded, folder: Path
) -> None:
    (folder / ".env").write_text("A=file\nB=file\n")
    assert described(loaded, "${A} ${B} ${C:-none}", B="process") == "file process none"


def test_an_env_file_that_cannot_be_read_is_a_warning(loaded: Loaded, folder: Path) -> None:
    (folder / ".env").write_bytes(b"A=\xff\n")
    config = loaded("mode: '${M:-direct}'")
    assert [".env is not UTF-8 text" in warning for warning in config.warnings] == [True]
    (folder / ".env").write_text("what is this\n")
    assert [
        ".env:1: not understood" in warning for warning in loaded("mode: '${M:-direct}'").warnings
    ] == [True]


def test_a_folder_named_env_is_no_env_file(loaded: Loaded, folder: Path) -> None:
    (folder / ".env").mkdir()
    assert loaded("mode: '${M:-direct}'").warnings == ()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("A=b", {"A": "b"}),
        ("  export A = b  ", {"A": "b"}),
        ("A=", {"A": ""}),
        ("A=b c # d", {"A": "b c"}),
        ("A=b#c", {"A": "b#c"}),
        ("A=#c", {"A": ""}),
        ("# A=b\n\nC=d", {"C": "d"}),
        ("A='b # c \\n $X'", {"A": "b # c \\n $X"}),
        ('A="b # c" # d', {"A": "b # c"}),
        ('A="b\\nc\\t\\"d\\" \\\\"', {"A": 'b\nc\t"d" \\'}),
        ('A="b\nc"\nD=e', {"A": "b\nc", "D": "e"}),
        ("A='b\nc'", {"A": "b\nc"}),
        ("A=b\r\nC=d\r\n", {"A": "b", "C": "d"}),
        ("A=1\nA=2", {"A": "2"}),
        ("A=${B}", {"A": "${B}"}),
    ],
)
def test_an_env_file_is_read_as_the_usual_tools_do(text: str, values: dict[str, str]) -> None:
    assert parse_dotenv(text) == (values, [])


def test_lines_that_are_no_assignment_are_counted() -> None:
    assert parse_dotenv("A=b\noops\n=c\nD='open") == ({"A": "b"}, [2, 3, 4])
