"""The fenced blocks of a page, and what a comment before one wishes: `<!-- run: file=mcpx.yaml
exit=6 -->`.

file=NAME     the block is written to this file of the page's folder, for the commands below it
exit=N        the last command of the block ends with this code (else all end with 0)
output=free   what is shown is an excerpt or changes from run to run: only the code is looked at
beside=NAME   a configuration that is a part: what else belongs to it (`prepared.CONTEXT`)
use=NAME      from here on the page's folder is a new one, prepared like this
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=fence)\s*$",
    re.MULTILINE | re.DOTALL,
)
WISHES = re.compile(r"<!-- run: (.*?) -->\s*\Z")


@dataclass(frozen=True)
class Command:
    text: str
    """As bash reads it."""
    shown: tuple[str, ...]
    """What the page shows of its output."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    wishes: dict[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[Command]:
        """Of a terminal session the lines after `$ `, with what follows each; of a script, all of
        it."""
        if self.language in {"bash", "sh"}:
            return [Command(self.text.strip(), ())]
        if self.language != "console" and not self.text.startswith("$ "):
            return []
        found: list[Command] = []
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            lines = part.rstrip("\n").split("\n")
            taken = 1
            while lines[taken - 1].endswith("\\") and taken < len(lines):
                taken += 1
            found.append(
                Command(
                    "\n".join(lines[:taken]), tuple(line for line in lines[taken:] if line.strip())
                )
            )
        return found


ELSEWHERE = {"docs/installing.md": "tests/packaging/test_installing_page.py"}
"""Pages whose commands change the machine they run on, and who runs them."""


def pages() -> list[str]:
    """Every page that people read; decisions show nothing to run."""
    found = [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs").glob("*.md"))]
    found += sorted((ROOT / "docs" / "clients").glob("*.md"))
    return [str(path.relative_to(ROOT)) for path in found]


def blocks(page: str) -> list[Block]:
    text = ROOT.joinpath(page).read_text(encoding="utf-8")
    found: list[Block] = []
    for match in FENCE.finditer(text):
        before = text[: match.start()]
        wished = WISHES.search(before)
        wishes = dict(word.partition("=")[::2] for word in wished[1].split()) if wished else {}
        found.append(Block(page, before.count("\n") + 1, match["language"], match["text"], wishes))
    return found
