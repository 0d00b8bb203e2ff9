"""A table put into TOML text, or taken out of it, with everything else left as it is.

Promised: a new table is written behind everything else, one that is there is written anew in its
place; comments, order and line ends stay. Not done here: a table that is not written as one
(`[a.b]`): `Unwritten` is raised; reading a text that is not known to be good; judging the result.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcpx.clients.entry import toml_table, toml_value
from mcpx.clients.json_text import line_break

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    + r"|'''.*?'{3,5}"
    + r'|"(?:\\.|[^"\\\n])*"'
    + r"|'[^'\n]*'|#[^\n]*|\n|[ \t\r]+|.",
    re.DOTALL,
)
_KEY = re.compile(r"""[ \t]*(?:"((?:\\.|[^"\\])*)"|'([^']*)'|([\w-]+))[ \t]*(\.|\])""")


class Unwritten(Exception):
    """It is not written as a table of its own."""


@dataclass(frozen=True, slots=True)
class _Section:
    path: tuple[str, ...]
    start: int
    end: int
    """Behind the last line that says something."""


def put(text: str, path: Sequence[str], table: Mapping[str, Any]) -> str:
    new, own = toml_table(path, table).replace("\n", line_break(text)), _own(text, path)
    if own:
        first, *others = own
        for section in reversed(others):
            text = text[: section.start] + text[section.end :]
        return text[: first.start] + new + text[first.end :]
    ends = line_break(text)
    opening = "" if not text or text.endswith("\n") else ends
    return f"{text}{opening}{ends if text.strip() else ''}{new}"


def take_out(text: str, path: Sequence[str]) -> str:
    own = _own(text, path)
    if not own:
        raise Unwritten
    for section in reversed(own):
        before = text[: section.start]
        blank = re.search(r"(?<=\n)[ \t]*\r?\n\Z|\A[ \t]*\r?\n\Z", before)
        text = (before[: blank.start()] if blank else before) + text[section.end :]
    return text


def put_key(text: str, path: Sequence[str], key: str, value: Any) -> str:
    """A key in the table's own section: in place of its present value, else after the last line of
    the section."""
    section = next((each for each in _sections(text) if each.path == tuple(path)), None)
    if section is None:
        raise Unwritten
    body = text[section.start : section.end]
    line = f"{key} = {toml_value(value)}"
    present = re.search(rf"(?m)^[ \t]*{re.escape(key)}[ \t]*=[^\r\n]*", body)
    if present is not None:
        body = body[: present.start()] + line + body[present.end() :]
    else:
        ends = line_break(text)
        opening = "" if body.endswith("\n") else ends
        body = f"{body}{opening}{line}{ends}"
    return text[: section.start] + body + text[section.end :]


def _own(text: str, path: Sequence[str]) -> list[_Section]:
    """The table itself, and what stands below it in tables of their own."""
    return [section for section in _sections(text) if section.path[: len(path)] == tuple(path)]


def _sections(text: str) -> Iterator[_Section]:
    header: tuple[tuple[str, ...], int] | None = None
    said, depth, fresh, at = 0, 0, True, 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        token = found[0] if found else text[at]
        start, at = at, at + len(token)
        if token == "\n":
            fresh = True
            continue
        if token[0] in " \t\r#":
            continue
        if token == "[" and fresh and not depth:
            if header is not None:
                yield _Section(header[0], header[1], _line_behind(text, said))
            path, at = _path(text, at)
            header = path, text.rfind("\n", 0, start) + 1
        elif token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
        said, fresh = at, False
    if header is not None:
        yield _Section(header[0], header[1], _line_behind(text, said))


def _path(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """The keys of a header, and where it ends. An array of tables has a path of its own, which is
    nobody's."""
    array = text[at : at + 1] == "["
    at += array
    keys: list[str] = []
    while (found := _KEY.match(text, at)) is not None:
        keys.append(next(key for key in found.groups() if key is not None))
        at = found.end()
        if found[4] == "]":
            break
    return (("[", *keys) if array else tuple(keys)), at + array


def _line_behind(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1
