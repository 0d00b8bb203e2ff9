"""A text changed so that it says something else, with only what differs changed.

Promised: comments, order, quotes, anchors, references, empty lines and indentation of everything
else stay byte for byte; the new text is read as exactly what was wanted, or `Unchangeable` is
raised. A value that changed is replaced where it stands, a new one is put behind its siblings, one
that goes takes its own comment with it. An alias whose anchor no longer says the same is written
out. Where that does not do, the smallest part that does is written anew. Not done here: what the
text should say.
"""

from itertools import pairwise
from typing import Any, cast

from mcpx.config.align import TEXTUAL, alike, matches
from mcpx.config.emit import Manner, after_key, in_json, inline, item_of, manner_of, pair, scalar
from mcpx.config.layout import Child, Form, Piece, lay_out
from mcpx.config.regions import (
    Slot,
    begins_line,
    blank_between,
    blank_run,
    brackets,
    end_of_block,
    indent_of,
    line_end,
    line_start,
    own_lines,
    without_own,
)
from mcpx.config.source import tree_of
from mcpx.config.tree import KeyPath, Tree, as_list, as_map

Splice = tuple[int, int, str]
_FINE = 1_000


class Unchangeable(Exception):
    """No way was found to make the text say it."""


def rewritten(text: str, form: Form, wanted: Tree) -> str:
    """`text` must be one that can be read."""
    if "\r\n" in text:
        # Within, lines end in one character; a lone one is not touched.
        return rewritten(text.replace("\r\n", "\n"), form, wanted).replace("\n", "\r\n")
    root = lay_out(text, form)
    if alike(root.value, wanted):
        return text
    for coarse in (_FINE, 3, 2, 1):
        try:
            new = _Rewriter(text, form, root, coarse).whole(wanted)
            for told in (new, f"{new}\n"):  # a text of several lines may need the end of the last
                if _says(told, form, wanted):
                    return told
        except (
            ValueError,
            LookupError,
            TypeError,
        ):  # a text that was not foreseen is written more coarsely
            continue
    raise Unchangeable


def _says(text: str, form: Form, wanted: Tree) -> bool:
    tree = tree_of(text, form)
    return tree is not None and (alike(tree, wanted) or _reads(lay_out(text, form), wanted, ()))


def _reads(piece: Piece, wanted: Any, path: KeyPath) -> bool:
    """The same, where what is text anyway may be spelled as a number."""
    items, table = as_list(wanted), as_map(wanted)
    if (
        not piece.children
        or (piece.kind == "list" and items is None)
        or (piece.kind == "map" and table is None)
    ):
        return alike(piece.value, wanted) or _spelled(piece, wanted, path)
    if items is not None:
        children = [child.piece for child in piece.children]
        return len(children) == len(items) and all(
            _reads(child, item, (*path, at))
            for at, (child, item) in enumerate(zip(children, items, strict=True))
        )
    own = {str(child.key): child.piece for child in piece.children if not child.merge}
    known = as_map(piece.value) or {}
    return (
        table is not None
        and known.keys() == table.keys()
        and all(
            _reads(own[key], value, (*path, key)) if key in own else alike(known[key], value)
            for key, value in table.items()
        )
    )


class _Rewriter:
    def __init__(self, text: str, form: Form, root: Piece, coarse: int) -> None:
        self._text = text
        self._form: Form = form
        self._root = root
        self._coarse = coarse
        self._manner: Manner = manner_of(text, form, root)
        self._anchors: dict[str, Any] = {}
        """What each anchor stands for in the new text, as far as it is written."""
        self._has_anchors = form == "yaml" and _anchored(root)

    def whole(self, wanted: Tree) -> str:
        return self._applied(0, len(self._text), self._value(self._root, wanted, (), None))

    def _applied(self, start: int, end: int, splices: list[Splice]) -> str:
        parts, at = list[str](), start
        for begin, stop, new in sorted(splices, key=lambda splice: splice[:2]):
            if begin < at:
                raise ValueError("two changes of one place")
            parts += [self._text[at:begin], new]
            at = stop
        return "".join([*parts, self._text[at:end]])

    # Values

    def _value(self, piece: Piece, wanted: Any, path: KeyPath, child: Child | None) -> list[Splice]:
        if piece.alias is not None:
            stands = piece.alias in self._anchors and alike(self._anchors[piece.alias], wanted)
            return [] if stands else self._replaced(piece, wanted, child)
        splices = self._changed(piece, wanted, path, child)
        if piece.anchor is not None:
            self._anchors[piece.anchor] = wanted
        return splices

    def _changed(
        self, piece: Piece, wanted: Any, path: KeyPath, child: Child | None
    ) -> list[Splice]:
        equal = alike(piece.value, wanted) or _spelled(piece, wanted, path)
        if equal and not (self._has_anchors and piece.children):
            return []
        kind = (
            "map"
            if as_map(wanted) is not None
            else "list"
            if as_list(wanted) is not None
            else "scalar"
        )
        if kind != piece.kind or kind == "scalar" or not piece.children:
            return self._replaced(piece, wanted, child)
        if not equal and len(path) >= self._coarse:
            return self._replaced(piece, wanted, child)
        if not wanted:
            return self._emptied(piece, child)
        if kind == "map":
            return self._map(piece, cast(Tree, wanted), path, child)
        return self._list(piece, cast("list[Any]", wanted), path)

    def _replaced(self, piece: Piece, wanted: Any, child: Child | None) -> list[Splice]:
        anchor = f"&{piece.anchor} " if piece.anchor else ""
        if self._form == "json":
            return [
                (
                    piece.start,
                    piece.end,
                    in_json(wanted, indent_of(self._text, piece.start), self._manner),
                )
            ]
        if child is None:
            raise ValueError("a whole text is not replaced")
        parts = isinstance(wanted, dict | list)
        if child.flow or (not parts and "\n" not in str(wanted) and piece.kind == "scalar"):
            style = piece.style if piece.style in ("'", '"') and piece.alias is None else ""
            new = inline(wanted, "yaml") if parts else scalar(wanted, "yaml", style)
            lead = " " if self._text[child.key_end : piece.start] == "" and not child.flow else ""
            return [(piece.start, piece.end, lead + anchor + new)]
        return self._put(piece, wanted, child, anchor)

    def _put(self, piece: Piece, wanted: Any, child: Child, anchor: str) -> list[Splice]:
        """What may take several lines, behind a key or a dash of a block."""
        text, indent = self._text, self._indent(child)
        if child.key is None:
            new = item_of(wanted, indent, self._manner)[1:]
        else:
            new = after_key(wanted, indent, self._manner)
        head, _, rest = new.partition("\n")
        head = f" {anchor.strip()}{head}" if anchor else head
        rest = f"\n{rest}" if rest else ""
        first = line_end(text, child.key_end)
        if line_start(text, piece.end) == line_start(text, child.key_end):
            return [(child.key_end, piece.end, head), (first, first, rest)]
        remark = text[child.key_end : first].strip()
        kept = f"  {remark}" if remark.startswith("#") else ""
        return [(child.key_end, line_end(text, piece.end), head + kept + rest)]

    def _emptied(self, piece: Piece, child: Child | None) -> list[Splice]:
        nothing = "{}" if piece.kind == "map" else "[]"
        if (
            piece.flow
            or child is None
            or child.key is None
            or not begins_line(self._text, piece.children[0].start)
        ):
            return self._replaced(piece, {} if piece.kind == "map" else [], child)
        anchor = f"&{piece.anchor} " if piece.anchor else ""
        until = piece.start + len(anchor.strip()) if anchor else child.key_end
        regions = [own_lines(self._text, piece, index) for index in range(len(piece.children))]
        gone = [(region.start, region.end, "") for region in regions]
        return [(child.key_end, until, f" {anchor}{nothing}"), *gone]

    def _indent(self, child: Child) -> str:
        """The column of a key or a dash, as spaces."""
        return " " * (child.start - line_start(self._text, child.start))

    # Maps

    def _map(self, piece: Piece, wanted: Tree, path: KeyPath, holder: Child | None) -> list[Splice]:
        own = {str(child.key): child for child in piece.children if not child.merge}
        merges = [child for child in piece.children if child.merge]
        coming, merges_gone = self._merged(merges, wanted)
        gone = [key for key in own if key not in wanted]
        new = [
            key
            for key in wanted
            if key not in own and not (key in coming and alike(coming[key], wanted[key]))
        ]
        renamed = _renamed(own, gone, wanted, new)
        leaving = [own[key] for key in gone if key not in renamed] + (merges if merges_gone else [])
        added = {key: wanted[key] for key in new if key not in renamed.values()}
        if (
            len(leaving) == len(piece.children)
            and not piece.flow
            and not begins_line(self._text, piece.children[0].start)
        ):
            return self._replaced(piece, wanted, holder)  # behind a dash, where one must stand
        inner: dict[int, list[Splice]] = {}
        for child in piece.children:
            if any(child is each for each in leaving):
                continue
            if child.merge:
                inner[id(child)] = []
                continue
            key = renamed.get(str(child.key), str(child.key))
            inner[id(child)] = self._value(child.piece, wanted[key], (*path, key), child)
            if key != child.key:
                name = self._text[child.start : child.key_end].rstrip(":").rstrip()
                inner[id(child)].append(
                    (child.start, child.start + len(name), scalar(key, self._form))
                )
        if piece.flow:
            order: list[Child | tuple[str, Any]] = [c for c in piece.children if id(c) in inner]
            return self._in_order(piece, [*order, *added.items()], inner)
        return self._block(piece, inner, list(added.items()), len(path))

    def _merged(self, merges: list[Child], wanted: Tree) -> tuple[Tree, bool]:
        """What `<<` gives in the new text, and whether it has to go, for it gives what is not
        wanted."""
        coming: Tree = {}
        for child in merges:
            several = (
                child.piece.children
                if child.piece.kind == "list" and child.piece.alias is None
                else [child]
            )
            for each in several:
                alias = each.piece.alias
                if alias is not None and alias not in self._anchors:
                    return {}, True
                table = self._anchors[alias] if alias is not None else each.piece.value
                for one in as_list(table) or [table]:
                    if as_map(one) is None:
                        return {}, True
                    coming = {**one, **coming}
        return ({}, True) if coming.keys() - wanted.keys() else (coming, False)

    def _block(
        self, piece: Piece, inner: dict[int, list[Splice]], added: list[tuple[str, Any]], depth: int
    ) -> list[Splice]:
        """A block map: some of its keys go, some come behind the others."""
        text = self._text
        splices = [splice for changes in inner.values() for splice in changes]
        splices += self._removed(
            piece, [at for at, child in enumerate(piece.children) if id(child) not in inner]
        )
        if added:
            indent = self._indent(piece.children[0])
            blank = "\n" * (depth == 0 and blank_between(text, piece))
            lines = [
                f"{blank}{indent}{pair(key, value, indent, self._manner)}\n" for key, value in added
            ]
            splices.append(self._inserted(end_of_block(text, piece), "".join(lines)))
        return splices

    def _inserted(self, at: int, lines: str) -> Splice:
        if at and self._text[at - 1] != "\n":  # the last line of the file has no end
            return at, at, "\n" + lines.removesuffix("\n")
        return at, at, lines

    def _removed(self, piece: Piece, indices: list[int]) -> list[Splice]:
        text, splices = self._text, list[Splice]()
        last = len(piece.children) - 1
        for index in indices:
            region = own_lines(text, piece, index)
            end = region.end
            if not begins_line(text, piece.children[index].start):
                # The first key behind a dash: the next one that stays takes its place.
                following = next(
                    at for at in range(index + 1, len(piece.children)) if at not in indices
                )
                end = own_lines(text, piece, following).start
                end += len(text[end:]) - len(text[end:].lstrip(" "))
                splices = [splice for splice in splices if splice[1] <= region.start]
                splices.append((region.start, end, ""))
                return splices + self._removed(piece, [at for at in indices if at > following])
            start = region.start
            is_at_end = all(at in indices for at in range(index, last + 1))
            if is_at_end and (index > 0 or not text[end:].strip()):
                # The empty lines before it go, and those behind it stay: they set apart what
                # follows.
                if index - 1 not in indices and text[:start].strip():
                    start = len(text[:start].rstrip()) + 1
                end = end if index == last else blank_run(text, end)
            elif text[:start].endswith("\n\n") or start == 0:
                end = blank_run(text, end)
            splices.append((start, end, ""))
        return splices

    # Lists

    def _list(self, piece: Piece, wanted: list[Any], path: KeyPath) -> list[Splice]:
        matched = matches([child.piece.value for child in piece.children], wanted)
        inner: dict[int, list[Splice]] = {}
        order: list[Child | tuple[str, Any]] = []
        for index, (value, old) in enumerate(zip(wanted, matched, strict=True)):
            if old is None:
                order.append(("", value))
                continue
            child = piece.children[old]
            inner[id(child)] = self._value(child.piece, value, (*path, index), child)
            order.append(child)
        if piece.flow:
            return self._in_order(piece, order, inner)
        if not begins_line(self._text, piece.children[0].start):
            raise ValueError("a list in a list")
        kept = [old for old in matched if old is not None]
        if kept != sorted(kept):
            return self._lines_in_order(piece, order, inner)
        return self._spread(piece, order, inner)

    def _spread(
        self, piece: Piece, order: list[Child | tuple[str, Any]], inner: dict[int, list[Splice]]
    ) -> list[Splice]:
        """A block list whose items keep their order: some go, some come."""
        text, children = self._text, piece.children
        splices = [splice for changes in inner.values() for splice in changes]
        splices += self._removed(
            piece, [at for at, child in enumerate(children) if id(child) not in inner]
        )
        blank, indent = "\n" * blank_between(text, piece), self._indent(children[0])
        last: Child | None = None
        comes: dict[int, str] = {}
        for item in order:
            if isinstance(item, Child):
                last = item
                continue
            line = f"{indent}{item_of(item[1], indent, self._manner)}\n"
            if last is None:
                at, line = own_lines(text, piece, 0).start, line + blank
            else:
                at = own_lines(
                    text, piece, next(i for i, child in enumerate(children) if child is last)
                ).end
                line = blank + line
            comes[at] = comes.get(at, "") + line
        return splices + [self._inserted(at, lines) for at, lines in comes.items()]

    def _lines_in_order(
        self, piece: Piece, order: list[Child | tuple[str, Any]], inner: dict[int, list[Splice]]
    ) -> list[Splice]:
        """A block list in another order: items move with their comments, what lies between them
        stays between."""
        text, indent = self._text, self._indent(piece.children[0])
        regions = [own_lines(text, piece, index) for index in range(len(piece.children))]
        gaps = [text[one.end : other.start] for one, other in pairwise(regions)]
        blank = "\n" * blank_between(text, piece)
        parts: list[str] = []
        for slot, item in enumerate(order):
            if isinstance(item, Child):
                region = regions[next(i for i, child in enumerate(piece.children) if child is item)]
                lines = self._applied(region.start, region.end, inner[id(item)])
            else:
                lines = f"{indent}{item_of(item[1], indent, self._manner)}\n"
            gap = gaps[slot] if slot < len(gaps) else blank
            parts += [
                lines if lines.endswith("\n") else f"{lines}\n",
                gap if slot < len(order) - 1 else "",
            ]
        left = [gap for gap in gaps[len(order) - 1 :] if gap.strip()]
        return [(regions[0].start, regions[-1].end, "".join([*parts, *left]))]

    # Brackets

    def _in_order(
        self, piece: Piece, order: list[Child | tuple[str, Any]], inner: dict[int, list[Splice]]
    ) -> list[Splice]:
        """What stands in brackets, its entries in this order."""
        if [id(item) for item in order] == [id(child) for child in piece.children]:
            return [splice for changes in inner.values() for splice in changes]
        text, parts = self._text, brackets(self._text, self._form, piece)
        slots = {id(child): slot for child, slot in zip(piece.children, parts.slots, strict=True)}
        indent = indent_of(text, piece.children[0].start)
        wide = all("\n" not in text[slot.start : slot.end] for slot in parts.slots)
        told: list[str] = []
        for at, item in enumerate(order):
            slot = slots.get(id(item)) or Slot(
                indent if parts.broken else " ", 0, 0, "\n" if parts.broken else ""
            )
            before = parts.slots[0].before if at == 0 and not parts.broken else slot.before
            before = " " if at and not before and not parts.broken else before
            if isinstance(item, Child):
                content = self._applied(slot.start, slot.end, inner[id(item)])
            else:
                content = self._in_line(piece, item, indent, wide or not parts.broken)
            behind = slot.behind
            if parts.broken and not behind.endswith("\n"):
                behind += "\n"
            comma = "," if at < len(order) - 1 or parts.trailing_comma else ""
            told.append(f"{before}{content}{comma}{behind}")
        kept = {id(item) for item in order}
        left = "".join(without_own(slot.before) for key, slot in slots.items() if key not in kept)
        opens = text[: parts.slots[0].start - len(parts.slots[0].before)]
        return [(len(opens), piece.end, "".join(told) + left + parts.closing)]

    def _in_line(self, piece: Piece, item: tuple[str, Any], indent: str, wide: bool) -> str:
        key, value = item
        told = (
            in_json(value, indent, self._manner, wide=wide)
            if self._form == "json"
            else inline(value, "yaml")
        )
        return f"{scalar(key, self._form)}: {told}" if piece.kind == "map" else told


def _anchored(piece: Piece) -> bool:
    return piece.anchor is not None or any(_anchored(child.piece) for child in piece.children)


def _spelled(piece: Piece, wanted: Any, path: KeyPath) -> bool:
    """Where everything is text, `8080` says "8080"."""
    return piece.kind == "scalar" and wanted == piece.text and len(path) > 1 and path[-2] in TEXTUAL


def _renamed(
    own: dict[str, Child], gone: list[str], wanted: Tree, new: list[str]
) -> dict[str, str]:
    """Keys that only changed their name, each with its new one."""
    found: dict[str, str] = {}
    for key in gone:
        value = own[key].piece.value
        alone = len(gone) == len(new) == 1 and as_map(value) and as_map(wanted[new[0]])
        same = (
            each
            for each in new
            if each not in found.values() and (alone or alike(value, wanted[each]))
        )
        if (name := next(same, None)) is not None:
            found[key] = name
    return found
