"""Faults and repairs in words for a model: short, bounded, one line each, and safe to send.

What comes from arguments or from a server's schema (names, values, choices) is cut short, and
quoted as JSON wherever it is not a plain word. Types are written as in a tool's signature.
"""

import json
import re

from mcpx.model.call import Json, as_object, is_array, is_object
from mcpx.surfaces.checking.faults import Fault, Path, type_of

MOST_TOLD = 5
_MOST_OPTIONS = 12
_LONGEST_VALUE = 40
_LONGEST_TYPE = 160
_LONGEST_GUESS = 60
_PLAIN = re.compile(r"[\w$-]{1,64}")
_ORDER = ("string", "integer", "number", "boolean", "object", "array", "null")


def problems_text(root: Json, faults: list[Fault]) -> tuple[str, ...]:
    """The first few faults, one for each place, and how many more there are."""
    places: dict[Path, Fault] = {}
    for fault in faults:
        places.setdefault(fault.path, fault)
    told = [_sendable(_problem(root, fault)) for fault in list(places.values())[:MOST_TOLD]]
    return (*told, *_more(len(places)))


def repairs_text(repairs: list[str]) -> tuple[str, ...]:
    return (*map(_sendable, repairs[:MOST_TOLD]), *_more(len(repairs)))


def path_text(path: Path) -> str:
    """`items[2].name`; the arguments themselves are `arguments`."""
    text = ""
    for step in path if len(path) <= 20 else (*path[:10], "…", *path[-9:]):
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN.fullmatch(step) or step == "…":
            text += f".{step}" if text else step
        else:
            text += f"[{_cut(step)}]" if text else _cut(step)
    return text or "arguments"


def short(value: object) -> str:
    """A value in a few characters."""
    if isinstance(value, str):
        return _cut(value)
    if is_object(value):
        names = list(value)
        return f"{{{', '.join(path_text((name,)) for name in names[:5])}{', …' if len(names) > 5 else ''}}}"
    if is_array(value):
        return f"of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "too long to tell"
    return json.dumps(value)


def spelled(value: object) -> str:
    """A value with its type: `string "abc"`."""
    kind = type_of(value)
    return kind if value is None else f"{'number' if kind == 'integer' else kind} {short(value)}"


def _problem(root: Json, fault: Fault) -> str:
    where = path_text(fault.path)
    if fault.kind == "missing":
        return f"{where}: required and missing, expected {_type(root, fault.schema)}"
    if fault.kind == "unknown":
        names = [name for name in fault.options if isinstance(name, str)]
        meant = _nearest(str(fault.path[-1]), names)
        hint = (
            f"did you mean {' or '.join(path_text((name,)) for name in meant)}?"
            if meant
            else _listed(names)
        )
        return f"{where}: unknown argument, {hint}"
    got = f"got {spelled(fault.value)}"
    if fault.kind == "rule" and fault.words:
        return f"{where}: expected {fault.words}, {got}"
    if fault.kind == "choice":
        texts = [option for option in fault.options if isinstance(option, str)]
        meant = _nearest(fault.value, texts) if isinstance(fault.value, str) else []
        hint = f"; did you mean {' or '.join(map(_cut, meant))}?" if meant else ""
        others = [
            kind
            for kind in _ORDER
            if kind in fault.types - {type_of(option) for option in fault.options}
        ]
        return (
            f"{where}: expected {_choice([*map(_spelled_option, fault.options), *others])}, "
            f"{got}{hint}"
        )
    if fault.kind == "type" and not fault.types & {"array", "object"}:
        return (
            f"{where}: expected {' or '.join(kind for kind in _ORDER if kind in fault.types)}, "
            f"{got}"
        )
    return f"{where}: expected {_type(root, fault.schema)}, {got}"


def _choice(options: list[str]) -> str:
    if len(options) == 1:
        return options[0]
    more = f", … {len(options) - _MOST_OPTIONS} more" if len(options) > _MOST_OPTIONS else ""
    return f"one of {', '.join(options[:_MOST_OPTIONS])}{more}"


def _spelled_option(option: object) -> str:
    return spelled(option) if is_object(option) or is_array(option) else short(option)


def _listed(names: list[str]) -> str:
    if not names:
        return "none is taken here"
    more = ", …" if len(names) > _MOST_OPTIONS else ""
    return f"expected {', '.join(path_text((name,)) for name in names[:_MOST_OPTIONS])}{more}"


def _type(root: Json, schema: object) -> str:
    """The type of a part of a schema, as in the signature."""
    from mcpx.formats.typescript import type_text  # only who made a mistake needs it

    part = as_object(schema)
    if part is not root:
        part = {**{key: root[key] for key in ("$defs", "definitions") if key in root}, **part}
    text = type_text(part, max_description_len=0).partition("\n")[0]
    text = text if len(text) <= _LONGEST_TYPE else f"{text[:_LONGEST_TYPE]}…"
    return "a value" if text in ("unknown", "") else text


def _nearest(word: str, known: list[str]) -> list[str]:
    if (
        len(word) > _LONGEST_GUESS
    ):  # a typo has the length of the word; difflib on a megabyte takes for ever
        return []
    from difflib import get_close_matches

    by_lower = {name.lower(): name for name in known[:500] if len(name) <= _LONGEST_GUESS}
    return [by_lower[match] for match in get_close_matches(word.lower(), by_lower, n=2, cutoff=0.6)]


def _cut(text: str) -> str:
    return json.dumps(
        text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…", ensure_ascii=False
    )


def _more(count: int) -> tuple[str, ...]:
    return (f"… and {count - MOST_TOLD} more",) if count > MOST_TOLD else ()


def _sendable(text: str) -> str:
    """Half an emoji cannot be sent; as `\\ud83d` it says the same."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
