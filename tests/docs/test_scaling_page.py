"""The model of cost in docs/scaling.md: its table is what its program says, in both languages."""

import subprocess
import sys

import pytest

from docs.blocks import ROOT, blocks


@pytest.mark.parametrize("page", ["docs/scaling.md", "docs/scaling.zh-CN.md"])
def test_the_table_is_what_the_program_prints(page: str) -> None:
    (program,) = [block.text for block in blocks("docs/scaling.md") if block.language == "python"]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    rows = done.stdout.splitlines()
    assert len(rows) == 4
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    assert [row for row in rows if row not in lines] == []
