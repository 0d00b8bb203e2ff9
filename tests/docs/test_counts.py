"""Numbers in the text of a page agree with the example below."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5}
ANNOUNCED = re.compile(
    r"\b(two|three|four|five) commands\b[^\n]*\n\n```console\n(.*?)```", re.DOTALL
)


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_shows_as_many_commands_as_it_announces(page: Path) -> None:
    for word, block in ANNOUNCED.findall(page.read_text(encoding="utf-8")):
        commands = [line for line in block.splitlines() if line.startswith("$ ")]
        assert len(commands) == NUMBERS[word], block
