"""What commands write: tables that fit the terminal, colors, JSON for programs, questions,
failures, and a progress line.

Piped output has no colors and is not cut. Text from servers and clients cannot control the
terminal.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO
from unicodedata import combining, east_asian_width

from mcpx.cli.codes import FAILED, MISTAKE, PARTIAL, SIGN_IN, TIMED_OUT, WAITS
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import (
    DENIED,
    NEEDS_APPROVAL,
    OVERLOADED,
    SERVER_DIED,
    SERVER_DOWN,
    SERVER_TIMEOUT,
    RpcError,
)

MAX_DETAIL = 240
"""Characters: two lines of a wide terminal."""
MIN_COLUMN = 20
"""Columns of a terminal in which a text is still readable."""
UP = ("connected", "sleeping", "disabled")
"""States of a server that is not broken."""

Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]
_STYLES: Mapping[Style, str] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
FAILURES = {
    DENIED: ("denied", WAITS),
    NEEDS_APPROVAL: ("needs_approval", WAITS),
    OVERLOADED: ("overloaded", FAILED),
    SERVER_DOWN: ("server_down", PARTIAL),
    SERVER_DIED: ("server_down", PARTIAL),
    SERVER_TIMEOUT: ("timed_out", TIMED_OUT),
}


class Output:
    """Writes the outcome of a command: text for people, or one JSON object for programs."""

    def __init__(self, as_json: bool) -> None:
        self.json = as_json

    def result(self, facts: Any, *lines: str) -> None:
        """Write `facts` as JSON, or `lines` as text."""
        if self.json:
            print_json(facts)
        else:
            say(*lines)

    def fail(self, word: str, message: str, code: int, **more: object) -> int:
        """Report an error on stderr. Returns the exit code."""
        if self.json:
            error = {"code": word, "message": message, **more}
            sys.stderr.write(json.dumps({"error": error}) + "\n")
        else:
            sys.stderr.write(f"error: {shown(message)}\n")
        return code

    def not_found(self, message: str, **more: object) -> int:
        return self.fail("not_found", message, MISTAKE, **more)

    def not_offered(self, missing: Json, suffix: str) -> int:
        """A tool or a server that exists and is not offered. `suffix`: see `Target.suffix`."""
        message = f"{missing['message']}\n  {hint_of(missing, suffix)}"
        return self.not_found(message, reason=missing["reason"])

    def rpc_failure(self, error: RpcError, servers: Sequence[Json], server: str) -> int:
        """A request that has no result."""
        word, code = FAILURES.get(error.code, ("failed", FAILED))
        message = error.message
        signs_in = any(
            each.get("name") == server and each.get("status") == "needs_auth" for each in servers
        )
        if word == "server_down" and signs_in:
            word, code = "needs_sign_in", SIGN_IN
            message += f"\n  sign in: mcpx auth login {server}"
        return self.fail(word, message, code, rpc=error.to_json())

    def server_down(self, server: Json) -> int:
        name = str(server.get("name"))
        if server.get("status") == "needs_auth":
            message = f"{name} wants somebody to sign in: mcpx auth login {name}"
            return self.fail("needs_sign_in", message, SIGN_IN)
        why = text_of(server, "last_error", "it cannot be reached")
        return self.fail("server_down", f"{name} is down: {why.removeprefix(f'{name}: ')}", PARTIAL)


def hint_of(missing: Json, suffix: str) -> str:
    if missing["reason"] == "starting":  # The hint of all other reasons ends with a command.
        return str(missing["hint"])
    return f"{missing['hint']}{suffix}"


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def objects(value: object) -> list[Json]:
    """The objects in a JSON array."""
    return list(map(as_object, as_list(value)))


# Words


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def limited(names: Sequence[str], most: int) -> str:
    """The first names and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + f" and {more} more" * (more > 0)


def is_downloading(server: Json) -> bool:
    """Whether the program of a server is still downloading the server (LIF-10)."""
    return server.get("phase") == "downloading"


def is_starting(server: Json) -> bool:
    """Whether a server connects for the first time, and has not failed."""
    return server.get("status") == "connecting" and not server.get("last_error")


def state_of(server: Json) -> str:
    """The state of a server in a table: `connected`, `downloading (41 s)`."""
    if is_downloading(server):
        return f"downloading ({server.get('phase_s')} s)"
    return str(server.get("status"))


def text_of(facts: Json, key: str, default: str = "") -> str:
    """A foreign text as one line."""
    return plain(str(facts.get(key) or default))


def why_down(server: Json) -> str:
    """The last error without the server's name."""
    error = str(server.get("last_error") or "")
    return plain(error.removeprefix(f"{server.get('name')}: "))


# Text for terminals


def has_colors(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """NO_COLOR (with any value) and a dumb terminal switch colors off; FORCE_COLOR switches them
    on."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return environ.get("TERM") != "dumb" and stream.isatty()


def styled(text: str, style: Style | None, stream: TextIO | None = None) -> str:
    if style is None or not has_colors(stream or sys.stdout):
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def _replaced(text: str, keep: str, replacement: Callable[[str], str]) -> str:
    """Replace the characters that are neither printable nor in `keep`."""
    if text.isprintable():
        return text
    strange = {c for c in text if not c.isprintable() and c not in keep}
    return text.translate({ord(c): replacement(c) for c in strange})


def plain(text: str, most: int = MAX_DETAIL) -> str:
    """Foreign text as one line that does not control the terminal."""
    line = _replaced(text, "", lambda c: " ")
    if len(line) > most:
        return f"{line[: most - 1]}…"
    return line


def shown(text: str) -> str:
    """Foreign text with its line breaks and tabs."""
    return _replaced(text, "\n\t", lambda c: "�")


def printable(url: str) -> str:
    """The ASCII characters of a URL."""
    return "".join(c for c in url if c.isascii() and c.isprintable())


def print_json(value: Any) -> None:
    """One readable JSON value. Characters that would control a terminal are escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    sys.stdout.write(_replaced(text, "\n", lambda c: json.dumps(c)[1:-1]) + "\n")


def width_of(text: str) -> int:
    """Columns on a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(combining(c) != 0 for c in text)


def cut(text: str, columns: int | None) -> str:
    if columns is None or width_of(text) <= columns:
        return text
    taken, room = 0, max(columns - 1, 0)
    for at, c in enumerate(text):
        taken += width_of(c)
        if taken > room:
            return text[:at] + "…"
    return text


def columns() -> int:
    return shutil.get_terminal_size((100, 24)).columns


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    style: Style | None = None

    def padded(self, width: int) -> str:
        text = cut(self.text, width)
        return styled(text, self.style) + " " * (width - width_of(text))


class Table:
    """Rows below headings. On a terminal, the last column is cut so that a row is one line. On a
    narrow terminal, it stands below its row. Piped, all cells are whole."""

    def __init__(self, *heads: str) -> None:
        self._rows: list[tuple[Cell, ...]] = [tuple(Cell(head, "bold") for head in heads)]
        self._notes: dict[int, list[str]] = {}

    def add(self, *cells: str | Cell) -> None:
        self._rows.append(tuple(map(_cell, cells)))

    def note(self, line: str) -> None:
        """A line below the row that was added last."""
        self._notes.setdefault(len(self._rows) - 1, []).append(line)

    def print(self) -> None:
        sys.stdout.write(self.text())

    def text(self) -> str:
        *widths, last = (
            max(width_of(cell.text) for cell in column) for column in zip(*self._rows, strict=True)
        )
        room, is_folded = None, False
        if sys.stdout.isatty():
            room = columns() - sum(widths) - 2 * len(widths)
            if widths and room < min(MIN_COLUMN, last):
                room, is_folded = columns() - 2, True
                _shrink(widths)
        lines: list[str] = []
        for at, (*cells, end) in enumerate(self._rows):
            padded = [cell.padded(width) for cell, width in zip(cells, widths, strict=True)]
            text = styled(cut(end.text, room), end.style)
            if is_folded:
                lines += ["  ".join(padded), *[f"  {text}"] * bool(end.text)]
            else:
                lines.append("  ".join([*padded, text]))
            lines += [f"  {note}" for note in self._notes.get(at, ())]
        return "".join(f"{line.rstrip()}\n" for line in lines)


def _cell(cell: str | Cell) -> Cell:
    if isinstance(cell, str):
        return Cell(cell)
    return cell


def _shrink(widths: list[int]) -> None:
    """Make the widest column narrower, so that the columns fit the terminal."""
    excess = max(sum(widths) + 2 * (len(widths) - 1) - columns(), 0)
    widest = widths.index(max(widths))
    widths[widest] -= min(excess, max(widths[widest] - MIN_COLUMN, 0))


class Waiting:
    """A progress line on stderr, if it is a terminal. It appears when a wait takes long, and
    disappears with its end."""

    DELAY_SECONDS = 0.4

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._on = sys.stderr.isatty()
        self._clock, self._began = clock, clock()
        self._drawn = False

    def tell(self, text: str) -> None:
        is_early = self._clock() - self._began < self.DELAY_SECONDS
        if not self._on or not text or is_early:
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

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()


# Questions


def can_ask() -> bool:
    """Whether a user is there who can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not os.environ.get("CI")


def agreed(question: str, *, default: bool = False) -> bool:
    """Ask for yes or no. Without a terminal, the answer is no."""
    if not can_ask():
        return False
    choices = "y/N"
    if default:
        choices = "Y/n"
    sys.stderr.write(f"{question} [{choices}] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:  # Ctrl-D is no agreement.
        sys.stderr.write("\n")
        return False
    word = answer.strip().lower()
    return word in ("y", "yes") or (default and not word)
