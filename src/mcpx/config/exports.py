"""A configuration for somebody else: in the native shape, or as the `mcpServers` of a client.

Promised: no literal secret leaves; each becomes a reference to a variable that is named, with what
it stood for. What a shape cannot say is told. Not done here: writing it anywhere.
"""

from dataclasses import dataclass, field
from typing import Literal

from mcpx.config.editing import native_tree
from mcpx.config.edits import EditError
from mcpx.config.emit import fresh_text
from mcpx.config.key_order import ordered_entry
from mcpx.config.references import plain_defaults, without_secrets
from mcpx.config.shapes import entry_of
from mcpx.config.tree import Tree, maps_in
from mcpx.config.written import NOUNS, Written

Form = Literal["yaml", "json", "mcpServers"]


@dataclass(frozen=True, slots=True)
class Exported:
    text: str
    media_type: str
    file_name: str
    variables: dict[str, str] = field(default_factory=dict[str, str])
    """To be set, each with the place it is for."""
    warnings: tuple[str, ...] = ()


def export(written: Written, form: Form) -> Exported:
    if written.told or written.layers is None:
        raise EditError(
            "not_possible",
            "there is nothing to export: the configuration cannot be read, or is not there",
        )
    tree = native_tree(written)
    for section in NOUNS:
        if section in tree:
            tree[section] = [ordered_entry(section, entry) for entry in tree[section]]
    tree, found = without_secrets(tree, presumed=True)
    tree = plain_defaults(tree)
    variables = {name: secret.place for name, secret in found.items()}
    if form == "json":
        return Exported(fresh_text(tree, "json"), "application/json", "mcpx.json", variables)
    if form == "yaml":
        return Exported(fresh_text(tree, "yaml"), "application/yaml", "mcpx.yaml", variables)
    return _as_client(tree, variables)


def _as_client(tree: Tree, variables: dict[str, str]) -> Exported:
    warnings: list[str] = []
    servers: Tree = {}
    for _, server in maps_in(tree.get("mcp_servers")):
        name = str(server.get("name", ""))
        kept = {
            key: server[key]
            for key in ("name", "connection", "enabled", "description")
            if key in server
        }
        left = [key for key in server if key not in kept]
        if left:
            warnings.append(
                f"server {name!r}: left out, for clients do not know them: {', '.join(left)}"
            )
        servers[name] = entry_of("mcpServers", kept, None, None)
    others = [key for key in ("commands", "auth_configs", "profiles", "policy") if tree.get(key)]
    if others:
        warnings.append(f"left out, for clients do not know them: {', '.join(others)}")
    text = fresh_text({"mcpServers": servers}, "json")
    used = {name: what for name, what in variables.items() if f"${{{name}}}" in text}
    return Exported(text, "application/json", "mcp.json", used, tuple(warnings))
