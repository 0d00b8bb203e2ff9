"""Builds the configuration from a tree, and reports all mistakes with the paths of their fields.

A mistake that explains another one hides it. Text does not become a number, and a number does not
become text, with two exceptions: items of lists and maps of text (`env`, `args`, `headers`) take a
number as it is written, and a value from a variable may be a number. Rules between fields are in
`checks`.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin

from mcpx.base.build import INVALID, Builder, Shape, is_required, is_table, is_union, shape_of
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
    is_map,
    maps_in,
    plain,
    shorten,
)
from mcpx.model.family import Family, Part
from mcpx.model.kinds import Check, Inside, Mistake, OfType, RefTo, Rule, Tagged

T = TypeVar("T")
_UNQUOTE = "take off the quotes"
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_MAX_NUMBER = 1e15  # A float beyond it is not exact to 1.
_MAX_NUMBER_LENGTH = 40


def build(
    cls: type[T],
    tree: Tree,
    findings: Findings,
    spelling: Callable[[KeyPath], str | None],
    environ: Mapping[str, str] | None = None,
) -> T | None:
    """Return None if a mistake was found. `spelling` returns a scalar as written."""
    value = _ConfigBuilder(tree, findings, spelling, environ or {}).value(cls, tree, ())
    if findings:
        return None
    return value


def keys_of(cls: type) -> list[str]:
    return list(shape_of(cls))


class _ConfigBuilder(Builder):
    def __init__(
        self,
        root: Tree,
        findings: Findings,
        spelling: Callable[[KeyPath], str | None],
        environ: Mapping[str, str],
    ) -> None:
        self._root = root
        self._findings = findings
        self._spelling = spelling
        self._environ = environ
        self._is_off = False
        """True inside of a disabled entry."""

    def wrong(self, message: str, path: KeyPath, hint: str = "") -> Any:
        self._findings.add(message, path, hint=hint)
        return INVALID

    def any_value(self, value: object) -> Any:
        return plain(value)

    def _report(self, mistakes: Iterable[Mistake], path: KeyPath) -> None:
        for wrong in mistakes:
            self._findings.add(wrong.what, (*path, *wrong.path), hint=wrong.hint, at=wrong.at)

    # Annotated types

    def annotated(self, kind: Any, marks: tuple[Any, ...], value: object, path: KeyPath) -> Any:
        for mark in marks:
            if isinstance(mark, Tagged):
                return self._tagged(mark.classes, value, path)
            if isinstance(mark, Family):
                return self.choice(_names(cast("Family[Part]", mark), value), value, path)
            if isinstance(mark, Inside) and is_map(value):
                value = self._inside(mark.key, value, path)
                path = (*path, mark.key)
        if value is INVALID:
            return INVALID
        result = self.value(kind, value, path)
        is_open = isinstance(value, Unresolved)
        for mark in marks:
            if isinstance(mark, Rule) and result is not INVALID:
                is_lost = is_open and not value  # The value of the reference is not known.
                if not is_lost and not mark.holds(result):
                    return self.wrong(mark.says, path)
            elif isinstance(mark, Check) and not is_open and not self._is_off:
                self._check(mark, kind, value, result, path)
            elif isinstance(mark, RefTo) and isinstance(result, str) and not is_open:
                self._refer(mark, result, path)
        return result

    def _check(self, mark: Check, kind: Any, value: object, result: Any, path: KeyPath) -> None:
        if is_map(value) and get_origin(kind) is Mapping:
            self._report(mark.mistakes(value, self._environ), path)
        elif isinstance(result, str):
            self._report(mark.mistakes(result, self._environ), path)

    def _refer(self, mark: RefTo, name: str, path: KeyPath) -> None:
        entries = (entry for _, entry in maps_in(self._root.get(mark.section)))
        names = [entry.get("name") for entry in entries]
        known = [each for each in names if isinstance(each, str)] + list(mark.also)
        if mark.is_pattern:
            name = name.removeprefix("!")
        if name in known or (mark.is_pattern and (not name or re.search(r"[*?\[]", name))):
            return
        hint = f"known: {shorten(', '.join(known) or 'none')}"
        if meant := nearest(name, known):
            hint = f"did you mean '{meant}'?"
        self.wrong(f"no {mark.noun} named {shorten(name)!r}", path, hint)

    def _inside(self, key: str, table: Tree, path: KeyPath) -> Any:
        others = [other for other in table if other != key and not is_extra(other)]
        meant = [self._findings.unknown_key(other, path, [key]) for other in others]
        if key not in table and not any(meant):
            self.wrong(f"missing key '{key}'", path)
        return table.get(key, INVALID)

    # Maps with known keys

    def table(self, cls: type, value: object, path: KeyPath) -> Any:
        return self._table(cls, value, path, {})

    def _table(self, cls: type, value: object, path: KeyPath, foreign: Mapping[str, str]) -> Any:
        """`foreign`: hints for keys that other classes have."""
        table = as_map(value)
        if table is None:
            return self.unfit("a mapping", value, path, _hint_for_table(cls, value))
        was_off = self._is_off
        is_off = as_bool(table.get("enabled")) is False
        self._is_off |= is_off
        built = self._fields(cls, table, path, foreign)
        self._is_off = was_off
        if _has_invalid(built.values()):
            return INVALID
        try:
            entry = cls(**built)
        except ValueError as error:  # A class may check its fields.
            return self.wrong(str(error), path)
        except Exception as error:  # noqa: BLE001 - A plug-in. Its message may contain a secret.
            what = f"{type(error).__name__} in {cls.__module__}, which cannot be made of this"
            return self.wrong(what, path, "whoever made that part should know")
        if not is_off and any(classes_of(kind) for _, kind in shape_of(cls).values()):
            mistakes: Callable[[], Iterable[Mistake]] = getattr(entry, "mistakes", tuple)
            self._report(mistakes(), path)
        return entry

    def _fields(
        self, cls: type, table: Tree, path: KeyPath, foreign: Mapping[str, str]
    ) -> dict[str, Any]:
        shape = shape_of(cls)
        spelled, explained = self._match_keys(shape, table, path, foreign)
        built: dict[str, Any] = {}
        for key, (field, kind) in shape.items():
            if classes := classes_of(kind):
                built[field.name] = self._of_its_type(classes, table, path, spelled)
                continue
            written = spelled.get(key, key)
            given = table.get(written)
            is_lost = isinstance(given, Unresolved) and not _takes_text(kind)
            if given is not None and not is_lost:
                built[field.name] = self.value(kind, given, (*path, written))
            elif is_required(field):
                built[field.name] = INVALID
                if written in table:
                    self._findings.add(f"'{written}' has no value", (*path, written), at="key")
                elif key not in explained:
                    self.wrong(f"missing key '{key}'", path)
        return built

    def _match_keys(
        self, shape: Shape, table: Tree, path: KeyPath, foreign: Mapping[str, str]
    ) -> tuple[dict[str, str], set[str]]:
        """Report unknown keys. Return misspelled keys by the meant key, and the keys whose absence
        a misplaced key explains."""
        spelled: dict[str, str] = {}
        explained = set[str]()
        sections = [classes for _, kind in shape.values() if (classes := classes_of(kind))]
        names = {name for classes in sections for name in ("type", *classes)}
        plain_keys = [key for key, (_, kind) in shape.items() if not classes_of(kind)]
        known = [*plain_keys, *sorted(names)]
        for key in table:
            is_plugin = key == table.get("type") and any(key in each for each in sections)
            if key in known or is_extra(key) or is_plugin:
                continue
            below = _parent_of(key, table, shape)
            hint = foreign.get(key, "")
            if below:
                hint = f"it belongs under '{below}'"
                explained.add(below)
            meant = self._findings.unknown_key(key, path, known, hint)
            if meant and not below and meant not in table:
                spelled.setdefault(meant, key)
        return spelled, explained

    # Classes by the key `type`

    def _of_its_type(
        self, classes: Mapping[str, type], table: Tree, path: KeyPath, spelled: Mapping[str, str]
    ) -> Any:
        """The section that `type` names: `type: http` belongs to `http` and no other section."""
        named = next((name for name in classes if name in table), None)
        name = self._type(classes, table, path, named)
        if name is None:
            return INVALID
        others = table.keys() & (set(classes) - {name})
        for other in (other for other in others if table[other] is not None):
            what, hint = f"'{other}' goes with 'type: {other}'", f"this one is 'type: {name}'"
            self._findings.add(what, (*path, other), hint=hint, at="key")
        written = spelled.get(name, name)
        if table.get(written) is None and required_keys(classes[name]):
            return self.wrong(f"missing key '{name}'", path, f"it goes with 'type: {name}'")
        return self.table(classes[name], table.get(written) or {}, (*path, written))

    def _tagged(self, classes: Mapping[str, type], value: object, path: KeyPath) -> Any:
        table = as_map(value)
        if table is None:
            return self.unfit("a mapping", value, path)
        fitting = (name for name, cls in classes.items() if required_keys(cls) & table.keys())
        name = self._type(classes, table, path, next(fitting, None))
        if name is None:
            return INVALID
        elsewhere = {
            key: f"it goes with 'type: {other}'"
            for other, cls in reversed(list(classes.items()))
            for key in shape_of(cls)
        }
        rest = {key: item for key, item in table.items() if key != "type"}
        return self._table(classes[name], rest, path, elsewhere)

    def _type(
        self, classes: Mapping[str, type], table: Tree, path: KeyPath, guess: str | None
    ) -> str | None:
        given = table.get("type")
        if isinstance(given, Unresolved):
            return guess or next(iter(classes))
        if given is not None:
            name = self.choice(_names(classes, given), given, (*path, "type"))
            if name is INVALID:
                return None
            return name
        hint = f"one of {', '.join(classes)}"
        if guess:
            hint = f"did you mean 'type: {guess}'?"
        self.wrong("missing key 'type'", path, hint)
        return guess

    # Lists, maps, and scalars

    def items(self, kind: Any, value: object, path: KeyPath) -> Any:
        items = as_list(value)
        if items is None:
            return self.unfit("a list", value, path, _hint_for_list(kind, value))
        built = (self._item(kind, item, (*path, index)) for index, item in enumerate(items))
        return self.all_of(tuple(built))

    def mapping(self, kind: Any, value: object, path: KeyPath) -> Any:
        table = as_map(value)
        if table is None:
            return self.unfit("a mapping", value, path)
        built = {key: self._item(kind, item, (*path, key)) for key, item in table.items()}
        if _has_invalid(built.values()):
            return INVALID
        return built

    def _item(self, kind: Any, value: object, path: KeyPath) -> Any:
        if is_text(kind) and isinstance(value, bool | int | float):
            value = self._spelling(path) or json.dumps(value)
        return self.value(kind, value, path)

    def text(self, value: object, path: KeyPath) -> Any:
        if isinstance(value, str):
            return str(value)
        hint = ""
        if isinstance(value, bool | int | float) or _is_placeholder(value):
            hint = "put it in quotes"
        return self.unfit("text", value, path, hint)

    def boolean(self, value: object, path: KeyPath) -> Any:
        found = as_bool(value)
        if found is not None:
            return found
        hint = ""
        if str(value).lower() in ("true", "false"):
            hint = _UNQUOTE
        return self.unfit("true or false", value, path, hint)

    def number(self, kind: type[int] | type[float], value: object, path: KeyPath) -> Any:
        is_numeric = (
            isinstance(value, str)
            and len(value) < _MAX_NUMBER_LENGTH
            and _NUMBER.fullmatch(value) is not None
        )
        if isinstance(value, Expanded) and is_numeric:
            number = float(value)
            if value.lstrip("+-").isdigit():
                number = int(value)
            value = number
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self.unfit("a number", value, path, _UNQUOTE * is_numeric)
        if not abs(value) <= _MAX_NUMBER:  # Also for NaN.
            return self.wrong("too large a number", path)
        if kind is int and not isinstance(value, int):
            return self.unfit("a whole number", value, path)
        return kind(value)

    def choice(self, options: tuple[Any, ...], value: object, path: KeyPath) -> Any:
        listed = ", ".join(map(str, options))
        if not isinstance(value, str):
            return self.unfit(f"one of {listed}", value, path)
        if value in options:
            return str(value)
        for option in options:
            if str(option).lower() == value.lower():
                return str(option)
        name, hint = f"unknown {path[-1]}", f"one of {listed}"
        # The value of a variable may be a secret in the wrong place.
        if not isinstance(value, Expanded) and not may_be_secret(path):
            name = f"{name} {shorten(value)!r}"
            if meant := nearest(value, options):
                hint = f"did you mean '{meant}'?"
        return self.wrong(name, path, hint)


def _has_invalid(values: Iterable[Any]) -> bool:
    return any(value is INVALID for value in values)


def is_text(kind: Any) -> bool:
    if get_origin(kind) is Annotated:
        kind, *_ = get_args(kind)
    return kind is str


def _names(classes: Mapping[str, type], asked: object) -> tuple[str, ...]:
    """The names to choose from. A family looks for plug-ins if it does not know a name."""
    if isinstance(asked, str) and asked in classes:
        return (asked,)
    return tuple(classes)


def _hint_for_table(cls: type, value: object) -> str:
    """What to write instead of a scalar. The value may be a secret."""
    if value is True and not required_keys(cls):
        return "write {} to have it as it comes"
    if isinstance(value, str) and "type" in shape_of(cls):
        return "write {type: …}"
    return ""


_ALLOWED = ("allow", "allowed", "include", "only")
_DENIED = ("deny", "denied", "exclude", "except", "skip")
"""Keys of other programs for tool filters. In mcpx, a filter is one list of patterns."""
_IN_BRACKETS = "write it in brackets: [ … ]"


def _hint_for_list(kind: Any, value: object) -> str:
    """What to write instead of a value that is not a list."""
    table = as_map(value)
    if table is None:
        return _IN_BRACKETS
    if is_dataclass(kind) and "name" in shape_of(cast(type, kind)):
        return "write each as an item of a list: - name: …"
    if kind is not str and get_origin(kind) is not Annotated:
        return "write each as an item of a list: - …"
    patterns: list[str] = []
    for key, items in table.items():
        texts = [item for item in as_list(items) or () if isinstance(item, str)]
        if key.lower() not in (*_ALLOWED, *_DENIED) or not texts:
            return _IN_BRACKETS
        sign = "!" * (key.lower() in _DENIED)
        patterns += [f"{sign}{text}" for text in texts]
    shown = shorten(json.dumps(patterns, ensure_ascii=False), 100)
    return f"write one list: {shown}; '!' before a pattern leaves out"


def _is_placeholder(value: object) -> bool:
    """`{name}` without quotes, which YAML reads as a mapping."""
    return is_map(value) and len(value) == 1 and all(item is None for item in value.values())


def _parent_of(key: str, table: Tree, shape: Shape) -> str | None:
    """The key below which another key belongs."""
    for name, (_, kind) in shape.items():
        if key in _keys_below(kind):
            return name
    chosen = table.get("type")
    for _, kind in shape.values():
        classes = classes_of(kind)
        if isinstance(chosen, str) and chosen in classes and key in shape_of(classes[chosen]):
            return chosen
    return None


def _keys_below(kind: Any) -> set[str]:
    """Keys of the maps that a field of this type may hold."""
    if is_table(kind):
        return set(shape_of(kind))
    if isinstance(kind, Tagged):
        return set[str]().union(*map(shape_of, kind.classes.values()))
    if is_union(kind) or (get_origin(kind) is Annotated and not classes_of(kind)):
        return set[str]().union(*map(_keys_below, get_args(kind)))
    return set()


def classes_of(kind: Any) -> Mapping[str, type]:
    """The classes of a field whose section has the name of a type."""
    if get_origin(kind) is Annotated:
        for mark in get_args(kind)[1:]:
            if isinstance(mark, OfType):
                return mark.classes
    return {}


def required_keys(cls: type) -> set[str]:
    return {key for key, (field, _) in shape_of(cls).items() if is_required(field)}


def _takes_text(kind: Any) -> bool:
    if not is_union(kind) and get_origin(kind) is not Annotated:
        return kind is str
    options = get_args(kind)
    has_family = any(isinstance(option, Family) for option in options)
    return any(map(_takes_text, options)) and not has_family
