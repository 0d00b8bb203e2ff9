"""What commands write: tables that fit the terminal, colours where they are wanted, JSON for
programs, and a line that tells what is waited for.

Promised: piped output has no colours and nothing is cut off in it; no text of a stranger steers the
terminal.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, TextIO
from unicodedata import combining, east_asian_width

LONGEST_DETAIL = 240
"""Characters: two lines of a wide terminal."""

LEAST_ROOM = 20
"""Columns in which a text still says something."""

Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]
_STYLES: Mapping[Style, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}


def has_colours(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """NO_COLOR, whatever it says, and a dumb terminal switch them off; FORCE_COLOR on."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return environ.get("TERM") != "dumb" and stream.isatty()


def styled(text: str, style: Style | None, stream: TextIO | None = None) -> str:
    return (
        text
        if style is None or not has_colours(stream or sys.stdout)
        else f"\x1b[{_STYLES[style]}m{text}\x1b[0m"
    )


def plain(text: str, most: int = LONGEST_DETAIL) -> str:
    """What a stranger wrote, as one line of text: it says nothing to the terminal."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return line if len(line) <= most else line[: most - 1] + "…"


def shown(text: str) -> str:
    """Several lines of a stranger's, whole: line breaks and tabs stay, nothing else that steers
    does."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)


def printable(url: str) -> str:
    """An address is ASCII; what is not has no business in a terminal."""
    return "".join(c for c in url if c.isascii() and c.isprintable())


def print_json(value: Any) -> None:
    """One JSON value, readable; what would steer a terminal is spelled out, which JSON may do."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    sys.stdout.write(
        "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text) + "\n"
    )


def width_of(text: str) -> int:
    """Columns on a terminal: Chinese takes two, an accent of its own none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, columns: int) -> str:
    if width_of(text) <= columns:
        return text
    taken, room = 0, max(columns - 1, 0)
    for at, c in enumerate(text):
        taken += width_of(c)
        if taken > room:
            return text[:at] + "…"
    return text


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    style: Style | None = None


class Table:
    """Rows under heads. On a terminal the last column is cut so that a row is one line, or stands
    below it where it is narrow; piped, everything is whole."""

    def __init__(self, *heads: str) -> None:
        self._rows: list[tuple[Cell, ...]] = [tuple(Cell(head, "bold") for head in heads)]
        self._below: dict[int, list[str]] = {}

    def add(self, *cells: str | Cell) -> None:
        self._rows.append(tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells))

    def note(self, line: str) -> None:
        """A line of its own below the row that was added last."""
        self._below.setdefault(len(self._rows) - 1, []).append(line)

    def print(self) -> None:
        sys.stdout.write(self.text())

    def text(self) -> str:
        last = len(self._rows[0]) - 1
        widths = [max(width_of(row[column].text) for row in self._rows) for column in range(last)]
        if not sys.stdout.isatty():
            return "".join(self._lines(widths, None))
        room = columns() - sum(widths) - 2 * last
        if last and room < min(LEAST_ROOM, max(width_of(row[last].text) for row in self._rows)):
            return "".join(self._folded(widths))
        return "".join(self._lines(widths, room))

    def _lines(self, widths: Sequence[int], room: int | None) -> Iterable[str]:
        for at, row in enumerate(self._rows):
            *cells, end = row
            padded = [_padded(cell, width) for cell, width in zip(cells, widths, strict=True)]
            told = end.text if room is None else cut(end.text, room)
            yield "  ".join([*padded, styled(told, end.style)]).rstrip() + "\n"
            yield from self._notes(at)

    def _folded(self, widths: list[int]) -> Iterable[str]:
        """Where the last column has no room to say anything it stands below its row; the widest
        other one gives way."""
        too_wide = sum(widths) + 2 * (len(widths) - 1) - columns()
        widest = max(range(len(widths)), key=lambda column: widths[column])
        widths[widest] -= min(max(too_wide, 0), max(widths[widest] - LEAST_ROOM, 0))
        for at, row in enumerate(self._rows):
            *cells, end = row
            fitting = [
                Cell(cut(cell.text, width), cell.style)
                for cell, width in zip(cells, widths, strict=True)
            ]
            yield "  ".join(map(_padded, fitting, widths)).rstrip() + "\n"
            if end.text:
                yield f"  {styled(cut(end.text, columns() - 2), end.style)}\n"
            yield from self._notes(at)

    def _notes(self, at: int) -> Iterable[str]:
        for line in self._below.get(at, ()):
            yield f"  {line}\n"


def _padded(cell: Cell, width: int) -> str:
    return styled(cell.text, cell.style) + " " * (width - width_of(cell.text))


def columns() -> int:
    return shutil.get_terminal_size((100, 24)).columns


class Waiting(AbstractContextManager["Waiting"]):
    """A line on stderr that tells what is waited for, while it takes long; gone when it is over.
    Nothing where stderr is no terminal."""

    AFTER = 0.4
    """Seconds: what is quicker needs no word."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._on = sys.stderr.isatty()
        self._clock, self._began = clock, clock()
        self._drawn = False

    def tell(self, text: str) -> None:
        if not self._on or self._clock() - self._began < self.AFTER:
            return
        line = cut(plain(f"… {text}"), columns() - 1)
        sys.stderr.write(f"\r\x1b[K{styled(line, 'dim', sys.stderr)}")
        sys.stderr.flush()
        self._drawn = True

    def clear(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()


def can_ask() -> bool:
    """Whether somebody sits there who could answer."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not os.environ.get("CI")


def agreed(question: str, *, default: bool = False) -> bool:
    """Ask for yes or no; without a terminal nobody is asked, and it is no."""
    if not can_ask():
        return False
    sys.stderr.write(f"{question} [{'Y/n' if default else 'y/N'}] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:  # Ctrl-D: no answer is no agreement
        sys.stderr.write("\n")
        return False
    word = answer.strip().lower()
    return default if not word else word in ("y", "yes")
