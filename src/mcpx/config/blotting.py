"""Secrets in texts that have no meaning to us: files that cannot be read, and comments.

Promised: what stands beside a secret's name, and what looks like a secret, is shown as `MASK`; a
comment that is saved as it was shown keeps what stands behind its masks. By looks only: prose may
lose a word from sight, and a secret that neither is named nor looks like one is shown. Comments are
lines of their own; what follows a value on its line is not looked at.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from mcpx.config.masking import MASK
from mcpx.model.redaction import is_secret_name
from mcpx.model.secret_rules import find_secrets
from mcpx.model.secret_shapes import Span, find_shapes

_PAIR = re.compile(
    r"""(["']?)(?<![\w.-])([\w.-]++)\1([ \t]*+[:=][ \t]*)"""
    r"""("[^"\n]*"|'[^'\n]*'|(?:(?i:bearer|basic|token)[ \t]+)?[^\s,{}\[\]#"']+)"""
)
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+")
"""A name that only variables of an environment have, and no word of a comment."""
_LINE = re.compile(
    r"""(?m)^[ \t]*(?:[-#][ \t]+|//)?["']?(?:([A-Z][A-Z0-9]*_[A-Z0-9_]+)["']?[ \t]*[:=][ \t]*["']?)?(\S.*?)["']?,?$"""
)
"""A value on a line of its own, behind the name of a variable or the mark of a list item."""
_OPTION = re.compile(
    r"""(?<![\w-])(--?[A-Za-z][\w-]*)["']?(?:[ \t]*,\s*|[ \t]+)"""
    r"""("[^"\n]*"|'[^'\n]*'|[^\s"',\[\]]+)"""
)
_OPTION_ON_ITS_LINE = re.compile(
    r"""(?<![\w-])(--?[A-Za-z][\w-]*)["']?[ \t]*\n[ \t]*-[ \t]+(\S[^\n]*)"""
)
_SCHEME = re.compile(r"(?i)(?:bearer|basic|token)[ \t]+")
_COMMENT = re.compile(r"(?m)^[ \t]*(?:#|//).*$")


def blotted(text: str) -> str:
    """The text with a mask in the place of each value of a secret name, and of each text in the
    shape of a secret."""
    parts: list[str] = []
    at = 0
    for start, end in sorted(_found(text)):
        if start >= at:
            parts += [text[at:start], MASK]
        at = max(at, end)
    return "".join([*parts, text[at:]])


def _found(text: str) -> Iterator[Span]:
    yield from find_shapes(text)
    for pair in _PAIR.finditer(text):
        start, end = _unquoted(pair, 4)
        value = text[start:end]
        if _VARIABLE.fullmatch(pair[2]):
            yield from (
                (start + each.start, start + each.end)
                for each in find_secrets(value, ("env", pair[2]))
            )
        elif is_secret_name(pair[2]) and value and not value.startswith("$"):
            scheme = _SCHEME.match(value)
            yield start + (scheme.end() if scheme else 0), end
    for line in _LINE.finditer(text):
        start, value = line.start(2), line[2]
        found = (
            find_secrets(value, ("env", line[1]))
            if line[1]
            else find_secrets(value, ("args", 0), [value])
        )
        yield from ((start + each.start, start + each.end) for each in found)
    for option in (*_OPTION.finditer(text), *_OPTION_ON_ITS_LINE.finditer(text)):
        start, end = _unquoted(option, 2)
        words = [option[1], text[start:end]]
        yield from (
            (start + each.start, start + each.end)
            for each in find_secrets(words[1], ("args", 1), words)
        )


def _unquoted(found: re.Match[str], group: int) -> Span:
    start, end = found.span(group)
    return (start + 1, end - 1) if found[group][:1] in ("'", '"') else (start, end)


def without_texts(text: str, secrets: Iterable[str]) -> str:
    """The text with a mask in the place of each of these secrets, also where they are written with
    escapes."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) > 3:
            for spelling in (secret, json.dumps(secret)[1:-1]):
                text = text.replace(spelling, MASK)
    return text


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
