"""Mechanisms that every package uses. They know nothing of MCP and import nothing of mcpx."""
