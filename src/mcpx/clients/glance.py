"""Counts the servers in the files of client programs in a few milliseconds, for the greeting.

No error is raised. At most `MAX_BYTES` of a file are read. Files that cannot be read and YAML files
are skipped, because the YAML reader is too slow.
"""

import contextlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mcpx.clients.catalogue import Client, Place, clients, places_here
from mcpx.model.call import Json, as_list, as_object

MAX_BYTES = 4 * 1024 * 1024
"""Claude Code keeps its history in the file of its servers."""
_JSONC = re.compile(r'("(?:[^"\\]|\\.)*+")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_ADDRESS_KEYS = {"command", "cmd", "url", "uri", "serverUrl", "httpUrl"}
_RUNNER = re.compile(r"uvx?|pipx|env|cmd|(?:ba|z)?sh|python.*")
_COMMA = re.compile(r'("(?:[^"\\]|\\.)*+")|,(?=\s*[}\]])')


@dataclass(frozen=True, slots=True)
class Found:
    client_id: str
    name: str
    path: Path
    servers: int
    """Without mcpx itself."""
    has_mcpx: bool


def glance(environ: Mapping[str, str] = os.environ, project: Path | None = None) -> Sequence[Found]:
    """The files with servers, in the order of the catalog, each once."""
    found: dict[Path, Found] = {}
    trees: dict[Path, Any] = {}
    for client, place, file in _files(environ, project):
        known = found.get(file, Found(client.id, client.name, file, 0, False))
        if known.client_id != client.id:
            continue
        if file not in trees:
            trees[file] = read_tree(file, place.format)
        entries = entries_in(trees[file], place)
        ours = sum(is_mcpx(name, entry) for name, entry in entries)
        if entries:
            servers = known.servers + len(entries) - ours
            found[file] = replace(known, servers=servers, has_mcpx=known.has_mcpx or ours > 0)
    return tuple(found.values())


def _files(
    environ: Mapping[str, str], project: Path | None
) -> Iterator[tuple[Client, Place, Path]]:
    try:
        folder = project or Path.cwd()
    except OSError:
        folder = Path("/")
    for client in clients():
        for place in places_here(client, folder, environ):
            with contextlib.suppress(OSError):
                if place.format != "yaml":
                    yield from ((client, place, file) for file in place.there())


def read_tree(file: Path, format: str, most: int = MAX_BYTES) -> Any:
    """The values of a JSON or TOML file, or None. Comments and trailing commas are ignored."""
    try:
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as opened:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            data = opened.read(most + 1)
        return parsed(data.decode("utf-8-sig"), format) if len(data) <= most else None
    except (OSError, ValueError, RecursionError):
        return None


def parsed(text: str, format: str) -> Any:
    """Raises ValueError and RecursionError."""
    if format == "toml":
        return tomllib.loads(text)
    try:
        return json.loads(text)
    except ValueError:
        bare = _JSONC.sub(lambda kept: kept[1] or " ", text)
        return json.loads(_COMMA.sub(lambda kept: kept[1] or "", bare))


def entries_in(tree: Any, place: Place) -> list[tuple[str, Json]]:
    """The entries of a client's file in the first shape that fits, with their names."""
    for root in place.roots:
        value = tree
        for key in root:
            value = as_object(value).get(key)
        pairs = list(as_object(value).items())
        pairs += [(str(as_object(each).get("name", "")), each) for each in as_list(value)]
        entries = [(name, as_object(entry)) for name, entry in pairs]
        entries = [(name, entry) for name, entry in entries if _ADDRESS_KEYS & entry.keys()]
        if entries:
            return entries
    return []


def is_mcpx(name: str, entry: Json) -> bool:
    """Return True if an entry starts mcpx, or has the name that `connect` writes and a URL."""
    values = [entry.get("command"), entry.get("cmd"), *as_list(entry.get("args"))]
    values += as_list(entry.get("command"))
    words = [value for value in values if isinstance(value, str)]
    if not words:
        return name == "mcpx"
    programs = [re.split(r"[/\\]", word)[-1].partition("@")[0] for word in words]
    programs = [program.removesuffix(".exe") for program in programs]
    if "mcpx" in programs[:1] or "mcpx-gateway" in programs:
        return True
    return "mcpx" in programs and _RUNNER.fullmatch(programs[0]) is not None
