"""A query as a whole: the wishes it holds (`create entities, then search nodes` asks for two
things), and its kind.

Promised: linear in the query, a bounded number of wishes. Not promised: grammar. Commas, full
stops, lines and words like `and` or `然后` part wishes; a part that no tool answers well does no
harm, since only the others are served.
"""

import re

MOST_WISHES = 8
"""A text of more parts is a story, not a list of wishes."""

_BETWEEN = re.compile(
    r"[,;\n!?、，；。！？]|[.](?=\s|\Z)"
    r"|\b(?:and|then|also|plus|finally|next|afterwards|after that)\b"
    r"|然后|接着|并且|以及|同时|最后|和",
    re.IGNORECASE,
)


def wishes(query: str) -> list[str]:
    """The parts of a query in order; the whole of it when it has one or too many."""
    parts = [
        part for part in map(str.strip, _BETWEEN.split(query, maxsplit=4 * MOST_WISHES)) if part
    ]
    return parts if 1 < len(parts) <= MOST_WISHES else [query]


_ASKS = re.compile(
    r"\s*(?:what|which|who|whose|where|when|how|is|are|does|did|has|have|show|list|tell|see|view)\b"
    r"|.{0,40}(?:什么|哪|多少|几个|吗|查看|看看|怎么样)",
    re.IGNORECASE,
)


def is_question(query: str) -> bool:
    """Whether it asks to be told something rather than to have something done."""
    return _ASKS.match(query) is not None
