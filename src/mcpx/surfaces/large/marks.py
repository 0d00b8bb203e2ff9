"""Marks for what is left out of a value that is shown in part (SUR-11).

Promise: a mark stands outside of every quoted string and is neither JSON nor TOON, so that nobody
takes it for data: `"body":"Lorem ip" [mcpx: 1,234 more characters]`. A value is cut first (its cuts
are strings that nobody else can say), rendered like any other, and then `marked`. `[mcpx: …]` is
the form of all that is said in between a server's words.
"""

import re
import secrets

from mcpx.surfaces.large.lines import counted

_OURS = f":{secrets.token_hex(6)}:"
"""Begins what stands for a mark until it is one. With colons, so that TOON quotes the string it is
in."""
_CUT = re.compile(rf'{_OURS}(\d+)c;"|(,?)"{_OURS}(\d+)([ikao]);"(?:: ?null)?')


def own(text: str) -> str:
    """A line of ours."""
    return f"[mcpx: {text}]"


def cut_string(kept: str, more: int) -> str:
    return f"{kept}{_OURS}{more}c;"


def more_items(count: int) -> str:
    """The last item of a list."""
    return f"{_OURS}{count}i;"


def more_keys(count: int) -> str:
    """The last key of an object; its value is None."""
    return f"{_OURS}{count}k;"


def whole_list(count: int) -> str:
    """In place of a list."""
    return f"{_OURS}{count}a;"


def whole_object(count: int) -> str:
    """In place of an object."""
    return f"{_OURS}{count}o;"


def marked(rendered: str) -> str:
    return _CUT.sub(_mark, rendered) if _OURS in rendered else rendered


def _mark(found: re.Match[str]) -> str:
    characters, comma, number, kind = found.groups()
    if characters is not None:
        return f'" {own(counted(int(characters), "more character"))}'
    count = int(number)
    match kind:
        case "i":
            return f" {own(counted(count, 'more item'))}"
        case "k":
            return f" {own(counted(count, 'more key'))}"
        case "a":
            return comma + own(f"array of {counted(count, 'item')}")
        case _:
            return comma + own(f"object with {counted(count, 'key')}")
