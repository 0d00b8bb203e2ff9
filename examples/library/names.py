"""Names that every model's API takes: letters, digits, `_` and `-`, at most 64. The way back is a
table, no guess."""

import re
from collections.abc import Iterable

from mcpx import Tool


class Names:
    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            plain = re.sub(r"[^A-Za-z0-9_-]", "_", tool.name)[:64]
            name, number = plain, 2
            while name in self._tools:  # `a.b` and `a_b` are two tools
                name, number = f"{plain[:60]}_{number}", number + 1
            self._tools[name] = tool

    def items(self) -> Iterable[tuple[str, Tool]]:
        return self._tools.items()

    def tool(self, name: str) -> Tool | None:
        """What a model means; None: it has made the name up."""
        return self._tools.get(name)
