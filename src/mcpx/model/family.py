"""A family: parts of one kind, each a class in a file of its own, found by their `type`.

Promised: the types of a folder are known from the names of its files, and a file is imported when
its part is asked for, not before. Other packages bring parts by entry points, named by type: they
are looked up when somebody asks for a type that the folder does not have, and listed from then on.
A part that cannot be loaded is reported and missing; of two of one type the folder's, else the
first, is used.
"""

import logging
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from importlib import import_module
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)


class Part(Protocol):
    """One way of doing something: its settings and its behaviour."""

    type: ClassVar[str]
    """Its name in config files: that of its file."""


P = TypeVar("P", bound=Part)


class Family(Mapping[str, type[P]]):
    """The classes by their types. As a mark in `Annotated[str, family]`: a text that is one of
    these types."""

    def __init__(
        self,
        folder: str,
        group: str,
        beside: Collection[str] = (),
        needs: Collection[str] = (),
        keys: bool = False,
    ) -> None:
        """A package, the group of its entry points, and the files of the package that are no parts.

        What a part must have: these attributes (`one|other`: one of them); `keys`: fields that are
        its config keys."""
        self._folder, self._group, self._beside = folder, group, {"__init__", *beside}
        self._needs, self._keys = needs, keys
        self._outside: dict[str, EntryPoint] | None = None
        """Entry points by type; None before they were looked up."""
        self.loaded: dict[str, type[P]] = {}
        """Those that somebody has asked for."""

    @cached_property
    def _files(self) -> frozenset[str]:
        listed = (
            os.path.splitext(name)
            for path in import_module(self._folder).__path__
            for name in os.listdir(path)
        )
        return frozenset(
            name for name, ending in listed if ending == ".py" and name not in self._beside
        )

    def __getitem__(self, name: str) -> type[P]:
        if name not in self.loaded:
            self.loaded[name] = self._load(name)
        return self.loaded[name]

    def _load(self, name: str) -> type[P]:
        if name in self._files:
            module = import_module(f"{self._folder}.{name}")
            for found in vars(module).values():
                if isinstance(found, type) and vars(found).get("type") == name:
                    return cast(type[P], found)
            raise TypeError(f"{module.__name__} has no class of type {name!r}")
        outside = self.look_outside()
        entry = outside[name]
        try:
            part = cast(type[P], entry.load())
            if (misfit := self._misfit(part, name)) is not None:
                raise TypeError(misfit)
        except KeyboardInterrupt:  # one that hangs can be left
            raise
        except BaseException as error:  # noqa: BLE001 - a plug-in may even exit
            told = error if isinstance(error, Exception) else repr(error)
            log.warning(
                "%s %r, brought by %s, cannot be used: %s", self._group, name, entry.value, told
            )
            del outside[name]
            raise KeyError(name) from None
        return part

    def look_outside(self) -> "dict[str, EntryPoint]":
        """What other packages bring; listed from now on."""
        if self._outside is None:
            from importlib.metadata import entry_points  # 20 ms, which most runs do without

            self._outside = {}
            for entry in entry_points(group=self._group):
                used = self._outside.setdefault(entry.name, entry)
                ours = entry.name in self._files
                if ours or used.value != entry.value:
                    instead = "ours" if ours else used.value
                    told = "%s %r, brought by %s, is not used: there is one already (%s)"
                    log.warning(told, self._group, entry.name, entry.value, instead)
        return self._outside

    def _misfit(self, part: object, name: str) -> str | None:
        if not isinstance(part, type):
            return "it is no class"
        if getattr(part, "type", None) != name:
            return f"its type is {getattr(part, 'type', None)!r}"
        if self._keys and not hasattr(part, "__dataclass_fields__"):
            return "it is no dataclass"
        if self._keys and (unreadable := _unreadable(part)):
            return unreadable
        lacking = [
            need for need in self._needs if not any(hasattr(part, each) for each in need.split("|"))
        ]
        return f"it has no {lacking[0].replace('|', ' or ')}" if lacking else None

    def having(self, attribute: str) -> "Family[Any]":
        """Those parts that have it."""
        return _Able(self, attribute)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._files or self.get(name) is not None)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._files, *(self._outside or ())}))

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __len__(self) -> int:
        return len(list(iter(self)))


def _unreadable(part: type) -> str | None:
    """What of its fields no config file could fill."""
    try:
        hints = get_type_hints(part, include_extras=True)
    except Exception as error:  # noqa: BLE001 - whatever stands in somebody else's annotations
        return f"the types of its fields cannot be told: {error}"
    for field in fields(cast(Any, part)):
        if (
            field.init
            and field.metadata.get("in_file", True)
            and not _is_readable(hints[field.name])
        ):
            kinds = "text, bool, int, float, Literal, tuple[…, ...], Mapping[str, …] or a dataclass"
            return (
                f"its field {field.name!r} is of a type that no config file can hold; it may "
                f"be {kinds}"
            )
    return None


def _is_readable(kind: Any) -> bool:
    """Whether `config.validate` knows what to do with it."""
    origin, options = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return any(hasattr(mark, "classes") for mark in options[1:]) or _is_readable(options[0])
    if origin in (Union, UnionType):
        return all(option is NoneType or _is_readable(option) for option in options)
    if origin is tuple:
        return len(options) == 2 and options[1] is ... and _is_readable(options[0])
    if origin is Mapping:
        return options[0] is str and _is_readable(options[1])
    return kind in (Any, str, bool, int, float) or origin is Literal or is_dataclass(kind)


class _Able(Family[Any]):
    """Of a family, the parts that can do something."""

    def __init__(self, whole: Family[Any], attribute: str) -> None:
        self._whole, self._attribute = whole, attribute

    def look_outside(self) -> "dict[str, EntryPoint]":
        return self._whole.look_outside()

    def __getitem__(self, name: str) -> type[Any]:
        part = self._whole[name]
        if not hasattr(part, self._attribute):
            raise KeyError(name)
        return part

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str) or name not in self._whole:
            return False
        able = hasattr(self._whole[name], self._attribute)
        if not able:
            self._whole.look_outside()  # whoever asks wants to know then what there is
        return able

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in self._whole if name in self])
