"""Changes of a configuration, made to the texts of its files.

Promised: a change goes to the file in which what it changes stands, a new entry to the first base
file, in the shape of that file; only what changed is changed (`rewrite`). Read again, the files say
exactly what was wanted, or the change is refused with the reason and nothing is given back. Not
done here: writing, judging what the values mean.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

from mcpx.config.dialects import CLIENT_DIALECTS
from mcpx.config.edits import (
    Convert,
    Edit,
    EditError,
    NewText,
    OrderEntries,
    PutEntry,
    RemoveEntry,
    SetFields,
    SetSection,
    refuse_deep,
)
from mcpx.config.emit import Form, Manner, in_json, pair
from mcpx.config.load import Texts
from mcpx.config.masking import MASK, Unknown, restore_comments, restore_text, unmask
from mcpx.config.shapes import entry_of
from mcpx.config.source import tree_of
from mcpx.config.textedit import Unchangeable, alike, rewritten
from mcpx.config.tree import KeyPath, Tree, as_list, as_map, shorten, spell
from mcpx.config.written import NOUNS, EntrySection, Sheet, Written, absolute, masks_of

Read = Callable[[Texts], Written]
"""The configuration as it would be with these texts."""
_GONE = object()
_FRESH = (
    "# The configuration of mcpx. It may be edited by hand while mcpx runs; comments are kept.\n"
)


def edited(
    written: Written, change: Edit | Sequence[Edit], read: Read, fresh: Path | None = None
) -> Texts:
    """The texts that a change gives files; none for those that it does not change. `fresh`: the
    file to make where there is none. Raises `EditError`."""
    edits: Sequence[Edit] = change if isinstance(change, Sequence) else [change]
    texts: dict[Path, str] = {}
    for edit in edits:
        refuse_deep(edit)
    done = 0
    while done < len(edits):
        editor = _Editor(written, read, texts, fresh)
        new = editor.new_ones(edits[done:])
        texts |= editor.all_added(new) if len(new) > 1 else editor.edited(edits[done])
        done += max(len(new), 1)
        written = read(texts) if done < len(edits) else written
    return texts


class _Editor:
    def __init__(self, written: Written, read: Read, texts: Texts, fresh: Path | None) -> None:
        self._written = written
        self._read_again = read
        self._texts = texts
        self._fresh = fresh

    def edited(self, edit: Edit) -> Texts:
        if isinstance(edit, NewText):
            return self._text(edit)
        if self._written.told:
            first = self._written.told[0]
            where = f"{first.file}:{first.line}" if first.line else first.file
            hint = "mend the text first"
            raise EditError(
                "not_possible", f"the file cannot be read ({where}: {first.message})", hint=hint
            )
        match edit:
            case PutEntry():
                return self._put(edit)
            case SetFields():
                return self._fields(edit)
            case RemoveEntry():
                return self._remove(edit)
            case OrderEntries():
                return self._order(edit)
            case SetSection():
                return self._section(edit)
            case Convert():
                return self._convert()

    # Many at once: each on its own would be the whole file read and written anew

    def new_ones(self, edits: Sequence[Edit]) -> list[PutEntry]:
        """Those at the beginning that only add entries to one section."""
        new: dict[str, PutEntry] = {}
        for edit in () if self._written.told else edits:
            same = isinstance(edit, PutEntry) and all(
                edit.section == each.section for each in new.values()
            )
            if (
                not isinstance(edit, PutEntry)
                or not same
                or edit.create is False
                or edit.name in new
            ):
                break
            if (
                edit.entry.get("name", edit.name) != edit.name
                or self._found(edit.section, edit.name) is not None
            ):
                break
            new[edit.name] = edit
        return list(new.values())

    def all_added(self, edits: Sequence[PutEntry]) -> Texts:
        section = edits[0].section
        new = {edit.name: self._wanted(edit, edit.name, {}) for edit in edits}
        texts = self._added(section, list(new.values()))
        return self._checked(
            texts, lambda written: {name: _entry(written, section, name) for name in new}, new
        )

    # Whole texts

    def _text(self, edit: NewText) -> Texts:
        if not self._written.sheets:
            return {self._new_file(): edit.text}
        file = self._written.sheets[0].path if edit.file is None else absolute(edit.file)
        sheet = next((sheet for sheet in self._written.sheets if sheet.path == file), None)
        if sheet is None:
            raise EditError("not_found", f"{file} is no file of this configuration")
        if MASK not in edit.text:
            return {file: edit.text}
        shown, masks = masks_of(sheet)
        if edit.text == shown:
            return {file: sheet.text}
        form = sheet.source.form
        try:
            if form == "toml" or sheet.tree is None:
                return {file: restore_text(edit.text, masks)}
            text = restore_comments(edit.text, masks)
            new = tree_of(text, form)
            if MASK not in text or new is None:  # An unreadable text will be refused.
                return {file: text}
            tree = unmask(new, sheet.tree, lambda name: self._written.secrets.get(name))
        except Unknown as unknown:
            raise _unknown_mask(unknown) from None
        return {file: self._changed(text, form, tree, sheet)}

    def _changed(self, text: str, form: Form, tree: Tree, sheet: Sheet) -> str:
        try:
            return rewritten(text, form, tree)
        except Unchangeable:
            hint = "edit its text"
            raise EditError(
                "not_possible", f"{sheet.source.name} cannot be changed in place", hint=hint
            ) from None

    def _new_file(self) -> Path:
        if self._fresh is None:
            raise EditError(
                "not_possible", "there is no config file to write to", hint="start mcpx with one"
            )
        return self._fresh

    # Entries

    def _found(self, section: EntrySection, name: str) -> int | None:
        return next((index for index, its in self._written.names(section) if its == name), None)

    def _must_find(self, section: EntrySection, name: str) -> int:
        index = self._found(section, name)
        if index is None:
            raise EditError(
                "not_found", f"no {NOUNS[section]} named {shorten(name)!r}", path=section
            )
        return index

    def _fields(self, edit: SetFields) -> Texts:
        index = self._must_find(edit.section, edit.name)
        old = self._written.native(edit.section, index)
        new = deepcopy(old)
        for field, value in edit.fields.items():
            path = tuple(field.split("."))
            if value is None:
                _take_out(new, path)
            else:
                _put_in(new, path, value)
        return self._put(PutEntry(edit.section, edit.name, new, create=False))

    def _put(self, edit: PutEntry) -> Texts:
        index = self._found(edit.section, edit.name)
        name = edit.entry.get("name", edit.name)
        if not isinstance(name, str):
            raise EditError("invalid", "a name is text", path=f"{edit.section}.name")
        noun = NOUNS[edit.section]
        if index is not None and edit.create is True:
            raise EditError(
                "exists",
                f"there is a {noun} named {shorten(edit.name)!r} already",
                path=edit.section,
            )
        if index is None and edit.create is False:
            self._must_find(edit.section, edit.name)
        if name != edit.name and self._found(edit.section, name) is not None:
            raise EditError(
                "exists", f"there is a {noun} named {shorten(name)!r} already", path=edit.section
            )
        old = {} if index is None else self._written.native(edit.section, index)
        new = self._wanted(edit, name, old)
        texts = (
            self._added(edit.section, [new])
            if index is None
            else self._replaced(edit.section, index, old, new)
        )
        return self._checked(texts, lambda written: _entry(written, edit.section, name), new)

    def _wanted(self, edit: PutEntry, name: str, old: Tree) -> Tree:
        wanted = self._unmasked(
            {edit.section: [{"name": name, **edit.entry}]}, {edit.section: [old]}
        )
        return cast(Tree, wanted[edit.section][0])

    def _unmasked(self, new: Tree, old: Tree) -> Tree:
        try:
            return cast(Tree, unmask(new, old, lambda name: self._written.secrets.get(name)))
        except Unknown as unknown:
            raise _unknown_mask(unknown) from None

    def _added(self, section: EntrySection, new: list[Tree]) -> Texts:
        if not self._written.sheets:
            manner = Manner("yaml")
            return {self._new_file(): f"{_FRESH}\n{pair(section, new, '', manner)}\n"}
        sheet = self._base()
        tree = deepcopy(sheet.tree or {})
        if section == "mcp_servers" and sheet.dialect != "native":
            holder: Any = self._holder(tree, sheet)
            for each in new:
                entry = entry_of(sheet.dialect, each, None, None)
                if (items := as_list(holder)) is not None:
                    items.append(entry)
                else:
                    holder[each["name"]] = entry
        else:
            listed = as_list(tree.get(section))
            tree[section] = [*(listed or []), *new]
        return {sheet.path: self._text_of(sheet, tree)}

    def _base(self) -> Sheet:
        bases = (sheet for sheet in self._written.sheets if not sheet.overlay)
        sheet = next((sheet for sheet in bases if sheet.source.form != "toml"), None)
        if sheet is None:
            raise _read_only(self._written.sheets[0])
        return sheet

    def _holder(self, tree: Tree, sheet: Sheet) -> Any:
        """Where the servers of a file in another shape stand; made if need be."""
        assert self._written.layers is not None
        section = ("mcpServers",)
        for index, _ in self._written.names("mcp_servers"):
            file, path = self._written.layers.whole.origins.trace(("mcp_servers", index))
            if file is sheet.source and "projects" not in path:
                section = path[:-1]
                break
        else:
            file, path = self._written.layers.whole.origins.trace(("mcp_servers",))
            section = path if file is sheet.source and path != ("mcp_servers",) else section
        at: Any = tree
        for step in section[:-1]:
            at = at[step] if isinstance(step, int) else at.setdefault(step, {})
        last = section[-1]
        if not isinstance(at.get(last), dict | list):
            at[last] = {}
        return at[last]

    def _replaced(self, section: EntrySection, index: int, old: Tree, new: Tree) -> Texts:
        assert self._written.layers is not None
        source, path = self._written.layers.whole.origins.trace((section, index))
        sheet = self._sheet(source)
        if section != "mcp_servers" or sheet.dialect == "native":
            return self._spread(old, new, (section, index))
        tree = deepcopy(sheet.tree or {})
        holder, key = _get(tree, path[:-1]), path[-1]
        entry = entry_of(sheet.dialect, new, holder[key], old)
        if isinstance(key, str) and new["name"] != old.get("name"):
            pairs = [
                (new["name"], entry) if each == key else (each, value)
                for each, value in holder.items()
            ]
            holder.clear()
            holder.update(pairs)
        else:
            holder[key] = entry
        return {sheet.path: self._text_of(sheet, tree)}

    def _spread(self, old: Any, new: Any, path: KeyPath) -> Texts:
        """Each difference to the file in which it stands."""
        assert self._written.layers is not None
        trees: dict[Path, tuple[Sheet, Tree]] = {}
        for where, value in _differences(old, new, path):
            known = where
            while known and _get(self._written.layers.whole.tree, known, _GONE) is _GONE:
                known = known[:-1]
            source, there = self._written.layers.whole.origins.trace(known)
            sheet = self._sheet(source) if known else self._base()
            _, tree = trees.setdefault(sheet.path, (sheet, deepcopy(sheet.tree or {})))
            there = (*there, *where[len(known) :])
            if value is _GONE:
                _take_out(tree, there)
            else:
                _put_in(tree, there, value)
        return {path: self._text_of(sheet, tree) for path, (sheet, tree) in trees.items()}

    def _sheet(self, source: object) -> Sheet:
        sheet = next((sheet for sheet in self._written.sheets if sheet.source is source), None)
        if sheet is None:
            raise EditError(
                "not_possible", "it is not known in which file this stands", hint="edit the text"
            )
        if sheet.source.form == "toml":
            raise _read_only(sheet)
        return sheet

    def _text_of(self, sheet: Sheet, tree: Tree) -> str:
        form = sheet.source.form
        if form == "toml":
            raise _read_only(sheet)
        return self._changed(sheet.text, form, tree, sheet)

    def _remove(self, edit: RemoveEntry) -> Texts:
        self._must_find(edit.section, edit.name)
        texts, written = dict[Path, str](), self._written
        # Files that lie over each other may all speak of it.
        for _ in self._written.sheets:
            index = next(
                (index for index, name in written.names(edit.section) if name == edit.name), None
            )
            if index is None or written.layers is None:
                break
            source, path = written.layers.whole.origins.trace((edit.section, index))
            editor = _Editor(written, self._read_again, self._texts, self._fresh)
            sheet = editor._sheet(source)
            tree = deepcopy(sheet.tree or {})
            _take_out(tree, path)
            texts[sheet.path] = editor._text_of(sheet, tree)
            if (shorter := editor._without_last_section(sheet, tree, edit.section)) is not None:
                texts[sheet.path] = shorter
            written = self._read_again({**self._texts, **texts})
        return texts

    def _without_last_section(self, sheet: Sheet, tree: Tree, section: EntrySection) -> str | None:
        """The text without an empty section at its end, where the first entry had put it. None if
        it must stay."""
        if len(tree) < 2 or next(reversed(tree)) != section or tree[section] != []:
            return None
        text = self._text_of(sheet, {key: value for key, value in tree.items() if key != section})
        return None if self._read_again({**self._texts, sheet.path: text}).told else text

    def _order(self, edit: OrderEntries) -> Texts:
        assert self._written.layers is not None
        names = self._written.names(edit.section)
        if sorted(edit.names) != sorted(name for _, name in names):
            raise EditError(
                "invalid", f"not the names of all {NOUNS[edit.section]}s", path=edit.section
            )
        spots = {
            name: self._written.layers.whole.origins.trace((edit.section, index))
            for index, name in names
        }
        sources = {id(source) for source, _ in spots.values()}
        if len(sources) != 1 or not all(isinstance(path[-1], int) for _, path in spots.values()):
            what = (
                "these entries have no order of their own: they stand in several files, or by "
                "their names"
            )
            raise EditError("not_possible", what, path=edit.section)
        source, path = next(iter(spots.values()))
        sheet = self._sheet(source)
        tree = deepcopy(sheet.tree or {})
        items = _get(tree, path[:-1])
        items[:] = [items[cast(int, spots[name][1][-1])] for name in edit.names]
        return {sheet.path: self._text_of(sheet, tree)}

    # Sections

    def _section(self, edit: SetSection) -> Texts:
        if not self._written.sheets:
            value = self._unmasked({edit.section: edit.value}, {})[edit.section]
            text = f"{_FRESH}\n{pair(edit.section, value, '', Manner('yaml'))}\n"
            return {self._new_file(): text}
        assert self._written.layers is not None
        tree = self._written.layers.whole.tree
        old = {edit.section: tree[edit.section]} if tree.get(edit.section) is not None else {}
        new = self._unmasked({edit.section: edit.value} if edit.value is not None else {}, old)
        texts = self._spread(old, new, ())
        wanted = new.get(edit.section)

        def found(written: Written) -> Any:
            return written.layers.whole.tree.get(edit.section) if written.layers else None

        return self._checked(texts, found, wanted)

    def _convert(self) -> Texts:
        texts: dict[Path, str] = {}
        for sheet in self._written.sheets:
            if sheet.dialect == "native" or sheet.overlay:
                continue
            if sheet.source.form == "toml":
                raise _read_only(sheet)
            if len(self._written.sheets) > 1:
                raise EditError(
                    "not_possible", "several files are not converted at once", hint="edit the texts"
                )
            assert self._written.layers is not None
            whole = self._written.layers.whole
            names = self._written.names("mcp_servers")
            tree: Tree = {
                "mode": whole.mode,
                **({"naming": dict(whole.naming)} if whole.naming else {}),
                **whole.tree,
            }
            tree["mcp_servers"] = [self._written.native("mcp_servers", index) for index, _ in names]
            texts[sheet.path] = fresh_text(tree, sheet.source.form)
        if not texts:
            raise EditError("not_possible", "it is in the native shape already")
        return texts

    def _checked(self, texts: Texts, found: Callable[[Written], Any], wanted: Any) -> Texts:
        """Whether the files, read again, say what was wanted."""
        if not self._written.sheets:
            return texts
        again = self._read_again({**self._texts, **texts})
        if again.told:
            first = again.told[0]
            raise EditError("invalid", first.message, path=first.path, hint=first.hint)
        now = found(again)
        if alike(_meaning(now), _meaning(wanted)):
            return texts
        raise self._cannot_say(wanted, now)

    def _cannot_say(self, wanted: Any, now: Any) -> EditError:
        sheet = self._written.sheets[0]
        fields = (
            [spell(path) for path, _ in _differences(now or {}, wanted or {}, ())]
            if as_map(wanted)
            else []
        )
        what = shorten(", ".join(fields), 200) or "this"
        if sheet.dialect != "native":
            shape = (
                "a client's file"
                if sheet.dialect in CLIENT_DIALECTS
                else f"the shape of {sheet.source.name}"
            )
            hint = "convert the file to the native shape, or leave it out"
            return EditError("not_possible", f"{shape} cannot say it: {what}", hint=hint)
        hint = "edit the texts of the files"
        return EditError(
            "not_possible", f"several files say it, and it would not come out: {what}", hint=hint
        )


def fresh_text(tree: Tree, form: Form) -> str:
    """A whole configuration as a new text."""
    if form == "json":
        return in_json(tree, "", Manner("json")) + "\n"
    return "\n".join(pair(key, value, "", Manner("yaml")) + "\n" for key, value in tree.items())


def _read_only(sheet: Sheet) -> EditError:
    hint = "edit it by hand, or start mcpx with a YAML or JSON file"
    return EditError(
        "not_possible",
        f"{sheet.source.name} is TOML, which mcpx reads but does not write",
        hint=hint,
    )


def _entry(written: Written, section: EntrySection, name: str) -> Any:
    index = next((index for index, its in written.names(section) if its == name), None)
    return None if index is None else written.native(section, index)


def _meaning(value: Any) -> Any:
    """Without what says no more than nothing: shapes differ in what they leave out."""
    table = as_map(value)
    if table is None:
        return value
    told = {key: _meaning(item) for key, item in table.items()}
    return {
        key: item
        for key, item in told.items()
        if item not in (None, [], {}) and (key, item) != ("enabled", True)
    }


def _unknown_mask(unknown: Unknown) -> EditError:
    if unknown.text:
        hint = "write the value, or leave the line out"
        where = f"in this comment: {shorten(unknown.text)}"
        what = f"nothing is stored that {MASK} could stand for {where}"
        return EditError("invalid", what, hint=hint)
    hint = "write the value, or ${VAR}"
    what = f"nothing is stored that {MASK} could stand for"
    return EditError("invalid", what, path=spell(unknown.path), hint=hint)


def _differences(old: Any, new: Any, path: KeyPath) -> list[tuple[KeyPath, Any]]:
    before, after = as_map(old), as_map(new)
    if before is None or after is None or (path and not before):
        return [] if alike(old, new) else [(path, new)]
    found: list[tuple[KeyPath, Any]] = [((*path, key), _GONE) for key in before if key not in after]
    for key, value in after.items():
        found += (
            _differences(before[key], value, (*path, key))
            if key in before
            else [((*path, key), value)]
        )
    return found


def _get(tree: Any, path: KeyPath, default: Any = None) -> Any:
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return default
    return tree


def _put_in(tree: Any, path: KeyPath, value: Any) -> None:
    for step in path[:-1]:
        table = as_map(tree)
        if table is not None and not isinstance(table.get(str(step)), dict | list):
            table[str(step)] = {}
        tree = tree[step]
    tree[path[-1]] = value


def _take_out(tree: Any, path: KeyPath) -> None:
    holder: Any = _get(tree, path[:-1])
    if _get(holder, path[-1:], _GONE) is not _GONE:
        del holder[path[-1]]
