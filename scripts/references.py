"""Writes what of docs/ is made of the program itself: configuration, command line, REST, metrics,
environment, client programs; `config.schema.json` for editors, `llms.txt` for programs that read.

uv run python scripts/references.py          # write
uv run python scripts/references.py --check  # exit 1 and names when a page is out of date
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import cli_reference
import client_pages
import config_reference
import rest_reference
import site_pages
import table_references

from mcpx.config.json_schema import config_schema

DOCS = Path(__file__).resolve().parents[1] / "docs"


def pages() -> Mapping[str, str]:
    """Text of each, by its path below docs/."""
    made = {
        "configuration.md": config_reference.page(),
        "config.schema.json": json.dumps(config_schema(), indent=1, ensure_ascii=False) + "\n",
        **cli_reference.pages(),
        **client_pages.pages(),
        **rest_reference.pages(),
        **table_references.pages(),
    }
    return {**made, "llms.txt": site_pages.llms(DOCS, made)}


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
        sys.stderr.write(
            f"not what the program says: {', '.join(old)}; run scripts/references.py\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
