"""Tool descriptions that were docstrings: what is told of parameters, results and errors apart from
the rest.

Promised: what stands in an `Args:` block about a parameter that the schema has is a note of that
parameter; whatever is not understood stays text, where it was; the work is linear in the text, and
of a long one only the beginning is taken apart. Understood are the blocks of Google, numpy, reST
and JSDoc, with or without Markdown, in English and Chinese, also where all of it stands on one
line. Not promised: their formatting.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import cleandoc
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

LONGEST = 6_000
"""Characters of a description that are taken apart."""
MOST_NAMES = 64
_NEWS = 2
"""Words of a note that the schema does not say: with fewer it says the same again."""

Section = Literal["text", "args", "returns", "example", "raises"]

_HEADINGS: dict[Section, str] = {
    "args": "args|arguments|keyword args|keyword "
    "arguments|param|params|parameter|parameters|input parameters"
    "|tool parameters|参数|参数说明|输入参数|引数|パラメータ",
    "returns": "return|returns|return value|return values|yields|返回|返回值|返回结果|戻り値",
    "example": (
        "example|examples|example usage|usage example|usage examples|sample "
        "usage|示例|例子|使用示例|例"
    ),
    "raises": "raises|throws|exceptions|error responses|异常",
}
_KIND: dict[str, Section] = {
    word: kind for kind, words in _HEADINGS.items() for word in words.split("|")
}
_HEADING = re.compile(
    rf"(?P<mark>#{{1,6}}\s{{0,3}})?(?P<bold>[*_`]{{0,3}})(?P<word>{'|'.join(_HEADINGS.values())})[*_`]{{0,3}}"
    r"(?P<colon>\s?[:：])?[*_`]{0,3}(?P<rest>\s.*|)",
    re.IGNORECASE,
)
_ARGS_LINE = re.compile(
    r"(?:#{1,6}\s{0,3})?[*_`]{0,3}(?:[A-Za-z]+\s){0,3}(?:args|arguments|params|parameters)\b[^:：]{0,40}[:：][*_`]{0,3}",
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
    r"[`*_\"']{0,3}(?P<name>[A-Za-z_$][\w$.-]{0,99})[`*\"']{0,3}\s{0,20}(?P<type>\([^()]{0,100}\)|\[[^\[\]]{0,100}\])?"
    r"[`*]{0,3}\s{0,3}(?P<colon>:|：|-{1,2}\s|–|—)[`*]{0,3}\s*(?P<said>.*)"
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
    """`parameters`: what the schema says about each. A note stands for that where it says more, or
    goes behind it."""
    head, tail = description[:LONGEST], description[LONGEST:]
    reader = _Reader(parameters)
    for line in _lines(head, parameters):
        reader.take(line)
    reader.close()
    both = {name: _both(note, parameters.get(name, "")) for name, note in reader.notes.items()}
    notes = {name: note for name, note in both.items() if note}
    return Docstring(
        _tidy(reader.text) + tail,
        notes,
        _untyped(_on_one_line(reader.parts["returns"])),
        _tidy(reader.parts["example"]),
        _on_one_line(reader.parts["raises"]),
    )


def _both(note: str, said: str) -> str:
    """What the schema and the description say of a parameter; nothing where the schema says it
    all."""
    known, told = set(_WORD.findall(said.lower())), set(_WORD.findall(note.lower()))
    if known <= told:
        return note if len(note) > len(said) else ""
    return f"{said.rstrip('.')}; {note}" if len(told - known) >= _NEWS else ""


def _on_one_line(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def _untyped(returns: str) -> str:
    """`str: The name` without its type."""
    found = _TYPE.match(returns)
    return returns if found is None else returns[found.end() :]


def _tidy(lines: list[str]) -> str:
    kept: list[str] = []
    for line in lines:
        if line.strip() or (kept and kept[-1]):
            kept.append(line.rstrip())
    return cleandoc("\n".join(kept))


def _lines(text: str, names: Collection[str]) -> Iterator[str]:
    """Its lines; a block that was flattened into one of them is laid out again."""
    for line in text.splitlines():
        starts = [found.start() - 1 for found in _INLINE.finditer(f"\n{line}")]
        if not starts or (starts == [0] and _ENTRY.match(line.partition(":")[2].strip()) is None):
            yield line
            continue
        indent = line[: len(line) - len(line.lstrip())]
        known = [re.escape(name) for name in list(names)[:MOST_NAMES]]
        entry = (
            re.compile(rf"(?<=[\s,;])(?=(?:{'|'.join(known)})(?:\s?\([^()]{{0,100}}\))?:\s)")
            if known
            else None
        )
        if before := line[: starts[0]].strip():
            yield indent + before
        for start, end in pairwise([*starts, len(line)]):
            heading, _, rest = line[start:end].strip().partition(":")
            yield f"{indent}{heading}:"
            parts = (
                entry.split(f" {rest}")
                if entry is not None and heading.lower()[0] in "ap"
                else [rest]
            )
            yield from (f"{indent}    {part.strip(' ,;')}" for part in parts if part.strip(" ,;-"))
            yield ""


class _Reader:
    """Takes lines one by one, and knows in which block it is."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self.text: list[str] = []
        self.notes: dict[str, str] = {}
        self.parts: dict[Section, list[str]] = {"returns": [], "example": [], "raises": []}
        self._section: Section = "text"
        self._indent = 0
        """Of the heading."""
        self._entries: int | None = None
        """Indent of the entries of an `Args` block."""
        self._numpy = False
        self._inline = False
        """Whether the block begins beside its heading."""
        self._blank = False
        self._fenced = False
        self._entry: str | None = None
        self._raw: list[str] = []
        """The lines of the block as they came: if nothing in it is known it is text after all."""
        self._kept: list[str] = []
        """Of a block, what the signature does not tell."""
        self._known = False

    def take(self, line: str) -> None:
        bare = line.strip()
        if not bare:
            self._blank = True
            self._put(line)
            return
        indent = len(line) - len(line.lstrip())
        if bare.startswith("```"):
            self._fenced = not self._fenced
        elif not self._fenced and self._begins(bare, indent):
            self._blank = False
            return
        if self._section == "text":
            self.text.append(line)
        elif self._section == "args":
            self._argument(line, bare, indent)
        elif self._ends(indent):
            self.close()
            self.text.append(line)
        else:
            self._put(line)
        self._blank = False

    def close(self) -> None:
        """The block is at its end."""
        if self._section == "args":
            self.text.extend(self._kept if self._known else self._raw)
        self._section, self._entry, self._entries, self._numpy = "text", None, None, False
        self._raw, self._kept, self._known = [], [], False

    def _put(self, line: str) -> None:
        if self._section == "text":
            self.text.append(line)
        elif self._section == "args":
            self._raw.append(line)
        else:
            self.parts[self._section].append(line)

    def _begins(self, bare: str, indent: int) -> bool:
        """A heading or a field begins a block."""
        if bare[0] in ":@" and (found := _FIELD.match(bare)) is not None:
            return self._field(found, bare)
        if self._numpy and _RULE.fullmatch(bare):
            return True
        if (
            self._section == "text"
            and _RULE.fullmatch(bare)
            and self.text
            and (kind := _KIND.get(_last(self.text)))
        ):
            self.text.pop()
            self._open(kind, indent, "")
            self._numpy = True
            return True
        if self._section != "text" and indent > self._indent:
            return False
        found = _HEADING.fullmatch(bare)
        if (found is None or not found["colon"]) and len(bare) < 100 and _ARGS_LINE.fullmatch(bare):
            self.close()
            self._open("args", indent, "", bare)
            return True
        if found is None or not (
            found["colon"] or ((found["mark"] or found["bold"]) and not found["rest"].strip())
        ):
            return self._numpy and indent <= self._indent and self._underlined(bare)
        self.close()
        self._open(_KIND[found["word"].lower()], indent, found["rest"].strip(), bare)
        return True

    def _underlined(self, bare: str) -> bool:
        """In numpy's way the next block has no colon either; its rule follows."""
        kind = _KIND.get(bare.lower())
        if kind is None:
            return False
        indent = self._indent
        self.close()
        self._open(kind, indent, "", bare)
        self._numpy = True
        return True

    def _open(self, kind: Section, indent: int, rest: str, heading: str = "") -> None:
        self._section, self._indent, self._inline = kind, indent, bool(rest)
        self._raw = [heading] if heading else []
        if kind != "args":
            if rest:
                self.parts[kind].append(rest)
        elif rest and (found := _ENTRY.match(rest)) is not None and found["name"] in self._names:
            self._note(found["name"], found["said"])
        elif rest:
            self._kept.append(rest)

    def _field(self, found: re.Match[str], bare: str) -> bool:
        """`:param name: …`, `@param {type} name - …`: a block of its own."""
        word, rest = found["word"].lower(), found["rest"].strip()
        self.close()
        if word.startswith("ret"):
            self._open("returns", 0, rest.lstrip(": "), bare)
            return True
        if word in ("rtype", "type"):
            return True
        if word.startswith(("raise", "throw")):
            self._open("raises", 0, rest.lstrip(": "), bare)
            return True
        named = _NAMED.match(rest)
        words = named["before"].split() if named is not None else []
        if named is None or not words:
            return False
        # `@param name text` has no mark between them.
        jsdoc = bare[0] == "@" and len(words) > 1 and words[-1].strip("[]") not in self._names
        name = words[0].strip("[]") if jsdoc else words[-1].strip("[]`")
        said = f"{' '.join(words[1:])} {named['said']}" if jsdoc else named["said"]
        if name not in self._names:
            return False
        self._open("args", 0, "", bare)
        self._note(name, said)
        self._entries = 0
        return True

    def _argument(self, line: str, bare: str, indent: int) -> None:
        bullet = _BULLET.match(bare)
        found = _ENTRY.match(bare[bullet.end() :] if bullet is not None else bare)
        known = found is not None and found["name"] in self._names
        if found is None and self._numpy and bare in self._names:
            self._raw.append(line)
            self._note(bare, "")
            self._entries = indent
            return
        at_entries = self._entries is None or indent <= self._entries
        if (
            not known
            and indent <= self._indent
            and (bullet is None or self._blank)
            and (self._blank or at_entries)
        ):
            self.close()
            self.text.append(line)
            return
        self._raw.append(line)
        if known and found is not None and (at_entries or self._entry is None):
            self._note(found["name"], "" if self._numpy else found["said"])
            self._entries = indent
        elif self._entry is not None and (not at_entries or found is None):
            self.notes[self._entry] = f"{self.notes[self._entry]} {bare}".strip()
        else:
            # A parameter the signature does not have.
            self._entry = None
            self._kept.append(line)

    def _note(self, name: str, said: str) -> None:
        self._entry, self._known = name, True
        self.notes[name] = " ".join(said.split())

    def _ends(self, indent: int) -> bool:
        """Whether a line stands behind the block: it goes on indented, or to the next blank
        line."""
        if indent > self._indent:
            return False
        lines = self.parts[self._section]
        return self._blank or (self._inline and lines[-1].rstrip().endswith((".", "。", "!", "?")))


def _last(lines: list[str]) -> str:
    return lines[-1].strip().lower()
