"""Tool descriptions that were docstrings: sections about parameters, results, and errors.

Understands the sections of Google, numpy, reST, and JSDoc, with or without Markdown, in English and
Chinese, also if all of it is on one line. What an `Args:` section says about a parameter of the
schema is a note of that parameter. Everything else stays text. The work is linear in the text, and
only the first `LONGEST` characters are taken apart.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import cleandoc
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, NamedTuple

LONGEST = 6_000
MOST_NAMES = 64
_NEW_WORDS = 2
"""A note with fewer words that the schema does not have says the same again."""

Section = Literal["text", "args", "returns", "example", "raises"]

_HEADINGS: dict[Section, str] = {
    "args": "args|arguments|keyword args|keyword arguments|param|params|parameter|parameters"
    "|input parameters|tool parameters|参数|参数说明|输入参数|引数|パラメータ",
    "returns": "return|returns|return value|return values|yields|返回|返回值|返回结果|戻り値",
    "example": "example|examples|example usage|usage example|usage examples|sample usage"
    "|示例|例子|使用示例|例",
    "raises": "raises|throws|exceptions|error responses|异常",
}
_KIND: dict[str, Section] = {
    word: kind for kind, words in _HEADINGS.items() for word in words.split("|")
}
_HEADING = re.compile(
    rf"(?P<mark>#{{1,6}}\s{{0,3}})?(?P<bold>[*_`]{{0,3}})(?P<word>{'|'.join(_KIND)})[*_`]{{0,3}}"
    r"(?P<colon>\s?[:：])?[*_`]{0,3}(?P<rest>\s.*|)",
    re.IGNORECASE,
)
_ARGS_LINE = re.compile(
    r"(?:#{1,6}\s{0,3})?[*_`]{0,3}(?:[A-Za-z]+\s){0,3}(?:args|arguments|params|parameters)\b"
    r"[^:：]{0,40}[:：][*_`]{0,3}",
    re.IGNORECASE,
)
"""`The parameters explained:`; what follows decides."""
_FIELD = re.compile(
    r"[:@](?P<word>param|parameter|arg|argument|type|returns?|rtype|raises?|throws)\b(?P<rest>.*)"
)
_NAMED = re.compile(
    r"(?:\{[^{}]{0,100}\}\s*)?(?P<before>[^:\n]{0,100}?)(?::|\s-\s|\Z)\s*(?P<said>.*)"
)
_BULLET = re.compile(r"(?:[-*•+]|\d{1,2}[.)])\s+")
_ENTRY = re.compile(
    r"[`*_\"']{0,3}(?P<name>[A-Za-z_$][\w$.-]{0,99})[`*\"']{0,3}\s{0,20}"
    r"(?:\([^()]{0,100}\)|\[[^\[\]]{0,100}\])?"
    r"[`*]{0,3}\s{0,3}(?::|：|-{1,2}\s|–|—)[`*]{0,3}\s*(?P<said>.*)"
)
_TYPE = re.compile(
    r"(?:[A-Za-z_][\w.]{0,40}(?:\[[^\]]{0,80}\]{1,3})?(?:\s?\|\s?\w+)*|\{[^}]{0,80}\}):(?:\s+|\Z)"
)
_RULE = re.compile(r"[-=~]{3,}")
_INLINE = re.compile(r"(?<=[\s.!?;:。)])(?:Args|Arguments|Parameters|Params|Returns|Raises)\s?:\s")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Docstring:
    text: str
    """What the tool does, with its lines."""
    notes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By parameter, on one line each."""
    returns: str = ""
    examples: str = ""
    raises: str = ""


def read(description: str, parameters: Mapping[str, str]) -> Docstring:
    """`parameters`: what the schema says about each. A note takes its place, or goes behind it."""
    head, tail = description[:LONGEST], description[LONGEST:]
    reader = _Reader(parameters)
    lines = [*_lines(head, parameters), ""]
    for line, following in pairwise(lines):
        reader.take(line, following.strip())
    reader.close()
    notes: dict[str, str] = {}
    for name, note in reader.notes.items():
        if both := _both(note, parameters.get(name, "")):
            notes[name] = both
    returns = _on_one_line(reader.parts["returns"])
    if (found := _TYPE.match(returns)) is not None:
        returns = returns[found.end() :]
    examples, raises = _tidy(reader.parts["example"]), _on_one_line(reader.parts["raises"])
    return Docstring(_tidy(reader.text) + tail, notes, returns, examples, raises)


def _both(note: str, said: str) -> str:
    """What the schema and the description say of a parameter; nothing if the schema says it all."""
    known, told = set(_WORD.findall(said.lower())), set(_WORD.findall(note.lower()))
    if known <= told:
        return note if len(note) > len(said) else ""
    if len(told - known) < _NEW_WORDS:
        return ""
    return f"{said.rstrip('.')}; {note}"


def _on_one_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def _tidy(lines: list[str]) -> str:
    kept: list[str] = []
    for line in lines:
        if line.strip() or (kept and kept[-1]):
            kept.append(line.rstrip())
    return cleandoc("\n".join(kept))


def _lines(text: str, names: Collection[str]) -> Iterator[str]:
    """A section that was flattened into one line is laid out again."""
    known = "|".join(re.escape(name) for name in list(names)[:MOST_NAMES]) or r"\Z\A"
    entry = re.compile(rf"(?<=[\s,;])(?=(?:{known})(?:\s?\([^()]{{0,100}}\))?:\s)")
    for line in text.splitlines():
        starts = [found.start() - 1 for found in _INLINE.finditer(f"\n{line}")]
        if not starts or (starts == [0] and not _ENTRY.match(line.partition(":")[2].strip())):
            yield line
            continue
        indent = line[: len(line) - len(line.lstrip())]
        if before := line[: starts[0]].strip():
            yield indent + before
        for start, end in pairwise([*starts, len(line)]):
            heading, _, rest = line[start:end].strip().partition(":")
            yield f"{indent}{heading}:"
            for part in entry.split(f" {rest}"):
                if part := part.strip(" ,;"):
                    yield f"{indent}    {part}"
            yield ""


class _Begin(NamedTuple):
    """The heading of a section."""

    kind: Section
    rest: str = ""
    """Of the line."""


class _Reader:
    """Takes lines one by one, and knows their section."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self.text: list[str] = []
        self.notes: dict[str, str] = {}
        self.parts: dict[Section, list[str]] = {"returns": [], "example": [], "raises": []}
        self._section: Section = "text"
        self._indent = 0
        """Of the heading."""
        self._entries: int | None = None
        """Indent of the entries of an `args` section."""
        self._underlined = False
        """In numpy's style a type follows the colon of an entry."""
        self._inline = False
        """Whether the section begins beside its heading."""
        self._blank = False
        self._fenced = False
        self._entry: str | None = None
        self._raw: list[str] = []
        """Lines of an `args` section: text, if none of its parameters is known."""
        self._kept: list[str] = []
        """Of these, what the signature does not show."""
        self._known = False

    def take(self, line: str, following: str) -> None:
        bare = line.strip()
        if not bare:
            self._blank = True
            self._put(line)
            return
        indent = len(line) - len(line.lstrip())
        if bare.startswith("```"):
            self._fenced = not self._fenced
        elif not self._fenced and (self._section == "text" or indent <= self._indent):
            if self._underlined and _RULE.fullmatch(bare):
                return
            if (begin := self._begin(bare, following)) is not None:
                self.close()
                self._open(begin, indent, bare)
                self._underlined = _RULE.fullmatch(following) is not None
                self._blank = False
                return
        if self._section == "args":
            self._argument(line, bare, indent)
        else:
            if self._section != "text" and self._ends(indent):
                self.close()
            self._put(line)
        self._blank = False

    def close(self) -> None:
        """The section is at its end."""
        self.text += self._kept if self._known else self._raw
        self._section, self._entry, self._entries = "text", None, None
        self._raw, self._kept, self._known, self._underlined = [], [], False, False

    def _put(self, line: str) -> None:
        if self._section == "text":
            self.text.append(line)
        elif self._section == "args":
            self._raw.append(line)
        else:
            self.parts[self._section].append(line)

    def _begin(self, bare: str, following: str) -> _Begin | None:
        if (found := _FIELD.match(bare)) is not None:
            return self._field(found["word"].lower(), found["rest"].strip(), bare[0] == "@")
        found = _HEADING.fullmatch(bare)
        if found is not None:
            rest = found["rest"].strip()
            alone = not rest and (found["mark"] or found["bold"] or _RULE.fullmatch(following))
            if found["colon"] or alone:
                return _Begin(_KIND[found["word"].lower()], rest)
        if len(bare) < 100 and _ARGS_LINE.fullmatch(bare):
            return _Begin("args")
        return None

    def _field(self, word: str, rest: str, is_jsdoc: bool) -> _Begin | None:
        """`:param name: …`, `@param {type} name - …`: a section of its own."""
        if word.startswith("ret"):
            return _Begin("returns", rest.lstrip(": "))
        if word in ("rtype", "type"):
            return _Begin("args")
        if word.startswith(("raise", "throw")):
            return _Begin("raises", rest.lstrip(": "))
        named = _NAMED.match(rest)
        words = named["before"].split() if named is not None else []
        if named is None or not words:
            return None
        name, said = words[-1].strip("[]`"), named["said"]
        if is_jsdoc and name not in self._names:  # `@param name text` has no mark between them.
            name, said = words[0].strip("[]"), f"{' '.join(words[1:])} {said}"
        if name not in self._names:
            return None
        return _Begin("args", f"{name}: {said}")

    def _open(self, begin: _Begin, indent: int, heading: str) -> None:
        kind, rest = begin
        self._section, self._indent, self._inline = kind, indent, bool(rest)
        if kind != "args":
            self.parts[kind] += [rest] if rest else []
            return
        is_type = heading[0] in ":@" and not rest
        self._raw = [] if is_type else [heading]
        found = _ENTRY.match(rest)
        if found is not None and found["name"] in self._names:
            self._note(found["name"], found["said"])
            self._entries = indent
        elif rest:
            self._kept.append(rest)

    def _argument(self, line: str, bare: str, indent: int) -> None:
        bullet = _BULLET.match(bare)
        found = _ENTRY.match(bare[bullet.end() :] if bullet is not None else bare)
        known = found is not None and found["name"] in self._names
        at_entries = self._entries is None or indent <= self._entries
        outside = indent <= self._indent and (bullet is None or self._blank)
        if not known and outside and (self._blank or at_entries):
            self.close()
            self.text.append(line)
            return
        self._raw.append(line)
        if known and found is not None and (at_entries or self._entry is None):
            self._note(found["name"], "" if self._underlined else found["said"])
            self._entries = indent
        elif self._entry is not None and (not at_entries or found is None):
            self.notes[self._entry] = f"{self.notes[self._entry]} {bare}".strip()
        else:
            self._entry = None
            self._kept.append(line)

    def _note(self, name: str, said: str) -> None:
        self._entry, self._known = name, True
        self.notes[name] = " ".join(said.split())

    def _ends(self, indent: int) -> bool:
        """Whether a line is behind the section, which goes on indented, or to the next blank
        line."""
        if indent > self._indent:
            return False
        last = self.parts[self._section][-1:]
        ended = bool(last) and last[0].rstrip().endswith((".", "。", "!", "?"))
        return self._blank or (self._inline and ended)
