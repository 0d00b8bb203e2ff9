"""Files that are hostile, broken or not there, and the search for the one to load (CFG-4, RUN-2,
threats: Config)."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpx.config import Config, find, load, yaml_reader
from mcpx.config.nodes import MAX_DEPTH, MAX_NODES
from mcpx.config.source import MAX_BYTES
from mcpx.model.errors import ConfigError

Loaded = Callable[..., Config]
Refused = Callable[..., str]


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


HOSTILE = {
    "billion laughs": (laughs(10), f"more than {MAX_NODES:,} values"),
    "laughs by merging": (
        "a: &a {"
        + ", ".join(f"k{n}: 1" for n in range(5000))
        + "}\nb: {<<: ["
        + ", ".join(["*a"] * 5000)
        + "]}",
        f"more than {MAX_NODES:,} values",
    ),
    "a million values": (
        "mcp_servers: [" + "a," * (MAX_BYTES // 2 - 20) + "]",
        f"more than {MAX_NODES:,} values",
    ),
    "100,000 brackets": ("a: " + "[" * 100_000, f"nested more than {MAX_DEPTH} levels"),
    "100,000 dashes": ("- " * 100_000, f"nested more than {MAX_DEPTH} levels"),
    "an anchor in itself": ("a: &a [*a]", "nothing is anchored as '&a' before this"),
    "no such anchor": ("a: *b", "nothing is anchored as '&b' before this"),
    "a python object": (
        "a: !!python/object/apply:os.system [true]",
        "the tag '!!python/object/apply:os.system'",
    ),
    "a tag of one's own": ("a: !include other.yaml", "the tag '!include' is not allowed"),
    "a tagged mapping": ("a: !thing {b: c}", "the tag '!thing' is not allowed"),
    "a tagged list": ("a: !!set {b, c}", "the tag '!!set' is not allowed"),
    "binary": ("a: !!binary aGk=", "the tag '!!binary' is not allowed"),
    "a wrong core tag": ("a: !!int b", "not a readable int"),
    "a duplicate key": (
        "mode: direct\nmode: search",
        "duplicate key 'mode'\n  --> config.yaml:2:1  (mode)",
    ),
    "a deep duplicate key": ("server:\n  port: 1\n  host: h\n  port: 2", "(server.port)"),
    "a list as key": ("? [a]\n: b", "a key must be text"),
    "two documents": ("mode: direct\n---\nmode: search", "expected a single document"),
    "a NUL": ("mode: direct\na: \0", "the character U+0000 is not allowed\n  --> config.yaml:2:4"),
    "a merge of text": ("a: {<<: b}", "'<<' takes a mapping"),
    "a list": ("- a", "holds no mapping"),
    "text": ("hello", "holds no mapping"),
    "comments": ("# a: b", "holds only comments"),
    "nothing": ("", "is empty"),
    "blanks": (" \n \n", "is empty"),
    "10 MB": ("x" * 10_000_000, "is larger than"),
    "bytes": (b"mode: \xff", "is not UTF-8 text (line 1, byte 0xff)"),
    "UTF-16": ("mode: direct".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "a number of many digits": ("server: {port: 1" + "0" * 5000 + "}", "not a readable int"),
}

HOSTILE_JSON = {
    "brackets": ("[" * 100_000, f"nested more than {MAX_DEPTH} levels"),
    "brackets, closed": ("[" * 900 + "]" * 900, f"nested more than {MAX_DEPTH} levels"),
    "objects": ('{"a":' * 100_000, f"nested more than {MAX_DEPTH} levels"),
    "values": ('{"a": [' + "1," * 400_000 + "1]}", f"more than {MAX_NODES:,} values"),
    "a duplicate key": (
        '{"mode": "direct",\n "mode": "search"}',
        "duplicate key 'mode'\n  --> c.json:2:2  (mode)",
    ),
    "many duplicate keys": ("{" + ",".join(['"a": 1'] * 100_000) + "}", "duplicate key 'a'"),
    "NaN": ('{"server": {"port": NaN}}', "NaN is not a JSON number"),
    "a number of many digits": ('{"server": {"port": 1' + "0" * 5000 + "}}", "not valid JSON"),
    "an open string": ('{"a": "' + '\\"' * 400_000, "not valid JSON: unterminated string"),
    "an open comment": ("/*" * 400_000, "not valid JSON"),
    "commas": ('{"a": [1' + "," * 800_000 + "]}", "not valid JSON"),
    "a list": ("[]", "holds no mapping"),
    "null": ("null", "holds only comments"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_yaml_file_is_refused(case: str, refused: Refused) -> None:
    text, message = HOSTILE[case]
    assert message in refused(text)


@pytest.mark.parametrize("case", HOSTILE_JSON)
def test_a_hostile_json_file_is_refused(case: str, refused: Refused) -> None:
    text, message = HOSTILE_JSON[case]
    assert message in refused(text, "c.json")


def test_aliases_and_merge_keys_work_as_people_use_them(loaded: Loaded) -> None:
    config = loaded(
        "x-base: &base {type: stdio, command: npx, env: &env {A: b}}\n"
        "mcp_servers:\n"
        "  - {name: one, connection: *base}\n"
        "  - {name: two, connection: {<<: *base, command: uvx}}\n"
        "  - {name: three, connection: {<<: [{command: first}, *base], env: {<<: *env, C: d}}}\n"
        '  - {name: four, connection: {type: stdio, command: x, env: {"<<": e}}}\n'
    )
    commands = [getattr(server.connection, "command") for server in config.mcp_servers]  # noqa: B009
    assert commands == ["npx", "uvx", "first", "x"]
    assert getattr(config.mcp_servers[2].connection, "env") == {"A": "b", "C": "d"}  # noqa: B009
    assert getattr(config.mcp_servers[3].connection, "env") == {"<<": "e"}  # noqa: B009


def test_a_file_without_a_known_suffix_is_read_for_what_it_is(loaded: Loaded) -> None:
    for name in ("config", "mcpxrc", "c.conf"):
        assert loaded("mode: search", name).mode == "search"
        assert loaded('{"mode": "search", }', name).mode == "search"
        assert loaded('// mine\n{"mode": "search"}', name).mode == "search"
    assert loaded('\ufeff{"mode": "search"}', "c.json").mode == "search"
    assert loaded("\ufeffmode: search\r\n", "c.yml").mode == "search"


def test_the_slow_reader_of_pyyaml_gives_the_same(
    loaded: Loaded, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some platforms have no libyaml."""
    import yaml

    monkeypatch.setattr(yaml_reader, "_Loader", yaml.SafeLoader)
    assert loaded("mcp_servers: [{name: a, command: x, args: [1.10]}]").mcp_servers[0].name == "a"
    for case in (
        "billion laughs",
        "a tag of one's own",
        "a duplicate key",
        "a NUL",
        "100,000 dashes",
    ):
        text, message = HOSTILE[case]
        assert message in refused(text), case


def test_a_file_that_is_not_there_or_no_file_is_told_so(folder: Path) -> None:
    (folder / "folder" / "a.yaml").mkdir(parents=True)
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    for name, reason in {
        "nope.yaml": "nope.yaml does not exist",
        "folder": "folder/a.yaml is a folder",
        "pipe": "pipe is not a regular file",
        "loop": "loop cannot be read",
        "a\0b": "is not a possible file name",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            load(Path(name), {})


def test_a_file_that_may_not_be_read_is_told_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (folder / "c.yaml").write_text("mode: direct")
    monkeypatch.setattr(Path, "open", refuse)  # root may read everything
    with pytest.raises(ConfigError, match="cannot be read: permission denied"):
        load(Path("c.yaml"), {})


def test_good_json_is_loaded_without_a_yaml_reader(folder: Path) -> None:
    """It costs more than the rest of the room together."""
    (folder / "c.json").write_text('{"mcp_servers": [{"name": "a", "command": "x"}]}')
    code = (
        "import sys; from pathlib import Path; from mcpx.config import load; "
        "load(Path('c.json'), {}); "
    )
    done = subprocess.run(
        [sys.executable, "-c", code + "print('yaml' in sys.modules)"],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "False\n", done.stderr


# The search for the file (RUN-2)


@pytest.fixture
def environ(folder: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(folder / "xdg")}


def user_config(folder: Path) -> Path:
    path = folder / "xdg" / "mcpx" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("mode: direct")
    return path


def test_a_named_file_wins(folder: Path, environ: dict[str, str]) -> None:
    for name in ("named.yaml", "env.yaml", "mcpx.yaml"):
        (folder / name).write_text("mode: direct")
    environ["MCPX_CONFIG"] = "env.yaml"
    assert find("named.yaml", environ, folder) == folder / "named.yaml"
    assert find(str(folder / "named.yaml"), environ, Path("/")) == folder / "named.yaml"
    assert find(None, environ, folder) == folder / "env.yaml"


def test_a_named_file_must_be_there(folder: Path, environ: dict[str, str]) -> None:
    (folder / "mcpx.yaml").write_text("mode: direct")
    with pytest.raises(ConfigError, match=r"^error: nope\.yaml does not exist$"):
        find("nope.yaml", environ, folder)
    with pytest.raises(
        ConfigError, match=r"^error: nope\.yaml \(named by MCPX_CONFIG\) does not exist$"
    ):
        find(None, {**environ, "MCPX_CONFIG": "nope.yaml"}, folder)


def test_files_of_the_working_folder_come_in_their_order(
    folder: Path, environ: dict[str, str]
) -> None:
    user = user_config(folder)
    for name in ("config.json", "config.yaml", "mcpx.yaml"):
        (folder / name).write_text('{"mcp_servers": []}')
    for name in ("mcpx.yaml", "config.yaml", "config.json"):
        assert find(None, environ, folder) == folder / name
        (folder / name).unlink()
    assert find(None, environ, folder) == user
    user.unlink()
    assert find(None, environ, folder) is None


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ('{"mcp_servers": []}', True),
        ('{"mcpServers": {}, "theme": "dark"}', True),
        ('{"servers": [{"id": "a", "command": ["x"]}]}', True),
        ('{"mode": "search", "$schema": "s"}', True),
        ('{"mcp_servers": [', True),
        ('{"name": "some-app", "version": 1}', False),
        ('{"server": {"port": 80}, "database": {}}', False),
        ('{"openapi": "3.1.0", "servers": []}', False),
        ('{"broken": [', False),
        ("{}", False),
        ("", False),
        ("[1]", False),
    ],
)
def test_a_config_json_of_some_other_program_is_passed_over(
    text: str, ours: bool, folder: Path, environ: dict[str, str]
) -> None:
    (folder / "config.json").write_text(text)
    assert find(None, environ, folder) == (folder / "config.json" if ours else None)


def test_a_binary_file_under_our_name_is_passed_over(folder: Path, environ: dict[str, str]) -> None:
    (folder / "config.yaml").write_bytes(b"mcp_servers\xff")
    assert find(None, environ, folder) is None


def test_the_users_config_folder_has_a_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    path = folder / ".config" / "mcpx" / "config.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("mode: direct")
    (folder / "empty").mkdir()
    assert find(None, {}, folder / "empty") == path
