"""Shared tools of the tests. `tests/fixtures` has data and server programs only.

- Gateways: `gateway`, `core_gateway`, `replicas`. Commands: `command`, `user`, `terminal`.
- Clients: `client` and `messages` (MCP), `http_client`, `admin_api`, `admin_events`, `callers`
  (without a transport).
- Servers: `servers` (entries of `mcp_servers`), `server` (`ScriptedServer`, in the event loop of
  the test),
  `stdio_server` (base of server programs), `http_api`, `http_pair`, `npm_registry`,
  `protected_server`, `token_issuer`.
- Time: `until` (`until`, `wait_until`), `clock`, `loop`, `cost`.
- Processes: `process`, `process_tree`, `ports`, `node`.

Use `Gateway` and `run_command`, which run in the process of the test. Use `GatewayProcess` and
`run_process` for signals, standard streams, exit codes, memory, crashes, and log settings.

`everything_server*` is a program: do not import it. Modules here must not have names of the
standard library.
"""
