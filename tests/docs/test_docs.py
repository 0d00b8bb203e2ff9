"""What the docs say is so: the generated page is fresh, every option and code is written down, the
twins agree."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from mcpx.cli import output
from mcpx.config import load
from mcpx.model import errors
from mcpx.upstreams.life import State

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def read(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["usage.md", "usage.zh-CN.md"])
def test_every_option_of_the_gateway_itself_is_in_the_usage(page: str) -> None:
    """RUN-2: with its meaning, in both languages; those of all commands are in docs/cli.md
    (test_complete.py)."""
    told = subprocess.run(
        [sys.executable, "-m", "mcpx", "--help"], capture_output=True, text=True, timeout=60
    ).stdout
    options = set(re.findall(r"(?<!\w)--[a-z][a-z-]+", told)) - {"--help", "--version"}
    assert (
        options and [option for option in sorted(options) if option not in read("docs", page)] == []
    )


@pytest.mark.parametrize("page", ["usage.md", "usage.zh-CN.md"])
def test_every_error_code_of_our_own_is_in_the_usage(page: str) -> None:
    """SRC-8: a code that mcpx makes on a server's behalf can be looked up."""
    ours = {
        value
        for name, value in vars(errors).items()
        if name.isupper() and isinstance(value, int) and value < -33000
    }
    assert ours and [code for code in sorted(ours) if str(code) not in read("docs", page)] == []


def test_the_readme_and_its_chinese_twin_show_the_same_commands() -> None:
    def commands(page: str) -> list[str]:
        return [
            line.split("#")[0].strip() for line in read(page).splitlines() if line.startswith("$ ")
        ]

    assert commands("README.md") == commands("README.zh-CN.md") != []


@pytest.mark.parametrize(
    "page", ["README.md", "README.zh-CN.md", "docs/usage.md", "docs/usage.zh-CN.md"]
)
def test_every_example_config_is_good_as_it_stands(page: str, tmp_path: Path) -> None:
    """CFG-8: copied without a change, with nothing set in the environment."""
    examples = re.findall(r"^```yaml\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)
    assert examples
    for example in examples:
        file = tmp_path / "mcpx.yaml"
        file.write_text(example, encoding="utf-8")
        assert load(file, {}).warnings == ()


@pytest.mark.parametrize(
    "page", ["README.md", "README.zh-CN.md", "docs/usage.md", "docs/usage.zh-CN.md"]
)
def test_users_are_not_told_to_install_what_only_developers_need(page: str) -> None:
    """RUN-1."""
    assert re.findall(r"uv run (?!--no-dev )\S*mcpx.*", read(page)) == []


def test_every_link_inside_the_docs_leads_somewhere() -> None:
    pages = [
        ROOT / "README.md",
        ROOT / "README.zh-CN.md",
        ROOT / "CONTRIBUTING.md",
        *DOCS.rglob("*.md"),
    ]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_page_of_the_package_has_no_link_that_only_works_in_the_repository(page: str) -> None:
    """RUN-1: a package index shows it alone; files are named, and are there."""
    text = read(page)
    assert [target for target in re.findall(r"\]\(([^)]+)\)", text) if "://" not in target] == []
    named = re.findall(r"`((?:docs|bench)/[\w./-]+|[A-Z][\w.-]+\.md)`", text)
    assert named and [file for file in named if not (ROOT / file).exists()] == []


@pytest.mark.parametrize(
    "page", ["README.md", "README.zh-CN.md", "docs/usage.md", "docs/usage.zh-CN.md"]
)
def test_every_example_for_a_client_is_json(page: str) -> None:
    examples = re.findall(r"^```json\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)
    examples += re.findall(r"`(\{\"(?:mcpServers|servers)\".*?\}\}\})`", read(page), re.DOTALL)
    assert len(examples) >= 3 and all("mcpx" in str(json.loads(example)) for example in examples)


def test_the_errors_page_lists_all_codes_of_json_errors() -> None:
    sources = "".join(
        file.read_text("utf-8") for file in (ROOT / "src" / "mcpx" / "cli").rglob("*.py")
    )
    printed = {"mistake", "failed", *re.findall(r"\.fail\(\s*\"(\w+)\"", sources)}
    printed |= {code for code, _ in output.FAILURES.values()}
    table = read("docs", "errors.md").partition("| code | exit code |")[2].partition("\n\n")[0]
    first_cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    documented = {code for cell in first_cells for code in re.findall(r"`(\w+)`", cell)}
    assert printed - documented == set()
    assert {"not_found", "server_down", "needs_sign_in"} <= documented


@pytest.mark.parametrize("page", ["troubleshooting.md", "troubleshooting.zh-CN.md"])
def test_every_state_of_a_server_is_explained(page: str) -> None:
    """LIF-3: what `mcpx servers` can show."""
    assert [state for state in get_args(State) if f"`{state}`" not in read("docs", page)] == []


def test_every_decision_is_in_the_list_of_decisions() -> None:
    listed = read("docs", "decisions", "README.md")
    assert [p.name for p in (DOCS / "decisions").glob("0*.md") if p.name not in listed] == []


@pytest.mark.parametrize("page", ["admin.md", "admin.zh-CN.md"])
def test_every_path_of_the_admin_api_is_in_its_page_and_no_other(page: str) -> None:
    """ADM-2: the table of paths; `x` and its `a`, `b` stands for `x/a` and `x/b`."""
    table = read("docs", page).partition("`/api` ")[2].partition("\n\n")[0]
    listed: set[str] = set()
    for part in re.split(
        r"[;；]|\n", "\n".join(row.split("|")[1] for row in table.splitlines()[2:])
    ):
        whole, *below = re.split("and its|及其", part)
        names = re.findall("`([^`]+)`", whole)
        listed |= {
            *names,
            *(f"{names[-1]}/{name}" for name in re.findall("`([^`]+)`", "".join(below))),
        }
    there = {
        path.removeprefix("/api/")
        for path in json.loads(read("src", "mcpx", "admin", "openapi.json"))["paths"]
    }
    assert sorted(listed ^ there) == []


@pytest.mark.parametrize(
    "page", ["README.md", "README.zh-CN.md", "docs/admin.md", "docs/admin.zh-CN.md"]
)
def test_every_picture_is_there_for_light_and_dark(page: str) -> None:
    pictures = re.findall(r'(?:srcset|src)="([^"]+)"', read(page))
    assert (
        pictures
        and [file for file in pictures if not (ROOT / page).parent.joinpath(file).is_file()] == []
    )
    assert len([file for file in pictures if "dark" in file]) * 2 == len(pictures)
