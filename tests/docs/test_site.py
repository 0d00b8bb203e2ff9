"""The site builds, without a link that leads nowhere and without anything from another host."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.blocks import ROOT


def site_pages() -> object:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "scripts" / "site_pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_that_lead_nowhere_and_things_from_elsewhere_are_found(tmp_path: Path) -> None:
    """The test of the check that every build makes."""
    (tmp_path / "good.html").write_text(
        '<h1 id="here">x</h1><a href="good.html#here">y</a><a href="https://example.com">z</a>'
    )
    (tmp_path / "bad.html").write_text(
        '<a href="none.html">a</a><a href="good.html#there">b</a><script '
        'src="https://cdn.example.com/x.js"></script>'
        '<link rel="stylesheet" href="//fonts.example.com/f.css">'
    )
    (tmp_path / "style.css").write_text("@font-face {src: url(https://fonts.example.com/f.woff)}")
    found = site_pages().mistakes(tmp_path)  # type: ignore[attr-defined]
    assert len(found) == 5
    assert not any("good.html links" in mistake and "bad" not in mistake for mistake in found)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv")
def test_the_site_builds_with_every_page_and_every_file_for_programs(tmp_path: Path) -> None:
    """CFG-8: the JSON Schema is published; warnings of the generator, broken links and foreign
    hosts end the build."""
    uv = ["uv", "run", "--isolated", "--quiet", "--no-default-groups", "--group", "docs"]
    site = tmp_path / "site"
    command = [*uv, "python", "scripts/site_pages.py", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {
        str(path.relative_to(ROOT / "docs").with_suffix(".html"))
        for path in (ROOT / "docs").glob("*.md")
    }
    assert sorted(page for page in pages if not (site / page).is_file()) == []
    assert [
        name
        for name in ("config.schema.json", "llms.txt", "openapi.json", "start.md")
        if not (site / name).is_file()
    ] == []
