"""SRC-7: `mcpx import` on the command line: what it writes, says and refuses."""

import json
from pathlib import Path

import pytest
import yaml

from kit.command import mcpx

DOCUMENT = """\
openapi: 3.1.0
info: {title: Pet API}
servers: [{url: "https://pets.example/v1"}]
components: {securitySchemes: {key: {type: http, scheme: bearer}}}
security: [{key: []}]
paths:
  /pets:
    get: {operationId: listPets, tags: [read], summary: "All pets \\e[31m"}
    post: {operationId: makePet, requestBody: {content: {multipart/form-data: {}}}}
  /old: {get: {operationId: old, deprecated: true}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pets.yaml").write_text(DOCUMENT)
    return tmp_path


def test_a_document_becomes_a_file_that_is_checked_and_started_beside_others(folder: Path) -> None:
    """SRC-7, CFG-7: also as one more file of a folder."""
    done = mcpx(folder, "import", "openapi", "pets.yaml", "-o", "made.yaml")
    assert (done.returncode, done.stdout) == (0, "")
    assert "1 command imported, 2 skipped" in done.stderr
    assert "skipped POST /pets: its body is multipart/form-data" in done.stderr
    assert "--deprecated" in done.stderr and "mcpx check made.yaml" in done.stderr
    assert "set PET_KEY_TOKEN: bearer token" in done.stderr
    checked = mcpx(folder, "check", "made.yaml", PET_KEY_TOKEN="t")
    assert checked.returncode == 0 and "1 command" in checked.stdout
    assert "PET_KEY_TOKEN" in mcpx(folder, "check", "made.yaml").stderr
    configs = folder / "configs"
    configs.mkdir()
    (folder / "made.yaml").rename(configs / "made.yaml")
    (configs / "main.yaml").write_text("mode: direct\n")
    assert "1 command" in mcpx(folder, "check", "configs", PET_KEY_TOKEN="t").stdout
    again = mcpx(folder, "import", "openapi", "pets.yaml", "-o", "configs/made.yaml")
    assert again.returncode == 2 and "--force" in again.stderr


def test_the_operations_are_listed_and_nothing_is_written(folder: Path) -> None:
    """SRC-7."""
    done = mcpx(folder, "import", "openapi", "pets.yaml", "--list", "--deprecated")
    assert done.returncode == 0 and done.stdout.endswith("3 operations\n")
    assert "listPets  GET     /pets  read  All pets [31m" in done.stdout
    assert "(deprecated)" in done.stdout
    told = json.loads(
        mcpx(folder, "import", "openapi", "pets.yaml", "--list", "--json", "--method", "get").stdout
    )
    assert [each["name"] for each in told["operations"]] == ["listPets"]


def test_everything_is_told_as_json(folder: Path) -> None:
    """SRC-7."""
    told = json.loads(mcpx(folder, "import", "openapi", "pets.yaml", "--json").stdout)
    assert told["commands"] == ["listPets"] and list(told["variables"]) == ["PET_KEY_TOKEN"]
    assert [each["operation"] for each in told["skipped"]] == ["GET /old", "POST /pets"]
    assert yaml.safe_load(told["config"])["commands"][0]["name"] == "listPets"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["openapy"], "did you mean 'openapi'?"),
        (["openapi"], "DOCUMENT"),
        (["openapi", "none.yaml"], "does not exist"),
        (["openapi", "pets.yaml", "--only", "nothing"], "no operation was imported"),
        (["openapi", "pets.yaml", "--method", "fetch"], "--method"),
        (["openapi", "pets.yaml", "--prefix", "a b"], "--prefix"),
        (["openapi", "pets.yaml", "--server", "nowhere"], "--server"),
        (["curl", "curl -d @file https://a.example"], "reads a file"),
        (["curl", "--name", "!!", "curl https://a.example"], "not a possible name"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_told_in_words(folder: Path, args: list[str], said: str) -> None:
    """SRC-7, RUN-2."""
    done = mcpx(folder, "import", *args)
    assert (
        done.returncode == 2
        and said in done.stderr
        and "Traceback" not in done.stderr
        and done.stdout == ""
    )


def test_a_curl_line_comes_as_a_text_as_words_or_on_standard_input(folder: Path) -> None:
    """SRC-7."""
    line = "curl -X POST https://a.example/x -d a=1"
    ways = [
        mcpx(folder, "import", "curl", line),
        mcpx(folder, "import", "curl", "--", *line.split()),
        mcpx(folder, "import", "curl", stdin=f"{line}\n"),
    ]
    assert [way.returncode for way in ways] == [0, 0, 0], ways
    assert len({way.stdout for way in ways}) == 1 and "a: '{a}'" in ways[0].stdout


def test_the_help_names_the_kinds(folder: Path) -> None:
    """RUN-2."""
    assert "mcpx import" in mcpx(folder, "help").stdout
    assert "openapi" in mcpx(folder, "help", "import").stdout
    assert "--param" in mcpx(folder, "help", "import", "curl").stdout
    assert "--only" in mcpx(folder, "import", "openapi", "--help").stdout
