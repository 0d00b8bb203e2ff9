"""The front edge: MCP towards clients, over stdio, streamable HTTP, HTTP+SSE and WebSocket."""
