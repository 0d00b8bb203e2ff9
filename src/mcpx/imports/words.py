"""A shell's command line as words: quotes, escapes, continued lines and variables, as people copy
them.

Promised: nothing is run, looked up or expanded. A variable outside of single quotes stays one: it
is marked, and becomes a reference in a configuration. Whatever only a shell can do is refused; a
pipe or a redirection ends the command.
"""

import re

from mcpx.model.errors import ConfigError

BEGINS, ENDS = "\ufdd0", "\ufdd1"
"""Around the name of a variable; characters that no text may hold."""
VARIABLE = re.compile(f"{BEGINS}(\\w+){ENDS}")

_BLANK = re.compile(r"(?:[ \t\r\n]|\\\r?\n)+")
_PLAIN = re.compile(r"[^\s'\"\\$`]+")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_ENDS_IT = re.compile(r"\||;|&&?$|\d?>|<")
_ANSI = re.compile(r"\\(?:u([0-9a-fA-F]{1,4})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "e": "", "f": "", "v": ""}


def split(line: str) -> tuple[list[str], str]:
    """The words of the first command, and what stood after it. Raises `ConfigError`."""
    line = line.replace(BEGINS, "").replace(ENDS, "")
    words: list[str] = []
    at = 0
    while at < len(line):
        if blank := _BLANK.match(line, at):
            at = blank.end()
            continue
        if words and _ENDS_IT.match(line[at : at + 2].split()[0]):
            return words, line[at:].strip()
        if line[at] == "#" and words:
            return words, ""
        word, at = _word(line, at)
        words.append(word)
    return words, ""


def _word(line: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while at < len(line) and not _BLANK.match(line, at):
        char = line[at]
        if plain := _PLAIN.match(line, at):
            parts.append(plain[0])
            at = plain.end()
        elif char == "'":
            end = _closing(line, at + 1, "'")
            parts.append(line[at + 1 : end])
            at = end + 1
        elif line.startswith("$'", at):
            text, at = _ansi(line, at + 2)
            parts.append(text)
        elif char == '"':
            text, at = _double(line, at + 1)
            parts.append(text)
        elif char == "\\":
            parts.append(line[at + 1 : at + 2])
            at += 2
        else:
            text, at = _dollar(line, at)
            parts.append(text)
    return "".join(parts), at


def _double(line: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while at < len(line):
        char = line[at]
        if char == '"':
            return "".join(parts), at + 1
        if char == "\\" and at + 1 < len(line) and line[at + 1] in '"\\$`\n':
            parts.append(line[at + 1].removesuffix("\n"))
            at += 2
        elif char in "$`":
            text, at = _dollar(line, at)
            parts.append(text)
        else:
            parts.append(char)
            at += 1
    raise ConfigError(['error: a " is left open in the command line'])


def _dollar(line: str, at: int) -> tuple[str, int]:
    """A variable, marked; a lone `$`; never a command."""
    if line[at] == "`" or line.startswith("$(", at):
        raise ConfigError(
            ["error: the command line runs another one inside: put what that gives in its place"]
        )
    if line.startswith('$"', at):
        return "", at + 1
    if found := _VARIABLE.match(line, at):
        return f"{BEGINS}{found[1] or found[2]}{ENDS}", found.end()
    if line.startswith("${", at):
        raise ConfigError(
            ["error: a ${…} in the command line that only a shell understands: put its value there"]
        )
    return "$", at + 1


def _ansi(line: str, at: int) -> tuple[str, int]:
    r"""What stands between `$'` and `'`, as browsers copy it: \n, \', \u0021."""
    end = at
    while (end := _closing(line, end, "'")) and _backslashes(line, at, end) % 2:
        end += 1

    def read(found: re.Match[str]) -> str:
        unicode, byte, octal, char = found.groups()
        if char is not None:
            return _ESCAPES.get(char, char)
        return chr(int(unicode or byte, 16) if unicode or byte else int(octal, 8))

    text = _ANSI.sub(read, line[at:end])
    # Two halves of a character beyond the first 65,536 are one again.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), end + 1


def _backslashes(line: str, start: int, at: int) -> int:
    """How many stand right before a place."""
    first = at
    while first > start and line[first - 1] == "\\":
        first -= 1
    return at - first


def _closing(line: str, at: int, quote: str) -> int:
    end = line.find(quote, at)
    if end < 0:
        raise ConfigError([f"error: a {quote} is left open in the command line"])
    return end
