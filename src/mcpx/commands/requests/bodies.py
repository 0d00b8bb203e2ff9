"""What a request carries: JSON, a form, or text, made ready once and filled for every call.

Promised: what cannot be a body is told as a mistake of the configuration, and everything else can
be sent. A proof that goes into the body (`api_key` with `location: body`) is a field of its JSON
object or form.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from encodings import normalize_encoding
from encodings.aliases import aliases
from math import isfinite
from typing import Any, Literal, Protocol, cast
from urllib.parse import quote_plus

from mcpx.commands.requests.template import (
    MISSING,
    Arguments,
    JsonText,
    Node,
    Query,
    Template,
    compiled,
    in_xml,
    json_node,
    placeholders,
    spell,
)
from mcpx.commands.work import CommandFailed
from mcpx.model.call import is_array, is_object
from mcpx.model.kinds import Mistake
from mcpx.wire import codec

Format = Literal["json", "form", "text"]
Proofs = Sequence[tuple[str, str]]

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
TEXT = "text/plain; charset=utf-8"
_CHARSET = re.compile(r"(?i)charset\s*=\s*\"?([\w.:-]{1,40})")
_CHARSETS = (frozenset(aliases.values()) | {"cp737", "cp874", "koi8_t", "koi8_u", "utf_8_sig"}) - {
    *(
        "base64_codec",
        "bz2_codec",
        "hex_codec",
        "quopri_codec",
        "rot_13",
        "uu_codec",
        "zlib_codec",
        "mbcs",
        "utf_7",
    )
}
"""Those that texts are written in. Of the others that Python knows one takes minutes for a megabyte
(punycode), some refuse to be lenient or give halves of characters (idna, utf-7); and whatever it
does not know it looks for on the disk and remembers for ever."""


class Body(Protocol):
    content_type: str
    """What it is, unless the headers say so."""

    def fill(self, arguments: Arguments, proofs: Proofs) -> bytes | None:
        """None: there is none in this call."""
        ...


def is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind.endswith(("/json", "+json"))


def is_xml(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind.endswith(("/xml", "+xml"))


def charset_of(content_type: str, default: str = "utf-8") -> str:
    """One that can be read here, whatever is said."""
    found = _CHARSET.search(content_type)
    if found is None:
        return default
    name = normalize_encoding(found[1]).lower()
    return found[1] if aliases.get(name, name) in _CHARSETS else default


def format_of(body: Any, said: Format | None, content_type: str) -> Format:
    if said is not None:
        return said
    if content_type.partition(";")[0].strip().lower() == FORM:
        return "form"
    return "json" if not isinstance(body, str) or is_json(content_type) else "text"


def body_mistakes(
    body: Any, said: Format | None, content_type: str, pattern: re.Pattern[str], method: str
) -> Iterator[Mistake]:
    if body is None:
        if said is not None:
            yield Mistake("'body_format' without a 'body'", ("body_format",), at="key")
        return
    if not isinstance(body, str) and _holds_odd_numbers(body):
        yield Mistake("a number that is not finite, which JSON has not", ("body",))
    if method == "HEAD":
        yield Mistake("a HEAD request has no body", ("body",), "leave it out", "key")
        return
    form = format_of(body, said, content_type)
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith("multipart/"):
        hint = "write the whole of it as a text, or send a form or JSON"
        if not isinstance(body, str):
            yield Mistake("a body of several parts is not made", ("body",), hint)
    elif form == "json" and said is None and kind and "json" not in kind and "{" not in kind:
        hint = "write the body as a text, or say 'body_format: json' if that is meant"
        yield Mistake(
            f"a mapping or a list is sent as JSON, but 'Content-Type' is {kind[:80]}",
            ("body",),
            hint,
        )
    elif form == "text" and not isinstance(body, str):
        hint = "write a text, or leave 'body_format' out to send JSON"
        yield Mistake("a body that is sent as text must be a text", ("body",), hint)
    elif form == "form" and not isinstance(body, str | Mapping):
        yield Mistake("a form is a mapping, or a text like a=1&b={b}", ("body",))
    elif form == "json" and isinstance(body, str):
        template = compiled(body, pattern)
        sample = body if isinstance(template, str) else JsonText(template).fill({})
        try:
            codec.load(sample.encode("utf-8", "surrogatepass"))
        except codec.BadJson as wrong:
            hint = f"{wrong}; a mapping or a list needs no quotes around it"
            yield Mistake("the body is no JSON text", ("body",), hint)


def _holds_odd_numbers(value: Any) -> bool:
    if is_object(value):
        return any(map(_holds_odd_numbers, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_odd_numbers, cast(Sequence[Any], value)))
    return isinstance(value, float) and not isfinite(value)


def body_of(
    body: Any, said: Format | None, content_type: str, names: Sequence[str], method: str
) -> Body:
    pattern = placeholders(names)
    if body is None:
        return _NoBody(method)
    match format_of(body, said, content_type):
        case "json" if isinstance(body, str):
            template = compiled(body, pattern)
            if isinstance(template, Template) and template.exact is None:
                return _Text(JsonText(template).fill, JSON, "utf-8")
            if isinstance(template, Template):
                return _Json(body, json_node(body, pattern))
            return _Text(lambda _: template, JSON, "utf-8")
        case "json":
            return _Json(body, json_node(body, pattern))
        case "form" if isinstance(body, str):
            return _FormText(Query.of_text(body, pattern))
        case "form":
            return _Form(cast(Mapping[str, Any], body), pattern)
        case "text":
            return _text(compiled(body, pattern), content_type)


class _NoBody:
    content_type = JSON

    def __init__(self, method: str) -> None:
        self._takes = method in ("POST", "PUT", "PATCH")

    def fill(self, arguments: Arguments, proofs: Proofs) -> bytes | None:
        if not proofs:
            return None
        if not self._takes:
            raise CommandFailed(
                "its auth config puts a field into the body, but the request has no body"
            )
        return codec.dump(dict(proofs))


class _Json:
    content_type = JSON

    def __init__(self, body: Any, node: Node | None) -> None:
        self._body, self._node = body, node
        self._ready = codec.dump(body) if node is None else b""

    def fill(self, arguments: Arguments, proofs: Proofs) -> bytes | None:
        if self._node is None and not proofs:
            return self._ready
        value = self._body if self._node is None else self._node(arguments)
        if value is MISSING and not proofs:
            return None
        if proofs:
            value = self._with(proofs, {} if value is MISSING else value)
        try:
            return codec.dump(value)
        except codec.Unencodable as error:
            raise CommandFailed(f"the body cannot be written as JSON: {error}") from None

    def _with(self, proofs: Proofs, value: Any) -> dict[str, Any]:
        if not is_object(value):
            raise CommandFailed(
                "its auth config puts a field into the body, but the body is no JSON object"
            )
        own = self._body if is_object(self._body) else {}
        callers = {
            name
            for name, given in value.items()
            if given not in (None, "") and given != own.get(name)
        }
        return {**value, **{name: secret for name, secret in proofs if name not in callers}}


class _Form:
    content_type = FORM

    def __init__(self, body: Mapping[str, Any], pattern: re.Pattern[str]) -> None:
        self._fields = [(name, json_node(value, pattern), value) for name, value in body.items()]

    def fill(self, arguments: Arguments, proofs: Proofs) -> bytes | None:
        pairs: list[str] = []
        wanted = dict(proofs)
        for name, node, constant in self._fields:
            value = constant if node is None else node(arguments)
            if name in wanted:
                if node is None or value in (MISSING, None, ""):
                    continue
                del wanted[name]
            if value is MISSING or value is None:
                continue
            items: list[Any] = value if is_array(value) else [value]
            pairs += [_pair(name, spell(item, name)) for item in items]
        pairs += [_pair(name, secret) for name, secret in wanted.items()]
        return "&".join(pairs).encode("ascii")


def _pair(name: str, text: str) -> str:
    try:
        return f"{quote_plus(name)}={quote_plus(text)}"
    except UnicodeEncodeError:
        raise CommandFailed(
            f"the field '{name}' holds half a character (a surrogate that stands alone)"
        ) from None


class _FormText:
    content_type = FORM

    def __init__(self, query: Query) -> None:
        self._query = query

    def fill(self, arguments: Arguments, proofs: Proofs) -> bytes | None:
        return self._query.fill(arguments, proofs).encode("utf-8", "replace")


class _Text:
    def __init__(self, fill: Node, content_type: str, charset: str) -> None:
        self._fill = fill
        self.content_type = content_type
        self._charset = charset

    def fill(self, arguments: Arguments, proofs: Proofs) -> bytes | None:
        if proofs:
            raise CommandFailed(
                "its auth config puts a field into the body, but the body is a text"
            )
        text = self._fill(arguments)
        if text is MISSING or text is None:
            return None
        try:
            return spell(text).encode(self._charset)
        except UnicodeEncodeError:
            raise CommandFailed(
                f"the body holds a character that {self._charset} does not have"
            ) from None


def _text(template: "Template | str", content_type: str) -> _Text:
    charset = charset_of(content_type)
    if isinstance(template, str):
        return _Text(lambda _: template, TEXT, charset)
    if template.exact is not None:
        name = template.exact
        return _Text(lambda arguments: arguments.get(name, MISSING), TEXT, charset)
    encode = in_xml if is_xml(content_type) else spell
    return _Text(lambda arguments: template.fill(arguments, encode), TEXT, charset)
