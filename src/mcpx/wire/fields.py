"""What a header, an address or a line of one may hold, judged as a configuration needs it:
mistakes, told by path."""

import re
from collections.abc import Iterable, Iterator, Mapping

from mcpx.model.kinds import Mistake
from mcpx.wire.address import BadAddress, parse

HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
FRAMING = (
    r"(?i)content-length|transfer-encoding|host|connection|keep-alive|proxy-connection"
    r"|te|trailer|upgrade|expect"
)
"""Headers that say where a message goes and ends: whoever could write them could write requests of
his own."""
OURS = rf"{FRAMING}|mcp-.*|mcpx-via|last-event-id|sec-websocket-.*"
"""The same, and those of the protocol."""
SHOWN = 80


def one_line_mistakes(text: str, *path: str | int) -> Iterator[Mistake]:
    """A value that goes into a header."""
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", text):
        yield Mistake("holds a line break or NUL or the like, which a header cannot", path)
    elif not text.isascii() and any(ord(char) > 255 for char in text):
        yield Mistake(
            "holds a character that a header cannot", path, "a header takes latin-1 only; encode it"
        )


def header_name_mistakes(name: str, *path: str | int, ours: str = FRAMING) -> Iterator[Mistake]:
    """A header name that stands as a value; `ours`: names that only mcpx may set there."""
    if not re.fullmatch(HEADER_NAME, name):
        yield Mistake("not a possible header name", path, "letters, digits and - only")
    elif re.fullmatch(ours, name):
        shown = name if len(name) <= SHOWN else f"{name[:SHOWN]}…"
        yield Mistake(f"the header '{shown}' is set by mcpx", path, "leave it out")


def headers_mistakes(
    headers: Mapping[str, str], *path: str | int, ours: str = FRAMING
) -> Iterator[Mistake]:
    for name, value in headers.items():
        for wrong in header_name_mistakes(name, *path, name, ours=ours):
            yield Mistake(wrong.what, wrong.path, wrong.hint, "key")
        yield from one_line_mistakes(value, *path, name)


def url_mistakes(
    url: str, *path: str | int, schemes: Iterable[str] = ("http", "https")
) -> Iterator[Mistake]:
    try:
        parse(url, tuple(schemes))
    except BadAddress as problem:
        yield Mistake(problem.what, path, problem.hint)
