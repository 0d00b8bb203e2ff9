"""Order of the keys of an entry in text that mcpx generates."""

from mcpx.config.schema import Profile, Server
from mcpx.config.tree import Tree, as_map
from mcpx.config.validate import keys_of

_FIRST = ("name", "type", "description", "enabled", "prefix", "connection")
_CONNECTION = ("type", "command", "args", "env", "cwd", "url", "headers")
_SCHEMA = {"mcp_servers": Server, "profiles": Profile}


def ordered_entry(section: str, entry: Tree) -> Tree:
    """The entry with its name first. Keys that are not in the order follow in their present
    order."""
    schema = _SCHEMA.get(section)
    found = _ordered(entry, (*_FIRST, *(() if schema is None else keys_of(schema))))
    if (connection := as_map(found.get("connection"))) is not None:
        found["connection"] = _ordered(connection, _CONNECTION)
    return found


def _ordered(table: Tree, order: tuple[str, ...]) -> Tree:
    first = {key: table[key] for key in order if key in table}
    return {**first, **table}
