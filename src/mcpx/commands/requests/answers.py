"""What a server answered, as the result of a tool.

Promised: JSON comes twice, as text and as `structuredContent`; XML is read as JSON; what is not
what `response_format` says comes as the text it is. Pictures, sounds and other bytes are content of
their own kind. What is not a success is a `CommandFailed` with the status and the beginning of the
body, and no secret in it.
"""

import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from mcpx.commands.requests.bodies import charset_of, is_json, is_xml
from mcpx.commands.work import CommandFailed
from mcpx.model.call import Json, is_object
from mcpx.model.kinds import Mistake
from mcpx.model.redaction import blotted, spellings
from mcpx.wire import codec
from mcpx.wire.exchange import PHRASES
from mcpx.wire.fetch import Answer

SHOWN = 2_000
"""Characters of the body of a failure that are told."""
LARGE = 256 * 1024
"""Bytes from which selecting is done beside everything else."""
DEEP = 200
"""Levels that can always be written."""
NOTHING_FOUND = "null (nothing in the response matches the 'result' expression of this command)"
LEAST_SECRET = 4
"""Characters from which a secret is looked for in what a server said; fewer stand in every text."""

_LETTERS = re.compile(
    r"[^\x09\x0a\x20-\x7e\xa0-\u2027\u202f-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+"
)
_TEXTUAL = re.compile(
    r"text/.*|.*[/+](?:json|xml|yaml|x-yaml|toml|javascript|ecmascript|x-ndjson|jsonlines|jsonl"
    r"|graphql|sql|csv|x-www-form-urlencoded|x-sh|xhtml)"
)
_KIND = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,100}/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}")
_PRIVATE = frozenset(
    {"set-cookie", "connection", "keep-alive", "transfer-encoding", "date", "proxy-authenticate"}
)
"""Headers nobody has to know."""
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_JSON_BEGINS = b'{["-0123456789tfn'


class Expression(Protocol):
    """A compiled JMESPath expression."""

    def search(self, value: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """How the answers of one command are read."""

    method: str
    format: Literal["json", "xml", "text"]
    result: Expression | None


def result_mistakes(expression: str | None) -> "Iterable[Mistake]":
    if expression is not None:
        try:
            selection(expression)
        except ValueError as error:
            yield Mistake(f"not a JMESPath expression: {_briefly(error)}", ("result",))


def _briefly(error: ValueError) -> str:
    """Without the expression itself, which the library repeats and the message points at."""
    first_line = str(error).splitlines()[0]
    return first_line.removesuffix("for expression:").rstrip(" ,:")[:200]


def selection(expression: str) -> Expression:
    """Raises ValueError."""
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        return jmespath.compile(expression)
    except JMESPathError as error:
        raise ValueError(str(error) or "it is empty") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


# Successes
# --------------------------------------------------------------------------------------------------


async def read(answer: Answer, how: Reading) -> Json:
    """The result of a 2xx answer. Raises CommandFailed."""
    body, content_type = answer.body, answer.headers.get("content-type") or ""
    if not body and how.method in ("HEAD", "OPTIONS"):
        return await _selected(_head(answer), how, None)
    kind = content_type.partition(";")[0].strip().lower()
    if not body:
        if how.result is not None:
            raise CommandFailed("the response is empty, so 'result' has nothing to select from")
        return _said(f"(no content: {_status(answer.status)})")
    if kind.startswith(("image/", "audio/")) and _KIND.fullmatch(kind) and not is_xml(kind):
        return {"content": [{"type": kind[:5], "data": b64encode(body).decode(), "mimeType": kind}]}
    if how.format == "json":
        data = _in_utf8(body, content_type)
        if data[:64].lstrip()[:1] in _JSON_BEGINS:  # else it is some text, and need not be tried
            try:
                value = codec.load(data, strict=True)
            except codec.BadJson:
                pass
            else:
                if how.result is not None or _is_flat(data) or codec.is_writable([[value]]):
                    return await _selected(value, how, data, large=len(data) > LARGE)
    elif how.format == "xml":
        from mcpx.base.aio import in_slices
        from mcpx.commands.requests.markup import BadMarkup, converted

        try:
            return await _selected(
                await in_slices(converted(body)), how, None, large=len(body) > LARGE
            )
        except BadMarkup:
            pass
    return _unread(answer, kind, content_type, how)


async def _selected(value: Any, how: Reading, body: bytes | None, *, large: bool = False) -> Json:
    """`body`: the same as JSON text, if it came so."""
    if how.result is None:
        return as_result(value, body)
    try:
        if large:
            import asyncio

            found = await asyncio.to_thread(how.result.search, value)
        else:
            found = how.result.search(value)
    except Exception as error:  # noqa: BLE001 - any error of the library's functions
        # Texts of the library may hold the whole value.
        raise CommandFailed(
            f"'result' could not be applied to the response ({type(error).__name__})"
        ) from None
    if found is None:
        return {**_said(NOTHING_FOUND), "structuredContent": {"result": None}}
    return as_result(found, None)


def as_result(value: Any, body: bytes | None) -> Json:
    """A JSON value as the result of a tool; `body`: the text it was read from."""
    try:
        # What came on one line stays as it came.
        text = (
            body.decode() if body is not None and b"\n" not in body else codec.dump(value).decode()
        )
    except UnicodeDecodeError:
        text = codec.dump(value).decode()
    except codec.Unencodable:
        raise CommandFailed("the response cannot be written as JSON") from None
    return {**_said(text), "structuredContent": value if is_object(value) else {"result": value}}


def _in_utf8(body: bytes, content_type: str) -> bytes:
    charset = charset_of(content_type).lower() if "charset" in content_type.lower() else "utf-8"
    if charset not in ("utf-8", "utf8", "us-ascii", "ascii"):
        return body.decode(charset, "replace").encode("utf-8", "replace")
    return body.removeprefix(b"\xef\xbb\xbf")


def _is_flat(data: bytes) -> bool:
    """Whether it is certainly not nested so deeply that it can be read, but not written: then it is
    a text."""
    if len(data) < 2 * DEEP:
        return True
    brackets = data.translate(None, _NO_BRACKETS)
    for _ in range(4):  # what stands side by side is gone after a few
        if len(brackets) < 2 * DEEP:
            return True
        brackets = brackets.replace(b"{}", b"").replace(b"[]", b"")
    return len(brackets) < 2 * DEEP


def _unread(answer: Answer, kind: str, content_type: str, how: Reading) -> Json:
    """What is not read as data."""
    text = _text(answer.body, kind, content_type)
    if how.result is not None:
        begins = "it is no text" if text is None else f"it begins: {printable(text, 200)}"
        raise CommandFailed(
            f"'result' selects from {how.format.upper()}, which the response is not; {begins}"
        )
    if text is not None:
        return _said(text)
    resource = {
        "uri": answer.url.partition("?")[0].partition("#")[0],
        "mimeType": kind if _KIND.fullmatch(kind) else "application/octet-stream",
        "blob": b64encode(answer.body).decode(),
    }
    return {"content": [{"type": "resource", "resource": resource}]}


def _text(body: bytes, kind: str, content_type: str) -> str | None:
    """None: it is no text."""
    if _TEXTUAL.fullmatch(kind) or is_json(kind) or "charset" in content_type:
        return body.decode(charset_of(content_type), "replace").removeprefix("\ufeff")
    if b"\0" in body[:LARGE]:
        return None
    try:
        return body.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        return None if kind else body.decode("latin-1") if _mostly_letters(body) else None


def _mostly_letters(body: bytes) -> bool:
    """Whether what does not say what it is may be a text of an older encoding."""
    head = body[:1024]
    return not any(byte < 9 or 13 < byte < 32 for byte in head)


def _head(answer: Answer) -> Json:
    told = {name: value for name, value in answer.headers.items() if name not in _PRIVATE}
    return {"status": answer.status, "headers": told}


def _said(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


# Failures
# --------------------------------------------------------------------------------------------------


def failure(answer: Answer, secrets: Iterable[str] = ()) -> CommandFailed:
    """What is told of an answer that is no success."""
    content_type = answer.headers.get("content-type") or ""
    kind = content_type.partition(";")[0].strip().lower()
    said = f"the server answered {_status(answer.status)}"
    if 300 <= answer.status < 400 and answer.headers.get("location"):
        said += ", a redirect that was not followed"
    begins = answer.body[: 8 * SHOWN]
    if b"\0" not in begins or _TEXTUAL.fullmatch(kind):
        text = blotted(
            begins.decode(charset_of(content_type), "replace"), spellings(secrets, LEAST_SECRET)
        )
        shown = printable(text, SHOWN)
        said = f"{said}: {shown}" if shown else said
    return CommandFailed(said)


def _status(status: int) -> str:
    return f"{status} {PHRASES.get(status, b'').decode()}".rstrip()


def printable(text: str, most: int) -> str:
    """On one line, nothing in it that a terminal would obey, and not too long."""
    clean = " ".join(_LETTERS.sub(" ", text[: 4 * most]).split())
    return clean if len(clean) <= most else f"{clean[:most]}…"
