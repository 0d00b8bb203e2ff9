"""Whatever a file holds, loading it ends in a `Config` or a `ConfigError` (CFG-4, threats:
Config)."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mcpx.config import Config, load
from mcpx.config.dialects import TOP_KEYS
from mcpx.config.schema import Server
from mcpx.config.validate import keys_of
from mcpx.model.errors import ConfigError

FILES = Path(__file__).parent / "files"
CLIENTS = Path(__file__).parents[2] / "examples" / "clients"
EXAMPLES = [
    file.read_text() for folder in (FILES, CLIENTS) for file in folder.iterdir() if file.is_file()
]
ENVIRON = {"A": "${B}", "N": "7", "HOME": "/home/me"}

fuzzing = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def outcome(data: bytes, name: str) -> Config | str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        try:
            return load(path, ENVIRON)
        except ConfigError as error:
            message = str(error)
    assert message.startswith("error: ")
    assert message.rstrip(".").endswith(name) or "there may be more" in message
    return message


names = st.sampled_from(["c.yaml", "c.json", "c.toml", "config"])


@fuzzing
@given(st.binary(max_size=200), names)
def test_random_bytes(data: bytes, name: str) -> None:
    outcome(data, name)


@fuzzing
@given(
    st.text(alphabet=" \t\n:-[]{},&*!|>'\"#%@`?<$~.0123aé获\x00\u2028\ud7ff", max_size=120), names
)
@example("? ", "c.yaml")
@example("a: !<>", "c.yaml")
@example("! ", "c.yaml")
@example("%TAG", "c.yaml")
@example("0x", "c.yaml")
@example("a: 0b_", "c.yaml")
@example("a: 1:2:3.", "c.yaml")
@example('{"a": "\\u2028"}', "c.json")
def test_random_punctuation(text: str, name: str) -> None:
    outcome(text.encode(), name)


words = st.sampled_from(
    [
        *sorted(TOP_KEYS),
        *keys_of(Server),
        *(
            "command",
            "args",
            "env",
            "url",
            "headers",
            "type",
            "http",
            "script",
            "path",
            "servers",
            "mcpServers",
        ),
        *(
            "mcp",
            "mcp.servers",
            "context_servers",
            "projects",
            "envFile",
            "environment",
            "source",
            "settings",
        ),
        *(
            "id",
            "timeouts",
            "init",
            "call",
            "disabled",
            "ref",
            "$schema",
            "x-a",
            "parameters",
            "tokens",
            "token",
        ),
    ]
)
texts = st.sampled_from(
    [
        "a",
        "",
        "stdio",
        "http",
        "http://h/sse",
        "${A}",
        "${N}",
        "${NO}",
        "${A:-${N}}",
        "$$",
        "true",
        "\0",
    ]
)
scalars = (
    st.none() | st.booleans() | st.integers(-2, 70_000) | st.floats() | texts | st.text(max_size=5)
)
trees = st.recursive(
    scalars,
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(words | st.text(max_size=4), below, max_size=5)
    ),
    max_leaves=25,
)


@fuzzing
@given(st.dictionaries(words, trees, max_size=6))
def test_random_trees_of_our_own_words(tree: dict[str, Any]) -> None:
    """The same tree means the same in YAML and in JSON."""
    as_yaml = outcome(yaml.safe_dump(tree, allow_unicode=True).encode("utf-8", "replace"), "c.yaml")
    as_json = outcome(json.dumps(tree).encode(), "c.json")
    if (
        "NaN" not in json.dumps(tree)
        and "Infinity" not in json.dumps(tree)
        and isinstance(as_yaml, Config)
    ):
        assert isinstance(as_json, Config)
        assert (as_yaml.mode, as_yaml.dialect, as_yaml.naming) == (
            as_json.mode,
            as_json.dialect,
            as_json.naming,
        )


@fuzzing
@given(
    st.sampled_from(EXAMPLES),
    st.lists(
        st.tuples(st.integers(0, 2500), st.integers(0, 6), st.text(max_size=3)),
        min_size=1,
        max_size=4,
    ),
    names,
)
def test_mutated_examples(text: str, edits: list[tuple[int, int, str]], name: str) -> None:
    for at, removed, put in edits:
        text = text[:at] + put + text[at + removed :]
    outcome(text.encode("utf-8", "replace"), name)


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_half_written_example_is_refused_or_whole(text: str) -> None:
    """CFG-5: what a reload may find while an editor is writing."""
    for end in range(0, len(text), 7):
        outcome(text[:end].encode(), "config")
