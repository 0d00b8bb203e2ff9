"""Writes the pages of docs/ that are made of the program itself: configuration, command line, REST, metrics, environment,
client programs.

uv run python scripts/references.py          # write
uv run python scripts/references.py --check  # exit 1 and names when a page is out of date
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import cli_reference
import config_reference
import rest_reference
import table_references

DOCS = Path(__file__).resolve().parents[1] / "docs"


def pages() -> Mapping[str, str]:
    """Text of each, by its path below docs/."""
    return {
        "configuration.md": config_reference.page(),
        **cli_reference.pages(),
        **rest_reference.pages(),
        **table_references.pages(),
    }


def main() -> int:
    old: list[str] = []
    for name, text in pages().items():
        file = DOCS / name
        if file.is_file() and file.read_text(encoding="utf-8") == text:
            continue
        old.append(name)
        if "--check" not in sys.argv[1:]:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    if old and "--check" in sys.argv[1:]:
        sys.stderr.write(f"not what the program says: {', '.join(old)}; run scripts/references.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
