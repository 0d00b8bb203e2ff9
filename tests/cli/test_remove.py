"""RUN-4: `mcpx remove`, `enable`, `disable`: entries by their names, and the rest of the file as it was (CFG-6)."""

import json
from pathlib import Path

import pytest

from fixtures.person import Person
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
def person(tmp_path: Path) -> Person:
    made = Person(tmp_path)
    made.config(TEXT)
    return made


def text(person: Person) -> str:
    return (person.folder / "mcpx.yaml").read_text()


def test_a_server_is_switched_off_and_on_where_it_stands(person: Person) -> None:
    assert person.types("disable", "github").returncode == 0
    assert text(person).startswith("# mine\nmcp_servers:\n  - name: github   # the one\n") and "# about files" in text(
        person
    )
    assert "    enabled: false\n" in text(person)
    again = person.types("disable", "github")
    assert again.returncode == 0 and "already" in again.stdout
    told = json.loads(person.types("enable", "github", "files", "--json").stdout)
    assert told["enabled"] == [{"section": "mcp_servers", "name": "github"}] and told["revision"] == 3
    assert "enabled: false" not in text(person)


def test_a_name_that_is_not_there_is_told_with_the_one_that_was_meant(person: Person) -> None:
    done = person.types("disable", "gihtub", "files")
    assert done.returncode == 2 and "did you mean 'github'?" in done.stderr and text(person) == TEXT


def test_what_two_things_are_called_must_be_said(person: Person) -> None:
    done = person.types("remove", "both")
    assert done.returncode == 2 and "--kind server" in done.stderr and text(person) == TEXT
    assert person.types("remove", "both", "--kind", "command").returncode == 0
    assert "{name: both, connection" in text(person) and 'url: "https://h.example/"' not in text(person)


def test_what_others_refer_to_stays_unless_somebody_insists(person: Person) -> None:
    done = person.types("remove", "github")
    assert done.returncode == 2 and "profiles[0].servers refers to server 'github'" in done.stderr
    done = person.types("remove", "files")
    assert done.returncode == 2 and "profiles[0].tools" in done.stderr
    done = person.types("remove", "key")
    assert done.returncode == 2 and "mcp_servers[1].auth refers to auth config 'key'" in done.stderr
    assert text(person) == TEXT
    assert person.types("remove", "files", "key", "--force").returncode == 0
    assert "auth: {ref" not in text(person) and "bearer_token" not in text(person) and "# mine" in text(person)


def test_a_dry_run_shows_the_difference_and_writes_nothing(person: Person) -> None:
    done = person.types("remove", "both", "--kind", "server", "--dry-run")
    assert (
        done.returncode == 0 and "-  - {name: both, connection" in done.stdout and "nothing was written" in done.stdout
    )
    told = json.loads(person.types("disable", "github", "--dry-run", "--json").stdout)
    assert "+    enabled: false" in told["files"][0]["diff"] and text(person) == TEXT


def test_somebody_who_saves_at_the_same_time_loses_nothing(person: Person) -> None:
    """CFG-6."""
    path = person.folder / "mcpx.yaml"
    alone = Alone(path, person.environ, None, person.state)
    proposal = alone.propose([RemoveEntry("mcp_servers", "both")])
    path.write_text(TEXT + "# theirs\n")
    with pytest.raises(ConfigError, match="somebody else"):
        alone.write(proposal)
    assert path.read_text() == TEXT + "# theirs\n"


def test_revisions_are_listed_and_gone_back_to(person: Person) -> None:
    assert person.types("remove", "both", "--kind", "server").returncode == 0
    listed = person.types("config", "history").stdout
    assert "remove server 'both'" in listed and "command line (cli)" in listed
    assert "+  - {name: both" in person.types("config", "rollback", "1", "--dry-run", "--json").stdout.replace(
        "\\n", "\n"
    )
    assert person.types("config", "rollback", "1").returncode == 0 and text(person) == TEXT
    done = person.types("config", "rollback", "77")
    assert done.returncode == 2 and "is not kept" in done.stderr
    assert "rollback NUMBER" in person.types("config", "rollback").stderr


def test_without_a_config_there_is_nothing_to_remove(tmp_path: Path) -> None:
    done = Person(tmp_path).types("remove", "x")
    assert done.returncode == 2 and "no config file found" in done.stderr
