"""RUN-8, SRC-8: a part of another package that misbehaves harms nobody else, and is told without a
traceback."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kit.client import Session
from kit.gateway import GatewayProcess
from kit.messages import text_of

PARTS = """
from dataclasses import dataclass
from typing import ClassVar


class Base:
    reads_only = False

    def mistakes(self, parameters=None):
        return ()

    def prepare(self, bench):
        return self

    async def run(self, arguments, progress):
        return {"content": [{"type": "text", "text": "fine"}]}

    async def close(self):
        pass


@dataclass(frozen=True)
class Fine(Base):
    type: ClassVar[str] = "fine"
    secret: str = ""


@dataclass(frozen=True)
class Exits(Fine):
    type: ClassVar[str] = "exits"

    async def run(self, arguments, progress):
        raise SystemExit(3)

    async def close(self):
        raise RuntimeError("cannot close")


@dataclass(frozen=True)
class Answers(Fine):
    type: ClassVar[str] = "answers"

    async def run(self, arguments, progress):
        return "a text"


@dataclass(frozen=True)
class Raises(Fine):
    type: ClassVar[str] = "raises"

    def mistakes(self, parameters=None):
        raise RuntimeError(self.secret)


@dataclass(frozen=True)
class Mumbles(Fine):
    type: ClassVar[str] = "mumbles"

    def mistakes(self, parameters=None):
        return ["not a mistake"]


@dataclass(frozen=True)
class Unmade(Fine):
    type: ClassVar[str] = "unmade"

    def __post_init__(self):
        raise TypeError(self.secret)
"""
NAMES = ("Fine", "Exits", "Answers", "Raises", "Mumbles", "Unmade")


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile_parts.py").write_text(PARTS)
    (folder / "leaves.py").write_text("raise SystemExit(7)")
    about = folder / "hostile-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    points = (
        "".join(f"{name.lower()} = hostile_parts:{name}\n" for name in NAMES)
        + "leaves = leaves:Part\n"
    )
    (about / "entry_points.txt").write_text(f"[mcpx.commands]\n{points}")
    return {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("raises", "RuntimeError in hostile_parts"),
        ("mumbles", "AttributeError in hostile_parts"),
        ("unmade", "TypeError in hostile_parts"),
        ("leaves", "SystemExit(7)"),
    ],
)
def test_a_part_that_cannot_be_checked_is_a_mistake_with_its_place(
    kind: str, said: str, env: Mapping[str, str], tmp_path: Path
) -> None:
    """CFG-4: its own words are not told, they may hold what stands in the file."""
    file = tmp_path / "mcpx.yaml"
    file.write_text(f"commands: [{{name: a, type: {kind}, {kind}: {{secret: c4n4ry}}}}]")
    command = [sys.executable, "-m", "mcpx", "check", str(file)]
    done = subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and "mcpx.yaml:1:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not [
        line
        for line in done.stderr.splitlines()
        if "c4n4ry" in line and "secret: c4n4ry" not in line
    ]


def test_a_command_that_ends_the_program_or_answers_nonsense_fails_alone(
    env: Mapping[str, str],
) -> None:
    """SRC-8: its call is a tool error, the others go on, and mcpx ends cleanly though it cannot be
    closed."""
    kinds = ("fine", "exits", "answers")
    with GatewayProcess(
        {"commands": [{"name": kind, "type": kind} for kind in kinds]}, env=env
    ) as gateway:
        session = Session(gateway.port)
        for kind, words in (("exits", "SystemExit"), ("answers", "TypeError")):
            failed = session.call(kind)
            assert failed["result"]["isError"] and words in text_of(failed)
        assert text_of(session.call("fine")) == "fine"
