"""Changes entries of a TOML text, each of which is a table.

A new table is written at the end. A changed table is rewritten in its place, or only gets new keys.
Comments, order, and line ends of everything else stay. An entry that is not written as a table
(`[a.b]`) raises Unchangeable.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcpx.clients.entry import toml_table, toml_value
from mcpx.config.textedit import Unchangeable

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    + r"|'''.*?'{3,5}"
    + r'|"(?:\\.|[^"\\\n])*"'
    + r"|'[^'\n]*'|#[^\n]*|\n|[ \t\r]+|.",
    re.DOTALL,
)
_KEY = re.compile(r"""[ \t]*(?:"((?:\\.|[^"\\])*)"|'([^']*)'|([\w-]+))[ \t]*(\.|\])""")
_BLANK_LINE_BEFORE = re.compile(r"(?:(?<=\n)|\A)[ \t]*\r?\n\Z")


@dataclass(frozen=True, slots=True)
class _Section:
    path: tuple[str, ...]
    start: int
    end: int
    """The end of the last line that is neither blank nor a comment."""


def line_break(text: str) -> str:
    """The line break of most lines."""
    if text.count("\r\n") * 2 > text.count("\n"):
        return "\r\n"
    return "\n"


def rewritten(
    text: str, root: Sequence[str], old: Mapping[str, Any], new: Mapping[str, Any]
) -> str:
    """The text with the entries `new` instead of `old` below `root`."""
    for name in [*old, *new]:
        before, entry = old.get(name), new.get(name)
        if before == entry:
            continue
        path = (*root, name)
        sections = [each for each in _sections(text) if each.path[: len(path)] == path]
        if before is not None and not sections:
            raise Unchangeable
        if entry is None:
            text = _without(text, sections)
        elif before is None or before.keys() - entry.keys():
            text = _with_table(text, sections, toml_table(path, entry))
        else:
            added = {key: each for key, each in entry.items() if before.get(key, ...) != each}
            text = _with_keys(text, sections[0], added)
    return text


def _with_table(text: str, sections: Sequence[_Section], table: str) -> str:
    ends = line_break(text)
    table = table.replace("\n", ends)
    if sections:
        first, *others = sections
        return _cut(text, others)[: first.start] + table + _cut(text, others)[first.end :]
    if text and not text.endswith("\n"):
        text += ends
    if text.strip():
        text += ends
    return text + table


def _cut(text: str, sections: Sequence[_Section]) -> str:
    for section in reversed(sections):
        text = text[: section.start] + text[section.end :]
    return text


def _without(text: str, sections: Sequence[_Section]) -> str:
    for section in reversed(sections):
        before = _BLANK_LINE_BEFORE.sub("", text[: section.start])
        text = before + text[section.end :]
    return text


def _with_keys(text: str, section: _Section, values: Mapping[str, Any]) -> str:
    """Replace the values of keys, or add the keys at the end of the section."""
    ends = line_break(text)
    body = text[section.start : section.end]
    for key, value in values.items():
        line = f"{key} = {toml_value(value)}"
        present = re.search(rf"(?m)^[ \t]*{re.escape(key)}[ \t]*=[^\r\n]*", body)
        if present is not None:
            body = body[: present.start()] + line + body[present.end() :]
            continue
        if not body.endswith("\n"):
            body += ends
        body += line + ends
    return text[: section.start] + body + text[section.end :]


def _sections(text: str) -> Iterator[_Section]:
    path: tuple[str, ...] | None = None
    start = last = depth = at = 0
    is_line_start = True
    while at < len(text):
        found = _TOKEN.match(text, at)
        token = found[0] if found else text[at]
        token_start, at = at, at + len(token)
        if token == "\n":
            is_line_start = True
            continue
        if token[0] in " \t\r#":
            continue
        if token == "[" and is_line_start and not depth:
            if path is not None:
                yield _Section(path, start, _line_end(text, last))
            path, at = _header(text, at)
            start = text.rfind("\n", 0, token_start) + 1
        else:
            depth += (token in "[{") - (token in "]}")
        last, is_line_start = at, False
    if path is not None:
        yield _Section(path, start, _line_end(text, last))


def _header(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """The keys of a header, and its end. The path of an array of tables begins with `[`."""
    keys = ["["] * text.startswith("[", at)
    at += len(keys)
    while (found := _KEY.match(text, at)) is not None:
        keys.append(next(key for key in found.groups() if key is not None))
        at = found.end()
        if found[4] == "]":
            break
    return tuple(keys), at + (keys[:1] == ["["])


def _line_end(text: str, at: int) -> int:
    return (text.find("\n", at) + 1) or len(text)
