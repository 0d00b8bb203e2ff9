"""Servers for a gateway inside this very process."""

from typing import Any

from kit.process import stdio_command


def using(name: str, *args: str, **keys: Any) -> dict[str, Any]:
    command, *words = stdio_command("using_server.py", *args)
    return {
        "name": name,
        "connection": {"type": "stdio", "command": command, "args": ["-I", "-S", *words]},
        **keys,
    }
