"""mcpx: one MCP gateway for all of your tools."""

__version__ = "0.1.0"
