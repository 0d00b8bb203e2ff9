"""What is wrong with a configuration, and how it is told.

Promised: every finding at once, by file and in the order of its lines, with the place, the field
and, where it can be guessed, what was meant; the value of a secret is never printed. Not done here:
looking for mistakes.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from mcpx.config.tree import KeyPath, shorten, spell
from mcpx.model.errors import ConfigError
from mcpx.model.secret_shapes import find_shapes

MAX_FINDINGS = 50
"""More than a person reads; a file of another kind altogether has thousands."""
MAX_SHOWN = 100
"""Width of a source line as shown."""
MAX_LINE = 1_000
"""A longer line is not shown at all: in minified JSON a secret is never far."""

# Patterns stay text: only somebody with a mistake to hear of pays for compiling them.
_SECRET_KEY = (
    r"(?i)(?<![a-z_])env|(?<![a-z_])args|stdin|headers|params|body"
    r"|token|passw|secret|api.?key|authorization|cookie|credential"
)
"""Whatever stands below such a key may be a secret."""
_SECRET_LINE = (
    r"(?i)(?:token|passw|pwd|secret|api.?key|authorization|cookie|credential|bearer|basic)\w*"
    r"[\"']?[\s:=,]+\S"
    r"|(?:env|environment|headers|params|body|stdin)[\"']?\s*:\s*[{\[\"']"
    r"|-H\b|--?[\w-]*(?:token|passw|secret|key|auth|header|cookie)[\w-]*[\"']?[\s,=]"
    r"|://[^/\s]*@|enc:v\d"
)
"""A line that carries a secret's value beside its name, or a whole block of possible secrets."""


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of one line; line and column count from 1."""

    line: int
    column: int
    length: int = 1


class Text(Protocol):
    """A file, as far as telling of it goes."""

    @property
    def name(self) -> str: ...
    def line(self, number: int) -> str: ...
    def place(self, path: KeyPath, at: Literal["key", "value"]) -> Place | None: ...
    def literal(self, path: KeyPath) -> str | None: ...


Spot = tuple[Text, KeyPath]
"""A file, and a path in it as the user wrote it."""


@dataclass(frozen=True, slots=True)
class Finding:
    message: str
    file: Text
    path: KeyPath
    """As the user wrote it, before any translation."""
    hint: str = ""
    """What to do about it; stands beside the place."""
    at: Literal["key", "value"] = "value"
    place: Place | None = None
    """Known from the start while the text is read; for the rest the path is looked up when it is
    told."""
    rival: Spot | None = None
    """What it gets in the way of."""


class GaveUpError(Exception):
    """Looking further is impossible or helps nobody; why is among the findings."""


class Refused(ConfigError):
    """A configuration that was not taken."""

    def __init__(
        self, problems: list[str], sources: Iterable[Path] = (), told: Iterable["Told"] = ()
    ) -> None:
        super().__init__(problems)
        self.sources = tuple(sources)
        """Files and folders that were read or looked for: a change there may mend it."""
        self.told = tuple(told)
        """The same problems in their parts."""


@dataclass(frozen=True, slots=True)
class Told:
    """One mistake in its parts, for whoever shows it beside the text."""

    message: str
    hint: str = ""
    path: str = ""
    file: str = ""
    line: int | None = None
    column: int | None = None
    length: int = 1


class Findings:
    """Collects; the same finding twice counts once."""

    def __init__(self, spot: Callable[[KeyPath], Spot]) -> None:
        """`spot`: where a path that is told leads to."""
        self._found: dict[Finding, None] = {}
        self.spot = spot

    def __bool__(self) -> bool:
        return bool(self._found)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._found)

    @property
    def full(self) -> bool:
        return len(self._found) >= MAX_FINDINGS

    def include(self, others: "Findings") -> None:
        self._found |= others._found
        if self.full:
            raise GaveUpError

    def through(self, spot: Callable[[KeyPath], Spot]) -> "Findings":
        """The same collection, told paths of another tree."""
        view = Findings(spot)
        view._found = self._found
        return view

    def add(
        self,
        message: str,
        path: KeyPath = (),
        *,
        hint: str = "",
        at: Literal["key", "value"] = "value",
        place: Place | None = None,
        rival: Spot | None = None,
    ) -> None:
        self._found[Finding(message, *self.spot(path), hint, at, place, rival)] = None
        if self.full:
            raise GaveUpError

    def unknown_key(
        self, key: str, path: KeyPath, known: Iterable[str], hint: str = ""
    ) -> str | None:
        """Reports a key nobody knows; gives back the one that was probably meant."""
        known = list(known)
        meant = None
        if not hint:
            meant = nearest(key, known)
        if meant:
            hint = f"did you mean '{meant}'?"
        elif not hint and 1 < len(known) <= FEW:
            hint = f"known: {', '.join(known)}"
        self.add(f"unknown key {shorten(key)!r}", (*path, key), hint=hint, at="key")
        return meant


FEW = 9
"""Keys of a section that are all named to whoever wrote another."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    if len(word) > 60:  # a typo has the length of the word; difflib on a megabyte takes for ever
        return None
    from difflib import get_close_matches  # only somebody who made a mistake pays for it

    lower = word.lower()
    by_lower = {name.lower(): name for name in known}
    swapped = (name for name in by_lower if len(name) > 2 and sorted(name) == sorted(lower))
    found = [*get_close_matches(lower, by_lower, n=1, cutoff=0.7), *swapped]
    if not found:
        return None
    return by_lower[found[0]]


def may_be_secret(path: KeyPath) -> bool:
    return any(isinstance(step, str) and re.search(_SECRET_KEY, step) for step in path)


def tell(findings: Findings) -> list[str]:
    """All findings, ready to print. The last one ends with their number."""
    ordered = _in_order(findings)
    problems = [_tell(finding) for finding in ordered]
    count = len(problems)
    files = ", ".join(dict.fromkeys(finding.file.name for finding in ordered))
    more = "; there may be more" * (count >= MAX_FINDINGS)
    problems[-1] += f"\n\n{count} error{'s' * (count != 1)} in {files}{more}."
    return problems


def _in_order(findings: Findings) -> list[Finding]:
    def position(finding: Finding) -> tuple[str, int, int]:
        place = _place(finding)
        if place is None:
            return finding.file.name, 0, 0
        return finding.file.name, place.line, place.column

    return sorted(findings, key=position)


def _place(finding: Finding) -> Place | None:
    return finding.place or finding.file.place(finding.path, finding.at)


def explain(findings: Findings) -> list[Told]:
    """All findings in their parts, in the order of `tell`."""
    return [explain_finding(finding) for finding in _in_order(findings)]


def explain_finding(finding: Finding) -> Told:
    message, path = _visible(finding.message), _visible(spell(finding.path))
    told = Told(message, _hint(finding), path, finding.file.name)
    place = _place(finding)
    if place is None:
        return told
    return replace(told, line=place.line, column=place.column, length=max(1, place.length))


def brief(finding: Finding) -> str:
    """The message and the position, for a sentence."""
    return _visible(f"{finding.message} ({_position(finding.file, _place(finding))})")


def _tell(finding: Finding) -> str:
    place = _place(finding)
    line = _source_line(finding, place)
    gutter = 2
    if place and line:
        gutter = len(str(place.line)) + 1
    where = _position(finding.file, place)
    if finding.path:
        where = f"{where}  ({_visible(spell(finding.path))})"
    blanks, hint = " " * gutter, _hint(finding)
    lines = [f"error: {_visible(finding.message)}", f"{blanks}--> {where}"]
    if place and line:
        carets = " " * _width(line.before) + "^" * max(1, _width(line.marked))
        lines += [f"{blanks} |", f"{place.line:>{gutter}} | {line.text}"]
        lines.append(f"{blanks} | {carets} {hint}".rstrip())
    elif hint:
        lines.append(f"{blanks} = {hint}")
    return "\n".join(lines)


def _hint(finding: Finding) -> str:
    if not finding.rival:
        return finding.hint
    file, path = finding.rival
    return f"{finding.hint}; the other stands at {_position(file, file.place(path, 'value'))}"


def _position(file: Text, place: Place | None) -> str:
    if place is None:
        return file.name
    return f"{file.name}:{place.line}:{place.column}"


class _SourceLine(NamedTuple):
    text: str
    before: str
    """The text before the carets."""
    marked: str


def _source_line(finding: Finding, place: Place | None) -> _SourceLine | None:
    """The line of a finding as it may be shown. None if it may contain a secret."""
    if place is None:
        return None
    line = finding.file.line(place.line)
    if not line.strip() or len(line) > MAX_LINE or may_be_secret(finding.path):
        return None
    if re.search(_SECRET_LINE, line) or any(True for _ in find_shapes(line)):
        return None
    start = place.column - 1
    if not finding.path and (key := re.match(r"[^:=]*[:=]", line)):
        # The position of a syntax error may be in a secret. Only the key is shown.
        line = f"{key[0]} …"
        start = min(start, len(line) - 1)
    line = _visible(line)
    cut = max(0, start - MAX_SHOWN // 2) * (len(line) > MAX_SHOWN)
    lead = "…" * (cut > 0)
    shown = lead + shorten(line[cut:].rstrip(), MAX_SHOWN)
    start += len(lead) - cut
    return _SourceLine(shown, shown[:start].ljust(start), shown[start : start + place.length])


def _visible(text: str) -> str:
    """Replace characters that control a terminal. Each takes one column, as a tab does here."""
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else " " for char in text])


def _width(text: str) -> int:
    """Columns on a terminal. Chinese characters take two."""
    if text.isascii():
        return len(text)
    from unicodedata import east_asian_width

    return len(text) + sum(east_asian_width(char) in "WF" for char in text)


class Traced(Protocol):
    """A file, or a tree made from other trees."""

    def trace(self, path: KeyPath) -> Spot: ...


class Origins:
    """The positions of the parts of a tree in the trees from which it was made.

    The nearest parent that was moved decides.
    """

    def __init__(self, below: Traced) -> None:
        self._below = below
        self._moved: dict[KeyPath, tuple[Traced, KeyPath]] = {}

    def __setitem__(self, path: KeyPath, written: KeyPath) -> None:
        """It stands elsewhere in the tree below."""
        self._moved[path] = self._below, written

    def adopt(self, path: KeyPath, origins: Traced, there: KeyPath) -> None:
        """It came from another tree, with all that is in it."""
        self._moved[path] = origins, there

    def trace(self, path: KeyPath) -> Spot:
        for length in range(len(path), 0, -1):
            if (found := self._moved.get(path[:length])) is not None:
                origins, there = found
                return origins.trace(there + path[length:])
        return self._below.trace(path)

    def literal(self, path: KeyPath) -> str | None:
        """How a scalar is spelled in its file."""
        file, written = self.trace(path)
        return file.literal(written)
