"""Builds frozen dataclasses from untrusted JSON values, driven by their type hints.

`Builder` is a base class: `config` adds the rules of configuration files and reports all mistakes
with their positions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

T = TypeVar("T")
Path = tuple[str | int, ...]
Shape = Mapping[str, tuple[Field[Any], Any]]

INVALID: Final[Any] = object()


class Mismatch(ValueError):
    """A value does not fit its type. The message has the path of the value, not the value."""


def build(cls: type[T], value: object) -> T:
    """Return the value as `cls`. Ignores unknown keys. Raises `Mismatch`."""
    return Builder().value(cls, value, ())


@cache
def shape_of(cls: type) -> Shape:
    """The keys of a mapping for this class, with their fields and types.

    A trailing underscore is removed: the key of the field `global_` is `global`.
    """
    hints = get_type_hints(cls, include_extras=True)
    return {
        field.name.rstrip("_"): (field, hints[field.name])
        for field in fields(cls)
        if field.init and field.metadata.get("in_file", True)
    }


def is_required(field: "Field[Any]") -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def is_table(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


def is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def kind_of(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return "nothing"


class Builder:
    """Each method returns the value as `kind`, or `INVALID` after it was reported."""

    def value(self, kind: Any, value: object, path: Path) -> Any:
        if kind is Any or kind is object:
            return self.any_value(value)
        arguments = get_args(kind)
        match get_origin(kind):
            case None:
                return self._plain_value(kind, value, path)
            case origin if origin is Annotated:
                return self.annotated(arguments[0], arguments[1:], value, path)
            case origin if origin is Literal:
                return self.choice(arguments, value, path)
            case origin if origin in (Union, UnionType):
                return self._union(arguments, value, path)
            case origin if origin in (tuple, list, Sequence, frozenset):
                return self._sequence(origin, arguments[0], value, path)
            case _:
                return self.mapping(arguments[1], value, path)

    def _plain_value(self, kind: Any, value: object, path: Path) -> Any:
        if is_table(kind):
            return self.table(kind, value, path)
        if kind is str:
            return self.text(value, path)
        if kind is bool:
            return self.boolean(value, path)
        return self.number(kind, value, path)

    def _union(self, kinds: tuple[Any, ...], value: object, path: Path) -> Any:
        if value is None and NoneType in kinds:
            return None
        return self.value(_branch(kinds, value), value, path)

    def _sequence(self, origin: Any, kind: Any, value: object, path: Path) -> Any:
        items = self.items(kind, value, path)
        if items is INVALID or origin is Sequence:
            return items
        return origin(items)

    # What a subclass changes

    def wrong(self, message: str, path: Path, hint: str = "") -> Any:
        place = "".join([f"[{key}]" if isinstance(key, int) else f".{key}" for key in path])
        raise Mismatch(f"{place.removeprefix('.') or 'value'}: {message}")

    def any_value(self, value: object) -> Any:
        return value

    def annotated(self, kind: Any, marks: tuple[Any, ...], value: object, path: Path) -> Any:
        return self.value(kind, value, path)

    def choice(self, options: tuple[Any, ...], value: object, path: Path) -> Any:
        if value in options:
            return value
        return self.wrong(f"expected one of {', '.join(map(str, options))}", path)

    def text(self, value: object, path: Path) -> Any:
        return value if isinstance(value, str) else self.unfit("text", value, path)

    def boolean(self, value: object, path: Path) -> Any:
        return value if isinstance(value, bool) else self.unfit("true or false", value, path)

    def number(self, kind: Any, value: object, path: Path) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self.unfit("a number", value, path)
        if not abs(value) < float("inf"):  # NaN compares with nothing.
            return self.wrong("expected a finite number", path)
        if kind is int and not isinstance(value, int):
            return self.unfit("a whole number", value, path)
        return value

    def items(self, kind: Any, value: object, path: Path) -> Any:
        if not isinstance(value, list | tuple):
            return self.unfit("a list", value, path)
        items = cast("Sequence[object]", value)
        return self.all_of(
            tuple(self.value(kind, item, (*path, index)) for index, item in enumerate(items))
        )

    def mapping(self, kind: Any, value: object, path: Path) -> Any:
        if not isinstance(value, Mapping):
            return self.unfit("a mapping", value, path)
        members = cast("Mapping[str, object]", value)
        built = {key: self.value(kind, item, (*path, key)) for key, item in members.items()}
        return INVALID if INVALID in built.values() else built

    def table(self, cls: type, value: object, path: Path) -> Any:
        if not isinstance(value, Mapping):
            return self.unfit("a mapping", value, path)
        members = cast("Mapping[str, object]", value)
        built: dict[str, Any] = {}
        for key, (field, kind) in shape_of(cls).items():
            if key in members:
                built[field.name] = self.value(kind, members[key], (*path, key))
            elif is_required(field):
                self.wrong(f"missing key '{key}'", path)
        return cls(**built)

    # Helpers

    def unfit(self, wanted: str, value: object, path: Path, hint: str = "") -> Any:
        return self.wrong(f"expected {wanted}, not {kind_of(value)}", path, hint)

    def all_of(self, items: tuple[Any, ...]) -> Any:
        return INVALID if any(item is INVALID for item in items) else items


def _branch(kinds: tuple[Any, ...], value: object) -> Any:
    """Return the member of a union whose form the value has, or the first one."""
    candidates = [kind for kind in kinds if kind is not NoneType]
    for kind in candidates:
        if _has_form(kind, value):
            return kind
    return candidates[0]


def _has_form(kind: Any, value: object) -> bool:
    is_list = get_origin(kind) in (tuple, list, Sequence)
    is_map = get_origin(kind) in (Mapping, dict) or is_table(kind)
    return is_list == isinstance(value, list) and is_map == isinstance(value, dict)
