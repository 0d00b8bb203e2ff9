"""How many servers the client programs of this machine have: for a greeting, in a few milliseconds.

Promised: nothing is raised, whatever the files hold; of each no more than `MOST_BYTES` are read,
and the room of configurations is not loaded. What cannot be read counts as not there. Not done
here: YAML, whose reader alone takes longer than all of this; what the servers are, and whether
their entries are right (`taking`).
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from mcpx.clients.catalogue import Place, clients, places_here

MOST_BYTES = 4 * 1024 * 1024
"""Of a file; Claude Code's holds what was said in every project, too."""
_JSONC = re.compile(r'("(?:[^"\\]|\\.)*+")|//[^\n]*|/\*.*?\*/', re.DOTALL)
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
    """Every client's file that has servers, in the order of the catalogue; a file that several read
    is told once."""
    found: dict[Path, Found] = {}
    trees: dict[Path, Any] = {}
    try:
        folder = project or Path.cwd()
    except OSError:
        folder = Path("/")
    for client in clients():
        for place in places_here(client, folder, environ):
            for file in _there(place):
                known = found.get(file)
                if known is not None and known.client_id != client.id:
                    continue
                if file not in trees:
                    trees[file] = read_tree(file, place.format)
                entries = entries_in(trees[file], place)
                ours = sum(is_mcpx(name, entry) for name, entry in entries)
                before, had = (known.servers, known.has_mcpx) if known else (0, False)
                if entries:
                    found[file] = Found(
                        client.id, client.name, file, before + len(entries) - ours, had or ours > 0
                    )
    return tuple(found.values())


def _there(place: Place) -> list[Path]:
    try:
        return [] if place.format == "yaml" else place.there()
    except OSError:
        return []


def read_tree(file: Path, format: str, most: int = MOST_BYTES) -> Any:
    """What stands in a JSON or TOML file, comments and stray commas forgiven; None for what cannot
    be read."""
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
    """Raises ValueError or RecursionError."""
    if format == "toml":
        return tomllib.loads(text)
    try:
        return json.loads(text)
    except ValueError:
        bare = _JSONC.sub(lambda kept: kept[1] or " ", text)
        return json.loads(_COMMA.sub(lambda kept: kept[1] or "", bare))


def entries_in(tree: Any, place: Place) -> list[tuple[str, Mapping[str, Any]]]:
    """The entries of a client's file with their names; of several ways to keep them the first that
    fits counts."""
    for root in place.roots:
        value = tree
        for key in root:
            value = cast(Any, value.get(key)) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType]
        if entries := list(_entries(value)):
            return entries
    return []


def _entries(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    pairs: list[tuple[Any, Any]] = list(value.items()) if isinstance(value, dict) else []  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    if isinstance(value, list):
        pairs = [
            (each.get("name", ""), each)
            for each in cast("list[Any]", value)
            if isinstance(each, dict)
        ]  # pyright: ignore[reportUnknownMemberType]
    for name, entry in pairs:
        if (
            isinstance(entry, dict)
            and {"command", "cmd", "url", "uri", "serverUrl", "httpUrl"} & entry.keys()
        ):
            yield str(name), cast("Mapping[str, Any]", entry)


def is_mcpx(name: str, entry: Mapping[str, Any]) -> bool:
    """Whether an entry is this program: under the name `connect` gives it, or by what it runs."""
    words: list[str] = []
    for key in ("command", "cmd", "args"):
        value = entry.get(key)
        listed = cast("list[Any]", value if isinstance(value, list) else [value])
        words += [each for each in listed if isinstance(each, str)]
    if not words:
        return name == "mcpx"
    runs = [re.split(r"[/\\]", word)[-1].removesuffix(".exe").partition("@")[0] for word in words]
    return "mcpx" in runs[:1] or ("mcpx" in runs and _is_runner(runs[0])) or "mcpx-gateway" in runs


def _is_runner(program: str) -> bool:
    return program in (
        "uv",
        "uvx",
        "pipx",
        "env",
        "cmd",
        "sh",
        "bash",
        "zsh",
    ) or program.startswith("python")
