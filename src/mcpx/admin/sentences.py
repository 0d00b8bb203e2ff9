"""The gateway's own sentences by a code and their values, for whoever says them in another
language.

Answers are English. Beside a sentence that stands in `sentences.json` its code is told, and what
stands in its gaps; a page looks the code up in its own language, and shows the English where it
does not know it.

Promise: a sentence is known by how it reads, after secrets were blotted out of it: values are parts
of what is told anyway. Whatever else it is, a stranger's words for one, has no code. Takes linear
time for any text.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from mcpx.model.call import as_list, as_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    Values = Mapping[str, "str | Sentence"]

LONGEST = 1_000
"""Characters of a text that is looked at."""
DEEPEST = 3
"""Sentences within sentences."""
WITHIN = "_said"
"""How the name of a gap ends that holds a sentence, not any text."""
COUNT = "n"
"""The name of a gap that holds a number."""
_GAP = re.compile(r"(?<!\$)\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Sentence:
    code: str
    values: "Values"


@dataclass(frozen=True, slots=True)
class _Template:
    code: str
    words: tuple[str, ...]
    """What stands before, between and behind the gaps."""
    gaps: tuple[str, ...]

    def values(self, text: str) -> dict[str, str] | None:
        """What stands in the gaps, each as short as can be; None: this is another sentence."""
        first, *rest, last = self.words
        end = len(text) - len(last)
        if (
            not text.startswith(first)
            or not text.endswith(last)
            or end < len(first) + len(self.gaps)
        ):
            return None
        at, found = len(first), list[str]()
        for word in rest:
            there = text.find(word, at + 1, end)
            if there < 0:
                return None
            found.append(text[at:there])
            at = there + len(word)
        found.append(text[at:end])
        values = dict(zip(self.gaps, found, strict=True))
        return values if found[-1] and (COUNT not in values or _is_count(values[COUNT])) else None


def _is_count(text: str) -> bool:
    return text.replace(",", "").isdecimal()


def templates() -> Iterator[tuple[str, str]]:
    """Every code, and its sentence with `{gaps}`."""
    groups: dict[str, dict[str, str]] = json.loads(
        files("mcpx.admin").joinpath("sentences.json").read_text("utf-8")
    )
    for group, sentences in groups.items():
        for name, text in sentences.items():
            yield f"{group}.{name}", text


@cache
def _known() -> tuple[dict[str, str], list[_Template]]:
    """Sentences without gaps by their text, and the others: the one that says most first, for few
    words fit much."""
    whole: dict[str, str] = {}
    made: list[_Template] = []
    for code, text in templates():
        words, gaps = _GAP.split(text)[::2], _GAP.findall(text)
        if gaps:
            made.append(_Template(code, tuple(words), tuple(gaps)))
        else:
            whole[text] = code
    return whole, sorted(made, key=lambda template: sum(map(len, template.words)), reverse=True)


@lru_cache(1024)
def recognised(text: str, deepest: int = DEEPEST) -> Sentence | None:
    if len(text) > LONGEST:
        return None
    whole, made = _known()
    if (code := whole.get(text)) is not None:
        return Sentence(code, {})
    for template in made:
        values = template.values(text)
        if values is not None and (filled := _filled(values, deepest)) is not None:
            return Sentence(template.code, filled)
    return None


def _filled(values: dict[str, str], deepest: int) -> "Values | None":
    """None: where a sentence should be there is none."""
    made: dict[str, str | Sentence] = {}
    for name, text in values.items():
        if not name.endswith(WITHIN):
            made[name] = text
        elif deepest and (within := recognised(text, deepest - 1)) is not None:
            made[name] = within
        else:
            return None
    return made


def said(told: "Mapping[str, Any]") -> dict[str, Sentence]:
    """Of these fields, texts and lists of texts, those that are known: by `name`, or `name.0` in a
    list. `links.why` is a field of the objects in a list: `links.0.why`."""
    found: dict[str, Sentence] = {}
    for place, value in told.items():
        name, _, inner = place.partition(".")
        if inner:
            texts = {
                f"{name}.{at}.{inner}": as_object(each).get(inner)
                for at, each in enumerate(as_list(value))
            }
        else:
            texts = {f"{name}.{at}": each for at, each in enumerate(as_list(value))} or {
                name: value
            }
        for place, text in texts.items():
            if isinstance(text, str) and text and (sentence := recognised(text)) is not None:
                found[place] = sentence
    return found
