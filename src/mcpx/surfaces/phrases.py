"""Somebody else's words inside our own: on one line, bounded, cut where it hurts least."""

from mcpx.surfaces.large.hints import quoted as literal
from mcpx.surfaces.view import View

SHORT = 80
"""Characters of a tool's description that are shown."""
NEAREST = 5
"""Names that are told where one was not found, or where there are more."""
LONGEST_TO_COPY = 300
"""Characters of a name that a model is to use: it must be able to copy it whole."""


def one_line(text: object) -> str:
    """Somebody else's text: on one line, without what steers a terminal or turns the direction of writing."""
    if not isinstance(text, str):
        return ""
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(c for c in line if c.isprintable())


def cut(text: str, at: int) -> str:
    return text if len(text) <= at else text[:at] + "..."


def short(text: object) -> str:
    """The beginning of a description, cut between words."""
    line = one_line(text[: 4 * SHORT]) if isinstance(text, str) else ""
    if len(line) <= SHORT:
        return line
    head = line[: SHORT + 1].rpartition(" ")[0]
    return (head if len(head) > SHORT // 2 else line[:SHORT]).rstrip(" ,;:.") + "..."


def quoted(name: str) -> str:
    """What a model said, as a reminder."""
    return f'"{cut(one_line(name), 80)}"'


def exact(name: str) -> str:
    """What a model should say, as JSON spells it."""
    return literal(cut(name, LONGEST_TO_COPY))


def starting(view: View, what: str = "tools") -> str:
    """What a menu or a search says while servers are starting of which nothing is known yet (LIF-1)."""
    names = view.starting()
    more = f" and {len(names) - NEAREST} more" if len(names) > NEAREST else ""
    return f"Still starting, {what} not known yet: {', '.join(map(one_line, names[:NEAREST]))}{more}." if names else ""
