"""Entries of `mcp_servers` for the server programs of the tests."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kit.messages import Json
from kit.process import FIXTURES, stdio_command

SHOP_SERVER = str(FIXTURES / "shop_server.py")
"""A program with six tools over stdio."""

_ODD_SERVER = str(FIXTURES.parent / "behaviour" / "odd_server.py")


def stdio_server(name: str, command: Sequence[str], **keys: Any) -> Json:
    """An entry with the prefix `name`: its tools are called `<name>_<tool>`."""
    connection = {
        "type": "stdio",
        "command": command[0],
        "args": list(command[1:]),
        **keys.pop("connection", {}),
    }
    return {"name": name, "prefix": name, "connection": connection, **keys}


def raw_server(name: str, *flags: str, **keys: Any) -> Json:
    return stdio_server(name, stdio_command("raw_server.py", *flags), **keys)


def everything_server(name: str, *flags: str, **keys: Any) -> Json:
    return stdio_server(
        name, stdio_command("everything_server.py", "--transport", "stdio", *flags), **keys
    )


def odd_server(name: str, record: Path, *flags: str, **keys: Any) -> Json:
    """A server that appends every message it reads to the file `record`, for
    `recorded_messages`."""
    return stdio_server(
        name, [sys.executable, "-I", "-S", _ODD_SERVER, str(record), *flags], **keys
    )


def recorded_messages(record: Path, method: str) -> list[Json]:
    """The messages of a method that a server has appended to `record`."""
    lines = record.read_bytes().splitlines() if record.exists() else []
    return [message for message in map(json.loads, lines) if message["method"] == method]
