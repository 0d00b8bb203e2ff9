"""A web origin: where a browser has a page from (RFC 6454). What is no origin to the letter is
none."""

import re
from typing import NamedTuple

PORTS = {"http": 80, "https": 443}
_ORIGIN = re.compile(
    r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?", re.IGNORECASE | re.ASCII
)


class Origin(NamedTuple):
    scheme: str
    host: str
    """Lower case; an IPv6 address in brackets."""
    port: int

    @classmethod
    def parse(cls, text: str) -> "Origin | None":
        """`https://app.example:8443`, with the default port of its scheme where it names none."""
        found = _ORIGIN.fullmatch(text)
        if found is None:
            return None
        scheme = found[1].lower()
        port = PORTS[scheme] if found[3] is None else int(found[3])
        return cls(scheme, found[2].lower(), port) if 0 < port < 65536 else None
