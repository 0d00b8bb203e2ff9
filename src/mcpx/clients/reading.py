"""Reads the servers of client programs as native entries.

Variables that the client replaces are written as mcpx writes them, and reported. An entry that
cannot work here is disabled, with the reason. Entries of mcpx are left out, and reported. The
problems of one file do not affect the others. References are not looked up. A file of variables
that an entry names is read.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcpx.clients.catalogue import Client, Place, places_here
from mcpx.clients.glance import parsed
from mcpx.config.dialects import CLIENT_DIALECTS, Reading, Translation, translate
from mcpx.config.edits import EntrySection
from mcpx.config.environment import ENV_FILE, MAX_DOTENV, client_words, parse_dotenv, workspace_of
from mcpx.config.foreign import Rewriting, inputs_of
from mcpx.config.itself import is_mcpx
from mcpx.config.pasted import import_text
from mcpx.config.problems import Findings, GaveUpError, Refused, Told, explain, tell
from mcpx.config.source import MAX_BYTES, Source, UnreadableError
from mcpx.config.source import read_text as read_text_file
from mcpx.config.tool_filters import FILTER_KEYS
from mcpx.config.tree import Tree, as_map, maps_in, shorten
from mcpx.config.written import spelled

MAX_CLIENT_BYTES = 32 * 1024 * 1024
"""Claude Code keeps its history in the file of its servers."""
SECTIONS: tuple[EntrySection, ...] = ("auth_configs", "mcp_servers", "commands")
WHY_OFF = "x-off"
"""Key of an entry with the reason why it is disabled."""
_EVERYWHERE = ("userHome", "pathSeparator", "/")
"""Words of clients that do not depend on the folder that is open."""
_SERVER_KEYS = ("mcpServers", "servers", "inputs", "context_servers")


@dataclass(frozen=True, slots=True)
class Origin:
    id: str
    """The id of the client, or `file`."""
    name: str
    path: Path | None
    """None for standard input."""
    project: Path | None = None
    """The folder that the file belongs to."""


@dataclass(frozen=True, slots=True)
class Given:
    """One native entry."""

    section: EntrySection
    name: str
    entry: Tree
    origin: Origin
    off: str | None = None
    """Why it cannot work here."""
    hidden_tools: tuple[str, ...] = ()
    """Patterns of the tools that the client hides."""

    @property
    def enabled(self) -> bool:
        return self.entry.get("enabled") is not False

    @property
    def connection(self) -> Tree:
        return as_map(self.entry.get("connection")) or {}


@dataclass(frozen=True, slots=True)
class Taken:
    """The entries of one file."""

    origin: Origin
    entries: tuple[Given, ...] = ()
    itself: tuple[str, ...] = ()
    """Names of the entries of mcpx."""
    notes: tuple[str, ...] = ()
    rewritten: Mapping[str, str] = field(default_factory=dict[str, str])
    wanted: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that the user has to set, with a description."""
    problems: tuple[str, ...] = ()
    """Mistakes as they are printed."""
    told: tuple[Told, ...] = ()
    """The same mistakes in parts."""


@dataclass(frozen=True, slots=True)
class _Content:
    """A file in the native shape, before variables are rewritten."""

    entries: Sequence[tuple[EntrySection, Tree]]
    notes: Sequence[str]
    references: Sequence[tuple[str, str]]
    hidden_tools: Mapping[str, tuple[str, ...]]
    is_client: bool


def read_clients(
    chosen: Sequence[Client], environ: Mapping[str, str], project: Path
) -> list[Taken]:
    """Read every existing file once, in the order of the catalog."""
    found: dict[Path, Taken] = {}
    for client in chosen:
        for place in places_here(client, project, environ):
            for file in place.there():
                if file not in found:
                    found[file] = _read_place(place, file, environ, project)
    return list(found.values())


def read_place(
    place: Place, file: Path, tree: Tree, servers: Tree, environ: Mapping[str, str], project: Path
) -> Taken:
    """Read one place of a file. `~/.claude.json` has several: `servers` has the entries of one."""
    text = None
    if "projects" in tree:
        text = json.dumps({"mcpServers": servers})
    return _read_place(place, file, environ, project, text)


def _read_place(
    place: Place, file: Path, environ: Mapping[str, str], project: Path, text: str | None = None
) -> Taken:
    client = place.client
    words = client_words(environ, project)
    expands = bool(client.variables)
    if place.scope == "project":
        origin = Origin(client.id, client.name, file, project)
        return _read(origin, Rewriting(expands=expands, words=words, missing={}), text=text)
    origin = Origin(client.id, client.name, file)
    what = f"the folder that is open in {client.name}"
    missing = {word: what for word in words if word not in _EVERYWHERE}
    known = {word: words[word] for word in _EVERYWHERE}
    return _read(origin, Rewriting(expands=expands, words=known, missing=missing), text=text)


def read_file(file: Path, environ: Mapping[str, str]) -> Taken:
    """Read a file of any shape that the user named."""
    workspace = workspace_of(file.parent)
    project = workspace if workspace != file.parent else None
    origin = Origin("file", str(file), file, project)
    return _read(origin, Rewriting(words=client_words(environ, workspace)), is_named=True)


def read_text(text: str, environ: Mapping[str, str]) -> Taken:
    """Read standard input. Raises EditError for an unknown format."""
    origin = Origin("file", "standard input", None)
    try:
        pasted = import_text(text)
    except Refused as refused:
        return Taken(origin, problems=tuple(refused.problems), told=refused.told)
    rewriting = Rewriting(words=client_words(environ, Path.cwd()), inputs=inputs_of(pasted.tree))
    lists = {
        "auth_configs": pasted.auth_configs,
        "mcp_servers": pasted.servers,
        "commands": pasted.commands,
    }
    content = _Content(
        [(section, entry) for section in SECTIONS for entry in lists[section]],
        pasted.warnings,
        pasted.references,
        pasted.hidden_tools,
        pasted.kind == "client",
    )
    left_out = pasted.left_out
    return replace(
        _taken(origin, content, rewriting),
        problems=tuple(f"error: {each.name!r} is left out: {each.reason}" for each in left_out),
        told=tuple(told for each in left_out for told in each.told),
    )


def _read(
    origin: Origin, rewriting: Rewriting, *, is_named: bool = False, text: str | None = None
) -> Taken:
    assert origin.path is not None
    findings = Findings(Source(origin.path).trace)
    result: Translation | None = None
    tree: Tree = {}
    try:
        source = Source(origin.path, text or _servers_of_large_file(origin.path))
        findings = Findings(source.trace)
        tree = source.parse(findings)
        result = translate(tree, source, Reading(findings, _unchanged))
    except GaveUpError:
        pass
    if findings or result is None:
        return Taken(origin, problems=tuple(tell(findings)), told=tuple(explain(findings)))
    is_client = result.dialect in CLIENT_DIALECTS
    if not is_client and not is_named:
        return Taken(origin)  # Settings of the client without servers.
    literal = result.origins.literal
    entries: list[tuple[EntrySection, Tree]] = [
        (section, spelled(entry, (section, index), literal))
        for section in SECTIONS
        for index, entry in maps_in(result.tree.get(section))
    ]
    notes = list(result.warnings)
    ignored = [key for key in dict.fromkeys(result.passed_over) if key not in FILTER_KEYS]
    ignored = [key for key in ignored if key not in tree]  # Other settings of the client.
    if ignored:
        notes.append(f"not taken over: {shorten(', '.join(ignored), 200)}")
    content = _Content(entries, notes, result.references, result.hidden_tools, is_client)
    taken = _taken(origin, content, replace(rewriting, inputs=inputs_of(tree)))
    return replace(taken, itself=tuple(result.renamed.get(name, name) for name in taken.itself))


def _servers_of_large_file(file: Path) -> str | None:
    """The servers of a file that is larger than a configuration may be, as a separate text."""
    try:
        if os.stat(file).st_size <= MAX_BYTES or file.suffix not in (".json", ".jsonc"):
            return None
        whole = as_map(parsed(read_text_file(file, MAX_CLIENT_BYTES), "json")) or {}
    except (OSError, ValueError, RecursionError, UnreadableError):
        return None  # The normal reader reports the problem.
    kept: Tree = {key: whole[key] for key in _SERVER_KEYS if key in whole}
    projects: Tree = {}
    for path, project in (as_map(whole.get("projects")) or {}).items():
        servers = as_map((as_map(project) or {}).get("mcpServers"))
        if servers:
            projects[path] = {"mcpServers": servers}
    if projects:
        kept["projects"] = projects
    return json.dumps(kept, indent=1)


def _taken(origin: Origin, content: _Content, rewriting: Rewriting) -> Taken:
    given: list[Given] = []
    itself: list[str] = []
    notes = list(content.notes)
    for section, entry in content.entries:
        name = str(entry.get("name", ""))
        is_server = section == "mcp_servers"
        if is_server and is_mcpx(name, as_map(entry.get("connection")) or {}):
            itself.append(name)
            continue
        off = None
        if content.is_client:
            entry, off = rewriting.server(_with_env_file(entry, origin, notes.append))
            entry = _in_project(entry, origin)
        if "default_timeout" in entry:
            entry.setdefault("timeout", entry.pop("default_timeout"))
        if off is not None and entry.get("enabled") is not False:
            entry = {**entry, "enabled": False, WHY_OFF: off}
        hidden: tuple[str, ...] = ()
        if is_server:
            hidden = content.hidden_tools.get(name, ())
        given.append(Given(section, name, _in_order(entry, name), origin, off, hidden))
    last = rewriting.rewritten
    between = {new for _, new in content.references}
    rewritten = {old: last.get(new, new) for old, new in content.references}
    rewritten |= {old: new for old, new in last.items() if old not in between}
    return Taken(origin, tuple(given), tuple(itself), tuple(notes), rewritten, rewriting.wanted)


def _with_env_file(entry: Tree, origin: Origin, note: Callable[[str], None]) -> Tree:
    """The entry with the variables of its `envFile`. The variables of the entry take precedence."""
    connection = dict(as_map(entry.get("connection")) or {})
    if ENV_FILE not in connection:
        return entry
    folder = origin.project or Path.home()
    name = str(connection.pop(ENV_FILE)).replace("${workspaceFolder}", str(folder))
    name = os.path.expanduser(name.replace("${userHome}", str(Path.home())))
    values: Mapping[str, str] = {}
    try:
        values, _ = parse_dotenv(read_text_file(folder / name, MAX_DOTENV))
    except UnreadableError as error:
        problem = f"its file of variables {shorten(name)!r} {error}; set them in env"
        note(f"{entry.get('name')}: {problem}")
    # Values of the file contain no references.
    env = {key: value.replace("${", "$${") for key, value in values.items()}
    connection["env"] = {**env, **(as_map(connection.get("env")) or {})}
    return {**entry, "connection": connection}


def _in_project(entry: Tree, origin: Origin) -> Tree:
    """Servers of a project are started in its folder."""
    connection = as_map(entry.get("connection")) or {}
    if origin.project is None or connection.get("type") != "stdio":
        return entry
    cwd = connection.get("cwd")
    if not isinstance(cwd, str):
        cwd = "."
    elif "${" in cwd or os.path.isabs(os.path.expanduser(cwd)):
        return entry
    folder = os.path.normpath(origin.project / cwd)
    return {**entry, "connection": {**connection, "cwd": folder}}


def _in_order(entry: Tree, name: str) -> Tree:
    """The entry without empty values, with the name and the type of the connection first."""
    made: Tree = {"name": name} | entry | {"name": name}
    connection = as_map(entry.get("connection"))
    if connection is not None:
        kept = {key: value for key, value in connection.items() if value not in (None, [], {})}
        made["connection"] = {"type": kept.get("type"), **kept}
    for key in ("timeout", "call_timeout"):
        seconds = made.get(key)
        if isinstance(seconds, float) and seconds.is_integer():
            made[key] = int(seconds)
    if made.get("enabled") is True:
        del made["enabled"]
    return {
        key: value for key, value in made.items() if value is not None and value not in ([], "")
    }


def _unchanged(value: Any) -> Any:
    return value
