"""RUN-4: `mcpx remove`, `enable`, `disable`: entries by their names, and the rest of the file as it
was (CFG-6)."""

import json
from pathlib import Path

import pytest

from kit.user import User
from mcpx.config.edits import RemoveEntry
from mcpx.core.alone import Alone
from mcpx.model.errors import ConfigError

TEXT = """\
# mine
mcp_servers:
  - name: github   # the one
    connection: {type: stdio, command: x}
  # about files
  - name: files
    connection: {type: http, url: 'https://h.example/mcp'}
    auth: {ref: key}
  - {name: both, connection: {type: stdio, command: z}}
commands:
  - {name: both, type: http, http: {url: "https://h.example/"}}
auth_configs:
  - {name: key, type: bearer_token, bearer_token: {token: "${T:-x}"}}
profiles:
  - {name: dev, servers: [github], tools: ["files.read*"]}
"""


@pytest.fixture
def user(tmp_path: Path) -> User:
    made = User(tmp_path)
    made.write_config(TEXT)
    return made


def text(user: User) -> str:
    return (user.folder / "mcpx.yaml").read_text()


def test_a_server_is_switched_off_and_on_where_it_stands(user: User) -> None:
    assert user.run("disable", "github").returncode == 0
    assert text(user).startswith(
        "# mine\nmcp_servers:\n  - name: github   # the one\n"
    ) and "# about files" in text(user)
    assert "    enabled: false\n" in text(user)
    again = user.run("disable", "github")
    assert again.returncode == 0 and "already" in again.stdout
    told = json.loads(user.run("enable", "github", "files", "--json").stdout)
    assert (
        told["enabled"] == [{"section": "mcp_servers", "name": "github"}] and told["revision"] == 3
    )
    assert "enabled: false" not in text(user)


def test_a_name_that_is_not_there_is_told_with_the_one_that_was_meant(user: User) -> None:
    done = user.run("disable", "gihtub", "files")
    assert done.returncode == 2 and "did you mean 'github'?" in done.stderr and text(user) == TEXT


def test_what_two_things_are_called_must_be_said(user: User) -> None:
    done = user.run("remove", "both")
    assert done.returncode == 2 and "--kind server" in done.stderr and text(user) == TEXT
    assert user.run("remove", "both", "--kind", "command").returncode == 0
    assert "{name: both, connection" in text(user) and 'url: "https://h.example/"' not in text(user)


def test_what_others_refer_to_stays_unless_somebody_insists(user: User) -> None:
    done = user.run("remove", "github")
    assert done.returncode == 2 and "profiles[0].servers refers to server 'github'" in done.stderr
    done = user.run("remove", "files")
    assert done.returncode == 2 and "profiles[0].tools" in done.stderr
    done = user.run("remove", "key")
    assert done.returncode == 2 and "mcp_servers[1].auth refers to auth config 'key'" in done.stderr
    assert text(user) == TEXT
    assert user.run("remove", "files", "key", "--force").returncode == 0
    assert (
        "auth: {ref" not in text(user)
        and "bearer_token" not in text(user)
        and "# mine" in text(user)
    )


def test_a_dry_run_shows_the_difference_and_writes_nothing(user: User) -> None:
    done = user.run("remove", "both", "--kind", "server", "--dry-run")
    assert (
        done.returncode == 0
        and "-  - {name: both, connection" in done.stdout
        and "nothing was written" in done.stdout
    )
    told = json.loads(user.run("disable", "github", "--dry-run", "--json").stdout)
    assert "+    enabled: false" in told["files"][0]["diff"] and text(user) == TEXT


def test_somebody_who_saves_at_the_same_time_loses_nothing(user: User) -> None:
    """CFG-6."""
    path = user.folder / "mcpx.yaml"
    alone = Alone(path, user.environ, None, user.state)
    proposal = alone.propose([RemoveEntry("mcp_servers", "both")])
    path.write_text(TEXT + "# theirs\n")
    with pytest.raises(ConfigError, match="somebody else"):
        alone.write(proposal)
    assert path.read_text() == TEXT + "# theirs\n"


def test_revisions_are_listed_and_gone_back_to(user: User) -> None:
    assert user.run("remove", "both", "--kind", "server").returncode == 0
    listed = user.run("config", "history").stdout
    assert "remove server 'both'" in listed and "command line (cli)" in listed
    assert "+  - {name: both" in user.run(
        "config", "rollback", "1", "--dry-run", "--json"
    ).stdout.replace("\\n", "\n")
    assert user.run("config", "rollback", "1").returncode == 0 and text(user) == TEXT
    done = user.run("config", "rollback", "77")
    assert done.returncode == 2 and "is not kept" in done.stderr
    assert "rollback NUMBER" in user.run("config", "rollback").stderr


def test_without_a_config_there_is_nothing_to_remove(tmp_path: Path) -> None:
    done = User(tmp_path).run("remove", "x")
    assert done.returncode == 2 and "no config file found" in done.stderr
