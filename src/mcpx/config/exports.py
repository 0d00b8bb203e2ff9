"""A configuration for somebody else: in the native shape, or as the `mcpServers` of a client.

Promised: no literal secret leaves; each becomes a reference to a variable that is named, with what it stood for. What
a shape cannot say is told. Not done here: writing it anywhere.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from mcpx.config.editing import fresh_text
from mcpx.config.edits import EditError
from mcpx.config.masking import replaced
from mcpx.config.shapes import entry_of
from mcpx.config.tree import KeyPath, Tree, as_list, as_map, maps_in, spell
from mcpx.config.written import NOUNS, EntrySection, Written


@dataclass(frozen=True, slots=True)
class Exported:
    text: str
    media_type: str
    file_name: str
    variables: dict[str, str] = field(default_factory=dict[str, str])
    """To be set, each with the place it is for."""
    warnings: tuple[str, ...] = ()


def export(written: Written, form: Literal["yaml", "mcpServers"]) -> Exported:
    if written.told or written.layers is None:
        raise EditError("not_possible", "there is nothing to export: the configuration cannot be read, or is not there")
    whole = written.layers.whole
    tree: Tree = {"mode": whole.mode, **({"naming": dict(whole.naming)} if whole.naming else {}), **whole.tree}
    if whole.dialect == "native":
        tree = dict(whole.tree)
    sections: tuple[EntrySection, ...] = ("mcp_servers", "commands", "auth_configs", "profiles")
    for section in sections:
        if section in tree:
            tree[section] = [written.native(section, index) for index, _ in written.names(section)]
    variables: dict[str, str] = {}
    taken: dict[str, str] = {}

    def refer(secret: str, path: KeyPath) -> str:
        if secret not in taken:
            name = base = _variable(path, tree)
            number = 1
            while name in variables:
                number += 1
                name = f"{base}_{number}"
            taken[secret] = name
            variables[name] = spell(path)
        return f"${{{taken[secret]}}}"

    tree = _plain_defaults(replaced(tree, refer))
    if form == "yaml":
        return Exported(fresh_text(tree, "yaml"), "application/yaml", "mcpx.yaml", variables)
    return _as_client(tree, variables)


def _plain_defaults(value: Any) -> Any:
    """`${KEY:-${KEY_2}}` says no more than `${KEY}`."""
    if isinstance(value, str):
        return re.sub(r"\$\{([^{}]*?):-\$\{[^{}]*\}\}", r"${\1}", value)
    if (table := as_map(value)) is not None:
        return {key: _plain_defaults(item) for key, item in table.items()}
    items = as_list(value)
    return value if items is None else [_plain_defaults(item) for item in items]


def _as_client(tree: Tree, variables: dict[str, str]) -> Exported:
    warnings: list[str] = []
    servers: Tree = {}
    for _, server in maps_in(tree.get("mcp_servers")):
        name = str(server.get("name", ""))
        kept = {key: server[key] for key in ("name", "connection", "enabled", "description") if key in server}
        left = [key for key in server if key not in kept]
        if left:
            warnings.append(f"server {name!r}: left out, for clients do not know them: {', '.join(left)}")
        servers[name] = entry_of("mcpServers", kept, None, None)
    others = [key for key in ("commands", "auth_configs", "profiles", "policy") if tree.get(key)]
    if others:
        warnings.append(f"left out, for clients do not know them: {', '.join(others)}")
    text = fresh_text({"mcpServers": servers}, "json")
    used = {name: what for name, what in variables.items() if f"${{{name}}}" in text}
    return Exported(text, "application/json", "mcp.json", used, tuple(warnings))


def _variable(path: KeyPath, tree: Tree) -> str:
    """A name for a variable: that of an environment variable, or the entry and the field."""
    steps = [step for step in path if isinstance(step, str)]
    if "env" in steps or "environment" in steps:
        return _word(steps[-1])
    owner: Any = tree
    for step in path[:2]:
        owner = owner[step]
    name = str((as_map(owner) or {}).get("name") or (NOUNS.get(str(path[0]), str(path[0]))))
    last = {"args": "TOKEN", "value": "KEY", "url": "SECRET"}.get(steps[-1], steps[-1])
    return _word(f"{name}_{last}")


def _word(text: str) -> str:
    word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").upper()
    return f"_{word}" if word[:1].isdigit() else word or "SECRET"
