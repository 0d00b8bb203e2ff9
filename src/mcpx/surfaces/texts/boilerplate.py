"""What a text about a server says beside that it is an MCP server: its first sentences without the
usual words.

    A powerful Model Context Protocol (MCP) server that provides weather data through a simple API.
    →  weather data

Promised: any text gives sentences, of its own words, soon; only its beginning is looked at. Not
promised: grammar, nor that every turn of advertising is known.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

from mcpx.catalog.search.words import STOP_WORDS, is_cjk, words
from mcpx.surfaces.texts.phrases import one_line, passages, sentences

LOOKED_AT = 1_500
"""Characters of a text."""
FIRST_SENTENCES = 4

_IMAGE = re.compile(r"!\[[^\[\]]{0,200}\]\([^()]{0,500}\)")
_LINK = re.compile(r"\[([^\[\]]{0,200})\]\([^()]{0,500}\)")
_TAG = re.compile(r"</?[A-Za-z!][^<>]{0,300}>")
_ADDRESS = re.compile(r"\(?https?://[^\s()]+\)?")
_EMPHASIS = re.compile(r"[*`~]+|\b_+|_+\b")
_NO_PROSE = ("#", "|", "```", "---", "===", ">")
_PICTURES = ("So", "Sk", "Cf", "Cs", "Co", "Cn", "Mn")
_PROTOCOL = re.compile(
    r"model[ -]?context[ -]?pro(?:tocol|vider)|mcp \((?:model|machine)[\w ]{0,40}\)", re.I
)
_MODELS = re.compile(
    r"(?:large )?language models?|ai[ "
    r"-](?:assistants?|agents?|models?|systems?|clients?|applications?)"
    r"(?: (?:and|or|&) (?:agents?|assistants?|models?))?|claude (?:desktop|code|ai)|llms?\b",
    re.I,
)
_ASIDE = re.compile(r"\s?\([^()]{0,200}\)|\s?（[^（）]{0,200}）")
_TAIL = re.compile(
    r" (?:through|via|using|with) "
    r"(?:(?:a|an|the|their|its|simple|easy-to-use|standardized|standard|unified|clean|rest"
    r"|natural|language) "
    r"){0,5}(?:interface|apis?|ai|mcp|llm|claude|interactions?|conversations?|fastmcp)\b.*",
    re.I,
)
_HAN_SERVER = re.compile(r"[^，。]{0,40}?MCP\s?(?:的)?(?:服务器?|工具|server)[，,]\s*", re.I)
_HAN_LEAD = re.compile(
    r"(?:一个|一款|一种|这是|这个|本项目|本服务器?|该服务器?|基于|使用|通过|用于|用来|专门|专为|提供|实现了?|支持|可以|能够|是|的|了|为"
    r"|(?:mcp|llm|server)\s?|协议|服务器|服务|工具|[，,、：:\s])+",
    re.I,
)
_HAN_TAIL = re.compile(r"(?:する)?(?:の)?\s?MCP\s?(?:サーバー?|服务器?|server)(?:です)?\Z", re.I)
_USE_IT = re.compile(
    r"\A(?:you can |please )?use (?:this|these|the)(?: [\w-]+){0,2} (?:to|for|when(?:ever)? you "
    r"(?:need|want) to)\s+",
    re.I,
)
_GAP = re.compile(r"\s+(?=[,.;:])")
_RULES = re.compile(
    r"(?:these|the following|this) "
    r"(?:instructions?|document|guide|section)|\A\W*(?:audience|use|follow|always|never"
    r"|note|important|when|before|after|if|do not|don't|please|call|make "
    r"sure|ensure|remember|start|begin|first"
    r"|you (?:should|must))\b|\A\s*[-*•]\s",
    re.I,
)

_EVERY_SERVER = (
    "a an the this that which these it its is are was be and or mcp server servers service "
    "implementation implementing"
    " implements toolkit project repository package plugin module for to with by of provides "
    "provide providing offers"
    " offer offering enables enable enabling allows allow allowing lets let let's gives give "
    "giving exposes expose"
    " exposing helps help helping contains uses use used adds add brings empowers empower "
    "enhances enhance enhancing"
    " extends revolutionizes leverages leverage unlock unlocks delivers llm claude cursor chatgpt "
    "agents assistants you"
    " your our their them official unofficial simple powerful basic comprehensive lightweight "
    "minimal robust modern"
    " production-ready specialized seamless open-source standardized various essential designed "
    "built written"
    " typescript-based python-based node-based go-based rust-based advanced intelligent smart "
    "feature-rich welcome"
)
_NOTHING_MUCH = (
    "access accessing interact interacting interaction integration integrate integrating ability "
    "abilities interface"
    " interfaces tools tool set collection connect connects connecting bridge wrapper client "
    "information way"
)
_FILLING = "capabilities capability functionality seamless comprehensive powerful"
_OF_NO_USE = (
    "operations manage management data api remote easy easily installation install setup "
    "configuration immediate"
    " cursor desktop clients any other not here there say no none works work"
)
LEAD = frozenset(_EVERY_SERVER.split())
_IF_MORE = frozenset(_NOTHING_MUCH.split())
"""Said of nothing in particular when one of these follows."""
_FOLLOWING = frozenset(("to", "with", "of", "for", "that", "which", "into", "around", "between"))
_LANGUAGES = frozenset(
    ("typescript", "javascript", "python", "node", "node.js", "nodejs", "rust", "go", "java", "php")
)
_ANCHORS = frozenset(("mcp", "server", "toolkit"))
_FILL = frozenset(_FILLING.split())
DULL = (STOP_WORDS | LEAD | _IF_MORE | _FILL | frozenset(_OF_NO_USE.split())) - {
    "package",
    "repository",
    "module",
}
"""Words that do not tell one server from another."""
WANT_MORE = STOP_WORDS | frozenset(
    (
        "mcp",
        "llm",
        "llms",
        "claude",
        "server",
        "through",
        "including",
        "between",
        "without",
        "within",
        "various",
        "any",
    )
)
"""Words that no phrase ends with."""


def plain_sentences(text: str, name: str, *, instructions: bool) -> list[str]:
    """The first sentences about the server of that name. `instructions`: those that are rules are
    passed over."""
    found = (_without_lead(sentence, name) for sentence in _prose(text, instructions=instructions))
    return [said for said in found if said]


def without_lead(sentence: str) -> str:
    """Without what it begins with and every server says."""
    return " ".join(_led(sentence.split()))


def ended(said: str) -> str:
    """Without words at the end that want others."""
    found = said.split(" ")
    while found and (not found[-1] or _bare(found[-1]) in WANT_MORE):
        found.pop()
    return " ".join(found).rstrip(" ,;:-–—，；：、(&.")


def is_of_name(word: str, name: str) -> bool:
    """Whether a word is the name of the server, or of it."""
    word, name = "".join(words(word)).lower(), "".join(words(name)).lower()
    return len(word) > 1 and (word in name or (len(name) > 3 and name in word))


def _prose(text: str, *, instructions: bool) -> Iterator[str]:
    """The first sentences without Markdown and pictures."""
    text = text[:LOOKED_AT]
    for pattern, by in ((_IMAGE, ""), (_LINK, r"\1"), (_TAG, " "), (_ADDRESS, ""), (_EMPHASIS, "")):
        text = pattern.sub(by, text)
    lines = (line for line in text.splitlines() if not line.lstrip().startswith(_NO_PROSE))
    said = [one_line(s) for part in passages("\n".join(lines)) for s in sentences(one_line(part))]
    for sentence in said[:FIRST_SENTENCES]:
        sentence = _USE_IT.sub("", sentence)
        if instructions and _RULES.search(sentence):
            continue
        sentence = _TAIL.sub("", _MODELS.sub("LLM", _PROTOCOL.sub("MCP", _ASIDE.sub("", sentence))))
        said = "".join(
            c for c in sentence if c.isascii() or unicodedata.category(c) not in _PICTURES
        )
        yield _GAP.sub("", one_line(said))


def _without_lead(sentence: str, name: str) -> str:
    sentence = sentence.strip(" .!。！-•")
    if any(map(is_cjk, words(sentence[:60]))):
        for pattern in (_HAN_SERVER, _HAN_LEAD):
            if (found := pattern.match(sentence)) is not None and len(sentence) - found.end() > 3:
                sentence = sentence[found.end() :]
        return _HAN_TAIL.sub("", sentence)
    tokens = [token for token in sentence.split() if _bare(token) not in _FILL]
    at = next((at for at, token in enumerate(tokens) if not is_of_name(token, name)), 0)
    if at and _bare(tokens[at]) in LEAD:
        tokens = tokens[at:]
    left: list[str] = []
    tokens = _led(tokens)
    for at, (word, following) in enumerate(pairwise([*map(_bare, tokens[:12]), ""])):
        if word in _ANCHORS or (word in ("that", "which") and following in LEAD):
            left, tokens = tokens[:at], _led(tokens[at:])
            break
    while left and _bare(left[-1]) in LEAD | {"open", "source"}:
        left.pop()
    rest = {_bare(token) for token in tokens}
    if (
        all(_bare(word) in rest or _bare(word) in LEAD or is_of_name(word, name) for word in left)
        and tokens
    ):
        left = []
    joined = (
        f"{' '.join(left).rstrip(',:-')}: {' '.join(tokens)}"
        if left and tokens
        else " ".join(left or tokens)
    )
    return ended(joined.strip(" :,-–—."))


def _led(tokens: list[str]) -> list[str]:
    at = 0
    while at < len(tokens):
        word, following = _bare(tokens[at]), _bare(tokens[at + 1]) if at + 1 < len(tokens) else ""
        if word == "based" and following in ("on", "upon"):
            at = next(
                (n for n in range(at + 2, min(at + 7, len(tokens))) if tokens[n].endswith(",")),
                at + 1,
            )
        elif not _says_nothing(word, following):
            break
        at += 1
    return tokens[at:]


def _says_nothing(word: str, following: str) -> bool:
    return (
        not word
        or word in LEAD
        or (word in _IF_MORE and following in _FOLLOWING)
        or (word in ("tools", "tool") and following == "and")
        or (word.endswith("ly") and len(word) > 5)
        or (word in _LANGUAGES and following in ("mcp", "server", "based", "implementation"))
        or (word == "between" and following == "llm")
        or (word, following) == ("open", "source")
        or (word == "source" and following in _ANCHORS)
    )


def _bare(token: str) -> str:
    return token.strip(".,:;!?()\"'-–—").lower()
