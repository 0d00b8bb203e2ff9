"""Compares entries of several files with each other and with the configuration.

A server that several files have is imported once. Two servers with the same name get names that
show their clients. Entries of the configuration change only with `--replace`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from mcpx.clients.reading import SECTIONS, WHY_OFF, Given, Origin, read_place
from mcpx.clients.texts import Reading
from mcpx.config.checks import MAX_NAME
from mcpx.config.edits import EntrySection
from mcpx.config.entries import RESERVED
from mcpx.config.environment import peek
from mcpx.config.recognising import possible
from mcpx.config.tree import Tree, Unresolved, as_list, as_map
from mcpx.config.written import Written
from mcpx.model.errors import ConfigError
from mcpx.processes.downloaders import LAUNCHERS, program_name

State = Literal["new", "replaces", "there", "skipped"]


@dataclass(frozen=True, slots=True)
class Item:
    """One imported entry."""

    section: EntrySection
    name: str
    """The name in the configuration."""
    entry: Tree
    state: State
    origins: tuple[Origin, ...]
    own_names: tuple[str, ...] = ()
    """Other names in its files."""
    off: str | None = None
    why: str = ""
    """Why it is not imported, or not under its own name."""
    hidden_tools: tuple[str, ...] = ()
    """Patterns of the tools that all its clients hide."""

    @property
    def enabled(self) -> bool:
        return self.entry.get("enabled") is not False


@dataclass(frozen=True, slots=True)
class Selection:
    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    replace: bool = False

    def refusal(self, names: Sequence[str]) -> str:
        if self.only and not _matches(names, self.only):
            return "not among --only"
        if _matches(names, self.skip):
            return "left out by --skip"
        return ""


@dataclass(frozen=True, slots=True)
class PresentEntries:
    """The native entries of the configuration, by section and name."""

    entries: Mapping[EntrySection, Mapping[str, Tree]]
    resolve: Callable[[str], str | None]
    """The value of a text with references, or None if it is unknown."""

    def same(self, given: Given) -> str | None:
        """The name of an equal entry. Its secrets may be references."""
        table = self.entries.get(given.section, {})
        names = sorted(table, key=lambda name: name != given.name)
        for name in names:
            if self._is_same(given, table[name]):
                return name
        return None

    def _is_same(self, given: Given, entry: Tree) -> bool:
        mine, its = as_map(entry.get("connection")), given.connection
        if given.section != "mcp_servers" or mine is None or not its:
            return entry == given.entry
        if isinstance(mine.get("url"), str) and isinstance(its.get("url"), str):
            is_same_url = self._means(_address(mine["url"]), _address(its["url"]))
            return is_same_url and (
                not its.get("headers") or self._same_table("headers", mine, its)
            )
        if not isinstance(mine.get("command"), str) or not isinstance(its.get("command"), str):
            return False
        words, others = _line(mine), _line(its)
        if len(words) != len(others) or not all(map(self._means, words, others)):
            return False
        return self._same_table("env", mine, its)

    def _same_table(self, key: str, mine: Tree, its: Tree) -> bool:
        ours, theirs = as_map(mine.get(key)) or {}, as_map(its.get(key)) or {}
        return ours.keys() == theirs.keys() and all(
            self._means(str(ours[name]), str(theirs[name])) for name in ours
        )

    def _means(self, mine: str, its: str) -> bool:
        if mine == its or "${" not in mine:
            return mine == its
        found = self.resolve(mine)
        if found is None:
            return "${" not in its
        return found == its


def present_entries(written: Written) -> PresentEntries:
    """Raises ConfigError if the configuration cannot be read."""
    if written.told:
        first = written.told[0]
        place = f"{first.file}:{first.line}: " * bool(first.line)
        problem = f"{place}{first.message}; fix it first (mcpx check)"
        raise ConfigError([f"error: the config cannot be read: {problem}"])
    layers = written.layers

    def resolve(text: str) -> str | None:
        if layers is None:
            return None
        found = peek(layers.environment, layers.written[0][0].trace, text)
        if isinstance(found, Unresolved):
            return None
        return str(found)

    entries: dict[EntrySection, dict[str, Tree]] = {}
    for section in SECTIONS:
        names = written.names(section)
        entries[section] = {name: written.native(section, index) for index, name in names}
    return PresentEntries(entries, resolve)


def duplicates(
    reading: Reading, present: PresentEntries, environ: Mapping[str, str], project: Path
) -> dict[str, str]:
    """Enabled servers of a client that are also enabled in the configuration: name by name."""
    found: dict[str, str] = {}
    servers = present.entries.get("mcp_servers", {})
    taken = read_place(reading.place, reading.file, reading.tree, reading.entries, environ, project)
    for given in taken.entries:
        if given.section == "mcp_servers" and given.enabled and given.name in reading.entries:
            same = present.same(given)
            if same is not None and servers[same].get("enabled") is not False:
                found[given.name] = same
    return found


def merged(given: Iterable[Given], present: PresentEntries, selection: Selection) -> list[Item]:
    groups: list[list[Given]] = []
    """The first one of a group is the merged entry."""
    by_key: dict[tuple[object, ...], list[Given]] = {}
    for each in given:
        keys = list(_keys(each))
        group = next((by_key[key] for key in keys if key in by_key), None)
        both = None
        if group is not None:
            both = _joined(group[0], each)
        if group is None or both is None:
            group = [each]
            groups.append(group)
        group[0] = both or each
        group.append(each)
        for key in keys:
            by_key.setdefault(key, group)
    names = {
        section: _Names({*present.entries.get(section, {}), *RESERVED}) for section in SECTIONS
    }
    return [_item(one, others, present, names[one.section], selection) for one, *others in groups]


def _joined(one: Given, other: Given) -> Given | None:
    """Both as one entry, or None if their headers differ. Enabled if one of them is."""
    mine, its = one.connection.get("headers"), other.connection.get("headers")
    if mine and its and mine != its:
        return None
    entry = one.entry
    if its and not mine:
        entry = {**other.entry, "name": one.name}
    hidden: tuple[str, ...] = ()
    if one.hidden_tools == other.hidden_tools:  # A filter of one client would affect the other.
        hidden = one.hidden_tools
    if not one.enabled and not other.enabled:
        return replace(one, entry=entry, hidden_tools=hidden)
    entry = {key: value for key, value in entry.items() if key not in ("enabled", WHY_OFF)}
    return replace(one, entry=entry, off=None, hidden_tools=hidden)


def _keys(given: Given) -> Iterator[tuple[object, ...]]:
    """Two entries with a common key are the same, unless their headers differ."""
    connection = given.connection
    url = connection.get("url")
    if given.section != "mcp_servers" or not connection:
        yield given.section, given.entry.get("name"), repr(given.entry)
    elif isinstance(url, str):
        headers = as_map(connection.get("headers")) or {}
        pairs = sorted((key.lower(), str(value)) for key, value in headers.items())
        yield "url", _address(url), tuple(pairs)
        yield "url", _address(url), ()  # An entry without headers may be any of them.
    else:
        env = as_map(connection.get("env")) or {}
        pairs = sorted((key, str(value)) for key, value in env.items())
        yield "run", tuple(_line(connection)), tuple(pairs)


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}?{parts.query}"


def _line(connection: Tree) -> list[str]:
    """The command line without differences that do not matter: the folder of a launcher, `-y`."""
    words = [str(connection.get("command")), *map(str, as_list(connection.get("args")) or ())]
    if len(words) > 2 and program_name(words[0]) == "cmd" and words[1].lower() == "/c":
        words = words[2:]
    program = program_name(words[0])
    if program in ("npx", "bunx"):
        words = [word for word in words if word not in ("-y", "--yes")]
    if program in LAUNCHERS or program == "node":
        words[0] = program
    return words


def _item(
    one: Given,
    others: Sequence[Given],
    present: PresentEntries,
    names: "_Names",
    selection: Selection,
) -> Item:
    own_names = tuple(dict.fromkeys(each.name for each in others))
    made = Item(
        section=one.section,
        name=one.name,
        entry=one.entry,
        state="new",
        origins=tuple(dict.fromkeys(each.origin for each in others)),
        own_names=tuple(name for name in own_names if name != one.name),
        off=one.off,
        hidden_tools=one.hidden_tools,
    )
    reason = selection.refusal(own_names)
    if reason:
        return replace(made, state="skipped", why=reason)
    same = present.same(one)
    if same is not None:
        why = f"it is called {one.name!r} there" * (same != one.name)
        return replace(made, name=same, state="there", off=None, why=why)
    exists = one.name in present.entries.get(one.section, {})
    if exists and selection.replace and names.claim(one.name):
        return replace(made, state="replaces", why="it takes the place of the one there is")
    if exists and one.section != "mcp_servers":  # Others refer to it by its name.
        why = "the configuration has another of this name; --replace takes this one"
        return replace(made, state="there", why=why)
    name, usual = names.free(one.name, one.origin), possible(one.name)
    reasons = ["its name is taken by another"] * (name != usual)
    reasons += ["its name cannot be one here"] * (name == usual != one.name)
    if any(each.hidden_tools != one.hidden_tools for each in others):
        reasons.append("no tool is hidden, because the clients hide different ones")
    return replace(made, name=name, entry={**one.entry, "name": name}, why="; ".join(reasons))


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for name in names for pattern in patterns)


class _Names:
    """Valid names, each of which is given once."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._claimed: set[str] = set()

    def claim(self, name: str) -> bool:
        """Return True if an existing name was not claimed before."""
        is_first = name not in self._claimed
        self._claimed.add(name)
        return is_first

    def free(self, wanted: str, origin: Origin) -> str:
        spellings = _spellings(possible(wanted), origin)
        name = next(each for each in spellings if each not in self._taken)
        self._taken.add(name)
        return name


def _spellings(name: str, origin: Origin) -> Iterator[str]:
    yield name
    suffix = f"-{origin.id}".replace("-file", "-2")
    yield f"{name[: MAX_NAME - len(suffix)]}{suffix}"
    for number in count(2):
        yield f"{name[: MAX_NAME - len(suffix) - 7]}{suffix}-{number}"
