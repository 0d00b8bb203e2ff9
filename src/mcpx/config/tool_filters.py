"""The tools that a client hides of a server, as a rule of the policy.

The entry of a server names them: `includeTools` and `excludeTools` (Gemini CLI, Amp),
`enabled_tools` and `disabled_tools` (Codex), `disabledTools` (Windsurf, Antigravity, Kiro, Roo
Code), `available_tools` (Goose), and `tools` (Copilot CLI). Settings that only skip a confirmation,
such as `alwaysAllow`, are not filters.
"""

from collections.abc import Mapping, Sequence
from glob import escape
from typing import Any

from mcpx.config.tree import Tree, as_list, as_map

_INCLUDE = ("includeTools", "enabled_tools", "available_tools", "tools")
_EXCLUDE = ("excludeTools", "disabled_tools", "disabledTools")
FILTER_KEYS = frozenset({*_INCLUDE, *_EXCLUDE})


def hidden_tools(entry: Tree) -> tuple[str, ...]:
    """Patterns of the tools that the entry of a client hides; empty if it hides none."""
    excluded = [name for key in _EXCLUDE for name in _names(entry.get(key)) or ()]
    for key in _INCLUDE:
        included = _names(entry.get(key))
        if included is None or "*" in included or (key == "available_tools" and not included):
            continue
        shown = [f"!{name}" for name in included if name not in excluded]
        return ("*", *shown, *(name for name in excluded if name not in included))
    return tuple(excluded)


def _names(value: Any) -> list[str] | None:
    items = as_list(value)
    if items is None:
        return None
    return [item for item in items if isinstance(item, str) and item]


def describe(patterns: Sequence[str]) -> str:
    """What is left of the tools of a server, for people."""
    if patterns[:1] != ("*",):
        return f"without {', '.join(patterns)}"
    included = [pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")]
    excluded = [pattern for pattern in patterns[1:] if not pattern.startswith("!")]
    parts = ["no tool"]
    if included:
        parts = [f"only {', '.join(included)}"]
    if excluded:
        parts.append(f"without {', '.join(excluded)}")
    return ", ".join(parts)


def with_rules(policy: Any, hidden: Mapping[str, Sequence[str]]) -> Tree:
    """A policy with a rule for each server, by name, that hides some of its tools."""
    table = dict(as_map(policy) or {})
    rules = list(as_list(table.get("rules")) or [])
    for server, patterns in hidden.items():
        # Names of servers below `servers` must exist. `mcpx remove --force` can leave this rule
        # behind.
        tools = [
            f"{'!' * text.startswith('!')}{escape(server)}.{text.removeprefix('!')}"
            for text in patterns
        ]
        rule = {"effect": "deny", "tools": tools}
        rules += [rule] if rule not in rules else []
    return {**table, "rules": rules}
