"""RUN-5: whatever a client's file holds, the entry comes and goes, and the rest stays."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mcpx.clients.catalogue import Client, Place, client
from mcpx.clients.entry import Target, asks, entry, toml_value
from mcpx.clients.texts import Reading, connected, read, without_entry
from mcpx.config.nodes import MAX_NODES
from mcpx.config.tree import as_map
from mcpx.model.errors import ConfigError

TARGET = Target("http://127.0.0.1:8000/mcp", ["/opt/mcpx", "c.yaml"], True)

keys = some.text(
    some.characters(codec="utf-8", exclude_characters="\x7f"), min_size=1, max_size=6
).filter(lambda k: k != "mcpx")
leaves = (
    some.none()
    | some.booleans()
    | some.integers(-99, 99)
    | some.text(some.characters(codec="utf-8"), max_size=8)
)
values = some.recursive(
    leaves,
    lambda each: some.lists(each, max_size=3) | some.dictionaries(keys, each, max_size=3),
    max_leaves=8,
)
servers = some.dictionaries(keys, some.dictionaries(keys, values, max_size=3), max_size=3)
ascii_values = some.text("abc:#{}-'\"", max_size=5) | some.integers(0, 9) | some.booleans()
ascii_servers = some.dictionaries(
    some.text("abc-_.", min_size=1, max_size=4),
    some.dictionaries(some.text("abc", min_size=1), ascii_values),
    max_size=3,
)
blanks = some.sampled_from(["", " ", "\n", "\t", "\r\n  ", "\n\n    "])
comments = some.sampled_from(["", "", '// a: {} , " }\n', "/* , ] */", " // x\r\n"])


@some.composite
def spelled(draw: some.DrawFn, value: Any) -> str:
    """JSON as people and editors write it."""

    def gap() -> str:
        return str(draw(blanks)) + str(draw(comments)) + str(draw(blanks))

    def told(value: Any) -> str:
        if isinstance(value, dict | list):
            parts = (
                [
                    f"{gap()}{json.dumps(key)}{gap()}:{gap()}{told(each)}{gap()}"
                    for key, each in value.items()
                ]
                if isinstance(value, dict)
                else [f"{gap()}{told(each)}{gap()}" for each in value]
            )
            last = "," + gap() if parts and draw(some.booleans()) else ""
            body = ",".join(parts) + last if parts else gap()
            return "{" + body + "}" if isinstance(value, dict) else "[" + body + "]"
        return json.dumps(value, ensure_ascii=bool(draw(some.booleans())))

    return gap() + told(value) + gap()


@some.composite
def client_file(draw: some.DrawFn, root: str) -> str:
    tree: dict[str, Any] = dict(draw(some.dictionaries(keys, values, max_size=3)))
    if draw(some.booleans()):
        tree[root] = draw(servers)
    return str(draw(spelled(tree)))


def place_of(name: str) -> tuple[Client, Place]:
    known = client(name)
    assert known is not None
    return known, next(
        p for p in known.places("linux", {}, "/h", "/p") if p.scope == "user" and not p.spec.reads
    )


def both_ways(name: str, text: str, over_http: bool) -> tuple[Reading, str, str]:
    known, place = place_of(name)
    reading = read(place, Path(place.path), text.encode())
    transport = "http" if over_http else "stdio"
    made = entry(known, reading.shape, transport, TARGET)
    there = connected(reading, made, asks(reading.shape, transport, TARGET))
    again = read(place, Path(place.path), reading.encoded(there))
    assert again.entry == made and connected(again, made, {}) == there
    return reading, there, without_entry(again)


def is_within(short: str, long: str) -> bool:
    letters = iter(long)
    return all(letter in letters for letter in short)


@settings(max_examples=150, deadline=None)
@given(text=client_file("servers"), over_http=some.booleans())
def test_json_of_any_spelling_keeps_every_letter_but_ours(text: str, over_http: bool) -> None:
    """RUN-5: comments, blanks, trailing commas, line ends, escapes."""
    if not text.strip():
        return
    reading, there, back = both_ways("vscode", text, over_http)
    kept = "".join(letter for letter in text if not letter.isspace())
    assert is_within(kept, there)
    told = read(reading.place, reading.file, back.encode()).tree
    assert {k: v for k, v in told.items() if v != {}} == {
        k: v for k, v in reading.tree.items() if v != {}
    } or (reading.tree.get("servers", 0) is None)


@settings(max_examples=100, deadline=None)
@given(
    tree=some.dictionaries(keys, leaves.filter(lambda v: v is not None), max_size=3),
    own=servers,
    over_http=some.booleans(),
)
def test_toml_keeps_every_letter_but_ours(
    tree: dict[str, Any], own: dict[str, dict[str, Any]], over_http: bool
) -> None:
    text = "".join(f"{toml_value(key)} = {toml_value(value)} # x\n" for key, value in tree.items())
    for name, server in own.items():
        text += f"\n[mcp_servers.{toml_value(name)}] # [mcp_servers.mcpx]\n"
        text += "".join(f"{toml_value(k)} = '''[mcp_servers.mcpx]\n'''\n" for k in server)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    _, there, back = both_ways("codex", text, over_http)
    assert there.startswith(text) and back == text


@settings(max_examples=100, deadline=None)
@given(
    own=ascii_servers,
    above=some.sampled_from(["", "# x\n", "GOOSE: 1   # y\n", "a: &b [1, 2]\nc: *b\n"]),
    below=some.sampled_from(["", "z: 1\n", "\n# end\n"]),
)
def test_yaml_keeps_every_letter_but_ours(own: dict[str, Any], above: str, below: str) -> None:
    lines = "".join(
        f"  {json.dumps(name)}: {json.dumps(server)}  # its\n" for name, server in own.items()
    )
    text = above + (f"extensions:\n{lines}" if own else "") + below
    if not text.strip():
        return
    _, there, back = both_ways("goose", text, False)
    assert is_within(text, there)
    if own:
        assert back == text


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("cursor", '{"mcpServers": {,}}', "mcp.json:1:17"),
        ("cursor", '{"mcpServers": {}', "mcp.json:1:"),
        ("cursor", '{"a": 1, "a": 2}', "duplicate key 'a'"),
        ("cursor", '{"mcpServers": []}', "'mcpServers' is no table"),
        ("cursor", "[]", "no mapping"),
        ("opencode", '{"mcp": "off"}', "'mcp' is no table"),
        ("codex", "a = \n", "config.toml:1:"),
        ("codex", "mcp_servers = { a = { command = 'a' } }\n", "cannot be changed in place"),
        ("goose", "a: [\n", "config.yaml:"),
        ("goose", "extensions: hello\n", "'extensions' is no table"),
        ("continue", "mcpServers: {a: 1}\n", "'mcpServers' is no list"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_the_place(name: str, text: str, what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        both_ways(name, text, False)
    told = "\n".join(refused.value.problems)
    assert what in told and "othing was changed" in told


def test_text_that_is_not_utf_8_is_refused() -> None:
    _, place = place_of("cursor")
    for data, what in (
        (b"\xff\xfe{\x00", "UTF-16"),
        (b'{\n"a": "\xe9"}', "not UTF-8 text (line 2)"),
    ):
        with pytest.raises(ConfigError) as refused:
            read(place, Path("x.json"), data)
        assert what in refused.value.problems[0]


def test_a_large_file_of_history_is_read(tmp_path: Path) -> None:
    """Claude Code keeps much besides servers in its file."""
    project = {"history": [{"display": "x", "n": [1, 2, 3]}] * 20}
    values_in_project = 2 + 20 * 6
    history = {
        f"/p/{n}": project for n in range(MAX_NODES // values_in_project + 1)
    }  # more than a config may have
    text = json.dumps({"projects": history}, indent=2)
    _, there, _ = both_ways("claude-code", text, False)
    assert (as_map(json.loads(there)["mcpServers"]) or {}).keys() == {"mcpx"}
