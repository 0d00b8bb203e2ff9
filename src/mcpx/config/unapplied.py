"""Keys that a file may hold already and this version does nothing with: said, never passed over in silence.

The schema marks them (`NOT_APPLIED`); one warning names all that a configuration uses, and docs/configuration.md is
marked from the same place. What is switched off is not counted.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from mcpx.config.schema import Config, Global, Server
from mcpx.config.sections import FrontAuth, FrontServer, Token
from mcpx.config.tree import Tree, as_bool, as_map, maps_in, shorten


def unapplied(tree: Tree) -> list[str]:
    """At most one warning. `tree` is the native one, before anything was filled in."""
    front = as_map(tree.get("server")) or {}
    auth = as_map(front.get("auth")) or {}
    found: list[str] = []
    for where, section, cls in (
        ("", tree, Config),
        ("server.", front, FrontServer),
        ("server.auth.", auth, FrontAuth),
        ("global.", as_map(tree.get("global")) or {}, Global),
    ):
        found += [f"{where}{key}" for key in _marked(cls) if _is_used(section.get(key))]
    for entries, cls, what in ((tree.get("mcp_servers"), Server, ""), (auth.get("tokens"), Token, "token ")):
        named = [(str(entry.get("name")), entry) for _, entry in maps_in(entries) if _is_used([entry])]
        for key in _marked(cls):
            names = [name for name, entry in named if _is_used(entry.get(key))]
            found += [f"{key} of {what}{shorten(', '.join(names))}"] if names else []
    return [f"not applied by this version yet, without effect: {'; '.join(found)}"] if found else []


def _marked(section: type) -> Iterable[str]:
    return (field.name for field in fields(section) if not field.metadata.get("applied", True))


def _is_used(value: Any) -> bool:
    """Whether a key says anything; a list of entries does when one of them is not switched off."""
    entries = [as_bool(entry.get("enabled")) for _, entry in maps_in(value)]
    return any(enabled is not False for enabled in entries) if entries else value not in (None, [], {})
