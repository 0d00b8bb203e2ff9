"""What of a request is a secret, told by its name or its looks."""

import re

from mcpx.imports.names import snake
from mcpx.model.redaction import FORMS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ALWAYS = _words(
    "token secret password passwd pwd passphrase signature sig credential credentials "
    "authorization cookie jwt apikey "
    "appid session sessionid auth"
)
_OF_A_KEY = _words(
    "api access private secret subscription auth master account function functions client license "
    "app admin"
)
_HARMLESS = _words(
    "page next previous continuation sync cursor idempotency sort partition primary public"
)
"""Before `token` or `key`: nobody's secret."""
_LOOKS = re.compile(rf"\b(?:{FORMS})")


def is_secret(name: str, value: str, *, header: bool = False) -> bool:
    if _LOOKS.search(value):
        return True
    words = snake(name).split("_")
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if before in _HARMLESS:
        return False
    return last in _ALWAYS or (last == "key" and (header or not before or before in _OF_A_KEY))


def looks_secret(text: str) -> bool:
    return bool(_LOOKS.search(text))
