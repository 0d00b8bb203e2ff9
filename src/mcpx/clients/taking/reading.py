"""One client's file as native entries.

Promised: what the client would have replaced is written as it is here, and told; an entry that
cannot work elsewhere comes along switched off, with the reason; mcpx itself is left out, and told.
A file that cannot be read is told with its place, and is nobody else's problem. No reference is
looked up; a file of variables that an entry names is read. Nothing is written.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcpx.clients.catalogue import Client, Place, client, clients, places_here
from mcpx.clients.glance import parsed
from mcpx.config import dotenv
from mcpx.config.dialects import CLIENT_DIALECTS, Reading, Translation, translate
from mcpx.config.edits import EditError, EntrySection
from mcpx.config.environment import ENV_FILE, MAX_DOTENV, client_words, workspace_of
from mcpx.config.foreign import Rewriting, inputs_of
from mcpx.config.itself import is_mcpx
from mcpx.config.pasted import Pasted, import_text
from mcpx.config.problems import Findings, GaveUpError, Refused, Told, explain, tell
from mcpx.config.source import MAX_BYTES, Source, UnreadableError, read_text
from mcpx.config.tool_filters import FILTER_KEYS
from mcpx.config.tree import Tree, as_list, as_map, maps_in, shorten
from mcpx.config.written import spelled

MOST_BYTES = 32 * 1024 * 1024
"""Of a client's file that is more than a configuration: Claude Code's holds what was said in every
project."""
SECTIONS: tuple[EntrySection, ...] = ("auth_configs", "mcp_servers", "commands")
WHY_OFF = "x-off"
"""Key of an entry that came along switched off: why."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where entries come from."""

    id: str
    """The client's; `file` for any other."""
    name: str
    """As a person calls it."""
    path: Path | None
    """None: standard input."""
    project: Path | None = None
    """The folder it is for, if it is for one."""


@dataclass(frozen=True, slots=True)
class Given:
    """One entry, native."""

    section: EntrySection
    name: str
    entry: Tree
    origin: Origin
    off: str | None = None
    """Why it cannot work as it stands."""
    hidden_tools: tuple[str, ...] = ()
    """Patterns of the tools that the client hides."""

    @property
    def enabled(self) -> bool:
        return self.entry.get("enabled") is not False


@dataclass(frozen=True, slots=True)
class Taken:
    """What one file gave."""

    origin: Origin
    entries: tuple[Given, ...] = ()
    itself: tuple[str, ...] = ()
    """Entries that are mcpx."""
    notes: tuple[str, ...] = ()
    rewritten: Mapping[str, str] = field(default_factory=dict[str, str])
    wanted: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that have to be set, and what for."""
    problems: tuple[str, ...] = ()
    """Why it could not be read, as mistakes are printed."""
    told: tuple[Told, ...] = ()
    """The same in its parts."""


def of_clients(chosen: Sequence[Client], environ: Mapping[str, str], project: Path) -> list[Taken]:
    """Every file that is there, in the order of the catalogue; one that several clients read is
    read once."""
    found: dict[Path, Taken] = {}
    for each in chosen:
        for place in places_here(each, project, environ):
            for file in place.there():
                if file not in found:
                    found[file] = _of_place(place, file, environ, project)
    return list(found.values())


def of_place(
    place: Place, file: Path, tree: Tree, servers: Tree, environ: Mapping[str, str], project: Path
) -> Taken:
    """The servers of one place of a file. `servers` has their entries, because `~/.claude.json` has
    several places."""
    text = json.dumps({"mcpServers": servers}) if "projects" in tree else None
    return _of_place(place, file, environ, project, text)


def all_clients() -> Sequence[Client]:
    return clients()


def by_word(word: str) -> Client | None:
    return client(word)


def _of_place(
    place: Place, file: Path, environ: Mapping[str, str], project: Path, text: str | None = None
) -> Taken:
    own = project if place.scope == "project" else None
    origin = Origin(place.client.id, place.client.name, file, own)
    words = client_words(environ, project)
    missing: dict[str, str] = {}
    if own is None:
        kept = ("userHome", "pathSeparator", "/")
        missing = {
            word: f"the folder that is open in {origin.name}" for word in words if word not in kept
        }
        words = {word: words[word] for word in kept}
    rewriting = Rewriting(expands=bool(place.client.variables), words=words, missing=missing)
    return _read(origin, rewriting, text=text)


def of_file(file: Path, environ: Mapping[str, str]) -> Taken:
    """A file that was named: any shape."""
    workspace = workspace_of(file.parent)
    own = workspace if workspace != file.parent else None
    origin = Origin("file", str(file), file, own)
    return _read(origin, Rewriting(words=client_words(environ, workspace)), named=True)


def of_text(text: str, environ: Mapping[str, str]) -> Taken:
    """Whatever came by standard input. Raises `EditError` for what is not recognised."""
    origin = Origin("file", "standard input", None)
    try:
        pasted = import_text(text)
    except Refused as refused:
        return Taken(origin, problems=tuple(refused.problems), told=refused.told)
    rewriting = Rewriting(words=client_words(environ, Path.cwd()), inputs=inputs_of(pasted.tree))
    is_client = pasted.kind == "client"
    taken = _taken(
        origin,
        _entries(pasted),
        pasted.warnings,
        pasted.references,
        rewriting,
        is_client,
        pasted.hidden_tools,
    )
    problems = tuple(f"error: {each.name!r} is left out: {each.reason}" for each in pasted.left_out)
    return replace(
        taken, problems=problems, told=tuple(told for each in pasted.left_out for told in each.told)
    )


def _entries(pasted: Pasted) -> list[tuple[EntrySection, Tree]]:
    lists: dict[EntrySection, list[Tree]] = {
        "auth_configs": pasted.auth_configs,
        "mcp_servers": pasted.servers,
        "commands": pasted.commands,
    }
    return [(section, entry) for section in SECTIONS for entry in lists[section]]


def _read(
    origin: Origin, rewriting: Rewriting, *, named: bool = False, text: str | None = None
) -> Taken:
    assert origin.path is not None
    findings = Findings(Source(origin.path).trace)
    result: Translation | None = None
    tree: Tree = {}
    try:
        source = Source(origin.path, _too_large(origin.path) if text is None else text)
        findings = Findings(source.trace)
        tree = source.parse(findings)
        result = translate(tree, source, Reading(findings, _as_it_is))
    except GaveUpError:
        pass
    if findings or result is None:
        return Taken(origin, problems=tuple(tell(findings)), told=tuple(explain(findings)))
    is_client = result.dialect in CLIENT_DIALECTS
    if not is_client and not named:
        return Taken(origin)  # its settings, and no server among them
    rewriting = replace(rewriting, inputs=inputs_of(tree))
    entries: list[tuple[EntrySection, Tree]] = []
    for section in SECTIONS:
        for index, _ in maps_in(result.tree.get(section)):
            entries.append(
                (
                    section,
                    spelled(result.tree[section][index], (section, index), result.origins.literal),
                )
            )
    taken = _taken(
        origin,
        entries,
        _notes(result, tree),
        result.references,
        rewriting,
        is_client,
        result.hidden_tools,
    )
    return replace(taken, itself=tuple(result.renamed.get(name, name) for name in taken.itself))


def _notes(result: Translation, tree: Tree) -> list[str]:
    """Settings of the program beside its servers are none of ours, and not worth a word."""
    notes = list(result.warnings)
    unknown = [key for key in dict.fromkeys(result.passed_over) if key not in FILTER_KEYS]
    if passed := [key for key in unknown if key not in tree]:
        notes.append(f"not taken over: {shorten(', '.join(passed), 200)}")
    return notes


def _too_large(file: Path) -> str | None:
    """Of a file that is larger than a configuration may be: its servers alone, as a text of their
    own."""
    try:
        if os.stat(file).st_size <= MAX_BYTES or file.suffix not in (".json", ".jsonc"):
            return None
        whole = as_map(parsed(read_text(file, MOST_BYTES), "json")) or {}
    except (OSError, ValueError, RecursionError, UnreadableError):
        return None  # read as any other, it is told what is wrong with it
    projects = as_map(whole.get("projects")) or {}
    servers = {
        path: {"mcpServers": (as_map(each) or {}).get("mcpServers")}
        for path, each in projects.items()
    }
    kept = {
        key: value
        for key, value in whole.items()
        if key in ("mcpServers", "servers", "inputs", "context_servers")
    }
    found = {path: each for path, each in servers.items() if as_map(each["mcpServers"])}
    return json.dumps({**kept, **({"projects": found} if found else {})}, indent=1)


def _taken(
    origin: Origin,
    entries: Sequence[tuple[EntrySection, Tree]],
    notes: Sequence[str],
    references: Sequence[tuple[str, str]],
    rewriting: Rewriting,
    is_client: bool,
    hidden_tools: Mapping[str, tuple[str, ...]],
) -> Taken:
    given: list[Given] = []
    itself: list[str] = []
    told = list(notes)
    for section, written in entries:
        name = str(written.get("name", ""))
        if section == "mcp_servers" and is_mcpx(name, as_map(written.get("connection")) or {}):
            itself.append(name)
            continue
        entry, off = (written, None)
        if is_client:
            entry, off = rewriting.server(_with_variables(written, origin, told.append))
            entry = _in_its_folder(entry, origin)
        if "default_timeout" in entry:
            entry.setdefault("timeout", entry.pop("default_timeout"))
        if off is not None and entry.get("enabled") is not False:
            entry = {**entry, "enabled": False, WHY_OFF: off}
        hidden = hidden_tools.get(name, ()) if section == "mcp_servers" else ()
        given.append(Given(section, name, _in_order(entry, name), origin, off, hidden))
    last = rewriting.rewritten
    steps = {new for _, new in references}
    rewritten = {old: last.get(new, new) for old, new in references}
    rewritten |= {old: new for old, new in last.items() if old not in steps}
    return Taken(origin, tuple(given), tuple(itself), tuple(told), rewritten, rewriting.wanted)


def _with_variables(entry: Tree, origin: Origin, note: Callable[[str], None]) -> Tree:
    """With the variables of a file that it names (`envFile`), for all that it does not say
    itself."""
    connection = as_map(entry.get("connection")) or {}
    if ENV_FILE not in connection:
        return entry
    file = connection[ENV_FILE]
    rest = {key: value for key, value in connection.items() if key != ENV_FILE}
    folder = origin.project or Path.home()
    name = (
        str(file)
        .replace("${workspaceFolder}", str(folder))
        .replace("${userHome}", str(Path.home()))
    )
    try:
        values, _ = dotenv.parse(read_text(folder / os.path.expanduser(name), MAX_DOTENV))
    except UnreadableError as error:
        note(
            f"{entry.get('name')}: its file of variables {shorten(name)!r} {error}; set them in env"
        )
        values = {}
    # What stands in such a file is text, whatever is in it.
    env = {
        key: value.replace("$", "$$") if "${" in value else value for key, value in values.items()
    }
    return {**entry, "connection": {**rest, "env": {**env, **(as_map(rest.get("env")) or {})}}}


def _in_its_folder(entry: Tree, origin: Origin) -> Tree:
    """A project's servers run in its folder, wherever the configuration is."""
    connection = as_map(entry.get("connection")) or {}
    if origin.project is None or connection.get("type") != "stdio":
        return entry
    cwd = connection.get("cwd")
    if isinstance(cwd, str) and ("${" in cwd or os.path.isabs(os.path.expanduser(cwd))):
        return entry
    folder = os.path.normpath(origin.project / cwd) if isinstance(cwd, str) else str(origin.project)
    return {**entry, "connection": {**connection, "cwd": folder}}


def _in_order(entry: Tree, name: str) -> Tree:
    """As people write it: its name and the type of its connection first; what says nothing is left
    out."""
    made: Tree = {
        "name": name,
        **{key: value for key, value in entry.items() if key != "name" and value is not None},
    }
    if (connection := as_map(entry.get("connection"))) is not None:
        kept = {
            key: value
            for key, value in connection.items()
            if value is not None and value not in ([], {})
        }
        made["connection"] = {"type": kept.get("type"), **kept}
    for key in ("timeout", "call_timeout"):
        if isinstance(seconds := made.get(key), float) and seconds.is_integer():
            made[key] = int(seconds)
    if made.get("enabled") is True:
        del made["enabled"]
    for key in [key for key, value in made.items() if as_list(value) == [] or value == ""]:
        del made[key]
    return made


def _as_it_is(value: Any) -> Any:
    return value


__all__ = [
    "EditError",
    "Given",
    "Origin",
    "Taken",
    "all_clients",
    "by_word",
    "of_clients",
    "of_file",
    "of_text",
]
