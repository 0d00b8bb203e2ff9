"""What one schema says, before it is written: plain objects merged, a missing type guessed, odd
spellings understood.

Pure functions over raw JSON; none looks further than the branches of the schema it is given.
"""

from mcpx.formats.refs import Refs
from mcpx.model.call import Json, as_list, as_object, is_object

SCALARS = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
    # Not JSON Schema, and yet what some servers send.
    "int": "number",
    "float": "number",
    "str": "string",
    "bool": "boolean",
}
TYPED = frozenset(("type", "$ref", "enum", "const", "anyOf", "oneOf", "allOf"))
"""Keywords that say of themselves what kind of value it is."""

_HINTS = (
    (
        "object",
        ("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
    ),
    ("array", ("items", "prefixItems", "minItems", "maxItems", "uniqueItems")),
    ("string", ("pattern", "minLength", "maxLength", "format")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)
# An object that has nothing but these can be merged with another.
_MERGEABLE = frozenset(
    (
        "type",
        "properties",
        "required",
        "title",
        "description",
        "default",
        "examples",
        "$schema",
        "$id",
        "$comment",
    )
)
_DEMAND = frozenset(("required", "type", "title", "description", "not"))
_MAX_BRANCHES = 50
_MAX_KEYS = 10_000
"""Keys that are merged; nobody is shown as many."""


def guess(node: Json) -> str | None:
    """The type that the other keywords speak of."""
    for kind, words in _HINTS:
        if any(word in node for word in words):
            return kind
    return None


def merged(node: Json, refs: Refs) -> Json:
    """`allOf` of plain objects as one object; anything else as it is."""
    branches = as_list(node.get("allOf"))
    if not 0 < len(branches) <= _MAX_BRANCHES:
        return node
    plain: list[Json] = []
    for each in ({key: value for key, value in node.items() if key != "allOf"}, *branches):
        branch = as_object(each)
        found = refs.follow(branch)
        if found is not None and not refs.is_named(*found):
            branch = as_object(found[1])
        if not branch.keys() <= _MERGEABLE or branch.get("type", "object") != "object":
            return node
        plain.append(branch)
    if (
        sum(
            len(as_object(branch.get("properties"))) + len(as_list(branch.get("required")))
            for branch in plain
        )
        > _MAX_KEYS
    ):
        return node
    properties: Json = {}
    required: list[object] = []
    for branch in plain:
        for key, schema in as_object(branch.get("properties")).items():
            before = properties.get(key)
            # Both branches count: the later one says more about what the earlier one began.
            properties[key] = (
                {**before, **schema} if is_object(before) and is_object(schema) else schema
            )
        required.extend(as_list(branch.get("required")))
    if not properties and not required:
        return node
    return {"type": "object", "properties": properties, "required": required}


def demands(node: Json, branches: list[object]) -> str:
    """`a or b + c` when the branches only say which of the properties must be there, else
    nothing."""
    if "properties" not in node or len(branches) > _MAX_BRANCHES:
        return ""
    sets: list[str] = []
    for branch in branches:
        keys = as_list(as_object(branch).get("required"))
        if not keys or not _DEMAND.issuperset(as_object(branch)):
            return ""
        sets.append(" + ".join(key for key in keys[:_MAX_BRANCHES] if isinstance(key, str)))
    return " or ".join(sets)
