"""Change a YAML, JSON, or JSONC text so that it says something else, and keep the rest of the text.

`rewritten` compares the values of the text with the wanted values and makes three kinds of changes:
replace a value, insert an entry, and remove an entry. Comments, order, quotes, anchors, references,
empty lines, and indentation of everything else stay byte for byte. An entry is removed together
with its comments: those directly above it and indented like it, behind it on its line, and below it
and indented deeper. An alias whose anchor changes is written out. The result is read back. If its
values differ from the wanted ones, the smallest enclosing part that helps is written anew.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mcpx.config.emit import (
    Form,
    Manner,
    after_key,
    column,
    in_json,
    inline,
    item_of,
    manner_of,
    pair,
    scalar,
)
from mcpx.config.nodes import MAX_NODES, Child, Node, merged_maps
from mcpx.config.source import root_of
from mcpx.config.tree import KeyPath, Tree, as_map, is_list, is_map

TEXTUAL = frozenset({"env", "headers", "params", "args"})
"""Keys below which every value is text, however it is written: `PORT: 8080`."""

Splice = tuple[int, int, str]
"""Start and end of a range of the text, and the text that replaces it."""
_COMMENTS = {"yaml": r"(?<![^\s,\[\]{}])#[^\n]*", "json": r"//[^\n]*|/\*(?s:.*?)\*/"}
_BLANK_LINES = re.compile(r"(?:[ \t\r]*\n)*")
_DEPTHS = (1_000, 3, 2, 1)
"""Levels down to which the text is changed in place. Values below are written anew as a whole."""


class Unchangeable(Exception):
    """The text cannot be changed so that it says what is wanted."""


def rewritten(text: str, form: Form, wanted: Tree, max_nodes: int = MAX_NODES) -> str:
    """`text` must be readable. Raises Unchangeable."""
    if "\r\n" in text:
        bare = text.replace("\r\n", "\n")
        return rewritten(bare, form, wanted, max_nodes).replace("\n", "\r\n")
    root = _read(text, form, max_nodes)
    if root is None:
        raise Unchangeable
    if alike(root.value, wanted):
        return text
    for depth in _DEPTHS:
        try:
            new = _Rewriter(text, form, root, depth).whole(wanted)
        except (ValueError, LookupError, TypeError):  # An unforeseen form of the text.
            continue
        for candidate in (new, f"{new}\n"):  # The last line may need an end.
            again = _read(candidate, form, max_nodes)
            if again is not None and _reads(again, wanted, ()):
                return candidate
    raise Unchangeable


def alike(one: Any, other: Any) -> bool:
    """Compare two trees as JSON does: 30 and 30.0 are the same number, and True is not 1."""
    if is_map(one) and is_map(other):
        if one.keys() != other.keys():
            return False
        return all(alike(value, other[key]) for key, value in one.items())
    if is_list(one) and is_list(other):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, bool | str) or isinstance(other, bool | str):
        return type(one) is type(other) and one == other
    return bool(one == other)


def _reads(node: Node, wanted: Any, path: KeyPath) -> bool:
    """Compare the values of a node, where texts may be written as numbers."""
    if is_map(wanted) and node.kind == "map":
        entries = (node.target or node).entries
        if entries.keys() != wanted.keys():
            return False
        return all(_reads(entries[key].node, wanted[key], (*path, key)) for key in wanted)
    if is_list(wanted) and node.kind == "list":
        items = (node.target or node).children
        if len(items) != len(wanted):
            return False
        indexes = range(len(items))
        return all(_reads(items[at].node, wanted[at], (*path, at)) for at in indexes)
    return alike(node.value, wanted) or _is_spelled(node, wanted, path)


def _is_spelled(node: Node, wanted: Any, path: KeyPath) -> bool:
    return node.kind == "scalar" and wanted == node.text and len(path) > 1 and path[-2] in TEXTUAL


def _read(text: str, form: Form, max_nodes: int) -> Node | None:
    root = root_of(text, form, max_nodes)
    if root is not None and form == "yaml":
        _find_dashes(text, root)
    return root


def _find_dashes(text: str, node: Node) -> None:
    """Let the items of block lists begin at their dashes, which the reader does not report."""
    floor = node.start
    for child in node.children:
        if node.kind == "list" and not node.is_flow:
            gap = _without_comments(text[floor : child.node.start], "yaml")
            # An anchor or a tag can contain a dash, too.
            dash = re.search(r"(?<![^\s-])-(?=\s|$)", gap)
            if dash is None:
                raise ValueError("an item without a dash")
            child.start = floor + dash.start()
            child.value_from = child.start + 1
            floor = max(child.value_from, child.node.end)
        _find_dashes(text, child.node)


def _without_comments(gap: str, form: Form) -> str:
    """The text with blanks in the place of comments."""
    return re.sub(_COMMENTS[form], lambda comment: " " * len(comment[0]), gap)


@dataclass(frozen=True, slots=True)
class _New:
    """An entry that is inserted. The key is None for an item of a list."""

    key: str | None
    value: Any


@dataclass(slots=True)
class _Part:
    """An entry of a map or a list in the text."""

    gap: str
    """The text before it that is not part of it: empty lines, and comments above them."""
    start: int
    end: int
    lead: str = ""
    """In brackets: the comments and blanks directly before it."""
    behind: str = ""
    """In brackets: the rest of its line behind the comma."""


class _Rewriter:
    def __init__(self, text: str, form: Form, root: Node, depth: int) -> None:
        self._text = text
        self._form: Form = form
        self._root = root
        self._depth = depth
        self._manner: Manner = manner_of(text, form, root)
        self._anchors: dict[str, Any] = {}
        """What each anchor stands for in the new text, as far as it is written."""
        self._has_anchors = form == "yaml" and _has_anchor(root)

    def whole(self, wanted: Tree) -> str:
        return self._spliced(0, len(self._text), self._value(self._root, wanted, (), None))

    def _spliced(self, start: int, end: int, splices: Iterable[Splice]) -> str:
        parts, at = list[str](), start
        for begin, stop, new in sorted(splices, key=lambda splice: splice[:2]):
            if begin < at:
                raise ValueError("two changes of one range")
            parts += [self._text[at:begin], new]
            at = stop
        return "".join([*parts, self._text[at:end]])

    # Values

    def _value(self, node: Node, wanted: Any, path: KeyPath, child: Child | None) -> list[Splice]:
        if node.target is not None:
            anchor = str(node.target.anchor)
            if anchor in self._anchors and alike(self._anchors[anchor], wanted):
                return []
            return self._replaced(node, wanted, child)
        splices = self._changed(node, wanted, path, child)
        if node.anchor is not None:
            self._anchors[node.anchor] = wanted
        return splices

    def _changed(self, node: Node, wanted: Any, path: KeyPath, child: Child | None) -> list[Splice]:
        is_equal = alike(node.value, wanted) or _is_spelled(node, wanted, path)
        if is_equal and not (self._has_anchors and node.children):
            return []
        if not node.children or not isinstance(wanted, type(node.value)):
            return self._replaced(node, wanted, child)
        if not is_equal and len(path) >= self._depth:
            return self._replaced(node, wanted, child)
        if not wanted:
            return self._emptied(node, wanted, child)
        if node.kind == "map":
            return self._map(node, wanted, path, child)
        return self._list(node, wanted, path)

    def _replaced(self, node: Node, wanted: Any, child: Child | None) -> list[Splice]:
        if self._form == "json":
            indent = indent_of(self._text, node.start)
            new = in_json(wanted, indent, self._manner)
            comments = self._text[node.start + 1 : node.end - 1].rstrip()
            is_empty = node.kind != "scalar" and not node.children
            if wanted and is_empty and comments and isinstance(wanted, type(node.value)):
                line_break = f"\n{indent}{self._manner.step}" * (new[1] != "\n")
                new = new[0] + comments + line_break + new[1:]
            return [(node.start, node.end, new)]
        if child is None:
            raise ValueError("the root of a text is not replaced")
        is_container = isinstance(wanted, dict | list)
        is_line = node.kind == "scalar" and not is_container and "\n" not in str(wanted)
        if not child.is_flow and not is_line:
            return self._replaced_block(node, wanted, child)
        new = inline(wanted, "yaml")
        if not is_container and node.target is None and node.style in ("'", '"'):
            new = scalar(wanted, "yaml", node.style)
        lead = ""
        if child.value_from == node.start and not child.is_flow:
            lead = " "
        return [(node.start, node.end, f"{lead}{_anchor_of(node)}{new}")]

    def _replaced_block(self, node: Node, wanted: Any, child: Child) -> list[Splice]:
        """Replace a value behind a key or a dash by one that may have several lines."""
        text, indent = self._text, self._indent(child)
        new = item_of(wanted, indent, self._manner)[1:]
        if child.key is not None:
            new = after_key(wanted, indent, self._manner)
        if isinstance(wanted, str) and text[next_line(text, node.end) :].lstrip().startswith("#"):
            new = f" {scalar(wanted, 'yaml')}"  # The comment would become part of a block.
        head, line_break, rest = new.partition("\n")
        rest = f"{line_break}{rest}"
        if anchor := _anchor_of(node).strip():
            head = f" {anchor}{head}"
        first = line_end(text, child.value_from)
        if node.end <= first:
            return [(child.value_from, node.end, head), (first, first, rest)]
        comment = text[child.value_from : first].strip()
        if comment.startswith("#"):
            head += f"  {comment}"
        return [(child.value_from, line_end(text, node.end), head + rest)]

    def _emptied(self, node: Node, wanted: Any, child: Child | None) -> list[Splice]:
        if child is None or child.key is None or node.is_flow:
            return self._replaced(node, wanted, child)
        if not begins_line(self._text, node.children[0].start):
            return self._replaced(node, wanted, child)
        anchor, until = _anchor_of(node), child.value_from
        if anchor:
            until = node.start + len(anchor.strip())
        parts = self._lines_of(node)
        _, comments = self._gaps(parts, set())
        return [
            (child.value_from, until, f" {anchor}{inline(wanted, 'yaml')}"),
            (parts[0].start, parts[-1].end, comments),
        ]

    def _indent(self, child: Child) -> str:
        """The column of a key or a dash, as spaces."""
        return " " * column(self._text, child.start)

    # Maps and lists

    def _map(self, node: Node, wanted: Tree, path: KeyPath, holder: Child | None) -> list[Splice]:
        merges = [child for child in node.children if child.is_merge]
        own = {str(child.key): child for child in node.children if not child.is_merge}
        coming = self._merged(merges, wanted)
        if coming is None:
            coming, merges = {}, []
        gone = [key for key in own if key not in wanted]
        given = [key for key, value in coming.items() if alike(value, wanted[key])]
        new = [key for key in wanted if key not in own and key not in given]
        renamed = _renamed(own, gone, wanted, new)
        splices: dict[int, list[Splice]] = {id(child): [] for child in merges}
        for key, child in own.items():
            key = renamed.get(key, key)
            if key in wanted:
                splices[id(child)] = [
                    *self._value(child.node, wanted[key], (*path, key), child),
                    *self._renaming(child, key),
                ]
        added = [_New(key, wanted[key]) for key in new if key not in renamed.values()]
        order = [child for child in node.children if id(child) in splices]
        is_behind_dash = not begins_line(self._text, node.children[0].start)
        if not order and not node.is_flow and is_behind_dash:
            return self._replaced(node, wanted, holder)
        return self._ordered(node, [*order, *added], splices, is_root=not path)

    def _renaming(self, child: Child, key: str) -> list[Splice]:
        if key == child.key:
            return []
        return [(child.start, child.key_end, scalar(key, self._form))]

    def _merged(self, merges: list[Child], wanted: Tree) -> Tree | None:
        """What `<<` adds in the new text. None if it adds something that is not wanted."""
        coming: Tree = {}
        for child in merges:
            for table in merged_maps(child.node):
                value = table.value
                if table.anchor is not None:
                    value = self._anchors.get(table.anchor)
                if not is_map(value):
                    return None
                coming = {**value, **coming}
        if coming.keys() - wanted.keys():
            return None
        return coming

    def _list(self, node: Node, wanted: list[Any], path: KeyPath) -> list[Splice]:
        matched = matches([child.node.value for child in node.children], wanted)
        splices: dict[int, list[Splice]] = {}
        order: list[Child | _New] = []
        for index, (value, former) in enumerate(zip(wanted, matched, strict=True)):
            if former is None:
                order.append(_New(None, value))
                continue
            child = node.children[former]
            splices[id(child)] = self._value(child.node, value, (*path, index), child)
            order.append(child)
        if not node.is_flow and not begins_line(self._text, node.children[0].start):
            raise ValueError("a block list inside a block list")
        return self._ordered(node, order, splices)

    def _ordered(
        self,
        node: Node,
        order: Sequence[Child | _New],
        splices: dict[int, list[Splice]],
        *,
        is_root: bool = False,
    ) -> list[Splice]:
        """Give a map or a list these entries. `splices`: changes inside of the entries that stay.

        Comments between entries stay where they are. Other comments move with their entries.
        """
        if [id(entry) for entry in order] == [id(child) for child in node.children]:
            return [splice for changes in splices.values() for splice in changes]
        if node.is_flow:
            return [self._brackets(node, order, splices)]
        return [self._block(node, order, splices, is_root=is_root)]

    def _gaps(self, parts: list[_Part], kept: set[int]) -> tuple[list[str], str]:
        """The text between the entries that stay, and the text behind them."""
        gaps: list[str] = []
        before, gap = self._text[: parts[0].start][-2:], ""
        for index, part in enumerate(parts):
            addition = part.gap
            is_after_blank = before + gap == "" or f"{before}{gap}".endswith("\n\n")
            if index and index - 1 not in kept and is_after_blank:
                addition = addition[past_blank_lines(addition, 0) :]
            gap += addition
            if index in kept:
                gaps.append(gap)
                before, gap = "\n", ""
        if not gap.strip():
            return gaps, ""
        return gaps, gap.rstrip() + "\n"

    # Blocks

    def _lines_of(self, node: Node) -> list[_Part]:
        """The lines of each entry of a block, with its comments."""
        text, children = self._text, node.children
        parts: list[_Part] = []
        depth = column(text, children[0].start)
        floor = 0
        for child in children:
            start = self._first_line(child, floor, is_first=not parts)
            end = next_line(text, max(child.value_from, child.node.end))
            gap = ""
            if parts:
                gap = text[parts[-1].end : start]
            parts.append(_Part(gap, start, self._past_comments(end, depth + 1)))
            floor = child.node.end
        return parts

    def _first_line(self, child: Child, floor: int, *, is_first: bool) -> int:
        text = self._text
        if not begins_line(text, child.start):
            return child.start  # The first key of a map behind a dash.
        start, depth = line_start(text, child.start), column(text, child.start)
        while start > floor:
            above = line_start(text, start - 1)
            line = text[above : start - 1]
            bare = line.lstrip()
            if above < floor or not bare.startswith("#") or len(line) - len(bare) > depth:
                break
            start = above
        if start == 0 and is_first:  # A comment at the top is about the whole file.
            return line_start(text, child.start)
        return start

    def _past_comments(self, at: int, min_depth: int) -> int:
        """The end of the comment lines that begin here and are indented at least so deep."""
        text = self._text
        while at < len(text):
            line = text[at : line_end(text, at)]
            bare = line.lstrip()
            if not bare.startswith("#") or len(line) - len(bare) < min_depth:
                break
            at = next_line(text, at)
        return at

    def _block(
        self,
        node: Node,
        order: Sequence[Child | _New],
        splices: dict[int, list[Splice]],
        *,
        is_root: bool,
    ) -> Splice:
        text, parts = self._text, self._lines_of(node)
        indexes = {id(child): index for index, child in enumerate(node.children)}
        gaps, rest = self._gaps(
            parts, {indexes[id(entry)] for entry in order if id(entry) in indexes}
        )
        start, end, depth = parts[0].start, parts[-1].end, column(text, node.children[0].start)
        blank = ""
        if (is_root or node.kind == "list") and _has_blank_lines(text, node.children):
            blank = "\n"
        if node.kind == "map" and depth and isinstance(order[-1], _New):
            # New keys go behind those that are commented out.
            end = self._past_comments(end, depth)
            rest += text[parts[-1].end : end]
        lines: list[str] = []
        gap = ""
        for entry in order:
            if isinstance(entry, _New):
                if node.kind == "map":
                    lines, rest = [*lines, rest], ""
                lines += [gap or blank * bool(lines), self._line(entry, node)]
                gap = blank
                continue
            part = parts[indexes[id(entry)]]
            entry_text = self._spliced(part.start, part.end, splices[id(entry)])
            gap = gaps.pop(0) or gap
            if not lines and not begins_line(text, start):
                gap, entry_text = "", entry_text.lstrip(" ")  # It moves behind the dash.
            lines += [gap, entry_text.removesuffix("\n"), "\n"]
            gap = ""
        new = "".join([*lines, rest])
        if not text.endswith("\n", 0, end):  # The last line of the file has no end.
            new = new.removesuffix("\n")
        return start, end, new

    def _line(self, entry: _New, node: Node) -> str:
        indent = self._indent(node.children[0])
        if entry.key is None:
            return f"{indent}{item_of(entry.value, indent, self._manner)}\n"
        return f"{indent}{pair(entry.key, entry.value, indent, self._manner)}\n"

    # Brackets

    def _brackets(
        self, node: Node, order: Sequence[Child | _New], splices: dict[int, list[Splice]]
    ) -> Splice:
        text, children = self._text, node.children
        parts, has_trailing_comma, closing = _between_brackets(text, self._form, node)
        indexes = {id(child): index for index, child in enumerate(children)}
        gaps, rest = self._gaps(
            parts, {indexes[id(entry)] for entry in order if id(entry) in indexes}
        )
        indent = indent_of(text, children[0].start)
        start = parts[0].start - len(parts[0].lead) - len(parts[0].gap)
        is_broken = text[:start].endswith("\n")
        is_wide = all("\n" not in text[part.start : part.end] for part in parts)
        new_part = _Part("", 0, 0, indent * is_broken, "\n" * is_broken)
        lines: list[str] = []
        for at, entry in enumerate(order):
            if isinstance(entry, _New):
                part, gap = new_part, ""
                content = self._between_commas(entry, indent, is_wide or not is_broken)
            else:
                part = parts[indexes[id(entry)]]
                content = self._spliced(part.start, part.end, splices[id(entry)])
                gap = gaps.pop(0)
            lead, behind = part.lead, part.behind
            if not is_broken and at == 0:
                lead = parts[0].lead
            elif not is_broken:
                lead = lead or " "
            elif not behind.endswith("\n"):
                behind += "\n"
            if at < len(order) - 1 or has_trailing_comma:
                behind = f",{behind}"
            lines.append(f"{gap}{lead}{content}{behind}")
        return start, node.end, "".join([*lines, rest, closing])

    def _between_commas(self, entry: _New, indent: str, is_wide: bool) -> str:
        if self._form == "json":
            value = in_json(entry.value, indent, self._manner, wide=is_wide)
        else:
            value = inline(entry.value, "yaml")
        if entry.key is None:
            return value
        return f"{scalar(entry.key, self._form)}: {value}"


def _between_brackets(text: str, form: Form, node: Node) -> tuple[list[_Part], bool, str]:
    """The entries, whether a comma follows the last one, and the end with the closing bracket.

    An anchor may precede the opening bracket.
    """
    opening = {"map": "{", "list": "["}[node.kind]
    opens = text.index(opening, node.start) + 1
    before = text[opens : node.children[0].start]
    before = before[before.find("\n") + 1 :]
    parts: list[_Part] = []
    has_comma = False
    starts = [*(child.start for child in node.children[1:]), node.end - 1]
    for child, until in zip(node.children, starts, strict=True):
        end = max(child.value_from, child.node.end)
        gap = text[end:until]
        comma = _without_comments(gap, form).find(",")
        has_comma = comma >= 0
        if has_comma:
            end += comma
            gap = gap[comma + 1 :]
        line_break = gap.find("\n") + 1
        detached = _detached(before)
        lead = before[len(detached) :]
        parts.append(_Part(detached, child.start, end, lead, gap[:line_break]))
        before = gap[line_break:]
    return parts, has_comma, before + text[node.end - 1]


def _detached(before: str) -> str:
    """The comments that an empty line separates from the entry below them."""
    parts = re.split(r"(?<=\n)(?=[ \t\r]*\n)", before)
    return "".join(parts[:-1])


def _has_blank_lines(text: str, children: Sequence[Child]) -> bool:
    """Return True if empty lines separate entries of a block."""
    for child, following in pairwise(children):
        end = max(child.value_from, child.node.end)
        if re.search(r"\n[ \t\r]*\n", text[line_end(text, end) : following.start]):
            return True
    return False


def _anchor_of(node: Node) -> str:
    """The anchor with the space behind it."""
    if node.anchor is None:
        return ""
    return f"&{node.anchor} "


def _has_anchor(node: Node) -> bool:
    return node.anchor is not None or any(_has_anchor(child.node) for child in node.children)


def _renamed(
    own: dict[str, Child], gone: list[str], wanted: Tree, new: list[str]
) -> dict[str, str]:
    """Keys of which only the name changes, with their new names."""
    found: dict[str, str] = {}
    for key in gone:
        value = own[key].node.value
        for name in new:
            both_maps = as_map(value) and as_map(wanted[name])
            is_only_one = len(gone) == len(new) == 1 and both_maps
            if name not in found.values() and (is_only_one or alike(value, wanted[name])):
                found[key] = name
                break
    return found


def matches(old: list[Any], new: list[Any]) -> list[int | None]:
    """For each new item the index of the same old item, of the old item with the same name, or of
    the old item that is left if as many old items as new items are left."""
    found: list[int | None] = [None] * len(new)
    left = dict.fromkeys(range(len(old)))
    for identity in (_value_key, name_of):
        by_identity: dict[str | None, list[int]] = {}
        for index in reversed(left):
            by_identity.setdefault(identity(old[index]), []).append(index)
        by_identity.pop(None, None)
        for index, item in enumerate(new):
            if found[index] is None and (same := by_identity.get(identity(item))):
                former = same.pop()
                found[index] = former
                del left[former]
    unmatched = [index for index, at in enumerate(found) if at is None]
    if len(unmatched) == len(left):
        for index, at in zip(unmatched, left, strict=True):
            if _kind(old[at]) is _kind(new[index]):
                found[index] = at
    return found


def name_of(value: Any) -> str | None:
    table = as_map(value) or {}
    names = (table.get(key) for key in ("name", "id"))
    return next((name for name in names if isinstance(name, str)), None)


def _value_key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _kind(value: Any) -> type | None:
    return next((kind for kind in (dict, list) if isinstance(value, kind)), None)


# Lines


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """The position of the line break, or the end of the text."""
    found = text.find("\n", at)
    if found < 0:
        return len(text)
    return found


def next_line(text: str, at: int) -> int:
    return min(len(text), line_end(text, at) + 1)


def begins_line(text: str, at: int) -> bool:
    return not text[line_start(text, at) : at].strip()


def indent_of(text: str, at: int) -> str:
    """The blanks at the beginning of the line."""
    head = text[line_start(text, at) : at]
    return head[: len(head) - len(head.lstrip(" \t"))]


def past_blank_lines(text: str, at: int) -> int:
    found = _BLANK_LINES.match(text, at)
    if found is None:
        return at
    return found.end()
