"""Values as text of a configuration file, in YAML and JSON.

A reader gets back exactly the value. The indentation follows the text around it.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from mcpx.config.nodes import Node
from mcpx.config.tree import as_list, as_map

Form = Literal["yaml", "json"]

MAX_LINE_LENGTH = 100
"""A longer list of plain values takes several lines."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = re.compile(r"[A-Za-z_/][\w./-]*", re.ASCII)
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"})
"""Words that YAML does not read as text without quotes."""


@dataclass(frozen=True, slots=True)
class Manner:
    """Indentation of a file."""

    form: Form
    step: str = "  "
    dashes: str = "  "
    """Indentation of the dashes of a list below its key."""


def manner_of(text: str, form: Form, root: Node) -> Manner:
    if form == "json":
        found = re.search(r"[{\[]\s*\n([ \t]+)", text)
        if found is None:
            return Manner(form)
        return Manner(form, found[1])
    depths: dict[str, int] = {}
    _measure(text, root, depths)
    return Manner(form, " " * depths.get("map", 2), " " * depths.get("list", 2))


def _measure(text: str, node: Node, depths: dict[str, int]) -> None:
    """Note the first indentation of a map and of a list."""
    for child in node.children:
        below = child.node
        if below.children and not below.is_flow and child.key is not None:
            depth = column(text, below.children[0].start) - column(text, child.start)
            depths.setdefault(below.kind, depth)
        _measure(text, below, depths)


def column(text: str, at: int) -> int:
    return at - (text.rfind("\n", 0, at) + 1)


def scalar(value: Any, form: Form, style: str = "") -> str:
    """One value on one line. `style`: its former quotes."""
    if form == "json" or value is None or isinstance(value, bool | int):
        return json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return _yaml_scalar(value, None)
    if not style and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if _SURROGATE.search(value):
        return json.dumps(value)  # YAML can represent it as an escape only.
    if style == "'" and value.isprintable():
        return _yaml_scalar(value, "'")
    if style == '"' or "\n" in value:
        return _yaml_scalar(value, '"')
    return _yaml_scalar(value, None)


def _yaml_scalar(value: Any, quotes: str | None) -> str:
    import yaml

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(
        [value],
        Dumper=dumper,
        default_style=quotes,
        default_flow_style=True,
        allow_unicode=True,
        width=10**9,
    )
    return str(text).strip()[1:-1]


def inline(value: Any, form: Form) -> str:
    """The value on one line, with brackets for maps and lists."""
    if (table := as_map(value)) is not None:
        pairs = [f"{scalar(key, form)}: {inline(item, form)}" for key, item in table.items()]
        return f"{{{', '.join(pairs)}}}"
    if (items := as_list(value)) is not None:
        return f"[{', '.join(inline(item, form) for item in items)}]"
    return scalar(value, form)


def in_json(value: Any, indent: str, manner: Manner, *, wide: bool = False) -> str:
    """`indent`: of the line on which the value begins. `wide`: also keep maps on one line."""
    line = inline(value, "json")
    table = as_map(value)
    parts = _parts(value)
    is_simple = wide or (table is None and not any(map(_parts, parts)))
    if not parts or (is_simple and len(line) <= MAX_LINE_LENGTH):
        return line
    deeper = indent + manner.step
    lines = [in_json(item, deeper, manner) for item in parts]
    opening, closing = "[]"
    if table is not None:
        names = (json.dumps(key, ensure_ascii=False) for key in table)
        lines = [f"{name}: {line}" for name, line in zip(names, lines, strict=True)]
        opening, closing = "{}"
    body = ",".join(f"\n{deeper}{line}" for line in lines)
    return f"{opening}{body}\n{indent}{closing}"


def after_key(value: Any, indent: str, manner: Manner) -> str:
    """The text behind `key:` in a block, with its space or line break. `indent`: of the key."""
    parts = _parts(value)
    deeper = indent + manner.step
    if not parts:
        return f" {_leaf(value, deeper)}"
    if (table := as_map(value)) is not None:
        pairs = (pair(key, item, deeper, manner) for key, item in table.items())
        return "".join(f"\n{deeper}{line}" for line in pairs)
    line = inline(value, "yaml")
    if len(line) <= MAX_LINE_LENGTH and not any(map(_parts, parts)):
        return f" {line}"
    deeper = indent + manner.dashes
    return "".join(f"\n{deeper}{item_of(item, deeper, manner)}" for item in parts)


def pair(key: str, value: Any, indent: str, manner: Manner) -> str:
    return f"{scalar(key, 'yaml')}:{after_key(value, indent, manner)}"


def item_of(value: Any, indent: str, manner: Manner) -> str:
    """An item of a block list with its dash. `indent`: of the dash."""
    deeper = f"{indent}  "
    if table := as_map(value):
        pairs = (pair(key, item, deeper, manner) for key, item in table.items())
        return "- " + f"\n{deeper}".join(pairs)
    if _parts(value):
        return f"- {inline(value, 'yaml')}"
    return f"- {_leaf(value, deeper)}"


def fresh_text(tree: dict[str, Any], form: Form) -> str:
    """A whole configuration as a new text."""
    manner = Manner(form)
    if form == "json":
        return in_json(tree, "", manner) + "\n"
    return "\n".join(pair(key, value, "", manner) + "\n" for key, value in tree.items())


def _leaf(value: Any, indent: str) -> str:
    """A value without parts. A text with several lines becomes a block, if possible."""
    if not isinstance(value, str) or "\n" not in value:
        return inline(value, "yaml")
    lines = value.removesuffix("\n").split("\n")
    has_plain_lines = all(line.isprintable() and line == line.rstrip() for line in lines)
    if not has_plain_lines or not lines[0] or not lines[-1] or lines[0][0] == " ":
        return scalar(value, "yaml")
    body = "\n".join(f"{indent}{line}".rstrip() for line in lines)
    if value.endswith("\n"):
        return f"|\n{body}"
    return f"|-\n{body}"


def _parts(value: Any) -> list[Any]:
    if (table := as_map(value)) is not None:
        return list(table.values())
    return as_list(value) or []
