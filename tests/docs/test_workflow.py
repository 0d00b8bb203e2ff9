"""What is run for a change is what the package claims to run on."""

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "tests.yml"


def jobs() -> dict[str, Any]:
    return yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"]


def test_the_quick_suite_runs_on_every_system_and_every_python_the_package_names() -> None:
    matrix = jobs()["quick"]["strategy"]["matrix"]
    claimed = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert matrix["python"] == claimed
    assert {name.partition("-")[0] for name in matrix["system"]} == {"ubuntu", "macos", "windows"}


def test_everything_runs_somewhere_and_what_is_built_is_installed_and_run() -> None:
    runs = {
        name: [step["run"] for step in job["steps"] if "run" in step]
        for name, job in jobs().items()
    }
    assert runs["whole"][-1] == "scripts/test" and runs["check"] == ["scripts/check"]
    assert runs["package"][0] == "uv build" and "--transport stdio" in runs["package"][1]


def test_every_script_that_is_run_is_there_and_may_be_run() -> None:
    for script in set(re.findall(r"scripts/\w+", WORKFLOW.read_text("utf-8"))):
        assert (ROOT / script).is_file()


def test_the_page_about_systems_says_what_was_never_run() -> None:
    page = (ROOT / "docs" / "systems.md").read_text("utf-8")
    assert "never been run" in page and "MCPX_SYSTEM=portable" in page
