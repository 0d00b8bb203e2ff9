"""RUN-8: the example of a package that adds parts, installed as any other, through the real
program."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from behaviour.compact import Visitor, text
from kit.gateway import GatewayProcess

PLUGIN = Path(__file__).resolve().parents[2] / "examples" / "plugin"
README = PLUGIN / "README.md"
pytestmark = pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv")


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """An environment in which it is installed."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "plugin"  # a build may leave something behind
    shutil.copytree(PLUGIN, source, ignore=shutil.ignore_patterns("__pycache__"))
    site = folder / "site"
    done = subprocess.run(
        ["uv", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(source)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "library.db"
    connection = sqlite3.connect(file)
    with connection:
        connection.execute("CREATE TABLE books (author, title, year)")
        rows = [
            ("le guin", "The Dispossessed", 1974),
            ("le guin", "A | B", 1969),
            ("lem", "Solaris", 1961),
        ]
        connection.executemany("INSERT INTO books VALUES (?, ?, ?)", rows)
    connection.close()
    yield file


def test_its_parts_are_listed_called_and_chosen(env: Mapping[str, str], library: Path) -> None:
    """RUN-8."""
    command = {
        "name": "books_by",
        "type": "sqlite",
        "sqlite": {
            "path": str(library),
            "query": "SELECT title, year FROM books WHERE author = :author ORDER BY year",
        },
        "parameters": [{"name": "author", "required": True}],
    }
    broken = {
        **command,
        "name": "broken",
        "sqlite": {**command["sqlite"], "query": "DELETE FROM books"},
    }
    with GatewayProcess(
        {"commands": [command, broken], "global": {"value_format": "markdown"}}, env=env
    ) as gateway:
        direct, compact = Visitor(gateway.port, "direct"), Visitor(gateway.port, "describe")
        assert direct.names() == ["books_by", "broken"]
        assert text(direct.use("books_by", author="lem")) == '[{"title": "Solaris", "year": 1961}]'
        assert text(compact.run("commands", "books_by", {"author": "le guin"})) == (
            "| title | year |\n| --- | --- |\n| A \\| B | 1969 |\n| The Dispossessed | 1974 |"
        )
        refused = direct.use("broken", author="lem")
        assert refused["isError"] and "readonly database" in text(refused)
        assert direct.use("books_by")["isError"]  # the author is missing


def check(env: Mapping[str, str], folder: Path, config: str) -> subprocess.CompletedProcess[str]:
    file = folder / "mcpx.yaml"
    file.write_text(config, encoding="utf-8")
    command = [sys.executable, "-m", "mcpx", "check", str(file)]
    return subprocess.run(
        command,
        env={**os.environ, **env},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_config_of_its_page_is_taken(env: Mapping[str, str], library: Path) -> None:
    config = README.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    good = check(env, library.parent, config)
    assert good.returncode == 0, good.stderr


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            "commands: [{name: a, type: sqlite, sqlite: {path: a.db, quary: x}}]",
            "did you mean 'query'?",
        ),
        (
            "commands: [{name: a, type: sqlit, sqlite: {path: a.db, query: x}}]",
            "did you mean 'sqlite'?",
        ),
        (
            "commands: [{name: a, type: sqlite, sqlite: {path: a.db, query: ' '}}]",
            "there is nothing to ask for",
        ),
        ("global: {value_format: markdwn}", "did you mean 'markdown'?"),
        ("global: {schema_format: markdown}", "unknown schema_format 'markdown'"),
    ],
)
def test_mistakes_are_told_with_what_was_meant(
    config: str, told: str, env: Mapping[str, str], tmp_path: Path
) -> None:
    refused = check(env, tmp_path, config)
    assert refused.returncode == 2
    assert told in refused.stderr, refused.stderr
