"""Whether what a tool says may be a file, which has to arrive letter by letter (SUR-7).

A tool reads files if it takes a path: an argument whose name has a word for one in it (`path`,
`file_path`, `fileName`, `uris`, `路径`), in its schema or in the call itself, or a `file:` address as
a value; or if its own name says so (`read_file`, `读取文件`). Except for one whose name says that it
looks at folders (`directory_tree`, `list_files`, `search_files`) and not also that it reads
(`read_files_in_tree`).
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, cast

from mcpx.model.call import Json, as_object
from mcpx.model.offer import Offer

CHINESE = ("路径", "文件", "目录", "读取")
"""Path, file, folder, read: words that are not set apart from others."""
PATHS = frozenset(
    plural
    for word in (
        "path",
        "filepath",
        "pathname",
        "file",
        "filename",
        "directory",
        "dir",
        "folder",
        "uri",
    )
    for plural in (word, f"{word}s", "directories")
).union(CHINESE[:3])
LISTS = frozenset(("list", "ls", "tree", "search", "find", "glob", "stat", "info", "metadata"))
FILES = frozenset(("file", "files", "文件"))
READS = frozenset(("read", "cat", "show", "view", "open", "load", "fetch", "download", "读取"))
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LONGEST = 100
"""Characters of a name that are looked at."""
_MOST = 200
"""Names in a schema or a call that are looked at."""


def reads_files(offer: Offer, arguments: Json) -> bool:
    named = set(_words(offer.name))
    reads = not named.isdisjoint(READS)
    takes = islice(_names(offer.definition, arguments), _MOST)
    takes_a_path = any(map(_is_path, takes)) or _names_a_file(arguments)
    says_so = (reads or "get" in named) and not named.isdisjoint(FILES)
    return (takes_a_path or says_so) and (reads or named.isdisjoint(LISTS))


def _is_path(name: str) -> bool:
    words = _words(name)
    return not PATHS.isdisjoint(words) or any(word.endswith("path") for word in words)


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
    values = islice(arguments.values(), _MOST)
    return any(
        isinstance(each, str) and each[:5].lower() == "file:"
        for value in values
        for each in (islice(cast(list[Any], value), _MOST) if isinstance(value, list) else (value,))
    )


def _words(name: str) -> list[str]:
    """In lower case; Chinese ones that matter are found wherever they stand."""
    name = name[:_LONGEST]
    words = [word.lower() for word in _WORD.findall(name)]
    return words if name.isascii() else [*words, *(word for word in CHINESE if word in name)]
