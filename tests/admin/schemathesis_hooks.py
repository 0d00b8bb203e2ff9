"""What makes generated requests reach deeper than the checks of their form: names that there are,
entries that are nearly right, and a precondition that holds. Loaded by the program that generates
them (`test_whole_api.py`)."""

import random
from typing import Any

import schemathesis

NAMES = {
    "/api/mcp-servers": ["first", "second", "added"],
    "/api/commands": ["look", "added"],
    "/api/auth-configs": ["account", "added"],
    "/api/profiles": ["narrow", "added"],
    "/api/tools": ["first_echo", "look"],
}
ENTRIES: dict[str, list[dict[str, Any]]] = {
    "/api/mcp-servers": [
        {
            "name": "added",
            "connection": {"type": "stdio", "command": "/no/such/program"},
            "timeout": 1,
        },
        {"name": "added", "connection": {"type": "http", "url": "http://127.0.0.1:9/mcp"}},
        {
            "name": "first",
            "connection": {"type": "stdio", "command": "/bin/false", "env": {"TOKEN": "••••••••"}},
        },
    ],
    "/api/commands": [
        {
            "name": "added",
            "type": "http",
            "http": {"url": "http://127.0.0.1:9/{x}", "max_retries": 0},
        },
        {"name": "added", "type": "script", "script": {"path": "no.sh", "args": ["{x}"]}},
    ],
    "/api/auth-configs": [
        {"name": "added", "type": "bearer_token", "bearer_token": {"token": "••••••••"}},
        {
            "name": "added",
            "type": "basic_auth",
            "basic_auth": {"username": "u", "password": "p-a-s-s"},
        },
    ],
    "/api/profiles": [{"name": "added", "servers": ["first", "!second"]}],
    "/api/policy": [
        {"default": "allow", "rules": [{"effect": "ask", "tools": ["*"]}, {"effect": "deny"}]}
    ],
}

chance = random.Random(7)


@schemathesis.hook
def map_headers(context: Any, headers: Any) -> Any:
    if isinstance(headers, dict) and chance.random() < 0.8:
        headers["If-Match"] = "*"
    return headers


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: Any) -> Any:
    names = _of(NAMES, context)
    if (
        isinstance(path_parameters, dict)
        and "name" in path_parameters
        and names
        and chance.random() < 0.7
    ):
        path_parameters["name"] = chance.choice(names)
    return path_parameters


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """An entry that is right but for a field or two."""
    entries = _of(ENTRIES, context)
    if not isinstance(body, dict) or not entries or chance.random() < 0.3:
        return body
    entry = dict(chance.choice(entries))
    if "entry" in body:
        odd = body["entry"] if isinstance(body["entry"], dict) else {}
        return {**body, "entry": {**odd, **entry} if chance.random() < 0.5 else entry}
    return {**body, **entry} if chance.random() < 0.3 else entry


def _of(table: dict[str, list[Any]], context: Any) -> list[Any]:
    path = context.operation.path
    return next((given for begin, given in table.items() if path.startswith(begin)), [])
