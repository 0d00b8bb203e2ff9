"""Whether what a tool says may be a file, which has to arrive letter by letter (SUR-7).

A tool reads files if it takes a path: an argument whose name has a word for one in it (`path`, `file_path`, `fileName`,
`uris`), in its schema or in the call itself, or a `file:` address as a value. Except for one whose name says that it
looks at folders (`directory_tree`, `list_files`, `search_files`) and not also that it reads (`read_files_in_tree`).
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, cast

from mcpx.model.call import Json, as_object
from mcpx.model.offer import Offer

PATHS = frozenset(
    plural
    for word in ("path", "filepath", "pathname", "file", "filename", "directory", "dir", "folder", "uri")
    for plural in (word, f"{word}s", "directories")
)
LISTS = frozenset(("list", "ls", "tree", "search", "find", "glob", "stat", "info", "metadata"))
READS = frozenset(("read", "cat", "show", "view", "open", "load", "fetch", "download"))
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LONGEST = 100
"""Characters of a name that are looked at."""
_MOST = 200
"""Names in a schema or a call that are looked at."""


def reads_files(offer: Offer, arguments: Json) -> bool:
    takes = islice(_names(offer.definition, arguments), _MOST)
    if not any(not PATHS.isdisjoint(_words(name)) for name in takes) and not _names_a_file(arguments):
        return False
    named = set(_words(offer.name))
    return named.isdisjoint(LISTS) or not named.isdisjoint(READS)


def _names(definition: Json, arguments: Json) -> Iterator[str]:
    yield from as_object(as_object(definition.get("inputSchema")).get("properties"))
    waiting: list[Any] = [arguments]
    for each in waiting:
        if len(waiting) > _MOST:
            return
        if isinstance(each, dict):
            fields = cast(Json, each)
            yield from fields
            waiting += _inner(fields.values())
        else:
            waiting += _inner(cast(list[Any], each))


def _inner(values: Iterable[Any]) -> list[Any]:
    return [value for value in islice(values, _MOST) if isinstance(value, (dict, list))]


def _names_a_file(arguments: Json) -> bool:
    return any(isinstance(value, str) and value[:5].lower() == "file:" for value in islice(arguments.values(), _MOST))


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name[:_LONGEST])]
