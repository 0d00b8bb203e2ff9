"""Keys that a file may hold already and this version does nothing with: said, never passed over in silence.

The schema marks them (`NOT_APPLIED`); one warning names all that a configuration uses, and docs/configuration.md is
marked from the same place. What is switched off is not counted.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from mcpx.config.schema import Config, Global, Server
from mcpx.config.sections import FrontServer
from mcpx.config.tree import Tree, as_bool, as_map, maps_in, shorten


def unapplied(tree: Tree) -> list[str]:
    """At most one warning. `tree` is the native one, before anything was filled in."""
    found = [key for key in _marked(Config) if _is_used(tree.get(key))]
    for name, section in (("server", FrontServer), ("global", Global)):
        found += [f"{name}.{key}" for key in _marked(section) if _is_used((as_map(tree.get(name)) or {}).get(key))]
    servers = [server for _, server in maps_in(tree.get("mcp_servers")) if _is_used([server])]
    for key in _marked(Server):
        names = [str(server.get("name")) for server in servers if _is_used(server.get(key))]
        found += [f"{key} of {shorten(', '.join(names))}"] if names else []
    return [f"not applied by this version yet, without effect: {'; '.join(found)}"] if found else []


def _marked(section: type) -> Iterable[str]:
    return (field.name for field in fields(section) if not field.metadata.get("applied", True))


def _is_used(value: Any) -> bool:
    """Whether a key says anything; a list of entries does when one of them is not switched off."""
    entries = [as_bool(entry.get("enabled")) for _, entry in maps_in(value)]
    return any(enabled is not False for enabled in entries) if entries else value not in (None, [], {})
