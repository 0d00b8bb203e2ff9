"""Changes of a configuration, made to the texts of its files.

A change goes to the file that has what it changes. A new entry goes to the first base file, in the
shape of that file. `textedit` keeps the rest of the text. The files are read again with the new
texts. If they do not say what was wanted, the change is refused with the reason.
"""

from collections.abc import Callable, Mapping, Sequence
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
from mcpx.config.emit import Form, fresh_text
from mcpx.config.load import Layers, Texts
from mcpx.config.masking import MASK, Unknown, restore_comments, restore_text, unmask
from mcpx.config.schema import Profile, Server
from mcpx.config.shapes import entry_of
from mcpx.config.source import tree_of
from mcpx.config.textedit import Unchangeable, alike, rewritten
from mcpx.config.tree import KeyPath, Tree, as_map, is_list, is_map, shorten, spell
from mcpx.config.validate import keys_of
from mcpx.config.written import NOUNS, EntrySection, Sheet, Written, absolute, masks_of

Read = Callable[[Texts], Written]
"""Reads the configuration as if its files had these texts."""
_GONE = object()
_FRESH = (
    "# The configuration of mcpx. It may be edited by hand while mcpx runs; comments are kept.\n"
)


def edited(
    written: Written, change: Edit | Sequence[Edit], read: Read, fresh: Path | None = None
) -> Texts:
    """The new texts of the files that change. Raises EditError.

    `fresh`: the file to create if there is no file.
    """
    edits = [*change] if isinstance(change, Sequence) else [change]
    for edit in edits:
        refuse_deep(edit)
    texts: dict[Path, str] = {}

    def read_again(more: Texts) -> Written:
        return read({**texts, **more})

    while edits:
        editor = _Editor(written, read_again, fresh)
        new = editor.new_entries(edits)
        if len(new) > 1:
            texts |= editor.add(new[0].section, [editor.wanted(edit, {}) for edit in new])
        else:
            texts |= editor.edited(edits[0])
        edits = edits[max(len(new), 1) :]
        if edits:
            written = read(texts)
    return texts


class _Editor:
    def __init__(self, written: Written, read: Read, fresh: Path | None) -> None:
        self._written = written
        self._read = read
        self._fresh = fresh

    def edited(self, edit: Edit) -> Texts:
        if isinstance(edit, NewText):
            return self._new_text(edit)
        if self._written.told:
            first = self._written.told[0]
            where = first.file
            if first.line:
                where = f"{first.file}:{first.line}"
            what = f"the file cannot be read ({where}: {first.message})"
            raise EditError("not_possible", what, hint="mend the text first")
        match edit:
            case PutEntry():
                return self._put(edit)
            case SetFields():
                return self._set_fields(edit)
            case RemoveEntry():
                return self._remove(edit)
            case OrderEntries():
                return self._order(edit)
            case SetSection():
                return self._set_section(edit)
            case Convert():
                return self._convert()

    @property
    def _layers(self) -> Layers:
        assert self._written.layers is not None
        return self._written.layers

    # Whole texts

    def _new_text(self, edit: NewText) -> Texts:
        if not self._written.sheets:
            return {self._new_file(): edit.text}
        file = self._written.sheets[0].path
        if edit.file is not None:
            file = absolute(edit.file)
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
            tree = unmask(new, sheet.tree, self._secret)
        except Unknown as unknown:
            raise _unknown_mask(unknown) from None
        return {file: _rewritten(text, form, tree, sheet)}

    def _new_file(self) -> Path:
        if self._fresh is None:
            what, hint = "there is no config file to write to", "start mcpx with one"
            raise EditError("not_possible", what, hint=hint)
        return self._fresh

    def _secret(self, name: str) -> Any:
        return self._written.secrets.get(name)

    def _unmasked(self, new: Tree, old: Tree) -> Tree:
        try:
            return cast(Tree, unmask(new, old, self._secret))
        except Unknown as unknown:
            raise _unknown_mask(unknown) from None

    # Entries

    def new_entries(self, edits: Sequence[Edit]) -> list[PutEntry]:
        """The first edits, as far as they only add entries to one section.

        They are made at once: alone, each would read and write the whole file.
        """
        new: dict[str, PutEntry] = {}
        for edit in edits:
            if not isinstance(edit, PutEntry) or self._written.told or edit.create is False:
                break
            is_same_section = all(edit.section == each.section for each in new.values())
            is_renamed = edit.entry.get("name", edit.name) != edit.name
            exists = _index(self._written, edit.section, edit.name) is not None
            if not is_same_section or is_renamed or exists or edit.name in new:
                break
            new[edit.name] = edit
        return list(new.values())

    def _existing(self, section: EntrySection, name: str) -> int:
        index = _index(self._written, section, name)
        if index is None:
            what = f"no {NOUNS[section]} named {shorten(name)!r}"
            raise EditError("not_found", what, path=section)
        return index

    def _set_fields(self, edit: SetFields) -> Texts:
        index = self._existing(edit.section, edit.name)
        new = deepcopy(self._written.native(edit.section, index))
        for field, value in edit.fields.items():
            if value is None:
                value = _GONE
            _set(new, tuple(field.split(".")), value)
        return self._put(PutEntry(edit.section, edit.name, new, create=False))

    def _put(self, edit: PutEntry) -> Texts:
        section, name = edit.section, edit.entry.get("name", edit.name)
        if not isinstance(name, str):
            raise EditError("invalid", "a name is text", path=f"{section}.name")
        if edit.create is False:
            self._existing(section, edit.name)
        index = _index(self._written, section, edit.name)
        if index is not None and edit.create is True:
            raise _exists(section, edit.name)
        if name != edit.name and _index(self._written, section, name) is not None:
            raise _exists(section, name)
        if index is None:
            return self.add(section, [self.wanted(edit, {})])
        old = self._written.native(section, index)
        new = self.wanted(edit, old)
        texts = self._replace(section, index, old, new)
        return self._checked(texts, lambda written: _entries(written, section), {name: new})

    def wanted(self, edit: PutEntry, old: Tree) -> Tree:
        """The entry without masks."""
        entry = {"name": edit.name, **edit.entry}
        new = self._unmasked({edit.section: [entry]}, {edit.section: [old]})
        return cast(Tree, new[edit.section][0])

    def add(self, section: EntrySection, new: list[Tree]) -> Texts:
        if not self._written.sheets:
            return {self._new_file(): f"{_FRESH}\n{fresh_text({section: new}, 'yaml')}"}
        sheet = self._base()
        tree = deepcopy(sheet.tree or {})
        if section != "mcp_servers" or sheet.dialect == "native":
            tree[section] = [*(tree.get(section) or []), *new]
        else:
            holder = self._holder(tree, sheet)
            for each in new:
                entry = entry_of(sheet.dialect, each, None, None)
                if is_list(holder):
                    holder.append(entry)
                else:
                    holder[each["name"]] = entry
        wanted = {each["name"]: each for each in new}
        texts = {sheet.path: _text_of(sheet, tree)}
        return self._checked(texts, lambda written: _entries(written, section), wanted)

    def _base(self) -> Sheet:
        for sheet in self._written.sheets:
            if not sheet.overlay and sheet.source.form != "toml":
                return sheet
        raise _read_only(self._written.sheets[0])

    def _holder(self, tree: Tree, sheet: Sheet) -> Any:
        """The map or list of the servers in a file of another shape. Created if it is missing."""
        trace = self._layers.whole.origins.trace
        indexes = [index for index, _ in self._written.names("mcp_servers")]
        spots = [trace(("mcp_servers", index)) for index in indexes]
        sections = [path[:-1] for file, path in spots if file is sheet.source]
        own = [section for section in sections if "projects" not in section]
        file, section = trace(("mcp_servers",))
        if file is not sheet.source or section == ("mcp_servers",):
            section = ("mcpServers",)
        section = next(iter(own), section)
        if not isinstance(_get(tree, section), dict | list):
            _set(tree, section, {})
        return _get(tree, section)

    def _replace(self, section: EntrySection, index: int, old: Tree, new: Tree) -> Texts:
        source, path = self._layers.whole.origins.trace((section, index))
        sheet = self._sheet(source)
        if section != "mcp_servers" or sheet.dialect == "native":
            return self._spread(old, new, (section, index))
        tree = deepcopy(sheet.tree or {})
        holder, key = _get(tree, path[:-1]), path[-1]
        entry = entry_of(sheet.dialect, new, holder[key], old)
        holder[key] = entry
        if isinstance(key, str) and new["name"] != old.get("name"):
            pairs = list(holder.items())
            holder.clear()
            holder.update({new["name"] if each == key else each: value for each, value in pairs})
        return {sheet.path: _text_of(sheet, tree)}

    def _spread(self, old: Any, new: Any, path: KeyPath) -> Texts:
        """Make each difference in the file that has the value."""
        whole = self._layers.whole
        trees: dict[Path, tuple[Sheet, Tree]] = {}
        for where, value in _differences(old, new, path):
            known = where
            while known and _get(whole.tree, known) is _GONE:
                known = known[:-1]
            source, there = whole.origins.trace(known)
            sheet = self._sheet(source) if known else self._base()
            _, tree = trees.setdefault(sheet.path, (sheet, deepcopy(sheet.tree or {})))
            _set(tree, (*there, *where[len(known) :]), value)
        return {path: _text_of(sheet, tree) for path, (sheet, tree) in trees.items()}

    def _sheet(self, source: object) -> Sheet:
        for sheet in self._written.sheets:
            if sheet.source is source:
                return sheet
        what = "it is not known in which file this stands"
        raise EditError("not_possible", what, hint="edit the text")

    def _remove(self, edit: RemoveEntry) -> Texts:
        self._existing(edit.section, edit.name)
        texts: dict[Path, str] = {}
        written = self._written
        for _ in self._written.sheets:  # An overlay may have the entry, too.
            index = _index(written, edit.section, edit.name)
            if index is None or written.layers is None:
                break
            source, path = written.layers.whole.origins.trace((edit.section, index))
            sheet = _Editor(written, self._read, self._fresh)._sheet(source)
            tree = deepcopy(sheet.tree or {})
            _set(tree, path, _GONE)
            texts[sheet.path] = self._without_last_section(sheet, tree, edit.section)
            written = self._read(texts)
        return texts

    def _without_last_section(self, sheet: Sheet, tree: Tree, section: EntrySection) -> str:
        """The text, without an empty section at its end if the file is readable without it."""
        text = _text_of(sheet, tree)
        if len(tree) < 2 or next(reversed(tree)) != section or tree[section] != []:
            return text
        del tree[section]
        shorter = _text_of(sheet, tree)
        if self._read({sheet.path: shorter}).told:
            return text
        return shorter

    def _order(self, edit: OrderEntries) -> Texts:
        names = self._written.names(edit.section)
        if sorted(edit.names) != sorted(name for _, name in names):
            what = f"not the names of all {NOUNS[edit.section]}s"
            raise EditError("invalid", what, path=edit.section)
        trace = self._layers.whole.origins.trace
        spots = {name: trace((edit.section, index)) for index, name in names}
        sources: list[Any] = [source for source, _ in spots.values()]
        indexes = {name: path[-1] for name, (_, path) in spots.items()}
        is_list_of_one_file = all(isinstance(index, int) for index in indexes.values())
        if not is_list_of_one_file or any(source is not sources[0] for source in sources):
            what = "these entries have no order of their own"
            hint = "they stand in several files, or by their names"
            raise EditError("not_possible", f"{what}: {hint}", path=edit.section)
        sheet = self._sheet(sources[0])
        tree = deepcopy(sheet.tree or {})
        _, path = next(iter(spots.values()))
        items = _get(tree, path[:-1])
        items[:] = [items[indexes[name]] for name in edit.names]
        return {sheet.path: _text_of(sheet, tree)}

    # Sections

    def _set_section(self, edit: SetSection) -> Texts:
        tree: Tree = {}
        if self._written.layers is not None:
            tree = self._written.layers.whole.tree
        old = {key: tree[key] for key in (edit.section,) if tree.get(key) is not None}
        new: Tree = {}
        if edit.value is not None:
            new = self._unmasked({edit.section: edit.value}, old)
        if not self._written.sheets:
            return {self._new_file(): f"{_FRESH}\n{fresh_text(new, 'yaml')}"}

        def found(written: Written) -> Tree:
            return written.layers.whole.tree if written.layers else {}

        wanted = {edit.section: new.get(edit.section)}
        return self._checked(self._spread(old, new, ()), found, wanted)

    def _convert(self) -> Texts:
        bases = [sheet for sheet in self._written.sheets if not sheet.overlay]
        foreign = [sheet for sheet in bases if sheet.dialect != "native"]
        if not foreign:
            raise EditError("not_possible", "it is in the native shape already")
        if len(self._written.sheets) > 1:
            what = "several files are not converted at once"
            raise EditError("not_possible", what, hint="edit the texts")
        tree = native_tree(self._written)
        return {foreign[0].path: fresh_text(tree, _writable_form(foreign[0]))}

    def _checked(
        self, texts: Texts, found: Callable[[Written], Tree], wanted: Mapping[str, Any]
    ) -> Texts:
        """Refuse the change if the files, read again, do not say what was wanted."""
        again = self._read(texts)
        if again.told:
            first = again.told[0]
            raise EditError("invalid", first.message, path=first.path, hint=first.hint)
        now = found(again)
        for key, value in wanted.items():
            if not alike(_meaning(now.get(key)), _meaning(value)):
                raise self._unsayable(now.get(key), value)
        return texts

    def _unsayable(self, now: Any, wanted: Any) -> EditError:
        sheet = self._written.sheets[0]
        fields: list[str] = []
        if is_map(wanted):
            fields = [spell(path) for path, _ in _differences(now or {}, wanted, ())]
        what = shorten(", ".join(fields), 200) or "this"
        if sheet.dialect == "native":
            what = f"several files say it, and it would not come out: {what}"
            return EditError("not_possible", what, hint="edit the texts of the files")
        shape = f"the shape of {sheet.source.name}"
        if sheet.dialect in CLIENT_DIALECTS:
            shape = "a client's file"
        hint = "convert the file to the native shape, or leave it out"
        return EditError("not_possible", f"{shape} cannot say it: {what}", hint=hint)


def native_tree(written: Written) -> Tree:
    """The whole configuration in the native shape, as it is written."""
    assert written.layers is not None
    whole = written.layers.whole
    tree: Tree = dict(whole.tree)
    if whole.dialect != "native":
        tree = {"mode": whole.mode, "naming": dict(whole.naming), **whole.tree}
        if not whole.naming and "naming" not in whole.tree:
            del tree["naming"]
    sections: tuple[EntrySection, ...] = ("mcp_servers", "commands", "auth_configs", "profiles")
    for section in sections:
        if section in tree:
            names = written.names(section)
            entries = [written.native(section, index) for index, _ in names]
            tree[section] = [_ordered_entry(section, entry) for entry in entries]
    return tree


_FIRST_KEYS = ("name", "type", "description", "enabled", "prefix", "connection")
_CONNECTION_KEYS = ("type", "command", "args", "env", "cwd", "url", "headers")
_CLASSES: dict[EntrySection, type] = {"mcp_servers": Server, "profiles": Profile}


def _ordered_entry(section: EntrySection, entry: Tree) -> Tree:
    """The entry with its name first. Keys that are not in the order follow as they are."""
    keys = list(_FIRST_KEYS)
    if section in _CLASSES:
        keys += keys_of(_CLASSES[section])
    found = _ordered(entry, keys)
    if is_map(connection := found.get("connection")):
        found["connection"] = _ordered(connection, _CONNECTION_KEYS)
    return found


def _ordered(table: Tree, keys: Sequence[str]) -> Tree:
    first = {key: table[key] for key in keys if key in table}
    return {**first, **table}


def _exists(section: EntrySection, name: str) -> EditError:
    what = f"there is a {NOUNS[section]} named {shorten(name)!r} already"
    return EditError("exists", what, path=section)


def _read_only(sheet: Sheet) -> EditError:
    what = f"{sheet.source.name} is TOML, which mcpx reads but does not write"
    hint = "edit it by hand, or start mcpx with a YAML or JSON file"
    return EditError("not_possible", what, hint=hint)


def _unknown_mask(unknown: Unknown) -> EditError:
    what, hint = f"nothing is stored that {MASK} could stand for", "write the value, or ${VAR}"
    if unknown.text:
        what = f"{what} in this comment: {shorten(unknown.text)}"
        hint = "write the value, or leave the line out"
    return EditError("invalid", what, path=spell(unknown.path), hint=hint)


def _writable_form(sheet: Sheet) -> Form:
    form = sheet.source.form
    if form == "toml":
        raise _read_only(sheet)
    return form


def _text_of(sheet: Sheet, tree: Tree) -> str:
    return _rewritten(sheet.text, _writable_form(sheet), tree, sheet)


def _rewritten(text: str, form: Form, tree: Tree, sheet: Sheet) -> str:
    try:
        return rewritten(text, form, tree)
    except Unchangeable:
        what = f"{sheet.source.name} cannot be changed in place"
        raise EditError("not_possible", what, hint="edit its text") from None


def _index(written: Written, section: EntrySection, name: str) -> int | None:
    return next((index for index, its in written.names(section) if its == name), None)


def _entries(written: Written, section: EntrySection) -> Tree:
    """By name, without masks. The last one of several with a name."""
    return {name: written.native(section, index) for index, name in written.names(section)}


def _meaning(value: Any) -> Any:
    """Without values that say nothing. Shapes differ in what they leave out."""
    if not is_map(value):
        return value
    known = {key: _meaning(item) for key, item in value.items()}
    if known.get("enabled") is True:
        del known["enabled"]
    return {key: item for key, item in known.items() if item not in (None, [], {})}


def _differences(old: Any, new: Any, path: KeyPath) -> list[tuple[KeyPath, Any]]:
    """The paths at which two trees differ, with the new values."""
    before, after = as_map(old), as_map(new)
    if before is None or after is None or (path and not before):
        return [(path, new)] * (not alike(old, new))
    found: list[tuple[KeyPath, Any]] = [((*path, key), _GONE) for key in before if key not in after]
    for key, value in after.items():
        if key in before:
            found += _differences(before[key], value, (*path, key))
        else:
            found.append(((*path, key), value))
    return found


def _get(tree: Any, path: KeyPath) -> Any:
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return _GONE
    return tree


def _set(tree: Any, path: KeyPath, value: Any) -> None:
    """Put a value into a tree, or remove it if it is `_GONE`."""
    last: Any = path[-1]
    step: Any
    for step in path[:-1]:
        if is_map(tree) and not isinstance(tree.get(str(step)), dict | list):
            if value is _GONE:
                return
            tree[str(step)] = {}
        tree = tree[step]
    if value is not _GONE:
        tree[last] = value
    elif _get(tree, (last,)) is not _GONE:
        del tree[last]
