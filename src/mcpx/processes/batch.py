"""Command lines for Windows: `npx` there is `npx.cmd`, a batch file, whose arguments `cmd.exe`
reads a second time.

Promise: no argument is taken for more than an argument. For a program the list is left to
`subprocess`, which quotes it as programs read it. For a batch file everything that `cmd.exe` could
take for its own is quoted, quotes are doubled and variables are not expanded, in the manner that
Rust's standard library found for CVE-2024-24576; a line break, which nothing can quote, is refused.
"""

import errno
import ntpath
import string
from collections.abc import Mapping, Sequence

_HARMLESS = frozenset(string.ascii_letters + string.digits + "#$*+-./:?@\\_")


def command_line(
    argv: Sequence[str], environ: Mapping[str, str]
) -> tuple[str | Sequence[str], str | None]:
    """What to start: the words, or for a batch file one line and the program that reads it."""
    program = argv[0]
    if ntpath.splitext(program)[1].lower() not in (".bat", ".cmd"):
        return argv, None
    if '"' in program or program.endswith("\\"):
        raise OSError(errno.EINVAL, "no name that a batch file can have", program)
    words = " ".join([f'"{program}"', *(quoted(word) for word in argv[1:])])
    folder = environ.get("SystemRoot") or environ.get("SYSTEMROOT") or r"C:\Windows"
    # Extensions on: by them `%` is kept from being a variable. Delayed expansion off, and no
    # AutoRun.
    return f'cmd.exe /e:ON /v:OFF /d /c "{words}"', ntpath.join(folder, "System32", "cmd.exe")


def quoted(word: str) -> str:
    """One argument of a batch file. Raises OSError for one that cannot be handed to it."""
    if any(letter in word for letter in "\r\n\0"):
        raise OSError(
            errno.EINVAL, "a batch file cannot be given a line break in an argument", word[:80]
        )
    is_plain = (
        bool(word) and not word.endswith("\\") and all(_is_harmless(letter) for letter in word)
    )
    parts: list[str] = []
    backslashes = 0
    for letter in word:
        if letter == '"':
            parts.append(
                "\\" * backslashes + '"'
            )  # twice as many before a quote, and the quote twice
        elif letter == "%":
            parts.append(
                "%%cd:~,"
            )  # nothing of a variable that is always there, so that no name begins here
        backslashes = backslashes + 1 if letter == "\\" else 0
        parts.append(letter)
    text = "".join(parts)
    return text if is_plain else '"' + text + "\\" * backslashes + '"'


def _is_harmless(letter: str) -> bool:
    return letter in _HARMLESS if letter.isascii() else not "\x80" <= letter <= "\x9f"
