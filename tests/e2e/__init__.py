"""Real servers behind mcpx, real client programs before it."""
