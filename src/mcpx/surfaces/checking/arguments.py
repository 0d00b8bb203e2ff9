"""A model's arguments against a tool's input schema, before the call: let through, repaired, or
refused with reasons.

Promised: arguments that the schema accepts go on as the very object that came; the one exception
are names that the schema does not list, where it lists some and says nothing about others: a model
that misspells an optional argument must hear of it. What is refused comes with its path, what is
wrong and what was expected. Nothing given is changed.

Repaired is only what has one possible meaning and would be refused otherwise, and only when the
whole call is right afterwards; every repair is told:

- the arguments as a JSON text, or as nothing at all;
- `"5"`, `"true"`, `"[1]"`, `"null"` where the type is wanted that the text spells, and no string;
- `5` where only a string is wanted; `5.0` where an integer is wanted (drafts that care);
- `null` for something that may be left out: it is left out;
- a name or a choice that differs from exactly one known by case (and names by `_` or `-`), if that
  one is not given.

Not repaired: one value where a list is wanted (a list of what?), yes/no and 1/0 as booleans, texts
that only look like numbers (`"007"`), near misses in spelling: they are suggested.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mcpx.model.call import Json, is_array, is_object
from mcpx.surfaces.checking.faults import Fault, Path, find_faults, type_of
from mcpx.surfaces.checking.schemas import Compiled, Schemas
from mcpx.surfaces.checking.wording import path_text, problems_text, repairs_text, short, spelled

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
    """What was repaired, each a short sentence: `limit: "5" taken as 5`."""
    problems: tuple[str, ...] = ()
    """Each: path, what is wrong, what was expected. Empty: may be called."""


class Checker:
    """Validators compiled once per schema, at the first call that needs one."""

    __slots__ = ("_schemas",)

    def __init__(self) -> None:
        self._schemas = Schemas()

    def check(self, schema: object, arguments: object, *, mend: bool = True) -> Checked:
        """`mend`: whether what is wrong may be repaired; else it is refused as it is, and so is
        what cannot be judged: nobody else will."""
        compiled = self._schemas.compiled(schema, own=not mend)
        if not mend:
            given: object = Json() if arguments is None else arguments
            if not is_object(given):
                return Checked(
                    {}, problems=(f"arguments: expected an object, got {spelled(given)}",)
                )
            judged = compiled.judges(given)
            if judged:
                return Checked(given)
            if judged is None:
                return Checked(
                    given, problems=("arguments: too large, or nested too deeply, to be checked",)
                )
            return Checked(
                given, problems=problems_text(compiled.schema, find_faults(compiled, given))
            )
        if is_object(arguments):
            return (
                Checked(arguments)
                if compiled.passes(arguments)
                else _mended(compiled, arguments, [])
            )
        if arguments is None:
            return self.check(schema, {})
        if isinstance(arguments, str):
            empty = not arguments.strip()
            read = (
                _json("{}" if empty else arguments)
                if len(arguments) <= _LONGEST_TEXT
                else _UNCHANGED
            )
            if is_object(read):
                how = "nothing taken as {}" if empty else "JSON text taken as an object"
                told = [f"arguments: {how}"]
                return (
                    Checked(read, tuple(told))
                    if compiled.passes(read)
                    else _mended(compiled, read, told)
                )
        return Checked({}, problems=(f"arguments: expected an object, got {spelled(arguments)}",))


def _mended(compiled: Compiled, given: Json, told: list[str]) -> Checked:
    """Arguments that did not pass, repaired if that makes them right."""
    faults = wrong = find_faults(compiled, given)
    arguments = given
    for _ in range(_MOST_ROUNDS):
        arguments = _copy(arguments)  # small enough, or it would not have been judged
        repairs = [text for fault in wrong[:_MOST_REPAIRS] if (text := _repair(arguments, fault))]
        if not repairs:
            break
        told += repairs
        if compiled.passes(arguments):
            return Checked(arguments, repairs_text(told))
        wrong = find_faults(compiled, arguments)
    return Checked(given, problems=problems_text(compiled.schema, faults))


def _copy(value: Any) -> Any:
    """`deepcopy` in a tenth of its time: these are JSON values, and no two are the same object."""
    if is_object(value):
        return {
            key: _copy(each) if isinstance(each, (dict, list)) else each
            for key, each in value.items()
        }
    if is_array(value):
        return [_copy(each) if isinstance(each, (dict, list)) else each for each in value]
    return value


def _repair(arguments: Json, fault: Fault) -> str | None:
    """Repairs one fault if that is safe, and says so."""
    holder, key = _holder(arguments, fault.path)
    if holder is None or type(holder[key]) is not type(fault.value) or holder[key] != fault.value:
        return None  # mended already, or moved away
    if is_object(holder) and fault.kind == "unknown":
        meant = [
            name for name in fault.options if isinstance(name, str) and _plain(name) == _plain(key)
        ]
        if len(meant) != 1 or meant[0] in holder:
            return None
        holder[meant[0]] = holder.pop(key)
        return f"{path_text(fault.path)}: taken as {path_text((meant[0],))}"
    if is_object(holder) and fault.value is None:
        del holder[key]
        return f"{path_text(fault.path)}: null left out"
    meant = _meant(fault)
    if meant is _UNCHANGED:
        return None
    holder[key] = meant
    if is_object(meant) or is_array(meant):
        return f"{path_text(fault.path)}: JSON text taken as an {type_of(meant)}"
    return f"{path_text(fault.path)}: {short(fault.value)} taken as {short(meant)}"


def _holder(arguments: Json, path: Path) -> tuple[Any, Any]:
    """What holds the value at a path, and under which key; None when there is none."""
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
    if isinstance(value, str):
        if "string" not in types:
            return _read(value, types)
        word = value.strip().casefold() if len(value) <= 200 else ""
        choices = [
            each for each in fault.options if isinstance(each, str) and each.casefold() == word
        ]
        return choices[0] if len(choices) == 1 else _UNCHANGED
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _UNCHANGED
    if isinstance(value, float) and value.is_integer():
        return int(value) if "integer" in types else _UNCHANGED  # as a text: "5" or "5.0"?
    if "string" in types and types <= {"string", "null"} and abs(value) < 10**19:
        text = repr(value)
        return text if _NUMBER.fullmatch(text) and "e" not in text else _UNCHANGED
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
        return (
            read if type_of(read) in types and (is_object(read) or is_array(read)) else _UNCHANGED
        )
    if _NUMBER.fullmatch(word):
        number: int | float = json.loads(word)
        if isinstance(number, float) and number.is_integer() and "number" not in types:
            number = int(number)
        return number if type_of(number) in types or "number" in types else _UNCHANGED
    return _UNCHANGED


def _json(text: str) -> object:
    """The value of a JSON text, `_UNCHANGED` for what is none."""
    try:
        return json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return _UNCHANGED


def _no_json(word: str) -> None:
    raise ValueError(word)
