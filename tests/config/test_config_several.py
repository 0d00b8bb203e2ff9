"""A folder of files, overlays of an environment, and the files all of it came from (CFG-7,
CFG-5)."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.cost import count_steps
from mcpx.config import Config, Naming, Refused, load
from mcpx.config.nodes import MAX_NODES
from mcpx.config.source import MAX_BYTES
from mcpx.model.errors import ConfigError
from mcpx.transports import Http, Sse, Stdio

A = "{name: a, connection: {type: stdio, command: x}}"
B = "{name: b, connection: {type: stdio, command: y}}"

Write = Callable[..., None]


@pytest.fixture
def write(folder: Path) -> Write:
    """Files by name, `__` for a dot: `write(mcpx__yaml="mode: direct")`."""

    def write(under: str = ".", **files: str) -> None:
        for name, text in files.items():
            path = Path(under, name.replace("__", "."))
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o600)

    return write


def refused(path: str, env: str | None = None, *, strict: bool = False, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(Path(path), environ, env, strict=strict)
    return str(caught.value)


def names(config: Config) -> list[str]:
    return [server.name for server in config.mcp_servers]


# A folder


def test_the_files_of_a_folder_are_one_configuration_in_the_order_of_their_names(
    write: Write, folder: Path
) -> None:
    write(
        "conf",
        b__yaml=f"mcp_servers: [{B}]\nprofiles: [{{name: p, servers: [a]}}]\nserver: {{port: 1}}",
        a__json=(
            '{"mcp_servers": [{"name": "a", "connection": {"type": "stdio", "command": "x", '
            '"cwd": "sub"}}]}'
        ),
        c__yml=(
            "mode: search\nglobal: {call_timeout: 7}\nserver: {host: h}\nnaming: {prefix: always}"
        ),
        notes__txt="not ours",
        **{".hidden.yaml": "mode: inspect"},
        a__yaml__bak="mode: direct",
    )
    config = load(Path("conf"), {})
    assert names(config) == ["a", "b"]
    assert config.mcp_servers[0].connection == Stdio(command="x", cwd=str(folder / "conf" / "sub"))
    assert (config.mode, config.naming, config.path) == (
        "search",
        Naming(prefix="always"),
        folder / "conf",
    )
    assert (config.server.host, config.server.port) == ("h", 1)
    assert [server.call_timeout for server in config.mcp_servers] == [7, 7]
    assert [profile.name for profile in config.profiles] == ["p"]
    assert config.warnings == ()


def test_a_name_two_files_give_is_an_error_that_names_both_places(write: Write) -> None:
    write("conf", a__yaml=f"mcp_servers:\n  - {A}", b__yaml=f"mode: direct\nmcp_servers: [{A}]")
    message = refused("conf")
    assert "two servers are named 'a'\n  --> conf/b.yaml:2:22  (mcp_servers[0].name)" in message
    assert "names must be unique; the other stands at conf/a.yaml:2:12" in message
    assert message.endswith("1 error in conf/b.yaml.")


@pytest.mark.parametrize(
    ("first", "second", "path", "places"),
    [
        ("mode: direct", "mode: search", "mode", ("b.yaml:1:7", "a.yaml:1:7")),
        ("server: {port: 1}", "server:\n  port: 2", "server.port", ("b.yaml:2:9", "a.yaml:1:16")),
        (
            "policy: {rules: [{effect: ask}]}",
            "policy: {rules: [{effect: deny}]}",
            "policy.rules",
            ("b.yaml:1:10", "a.yaml:1:10"),
        ),
        (
            "global: {tool_proxy: {search_limit: 1}}",
            "global: {tool_proxy: {search_limit: 2}}",
            "",
            ("b.yaml", "a"),
        ),
        ("mcp_servers: []", "mcp_servers: {}", "mcp_servers", ("b.yaml:1:1", "a.yaml:1:1")),
    ],
)
def test_what_two_files_say_differently_is_an_error_that_names_both_places(
    first: str, second: str, path: str, places: tuple[str, str], write: Write
) -> None:
    write("conf", a__yaml=first, b__yaml=second)
    message = refused("conf")
    assert "is said twice, and differently" in message
    assert f"--> conf/{places[0]}" in message
    assert f"({path}" in message
    assert f"keep one of them; the other stands at conf/{places[1]}" in message


def test_what_two_files_say_alike_or_leave_open_is_no_matter(write: Write) -> None:
    write(
        "conf",
        a__yaml="mode: search\nglobal:\nmcp_servers:\n$schema: one\nx-a: 1",
        b__yaml=(
            f"mode: search\nglobal: {{call_timeout: 3}}\nmcp_servers: [{A}]\n$schema: two\nx-a: 2"
        ),
        c__yaml=f"mode:\nmcp_servers: [{B}]",
    )
    config = load(Path("conf"), {})
    assert (config.mode, config.global_.call_timeout, names(config)) == ("search", 3, ["a", "b"])


def test_the_mistakes_of_all_files_are_told_at_once_each_at_its_place(write: Write) -> None:
    """CFG-4."""
    write(
        "conf",
        a__yaml=f"mcp_servers:\n  - {A}\nserver: {{prot: 1}}",
        b__yaml=(
            "mcp_servers:\n  - {name: b, lazzy: true, connection: {type: stdio, command: "
            "'${NOPE}'}}"
        ),
    )
    message = refused("conf", strict=True)
    assert "--> conf/a.yaml:3:10  (server.prot)" in message
    assert "--> conf/b.yaml:2:15  (mcp_servers[0].lazzy)" in message
    assert (
        "variable NOPE is not set\n  --> conf/b.yaml:2:63  (mcp_servers[0].connection.command)"
        in message
    )
    assert message.endswith("3 errors in conf/a.yaml, conf/b.yaml.")


def test_all_files_that_cannot_be_read_are_told_at_once(write: Write) -> None:
    write("conf", a__yaml="", b__yaml="a: [", c__json="{", d__yaml=f"mcp_servers: [{A}]\nnope: 1")
    Path("conf/e.yaml").symlink_to("nowhere")
    message = refused("conf")
    assert "a.yaml is empty" in message
    assert "e.yaml does not exist" in message
    assert "not valid YAML" in message
    assert "not valid JSON" in message
    assert "nope" not in message  # a part of the whole would only mislead
    assert message.endswith("4 errors in conf/a.yaml, conf/b.yaml, conf/c.json, conf/e.yaml.")


def test_numbers_in_an_environment_are_taken_as_their_own_file_spells_them(write: Write) -> None:
    server = "{name: %s, connection: {type: stdio, command: x, env: {V: %s}}}"
    write(
        "conf",
        a__yaml=f"mcp_servers: [{server % ('a', '1.10')}]",
        b__yaml=f"mcp_servers: [{server % ('b', '010')}]",
    )
    connections = [server.connection for server in load(Path("conf"), {}).mcp_servers]
    assert connections == [
        Stdio(command="x", env={"V": "1.10"}),
        Stdio(command="x", env={"V": "010"}),
    ]


def test_a_folder_may_hold_the_file_of_a_client_beside_our_own(write: Write) -> None:
    """CFG-2: its defaults count where all servers are written in its shape."""
    client = (
        '{"mcpServers": {"c": {"command": "x", "args": ["${workspaceFolderBasename}"]}}, '
        '"theme": 1}'
    )
    write("conf", claude__json=client, ours__yaml="server: {port: 1}\nnaming: {separator: '::'}")
    config = load(Path("conf"), {})
    assert (config.dialect, config.mode) == ("mcpServers", "auto")
    assert config.naming == Naming(separator="::", prefix="always")
    assert config.warnings == ("claude.json: keys mcpx does not know are passed over: theme",)
    assert config.mcp_servers[0].connection == Stdio(command="x", args=("conf",))
    write("conf", servers__yaml=f"mcp_servers: [{A}]")
    config = load(Path("conf"), {})
    assert (config.dialect, config.mode, names(config)) == ("native", "direct", ["c", "a"])
    assert config.naming == Naming(separator="::")


def test_a_folder_without_config_files_is_refused(write: Write) -> None:
    write("conf", a__txt="", a__prod__yaml="mode: direct")
    message = refused("conf")
    assert message.startswith("error: the folder holds no config file\n  --> conf\n")
    assert "expected *.yaml, *.yml, *.json" in message


def test_a_folder_of_hostile_files_costs_no_more_than_one_of_them(folder: Path) -> None:
    """CFG-7: but for a look at each; together they may be as large as one."""
    text = "a: [" + "x," * ((MAX_BYTES - 100) // 2)
    laughs = (
        "a: &a ["
        + "x," * 9
        + "]\n"
        + "\n".join(f"b{n}: [{', '.join(['*a'] * 400)}]" for n in range(11))
    )
    many = "mode: direct\nnope: 1"
    for case, hostile, count in (("large", text, 5), ("values", laughs, 40), ("many", many, 200)):
        (folder / case).mkdir()
        for number in range(count):
            (folder / case / f"{number}.yaml").write_text(hostile)
        message = refused(case)
        alone = count_steps(lambda name=f"{case}/0.yaml": refused(name))
        assert count_steps(lambda name=case: refused(name), alone + 2_000 * count), case
        if case != "many":
            assert f"more than {MAX_BYTES:,} bytes or {MAX_NODES:,} values" in message, case


# Overlays


def test_an_overlay_of_the_environment_lies_over_the_file(write: Write) -> None:
    write(
        mcpx__yaml=(
            "mode: direct\n"
            "global: {call_timeout: 1, max_retries: 2, tool_proxy: {search_limit: 3}}\n"
            "mcp_servers:\n"
            "  - name: a\n"
            "    description: first\n"
            "    connection: {type: stdio, command: x, args: [one, two], env: {A: '1', B: '2'}}\n"
            f"  - {B}\n"
            "profiles: [{name: p, servers: [a, b], tokens: [t]}]\n"
        ),
        mcpx__prod__yaml=(
            "mode: search\n"
            "global: {call_timeout: 10, tool_proxy: {enable_list_services: false}}\n"
            "mcp_servers:\n"
            "  - {name: c, connection: {type: http, url: 'http://h'}}\n"
            "  - {name: a, lazy: true, connection: {args: [three], env: {B: '3', C: '4'}}}\n"
            "  - {name: b, enabled: false}\n"
            "profiles: [{name: p, servers: [c]}]\n"
        ),
    )
    plain, config = load(Path("mcpx.yaml"), {}), load(Path("mcpx.yaml"), {}, "prod")
    assert (plain.mode, plain.global_.call_timeout, names(plain)) == ("direct", 1, ["a", "b"])
    assert (config.mode, config.global_.call_timeout, config.global_.max_retries) == (
        "search",
        10,
        2,
    )
    assert (
        config.global_.tool_proxy.search_limit,
        config.global_.tool_proxy.enable_list_services,
    ) == (3, False)
    a, b, c = config.mcp_servers
    assert a.connection == Stdio(command="x", args=("three",), env={"A": "1", "B": "3", "C": "4"})
    assert (a.description, a.lazy, a.call_timeout) == ("first", True, 10)
    assert (b.name, b.enabled, b.connection) == ("b", False, Stdio(command="y"))
    assert c.connection == Http(url="http://h")
    assert (config.profiles[0].servers, config.profiles[0].tokens) == (("c",), ("t",))


def test_the_environment_may_be_named_by_a_variable_and_the_argument_wins(write: Write) -> None:
    """RUN-2."""
    write(
        mcpx__yaml="mode: direct",
        mcpx__prod__json='{"mode": "search"}',
        mcpx__dev__yml="mode: inspect",
    )
    assert load(Path("mcpx.yaml"), {"MCPX_ENV": "prod"}).mode == "search"
    assert load(Path("mcpx.yaml"), {"MCPX_ENV": "prod"}, "dev").mode == "inspect"
    assert load(Path("mcpx.yaml"), {"MCPX_ENV": ""}).mode == "direct"


def test_the_overlays_of_a_folder_are_left_out_until_their_environment_is_named(
    write: Write,
) -> None:
    write(
        "conf",
        a__yaml=f"mcp_servers: [{A}]",
        b__yaml="mode: direct",
        a__prod__yaml="mcp_servers: [{name: a, lazy: true}]",
        b__prod__yml="mode: search",
        b__dev__json='{"mode": "inspect"}',
    )
    for env, mode, lazy in (
        (None, "direct", False),
        ("prod", "search", True),
        ("dev", "inspect", False),
    ):
        config = load(Path("conf"), {}, env)
        assert (config.mode, config.mcp_servers[0].lazy, config.warnings) == (mode, lazy, ()), env


def test_a_file_that_only_its_name_makes_an_overlay_is_left_out_with_a_warning(
    write: Write,
) -> None:
    write("conf", a__yaml="mode: direct", github__com__yaml=f"mcp_servers: [{A}]")
    (warning,) = load(Path("conf"), {}).warnings
    assert (
        warning
        == "github.com.yaml is left out: its name makes it an overlay for the environment 'com'"
    )
    assert names(load(Path("conf"), {}, "com")) == ["a"]
    assert load(Path("conf"), {}, "com").warnings == ()


@pytest.mark.parametrize("path", ["mcpx.yaml", "conf"])
def test_an_environment_without_overlay_is_an_error_that_lists_those_there_are(
    path: str, write: Write
) -> None:
    for under in (".", "conf"):
        write(
            under,
            mcpx__yaml="mode: direct\nnope: 1",
            mcpx__dev__yaml="mode: direct",
            mcpx__prod__json="{}",
        )
    write(other__test__yaml="")
    message = refused(path, "prd")
    assert message.startswith(f"error: no overlay for the environment 'prd'\n  --> {path}\n")
    assert "overlays found: mcpx.dev.yaml, mcpx.prod.json\n" in message
    write("alone", mcpx__yaml="mode: direct")
    assert "overlays found: none" in refused("alone", "prod")
    assert "overlays found: none" in refused("alone/mcpx.yaml", "prod")
    assert "2 errors in gone/mcpx.yaml" in refused("gone/mcpx.yaml", "prod")


@pytest.mark.parametrize("env", ["../x", "a/b", "a.b", "a\0b", " ", "*"])
def test_an_environment_is_a_plain_word(env: str, write: Write) -> None:
    write(mcpx__yaml="mode: direct")
    assert "is not a possible environment name" in refused("mcpx.yaml", env)


def test_a_mistake_in_an_overlay_is_told_at_its_place_beside_those_of_the_base(
    write: Write,
) -> None:
    write(
        mcpx__yaml=f"mcp_servers:\n  - {A}\nserver:\n  prot: 1\n",
        mcpx__prod__yaml=(
            "mcp_servers:\n  - name: a\n    lazy: 3\n    connection: {type: stdio, env: {A: "
            "[]}}\n  - name: z\n"
        ),
    )
    message = refused("mcpx.yaml", "prod")
    assert "--> mcpx.prod.yaml:3:11  (mcp_servers[0].lazy)" in message
    assert "--> mcpx.prod.yaml:4:37  (mcp_servers[0].connection.env.A)" in message
    assert "missing key 'connection'\n  --> mcpx.prod.yaml:5:5  (mcp_servers[1])" in message
    assert "--> mcpx.yaml:4:3  (server.prot)" in message
    assert message.endswith("4 errors in mcpx.prod.yaml, mcpx.yaml.")


def test_a_broken_overlay_is_told_as_such(write: Write) -> None:
    write(mcpx__yaml="mode: direct", mcpx__prod__yaml="mode: [")
    assert "not valid YAML" in refused("mcpx.yaml", "prod")
    write(mcpx__prod__yaml="")
    assert refused("mcpx.yaml", "prod").startswith(
        "error: mcpx.prod.yaml is empty\n  --> mcpx.prod.yaml\n"
    )


def test_what_an_overlay_replaces_or_switches_off_is_not_looked_up(write: Write) -> None:
    """CFG-3."""
    write(
        mcpx__yaml=(
            "mcp_servers:\n"
            "  - {name: a, connection: {type: http, url: '${DEV}'}}\n"
            "  - {name: b, connection: {type: http, url: '${NOPE}'}}\n"
            "  - {name: c, enabled: false, connection: {type: http, url: '${PROD}'}}\n"
        ),
        mcpx__prod__yaml=(
            "mcp_servers:\n"
            "  - {name: a, connection: {url: '${PROD}'}}\n"
            "  - {name: b, enabled: false}\n"
            "  - {name: c, enabled: true}\n"
        ),
    )
    a, _, c = load(Path("mcpx.yaml"), {"PROD": "http://prod"}, "prod").mcp_servers
    assert a.connection == c.connection == Http(url="http://prod")
    a, b, c = load(Path("mcpx.yaml"), {}, "prod").mcp_servers
    assert a.switched_off == "variable PROD is not set (mcpx.prod.yaml:2:33)"
    assert b.switched_off is None
    assert str(c.switched_off).startswith("variable PROD is not set (mcpx.yaml:4:")
    assert refused("mcpx.yaml", "prod", strict=True).count("error:") == 2


def test_a_key_without_value_in_an_overlay_changes_nothing(write: Write) -> None:
    write(
        mcpx__yaml=f"mcp_servers: [{A}]\nmode: search",
        mcpx__prod__yaml="mcp_servers:\nmode:\nserver: {port: 1}",
    )
    config = load(Path("mcpx.yaml"), {}, "prod")
    assert (names(config), config.mode, config.server.port) == (["a"], "search", 1)


def test_a_name_an_overlay_gives_twice_is_an_error(write: Write) -> None:
    write(
        mcpx__yaml=f"mcp_servers: [{A}]",
        mcpx__prod__yaml="mcp_servers:\n- {name: a, lazy: true}\n- {name: a}",
    )
    message = refused("mcpx.yaml", "prod")
    assert "two servers are named 'a'\n  --> mcpx.prod.yaml:3:10" in message
    assert "the other stands at mcpx.prod.yaml:2:10" in message


def test_another_type_takes_what_only_the_former_one_knows_with_it(write: Write) -> None:
    write(
        mcpx__yaml=(
            "mcp_servers:\n"
            "  - {name: a, lazy: true, connection: {type: stdio, command: x, env: {A: b}}}\n"
            "  - {name: b, connection: {type: http, url: 'http://h', headers: {A: b}}}\n"
            "auth_configs: [{name: k, type: bearer_token, bearer_token: {token: t}}]\n"
            "commands:\n"
            "  - name: c\n"
            "    description: does\n"
            "    type: http\n"
            "    http: {url: 'http://h'}\n"
            "    parameters: [{name: p, type: string, required: true}]\n"
        ),
        mcpx__prod__yaml=(
            "mcp_servers:\n"
            "  - {name: a, connection: {type: http, url: 'http://h'}}\n"
            "  - {name: b, connection: {type: sse}}\n"
            "auth_configs: [{name: k, type: api_key, api_key: {name: n, value: v}}]\n"
            "commands: [{name: c, type: script, script: {path: /x}, parameters: [{name: p, type: "
            "integer}]}]\n"
        ),
    )
    config = load(Path("mcpx.yaml"), {}, "prod")
    a, b = config.mcp_servers
    assert (a.connection, a.lazy) == (Http(url="http://h"), True)
    assert b.connection == Sse(url="http://h", headers={"A": "b"})
    assert config.auth_configs[0].auth.type == "api_key"
    (command,) = config.commands
    assert (command.description, command.action.type) == ("does", "script")
    assert (command.parameters[0].type, command.parameters[0].required) == ("integer", True)


@pytest.mark.parametrize(
    ("base", "overlay"),
    [
        ('{"mcpServers": {"a": {"command": "x"}, "b": {"url": "http://h/sse"}}}', "native"),
        ('{"mcpServers": {"a": {"command": "x"}, "b": {"url": "http://h/sse"}}}', "mcpServers"),
        ('{"servers": {"a": {"command": "x"}, "b": {"url": "http://h/sse"}}}', "native"),
        (
            '{"servers": [{"id": "a", "command": ["x"]}, {"id": "b", "url": "http://h/sse"}]}',
            "native",
        ),
        (
            '{"servers": [{"id": "a", "command": ["x"]}, {"id": "b", "url": "http://h/sse"}]}',
            "servers",
        ),
        (
            '{"mcp_servers": [{"name": "a", "command": "x"}, {"name": "b", "url": '
            '"http://h/sse"}]}',
            "native",
        ),
        (
            '{"mcp_servers": [{"name": "a", "command": "x"}, {"name": "b", "url": '
            '"http://h/sse"}]}',
            "flat",
        ),
    ],
)
def test_an_overlay_may_be_native_or_of_the_shape_of_its_base(
    base: str, overlay: str, write: Write
) -> None:
    """CFG-2: and the base keeps the defaults of its own shape."""
    overlays = {
        "native": "mcp_servers: [{name: a, connection: {env: {A: b}}}, {name: b, enabled: false}]",
        "mcpServers": "mcpServers: {a: {env: {A: b}}, b: {disabled: true}}",
        "servers": "servers: [{id: a, env: {A: b}}, {id: b, enabled: false}]",
        "flat": (
            "mcp_servers: [{name: a, env: {A: b}}, {name: b, enabled: false}]\ncall_timeout: 300"
        ),
    }
    write(c__json=base, c__prod__yaml=overlays[overlay])
    plain, config = load(Path("c.json"), {}), load(Path("c.json"), {}, "prod")
    assert config.mcp_servers[0].connection == Stdio(command="x", env={"A": "b"})
    assert [server.enabled for server in config.mcp_servers] == [True, False]
    assert (config.mode, config.naming, config.dialect) == (plain.mode, plain.naming, plain.dialect)


def test_an_overlay_over_a_flat_file_may_hold_its_global_words_alone(write: Write) -> None:
    write(c__yaml="mcp_servers: [{name: a, command: x}]", c__prod__yaml="call_timeout: 7")
    assert load(Path("c.yaml"), {}, "prod").mcp_servers[0].call_timeout == 7
    write(c__prod__yaml="mcp_servers: [{name: z, lazy: true}]")
    assert "missing key 'connection'\n  --> c.prod.yaml:1:16" in refused("c.yaml", "prod")


def test_an_overlay_of_a_hidden_file_is_found_beside_it(folder: Path) -> None:
    (folder / ".mcp.json").write_text('{"mcpServers": {"a": {"command": "x"}}}')
    (folder / ".mcp.prod.json").write_text('{"mcpServers": {"a": {"disabled": true}}}')
    assert load(Path(".mcp.json"), {}, "prod").mcp_servers[0].enabled is False


def test_a_secret_in_an_overlay_others_may_read_is_warned_of(write: Write) -> None:
    """CFG-9."""
    write(mcpx__yaml="mode: direct", mcpx__prod__yaml="server: {admin_token: sesame}")
    Path("mcpx.prod.yaml").chmod(0o644)
    warning, *_ = load(Path("mcpx.yaml"), {}, "prod").warnings
    assert warning.startswith("mcpx.prod.yaml holds a secret (server.admin_token)")


# What to watch


def shown(paths: tuple[Path, ...], folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in paths]


def test_a_configuration_knows_the_files_it_came_from(write: Write, folder: Path) -> None:
    """CFG-5: those it looked for in vain too."""
    write(mcpx__yaml="mode: direct", mcpx__prod__yml="mode: search")
    assert shown(load(Path("mcpx.yaml"), {}).sources, folder) == ["mcpx.yaml"]
    assert shown(load(Path("mcpx.yaml"), {}, "prod").sources, folder) == [
        "mcpx.yaml",
        "mcpx.prod.yaml",
        "mcpx.prod.yml",
        "mcpx.prod.json",
    ]
    write(
        "conf", a__yaml="mode: '${M:-direct}'", b__yaml="server: {admin_token: '${file:../secret}'}"
    )
    write(secret="s")
    sources = shown(load(Path("conf"), {}).sources, folder)
    assert sorted(sources) == ["conf", "conf/.env", "conf/a.yaml", "conf/b.yaml", "secret"]
    assert load(Path("conf"), {}) == load(Path("conf"), {"M": "direct"})
    assert ".env" not in " ".join(shown(load(Path("conf"), {"M": "direct"}).sources, folder))


def test_a_refusal_knows_the_files_that_may_mend_it(write: Write, folder: Path) -> None:
    """CFG-5: the next good file recovers by itself, also when it is a secret that was missing."""
    write(mcpx__yaml="server: {admin_token: '${file:nope}'}\nmode: ${MODE}")
    with pytest.raises(Refused) as caught:
        load(Path("mcpx.yaml"), {})
    assert sorted(shown(caught.value.sources, folder)) == [".env", "mcpx.yaml", "nope"]
    assert len(caught.value.problems) == 2
    with pytest.raises(Refused) as caught:
        load(Path("gone.yaml"), {}, "prod")
    assert "gone.prod.json" in shown(caught.value.sources, folder)


# Whatever is split or laid over itself

_words = st.text("abcd", min_size=1, max_size=3)
_servers = st.lists(
    st.fixed_dictionaries(
        {
            "name": _words,
            "connection": st.fixed_dictionaries({"type": st.just("stdio"), "command": _words}),
        },
        optional={"lazy": st.booleans(), "description": _words, "timeout": st.integers(1, 9)},
    ),
    unique_by=lambda server: str(server["name"]),
    max_size=5,
)
_trees = st.fixed_dictionaries(
    {"mcp_servers": _servers},
    optional={
        "mode": st.sampled_from(["direct", "search"]),
        "server": st.fixed_dictionaries({}, optional={"host": _words, "port": st.integers(0, 9)}),
        "global": st.dictionaries(
            st.sampled_from(["max_retries", "menu_budget", "auto_budget"]), st.integers(0, 9)
        ),
        "policy": st.fixed_dictionaries(
            {}, optional={"default": st.sampled_from(["allow", "deny"])}
        ),
        "profiles": st.lists(
            st.fixed_dictionaries({"name": _words}), unique_by=lambda p: p["name"], max_size=3
        ),
    },
)


def loaded(folder: str, files: dict[str, Any], env: str | None = None) -> Config:
    for old in Path(folder).iterdir():
        old.unlink()
    for name, tree in files.items():
        Path(folder, name).write_text(json.dumps(tree))
    return load(Path(folder), {}, env)


@settings(max_examples=150, deadline=None)
@given(_trees, st.data())
def test_a_tree_split_over_the_files_of_a_folder_is_the_same_tree(
    tree: dict[str, Any], data: st.DataObject
) -> None:
    """CFG-7: lists are cut somewhere, keys of mappings go to one file, to the other, or to both."""
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, list):
            cut = data.draw(st.integers(0, len(value)))
            first[key], second[key] = value[:cut], value[cut:]
        elif isinstance(value, dict):
            parts = {
                name: data.draw(st.sampled_from(["first", "second", "both"])) for name in value
            }
            first[key] = {name: item for name, item in value.items() if parts[name] != "second"}
            second[key] = {name: item for name, item in value.items() if parts[name] != "first"}
        else:
            data.draw(st.sampled_from([first, second]))[key] = value
    with tempfile.TemporaryDirectory() as folder:
        whole = loaded(folder, {"a.json": tree})
        assert loaded(folder, {"a.json": first, "b.json": second}) == whole


@settings(max_examples=150, deadline=None)
@given(_trees, _trees)
def test_an_overlay_wins_and_what_it_does_not_name_stays(
    base: dict[str, Any], over: dict[str, Any]
) -> None:
    """CFG-7: also, a tree over itself is itself, and an overlay laid twice is laid once."""
    with tempfile.TemporaryDirectory() as folder:
        plain = loaded(folder, {"a.json": base})
        assert loaded(folder, {"a.json": base, "a.x.json": base}, "x") == plain
        merged = loaded(folder, {"a.json": base, "a.x.json": over}, "x")
        alone = loaded(folder, {"a.json": over})
        wanted = [entry["name"] for entry in base["mcp_servers"]]
        wanted += [entry["name"] for entry in over["mcp_servers"] if entry["name"] not in wanted]
        assert names(merged) == wanted
        assert merged.mode == over.get("mode", base.get("mode", "direct"))
        assert merged.policy == (alone if "default" in over.get("policy", {}) else plain).policy
        said = {
            **{s["name"]: s for s in base["mcp_servers"]},
            **{s["name"]: s for s in over["mcp_servers"]},
        }
        for server in merged.mcp_servers:
            for key in ("lazy", "description", "timeout"):
                if key in said[server.name]:
                    assert getattr(server, key) == said[server.name][key]


_junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(["a", "${A}", "stdio", "http"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "type", "command", "connection", "x-a", "enabled"]), inner
        )
    ),
    max_leaves=12,
)
_odd = st.dictionaries(
    st.sampled_from(
        [
            "mcp_servers",
            "mcpServers",
            "servers",
            "commands",
            "auth_configs",
            "global",
            "mode",
            "$schema",
        ]
    ),
    _junk,
    max_size=4,
)


@settings(max_examples=300, deadline=None)
@given(_odd, _odd, _odd)
def test_whatever_several_files_hold_ends_in_a_config_or_a_config_error(
    a: Any, b: Any, over: Any
) -> None:
    """CFG-4."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            loaded(folder, {"a.json": a, "b.json": b, "a.x.json": over}, "x")
        except ConfigError as error:
            assert all(problem.startswith("error: ") for problem in error.problems)
