"""Examples in the document of the admin API."""

from typing import Any

FIELDS: dict[str, list[Any]] = {
    "CommandRow.type": ["http"],
    "CommandRow.summary": ["GET https://api.example.com/users/{id}"],
    "AuthRow.type": ["bearer_token"],
    "AuthRow.kept_in": ["environment"],
    "SentenceTold.code": ["cause.nothing_listens"],
    "SentenceTold.values": [{"host": "127.0.0.1:9000"}],
    "Problem.message": ["unknown key 'comand'; did you mean 'command'?"],
    "Problem.path": ["mcp_servers[0].connection.comand"],
    "Place.file": ["/home/ada/config.yaml"],
    "Place.line": [12],
    "PlanTold.summary": ["1 started (github), 4 kept"],
    "Written.revision": [15],
    "Exported.name": ["config.yaml"],
    "ProfileRow.path": ["/p/dev/mcp"],
    "PolicyGiven.entry": [{"default": "allow", "rules": [{"effect": "ask", "destructive": True}]}],
    "Question.tool": ["github.create_issue"],
    "ServerRow.name": ["github"],
    "ServerRow.phase": ["downloading"],
    "Diagnosis.repair": [{"connection.command": "/home/ada/.nvm/versions/node/v24.0.0/bin/npx"}],
    "ServerDetail.protocol": ["2025-11-25"],
    "Trial.entry": [
        {
            "name": "time",
            "connection": {"type": "stdio", "command": "uvx", "args": ["mcp-server-time"]},
        }
    ],
    "Pasted.text": ["npx -y @modelcontextprotocol/server-filesystem ~/data"],
    "SessionTold.by": ["cookie"],
    "ToolRow.name": ["github_create_issue"],
    "CallQuestion.method": ["elicitation/create"],
    "ClientRow.name": ["Claude Code"],
    "ReplicaRow.name": ["mcpx-0-7"],
}

_SERVERS: list[Any] = [
    {
        "name": "time",
        "connection": {"type": "stdio", "command": "uvx", "args": ["mcp-server-time"]},
    },
    {
        "name": "docs",
        "connection": {"type": "http", "url": "https://mcp.example.com/mcp"},
        "timeout": 20,
    },
]
_COMMANDS: list[Any] = [
    {
        "name": "weather",
        "description": "The weather in a city, now.",
        "type": "http",
        "http": {"url": "https://wttr.in/{city}", "params": {"format": "j1"}},
    },
    {"name": "disk", "description": "Free space.", "type": "script", "script": {"path": "disk.sh"}},
]
_AUTHS: list[Any] = [
    {"name": "github", "type": "bearer_token", "bearer_token": {"token": "${GITHUB_TOKEN}"}},
    {"name": "maps", "type": "api_key", "api_key": {"name": "X-Api-Key", "value": "${MAPS_KEY}"}},
]
_PROFILES: list[Any] = [
    {"name": "dev", "servers": ["github", "!prod-*"], "tools": ["!*delete*"], "mode": "search"}
]

BODIES = {
    f"/api/{path}{name}": entries
    for path, entries in (
        ("mcp-servers", _SERVERS),
        ("commands", _COMMANDS),
        ("auth-configs", _AUTHS),
        ("profiles", _PROFILES),
    )
    for name in ("", "/{name}")
}
