"""Somebody else's words inside our own: on one line, bounded, cut where it hurts least."""

import re
from collections.abc import Sequence
from itertools import pairwise

from mcpx.surfaces.large.hints import quoted as literal
from mcpx.surfaces.view import View

SHORT = 80
"""Characters of a tool's description that are shown."""
NEAREST = 5
"""Names that are told where one was not found, or where there are more."""
LONGEST_TO_COPY = 300
"""Characters of a name that a model is to use: it must be able to copy it whole."""

_ENDS = (".", "!", "?", "。", "！", "？", ".)", '."', ".'", "）")
_END = re.compile(r"""[.!?]["')\]]{0,3}(?:\s+|\Z)|[。！？][”’」』）]{0,3}\s*""")
_SHORTENED = frozenset(
    ("e.g", "i.e", "eg", "ie", "etc", "vs", "cf", "approx", "no", "dr", "mr", "st", "incl", "resp")
)


def one_line(text: object) -> str:
    """Somebody else's text: on one line, without what steers a terminal or turns the direction of
    writing."""
    if not isinstance(text, str):
        return ""
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(c for c in line if c.isprintable())


def cut(text: str, at: int) -> str:
    return text if len(text) <= at else text[:at] + "..."


def short(text: object, most: int = SHORT) -> str:
    """The beginning of a description: whole sentences if they say enough, else whole words and
    `...`."""
    line = one_line(text[: 4 * most]) if isinstance(text, str) else ""
    if len(line) <= most:
        return line
    told = ""
    for sentence in sentences(line[: most + 1]):
        if len(told) + len(sentence) > most or not sentence.rstrip().endswith(_ENDS):
            break
        told += sentence
    return told.rstrip() if len(told) > most // 3 else f"{words_within(line, most)}..."


def words_within(line: str, most: int) -> str:
    """So many characters of a line at most, to the end of a word; of a word that is longer, its
    beginning."""
    if len(line) <= most:
        return line
    ends = (at for at in range(most, most // 2, -1) if not _one_word(line[at - 1], line[at]))
    return line[: next(ends, most)].rstrip(" ,;:.-(，、；：。（")


def _one_word(left: str, right: str) -> bool:
    """Whether a word goes on between two characters. Chinese and Japanese may be cut anywhere."""
    return all((c.isalnum() or c in "_-'./") and ord(c) < 0x2E80 for c in (left, right))


def sentences(line: str) -> list[str]:
    """What a line says one after the other; joined they are the line."""
    starts = [0, *(end.end() for end in _END.finditer(line) if _is_end(line, end)), len(line)]
    return [line[start:end] for start, end in pairwise(starts) if end > start]


def _is_end(line: str, end: re.Match[str]) -> bool:
    if not end[0][0].isascii():
        return True
    if line[end.end() : end.end() + 1].islower():
        return False
    if end[0][0] != ".":
        return True
    earlier, _, word = line[max(0, end.start() - 12) : end.start()].rpartition(" ")
    initial = len(word) == 1 and word.isupper()
    number = word.isdecimal() and earlier[-1:] in ("", ".", ":", ";")  # of a list
    return not (initial or number or word.lower().lstrip("(") in _SHORTENED)


def passages(text: str) -> list[str]:
    """Paragraphs, and what is set apart by its lines: a sentence does not go beyond them."""
    parts: list[str] = []
    for line in text.splitlines():
        bare = line.strip()
        goes_on = parts and parts[-1] and not parts[-1].endswith(_ENDS)
        if (
            bare
            and goes_on
            and not bare.endswith((":", "："))
            and not bare.startswith(("- ", "* ", "• "))
        ):
            parts[-1] = f"{parts[-1]} {bare}"
        else:
            parts.append(bare)
    return [part for part in parts if part]


def quoted(name: str) -> str:
    """What a model said, as a reminder."""
    return f'"{cut(one_line(name), 80)}"'


def exact(name: str) -> str:
    """What a model should say, as JSON spells it."""
    return literal(cut(name, LONGEST_TO_COPY))


def starting(view: View, what: str = "tools") -> str:
    """What a menu or a search says while servers are starting of which nothing is known yet
    (LIF-1)."""
    names = view.starting()
    more = f" and {len(names) - NEAREST} more" if len(names) > NEAREST else ""
    return (
        f"Still starting, {what} not known yet: {', '.join(map(one_line, names[:NEAREST]))}{more}."
        if names
        else ""
    )


def fair_share(sizes: Sequence[int], room: int) -> int:
    """The size up to which each is let be, so that all take `room`, which is less than they need:
    what short ones leave goes to others."""
    left = len(sizes)
    for size in sorted(sizes):
        if size * left > room:
            break
        room -= size
        left -= 1
    return max(room, 0) // max(left, 1)
