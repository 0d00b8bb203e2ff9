"""OAuth 2.1 as MCP servers ask for it: who lets us in, as whom we ask, what a person has to open,
what is got of it.

One file for each step: `challenge` (what the server said), `discovery` (whom it trusts), `clients`
(as whom we come), `asking` (the page a person opens, and what comes back), `tokens`, and `session`,
which holds them together. All their requests go through `web`.
"""
