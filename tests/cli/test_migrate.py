"""CFG-8: `mcpx migrate` turns any dialect into the native shape without changing what it means; `mcpx export` lets no
secret out."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from fixtures.person import Person
from mcpx.config import Config, load

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in (ROOT / "tests" / "config" / "files", ROOT / "examples")
    for path in folder.rglob("*")
    if path.suffix in (".json", ".yaml", ".toml") and not {"observability", "plugin", "deploy"} & {*path.parts}
)
SECRET = "sk-test-4f9a8b7c6d5e4f3a2b1c"


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def meaning(path: Path, environ: dict[str, str]) -> Config:
    config = load(path, environ)
    scripts = config.global_.script_paths if config.commands else ()
    servers = tuple(replace(each, switched_off=each.switched_off and "off") for each in config.mcp_servers)
    commands = tuple(replace(each, switched_off=each.switched_off and "off") for each in config.commands)
    config = replace(config, mcp_servers=servers, commands=commands)  # which says where in the file
    return replace(config, path=None, dialect="native", global_=replace(config.global_, script_paths=scripts))


@pytest.mark.parametrize("example", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_every_example_means_the_same_afterwards(person: Person, example: Path) -> None:
    """CFG-8, CFG-2: mode, naming, every field of every server."""
    path = person.folder / example.name
    shutil.copy(example, path)
    path.chmod(0o600)
    person.environ |= {"MCPX_CI_TOKEN": "a" * 32, "MCPX_PROMETHEUS_TOKEN": "b" * 32}
    before = meaning(path, person.environ)
    done = person.types("migrate", str(path), "-o", "out.yaml")
    assert done.returncode == 0, done.stderr
    if (out := person.folder / "out.yaml").exists():
        assert meaning(out, person.environ) == before
        assert load(out, person.environ).dialect == "native"
        assert set(yaml.safe_load(out.read_text())) & {"mcp_servers", "commands"}
        again = person.types("migrate", "out.yaml")
        assert again.returncode == 0 and "native shape already" in again.stderr


def test_comments_stay_where_the_text_allows_and_the_rest_is_told(person: Person) -> None:
    path = person.config(
        "# mine\nmcp_servers:\n  # about a\n  - name: a\n    command: x  # why x\n    type: stdio\n"
        "health_check_interval: 10\n",
        "old.yaml",
    )
    before = meaning(path, person.environ)
    done = person.types("migrate", "old.yaml", "--in-place")
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert "# mine\n" in text and "  # about a\n" in text and "mode: describe" in text
    assert ("# why x" in text) or ("# why x" in done.stderr)
    assert meaning(path, person.environ) == before
    backup = next(person.folder.glob("old.yaml.*.bak"))
    assert "health_check_interval: 10\n" in backup.read_text() and backup.stat().st_mode & 0o777 == 0o600
    json_file = person.config('{\n  // lost\n  "mcpServers": {"a": {"command": "x"}}\n}\n', "a.json")
    done = person.types("migrate", "a.json", "-o", "b.yaml")
    assert "1 comment could not be kept" in done.stderr and "// lost" in done.stderr and json_file.exists()


def test_words_of_a_client_program_are_said_in_full(person: Person) -> None:
    """CFG-2: nobody else knows `${workspaceFolder}`."""
    (person.folder / ".vscode").mkdir()
    path = person.config(
        '{"servers": {"a": {"command": "x", "args": ["${workspaceFolder}/y", "${HOME_X:-z}"], "cwd": "sub"}}}',
        ".vscode/mcp.json",
    )
    before = meaning(path, person.environ)
    done = person.types("migrate", str(path), "-o", "mcpx.yaml")
    assert done.returncode == 0, done.stderr
    assert meaning(person.folder / "mcpx.yaml", person.environ) == before
    assert f"{person.folder}/y" in (person.folder / "mcpx.yaml").read_text()


def test_what_would_mean_something_else_elsewhere_is_refused(person: Person) -> None:
    """A `.env` file beside the old one, a relative path."""
    person.config('{"mcpServers": {"a": {"command": "x", "env": {"K": "${ONLY_HERE}"}}}}', "a.json")
    (person.folder / ".env").write_text("ONLY_HERE=1\n")
    (person.folder / "other").mkdir()
    done = person.types("migrate", "a.json", "-o", "other/b.yaml")
    assert done.returncode == 2 and "would not mean the same" in done.stderr and "mcp_servers[0]" in done.stderr
    assert list((person.folder / "other").iterdir()) == []
    done = person.types("migrate", "a.json", "-o", "a.json")
    assert done.returncode == 2 and "--force" in done.stderr


def test_nothing_is_written_without_being_asked_and_secrets_stay_theirs(person: Person) -> None:
    path = person.config(json.dumps({"mcpServers": {"a": {"command": "x", "env": {"API_KEY": SECRET}}}}), "a.json")
    before = path.read_text()
    assert SECRET in person.types("migrate", "a.json").stdout  # what a file would hold
    shown = person.types("migrate", "a.json", "--in-place", "--dry-run").stdout
    assert SECRET not in shown and "+" in shown and path.read_text() == before
    told = json.loads(person.types("migrate", "a.json", "--json").stdout)
    assert told["dialect"] == "mcpServers" and path.read_text() == before


@pytest.mark.parametrize("form", ["yaml", "json", "mcpServers"])
def test_an_export_holds_no_secret_and_names_what_must_be_set(person: Person, form: str) -> None:
    person.config(json.dumps({"mcpServers": {"a": {"command": "x", "env": {"API_KEY": SECRET}}}}), "a.json")
    done = person.types("export", "a.json", "--format", form)
    assert done.returncode == 0 and SECRET not in done.stdout + done.stderr and "${API_KEY}" in done.stdout
    assert "to be set: API_KEY, for mcp_servers[0].connection.env.API_KEY" in done.stderr
    assert ("mcpServers" in yaml.safe_load(done.stdout)) is (form == "mcpServers")
    file = person.folder / "out"
    assert person.types("export", "a.json", "--format", form, "-o", "out").returncode == 0
    assert file.read_text() == done.stdout and file.stat().st_mode & 0o777 == 0o600
    assert person.types("export", "a.json", "-o", "out").returncode == 2
    told = json.loads(person.types("export", "a.json", "--format", form, "--json").stdout)
    assert told["config"] == done.stdout and list(told["variables"]) == ["API_KEY"]
