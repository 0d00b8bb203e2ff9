"""Splits a shell command line into words without running anything.

A variable outside single quotes becomes a `reference`. Syntax that only a shell can evaluate raises
ConfigError. A pipe, a redirection, or a separator ends the command.
"""

import re

from mcpx.imports.imported import reference
from mcpx.model.errors import ConfigError

_TOKEN = re.compile(
    r"""(?P<blank>(?:[ \t\r\n]|\\\r?\n)+)"""
    r"""|'(?P<single>[^']*+)'"""
    r"""|\$'(?P<ansi>(?:[^'\\]|\\.)*+)'"""
    r"""|\$?"(?P<double>(?:[^"\\]|\\.)*+)\""""
    r"""|\\(?P<escaped>.?)"""
    r"""|(?P<plain>(?:[^ \t\r\n'"\\$]|\$(?!['"]))+)""",
    re.DOTALL,
)
_END = re.compile(r"[|;<>#]|\d>|&(?:&|\s|$)")
_EXPANSION = re.compile(
    r"""\\(["\\$`\n])|\$([A-Za-z_]\w*)|\$\{([A-Za-z_]\w*)\}|(`|\$[({])""", re.ASCII
)
_ANSI = re.compile(r"\\(?:u([0-9a-fA-F]{1,4})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_ANSI_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "e": "", "f": "", "v": ""}


def split_words(line: str) -> tuple[list[str], str]:
    """The words of the first command, and the rest of the line."""
    words: list[str] = []
    parts: list[str] = []
    is_in_word = False
    at = 0
    while at < len(line):
        if not is_in_word and words and _END.match(line, at):
            return words, line[at:].strip()
        token = _TOKEN.match(line, at)
        if token is None:
            raise ConfigError([f"error: a quote is left open: {line[at : at + 2]}…"])
        at = token.end()
        kind = token.lastgroup or ""
        if kind != "blank":
            parts.append(_unquoted(kind, token[kind]))
            is_in_word = True
        elif is_in_word:
            words.append("".join(parts))
            parts.clear()
            is_in_word = False
    if is_in_word:
        words.append("".join(parts))
    return words, ""


def _unquoted(kind: str, text: str) -> str:
    if kind in ("double", "plain"):
        return _EXPANSION.sub(_expanded, text)
    if kind == "ansi":
        text = _ANSI.sub(_ansi_character, text)
        # Two halves of a character beyond U+FFFF become one character.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _expanded(found: re.Match[str]) -> str:
    escaped, name, braced_name, shell_only = found.groups()
    if shell_only:
        problem = "error: only a shell can evaluate ` $( and ${…}: write the value in their place"
        raise ConfigError([problem])
    if escaped is not None:
        return escaped.removesuffix("\n")
    return reference(name or braced_name)


def _ansi_character(found: re.Match[str]) -> str:
    unicode, byte, octal, letter = found.groups()
    if letter is not None:
        return _ANSI_LETTERS.get(letter, letter)
    if octal:
        return chr(int(octal, 8))
    return chr(int(unicode or byte, 16))
