"""Literal secrets of a configuration, turned into references to variables.

Promised: each secret becomes one variable, named after the environment variable it was for or after
its entry and field; the tree holds none of them afterwards. Not done here: keeping the secrets
anywhere.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcpx.config.edits import NOUNS
from mcpx.config.masking import replaced
from mcpx.config.tree import KeyPath, Tree, as_list, as_map, spell


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


def plain_defaults(value: Any) -> Any:
    """`${KEY:-${KEY_2}}` says no more than `${KEY}` to somebody who has neither."""
    if isinstance(value, str):
        return re.sub(r"\$\{([^{}]*?):-\$\{[^{}]*\}\}", r"${\1}", value)
    if (table := as_map(value)) is not None:
        return {key: plain_defaults(item) for key, item in table.items()}
    items = as_list(value)
    return value if items is None else [plain_defaults(item) for item in items]


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
    name = str((as_map(owner) or {}).get("name") or (NOUNS.get(str(path[0]), str(path[0]))))
    last = {"args": "TOKEN", "value": "KEY", "url": "SECRET"}.get(steps[-1], steps[-1])
    return _word(f"{name}_{last}")


def _word(text: str) -> str:
    word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").upper()
    return f"_{word}" if word[:1].isdigit() else word or "SECRET"
