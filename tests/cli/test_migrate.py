"""CFG-8: `mcpx migrate` turns any dialect into the native shape without changing what it means;
`mcpx export` lets no secret out."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from kit.user import User
from mcpx.config import Config, load

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in (ROOT / "tests" / "config" / "files", ROOT / "examples")
    for path in folder.rglob("*")
    if path.suffix in (".json", ".yaml", ".toml")
    and not {"observability", "plugin", "deploy"} & {*path.parts}
)
SECRET = "sk-test-4f9a8b7c6d5e4f3a2b1c"


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def meaning(path: Path, environ: dict[str, str]) -> Config:
    config = load(path, environ)
    scripts = config.global_.script_paths if config.commands else ()
    servers = tuple(
        replace(each, switched_off=each.switched_off and "off") for each in config.mcp_servers
    )
    commands = tuple(
        replace(each, switched_off=each.switched_off and "off") for each in config.commands
    )
    config = replace(config, mcp_servers=servers, commands=commands)  # which says where in the file
    return replace(
        config, path=None, dialect="native", global_=replace(config.global_, script_paths=scripts)
    )


@pytest.mark.parametrize("example", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_every_example_means_the_same_afterwards(user: User, example: Path) -> None:
    """CFG-8, CFG-2: mode, naming, every field of every server."""
    path = user.folder / example.name
    shutil.copy(example, path)
    path.chmod(0o600)
    user.environ |= {"MCPX_CI_TOKEN": "a" * 32, "MCPX_PROMETHEUS_TOKEN": "b" * 32}
    before = meaning(path, user.environ)
    done = user.run("migrate", str(path), "-o", "out.yaml")
    assert done.returncode == 0, done.stderr
    if (out := user.folder / "out.yaml").exists():
        assert meaning(out, user.environ) == before
        assert load(out, user.environ).dialect == "native"
        assert set(yaml.safe_load(out.read_text())) & {"mcp_servers", "commands"}
        again = user.run("migrate", "out.yaml")
        assert again.returncode == 0 and "native shape already" in again.stderr


def test_comments_stay_where_the_text_allows_and_the_rest_is_told(user: User) -> None:
    path = user.write_config(
        "# mine\nmcp_servers:\n  # about a\n  - name: a\n    command: x  # why x\n    type: stdio\n"
        "health_check_interval: 10\n",
        "old.yaml",
    )
    before = meaning(path, user.environ)
    done = user.run("migrate", "old.yaml", "--in-place")
    assert done.returncode == 0, done.stderr
    text = path.read_text()
    assert "# mine\n" in text and "  # about a\n" in text and "mode: describe" in text
    assert ("# why x" in text) or ("# why x" in done.stderr)
    assert meaning(path, user.environ) == before
    backup = next(user.folder.glob("old.yaml.*.bak"))
    assert (
        "health_check_interval: 10\n" in backup.read_text()
        and backup.stat().st_mode & 0o777 == 0o600
    )
    json_file = user.write_config(
        '{\n  // lost\n  "mcpServers": {"a": {"command": "x"}}\n}\n', "a.json"
    )
    done = user.run("migrate", "a.json", "-o", "b.yaml")
    assert (
        "1 comment could not be kept" in done.stderr
        and "// lost" in done.stderr
        and json_file.exists()
    )


def test_words_of_a_client_program_are_said_in_full(user: User) -> None:
    """CFG-2: nobody else knows `${workspaceFolder}`."""
    (user.folder / ".vscode").mkdir()
    path = user.write_config(
        '{"servers": {"a": {"command": "x", "args": ["${workspaceFolder}/y", "${HOME_X:-z}"], '
        '"cwd": "sub"}}}',
        ".vscode/mcp.json",
    )
    before = meaning(path, user.environ)
    done = user.run("migrate", str(path), "-o", "mcpx.yaml")
    assert done.returncode == 0, done.stderr
    assert meaning(user.folder / "mcpx.yaml", user.environ) == before
    assert f"{user.folder}/y" in (user.folder / "mcpx.yaml").read_text()


def test_what_would_mean_something_else_elsewhere_is_refused(user: User) -> None:
    """A `.env` file beside the old one, a relative path."""
    user.write_config(
        '{"mcpServers": {"a": {"command": "x", "env": {"K": "${ONLY_HERE}"}}}}', "a.json"
    )
    (user.folder / ".env").write_text("ONLY_HERE=1\n")
    (user.folder / "other").mkdir()
    done = user.run("migrate", "a.json", "-o", "other/b.yaml")
    assert (
        done.returncode == 2
        and "would not mean the same" in done.stderr
        and "mcp_servers[0]" in done.stderr
    )
    assert list((user.folder / "other").iterdir()) == []
    done = user.run("migrate", "a.json", "-o", "a.json")
    assert done.returncode == 2 and "--force" in done.stderr


def test_nothing_is_written_without_being_asked_and_secrets_stay_theirs(user: User) -> None:
    path = user.write_config(
        json.dumps({"mcpServers": {"a": {"command": "x", "env": {"API_KEY": SECRET}}}}), "a.json"
    )
    before = path.read_text()
    assert SECRET in user.run("migrate", "a.json").stdout  # what a file would hold
    shown = user.run("migrate", "a.json", "--in-place", "--dry-run").stdout
    assert SECRET not in shown and "+" in shown and path.read_text() == before
    told = json.loads(user.run("migrate", "a.json", "--json").stdout)
    assert told["dialect"] == "mcpServers" and path.read_text() == before


@pytest.mark.parametrize("form", ["yaml", "json", "mcpServers"])
def test_an_export_holds_no_secret_and_names_what_must_be_set(user: User, form: str) -> None:
    user.write_config(
        json.dumps({"mcpServers": {"a": {"command": "x", "env": {"API_KEY": SECRET}}}}), "a.json"
    )
    done = user.run("export", "a.json", "--format", form)
    assert (
        done.returncode == 0
        and SECRET not in done.stdout + done.stderr
        and "${API_KEY}" in done.stdout
    )
    assert "to be set: API_KEY, for mcp_servers[0].connection.env.API_KEY" in done.stderr
    assert ("mcpServers" in yaml.safe_load(done.stdout)) is (form == "mcpServers")
    file = user.folder / "out"
    assert user.run("export", "a.json", "--format", form, "-o", "out").returncode == 0
    assert file.read_text() == done.stdout and file.stat().st_mode & 0o777 == 0o600
    assert user.run("export", "a.json", "-o", "out").returncode == 2
    told = json.loads(user.run("export", "a.json", "--format", form, "--json").stdout)
    assert told["config"] == done.stdout and list(told["variables"]) == ["API_KEY"]
