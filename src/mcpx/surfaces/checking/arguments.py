"""Checks a model's arguments against a tool's input schema before the call (SUR-9).

Arguments that the schema accepts go on as the object that came. The one exception are names that
the schema does not list, if it lists some and says nothing about others: a model that misspells an
optional argument gets an error. An error states the path, what is wrong, and what was expected.

A mistake is repaired only if it has one possible meaning and the whole call is right afterwards.
Every repair is reported:

- the arguments as a JSON text, or as nothing at all;
- `"5"`, `"true"`, `"[1]"`, `"null"` where the type is wanted that the text spells, and no string;
- `5` where only a string is wanted; `5.0` where an integer is wanted (drafts that care);
- `null` for something that may be left out: it is left out;
- a name or a choice that differs from exactly one known by case (and names by `_` or `-`), if that
  one is not given.

Not repaired: one value where a list is wanted, yes/no and 1/0 as booleans, texts that only look
like numbers (`"007"`), near misses in spelling: they are suggested.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mcpx.model.call import Json, is_array, is_object
from mcpx.surfaces.checking.faults import (
    Fault,
    Path,
    find_faults,
    path_text,
    problems_text,
    repairs_text,
    short,
    spelled,
    type_of,
)
from mcpx.surfaces.checking.schemas import Compiled, Schemas

_MOST_ROUNDS = 4
"""A renamed argument may hold a JSON text, and that a number as a text."""
_MOST_REPAIRS = 200
_LONGEST_TEXT = 262_144
"""Characters of a JSON text that is read; 3 ms."""
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?")
_UNCHANGED = object()


@dataclass(frozen=True, slots=True)
class Checked:
    arguments: Json
    """What to send: the given ones, or the repaired ones."""
    repairs: tuple[str, ...] = ()
    """Each a short sentence: `limit: "5" taken as 5`."""
    problems: tuple[str, ...] = ()
    """Each: path, what is wrong, what was expected. Without problems the tool may be called."""


class Checker:
    """Validators compiled once per schema, at the first call that needs one."""

    __slots__ = ("_schemas",)

    def __init__(self) -> None:
        self._schemas = Schemas()

    def check(self, schema: object, arguments: object, *, mend: bool = True) -> Checked:
        """If not `mend`, nothing is repaired, and arguments that cannot be judged are refused."""
        compiled = self._schemas.compiled(schema, own=not mend)
        if mend and is_object(arguments) and compiled.passes(arguments):
            return Checked(arguments)
        given = arguments
        repairs: list[str] = []
        if arguments is None:
            given = {}
        elif mend and isinstance(arguments, str):
            given = _json(arguments)
            repairs.append("arguments: JSON text taken as an object")
            if not arguments.strip():
                given, repairs = {}, ["arguments: nothing taken as {}"]
        if not is_object(given):
            told = f"arguments: expected an object, got {spelled(arguments)}"
            return Checked({}, problems=(told,))
        if not mend:
            return _judged(compiled, given)
        if compiled.passes(given):
            return Checked(given, tuple(repairs))
        return _mended(compiled, given, repairs)


def _judged(compiled: Compiled, given: Json) -> Checked:
    judged = compiled.judges(given)
    if judged:
        return Checked(given)
    if judged is None:
        told = "arguments: too large, or nested too deeply, to be checked"
        return Checked(given, problems=(told,))
    return Checked(given, problems=problems_text(compiled.schema, find_faults(compiled, given)))


def _mended(compiled: Compiled, given: Json, repairs: list[str]) -> Checked:
    """Arguments that did not pass, repaired if that makes them right."""
    faults = remaining = find_faults(compiled, given)
    arguments = given
    for _ in range(_MOST_ROUNDS):
        arguments = _copy(arguments)
        done = [_repair(arguments, fault) for fault in remaining[:_MOST_REPAIRS]]
        if not any(done):
            break
        repairs += filter(None, done)
        if compiled.passes(arguments):
            return Checked(arguments, repairs_text(repairs))
        remaining = find_faults(compiled, arguments)
    return Checked(given, problems=problems_text(compiled.schema, faults))


def _copy(value: Any) -> Any:
    """`deepcopy` in a tenth of its time: these are JSON values, and no two are the same object."""
    if is_object(value):
        return {key: _copy(each) for key, each in value.items()}
    if is_array(value):
        return [_copy(each) for each in value]
    return value


def _repair(arguments: Json, fault: Fault) -> str | None:
    """Repair one fault if that is safe, and return what was done."""
    holder, key = _holder(arguments, fault.path)
    if holder is None or type(holder[key]) is not type(fault.value) or holder[key] != fault.value:
        return None  # Repaired already, or moved away.
    where = path_text(fault.path)
    if is_object(holder) and fault.kind == "unknown":
        names = [name for name in fault.options if isinstance(name, str)]
        meant = [name for name in names if _plain(name) == _plain(key)]
        if len(meant) != 1 or meant[0] in holder:
            return None
        holder[meant[0]] = holder.pop(key)
        return f"{where}: taken as {path_text((meant[0],))}"
    if is_object(holder) and fault.value is None:
        del holder[key]
        return f"{where}: null left out"
    meant = _meant(fault)
    if meant is _UNCHANGED:
        return None
    holder[key] = meant
    if is_object(meant) or is_array(meant):
        return f"{where}: JSON text taken as an {type_of(meant)}"
    return f"{where}: {short(fault.value)} taken as {short(meant)}"


def _holder(arguments: Json, path: Path) -> tuple[Any, Any]:
    """The object or array that has the value at a path, and its key; None if it does not exist."""
    here: Any = arguments
    try:
        for step in path[:-1]:
            here = here[step]
        here[path[-1]]
    except (LookupError, TypeError):
        return None, None
    return here, path[-1]


def _plain(name: str) -> str:
    """A name without its way of writing: `filePath`, `file_path` and `File-Path` are one."""
    return name[:200].replace("_", "").replace("-", "").replace(" ", "").casefold()


def _meant(fault: Fault) -> object:
    """The value of the wanted type that this one must mean, or `_UNCHANGED`."""
    value, types = fault.value, fault.types
    if isinstance(value, str) and "string" not in types:
        return _read(value, types)
    if isinstance(value, str):
        word = value[:201].strip().casefold()
        texts = [option for option in fault.options if isinstance(option, str)]
        choices = [text for text in texts if text.casefold() == word]
        return choices[0] if len(choices) == 1 else _UNCHANGED
    if isinstance(value, float) and value.is_integer():
        # As a text it could be "5" or "5.0".
        return int(value) if "integer" in types else _UNCHANGED
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _UNCHANGED
    text = repr(value)
    is_plain = abs(value) < 10**19 and "e" not in text and _NUMBER.fullmatch(text)
    if is_plain and "string" in types and types <= {"string", "null"}:
        return text
    return _UNCHANGED


def _read(text: str, types: Iterable[str]) -> object:
    """The value of one of these types that a text spells."""
    word = text.strip() if len(text) <= _LONGEST_TEXT else ""
    if word.lower() in ("true", "false") and "boolean" in types:
        return word.lower() == "true"
    if word == "null" and "null" in types:
        return None
    if word[:1] in ("[", "{"):
        read = _json(word)
        if type_of(read) in types and (is_object(read) or is_array(read)):
            return read
    elif _NUMBER.fullmatch(word):
        number: int | float = json.loads(word)
        if isinstance(number, float) and number.is_integer() and "number" not in types:
            number = int(number)
        if type_of(number) in types or "number" in types:
            return number
    return _UNCHANGED


def _json(text: str) -> object:
    """The value of a JSON text, `_UNCHANGED` if it is none or too long."""
    if len(text) > _LONGEST_TEXT:
        return _UNCHANGED
    try:
        return json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return _UNCHANGED


def _no_json(word: str) -> None:
    raise ValueError(word)
