"""What a rule says of the arguments of a call.

A name leads to values: `path`, or with dots to what is inside (`repo.owner`; through arrays to
every element), or `*` to every text, number and boolean anywhere in the arguments. A pattern is
held against each of them, an expression (`{jmespath: …}`) against the value of the name, under `*`
against the arguments as a whole.

Promised: what cannot be judged (an object where a pattern wants a text, a type an expression has no
sense for, more than there is time for) counts as matching for a rule that forbids or asks, and as
not matching for one that allows. In the same spirit one matching element of an array is enough to
forbid, and all must match to allow. What is absent matches neither. No rule holds up anybody else:
work is counted, and given up as not to be judged.

Servers written in Go ignore the case of names. A rule on `text` must therefore also match `Text`
and `text `. A reading is a copy of the arguments in which the name of the rule replaces one of the
other spellings. Two spellings that the tool's schema declares are two arguments.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol, cast

from mcpx.model.call import Json, Value, as_object, is_array, is_object
from mcpx.policy.patterns import Patterns
from mcpx.wire import codec

ANYTHING = "*"
"""The name that leads everywhere."""
STEPS = 20_000
"""Values looked at for one condition; some ten milliseconds."""
LITTLE = 300
"""Values that are looked at at once, however many rules do so."""
LETTERS = 64
"""Characters of a text that weigh as much as a value."""


_OPENING = frozenset("[{")
_CONTAINERS = frozenset((dict, list))


class Unjudged(Exception):
    """It cannot be said whether this matches."""


class _Absent:
    """Stands where an element of an array lacks what all others may have."""


ABSENT = _Absent()


class _Container:
    """Told for each array or object that is looked into: an empty one is work, too."""


CONTAINER = _Container()


class Condition(Protocol):
    def holds(self, arguments: Json, strict: bool) -> bool:
        """`strict`: every value must match, not just one of them. Raises `Unjudged`."""
        ...


def conditions_of(given: Mapping[str, Any]) -> tuple[Condition, ...]:
    """As the configuration has them, which was checked already."""
    return tuple(_condition(name, its) for name, its in given.items())


def _condition(name: str, its: Any) -> Condition:
    if is_object(its):
        return Expression(name, str(its["jmespath"]))
    patterns: list[Any] = [its]
    if isinstance(its, list | tuple):
        patterns = [*cast("list[Any] | tuple[Any, ...]", its)]
    return Glob(name, [text_of(pattern)[0] for pattern in patterns])


def readings(arguments: Value, tool: Json) -> tuple[Value, ...]:
    """The arguments as they are; and, where a text has an array or object in it as JSON, as a
    server may read them that takes it for that, as those of the official Python SDK do unless the
    parameter is a text. `tool`: its definition."""
    if arguments is None:
        return ({},)
    if not isinstance(arguments, dict):
        return (arguments,)
    texts = [
        name
        for name, value in arguments.items()
        if isinstance(value, str) and value.lstrip()[:1] in _OPENING
    ]
    if not texts:
        return (arguments,)
    schema = as_object(tool.get("inputSchema"))
    properties = as_object(schema.get("properties"))
    read: Json = {}
    for name in texts:
        if as_object(properties.get(name)).get("type") != "string":
            read[name] = _inside(arguments[name])
    read = {name: value for name, value in read.items() if value is not None}
    if not read:
        return (arguments,)
    return arguments, {**arguments, **read}


def _inside(text: str) -> Any:
    """What a text says as JSON; None: nothing. More than is read here cannot be judged."""
    try:
        return codec.load(text.encode("utf-8", "surrogatepass"))
    except codec.BadJson:
        pass
    if text.count("[") + text.count("{") > codec.MOST_CONTAINERS:
        return [None] * (STEPS + 1)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_much(arguments: Value) -> bool:
    """Whether a condition may have much to look at in them; a quick look, at little of it."""
    if isinstance(arguments, dict) and len(arguments) < 16:  # as nearly always: a few words
        for value in arguments.values():
            if type(value) in _CONTAINERS or (isinstance(value, str) and len(value) > LETTERS * 16):
                break
        else:
            return False
    room, stack = LITTLE, [arguments]
    while stack:
        value = stack.pop()
        room -= 1
        if isinstance(value, str):
            room -= len(value) // LETTERS
        elif is_object(value):
            room -= len(value)
            if room >= 0:
                stack += value.values()
        elif is_array(value):
            room -= len(value)
            if room >= 0:
                stack += value
        if room < 0:
            return True
    return False


class Glob:
    def __init__(self, name: str, patterns: list[str]) -> None:
        self._name = name
        self._patterns = Patterns(patterns)
        self._only = self._patterns.only
        self._plain = name != ANYTHING and "." not in name

    def holds(self, arguments: Json, strict: bool) -> bool:
        if self._plain and isinstance(text := arguments.get(self._name), str) and len(text) < STEPS:
            if self._only is not None:  # as nearly always
                return bool(self._only(text))
            return self._patterns.decides(text)[0]
        found = False
        unjudged = False
        room = STEPS
        values = _leading_to(self._name, arguments)
        if self._name == ANYTHING:
            values = _leaves(arguments)
        for value in values:
            room -= _weight(value)
            if room < 0:
                raise Unjudged
            if value is CONTAINER:
                continue
            if value is ABSENT:
                if strict:
                    return False
                continue
            if isinstance(value, dict):
                unjudged = True
                continue
            # Not `matches`, which remembers what it was asked: these are a caller's values.
            if self._patterns.decides(*text_of(value))[0]:
                found = True
                if not strict:
                    return True
            elif strict:
                return False
        if unjudged:
            raise Unjudged
        return found


def _weight(value: object) -> int:
    if isinstance(value, str):
        return 1 + len(value) // LETTERS
    return 1


def text_of(value: object) -> tuple[str, ...]:
    """A scalar as patterns see it; a number may be written in two ways."""
    if isinstance(value, str):
        return (value,)
    try:
        text = json.dumps(value)
    except ValueError:  # more digits than anybody writes out
        raise Unjudged from None
    if isinstance(value, float) and value.is_integer():
        return (str(int(value)), text)
    return (text,)


def _leading_to(name: str, value: object) -> Iterator[Any]:
    """Every scalar or object that a name leads to, from the arguments or from what is inside of
    them."""
    if is_array(value):
        for element in _elements(value):
            if element is CONTAINER:
                yield element
                continue
            is_empty = True
            for each in _leading_to(name, element):
                is_empty = False
                yield each
            if is_empty:
                yield ABSENT
    elif is_object(value):
        if name in value:
            yield from _elements(value[name])
        at = name.find(".")
        while at >= 0:  # a key may have dots of its own
            if name[:at] in value:
                yield from _leading_to(name[at + 1 :], value[name[:at]])
            at = name.find(".", at + 1)


def _elements(value: object) -> Iterator[Any]:
    """The value itself, or all that is in an array and in those inside of it."""
    stack: list[object] = [value]
    while stack:
        value = stack.pop()
        if is_array(value):
            stack += value
            yield CONTAINER
        else:
            yield value


def _leaves(value: object) -> Iterator[Any]:
    stack: list[object] = [value]
    while stack:
        value = stack.pop()
        if is_object(value):
            stack += value.values()
            yield CONTAINER
        elif is_array(value):
            stack += value
            yield CONTAINER
        else:
            yield value


class Expression:
    def __init__(self, name: str, text: str) -> None:
        import jmespath  # only who has such a rule pays for it

        self._name = name
        self._parsed: Any = jmespath.compile(text).parsed
        self._plain = name != ANYTHING and "." not in name

    def holds(self, arguments: Json, strict: bool) -> bool:
        if self._plain and self._name not in arguments:
            return False
        values: list[Any] = [arguments]
        if self._name != ANYTHING:
            values = list(_named(self._name, arguments))
        judged = [_judge(self._parsed, value) for value in values]
        if strict:
            return bool(judged) and all(judged)
        return any(judged)


def _named(name: str, value: object) -> Iterator[Any]:
    """What a name leads to, as a whole: an expression can look into arrays itself."""
    if is_object(value):
        if name in value:
            yield value[name]
        at = name.find(".")
        while at >= 0:
            if name[:at] in value:
                yield from _named(name[at + 1 :], value[name[:at]])
            at = name.find(".", at + 1)


def _judge(parsed: Any, value: object) -> bool:
    from mcpx.policy.expressions import truth

    return truth(parsed, value, STEPS, LETTERS)


# Names in other spellings

MAX_SPELLINGS = 8
"""Spellings of one name in one call. More of them cannot be judged."""
MAX_DEPTH = 32
"""Levels of arguments."""
MAX_VALUES = 20_000
"""Values that one reading may visit."""


class TooManySpellings(Exception):
    """The arguments are too large, or have too many spellings of one name."""


class SpelledNames:
    """The names that the conditions of one rule lead through."""

    def __init__(self, names: Iterable[str]) -> None:
        self._top: dict[str, str] = {}
        self._nested: dict[str, str] = {}
        for name in names:
            steps = name.split(".")
            for start in range(len(steps)):
                for end in range(start + 1, len(steps) + 1):
                    step = ".".join(steps[start:end])  # A key may contain dots.
                    table = self._nested
                    if start == 0:
                        table = self._top
                    table.setdefault(fold(step), step)

    def readings(self, arguments: Json, declared: Collection[str]) -> Iterator[Json]:
        """The arguments with other spellings replaced, if they have any. Raises
        `TooManySpellings`."""
        for turn in range(MAX_SPELLINGS + 1):
            attempt = _Attempt(self._nested, turn)
            reading = attempt.top(arguments, self._top, declared)
            if attempt.most_spellings <= turn:
                return
            if turn == MAX_SPELLINGS:
                raise TooManySpellings
            yield reading


class _Attempt:
    """One reading of the arguments: with spelling number `turn` of each name."""

    def __init__(self, nested: Mapping[str, str], turn: int) -> None:
        self._nested = nested
        self._turn = turn
        self._room = MAX_VALUES
        self.most_spellings = 0

    def top(self, arguments: Json, names: Mapping[str, str], declared: Collection[str]) -> Json:
        both = {key for key in arguments if key in declared and names.get(fold(key)) in declared}
        return self._respelled(arguments, names, both, 0)

    def _respelled(
        self, value: Json, names: Mapping[str, str], separate: Collection[str], depth: int
    ) -> Json:
        self._count(len(value))
        reading = value
        for name, keys in self._other_spellings(value, names, separate).items():
            self.most_spellings = max(self.most_spellings, len(keys))
            reading = {**reading, name: value[keys[min(self._turn, len(keys) - 1)]]}
        if self._nested:
            for key in [key for key in reading if fold(key) in names]:
                inner = self._inside(reading[key], depth + 1)
                if inner is not reading[key]:
                    reading = {**reading, key: inner}
        return reading

    def _other_spellings(
        self, value: Json, names: Mapping[str, str], separate: Collection[str]
    ) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for key in value:
            name = names.get(fold(key))
            if name is not None and key != name and key not in separate:
                found.setdefault(name, []).append(key)
        return found

    def _inside(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise TooManySpellings
        if is_object(value):
            return self._respelled(value, self._nested, (), depth)
        if not is_array(value):
            return value
        self._count(len(value))
        items = [self._inside(item, depth + 1) for item in value]
        if all(item is old for item, old in zip(items, value, strict=True)):
            return value
        return items

    def _count(self, values: int) -> None:
        self._room -= values
        if self._room < 0:
            raise TooManySpellings


def fold(name: str) -> str:
    return name.strip().casefold()
