"""Several files as one tree (CFG-7): those of a layer side by side, and one layer over another.

Promised: within a layer everything is said once; what two files say differently is a finding that
names both places. An overlay wins: mappings are merged deeply, lists of named things by name,
everything else is replaced. A key without value says nothing in either. Every part keeps its
origin.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mcpx.config.dialects import Translation
from mcpx.config.origins import Origins
from mcpx.config.problems import Findings
from mcpx.config.tree import KeyPath, Tree, as_list, as_map, is_extra, shorten
from mcpx.config.validate import keys_of
from mcpx.transports import TRANSPORTS

_CONCATENATED = ("mcp_servers", "commands", "auth_configs", "profiles")


def join(parts: Sequence[Translation], findings: Findings) -> Translation:
    """The files of one layer. Their shape is the one all servers are written in, native when there
    are several."""
    if len(parts) == 1:
        return parts[0]
    first, *rest = parts
    whole = Translation("native", first.tree, Origins(first.origins))
    shapes = [part for part in parts if part.tree.get("mcp_servers") is not None]
    if len({shape.dialect for shape in shapes}) == 1:
        whole = replace(shapes[0], tree=first.tree, origins=Origins(first.origins))
    for part in rest:
        _Merge(whole, part, findings).table(whole.tree, part.tree, (), ())
    return whole


def lay(over: Translation, base: Translation) -> Translation:
    """The overlay over the base, whose shape stays."""
    whole = replace(base, origins=Origins(base.origins))
    _Merge(whole, over).table(whole.tree, over.tree, (), ())
    return whole


class _Merge:
    """One tree put into another, in place. `findings`: within a layer, where neither may win."""

    def __init__(
        self, whole: Translation, part: Translation, findings: Findings | None = None
    ) -> None:
        self._origins = whole.origins
        self._part = part.origins
        self._findings = findings.through(part.origins.trace) if findings is not None else None

    def table(self, into: Tree, table: Tree, at: KeyPath, there: KeyPath) -> None:
        if self._findings is None:
            _make_room(into, table, at)
        for key, value in table.items():
            known = into.get(key)
            if value is None or (known is not None and is_extra(key)):
                continue
            here, from_ = (*at, key), (*there, key)
            if (inner := as_map(known)) is not None and (entries := as_map(value)) is not None:
                self.table(inner, entries, here, from_)
            elif (
                (items := as_list(known)) is not None
                and (more := as_list(value)) is not None
                and self._grows(items, more, here)
            ):
                self._list(items, more, here, from_)
            elif known is None or self._findings is None:
                into[key] = value
                self._origins.adopt(here, self._part, from_)
            elif known != value:
                rival = self._origins.trace(here)
                message = f"{shorten(key)!r} is said twice, and differently"
                self._findings.add(message, from_, hint="keep one of them", rival=rival)

    def _grows(self, items: list[Any], more: list[Any], at: KeyPath) -> bool:
        """Whether a list takes up the entries of another, instead of giving way to it."""
        if self._findings is not None:
            return len(at) == 1 and at[0] in _CONCATENATED
        return any(map(_name, items)) and all(as_map(item) is not None for item in more)

    def _list(self, items: list[Any], more: list[Any], at: KeyPath, there: KeyPath) -> None:
        positions = (
            {_name(item): index for index, item in enumerate(items)}
            if self._findings is None
            else {}
        )
        for position, item in enumerate(more):
            from_ = (*there, position)
            # A second one of the same name is appended, for `checks` to tell.
            index = positions.pop(name, None) if (name := _name(item)) else None
            if index is None:
                self._origins.adopt((*at, len(items)), self._part, from_)
                items.append(item)
            else:
                self.table(items[index], item, (*at, index), from_)


def _name(item: Any) -> str | None:
    name = (as_map(item) or {}).get("name")
    return name if isinstance(name, str) else None


def _make_room(into: Tree, table: Tree, at: KeyPath) -> None:
    """What only the former `type` knows goes with it."""
    former, new = str(into.get("type")).lower(), str(table.get("type")).lower()
    if table.get("type") is None or former == new:
        return
    match at:
        case ("mcp_servers", _, "connection") if new in TRANSPORTS:
            gone = into.keys() - {"type", *keys_of(TRANSPORTS[new])}
        case ("commands" | "auth_configs", _):
            gone = into.keys() & {former}
        case _:
            return
    for key in gone:
        del into[key]
