"""Text to terms: what a name, a description and a query are cut into before they are compared.

Promised: the same word gives the same term wherever it stands, whatever its case, its ending or the
way it is joined to others (`readFile`, `read_file`, `reading files`); Chinese, Japanese and Korean
text gives single characters and pairs; the work is linear in the text. Not promised: linguistics.
The stemmer only takes off the endings that verbs and nouns of tool descriptions carry, and a term
need not be a word.
"""

import re
import unicodedata
from functools import lru_cache

LONGEST_WORD = 40
"""Longer runs of letters are data, not words: only their beginning counts."""

_CJK = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_ASCII_WORDS = re.compile(r"[A-Za-z0-9]+")
_WORDS = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_CJK_START = re.compile(rf"[{_CJK}]")
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_VOWEL = re.compile(r"[aeiouy]")

_SAY_NOTHING = (
    "a about after all also an and any are as at be been but by can could did do does each etc "
    "for from had has have"
    " help how i if in into is it its just like likes may me more my need of on or our out please "
    "provide should so"
    " some such than that the their them then there these they this those to use used using via "
    "want was we were what"
    " when where which while who will with would you your"
)
STOP_WORDS = frozenset(_SAY_NOTHING.split())

_IRREGULAR = {
    "news": "news",
    "setting": "setting",
    "settings": "setting",
    "analysis": "analyz",
    "analyses": "analyz",
    "analyse": "analyz",
    "analyst": "analyz",
    "children": "child",
    "people": "person",
    "conversion": "convert",
    "conversions": "convert",
}


_NO_DOERS = ("eer", "ior", "ther", "ator")
"""Ends of words in -er and -or that do not come from what somebody does, or are cut below."""


def words(text: str) -> list[str]:
    """The raw words of a text in order: runs of letters and digits, CJK runs apart from others."""
    if text.isascii():
        return _ASCII_WORDS.findall(text)
    # One character can become eighteen; no text that is meant to be read grows much.
    return _WORDS.findall(unicodedata.normalize("NFKC", text)[: 2 * len(text)])


def is_cjk(word: str) -> bool:
    """Whether a raw word is a CJK run. `words` never mixes them with letters."""
    return _CJK_START.match(word) is not None


def grams(run: str) -> list[str]:
    """The characters of a CJK run and its pairs of neighbours."""
    return [*run, *(run[at : at + 2] for at in range(len(run) - 1))]


def pieces(word: str) -> tuple[str, ...]:
    """A raw word that is no CJK run in lower case: the whole, then its parts if it has several
    (`readFile`)."""
    word = word[:LONGEST_WORD]
    if not word.isascii():
        return (_unaccented(word),)
    whole = word.lower()
    parts = _PARTS.findall(word)
    if len(parts) == 1:
        return (whole,)
    return (whole, *(part.lower() for part in parts if len(part) > 1))


def terms(word: str) -> tuple[str, ...]:
    """What one raw word is indexed as."""
    return tuple(grams(word)) if is_cjk(word) else stems(pieces(word))


def stems(some: tuple[str, ...]) -> tuple[str, ...]:
    """Words in lower case as terms; stop words are left out."""
    return tuple(stem(word) for word in some if word not in STOP_WORDS)


def plain(text: str) -> str:
    """A name without case and separators: `Read-File`, `read_file` and `readFile` are the same."""
    return "".join(words(text)).casefold()


def _unaccented(word: str) -> str:
    apart = unicodedata.normalize("NFKD", word.casefold())
    return "".join(character for character in apart if not unicodedata.combining(character))[
        :LONGEST_WORD
    ]


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """The word without the endings that do not tell tools apart (`files`, `creating`,
    `creation`)."""
    if len(word) < 4 or not word.isalpha():
        return word
    known = _IRREGULAR.get(word)
    return known if known is not None else _base(_singular(word))


def _singular(word: str) -> str:
    if not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1]


def _base(word: str) -> str:
    word = _derived(word)
    for ending, shortest in (("ing", 6), ("ed", 5)):
        if word.endswith(ending) and len(word) >= shortest:
            rest = word[: -len(ending)]
            if _VOWEL.search(rest):
                word = _undoubled(rest)
            break
    if word.endswith(("tion", "sion")) and len(word) > 6:
        word = word[:-3]
    elif word.endswith("ator") and len(word) > 6:
        word = word[:-2]
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    if word.endswith("y") and len(word) > 3:
        word = word[:-1] + "i"
    return word


def _derived(word: str) -> str:
    """Without what makes another kind of word of it (`livability`, `converter`, `quickly`); in
    American spelling."""
    if word.endswith("ly") and len(word) > 5:
        word = word[:-2]
    if word.endswith("isation"):
        return word[:-7] + "ization"
    if (word.endswith("ise") and len(word) > 6) or (
        word.endswith(("ising", "ised")) and len(word) > 8
    ):
        at = word.rindex("is")
        return word[:at] + "iz" + word[at + 2 :]
    if word.endswith("our") and len(word) > 5:
        return word[:-3] + "or"
    for ending, shortest in (("ability", 9), ("ibility", 9), ("able", 7), ("ible", 7)):
        if word.endswith(ending) and len(word) >= shortest:
            return word[: -len(ending)]
    if word.endswith(("er", "or")) and len(word) > 5 and not word.endswith(_NO_DOERS):
        rest = _undoubled(word[:-2])
        if _VOWEL.search(rest) and not rest.endswith(("ing", "ed")):
            return rest
    return word


def _undoubled(word: str) -> str:
    doubled = len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz"
    return word[:-1] if doubled else word
