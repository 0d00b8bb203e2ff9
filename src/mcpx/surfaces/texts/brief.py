"""A tool in the fewest words a model can call it with: its name and the names of its parameters.

Promised: whatever a server sends as a name or a schema, one short line; what must be sent comes
first. Not promised: types, and what stands deeper than the first level; the signature tells them.
"""

from itertools import islice

from mcpx.model.call import as_list, as_object
from mcpx.surfaces.texts.phrases import cut, one_line

MOST_SHOWN = 8
"""Parameters that are named; more are a sign that the signature is needed."""
LONGEST_NAME = 200
"""Characters of a tool's name: who has a longer one is not called often."""
LONGEST_PARAMETER = 40
MORE = "…"
_ELSEWHERE = ("$ref", "allOf", "anyOf", "oneOf")
"""Where a schema may keep parameters that it does not list."""


def brief(name: str, schema: object, *, optional: bool = True) -> str:
    """`npmSize(package, version?)`; without the optional ones a mark says that there are some."""
    outer = as_object(schema)
    demanded = (each for each in as_list(outer.get("required")) if isinstance(each, str))
    needed = dict.fromkeys(islice(demanded, MOST_SHOWN + 1))
    others = [
        each
        for each in islice(as_object(outer.get("properties")), 2 * MOST_SHOWN)
        if each not in needed
    ]
    shown = [_parameter(each) for each in needed]
    if optional:
        shown += [f"{_parameter(each)}?" for each in others]
    hidden = bool(others) and not optional
    elsewhere = not shown and any(key in outer for key in _ELSEWHERE)
    if len(shown) > MOST_SHOWN or hidden or elsewhere:
        shown = [*shown[:MOST_SHOWN], MORE]
    return f"{cut(one_line(name), LONGEST_NAME)}({', '.join(shown)})"


def _parameter(name: object) -> str:
    return cut(one_line(name), LONGEST_PARAMETER)
