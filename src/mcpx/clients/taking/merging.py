"""Entries of several files and of the configuration there is, told apart: what is new, and under
which name.

Promised: a server that stands in several places is taken once, and it is told where; two that share
a name and nothing else are both taken, under names that say whose they are. What the configuration
has is not touched unless that was asked for. Pure.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import count
from typing import Any, Literal
from urllib.parse import urlsplit

from mcpx.clients.taking.reading import WHY_OFF, Given, Origin
from mcpx.config.checks import MAX_NAME
from mcpx.config.edits import EntrySection
from mcpx.config.entries import RESERVED
from mcpx.config.recognising import possible
from mcpx.config.tree import Tree, as_list, as_map

State = Literal["new", "replaces", "there", "skipped"]


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of the outcome."""

    section: EntrySection
    name: str
    """The one it gets here."""
    entry: Tree
    state: State
    origins: tuple[Origin, ...]
    own_names: tuple[str, ...] = ()
    """What it is called where it comes from, as far as that differs."""
    off: str | None = None
    why: str = ""
    """Why it is not taken, or not under its own name."""
    hidden_tools: tuple[str, ...] = ()
    """Patterns of the tools that each of its clients hides."""

    @property
    def enabled(self) -> bool:
        return self.entry.get("enabled") is not False


@dataclass(frozen=True, slots=True)
class Wishes:
    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    replace: bool = False
    """Entries of the configuration may be replaced by those of the same name."""


@dataclass(slots=True)
class _Pool:
    """What was found so far."""

    kept: list[tuple[Given, list[Given]]] = field(default_factory=list[tuple[Given, list[Given]]])
    by_key: dict[Any, int] = field(default_factory=dict[Any, int])


@dataclass(frozen=True, slots=True)
class There:
    """What the configuration has."""

    entries: Mapping[EntrySection, Mapping[str, Tree]]
    """Native, by name."""
    resolve: Callable[[str], str | None]
    """What a text with references stands for; None where that is not known."""

    def same(self, given: Given) -> str | None:
        """The name of an entry that says the same, its secrets kept elsewhere perhaps."""
        table = self.entries.get(given.section, {})
        first = [given.name] if given.name in table else []
        return next(
            (
                name
                for name in (*first, *table)
                if self._says(given.section, table[name], given.entry)
            ),
            None,
        )

    def _says(self, section: EntrySection, mine: Tree, its: Tree) -> bool:
        ours, theirs = as_map(mine.get("connection")), as_map(its.get("connection"))
        if section != "mcp_servers" or ours is None or theirs is None:
            return mine == its
        if isinstance(ours.get("url"), str) and isinstance(theirs.get("url"), str):
            headers = as_map(theirs.get("headers")) or {}
            same = self._means(_address(ours["url"]), _address(theirs["url"]))
            return same and (
                not headers or self._tables(as_map(ours.get("headers")) or {}, headers)
            )
        if not isinstance(ours.get("command"), str) or not isinstance(theirs.get("command"), str):
            return False
        words, others = _line(ours), _line(theirs)
        if len(words) != len(others) or not all(map(self._means, words, others)):
            return False
        return self._tables(as_map(ours.get("env")) or {}, as_map(theirs.get("env")) or {})

    def _tables(self, mine: Tree, its: Tree) -> bool:
        return mine.keys() == its.keys() and all(
            self._means(str(mine[key]), str(its[key])) for key in mine
        )

    def _means(self, mine: str, its: str) -> bool:
        if mine == its or "${" not in mine:
            return mine == its
        found = self.resolve(mine)
        return "${" not in its if found is None else found == its


def merged(given: Iterable[Given], there: There, wishes: Wishes) -> list[Item]:
    pool = _Pool()
    for each in given:
        _add(pool, each)
    sections: tuple[EntrySection, ...] = ("auth_configs", "mcp_servers", "commands")
    names: dict[EntrySection, _Names] = {}
    for section in sections:
        names[section] = _Names({*there.entries.get(section, {}), *RESERVED})
    return [_item(one, others, there, names, wishes) for one, others in pool.kept]


def _add(pool: _Pool, each: Given) -> None:
    keys = list(_keys(each.section, each.entry))
    at = next((pool.by_key[key] for key in keys if key in pool.by_key), None)
    if at is not None and (both := _one_of(pool.kept[at][0], each)) is not None:
        pool.kept[at] = (both, [*pool.kept[at][1], each])
    else:
        pool.kept.append((each, [each]))
        at = len(pool.kept) - 1
    for key in keys:
        pool.by_key.setdefault(key, at)


def _one_of(one: Given, other: Given) -> Given | None:
    """Both as one: with the headers that one of them has, and on if one of them is. None: they
    differ after all."""
    mine, its = (as_map(each.entry.get("connection")) or {} for each in (one, other))
    if mine.get("headers") and its.get("headers") and mine["headers"] != its["headers"]:
        return None
    fuller = other if its.get("headers") and not mine.get("headers") else one
    entry = {**fuller.entry, "name": one.name}
    if one.enabled or other.enabled:
        entry = {key: value for key, value in entry.items() if key not in ("enabled", WHY_OFF)}
    # A filter of one client would hide the tools from the other.
    hidden = one.hidden_tools if one.hidden_tools == other.hidden_tools else ()
    off = None if one.enabled or other.enabled else one.off
    return replace(one, entry=entry, off=off, hidden_tools=hidden)


def _keys(section: EntrySection, entry: Tree) -> Iterable[Any]:
    """What tells an entry from others: two with a key in common are the same, unless their headers
    differ."""
    connection = as_map(entry.get("connection"))
    if section != "mcp_servers" or connection is None:
        yield section, entry.get("name"), repr(entry)
        return
    url = connection.get("url")
    if isinstance(url, str):
        headers = as_map(connection.get("headers")) or {}
        yield (
            "url",
            _address(url),
            tuple(sorted((str(k).lower(), str(v)) for k, v in headers.items())),
        )
        yield "url", _address(url), ()  # with none at all it may be either
        return
    env = as_map(connection.get("env")) or {}
    yield (
        "run",
        tuple(_line(connection)),
        tuple(sorted((key, str(value)) for key, value in env.items())),
    )


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}?{parts.query}"


def _line(connection: Tree) -> list[str]:
    """A command line without what makes no difference: where the program lies, and that nobody is
    asked."""
    words = [str(connection.get("command")), *map(str, as_list(connection.get("args")) or ())]
    if len(words) > 2 and _program(words[0]) == "cmd" and words[1].lower() == "/c":
        words = words[2:]
    program = _program(words[0])
    rest = [
        word for word in words[1:] if program not in ("npx", "bunx") or word not in ("-y", "--yes")
    ]
    # A path that is not one of the usual programs' says which of several it is.
    return [program if program in _COMMON else words[0], *rest]


_COMMON = frozenset(
    {"npx", "uvx", "uv", "node", "docker", "podman", "bunx", "bun", "deno", "pipx", "npm", "pnpm"}
)


def _program(word: str) -> str:
    return re.sub(r"\.(?:exe|cmd|bat)$", "", os.path.basename(word.replace("\\", "/")).lower())


def _item(
    one: Given,
    others: list[Given],
    there: There,
    names: "Mapping[EntrySection, _Names]",
    wishes: Wishes,
) -> Item:
    own = tuple(dict.fromkeys(each.name for each in others))
    origins = tuple(dict.fromkeys(each.origin for each in others))
    also = tuple(n for n in own if n != one.name)
    made = Item(
        one.section,
        one.name,
        one.entry,
        "new",
        origins,
        also,
        one.off,
        hidden_tools=one.hidden_tools,
    )
    if reason := _not_wanted(own, wishes):
        return replace(made, state="skipped", why=reason)
    table = there.entries.get(one.section, {})
    if (same := there.same(one)) is not None:
        why = "" if same == one.name else f"it is called {one.name!r} there"
        return replace(made, name=same, state="there", off=None, why=why)
    if one.name in table and wishes.replace and names[one.section].claim(one.name):
        return replace(made, state="replaces", why="it takes the place of the one there is")
    if one.section != "mcp_servers" and one.name in table:
        # Others refer to it by its name.
        return replace(
            made,
            state="there",
            why="the configuration has another of this name; --replace takes this one",
        )
    name = names[one.section].free(one.name, one.origin)
    can = possible(one.name)
    why = (
        "its name is taken by another"
        if name != can
        else ""
        if can == one.name
        else "its name cannot be one here"
    )
    if any(each.hidden_tools != one.hidden_tools for each in others):
        why = "; ".join(
            filter(None, (why, "no tool is hidden, because the clients hide different ones"))
        )
    return replace(made, name=name, entry={**one.entry, "name": name}, why=why)


def _not_wanted(names: Sequence[str], wishes: Wishes) -> str:
    if wishes.only and not any(_matches(name, wishes.only) for name in names):
        return "not among --only"
    return "left out by --skip" if any(_matches(name, wishes.skip) for name in names) else ""


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.lower(), pattern.lower()) for pattern in patterns)


class _Names:
    """Names that are possible, each once."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._claimed: set[str] = set()

    def claim(self, name: str) -> bool:
        """Whether nobody has claimed what was there before."""
        first = name not in self._claimed
        self._claimed.add(name)
        return first

    def free(self, wanted: str, origin: Origin) -> str:
        name = next(
            each for each in _spellings(possible(wanted), origin) if each not in self._taken
        )
        self._taken.add(name)
        return name


def _spellings(name: str, origin: Origin) -> Iterable[str]:
    yield name
    whose = origin.id if origin.id != "file" else "2"
    yield f"{name[: MAX_NAME - len(whose) - 1]}-{whose}"
    make: Callable[[int], str] = lambda n: f"{name[: MAX_NAME - len(whose) - 8]}-{whose}-{n}"  # noqa: E731
    yield from map(make, count(2))
