"""The middle: one call in, one JSON object out. It knows nothing of HTTP or JSON-RPC ids."""
