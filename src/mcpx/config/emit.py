"""Values as text of a config file, in the manner of the text they are put into.

Promised: what is written is read again as exactly this value, in YAML and in JSON; indentation as
around it. Not done here: finding the place.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from mcpx.config.layout import Form, Piece
from mcpx.config.tree import as_list, as_map

WIDTH = 100
"""Characters up to which a list of plain values, and what stands among one-line neighbours, is kept
on one line."""

_HALF = re.compile("[\ud800-\udfff]")
_PLAIN = re.compile(r"[A-Za-z_/][\w./-]*", re.ASCII)
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"})
"""Words that mean something else in YAML when they are not quoted."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a file is indented."""

    form: Form
    step: str = "  "
    """What one level is indented by."""
    dashes: str = "  "
    """What the dashes of a list are indented by, below its key."""


def manner_of(text: str, form: Form, root: Piece) -> Manner:
    if form == "json":
        found = re.search(r"[{\[]\s*\n([ \t]+)", text)
        return Manner(form, found[1] if found else "  ")
    steps, dashes = list[int](), list[int]()
    _measure(text, root, steps, dashes)
    step = " " * (steps[0] if steps else 2)
    return Manner(form, step, " " * (dashes[0] if dashes else 2))


def _measure(text: str, piece: Piece, steps: list[int], dashes: list[int]) -> None:
    for child in piece.children:
        below = child.piece
        if below.children and not below.flow and below.alias is None and child.key is not None:
            deeper = column(text, below.children[0].start) - column(text, child.start)
            (steps if below.kind == "map" else dashes).append(deeper)
        _measure(text, below, steps, dashes)


def column(text: str, at: int) -> int:
    return at - (text.rfind("\n", 0, at) + 1)


def scalar(value: Any, form: Form, style: str = "") -> str:
    """One value on one line. `style`: the quotes it had."""
    if form == "json" or value is None or isinstance(value, bool | int):
        return json.dumps(value, ensure_ascii=False)
    if (
        isinstance(value, str)
        and not style
        and _PLAIN.fullmatch(value)
        and value.lower() not in _WORDS
    ):
        return value
    if isinstance(value, str) and _HALF.search(value):
        return json.dumps(value)  # half of a surrogate pair: no encoder takes it but as an escape
    import yaml

    quotes = '"' if isinstance(value, str) and ("\n" in value or style == '"') else None
    if isinstance(value, str) and style == "'" and value.isprintable():
        quotes = "'"
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    told = yaml.dump(
        [value],
        Dumper=dumper,
        default_style=quotes,
        default_flow_style=True,
        allow_unicode=True,
        width=10**9,
    )
    return str(told).strip()[1:-1]


def inline(value: Any, form: Form) -> str:
    """On one line, in brackets where it has parts."""
    if (table := as_map(value)) is not None:
        return (
            "{"
            + ", ".join(f"{scalar(key, form)}: {inline(item, form)}" for key, item in table.items())
            + "}"
        )
    if (items := as_list(value)) is not None:
        return "[" + ", ".join(inline(item, form) for item in items) + "]"
    return scalar(value, form)


def in_json(value: Any, indent: str, manner: Manner, *, wide: bool = False) -> str:
    """`indent`: of the line it begins on. `wide`: its neighbours are on one line."""
    line = inline(value, "json")
    parts = _parts(value)
    table = as_map(value)
    if not parts or (
        len(line) <= WIDTH and (wide or (table is None and not any(map(_parts, parts))))
    ):
        return line
    deeper = indent + manner.step
    if table is not None:
        lines = [
            f"{json.dumps(key, ensure_ascii=False)}: {in_json(table[key], deeper, manner)}"
            for key in table
        ]
    else:
        lines = [in_json(item, deeper, manner) for item in parts]
    brackets = "{}" if table is not None else "[]"
    return (
        brackets[0] + ",".join(f"\n{deeper}{line}" for line in lines) + f"\n{indent}{brackets[1]}"
    )


def after_key(value: Any, indent: str, manner: Manner) -> str:
    """What follows `key:` in a block, from its space or line break on. `indent`: of the key."""
    parts = _parts(value)
    if not parts:
        return f" {_text(value, indent + manner.step)}"
    if (table := as_map(value)) is not None:
        deeper = indent + manner.step
        return "".join(
            f"\n{deeper}{pair(key, item, deeper, manner)}" for key, item in table.items()
        )
    line = inline(value, "yaml")
    if len(line) <= WIDTH and not any(map(_parts, parts)):
        return f" {line}"
    deeper = indent + manner.dashes
    return "".join(f"\n{deeper}{item_of(item, deeper, manner)}" for item in parts)


def pair(key: str, value: Any, indent: str, manner: Manner) -> str:
    return f"{scalar(key, 'yaml')}:{after_key(value, indent, manner)}"


def item_of(value: Any, indent: str, manner: Manner) -> str:
    """An item of a block list, from its dash on. `indent`: of the dash."""
    if not (table := as_map(value)):
        return f"- {inline(value, 'yaml') if _parts(value) else _text(value, indent + '  ')}"
    deeper = f"{indent}  "
    return "- " + f"\n{deeper}".join(pair(key, item, deeper, manner) for key, item in table.items())


def _text(value: Any, indent: str) -> str:
    """A value without parts; a text of several lines keeps them."""
    if isinstance(value, dict | list):
        return inline(value, "yaml")
    if not isinstance(value, str) or "\n" not in value:
        return scalar(value, "yaml")
    body = value.removesuffix("\n")
    lines = body.split("\n")
    as_it_is = all(line.isprintable() and line == line.rstrip() for line in lines)
    if not as_it_is or not lines[0] or not lines[-1] or lines[0][0] == " ":
        return scalar(value, "yaml")
    mark = "|" if value.endswith("\n") else "|-"
    return mark + "".join(f"\n{indent}{line}" if line else "\n" for line in lines)


def _parts(value: Any) -> list[Any]:
    table = as_map(value)
    return list(table.values()) if table is not None else as_list(value) or []
