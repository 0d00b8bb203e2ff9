"""docs/installing.md: every command in it that needs no container engine is run, as it stands, by
somebody new."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fixtures.stranger import BOUND, REPOSITORY, clone, printed, stranger
from mcpx import __version__
from mcpx.config import load

DOCS = REPOSITORY / "docs"
FENCE = re.compile(r"(<!-- run -->\n)?^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def sections(page: str) -> dict[str, list[tuple[bool, str]]]:
    """By heading, its blocks of commands and whether they are to be run."""
    text = (DOCS / page).read_text(encoding="utf-8")
    parts = [part.partition("\n") for part in re.split(r"(?m)^## ", text)[1:]]
    blocks = {
        title: [(bool(run), block) for run, block in FENCE.findall(body)]
        for title, _, body in parts
    }
    return {title: found for title, found in blocks.items() if found}


RUN = {
    title: [block for run, block in blocks if run]
    for title, blocks in sections("installing.md").items()
    if any(run for run, _ in blocks)
}


def commands(block: str) -> list[str]:
    lines = block.splitlines()
    assert lines and all(line.startswith("$ ") for line in lines)
    return [line[2:] for line in lines]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv")
@pytest.mark.parametrize("title", RUN)
def test_the_commands_of_a_section_work_one_after_the_other(title: str, tmp_path: Path) -> None:
    """RUN-1: in a clone, with an empty home; after the last one nothing of mcpx is left in it."""
    sources, home = clone(tmp_path / "clone"), tmp_path / "home"
    home.mkdir()
    env = stranger(home)
    if "pipx" in title:
        printed(["uv", "tool", "install", "pipx"], env, home)
    script = "\n".join(command for block in RUN[title] for command in commands(block))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=sources,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3 * BOUND,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}"
    assert done.stdout.count(f"mcpx {__version__}\n") == script.count("mcpx --version")
    left = [path for path in home.rglob("*") if "mcpx" in path.name and ".cache" not in path.parts]
    assert [path for path in left if path.name != ".mcpx-gateway.lock"] == [], (
        "pipx keeps its lock, which is empty"
    )
    if "scripts/mcpb" in script:
        assert (sources / "dist" / f"mcpx-{__version__}.mcpb").is_file()


def test_what_is_not_run_is_only_what_needs_a_container_engine() -> None:
    left = [
        command
        for found in sections("installing.md").values()
        for run, block in found
        if not run
        for command in commands(block)
    ]
    assert left and [command for command in left if not command.startswith("podman ")] == []
    assert len(RUN) >= 6


def test_both_languages_have_the_same_commands_and_examples() -> None:
    english, chinese = (
        list(sections(page).values()) for page in ("installing.md", "installing.zh-CN.md")
    )
    assert english == chinese
    for fence in ("yaml", "dockerfile"):
        both = [
            re.findall(
                rf"^```{fence}\n(.*?)^```",
                (DOCS / page).read_text(encoding="utf-8"),
                re.MULTILINE | re.DOTALL,
            )
            for page in ("installing.md", "installing.zh-CN.md")
        ]
        assert both[0] == both[1] != []


def test_the_config_for_a_container_is_good_and_lets_only_tokens_in(tmp_path: Path) -> None:
    """SEC-1"""
    text = (DOCS / "installing.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    file = tmp_path / "mcpx.yaml"
    file.write_text(example, encoding="utf-8")
    config = load(file, {})
    assert config.server.auth is not None and config.warnings == ()


def test_every_link_to_a_section_leads_to_one() -> None:
    for page in ("installing.md", "installing.zh-CN.md"):
        text = (DOCS / page).read_text(encoding="utf-8")
        anchors = {
            title.strip().lower().replace(" ", "-") for title in re.findall(r"(?m)^## (.+)$", text)
        }
        linked = set(re.findall(r"\]\(#([^)]+)\)", text))
        assert linked and linked - anchors == set()
