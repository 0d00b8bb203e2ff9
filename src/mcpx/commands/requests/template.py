"""`{name}` in a configured text: found once, filled for every call, each value encoded for its
place (SRC-3, SEC-4).

Promised: a value stays within its place. In a path it is one segment or a part of one, in a query
or a form one value, in a header a part of one line, in JSON a value or a part of a string. It is
never read as a template again. What has no value drops out where it stands alone (a query
parameter, a header, a JSON field), is nothing inside a longer text, and is an error in a path: with
a segment less, `DELETE /users/{id}` would mean all of them.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import unquote

from mcpx.commands.work import CommandFailed
from mcpx.model.call import is_array, is_object
from mcpx.wire import codec

Arguments = Mapping[str, Any]
Encode = Callable[[Any, str], str]
"""A value, and the name of its argument, as text for its place."""
Node = Callable[[Arguments], Any]
"""Gives a filled JSON value, or `MISSING`."""

MISSING: Any = object()
"""There is no value, and nothing is to stand in its place."""
LIKE_A_NAME = r"[^\W\d][\w.\-]*"
_ANY = re.compile(rf"\{{\s*({LIKE_A_NAME})\s*\}}")
_NEVER = re.compile(r"(?!)()")
_RESERVED = re.compile(r"[^A-Za-z0-9_.~-]+")
_CODES = [f"%{byte:02X}" for byte in range(256)]
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_NOT_IN_A_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LARGEST_WHOLE = 1e15
"""Up to it a float that is a whole number is spelled like one."""


def placeholders(names: Collection[str], *, others: bool = False) -> re.Pattern[str]:
    """What finds `{name}` for these names; with `others` for whatever looks like a name as well."""
    known = [re.escape(name) for name in sorted(names, key=len, reverse=True) if name]
    if others:
        known.append(LIKE_A_NAME)
    return re.compile(rf"\{{({'|'.join(known)})\}}") if known else _NEVER


def named_in(text: str) -> Iterator[str]:
    """Whatever looks like a placeholder."""
    return (found[1] for found in _ANY.finditer(text))


class Template:
    """A text with placeholders."""

    __slots__ = ("exact", "first", "names", "rest")

    def __init__(self, first: str, rest: Sequence[tuple[str, str]]) -> None:
        """`rest`: each name, and the text after it."""
        self.first = first
        self.rest = tuple(rest)
        self.names = tuple(name for name, _ in rest)
        self.exact = rest[0][0] if len(rest) == 1 and not first and not rest[0][1] else None
        """The name, where it is all there is."""

    def spelled(self, spell: Callable[[str], str]) -> "Template":
        """The same with its own text spelled for a place."""
        return Template(spell(self.first), [(name, spell(text)) for name, text in self.rest])

    def fill(self, arguments: Arguments, encode: Encode) -> str:
        text = self.first
        for name, after in self.rest:
            text += encode(arguments.get(name), name) + after
        return text

    def given(self, arguments: Arguments) -> bool:
        """Whether the caller has said something there."""
        return any(arguments.get(name) not in (None, "") for name in self.names)


def compiled(text: str, pattern: re.Pattern[str]) -> "Template | str":
    """The text itself where there is nothing to fill."""
    parts = pattern.split(text)
    if len(parts) == 1:
        return text
    return Template(parts[0], list(zip(parts[1::2], parts[2::2], strict=True)))


# Values as text
# --------------------------------------------------------------------------------------------------


def spell(value: Any, name: str = "") -> str:
    """As text, JSON where it is no text; nothing for null."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_WHOLE:
        return str(int(value))
    return as_json(value, name)


def as_json(value: Any, name: str = "") -> str:
    try:
        return codec.dump(value).decode()
    except codec.Unencodable:
        raise CommandFailed(f"the argument '{name}' cannot be written as JSON") from None


def _listed(value: Any, name: str) -> str:
    """The same; a list of simple values by commas, as paths and headers have it."""
    if is_array(value) and not any(isinstance(item, list | dict) for item in value):
        return ",".join(spell(item, name) for item in value)
    return spell(value, name)


def _quoted(found: re.Match[str]) -> str:
    return "".join([_CODES[byte] for byte in found[0].encode()])


def percent(text: str, name: str = "") -> str:
    try:
        return _RESERVED.sub(_quoted, text)  # most of most texts stays as it is
    except UnicodeEncodeError:
        raise CommandFailed(
            f"the argument '{name}' holds half a character (a surrogate that stands alone)"
        ) from None


def in_path(value: Any, name: str) -> str:
    if value is None:
        raise CommandFailed(f"the argument '{name}' has no value, but the address needs one")
    text = _listed(value, name)
    if _CONTROLS.search(text):
        raise CommandFailed(
            f"the argument '{name}' holds a line break or a control character, which a path cannot"
        )
    return percent(text, name)


def in_query(value: Any, name: str) -> str:
    text = spell(value, name)
    if "\0" in text:
        raise CommandFailed(f"the argument '{name}' holds a NUL character, which an address cannot")
    return percent(text, name)


def in_header(value: Any, name: str) -> str:
    text = _listed(value, name)
    if _NOT_IN_A_HEADER.search(text):
        raise CommandFailed(
            f"the argument '{name}' holds a line break or a control character, which a header "
            "cannot"
        )
    if not text.isascii() and any(ord(char) > 255 for char in text):
        raise CommandFailed(
            f"the argument '{name}' holds a character that a header cannot (latin-1 only)"
        )
    return text


def in_json_string(value: Any, name: str) -> str:
    return as_json(spell(value, name), name)[1:-1]


def in_xml(value: Any, name: str) -> str:
    text = spell(value, name)
    for char, entity in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ('"', "&quot;"),
        ("'", "&apos;"),
    ):
        text = text.replace(char, entity)
    return text


# Paths and queries
# -----------------------------------------------------------------------------------------------


class Path:
    """Of an address, from its first slash on."""

    __slots__ = ("_after", "_parts", "names")

    def __init__(self, text: str, pattern: re.Pattern[str]) -> None:
        self._parts: list[tuple[str, Template]] = []
        """What stands before a segment that is filled, and that segment."""
        self.names: list[str] = []
        before = ""
        for index, segment in enumerate(text.split("/")):
            slash = "/" if index else ""
            match compiled(segment, pattern):
                case str() as plain:
                    before += slash + plain
                case template:
                    self._parts.append((before + slash, template))
                    self.names += template.names
                    before = ""
        self._after = before

    def fill(self, arguments: Arguments) -> str:
        made = ""
        for before, template in self._parts:
            segment = template.fill(arguments, in_path)
            if not segment:
                raise CommandFailed(
                    f"the argument '{template.names[0]}' is empty, but the address needs a value"
                )
            # However it is encoded, a server may take it for a step; nothing else means that.
            if len(segment) <= 6 and unquote(segment) in (".", ".."):
                raise CommandFailed(
                    f"the argument '{template.names[-1]}' would be a step to another path (. or ..)"
                )
            made += before + segment
        return made + self._after


class Query:
    """Pairs of a query or a form."""

    __slots__ = ("_pairs", "_static")

    def __init__(self, pairs: Sequence[tuple[str, str, "Template | str"]]) -> None:
        """Each: its name, what stands before its value, its value; as they are sent, but for the
        name."""
        self._pairs = tuple(pairs)
        plain = [before + value for _, before, value in pairs if isinstance(value, str)]
        self._static = "&".join(plain) if len(plain) == len(pairs) else None

    @classmethod
    def of_text(cls, text: str, pattern: re.Pattern[str]) -> "Query":
        """`a=1&b={b}`, encoded already."""
        pairs: list[tuple[str, str, Template | str]] = []
        for pair in filter(None, text.split("&")):
            name, equals, value = pair.partition("=")
            if not equals:
                pairs.append((unquote(pair), "", compiled(pair, pattern)))
            elif isinstance(
                template := compiled(name, pattern), Template
            ):  # a name that is filled: all of it is one
                pairs.append(("", "", _joined(template, "=", compiled(value, pattern))))
            else:
                pairs.append((unquote(name), f"{name}=", compiled(value, pattern)))
        return cls(pairs)

    @classmethod
    def of_pairs(cls, given: Mapping[str, str], pattern: re.Pattern[str]) -> "Query":
        pairs: list[tuple[str, str, Template | str]] = []
        for name, text in given.items():
            value = compiled(text, pattern)
            ready = percent(value) if isinstance(value, str) else value.spelled(percent)
            pairs.append((name, f"{percent(name)}=", ready))
        return cls(pairs)

    def __add__(self, other: "Query") -> "Query":
        return Query((*self._pairs, *other._pairs))

    def fill(self, arguments: Arguments, proofs: Sequence[tuple[str, str]] = ()) -> str:
        """`proofs`: what goes with it, where the caller has not given his own."""
        if not proofs and self._static is not None:
            return self._static
        made: list[str] = []
        wanted = dict(proofs)
        for name, before, value in self._pairs:
            if isinstance(value, str):
                if name not in wanted:
                    made.append(before + value)
                continue
            if name in wanted:
                if not value.given(arguments):
                    continue
                del wanted[name]
            if value.exact is None:
                made.append(before + value.fill(arguments, in_query))
                continue
            argument = arguments.get(value.exact)
            items: list[Any] = argument if is_array(argument) else [argument]
            made += [before + in_query(item, value.exact) for item in items if item is not None]
        made += [f"{percent(name)}={percent(secret)}" for name, secret in wanted.items()]
        return "&".join(made)


def _joined(left: Template, between: str, right: "Template | str") -> Template:
    first, rest = (right, ()) if isinstance(right, str) else (right.first, right.rest)
    name, after = left.rest[-1]
    return Template(left.first, [*left.rest[:-1], (name, after + between + first), *rest])


# JSON
# --------------------------------------------------------------------------------------------------


def json_node(value: Any, pattern: re.Pattern[str]) -> Node | None:
    """What fills a JSON value; None where there is nothing to fill."""
    if isinstance(value, str):
        template = compiled(value, pattern)
        return None if isinstance(template, str) else _string_node(template)
    if is_object(value):
        return _object_node([(key, json_node(item, pattern), item) for key, item in value.items()])
    if isinstance(value, list | tuple):
        items = cast(Sequence[Any], value)
        return _array_node([(json_node(item, pattern), item) for item in items])
    return None


def _string_node(template: Template) -> Node:
    name = template.exact
    if name is None:
        return lambda arguments: template.fill(arguments, spell)
    return lambda arguments: arguments.get(name, MISSING)


def _object_node(fields: list[tuple[str, Node | None, Any]]) -> Node | None:
    if all(node is None for _, node, _ in fields):
        return None

    def fill(arguments: Arguments) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, node, constant in fields:
            value = constant if node is None else node(arguments)
            if value is not MISSING:
                made[key] = value
        return made

    return fill


def _array_node(items: list[tuple[Node | None, Any]]) -> Node | None:
    if all(node is None for node, _ in items):
        return None

    def fill(arguments: Arguments) -> list[Any]:
        filled = (constant if node is None else node(arguments) for node, constant in items)
        return [value for value in filled if value is not MISSING]

    return fill


class JsonText:
    """JSON that is written as a text: a value inside quotes is escaped for them, one outside is
    JSON of its own."""

    __slots__ = ("_first", "_rest")

    def __init__(self, template: Template) -> None:
        self._first = template.first
        self._rest: list[tuple[str, bool, str]] = []
        quoted = _ends_quoted(template.first, False)
        for name, after in template.rest:
            self._rest.append((name, quoted, after))
            quoted = _ends_quoted(after, quoted)

    def fill(self, arguments: Arguments) -> str:
        text = self._first
        for name, quoted, after in self._rest:
            value = arguments.get(name)
            text += (in_json_string(value, name) if quoted else as_json(value, name)) + after
        return text


def _ends_quoted(text: str, quoted: bool) -> bool:
    """Whether the end of a piece of JSON text stands inside of a string."""
    escaped = False
    for char in text:
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = quoted
        elif char == '"':
            quoted = not quoted
    return quoted
