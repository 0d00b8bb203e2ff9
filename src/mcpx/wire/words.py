"""What strangers say, made fit to be told: one short printable line without the gateway's own secrets."""

from collections.abc import Iterable
from urllib.parse import quote, quote_plus

REASON = 200
"""Characters of somebody else's own words."""
SHORTEST_SECRET = 6
"""Characters: what is shorter stands in many a word by chance."""


def printable(text: str) -> str:
    line = " ".join("".join([c if c.isprintable() else " " for c in text[: 4 * REASON]]).split())
    return line if len(line) <= REASON else line[:REASON] + "…"


def without(secrets: Iterable[str], text: str) -> str:
    """To be done before a text is cut: half a secret is not found any more."""
    for secret in secrets:
        last = secret.rpartition(" ")[2]  # `Bearer x` may be said back as x
        for part in (secret, last, quote(secret, safe=""), quote_plus(secret)):
            if len(part) >= SHORTEST_SECRET:
                text = text.replace(part, "***")
    return text
