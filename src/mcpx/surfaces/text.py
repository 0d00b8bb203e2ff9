"""Text of servers and tools inside the gateway's own text: one line, bounded, cut between words.

Descriptions are taken apart (`docstrings`): a signature shows what they say of parameters.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice, pairwise

from mcpx.catalog.entries import description_of, hints_of
from mcpx.formats.tokens import estimate
from mcpx.model.call import as_list, as_object
from mcpx.model.offer import Offer
from mcpx.surfaces.docstrings import MOST_NAMES, Docstring, read
from mcpx.surfaces.large.measure import quoted as literal
from mcpx.surfaces.view import Service, View

SHORT = 80
"""Characters of a tool's description that are shown."""
NEAREST = 5
"""Names that are told where one was not found, or where there are more."""
LONGEST_TO_COPY = 300
"""Characters of a name that a model is to use: it must be able to copy it whole."""
LOOKED_AT = 1_000
"""Characters of a description that are searched for its first sentences."""
READ_ONLY, DESTRUCTIVE, DEPRECATED = "read-only", "destructive", "deprecated"
_MAX_PARAMETERS = 8
"""Parameters in a brief call; of a tool with more a model needs the signature."""
_MAX_TOOL_NAME = 200
_MAX_PARAMETER_NAME = 40

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
    if not names:
        return ""
    listed = ", ".join(map(one_line, names[:NEAREST]))
    if len(names) > NEAREST:
        listed += f" and {len(names) - NEAREST} more"
    return f"Still starting, {what} not known yet: {listed}."


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


# Servers


_NO_PROSE = ("#", "|", "```", "---", "===", ">", "<", "![", "[!")
_LINK = re.compile(r"!?\[([^\[\]]{0,200})\]\([^()]{0,500}\)")
_LEAD = re.compile(
    r"(?:[\w-]+,? ){0,5}?(?:model context protocol )?(?:\(mcp\) )?(?:mcp )?(?:server|toolkit)\b"
    r"(?: (?:that|which|for|to|with|is|an?|the|implement\w+|provid\w+|enabl\w+|allow\w*"
    r"|expos\w+|offer\w*|lets?|giv\w+|llms?|ai|assistants?|agents?|models?|clients?|you|ability"
    r"|access|tools?|resources?|and|easy|seamless\w*|comprehensive|powerful|interact\w*))*[:,]?\s+",
    re.IGNORECASE,
)
_HAN_LEAD = re.compile(
    r"[^，。]{0,12}MCP\s?(?:\([^()]{0,40}\)\s?)?(?:的|服务器?|工具|server|，|用于|提供|\s)*",
    re.IGNORECASE,
)


def purpose(service: Service) -> str:
    """What a server is for: the first sentence of its description or its instructions.

    Words that every server says ("An MCP server that provides") are left out.
    """
    text = (service.description or service.instructions)[:LOOKED_AT]
    if service.instructions.startswith(text):  # The gateway cut the description out of these.
        text = service.instructions[:LOOKED_AT]
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(_NO_PROSE)]
    for passage in passages(_LINK.sub(r"\1", "\n".join(lines))):
        for sentence in sentences(one_line(passage)):
            said = sentence.strip(" *_`.。")
            lead = _LEAD.match(said) or _HAN_LEAD.match(said)
            if lead is not None and lead.end() < len(said):
                said = said[lead.end() :]
            if said:
                return said
    return ""


def within_tokens(line: str, tokens: int) -> str:
    """The beginning of a line, to the end of a word, in about so many tokens."""
    size = estimate(line)
    if size <= tokens:
        return line
    return words_within(line, len(line) * tokens // size)


# Tools


def marks(offer: Offer) -> tuple[str, ...]:
    """What a model should know before it calls the tool: as the server hints."""
    hints = hints_of(offer)
    found = (
        (hints.read_only, READ_ONLY),
        (hints.destructive, DESTRUCTIVE),
        (hints.deprecated, DEPRECATED),
    )
    return tuple(word for hinted, word in found if hinted)


def docstring_of(offer: Offer, most: int | None = None) -> Docstring:
    """The description taken apart; `most`: characters that are read."""
    properties = as_object(as_object(offer.definition.get("inputSchema")).get("properties"))
    parameters: dict[str, str] = {}
    for name, schema in islice(properties.items(), MOST_NAMES):
        text = as_object(schema).get("description")
        parameters[name] = one_line(text[:1000]) if isinstance(text, str) else ""
    return read(description_of(offer)[:most], parameters)


def notes_of(offer: Offer) -> Mapping[str, str]:
    """By parameter: what only the description says of it."""
    return docstring_of(offer).notes


def told(offer: Offer) -> str:
    """The description on one line, without blocks about parameters, results, errors and
    examples."""
    return one_line(docstring_of(offer, LOOKED_AT).text)


def told_short(offer: Offer, most: int = SHORT) -> str:
    """Its beginning: whole sentences if they say enough, else whole words and `...`."""
    return short(docstring_of(offer, LOOKED_AT).text, most)


def brief_call(name: str, schema: object, *, optional: bool = True) -> str:
    """`npmSize(package, version?)`: the tool and its parameters by name, the required ones first.

    Without the optional ones a mark shows that there are some.
    """
    outer = as_object(schema)
    listed = (each for each in as_list(outer.get("required")) if isinstance(each, str))
    required = dict.fromkeys(islice(listed, _MAX_PARAMETERS + 1))
    properties = islice(as_object(outer.get("properties")), 2 * _MAX_PARAMETERS)
    others = [each for each in properties if each not in required]
    shown = [cut(one_line(each), _MAX_PARAMETER_NAME) for each in required]
    if optional:
        shown += [f"{cut(one_line(each), _MAX_PARAMETER_NAME)}?" for each in others]
    hidden = bool(others) and not optional
    elsewhere = not shown and not outer.keys().isdisjoint(("$ref", "allOf", "anyOf", "oneOf"))
    if len(shown) > _MAX_PARAMETERS or hidden or elsewhere:
        shown = [*shown[:_MAX_PARAMETERS], "…"]
    return f"{cut(one_line(name), _MAX_TOOL_NAME)}({', '.join(shown)})"
