"""A family: parts of one kind, each a class in a file of its own, found by their `type`.

Promised: the types of a folder are known from the names of its files, and a file is imported when its part is asked
for, not before. Other packages bring parts by entry points, named by type: they are looked up when somebody asks for
a type that the folder does not have, and listed from then on. A part that cannot be loaded is reported and missing.
"""

import logging
import os
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)


class Part(Protocol):
    """One way of doing something: its settings and its behaviour."""

    type: ClassVar[str]
    """Its name in config files: that of its file."""


P = TypeVar("P", bound=Part)


class Family(Mapping[str, type[P]]):
    """The classes by their types. As a mark in `Annotated[str, family]`: a text that is one of these types."""

    def __init__(
        self, folder: str, group: str, beside: Collection[str] = (), needs: Collection[str] = (), keys: bool = False
    ) -> None:
        """A package, the group of its entry points, and the files of the package that are no parts.

        What a part must have: these attributes (`one|other`: one of them); `keys`: fields that are its config keys."""
        self._folder, self._group, self._beside = folder, group, {"__init__", *beside}
        self._needs, self._keys = needs, keys
        self._outside: dict[str, EntryPoint] | None = None
        """Entry points by type; None before they were looked up."""
        self.loaded: dict[str, type[P]] = {}
        """Those that somebody has asked for."""

    @cached_property
    def _files(self) -> frozenset[str]:
        listed = (os.path.splitext(name) for path in import_module(self._folder).__path__ for name in os.listdir(path))
        return frozenset(name for name, ending in listed if ending == ".py" and name not in self._beside)

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
        except Exception as error:  # noqa: BLE001 - somebody else's package
            log.warning("%s %r, brought by %s, cannot be used: %s", self._group, name, entry.value, error)
            del outside[name]
            raise KeyError(name) from None
        return part

    def look_outside(self) -> "dict[str, EntryPoint]":
        """What other packages bring; listed from now on."""
        if self._outside is None:
            from importlib.metadata import entry_points  # 20 ms, which most runs do without

            self._outside = {entry.name: entry for entry in entry_points(group=self._group)}
        return self._outside

    def _misfit(self, part: object, name: str) -> str | None:
        if not isinstance(part, type):
            return "it is no class"
        if getattr(part, "type", None) != name:
            return f"its type is {getattr(part, 'type', None)!r}"
        if self._keys and not hasattr(part, "__dataclass_fields__"):
            return "it is no dataclass"
        lacking = [need for need in self._needs if not any(hasattr(part, each) for each in need.split("|"))]
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


class _Able(Family[Any]):
    """Of a family, the parts that can do something."""

    def __init__(self, whole: Family[Any], attribute: str) -> None:
        self._whole, self._attribute = whole, attribute

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
