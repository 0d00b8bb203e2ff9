"""What strangers say, made fit to be told: one short printable line without the gateway's own
secrets."""

from collections.abc import Callable, Iterable

from mcpx.base.text import one_line
from mcpx.model.redaction import blotted, spellings, without_forms

MAX_EXCERPT_BYTES = 200
"""Size of an excerpt of a message that cannot be used."""
MAX_REDACTED_BYTES = 4096
"""More than an excerpt has, so that no secret is cut before it is redacted."""


def without(secrets: Iterable[str], text: str) -> str:
    """To be done before a text is cut: half a secret is not found any more."""
    return blotted(text, spellings(secrets))


def excerpt(raw: bytes | bytearray, redact: Callable[[str], str]) -> str:
    """The first bytes of a message that cannot be used, redacted, as one printable line."""
    text = without_forms(redact(bytes(raw[:MAX_REDACTED_BYTES]).decode("utf-8", "replace")))
    encoded = text.encode("utf-8", "replace")
    line = one_line(encoded[:MAX_EXCERPT_BYTES].decode("utf-8", "ignore"))
    return f"{line}…" if len(encoded) > MAX_EXCERPT_BYTES else line
