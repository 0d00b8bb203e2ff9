"""From a plain tree to frozen dataclasses, driven by their type hints.

Promised: every mistake in one pass, each with the path of its field; a mistake that explains
another hides it; text is never taken for a number or a number for text, except where a user would
be surprised: the items of lists and maps of text (`env`, `args`, `headers`) take a number as it is
spelled, and a value that came from a variable may be a number. Not done here: what holds between
fields (`checks`).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from mcpx.config.problems import Findings, may_be_secret, nearest
from mcpx.config.tree import (
    Expanded,
    KeyPath,
    Tree,
    Unresolved,
    as_bool,
    as_list,
    as_map,
    is_extra,
    plain,
    shorten,
)
from mcpx.model.family import Family, Part
from mcpx.model.kinds import Inside, Mistake, OfType, Rule, Tagged

T = TypeVar("T")
_INVALID: Any = object()
_UNQUOTE = "take off the quotes"
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_LARGEST = 1e15
"""Beyond it a float no longer counts in ones; nothing we measure comes near."""


def build(
    cls: type[T], tree: Tree, findings: Findings, spelling: Callable[[KeyPath], str | None]
) -> T | None:
    """The tree as `cls`, or None when anything was found. `spelling` tells how a scalar was
    written."""
    value = _Builder(findings, spelling).value(cls, tree, ())
    return None if findings else value


def keys_of(cls: type) -> list[str]:
    return list(_shape(cls))


@cache
def _shape(cls: type) -> dict[str, tuple[Field[Any], Any]]:
    """The keys a mapping of this class may hold, each with its field and type; `global_` reads
    `global`."""
    hints = get_type_hints(cls, include_extras=True)
    told = [field for field in fields(cls) if field.init and field.metadata.get("in_file", True)]
    return {field.name.rstrip("_"): (field, hints[field.name]) for field in told}


def _of_type(kind: Any) -> OfType | None:
    marks = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, OfType)), None)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


class _Builder:
    def __init__(self, findings: Findings, spelling: Callable[[KeyPath], str | None]) -> None:
        self._findings = findings
        self._spelling = spelling

    def value(self, kind: Any, value: object, path: KeyPath) -> Any:
        """The value as `kind`, or `_INVALID` when that was reported."""
        origin, options = get_origin(kind), get_args(kind)
        if kind is Any:
            return plain(value)
        if origin is Annotated:
            return self._annotated(options[0], options[1:], value, path)
        if origin is Literal:
            return self._choice(options, value, path)
        if origin in (Union, UnionType):
            return self.value(_branch(options, value), value, path)
        if origin is tuple:
            return self._list(options[0], value, path)
        if origin is Mapping:
            return self._map(options[1], value, path)
        if _is_table(kind):
            return self._object(kind, value, path)
        if kind is str:
            return self._text(value, path)
        if kind is bool:
            found = as_bool(value)
            hint = _UNQUOTE if str(value).lower() in ("true", "false") else ""
            return self._wrong("true or false", value, path, hint) if found is None else found
        return self._number(kind, value, path)

    def _annotated(self, kind: Any, marks: tuple[Any, ...], value: object, path: KeyPath) -> Any:
        for mark in marks:
            if isinstance(mark, Tagged):
                return self._tagged(mark.classes, value, path)
            if isinstance(mark, Family):
                return self._choice(_names(cast("Family[Part]", mark), value), value, path)
            if isinstance(mark, Inside) and (table := as_map(value)) is not None:
                value = self._inside(mark.key, table, path)
                path = (*path, mark.key)
        result = _INVALID if value is _INVALID else self.value(kind, value, path)
        for mark in marks:
            told = (
                isinstance(value, Unresolved) and not value
            )  # what it would have been cannot be had
            if (
                isinstance(mark, Rule)
                and result is not _INVALID
                and not told
                and not mark.holds(result)
            ):
                self._findings.add(mark.says, path)
                return _INVALID
        return result

    def _inside(self, key: str, table: Tree, path: KeyPath) -> Any:
        others = [other for other in table if other != key and not is_extra(other)]
        meant = [self._findings.unknown_key(other, path, [key]) for other in others]
        if key not in table and not any(meant):
            self._findings.add(f"missing key '{key}'", path)
        return table.get(key, _INVALID)

    def _object(
        self, cls: type, value: object, path: KeyPath, foreign: Mapping[str, str] | None = None
    ) -> Any:
        """`foreign`: hints for keys this class does not know but its siblings do."""
        table = as_map(value)
        if table is None:
            return self._wrong("a mapping", value, path, _instead_of(cls, value))
        shape = _shape(cls)
        parts = {key: mark for key, (_, kind) in shape.items() if (mark := _of_type(kind))}
        spelled, explained = self._match_keys(shape, table, path, foreign or {})
        built: dict[str, Any] = {}
        for key, (field, kind) in shape.items():
            if key in parts:
                built[field.name] = self._of_its_type(parts[key].classes, table, path, spelled)
                continue
            written = spelled.get(key, key)
            given = table.get(written)
            if given is not None and not (isinstance(given, Unresolved) and not _takes_text(kind)):
                built[field.name] = self.value(kind, given, (*path, written))
            elif _is_required(field):
                built[field.name] = _INVALID
                if written in table:
                    self._findings.add(f"'{written}' has no value", (*path, written), at="key")
                elif key not in explained:
                    self._findings.add(f"missing key '{key}'", path)
        if any(item is _INVALID for item in built.values()):
            return _INVALID
        try:
            entry = cls(**built)
        except ValueError as error:  # a class may have the last word on its own fields
            self._findings.add(str(error), path)
            return _INVALID
        except Exception as error:  # noqa: BLE001 - a part of another package; its words may hold a secret of the file
            what = f"{type(error).__name__} in {cls.__module__}, which cannot be made of this"
            self._findings.add(what, path, hint="whoever made that part should know")
            return _INVALID
        if parts and as_bool(table.get("enabled")) is not False:
            mistakes: Callable[[], Iterable[Mistake]] = getattr(entry, "mistakes", tuple)
            for wrong in mistakes():
                self._findings.add(wrong.what, (*path, *wrong.path), hint=wrong.hint, at=wrong.at)
        return entry

    def _of_its_type(
        self, classes: Mapping[str, type], table: Tree, path: KeyPath, spelled: Mapping[str, str]
    ) -> Any:
        """The section that `type` names: `type: http` comes with `http` and no other; `spelled` has
        misspelt keys."""
        given = table.get("type")
        if given is None or isinstance(given, Unresolved):
            name = next((name for name in classes if name in table), None)
            if given is None:
                hint = f"did you mean 'type: {name}'?" if name else f"one of {', '.join(classes)}"
                self._findings.add("missing key 'type'", path, hint=hint)
            name = name or (_INVALID if given is None else next(iter(classes)))
        else:
            name = self._choice(_names(classes, given), given, (*path, "type"))
        if name is _INVALID:
            return _INVALID
        for other in table.keys() & (set(classes) - {name}):
            if table[other] is not None:
                hint = f"this one is 'type: {name}'"
                self._findings.add(
                    f"'{other}' goes with 'type: {other}'", (*path, other), hint=hint, at="key"
                )
        cls = classes[name]
        written = spelled.get(name, name)
        if table.get(written) is None and _required_keys(cls):
            self._findings.add(f"missing key '{name}'", path, hint=f"it goes with 'type: {name}'")
            return _INVALID
        return self._object(cls, table.get(written) or {}, (*path, written))

    def _match_keys(
        self,
        shape: Mapping[str, tuple[Field[Any], Any]],
        table: Tree,
        path: KeyPath,
        foreign: Mapping[str, str],
    ) -> tuple[dict[str, str], set[str]]:
        """Reports unknown keys; gives misspelt ones by what was meant, and keys whose absence that
        explains."""
        spelled: dict[str, str] = {}
        explained = set[str]()
        named = {key for key, (_, kind) in shape.items() if _of_type(kind)}
        sections = {name for key in named for name in ("type", *_classes(shape[key][1]))}
        known = [*(key for key in shape if key not in named), *sorted(sections)]
        for key in table:
            if key in known or is_extra(key) or self._is_part(key, table, shape, named):
                continue
            below = next(
                (name for name, (_, kind) in shape.items() if key in _keys_below(kind)), None
            )
            below = below or next(
                (name for part in named if (name := _section_of(key, table, shape[part][1]))), None
            )
            hint = f"it belongs under '{below}'" if below else foreign.get(key, "")
            meant = self._findings.unknown_key(key, path, known, hint)
            if below:
                explained.add(below)
            elif meant and meant not in table:
                spelled.setdefault(meant, key)
        return spelled, explained

    @staticmethod
    def _is_part(
        key: str, table: Tree, shape: Mapping[str, tuple[Field[Any], Any]], named: set[str]
    ) -> bool:
        """Whether a key is the section of a part that another package brings."""
        return key == table.get("type") and any(key in _classes(shape[name][1]) for name in named)

    def _tagged(self, classes: Mapping[str, type], value: object, path: KeyPath) -> Any:
        table = as_map(value)
        if table is None:
            return self._wrong("a mapping", value, path)
        given = table.get("type")
        if given is None or isinstance(given, Unresolved):
            name = next(
                (name for name, cls in classes.items() if _required_keys(cls) & table.keys()), None
            )
            hint = f"did you mean 'type: {name}'?" if name else f"one of {', '.join(classes)}"
            if given is None:
                self._findings.add("missing key 'type'", path, hint=hint)
            elif name is None:
                name = next(iter(classes))
        else:
            name = self._choice(_names(classes, given), given, (*path, "type"))
        if name is None or name is _INVALID:
            return _INVALID
        elsewhere = {
            key: f"it goes with 'type: {other}'"
            for other, cls in reversed(list(classes.items()))
            for key in _shape(cls)
        }
        rest = {key: item for key, item in table.items() if key != "type"}
        return self._object(classes[name], rest, path, elsewhere)

    def _list(self, kind: Any, value: object, path: KeyPath) -> Any:
        items = as_list(value)
        if items is None:
            table = as_map(value)
            hint = "write it in brackets: [ … ]"
            if table is not None and kind is str:
                hint = _list_of(table)
            elif table is not None:
                has_name = is_dataclass(kind) and "name" in _shape(cast(type, kind))
                items = "write each as an item of a list: - …"
                hint = "write each as an item of a list: - name: …" if has_name else items
            return self._wrong("a list", value, path, hint)
        built = [self._item(kind, item, (*path, index)) for index, item in enumerate(items)]
        return _INVALID if any(item is _INVALID for item in built) else tuple(built)

    def _map(self, kind: Any, value: object, path: KeyPath) -> Any:
        table = as_map(value)
        if table is None:
            return self._wrong("a mapping", value, path)
        built = {key: self._item(kind, item, (*path, key)) for key, item in table.items()}
        return _INVALID if any(item is _INVALID for item in built.values()) else built

    def _item(self, kind: Any, value: object, path: KeyPath) -> Any:
        if kind is str and isinstance(value, bool | int | float):
            return self._spelling(path) or json.dumps(value)
        return self.value(kind, value, path)

    def _text(self, value: object, path: KeyPath) -> Any:
        if isinstance(value, str):
            return str(value)
        hint = (
            "put it in quotes"
            if isinstance(value, bool | int | float) or _is_placeholder(value)
            else ""
        )
        return self._wrong("text", value, path, hint)

    def _number(self, kind: type[int] | type[float], value: object, path: KeyPath) -> Any:
        if isinstance(value, Expanded) and len(value) < 40 and _NUMBER.fullmatch(value):
            value = int(value) if value.lstrip("+-").isdigit() else float(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            quoted = isinstance(value, str) and len(value) < 40 and _NUMBER.fullmatch(value)
            return self._wrong("a number", value, path, _UNQUOTE if quoted else "")
        if not abs(value) <= _LARGEST:  # so written it also holds for what is not a number
            self._findings.add("too large a number", path)
            return _INVALID
        if kind is int and not isinstance(value, int):
            return self._wrong("a whole number", value, path)
        return kind(value)

    def _choice(self, options: tuple[Any, ...], value: object, path: KeyPath) -> Any:
        match = (
            value
            if value in options
            else next((o for o in options if str(o).lower() == str(value).lower()), None)
        )
        if match is not None and isinstance(value, str):
            return str(match)
        listed = ", ".join(map(str, options))
        if not isinstance(value, str):
            return self._wrong(f"one of {listed}", value, path)
        # What a variable held may be a secret in the wrong place.
        hidden = isinstance(value, Expanded) or may_be_secret(path)
        meant = None if hidden else nearest(value, options)
        name = f"unknown {path[-1]}" + ("" if hidden else f" {shorten(value)!r}")
        self._findings.add(
            name, path, hint=f"did you mean '{meant}'?" if meant else f"one of {listed}"
        )
        return _INVALID

    def _wrong(self, wanted: str, value: object, path: KeyPath, hint: str = "") -> Any:
        self._findings.add(f"expected {wanted}, not {_kind_of(value)}", path, hint=hint)
        return _INVALID


def _names(classes: Mapping[str, type], asked: object) -> tuple[str, ...]:
    """What there is to choose from; a family looks further when it is asked for something it does
    not know."""
    return (asked,) if isinstance(asked, str) and asked in classes else tuple(classes)


def _instead_of(cls: type, value: object) -> str:
    """What to write in the place of a plain value where a section is wanted; the value may be a
    secret."""
    if value is True and not _required_keys(cls):
        return "write {} to have it as it comes"
    return "write {type: …}" if isinstance(value, str) and "type" in _shape(cls) else ""


def _branch(options: tuple[Any, ...], value: object) -> Any:
    """The member of a union whose shape the value has; the first one when none fits."""

    def fits(kind: Any) -> bool:
        is_list = get_origin(kind) is tuple
        is_map = get_origin(kind) is Mapping or _is_table(kind)
        return is_list == isinstance(value, list) and is_map == isinstance(value, dict)

    left = [option for option in options if option is not NoneType]
    return next(filter(fits, left), left[0])


def _keys_below(kind: Any) -> set[str]:
    """Keys of the mappings that may stand right below a field of this type."""
    if _is_table(kind):
        return set(_shape(kind))
    if isinstance(kind, Tagged):
        return set[str]().union(*map(_shape, kind.classes.values()))
    if isinstance(kind, OfType):
        return set()  # the section has the name of a type, and is no key of its own
    if get_origin(kind) in (Union, UnionType, Annotated):
        return set[str]().union(*(_keys_below(option) for option in get_args(kind)))
    return set()


def _section_of(key: str, table: Tree, kind: Any) -> str | None:
    """The section of the entry's type, if that is where this key belongs."""
    name, classes = table.get("type"), _classes(kind)
    return (
        name if isinstance(name, str) and name in classes and key in _shape(classes[name]) else None
    )


_ALLOWED = ("allow", "allowed", "include", "only")
_DENIED = ("deny", "denied", "exclude", "except", "skip")
"""Keys of other programs for tool filters. In mcpx, a filter is one list of patterns."""


def _list_of(table: Tree) -> str:
    """The hint for a mapping in the place of a list of texts."""
    patterns: list[str] = []
    for key, value in table.items():
        texts = [item for item in as_list(value) or () if isinstance(item, str)]
        if key.lower() not in (*_ALLOWED, *_DENIED) or not texts:
            return "write it in brackets: [ … ]"
        patterns += texts if key.lower() in _ALLOWED else [f"!{text}" for text in texts]
    shown = shorten(json.dumps(patterns, ensure_ascii=False), 100)
    return f"write one list: {shown}; '!' before a pattern leaves out"


def _is_placeholder(value: object) -> bool:
    """`{name}` without its quotes, which YAML reads as a mapping."""
    table = as_map(value)
    return table is not None and len(table) == 1 and all(item is None for item in table.values())


def _classes(kind: Any) -> Mapping[str, type]:
    mark = _of_type(kind)
    return {} if mark is None else mark.classes


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def _required_keys(cls: type) -> set[str]:
    return {key for key, (field, _) in _shape(cls).items() if _is_required(field)}


def _takes_text(kind: Any) -> bool:
    if get_origin(kind) in (Union, UnionType, Annotated):
        options = get_args(kind)
        return any(map(_takes_text, options)) and not any(
            isinstance(option, Family) for option in options
        )
    return kind is str


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    return "text" if isinstance(value, str) else "nothing"
