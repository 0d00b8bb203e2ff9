"""The JSON Schema for editors says what the loader does: of keys, of types, of what may be left out
(CFG-8)."""

import contextlib
import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from config.test_config_keys import EVERY_KEY
from mcpx.auth import AUTHS
from mcpx.commands import COMMANDS
from mcpx.config import Config
from mcpx.config.json_schema import config_schema, part_schema
from mcpx.config.problems import Findings, GaveUpError
from mcpx.config.source import Source
from mcpx.config.validate import build
from mcpx.transports import TRANSPORTS

REPO = Path(__file__).parents[2]
NATIVE = [REPO / "examples" / name for name in ("mcpx.yaml", "commands.yaml", "guard.yaml")]
VALID = jsonschema_rs.Draft202012Validator(config_schema())
Step = str | int


def tree_of(path: Path, text: str | None = None) -> Any:
    source = Source(path, text)
    return source.parse(Findings(source.trace))


def ways(value: Any, *before: Step) -> Iterator[tuple[Step, ...]]:
    """To every value in a tree, itself first."""
    yield before
    if isinstance(value, dict):
        for key, item in value.items():
            yield from ways(item, *before, key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from ways(item, *before, index)


def at(tree: Any, way: tuple[Step, ...]) -> Any:
    for step in way:
        tree = tree[step]
    return tree


def changed(tree: Any, way: tuple[Step, ...], value: Any) -> Any:
    tree = copy.deepcopy(tree)
    at(tree, way[:-1])[way[-1]] = value
    return tree


EVERYTHING = tree_of(Path("every.yaml"), EVERY_KEY)


def test_it_is_a_schema_of_the_draft_it_names() -> None:
    schema = config_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(schema)
    json.dumps(schema)


def test_every_key_there_is_is_valid() -> None:
    assert [str(error) for error in VALID.iter_errors(EVERYTHING)] == []


@pytest.mark.parametrize("path", NATIVE, ids=lambda path: path.name)
def test_the_examples_are_valid(path: Path) -> None:
    assert [str(error) for error in VALID.iter_errors(tree_of(path))] == []


def problems(tree: Any) -> list[str]:
    """Of keys and types, as the loader tells them; not what holds between fields."""
    findings = Findings(Source(Path("c.yaml")).trace)
    with contextlib.suppress(GaveUpError):
        build(Config, tree, findings, lambda path: None)
    return [finding.message for finding in findings]


def is_about(message: str) -> bool:
    return message.startswith(("expected", "unknown", "missing key")) or "has no value" in message


def test_a_key_that_the_loader_does_not_know_is_refused_wherever_it_stands() -> None:
    seen = 0
    for way in ways(EVERYTHING):
        if not isinstance(at(EVERYTHING, way), dict):
            continue
        tree = changed(EVERYTHING, (*way, "zzz"), 1)
        refused = any(map(is_about, problems(tree)))
        assert VALID.is_valid(tree) is not refused, way
        assert VALID.is_valid(changed(EVERYTHING, (*way, "x-mine"), "1")) or not refused, way
        seen += refused
    assert seen > 25


@pytest.mark.parametrize(
    "other", [{"a": 1}, ["a"], "text", 3, True], ids=["mapping", "list", "text", "number", "bool"]
)
def test_a_value_of_a_type_that_the_loader_refuses_is_refused(other: Any) -> None:
    """And one that it takes is taken."""
    for way in ways(EVERYTHING):
        if not way or way[-1] == "$schema" or str(way[-1]).startswith("x-"):
            continue
        tree = changed(EVERYTHING, way, other)
        told = problems(tree)
        if not told:
            assert VALID.is_valid(tree), way
        elif any(map(is_about, told)):
            assert not VALID.is_valid(tree), (way, told)


def test_what_must_be_there_is_missed_and_a_key_without_a_value_is_as_good_as_none() -> None:
    for way in ways(EVERYTHING):
        if not way or isinstance(way[-1], int):
            continue
        without = copy.deepcopy(EVERYTHING)
        del at(without, way[:-1])[way[-1]]
        for tree in (without, changed(EVERYTHING, way, None)):
            told = problems(tree)
            if not told:
                assert VALID.is_valid(tree), way
            elif any(map(is_about, told)):
                assert not VALID.is_valid(tree), (way, told)


@pytest.mark.parametrize(
    "entry",
    [
        {"server": {"port": "${PORT:-8000}"}},
        {"global": {"hot_reload": "${HOT}", "call_timeout": "${env:T}"}},
        {"mode": "${MODE:-auto}"},
    ],
)
def test_a_variable_may_stand_for_a_number_a_boolean_and_a_choice(entry: Any) -> None:
    assert VALID.is_valid(entry)


@pytest.mark.parametrize(
    "entry",
    [
        {"server": {"port": 70000}},
        {"server": {"port": "8000"}},
        {"global": {"call_timeout": 0}},
        {"global": {"traces": {"endpoint": "http://x", "sample": 2}}},
        {"mode": "unheard-of"},
        {"mcp_servers": [{"name": "a", "connection": {"type": "carrier-pigeon"}}]},
        {
            "mcp_servers": [
                {"name": "a", "connection": {"type": "http", "url": "http://x", "command": "y"}}
            ]
        },
        {"commands": [{"name": "a", "type": "http", "script": {"path": "x"}}]},
    ],
)
def test_what_breaks_a_rule_is_refused(entry: Any, refused: Callable[..., str]) -> None:
    assert not VALID.is_valid(entry)
    assert refused(json.dumps(entry), "c.json")


def test_it_tells_what_a_key_means_its_default_and_what_there_is_to_choose() -> None:
    schema = config_schema()
    servers, settings = schema["$defs"]["Server"], schema["$defs"]["Global"]["properties"]
    assert "menus" in servers["properties"]["name"]["description"]
    assert (
        settings["call_timeout"]["default"] == 300.0
        and settings["call_timeout"]["exclusiveMinimum"] == 0
    )
    assert "default" not in servers["properties"]["call_timeout"], "it is what `global` says"
    assert "search" in schema["properties"]["mode"]["anyOf"][0]["enum"]
    for family in (TRANSPORTS, COMMANDS, AUTHS):
        for name in family:
            assert f'"const": "{name}"' in json.dumps(schema), name


def test_a_part_has_a_schema_of_its_own() -> None:
    schema = part_schema(AUTHS["basic_auth"])
    assert set(schema["required"]) == {"username", "password"}
    assert jsonschema_rs.Draft202012Validator(schema).is_valid(
        {"username": "a", "password": "${P}"}
    )


def test_a_part_of_another_package_is_among_it(tmp_path: Path) -> None:
    """As an installed package brings it: by an entry point."""
    (tmp_path / "pigeons.py").write_text(
        "from dataclasses import dataclass\nfrom typing import "
        "ClassVar\n\n\n@dataclass(frozen=True)\nclass Pigeon:\n"
        '    """By air."""\n    type: ClassVar[str] = "pigeon"\n    loft: str\n    """Where it '
        'lives."""\n\n'
        "    async def open(self, dial): ...\n"
    )
    info = tmp_path / "pigeons-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeons\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[mcpx.transports]\npigeon = pigeons:Pigeon\n")
    script = (
        "import json; from mcpx.config.json_schema import config_schema; "
        "print(json.dumps(config_schema()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        timeout=60,
        check=True,
    )
    pigeon = json.loads(done.stdout)["$defs"]["Pigeon"]
    assert pigeon["properties"]["type"]["const"] == "pigeon"
    assert pigeon["properties"]["loft"]["description"] == "Where it lives."


def test_nothing_of_it_is_imported_by_the_gateway() -> None:
    script = "import sys, mcpx.app, mcpx.cli.main; print('mcpx.config.json_schema' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=60, check=True
    )
    assert done.stdout.split() == [b"False"]
