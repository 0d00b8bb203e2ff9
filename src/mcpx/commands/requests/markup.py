"""XML as JSON: attributes as `@name`, text as `#text`, elements of one name as a list.

Promised: nothing is expanded and nothing is fetched (a document type declaration is refused, and
with it every entity of its own); depth and number of elements are bounded; long documents are read
in slices. An element of nothing but text is that text, an empty one is null. Prefixes of names stay
as they are written.
"""

from typing import Any, cast
from xml.parsers import expat

from mcpx.base.aio import Work

DEEPEST = 100
MOST = 200_000
"""Elements and attributes."""
_PIECE = 16 * 1024


class BadMarkup(ValueError):
    """Not XML, or none that is read here."""


def converted(data: bytes) -> Work[dict[str, Any]]:
    """`data` in the encoding that it names itself, else UTF-8. Raises BadMarkup."""
    tree = _Tree()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.ordered_attributes = True
    parser.StartElementHandler = tree.start
    parser.EndElementHandler = tree.end
    parser.CharacterDataHandler = tree.text
    parser.StartDoctypeDeclHandler = _refuse
    try:
        for begin in range(0, len(data), _PIECE):
            parser.Parse(data[begin : begin + _PIECE], False)
            yield
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise BadMarkup(
            f"line {error.lineno}, column {error.offset + 1}: {expat.ErrorString(error.code)}"
        ) from None
    except (ValueError, LookupError) as error:  # ours, and an encoding that nobody knows
        raise (
            error if isinstance(error, BadMarkup) else BadMarkup("an encoding that is not known")
        ) from None
    return tree.root


def _refuse(*_: object) -> None:
    raise BadMarkup("it has a document type declaration, which is not read")


class _Tree:
    def __init__(self) -> None:
        self.root: dict[str, Any] = {}
        self._open: list[tuple[str, dict[str, Any], list[str]]] = [("", self.root, [])]
        self._count = 0

    def start(self, name: str, attributes: list[str]) -> None:
        self._count += 1 + len(attributes) // 2
        if self._count > MOST:
            raise BadMarkup(f"more than {MOST:,} elements and attributes")
        if len(self._open) > DEEPEST:
            raise BadMarkup(f"nested deeper than {DEEPEST} levels")
        fields: dict[str, Any] = {
            f"@{key}": value for key, value in zip(*[iter(attributes)] * 2, strict=True)
        }
        self._open.append((name, fields, []))

    def text(self, text: str) -> None:
        self._open[-1][2].append(text)

    def end(self, _: str) -> None:
        name, fields, texts = self._open.pop()
        text = "".join(texts).strip()
        value: Any = fields or None
        if not fields:
            value = text or None
        elif text:
            fields["#text"] = text
        around = self._open[-1][1]
        if name not in around:
            around[name] = value
        elif isinstance(before := around[name], list):
            cast(list[Any], before).append(value)
        else:
            around[name] = [before, value]
