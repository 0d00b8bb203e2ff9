"""What in a stranger's words a person should look at twice, and a way to write it that hides
nothing.

`visible` spells out every character that cannot be seen, that turns the writing round, or that
speaks to a terminal. `suspicious` names what attacks on models are made of: such characters,
letters of one alphabet that pass for another's, and phrases. It is a list of hints for people:
nothing is refused for it, and its silence proves nothing.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, cast

LOOKED_AT = 1 << 16
"""Characters of one definition that are looked through, some ten milliseconds; of a longer one it
is said."""
MOST = 12
"""Hints about one definition."""
DEEPEST = 12
"""Levels of a definition in which a place is looked for."""
SPELLED = 400
"""Characters of a run of tags that are spelled out."""

_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_RUN = re.compile(f"[{_UNSEEN}]+")
_TAGS = re.compile("[\U000e0020-\U000e007e]{2,}")

PHRASES: dict[str, str] = {
    "tells to ignore other instructions": (
        r"\b(?:ignor|disregard|forget|overrid)\w*\s(?:\w+\s){0,3}?(?:previous|prior|above|earlier|other|all)\b"
    ),
    "asks to keep something from the user": (
        r"\b(?:do not|don['\u2019]t|never|without)\s(?:\w+\s){0,2}?"
        r"(?:tell|telling|mention|mentioning|inform|informing|show|showing|reveal|notify|notifying)"
        r"\s(?:\w+\s){0,3}?(?:user|human|anyone|anybody)\b"
    ),
    "has the form of an order to the model": r"<\s*/?\s*(?:important|system|instructions?|secret|hidden|critical)\s*>",
    "speaks of the system prompt": r"\bsystem\s(?:prompt|message|instructions?)\b",
    "wants to come before or instead of other tools": (
        r"\b(?:before|instead of|prior "
        r"to)\s(?:us|call|invok|runn)ing\s(?:\w+\s){0,2}?(?:any|other|another|all)\b"
    ),
    "names keys or secrets of the user": (
        r"~/\.(?:ssh|aws|gnupg|kube|netrc|config)|\bid_(?:rsa|ed25519)\b|\.ssh/|(?<![\w.])\.env\b|/etc/(?:passwd|shadow)"
        r"|\b(?:private|ssh|api)[ _-]keys?\b|\bmcp\.json\b"
    ),
    "wants something sent elsewhere": (
        r"\b(?:send|post|upload|forward|exfiltrat\w*|transmit)\s(?:\w+\s){0,6}?(?:https?://|to\s(?:this|the)\s"
        r"(?:url|address|server|endpoint))"
    ),
    "runs a command": r"\b(?:curl|wget|powershell|bash)\s+-\w|\brm\s-rf\b|\|\s*(?:ba|z)?sh\b",
}
"""What a hint says, and the pattern it is given for; blanks of any kind count as one."""

_PHRASES = [(hint, re.compile(pattern, re.IGNORECASE)) for hint, pattern in PHRASES.items()]
_BLOB = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{120,}={0,2}")
_APART = "\n.\n"
"""Between texts that are searched together: no pattern goes across it."""
_BLANKS = re.compile(r"\s+")
_WORD = re.compile(r"[^\W\d_]{2,}")

_ALIKE = str.maketrans(
    "аАвВеЕёкКмМНоОрРсСтТуУхХіІјЈѕЅһԁԛԜѵΑΒΕΖΗΙΚΜΝΟΡΤΥΧαγικνορτυωа",
    "aAbBeEekKmMHoOpPcCtTyYxXiIjJsShdqWvABEZHIKMNOPTYXayikvoptuwa",
)


def visible(text: str) -> str:
    """The text with nothing in it that cannot be seen. Line breaks and tabs stay."""
    text = _TAGS.sub(
        lambda run: f'<{len(run[0])} TAG characters that read "{_untagged(run[0])}">', text
    )
    told = _RUN.sub(lambda run: _spelled(text, run), text)
    if told.isprintable():
        return told
    return "".join(
        c if c.isprintable() or c in "\n\t\ufe0e\ufe0f\u200d" else _code(c) for c in told
    )


def _code(c: str) -> str:
    return f"<U+{ord(c):04X} {unicodedata.name(c, 'CONTROL CHARACTER')}>"


def _untagged(run: str) -> str:
    """Never what speaks to a terminal: these stand for printable ASCII only."""
    return "".join(chr(ord(c) - 0xE0000) for c in run[:SPELLED]) + (
        "…" if len(run) > SPELLED else ""
    )


def _spelled(text: str, run: "re.Match[str]") -> str:
    if _is_of_a_picture(text, run):
        return run[0]
    return "".join(map(_code, run[0][:SPELLED])) + (
        f"<and {len(run[0]) - SPELLED} more>" if len(run[0]) > SPELLED else ""
    )


def _is_of_a_picture(text: str, run: "re.Match[str]") -> bool:
    """One that makes a sign coloured, or joins two pictures into one, is as usual as the pictures
    are."""
    before = text[run.start() - 1 : run.start()]
    if run[0] not in ("\ufe0f", "\ufe0e", "\u200d", "\ufe0f\u200d") or not before:
        return False
    return unicodedata.category(before) in ("So", "Sm", "Sk", "Po", "Nd")


UNSEEN = ("has characters that cannot be seen", "has hidden text")
"""What hints begin with that are about what nobody sees."""


def one_line(text: str) -> str:
    return " ".join(visible(text).split())


def suspicious(definition: Any) -> tuple[str, ...]:
    """Hints about a definition, each once."""
    found: dict[str, None] = {}
    texts = list(_strings(definition))
    if sum(map(len, texts)) >= LOOKED_AT:
        found[f"is very long: only {LOOKED_AT:,} characters were looked through"] = None
    plain = _APART.join(text for text in texts if text.isascii())  # one search instead of many
    other = _APART.join(text for text in texts if not text.isascii())
    for text in (plain, other):
        for hint in _hints(text):
            found[hint] = None
            if len(found) >= MOST:
                return tuple(found)
    return tuple(found)


def place_of(hint: str, definition: Any) -> tuple[str, ...]:
    """The way down to what a hint of `suspicious` is about, as far as that can be told. Costs a
    look at each level."""
    way: list[str] = []
    for _ in range(DEEPEST):
        table = cast("dict[str, Any]", definition) if isinstance(definition, dict) else {}
        key = next((key for key, value in table.items() if hint in suspicious(value)), None)
        if key is None:
            break
        way.append(key)
        definition = table[key]
    return tuple(way)


def _strings(definition: Any) -> Iterator[str]:
    """Every text in it, names of keys too, up to a bound; deep ones without recursion."""
    left, waiting = LOOKED_AT, [definition]
    while waiting and left > 0:
        value = waiting.pop()
        if isinstance(value, str):
            yield value[:left]
            left -= len(value)
        elif isinstance(value, dict):
            waiting.extend(cast(dict[str, Any], value).keys())
            waiting.extend(cast(dict[str, Any], value).values())
        elif isinstance(value, list):
            waiting.extend(cast(list[Any], value))


def _hints(text: str) -> Iterator[str]:
    if not text.isascii():
        yield from _odd_letters(text)
        text = unicodedata.normalize("NFKC", folded(_RUN.sub("", text)))
    elif (run := _RUN.search(text)) is not None:
        yield f"{UNSEEN[0]}: {_spelled(text, run)[:80]}"
    if len(text) < 5:
        return
    text = _BLANKS.sub(" ", text)
    for hint, pattern in _PHRASES:
        if (said := pattern.search(text)) is not None:
            yield f"{hint}: “{one_line(said[0])[:80]}”"
    if (blob := _BLOB.search(text)) is not None:
        yield f"has {len(blob[0])} characters of what may be encoded text"


def _odd_letters(text: str) -> Iterator[str]:
    if (tags := _TAGS.search(text)) is not None:
        yield f"{UNSEEN[1]}: {visible(tags[0])[:120]}"
    for run in _RUN.finditer(text):
        if not _is_of_a_picture(text, run):
            yield f"{UNSEEN[0]}: {_spelled(text, run)[:80]}"
            break
    for word in _WORD.finditer(text):
        if not word[0].isascii() and is_mixed(word[0]):
            yield f"has letters that pass for others: {spelled_word(word[0][:60])}"
            break


def is_mixed(word: str) -> bool:
    """Whether letters that look Latin and are not stand beside Latin ones, or a Latin letter is in
    a costume."""
    if any(
        "LATIN" in unicodedata.name(c, "") and unicodedata.normalize("NFKC", c) != c
        for c in word
        if ord(c) > 0x250
    ):
        return True  # full width and the like
    if any(unicodedata.name(c, "").startswith("MATHEMATICAL ") for c in word):
        return True
    latin = any(c.isascii() or unicodedata.name(c, "").startswith("LATIN") for c in word)
    return latin and word.translate(_ALIKE) != word


def spelled_word(word: str) -> str:
    """A word with the letters told that are not what they seem."""
    return "".join(
        c if c.isascii() else f"<U+{ord(c):04X} {unicodedata.name(c, 'UNNAMED')}>" for c in word
    )


def folded(text: str) -> str:
    """As it reads: letters that look alike are alike."""
    return unicodedata.normalize("NFKC", text).translate(_ALIKE)
