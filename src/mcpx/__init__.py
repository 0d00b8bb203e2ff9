"""mcpx: one MCP gateway for all of your tools. As a library: `from mcpx import Gateway`
(docs/library.md)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcpx.library.gateway import Gateway
    from mcpx.library.values import (
        Change,
        Content,
        Description,
        Found,
        Health,
        Message,
        Progress,
        Prompt,
        Question,
        Resource,
        Result,
        Tool,
    )
    from mcpx.model.errors import ConfigError, Denied, McpxError, NotFound, RpcError, Unavailable

__version__ = "0.1.0"
__all__ = [
    "Change",
    "ConfigError",
    "Content",
    "Denied",
    "Description",
    "Found",
    "Gateway",
    "Health",
    "McpxError",
    "Message",
    "NotFound",
    "Progress",
    "Prompt",
    "Question",
    "Resource",
    "Result",
    "RpcError",
    "Tool",
    "Unavailable",
    "__version__",
]

_ERRORS = ("ConfigError", "Denied", "McpxError", "NotFound", "RpcError", "Unavailable")


def __getattr__(name: str) -> Any:
    """Each when it is first asked for: `import mcpx`, and every command, stays light."""
    if name not in __all__:
        raise AttributeError(f"module 'mcpx' has no attribute {name!r}")
    from importlib import import_module

    place = (
        "model.errors"
        if name in _ERRORS
        else "library.gateway"
        if name == "Gateway"
        else "library.values"
    )
    return getattr(import_module(f"mcpx.{place}"), name)
