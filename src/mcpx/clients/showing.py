"""A change of a client's file, as a person may see it.

Promised: a unified diff that shows the gateway's own entry, and of everything else names and
structure only: the values around it may be secrets of other servers. Secrets in an entry of the
gateway are not shown either.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from mcpx.base.text_diff import unified_diff
from mcpx.clients.changes import Change
from mcpx.clients.entry import PLACEHOLDER
from mcpx.config.pretty import in_lines
from mcpx.config.problems import may_be_secret
from mcpx.config.tree import as_list, as_map
from mcpx.model.secret_rules import find_secrets

_LINE = re.compile(
    r"""(?P<lead>\s*(?:-\s+)?)(?P<key>(?:"(?:\\.|[^"\\])*"|[\w.$-]+)\s*(?::(?=\s|["{\[]|$)|=(?=\s*[^\s=]))\s*)?(?P<value>.*?)(?P<tail>,?\s*)"""
)
_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
_STRUCTURE = re.compile(r"(?:[\s{}\[\],]|true|false|null|-?\d+(?:\.\d+)?|---)*")
_KEYS = re.compile(r"[\w-]+\s*=(?=\s*[^\s=])")
_REMARK = re.compile(r"\s*(?://.*|/\*.*?\*/\s*)$")
_HEADER = re.compile(r'\[[\w.-]+(?:"[\w.-]+")?\]')


def difference(change: Change) -> str:
    old, new = in_lines(_text_of(change.before), _text_of(change.after))
    before, after = old.splitlines(), new.splitlines()
    name, known = str(change.file), {*_told(change.old), *_told(change.new)}
    known |= {own.name for own in change.replaced}
    lines = unified_diff(before, after, name, name, context=2)
    heads = ("--- ", "+++ ", "@@ ")
    return "\n".join(
        line if line.startswith(heads) else line[:1] + _shown(line[1:], known) for line in lines
    )


def _shown(line: str, known: set[str]) -> str:
    found = _LINE.fullmatch(line)
    assert found is not None, "it takes any line"
    value = found["value"]
    if _is_open(value, known) or (not found["key"] and _HEADER.fullmatch(value)):
        return line
    comment = next((mark for mark in ("//", "#") if value.startswith(mark)), "")
    comma = "," * (
        not comment and _REMARK.sub("", value).endswith(",")
    )  # which may be all that changed
    return f"{found['lead']}{found['key'] or ''}{comment and comment + ' '}…{comma}{found['tail']}"


def _is_open(value: str, known: set[str]) -> bool:
    """Whether it says nothing but structure, and texts of our own."""
    if (
        value in known or value[1:-1] in known or _STRUCTURE.fullmatch(value)
    ):  # as it is, or in quotes
        return True
    if "'" not in value and all(_text(word) in known for word in _QUOTED.findall(value)):
        rest = _KEYS.sub("", _QUOTED.sub("", value))
        return _STRUCTURE.fullmatch(rest) is not None or {*_words(rest)} <= known
    return False


def _words(value: str) -> Iterator[str]:
    """The items of a list in brackets, as YAML writes them."""
    for word in re.split(r"[\[\],]", value):
        if word.strip():
            yield word.strip()


def _text(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted


def _told(value: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The texts of an entry that are no secrets, and its keys; a variable in the place of a secret
    is none."""
    if (table := as_map(value)) is not None:
        for key, each in table.items():
            yield key
            yield from _told(each, (*path, key))
    elif (items := as_list(value)) is not None:
        for index, each in enumerate(items):
            if isinstance(each, str) and not find_secrets(each, (*path, index), items):
                yield each
    elif isinstance(value, str) and (
        not may_be_secret(path) or path[-1].endswith("_var") or _is_no_secret(value)
    ):
        yield value


def _is_no_secret(value: str) -> bool:
    return PLACEHOLDER in value or re.fullmatch(r"Bearer \$?\{.*\}", value) is not None


def _text_of(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace").removeprefix("\ufeff")
