"""What a type cannot say about a value, as one short comment: the description, then format, range,
default, …

Promised: one line, at most about 200 characters beside the description, and nothing that ends the
comment early. What says nothing is left out: a default of null on an optional parameter, the bounds
of a safe integer, a description that is the name again. Not promised: every keyword of JSON Schema;
a call is checked against the schema itself.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import TypeGuard

import orjson

from mcpx.formats.refs import Refs
from mcpx.model.call import Json, as_list, as_object, is_array

_MAX_LITERAL = 200
_MAX_DEFAULT = 40
_MAX_PATTERN = 40
_MAX_LAYERS = 4
_SAFE_INTEGER = 2**53 - 1  # beyond it a bound is only how some generator writes "integer"
# Formats that only name a machine's number; the type says it already.
_DULL_FORMATS = frozenset(
    ("int32", "int64", "uint", "uint32", "uint64", "float", "double", "string", "enum")
)
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), " ")


def one_line(text: str, limit: int) -> str:
    """`text` on one line and safe inside a comment; cut to `limit` characters and `...` when it is
    longer."""
    # Three times the limit: enough to see whether it is longer, whatever is collapsed in it.
    flat = " ".join(text[: limit * 3 + 64].translate(_CONTROLS).split())
    if len(flat) > limit + 3:
        flat = _whole_words(flat, limit).rstrip() + "..."
    elif flat.endswith(".") and not flat.endswith(".."):
        flat = flat[:-1]
    return flat.replace("*/", "* /")


def _whole_words(flat: str, limit: int) -> str:
    """Cut at the end of a word that is near. Chinese and Japanese have one after each character."""
    head = flat[:limit]
    if (
        flat[limit].isascii()
        and flat[limit].isalnum()
        and head[-1:].isascii()
        and head[-1:].isalnum()
    ):
        space = head.rfind(" ", max(0, limit - 20))
        return head[:space] if space > 0 else head
    return head


def literal(value: object, limit: int = _MAX_LITERAL) -> str:
    """A JSON value as TypeScript writes it. What no literal says is the name of its type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, str) and len(value) > limit:
        value = value[:limit] + "..."
    try:
        text = orjson.dumps(value).decode()
    except TypeError:
        try:
            text = json.dumps(value)  # half an emoji, as `\ud83d`; an integer beyond 64 bits
        except (TypeError, ValueError, RecursionError):
            return "unknown"
    if isinstance(value, str) or len(text) <= limit:
        return text
    if is_array(value):
        return "unknown[]"
    return "object"


def _number(value: int | float) -> str:
    if isinstance(value, float):
        if value - value != 0:
            return "number"
        if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        return repr(value)
    if value.bit_length() > 128:
        return "number"
    return str(value)


def comment(schema: object, refs: Refs, longest: int, name: str = "", note: str = "") -> str:
    """` /* … */`, or nothing when there is nothing to say. `longest` is the description's share; 0:
    none of it.

    `note` stands in the place of the schema's own description.
    """
    layers = list(_layers(as_object(schema), refs))
    items = as_object(layers[-1].get("items"))
    described: tuple[Json, ...] = (*layers, items)
    if note:
        described = ({"description": note}, *described)
    text = _description(described, longest)
    facts: dict[str, None] = {}
    for layer in layers:
        facts.update(dict.fromkeys(_facts(layer)))
    if items:
        for layer in _layers(items, refs):
            facts.update(dict.fromkeys(f"each {fact}" for fact in _value_facts(layer)))
    defaults = filter(None, (_default(layer, text) for layer in layers))
    facts.update(dict.fromkeys([next(defaults, "")]))
    said = [fact for fact in facts if fact and not _mentions(text, fact)]
    if text and _letters(text) != _letters(name):
        said.insert(0, text)
    if not said:
        return ""
    return f" /* {'; '.join(said)} */"


def _description(layers: Iterable[Json], longest: int) -> str:
    """The first one; none of it if `longest` is 0."""
    if longest <= 0:
        return ""
    for layer in layers:
        text = layer.get("description")
        if isinstance(text, str) and (text := one_line(text, longest)):
            return text
    return ""


def _layers(schema: Json, refs: Refs) -> Iterator[Json]:
    """This schema and those that say the same value with other words: `$ref`, one `allOf`, `X |
    null`."""
    for _ in range(_MAX_LAYERS):
        yield schema
        found = refs.follow(schema)
        if found is not None:
            if refs.is_named(*found):
                return
            schema = as_object(found[1])
            continue
        for key in ("anyOf", "oneOf", "allOf"):
            branches = as_list(schema.get(key))
            if 0 < len(branches) <= 3:
                real = [branch for branch in branches if as_object(branch).get("type") != "null"]
                if len(real) == 1:
                    schema = as_object(real[0])
                    break
        else:
            return


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _facts(schema: Json) -> Iterator[str]:
    yield from _value_facts(schema)
    yield from _count(schema, "minItems", "maxItems", "items")
    if schema.get("uniqueItems") is True:
        yield "unique"
    if schema.get("deprecated") is True:
        yield "deprecated"


def _value_facts(schema: Json) -> Iterator[str]:
    # `number` says nearly all of it, and so does a bound or a default that is an integer.
    if (
        _is_integer(schema)
        and not isinstance(schema.get("default"), int)
        and not any(_range(schema))
    ):
        yield "integer"
    for key in ("format", "contentEncoding", "contentMediaType"):
        word = schema.get(key)
        if (
            isinstance(word, str)
            and word not in _DULL_FORMATS
            and re.fullmatch(r"[\w.+/-]{1,40}", word)
        ):
            yield word
    yield from _range(schema)
    yield from _count(schema, "minLength", "maxLength", "characters")
    pattern = schema.get("pattern")
    # A pattern is exact or it is nothing: none that would have to be cut or defused.
    if (
        isinstance(pattern, str)
        and 0 < len(pattern) <= _MAX_PATTERN
        and "*/" not in pattern
        and pattern.isprintable()
    ):
        yield f"/{pattern}/"


def _is_integer(schema: Json) -> bool:
    kind = schema.get("type")
    return kind == "integer" or (is_array(kind) and "integer" in kind[:8])


def _range(schema: Json) -> Iterator[str]:
    low, above = _bound(schema, "minimum"), _bound(schema, "exclusiveMinimum")
    high, below = _bound(schema, "maximum"), _bound(schema, "exclusiveMaximum")
    if low and high and not above and not below:
        yield f"{low} to {high}" if "-" in low + high else f"{low}-{high}"
    else:
        for sign, bound in ((">=", low), (">", above), ("<=", high), ("<", below)):
            if bound:
                yield f"{sign} {bound}"
    step = schema.get("multipleOf")
    if _is_number(step) and step != 1:
        yield f"multiple of {_number(step)}"


def _bound(schema: Json, key: str) -> str:
    value = schema.get(key)
    return _number(value) if _is_number(value) and abs(value) < _SAFE_INTEGER else ""


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value - value == 0


def _count(schema: Json, least: str, most: str, what: str) -> Iterator[str]:
    low, high = _bound(schema, least), _bound(schema, most)
    if low == "0":
        low = ""
    if low and high:
        yield f"{low} {what}" if low == high else f"{low}-{high} {what}"
    elif low:
        yield "not empty" if low == "1" else f"at least {low} {what}"
    elif high:
        yield f"at most {high} {what}"


def _default(schema: Json, description: str) -> str:
    value = schema.get("default")
    if value is None or value in ("", [], {}):
        return ""
    text = literal(value, _MAX_DEFAULT).replace("*/", "* /")
    if "default" in description.lower() and _mentions(description, text.strip('"')):
        return ""
    return f"default: {text}"


def _mentions(description: str, word: str) -> bool:
    """The description says it already."""
    return bool(description) and bool(
        re.search(rf"(?<!\w){re.escape(word)}(?!\w)", description, re.IGNORECASE)
    )
