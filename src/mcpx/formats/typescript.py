"""JSON Schema as TypeScript type text: what a model needs to write a call, in about half the tokens
(FMT-1).

Promised: for any JSON value, one text, soon: no error, at most `MAX_TEXT` characters and a little,
nesting at most `MAX_DEPTH`. What does not fit or means nothing is `unknown`; what was left out of a
list is counted (`... 12 more`). Definitions that are recursive or used more than once stand once,
after the type, as `type Name = ...` lines.

Not promised: that a compiler takes it, nor every rule of the schema (`if`, `not`, dependencies);
arguments are checked against the schema itself.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from mcpx.formats.comments import comment, literal, one_line
from mcpx.formats.refs import Refs
from mcpx.model.call import Json, as_list, as_object, is_array, is_object

DESCRIPTION_LENGTH = 100
"""Characters of a parameter's description that are kept when nobody says how many. Nine of ten are
shorter."""
MAX_DEPTH = 12
MAX_TEXT = 20_000
MAX_MEMBERS = 50
"""Values of an enum, members of a union or a tuple."""
_MAX_NODES = 1_000
"""Schemas that are written, at 15 µs each."""
_MAX_REQUIRED = 5_000
_MAX_NAME = 200

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

_NO_NOTES: Mapping[str, str] = MappingProxyType({})
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)


def type_text(schema: object, *, max_description_len: int | None = None) -> str:
    """The type of a JSON Schema, e.g. `{path: string, limit?: number, mode?: "a" | "b"}`.

    `max_description_len` cuts the parameters' descriptions: None at the default, 0 leaves out all
    comments.
    """
    return _Writer(schema, max_description_len).text()


def signature(
    name: str,
    input_schema: object,
    *,
    max_description_len: int | None = None,
    notes: Mapping[str, str] = _NO_NOTES,
) -> str:
    """How a tool is called, e.g. `read_file({path: string /* Absolute path */, head?: number})`.

    `notes` describe parameters in the place of their schemas.
    """
    return _Writer(input_schema, max_description_len, notes).text(name)


@dataclass(frozen=True, slots=True)
class TypeScript:
    type: ClassVar[str] = "typescript"

    max_description_len: int | None = None

    def schema(self, schema: object) -> str:
        return type_text(schema, max_description_len=self.max_description_len)

    def signature(self, name: str, schema: object, notes: Mapping[str, str]) -> str:
        return signature(name, schema, max_description_len=self.max_description_len, notes=notes)


@dataclass(frozen=True, slots=True)
class _Type:
    """A written type and what tells whether it needs parentheses."""

    members: tuple[str, ...]
    """Of a union; one for everything else."""
    crossed: bool = False
    """Made with `&`."""

    @property
    def text(self) -> str:
        return " | ".join(self.members)

    @property
    def tight(self) -> str:
        """As an operand of `[]` or `&`."""
        if len(self.members) > 1 or self.crossed or self.text.endswith("*/"):
            return f"({self.text})"
        return self.text


_UNKNOWN = _Type(("unknown",))
_NEVER = _Type(("never",))


def _union(members: Iterable[str]) -> _Type:
    distinct = tuple(dict.fromkeys(members))
    if not distinct or "unknown" in distinct:
        return _UNKNOWN
    return _Type(distinct)


class _Writer:
    """Writes one schema. Whatever is put into the text is paid from one purse, so the whole is
    bounded."""

    __slots__ = ("_characters", "_longest", "_nodes", "_notes", "_refs", "_root")

    def __init__(
        self, root: object, longest: int | None, notes: Mapping[str, str] = _NO_NOTES
    ) -> None:
        self._root = root
        self._notes = notes
        self._refs = Refs(root)
        if longest is None:
            longest = DESCRIPTION_LENGTH
        self._longest = min(max(longest, 0), MAX_TEXT)
        self._characters = MAX_TEXT
        self._nodes = _MAX_NODES

    def text(self, name: str | None = None) -> str:
        # A root that refers to itself is a definition like any other.
        root = self._root
        if self._refs.root_is_recursive():
            root = {"$ref": "#"}
        first = self._type(root, 0).text
        self._notes = _NO_NOTES  # definitions have other parameters
        if name is not None:
            # Arguments are an object, whatever the schema says or fails to say.
            if first in ("unknown", "object", "never"):
                first = "{}"
            first = f"{name}({first})"
        lines = [first]
        for defined, target in self._refs.used:  # grows while definitions use definitions
            lines.append(f"type {defined} = {self._type(target, 0).text}{self._comment(target)}")
        text = "\n".join(lines)
        # Halves of a cut emoji cannot be sent; in a string `\ud83d` says the same.
        return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()

    def _pay(self, text: str) -> str:
        self._characters -= len(text)
        return text

    @property
    def _spent(self) -> bool:
        return self._characters <= 0 or self._nodes <= 0

    def _comment(self, schema: object, name: str = "", note: str = "") -> str:
        if not self._longest:
            return ""
        return self._pay(comment(schema, self._refs, self._longest, name, note))

    def _type(self, schema: object, depth: int) -> _Type:
        written = self._write(schema, depth)
        if written is _UNKNOWN or not is_object(schema):
            self._pay("unknown, ")
        return written

    def _write(self, schema: object, depth: int) -> _Type:
        if not is_object(schema):
            return _NEVER if schema is False else _UNKNOWN
        self._nodes -= 1
        if self._spent or depth > MAX_DEPTH:
            return _UNKNOWN
        node = merged(schema, self._refs)
        parts = self._parts(node, depth)
        if not parts:
            found = _NEVER if node.get("not") in ({}, True) else _UNKNOWN
        elif len(parts) == 1:
            found = parts[0]
        else:
            found = _Type((" & ".join(dict.fromkeys(part.tight for part in parts)),), crossed=True)
        if node.get("nullable") is True and found is not _UNKNOWN:
            return _union((*found.members, "null"))
        return found

    def _parts(self, node: Json, depth: int) -> list[_Type]:
        """All that the value must be at once."""
        parts: list[_Type] = []
        if "$ref" in node:
            parts.append(self._reference(node, depth))
        choices = (as_list(node.get(key)) for key in ("anyOf", "oneOf"))
        needs = ""
        for branches in filter(None, choices):
            if demanded := demands(node, branches):
                needs = f" /* needs {one_line(demanded, 100)} */" * (self._longest > 0)
            else:
                parts.append(self._alternatives(node, branches, depth))
        parts.extend(
            self._type(branch, depth + 1) for branch in as_list(node.get("allOf"))[:MAX_MEMBERS]
        )
        parts = [part for part in parts if part is not _UNKNOWN]
        # A bare `type: object` beside branches that say more adds nothing.
        if not parts or any(key in node for key in ("enum", "const", "properties", "items")):
            own = self._own(node, depth)
            if own is not _UNKNOWN:
                parts.insert(0, _Type((*own.members[:-1], own.members[-1] + self._pay(needs))))
        return parts

    def _reference(self, node: Json, depth: int) -> _Type:
        found = self._refs.follow(node)
        if found is None:
            return _UNKNOWN
        if self._refs.is_named(*found):
            return _union((self._pay(self._refs.name(*found)),))
        return self._type(found[1], depth + 1)

    def _alternatives(self, node: Json, branches: list[object], depth: int) -> _Type:
        shared = node.get("type")
        several = sum(as_object(branch).get("type") != "null" for branch in branches[:3]) > 1
        members: list[str] = []
        for branch in branches[:MAX_MEMBERS]:
            if self._spent:
                break
            if shared is not None and is_object(branch) and TYPED.isdisjoint(branch):
                branch = {"type": shared, **branch}
            written = self._type(branch, depth + 1)
            note = self._comment(branch) if several else ""
            members.extend(written.members[:-1])
            members.append(written.members[-1] + note)
        return _union([*members, *self._rest(len(branches))])

    @staticmethod
    def _rest(count: int) -> list[str]:
        if count <= MAX_MEMBERS:
            return []
        return [f"... {count - MAX_MEMBERS} more"]

    def _own(self, node: Json, depth: int) -> _Type:
        if "const" in node:
            return _Type((self._pay(literal(node["const"])),))
        values = as_list(node.get("enum"))
        if values:
            return _union(
                [
                    *(self._pay(literal(value)) for value in values[:MAX_MEMBERS]),
                    *self._rest(len(values)),
                ]
            )
        kind = node.get("type")
        if is_array(kind):
            kinds = dict.fromkeys(
                each[:10].lower() for each in kind[:MAX_MEMBERS] if isinstance(each, str)
            )
            return _union(
                member for each in kinds for member in self._of_kind(each, node, depth).members
            )
        if kind is None:
            kind = guess(node)
        return self._of_kind(kind, node, depth)

    def _of_kind(self, kind: object, node: Json, depth: int) -> _Type:
        if not isinstance(kind, str):
            return _UNKNOWN
        if kind not in SCALARS:
            kind = kind[:10].lower()
        if kind in SCALARS:
            return _Type((self._pay(SCALARS[kind]),))
        if kind in ("object", "dict"):
            return _Type((self._object(node, depth),))
        if kind in ("array", "list"):
            return _Type((self._array(node, depth),))
        return _UNKNOWN

    def _array(self, node: Json, depth: int) -> str:
        items = node.get("items", True)
        first = as_list(node.get("prefixItems"))
        rest = items if "items" in node else False
        if is_array(items):
            first, rest = items, node.get("additionalItems", False)
        if not first:
            self._pay("[]")
            return self._type(items, depth + 1).tight + "[]"
        members = [self._type(each, depth + 1).text for each in first[:MAX_MEMBERS]]
        members.extend(self._rest(len(first)))
        if is_object(rest):
            members.append(f"...{self._type(rest, depth + 1).tight}[]")
        self._characters -= 2 * len(members)
        return f"[{', '.join(members)}]"

    def _object(self, node: Json, depth: int) -> str:
        properties = as_object(node.get("properties"))
        demanded = as_list(node.get("required"))[:_MAX_REQUIRED]
        required = {key: True for key in demanded if isinstance(key, str)}
        # What is demanded and not described must be sent all the same.
        keys = [*properties, *(key for key in required if key not in properties)]
        others = self._other_keys(node, depth)
        if not keys:
            if others is None:
                closed = "properties" in node or node.get("additionalProperties") is False
                return self._pay("{}" if closed else "object")
            keyed = self._type(node.get("propertyNames"), depth + 1).text
            if keyed == "unknown":
                keyed = "string"
            self._pay("Record<string, >")
            return f"Record<{keyed}, {others}>"
        if depth >= MAX_DEPTH:
            return self._pay("object")
        members: list[str] = []
        for number, key in enumerate(keys):
            if self._spent:
                members.append(f"... {len(keys) - number} more")
                break
            mark = "" if key in required else "?"
            self._pay(name := f"{_key(key)}{mark}: ")
            schema = properties.get(key)
            note = self._notes.get(key, "") if depth == 0 else ""
            members.append(
                f"{name}{self._type(schema, depth + 1).text}{self._comment(schema, key, note)}"
            )
        if others is not None and others != "unknown":
            members.append(f"[key: string]: {others}")
        return f"{{{', '.join(members)}}}"

    def _other_keys(self, node: Json, depth: int) -> str | None:
        """The type of the values under keys that are not listed; None when nothing is said about
        them."""
        schemas = list(as_object(node.get("patternProperties")).values())[:MAX_MEMBERS]
        additional = node.get("additionalProperties")
        if additional is True or is_object(additional):
            schemas.append(additional)
        if not schemas:
            return None
        return _union(
            member for schema in schemas for member in self._type(schema, depth + 1).members
        ).text


def _key(key: str) -> str:
    if len(key) <= _MAX_NAME and _IDENTIFIER.fullmatch(key):
        return key
    return literal(key, _MAX_NAME)


# What one schema says, before it is written


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
    keys = sum(len(as_object(branch.get("properties"))) for branch in plain)
    if keys + sum(len(as_list(branch.get("required"))) for branch in plain) > _MAX_KEYS:
        return node
    properties: Json = {}
    required: list[object] = []
    for branch in plain:
        for key, schema in as_object(branch.get("properties")).items():
            before = properties.get(key)
            # Both branches count: the later one says more about what the earlier one began.
            if is_object(before) and is_object(schema):
                schema = {**before, **schema}
            properties[key] = schema
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
