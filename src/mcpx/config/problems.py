"""What is wrong with a configuration, and how it is told.

Promised: every finding of one file at once, in the order of its lines, with the place, the field and, where
it can be guessed, what was meant; the value of a secret is never printed. Not done here: looking for
mistakes.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from mcpx.config.tree import KeyPath, Origins, shorten, spell
from mcpx.model.errors import ConfigError

MAX_FINDINGS = 50
"""More than a person reads; a file of another kind altogether has thousands."""
MAX_SHOWN = 100
"""Width of a source line as shown."""
MAX_LINE = 1_000
"""A longer line is not shown at all: in minified JSON a secret is never far."""

# Patterns stay text: only somebody with a mistake to hear of pays for compiling them.
_SECRET_KEY = r"(?i)(?<![a-z_])env|headers|params|body|token|passw|secret|api.?key|authorization|cookie|credential"
"""Whatever stands below such a key may be a secret."""
_SECRET_LINE = (
    r"(?i)(?:token|passw|pwd|secret|api.?key|authorization|cookie|credential|bearer|basic)\w*[\"']?[\s:=,]+\S"
    r"|(?:env|headers|params|body)[\"']?\s*:\s*[{\[]"
    r"|://[^/\s]*@"
)
"""A line that carries a secret's value beside its name, or a whole block of possible secrets."""


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of one line; line and column count from 1."""

    line: int
    column: int
    length: int = 1


@dataclass(frozen=True, slots=True)
class Finding:
    message: str
    path: KeyPath = ()
    """As the user wrote it, before any translation."""
    hint: str = ""
    """What to do about it; stands beside the place."""
    at: Literal["key", "value"] = "value"
    place: Place | None = None
    """Known from the start while the text is read; for the rest the path is looked up when it is told."""


class GaveUpError(Exception):
    """Looking further is impossible or helps nobody; why is among the findings."""


class Findings:
    """Collects; the same finding twice counts once."""

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}
        self._origins: Origins | None = None

    def __bool__(self) -> bool:
        return bool(self._found)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found)

    def include(self, others: "Findings") -> None:
        self._found |= others._found

    def through(self, origins: Origins) -> "Findings":
        """The same collection, told paths of the translated tree."""
        view = Findings()
        view._found, view._origins = self._found, origins
        return view

    def add(
        self,
        message: str,
        path: KeyPath = (),
        *,
        hint: str = "",
        at: Literal["key", "value"] = "value",
        place: Place | None = None,
    ) -> None:
        written = self._origins[path] if self._origins else path
        self._found[Finding(message, written, hint, at, place)] = None
        if len(self._found) >= MAX_FINDINGS:
            raise GaveUpError

    def unknown_key(self, key: str, path: KeyPath, known: Iterable[str], hint: str = "") -> str | None:
        """Reports a key nobody knows; gives back the one that was probably meant."""
        meant = None if hint else nearest(key, known)
        hint = f"did you mean '{meant}'?" if meant else hint
        self.add(f"unknown key {shorten(key)!r}", (*path, key), hint=hint, at="key")
        return meant


def nearest(word: str, known: Iterable[str]) -> str | None:
    if len(word) > 60:  # a typo has the length of the word; difflib on a megabyte takes for ever
        return None
    from difflib import get_close_matches  # only somebody who made a mistake pays for it

    by_lower = {name.lower(): name for name in known}
    match = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[match[0]] if match else None


def may_be_secret(path: KeyPath) -> bool:
    return any(isinstance(step, str) and re.search(_SECRET_KEY, step) for step in path)


class Text(Protocol):
    """What telling needs to know of the file."""

    @property
    def name(self) -> str: ...
    def line(self, number: int) -> str: ...
    def place(self, path: KeyPath, at: Literal["key", "value"]) -> Place | None: ...


def config_error(findings: Findings, source: Text) -> ConfigError:
    """Everything found, ready to print; the last line counts."""
    told = [(finding.place or source.place(finding.path, finding.at), finding) for finding in findings]
    told.sort(key=lambda pair: (pair[0].line, pair[0].column) if pair[0] else (0, 0))
    problems = [_tell(finding, place, source) for place, finding in told]
    count = len(problems)
    more = "; there may be more" if count >= MAX_FINDINGS else ""
    problems[-1] += f"\n\n{count} error{'s' * (count != 1)} in {source.name}{more}."
    return ConfigError(problems)


def _tell(finding: Finding, place: Place | None, source: Text) -> str:
    head = f"error: {_visible(finding.message)}"
    position = f":{place.line}:{place.column}" if place else ""
    field = f"  ({_visible(spell(finding.path))})" if finding.path else ""
    line = _source_line(finding, place, source)
    gutter = (len(str(place.line)) if place and line else 1) + 1
    told = [head, f"{' ' * gutter}--> {source.name}{position}{field}"]
    bar = f"{' ' * (gutter + 1)}|"
    if place and line:
        shown, before, marked = line
        carets = f"{' ' * _width(before)}{'^' * max(1, _width(marked))} {finding.hint}"
        told += [bar, f"{place.line:>{gutter}} | {shown}", f"{bar} {carets}".rstrip()]
    elif finding.hint:
        told.append(f"{' ' * (gutter + 1)}= {finding.hint}")
    return "\n".join(told)


def _source_line(finding: Finding, place: Place | None, source: Text) -> tuple[str, str, str] | None:
    """The line as it may be shown, what stands before the carets, what above them; None to hide it."""
    line = source.line(place.line) if place else ""
    if not place or not line.strip() or len(line) > MAX_LINE:
        return None
    if may_be_secret(finding.path) or re.search(_SECRET_LINE, line):
        return None
    start = place.column - 1
    if not finding.path:
        # A syntax error is not known to stand outside of a secret: keys are shown, values are not.
        key = re.match(r"[^:=]*[:=]", line)
        if key:
            line = f"{key[0]} …"
            start = min(start, len(line) - 1)
    line = _visible(line)
    cut = max(0, start - MAX_SHOWN // 2) if len(line) > MAX_SHOWN else 0
    lead = "…" if cut else ""
    shown = lead + shorten(line[cut:].rstrip(), MAX_SHOWN)
    start += len(lead) - cut
    return shown, shown[:start].ljust(start), shown[start : start + place.length]


def _visible(text: str) -> str:
    """Without what a terminal would obey; a tab becomes the one column it counts for."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def _width(text: str) -> int:
    """Columns on a terminal: Chinese characters take two."""
    if text.isascii():
        return len(text)
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)
