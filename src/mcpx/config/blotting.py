"""Secrets in texts that have no meaning to us: files that cannot be read, and comments.

Promised: what stands beside a secret's name, and what looks like a secret, is shown as `MASK`; a comment that is saved
as it was shown keeps what stands behind its masks. By looks only: prose may lose a word from sight, and a secret that
neither is named nor looks like one is shown. Comments are lines of their own; what follows a value on its line is not
looked at.
"""

import re
from collections import Counter

from mcpx.config.masking import MASK
from mcpx.model.redaction import FORMS, is_secret_name

_PAIR = re.compile(
    r"""(["']?)(?<![\w.-])([\w.-]++)\1(\s*+[:=]\s*)"""
    r"""("[^"\n]*"|'[^'\n]*'|(?:(?i:bearer|basic|token)[ \t]+)?[^\s,{}\[\]#"']+)"""
)
_ADDRESS = re.compile(r"(://(?:[^\s/@:\"']*+:)?)[^\s/@\"']++@")
_LOOKS = re.compile(rf"\b(?:{FORMS})")
_COMMENT = re.compile(r"(?m)^[ \t]*(?:#|//).*$")


def blotted(text: str) -> str:
    """Without what stands beside a secret's name, and what looks like one."""

    def pair(found: re.Match[str]) -> str:
        value = found[4].strip("\"'")
        if not is_secret_name(found[2]) or value.startswith(("${", "$")):
            return found[0]
        return f"{found[1]}{found[2]}{found[1]}{found[3]}{found[4].replace(value, MASK)}" if value else found[0]

    return _LOOKS.sub(MASK, _ADDRESS.sub(rf"\1{MASK}@", _PAIR.sub(pair, text)))


def comments_masked(text: str) -> str:
    return _COMMENT.sub(lambda found: blotted(found[0]), text)


class Unmatched(Exception):
    """A comment with a mask that stands for nothing, or for one of several; `args[0]` is it."""


def comments_unmasked(new: str, old: str) -> str:
    """`new` with what the comments of `old` have behind their masks. Raises `Unmatched`."""
    kept: dict[str, list[str]] = {}
    for found in _COMMENT.finditer(old):
        line = found[0].strip()
        if MASK in (shown := blotted(line)):
            kept.setdefault(shown, []).append(line)
    for line, count in Counter(found[0].strip() for found in _COMMENT.finditer(new)).items():
        lines = kept.get(line, [])
        if MASK in line and (not lines or (len(set(lines)) > 1 and count != len(lines))):
            raise Unmatched(line)

    def restored(found: re.Match[str]) -> str:
        line = found[0].strip()
        if MASK not in line:
            return found[0]
        lines = kept[line]
        return found[0].replace(line, lines.pop(0) if len(lines) > 1 else lines[0])

    return _COMMENT.sub(restored, new)
