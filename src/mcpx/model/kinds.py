"""What a field of the configuration may hold beyond its bare type, and how a part tells what is
wrong with it.

Promised: declarations only; `config.validate` obeys them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal


@dataclass(frozen=True, slots=True)
class Rule:
    """In `Annotated`: what a value of the right type must also hold."""

    holds: Callable[[Any], bool]
    says: str
    keywords: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)
    """The same in the words of JSON Schema, as far as they can say it; `${VAR}` must stay
    possible."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """In `Annotated`: the classes of a union by what the key `type` says."""

    classes: Mapping[str, type]


@dataclass(frozen=True, slots=True)
class OfType:
    """In `Annotated`: the value stands under the key that the key `type` beside it says; the
    classes by that."""

    classes: Mapping[str, type]


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong with the fields of an entry, though each has the right type. An entry that has
    an `OfType` may tell them by a method `mistakes`; of a disabled one nobody asks."""

    what: str
    path: tuple[str | int, ...] = ()
    """From the entry down, as its keys are written."""
    hint: str = ""
    at: Literal["key", "value"] = "value"

    def below(self, *path: str | int) -> "Mistake":
        return Mistake(self.what, (*path, *self.path), self.hint, self.at)


@dataclass(frozen=True, slots=True)
class Check:
    """In `Annotated`: reports what is wrong with a text or a map beyond its type.

    Not applied in disabled entries and to texts with references that are not replaced.
    """

    mistakes: Callable[[Any, Mapping[str, str]], Iterable[Mistake]]
    """Gets the text, or the map as the file has it, and the environment variables."""


@dataclass(frozen=True, slots=True)
class RefTo:
    """In `Annotated`: the text is the name of an entry of this section."""

    section: str
    noun: str
    also: tuple[str, ...] = ()
    """Names that exist without an entry."""
    is_pattern: bool = False
    """The text may have wildcards and a leading `!`."""


@dataclass(frozen=True, slots=True)
class Inside:
    """In `Annotated`: the value may also stand alone in a mapping, under this key."""

    key: str


def _is_moment(text: str) -> bool:
    from datetime import datetime  # only a file with such a key pays for it

    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


_MORE_THAN_0 = Rule(lambda number: number > 0, "must be more than 0", {"exclusiveMinimum": 0})
_NOT_LESS = Rule(lambda number: number >= 0, "must not be less than 0", {"minimum": 0})

Seconds = Annotated[float, _MORE_THAN_0]
Pause = Annotated[float, _NOT_LESS]
Count = Annotated[int, _NOT_LESS]
Size = Annotated[int, _MORE_THAN_0]
Port = Annotated[
    int,
    Rule(
        lambda number: 0 <= number <= 65535,
        "must be a port, 0 to 65535",
        {"minimum": 0, "maximum": 65535},
    ),
]
Moment = Annotated[
    str, Rule(_is_moment, "must be a date, or a date and time: 2027-01-31, 2027-01-31T12:00:00Z")
]
NonEmpty = Annotated[str, Rule(bool, "must not be empty", {"minLength": 1})]
AuthRef = Annotated[str, Inside("ref"), RefTo("auth_configs", "auth config")]

NOT_IN_FILE = {"in_file": False}
"""Metadata of a field that is ours to fill; in a file its key is unknown."""
IN_FOLDER = {"in_folder": True}
"""Metadata of a path: relative to the config's folder in the file, absolute here."""
