"""What every type of command keeps, whoever wrote it (SRC-3, SRC-4, RUN-8)."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import pytest

from mcpx.commands import COMMANDS, Action
from mcpx.commands.work import Bench
from mcpx.config.validate import keys_of
from mcpx.model.kinds import Mistake

TYPES = sorted(COMMANDS)


def made(name: str, folder: Path) -> Action:
    """One with nothing but what it must have."""
    script = folder / "some.sh"
    script.touch(mode=0o700)
    good = {"url": "https://example.org/", "path": str(script)}
    part = COMMANDS[name]
    needed = [
        field.name
        for field in dataclasses.fields(part)  # pyright: ignore[reportArgumentType]
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    return part(**{field: good.get(field, "x") for field in needed})


def test_the_types_of_commands_are_those_that_are_promised() -> None:
    """SRC-3, SRC-4"""
    assert TYPES == ["http", "script"]


@pytest.mark.parametrize("name", TYPES)
def test_a_command_is_a_frozen_value_whose_fields_are_its_keys(name: str, tmp_path: Path) -> None:
    part: Any = COMMANDS[name]
    assert dataclasses.is_dataclass(part)
    keys = keys_of(part)
    assert keys and "type" not in keys
    assert made(name, tmp_path) == made(name, tmp_path)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made(name, tmp_path), next(iter(keys)), "y")


@pytest.mark.parametrize("name", TYPES)
def test_the_least_command_has_no_mistakes_and_says_whether_it_reads_only(
    name: str, tmp_path: Path
) -> None:
    action = made(name, tmp_path)
    assert isinstance(action.reads_only, bool)
    for parameters in ({}, {"id": True}, None):
        found = list(action.mistakes(parameters))
        assert all(isinstance(each, Mistake) for each in found)
        assert found == []


@pytest.mark.parametrize("name", TYPES)
def test_a_command_is_set_to_work_without_waiting(name: str, tmp_path: Path) -> None:
    bench = Bench(
        name="it",
        schema={"type": "object", "properties": {}},
        environ={},
        fetcher=lambda: pytest.fail("nothing is fetched before the first call"),
        script_paths=(str(tmp_path),),
    )
    work = made(name, tmp_path).prepare(bench)
    assert inspect.iscoroutinefunction(work.run) and inspect.iscoroutinefunction(work.close)
