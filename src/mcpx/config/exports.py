"""A configuration for somebody else: in the native shape, or as the `mcpServers` of a client.

Promised: no literal secret leaves; each becomes a reference to a variable that is named, with what
it stood for. What a shape cannot say is told. Not done here: writing it anywhere.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mcpx.config.editing import native_tree
from mcpx.config.edits import NOUNS, EditError
from mcpx.config.emit import fresh_text
from mcpx.config.masking import replaced
from mcpx.config.shapes import entry_of
from mcpx.config.tree import KeyPath, Tree, as_map, map_leaves, maps_in, spell
from mcpx.config.written import Written

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


# Secrets as references to variables


@dataclass(frozen=True, slots=True)
class Secret:
    """What a variable stands for."""

    value: str = field(repr=False)
    place: str
    """Where it stood."""


def without_secrets(
    tree: Tree, known: Mapping[str, str] | None = None, *, presumed: bool = False
) -> tuple[Tree, dict[str, Secret]]:
    """Replace each secret by a reference, and return the variables.

    `known`: existing variables. A variable with the value of the secret is used. A variable with
    another value is not overwritten. `presumed`: also replace values that only their place marks as
    secret.
    """
    known = known or {}
    found: dict[str, Secret] = {}
    taken: dict[str, str] = {}

    def refer(secret: str, path: KeyPath) -> str:
        if secret not in taken:
            name = base = _variable(path, tree, secret)
            number = 1
            while name in found or known.get(name, secret) != secret:
                number += 1
                name = f"{base}_{number}"
            taken[secret] = name
            found[name] = Secret(secret, spell(path))
        return f"${{{taken[secret]}}}"

    return replaced(tree, refer, presumed=presumed), found


def plain_defaults(tree: Any) -> Any:
    """Replace `${KEY:-${KEY_2}}` by `${KEY}`: the reader of an export has neither variable."""

    def plain(value: Any, path: KeyPath) -> Any:
        if not isinstance(value, str):
            return value
        return re.sub(r"\$\{([^{}]*?):-\$\{[^{}]*\}\}", r"${\1}", value)

    return map_leaves(tree, plain)


def _variable(path: KeyPath, tree: Tree, secret: str) -> str:
    """A name for a variable: that of an environment variable, or the entry and the field."""
    steps = [step for step in path if isinstance(step, str)]
    if "env" in steps or "environment" in steps:
        whole: Any = tree
        for step in path:
            whole = whole[step]
        # `DATABASE_URL` is not what a password in it is called.
        return _word(steps[-1]) if str(whole) == secret else _word(f"{steps[-1]}_SECRET")
    owner: Any = tree
    for step in path[:2]:
        owner = owner[step]
    section = str(path[0])
    entry = as_map(owner) or {}
    name = str(entry.get("name") or NOUNS.get(section, section))
    last = {"args": "TOKEN", "value": "KEY", "url": "SECRET"}.get(steps[-1], steps[-1])
    return _word(f"{name}_{last}")


def _word(text: str) -> str:
    word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").upper()
    if word[:1].isdigit():
        return f"_{word}"
    return word or "SECRET"
