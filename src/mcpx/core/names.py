"""All that can be named of one configuration, short enough for a shell to complete it in a
moment."""

from collections.abc import Iterable, Mapping
from itertools import islice

from mcpx.config import Config
from mcpx.model.call import Json, as_list, as_object

MOST = 5_000
"""Of each kind: more are no help at a prompt."""
LONGEST = 80
"""Characters of a description."""

Listed = Mapping[str, Iterable[tuple[str, str, Json]]]
"""Of each kind: the server, what it calls it, and the definition."""


def names_of(config: Config, listed: Listed) -> Json:
    return {
        "servers": [server.name for server in config.mcp_servers],
        "commands": [command.name for command in config.commands],
        "profiles": [profile.name for profile in config.profiles],
        "auth": [auth.name for auth in config.auth_configs],
        "tools": [_tool(*each) for each in islice(listed.get("tools", ()), MOST)],
        "prompts": [_prompt(*each) for each in islice(listed.get("prompts", ()), MOST)],
        "resources": [
            [name, _line(about)] for _, name, about in islice(listed.get("resources", ()), MOST)
        ],
    }


def _tool(server: str, name: str, definition: Json) -> list[object]:
    schema = as_object(definition.get("inputSchema"))
    needed, properties = as_list(schema.get("required")), as_object(schema.get("properties"))
    arguments = {
        key: [key in needed, _line(as_object(about)), _values(as_object(about))]
        for key, about in properties.items()
    }
    return [f"{server}.{name}", _line(definition), arguments]


def _prompt(server: str, name: str, definition: Json) -> list[object]:
    arguments = [as_object(each) for each in as_list(definition.get("arguments"))]
    told: Json = {
        str(each.get("name")): [each.get("required") is True, _line(each), []] for each in arguments
    }
    return [f"{server}.{name}", _line(definition), told]


def _line(about: Json) -> str:
    text = about.get("description") or about.get("title") or ""
    return " ".join(text.split())[:LONGEST] if isinstance(text, str) else ""


def _values(about: Json) -> list[str]:
    """What a value may be, where that is a short list."""
    if about.get("type") == "boolean":
        return ["true", "false"]
    return [each for each in as_list(about.get("enum"))[:50] if isinstance(each, str)]
