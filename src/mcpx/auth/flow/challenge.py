"""What a server says in `WWW-Authenticate` (RFC 9110, 11.6.1): several challenges, quoted or not,
in one line or more.

Promise: any text is read, in time that grows with its length; what is not understood is passed
over. A `scope` inside the quotes of another value is not one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LONGEST = 8192
"""Characters that are read."""
_WORD = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_PIECE = re.compile(
    rf"""(?P<name>{_WORD})\s*+=\s*+"""
    r"""(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<plain>[^\s,"=]++)(?=[\s,]|$))"""
    rf"""|(?P<scheme>{_WORD})(?=[\s,]|$)|{_WORD}|"(?:[^"\\]|\\.)*+"?|.""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a Bearer challenge asks for; a server that says nothing has an empty one."""

    error: str = ""
    scope: str | None = None
    resource_metadata: str | None = None


def challenges(header: str) -> Sequence[tuple[str, Mapping[str, str]]]:
    """Every challenge: its scheme, in lower case, and its parameters; of a parameter said twice the
    first."""
    found: list[tuple[str, dict[str, str]]] = []
    for piece in _PIECE.finditer(header[:LONGEST]):
        if (scheme := piece["scheme"]) is not None:
            found.append((scheme.lower(), {}))
        elif (name := piece["name"]) is not None and found:
            quoted = piece["quoted"]
            value = (
                piece["plain"]
                if quoted is None
                else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
            )
            found[-1][1].setdefault(name.lower(), value)
    return found


def bearer(header: str) -> Challenge:
    """The first Bearer challenge, the one that says where its metadata is if there is one."""
    ours = [said for scheme, said in challenges(header) if scheme == "bearer"]
    said = next((one for one in ours if "resource_metadata" in one), ours[0] if ours else {})
    return Challenge(said.get("error", ""), said.get("scope"), said.get("resource_metadata"))
