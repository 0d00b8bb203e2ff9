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
"""

import json
from collections.abc import Iterator, Mapping
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
    patterns = cast("list[Any] | tuple[Any, ...]", its) if isinstance(its, list | tuple) else [its]
    return Glob(name, [text_of(pattern)[0] for pattern in patterns])


def readings(arguments: Value, tool: Json) -> tuple[Value, ...]:
    """The arguments as they are; and, where a text has an array or object in it as JSON, as a
    server may read them that takes it for that, as those of the official Python SDK do unless the
    parameter is a text. `tool`: its definition."""
    if not isinstance(arguments, dict):
        return ({} if arguments is None else arguments,)
    read: Json = {}
    for name, value in arguments.items():
        if isinstance(value, str) and value.lstrip()[:1] in _OPENING:
            declared = as_object(
                as_object(as_object(tool.get("inputSchema")).get("properties")).get(name)
            ).get("type")
            if declared != "string" and (inner := _inside(value)) is not None:
                read[name] = inner
    return (arguments, {**arguments, **read}) if read else (arguments,)


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
            stack += value.values() if room >= 0 else ()
        elif is_array(value):
            room -= len(value)
            stack += value if room >= 0 else ()
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
            only = self._only  # as nearly always
            return self._patterns.decides(text)[0] if only is None else bool(only(text))
        found = False
        unjudged = False
        room = STEPS
        for value in (
            _leaves(arguments) if self._name == ANYTHING else _leading_to(self._name, arguments)
        ):
            room -= 1 + (len(value) // LETTERS if isinstance(value, str) else 0)
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
            if self._patterns.decides(*((value,) if isinstance(value, str) else text_of(value)))[0]:
                found = True
                if not strict:
                    return True
            elif strict:
                return False
        if unjudged:
            raise Unjudged
        return found


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
            found = element is CONTAINER
            for each in (element,) if found else _leading_to(name, element):
                found = True
                yield each
            if not found:
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
        values = [arguments] if self._name == ANYTHING else list(_named(self._name, arguments))
        judged = [_judge(self._parsed, value) for value in values]
        return bool(judged) and (all(judged) if strict else any(judged))


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
