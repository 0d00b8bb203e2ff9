"""What is wrong with a configuration, and how it is told.

Promised: every finding at once, by file and in the order of its lines, with the place, the field
and, where it can be guessed, what was meant; the value of a secret is never printed. Not done here:
looking for mistakes.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

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
    r"(?i)(?:token|passw|pwd|secret|api.?key|authorization|cookie|credential|bearer|basic)\w*[\"']?[\s:=,]+\S"
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
        meant = None if hint else nearest(key, known)
        listed = f"known: {', '.join(known)}" if 1 < len(known) <= FEW else ""
        hint = f"did you mean '{meant}'?" if meant else hint or listed
        self.add(f"unknown key {shorten(key)!r}", (*path, key), hint=hint, at="key")
        return meant


FEW = 9
"""Keys of a section that are all named to whoever wrote another."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    if len(word) > 60:  # a typo has the length of the word; difflib on a megabyte takes for ever
        return None
    from difflib import get_close_matches  # only somebody who made a mistake pays for it

    by_lower = {name.lower(): name for name in known}
    match = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    match = match or [
        name for name in by_lower if len(name) > 2 and sorted(name) == sorted(word.lower())
    ]  # ulr, url
    return by_lower[match[0]] if match else None


def may_be_secret(path: KeyPath) -> bool:
    return any(isinstance(step, str) and re.search(_SECRET_KEY, step) for step in path)


def tell(findings: Findings) -> list[str]:
    """Everything found, ready to print; the last line counts."""
    told = _in_order(findings)
    problems = [_tell(finding, place) for place, finding in told]
    count = len(problems)
    files = ", ".join(dict.fromkeys(finding.file.name for _, finding in told))
    more = "; there may be more" if count >= MAX_FINDINGS else ""
    problems[-1] += f"\n\n{count} error{'s' * (count != 1)} in {files}{more}."
    return problems


def _in_order(findings: Findings) -> list[tuple[Place | None, Finding]]:
    told = [
        (finding.place or finding.file.place(finding.path, finding.at), finding)
        for finding in findings
    ]
    told.sort(
        key=lambda pair: (
            pair[1].file.name,
            *((pair[0].line, pair[0].column) if pair[0] else (0, 0)),
        )
    )
    return told


def explain(findings: Findings) -> list[Told]:
    """Everything found, in its parts and in the order of `tell`."""
    return [_explain(finding, place) for place, finding in _in_order(findings)]


def explain_finding(finding: Finding) -> Told:
    return _explain(finding, finding.place or finding.file.place(finding.path, finding.at))


def _explain(finding: Finding, place: Place | None) -> Told:
    at = (place.line, place.column, max(1, place.length)) if place else (None, None, 1)
    return Told(
        _visible(finding.message),
        _hint(finding),
        _visible(spell(finding.path)),
        finding.file.name,
        *at,
    )


def brief(finding: Finding) -> str:
    """What and where, for a sentence."""
    place = finding.place or finding.file.place(finding.path, finding.at)
    return _visible(f"{finding.message} ({_position(finding.file, place)})")


def _tell(finding: Finding, place: Place | None) -> str:
    head = f"error: {_visible(finding.message)}"
    hint = _hint(finding)
    field = f"  ({_visible(spell(finding.path))})" if finding.path else ""
    line = _source_line(finding, place)
    gutter = (len(str(place.line)) if place and line else 1) + 1
    told = [head, f"{' ' * gutter}--> {_position(finding.file, place)}{field}"]
    bar = f"{' ' * (gutter + 1)}|"
    if place and line:
        shown, before, marked = line
        carets = f"{' ' * _width(before)}{'^' * max(1, _width(marked))} {hint}"
        told += [bar, f"{place.line:>{gutter}} | {shown}", f"{bar} {carets}".rstrip()]
    elif hint:
        told.append(f"{' ' * (gutter + 1)}= {hint}")
    return "\n".join(told)


def _hint(finding: Finding) -> str:
    if not finding.rival:
        return finding.hint
    file, path = finding.rival
    return f"{finding.hint}; the other stands at {_position(file, file.place(path, 'value'))}"


def _position(file: Text, place: Place | None) -> str:
    return f"{file.name}:{place.line}:{place.column}" if place else file.name


def _source_line(finding: Finding, place: Place | None) -> tuple[str, str, str] | None:
    """The line as it may be shown, what stands before the carets, what above them; None to hide
    it."""
    line = finding.file.line(place.line) if place else ""
    if not place or not line.strip() or len(line) > MAX_LINE:
        return None
    if (
        may_be_secret(finding.path)
        or re.search(_SECRET_LINE, line)
        or any(True for _ in find_shapes(line))
    ):
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
    return (
        text
        if text.isprintable()
        else "".join(char if char.isprintable() else " " for char in text)
    )


def _width(text: str) -> int:
    """Columns on a terminal: Chinese characters take two."""
    if text.isascii():
        return len(text)
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)
