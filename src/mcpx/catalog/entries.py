"""Tools as the search surface tells of them: the fields of S2, for programs and for the index.

Promised: whatever a server sends as a schema, its parameters are told as far as they can be read;
nothing raises.
"""

import re
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast
from urllib.parse import unquote

from mcpx.catalog.search.index import Document
from mcpx.model.call import Json, as_object
from mcpx.model.offer import Offer

MOST_PARAMETERS = 64
LONGEST_TEXT = 1_000
"""Of what is told of a tool; the whole of it is in its schema."""

_DEPRECATED = re.compile(
    r"\bDEPRECATED\b|\A\W*(?i:deprecated)\b|(?i:\b(?:is|has been)(?: now)? deprecated\b)"
)
"""Of the tool itself; others only speak of things that are."""


@dataclass(frozen=True, slots=True)
class Hints:
    """What a tool is said to do to the world; nothing is said of most tools."""

    read_only: bool = False
    destructive: bool = False
    deprecated: bool = False


def hints_of(offer: Offer) -> Hints:
    """By its annotations; that it is deprecated is said in its description."""
    annotations = as_object(offer.definition.get("annotations"))
    read_only = annotations.get("readOnlyHint") is True
    destructive = annotations.get("destructiveHint") is True and not read_only
    about = description_of(offer)[:LONGEST_TEXT]
    # Looking for the bare word first takes a tenth of the time.
    deprecated = annotations.get("deprecated") is True or (
        "deprecated" in about.lower() and _DEPRECATED.search(about) is not None
    )
    return Hints(read_only, destructive, deprecated)


def parameters_of(schema: object) -> Json:
    """Each parameter's name with its type, its description and whether it is required."""
    outer = as_object(schema)
    required: Any = outer.get("required")
    needed = (
        {name for name in cast(list[Any], required) if isinstance(name, str)}
        if isinstance(required, list)
        else ()
    )
    properties = as_object(outer.get("properties"))
    return {
        name: {
            "type": _type(outer, part),
            "description": _text(as_object(part).get("description"))[:LONGEST_TEXT],
            "required": name in needed,
        }
        for name, part in islice(properties.items(), MOST_PARAMETERS)
    }


def document_of(offer: Offer, service_description: str) -> Document:
    properties = as_object(as_object(offer.definition.get("inputSchema")).get("properties"))
    hints = hints_of(offer)
    return Document(
        name=offer.name,
        public=offer.public,
        service=offer.server,
        service_description=service_description,
        description=_text(offer.definition.get("description")),
        parameters=tuple(
            (name, _text(as_object(part).get("description"))) for name, part in properties.items()
        ),
        read_only=hints.read_only,
        destructive=hints.destructive,
        deprecated=hints.deprecated,
    )


def description_of(offer: Offer) -> str:
    return _text(offer.definition.get("description"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _type(outer: Json, part: object, depth: int = 0) -> str:
    """A JSON Schema type in a word or a few."""
    schema = as_object(part)
    named: Any = schema.get("type")
    if isinstance(named, str):
        return named
    if isinstance(named, list):
        return " | ".join(str(one) for one in cast(list[Any], named)[:8])
    if depth < 3:
        for key in ("anyOf", "oneOf"):
            choices: Any = schema.get(key)
            if isinstance(choices, list):
                return " | ".join(
                    dict.fromkeys(
                        _type(outer, one, depth + 1) for one in cast(list[Any], choices)[:8]
                    )
                )
        referred: Any = schema.get("$ref")
        if isinstance(referred, str) and referred.startswith("#/"):
            target: object = outer
            for step in unquote(referred[2:]).split("/")[:8]:
                target = as_object(target).get(step.replace("~1", "/").replace("~0", "~"))
            return _type(outer, target, depth + 1)
    return "any"
