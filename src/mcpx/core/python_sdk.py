"""Recognizes servers that were written for version 1 of the MCP Python SDK and run with version
2."""

import re
from collections.abc import Sequence

from mcpx.processes.downloaders import program_name

SPEC = "mcp<2"
"""The version that these servers need."""
_ERRORS = re.compile(
    r"'(?:Server|FastMCP|ServerSession|ClientSession)' object has no attribute '\w+'"
    r"|cannot import name '\w+' from (?:partially initialized module )?'mcp(?:\.[\w.]+)?'"
    r"|cannot import name 'McpError'"
    r"|module 'mcp(?:\.[\w.]+)?' has no attribute"
    r"|No module named 'mcp\.[\w.]+'"
    r"|pin 'mcp<2'"
)


def needs_version_1(text: str) -> bool:
    """Whether the output of a server reports an API that version 2 of the SDK does not have."""
    return _ERRORS.search(text) is not None


def args_with_version_1(command: str, args: Sequence[str]) -> list[str] | None:
    """The arguments that make uv run the server with version 1. None if the command is not uv, or
    they have them."""
    if any(SPEC in arg for arg in args):
        return None
    program = program_name(command)
    if program == "uvx":
        return ["--with", SPEC, *args]
    if program == "uv" and "run" in args:
        behind = list(args).index("run") + 1
        return [*args[:behind], "--with", SPEC, *args[behind:]]
    return None
