"""Arguments of a call for the person who decides about it.

Nothing in the text controls a terminal or changes the direction of writing. What is left out is
reported, and of a long text the end is shown too, so that padding hides nothing.
"""

import json
from typing import Final

from mcpx.base.abridge import Limits, abridge
from mcpx.base.text import visible
from mcpx.model.redaction import is_secret_name

MAX_LINE: Final = 4_000
ARGUMENTS: Final = Limits(text=300, items=50, depth=8, nodes=4_000, tail=100)


def shown(value: object) -> str:
    """Return the value as one line of JSON, without secrets."""
    short = abridge(value, ARGUMENTS, is_secret=is_secret_name)
    return line(json.dumps(short, ensure_ascii=False), MAX_LINE)


def line(text: str, limit: int) -> str:
    """Return one printable line with the beginning and the end of the text."""
    tail = limit // 4
    return visible(abridge(text, Limits(text=limit - tail, tail=tail)))
