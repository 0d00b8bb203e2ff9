"""What strangers say, made fit to be told: one short printable line without the gateway's own secrets."""

from collections.abc import Iterable

from mcpx.model.redaction import blotted, spellings

REASON = 200
"""Characters of somebody else's own words."""


def printable(text: str) -> str:
    line = " ".join("".join([c if c.isprintable() else " " for c in text[: 4 * REASON]]).split())
    return line if len(line) <= REASON else line[:REASON] + "…"


def without(secrets: Iterable[str], text: str) -> str:
    """To be done before a text is cut: half a secret is not found any more."""
    return blotted(text, spellings(secrets))
