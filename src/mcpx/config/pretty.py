"""JSON of one line laid out in several lines, for showing a difference. Files keep their form."""

import json

from mcpx.config.source import tree_of


def in_lines(text: str) -> str:
    """Text that is not a JSON object on one line is returned unchanged."""
    bare = text.strip()
    if "\n" in bare or not bare.startswith("{"):
        return text
    tree = tree_of(bare, "json")
    return text if not tree else json.dumps(tree, indent=2, ensure_ascii=False) + "\n"
