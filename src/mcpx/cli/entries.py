"""`mcpx remove`, `mcpx enable`, and `mcpx disable`: entries of the configuration, by name.

Either all named entries are changed, or none. An entry that other parts of the configuration refer
to is removed only with `--force`. The files of a bundle stay unless `--purge` is given.
"""

import argparse
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mcpx.cli import codes
from mcpx.cli.change import ConfigChange
from mcpx.cli.output import Output, plain
from mcpx.cli.parsing import near
from mcpx.cli.target import overlay, required
from mcpx.config.edits import Edit, RemoveEntry, SetFields
from mcpx.config.recognising import NOUNS, Section
from mcpx.config.tree import as_bool, as_list, as_map, maps_in
from mcpx.config.written import Written
from mcpx.imports.bundle import UNPACKED_MARK
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError

Entry = tuple[Section, str]
SECTIONS: tuple[Section, ...] = ("mcp_servers", "commands", "auth_configs")


def run(options: argparse.Namespace) -> int:
    verb: str = options.command
    change = ConfigChange(required(options, f"{verb} NAME --config"), overlay(options), options)
    written = change.require_readable()
    folders: list[Path] = []
    edits: list[Edit] = []
    if verb == "remove":
        found = _found(written, options.names, SECTIONS, options.kind)
        if not options.force:
            _refuse_broken(written, found)
        edits += [RemoveEntry(section, name) for section, name in found]
        folders = _unused_bundles(written, found)
    else:
        enabled = verb == "enable"
        found = _found(written, options.names, SECTIONS[:2], options.kind)
        found = [each for each in found if _is_enabled(written, *each) is not enabled]
        edits += [SetFields(section, name, {"enabled": enabled}) for section, name in found]
    if not edits:
        names = ", ".join(plain(name, 100) for name in options.names)
        facts: Json = {f"{verb}d": [], "config": str(change.path)}
        Output(change.json).result(facts, f"{names}: {verb}d already; nothing was changed")
        return codes.DONE
    names = ", ".join(f"{NOUNS[section]} {plain(name, 100)!r}" for section, name in found)
    question = f"Remove {names}?" * (verb == "remove")
    result = change.run(change.propose(edits), f"{verb} {names}", question=question)
    if isinstance(result, int):
        return result
    purged: list[str] = []
    lines = [f"{verb}d {names} in {change.shown}"]
    for folder in folders:
        if options.purge:
            shutil.rmtree(folder, ignore_errors=True)
        shown = plain(str(folder), 4096)
        if folder.exists():
            lines.append(f"its files stay in (--purge removes them): {shown}")
        else:
            purged.append(str(folder))
            lines.append(f"its files are gone: {shown}")
    facts = {
        f"{verb}d": [{"section": section, "name": name} for section, name in found],
        "folders": [str(folder) for folder in folders],
        "purged": purged,
    }
    return change.report(result, facts, *lines)


def _found(
    written: Written, names: Sequence[str], sections: Sequence[Section], kind: str | None
) -> list[Entry]:
    """Raises ConfigError for unknown names and for names of several entries."""
    known: dict[Section, list[str]] = {
        section: [name for _, name in written.names(section)]
        for section in sections
        if kind in (None, NOUNS[section].replace(" config", ""))
    }
    found: list[Entry] = []
    problems: list[str] = []
    for name in dict.fromkeys(names):
        having: list[Section] = [section for section in known if name in known[section]]
        if len(having) == 1:
            found.append((having[0], name))
        elif having:
            nouns = " and a ".join(NOUNS[section] for section in having)
            first = NOUNS[having[0]].split()[0]
            problems.append(f"error: {plain(name)!r} is a {nouns}: say which, --kind {first}")
        else:
            problems.append(_unknown(name, known))
    if problems:
        raise ConfigError(problems)
    return found


def _unknown(name: str, known: dict[Section, list[str]]) -> str:
    every = [each for names in known.values() for each in names]
    similar = near(name, every)
    hint = "there is nothing yet"
    if similar:
        hint = f"did you mean {plain(similar)!r}?"
    elif every:
        hint = f"there is {', '.join(plain(each, 60) for each in every[:10])}"
    noun = " or ".join(NOUNS[section] for section in known)
    return f"error: no {noun} is named {plain(name)!r}; {hint}"


def _is_enabled(written: Written, section: Section, name: str) -> bool:
    index = next(index for index, own in written.names(section) if own == name)
    return as_bool(written.native(section, index).get("enabled", True)) is not False


def _refuse_broken(written: Written, found: Sequence[Entry]) -> None:
    """Raises ConfigError if an entry that stays refers to a removed one."""
    assert written.layers is not None
    tree = written.layers.whole.tree
    problems = [
        f"error: {place} refers to {NOUNS[section]} {plain(name)!r}"
        for section, name in found
        for place, owner in _referring(tree, section, name)
        if owner not in found
    ]
    if problems:
        problems[-1] += "\n  take that out first, or use --force"
        raise ConfigError(problems)


def _referring(tree: Json, section: Section, name: str) -> Iterator[tuple[str, Entry | None]]:
    """The places that refer to an entry, and the entries that they are in."""
    if section == "auth_configs":
        others: tuple[Section, ...] = ("mcp_servers", "commands")
        for other in others:
            for index, entry in maps_in(tree.get(other)):
                auths = [entry.get("auth"), (as_map(entry.get("http")) or {}).get("auth")]
                auths += [(as_map(auth) or {}).get("ref") for auth in auths]
                if name in auths:
                    yield f"{other}[{index}].auth", (other, str(entry.get("name")))
        return
    rules = (as_map(tree.get("policy")) or {}).get("rules")
    begin = f"{name}."
    if section == "commands":
        begin = f"commands.{name}"
    for path, holders in (("profiles", tree.get("profiles")), ("policy.rules", rules)):
        for index, holder in maps_in(holders):
            if section == "mcp_servers" and name in (as_list(holder.get("servers")) or []):
                yield f"{path}[{index}].servers", None
            patterns: list[Any] = as_list(holder.get("tools")) or []
            if any(str(pattern).removeprefix("!").startswith(begin) for pattern in patterns):
                yield f"{path}[{index}].tools", None


def _unused_bundles(written: Written, found: Sequence[Entry]) -> list[Path]:
    """Folders of bundles that only removed servers use."""
    removed, kept = set[Path](), set[Path]()
    for index, name in written.names("mcp_servers"):
        folders = _bundle_folders(written.native("mcp_servers", index))
        if ("mcp_servers", name) in found:
            removed.update(folders)
        else:
            kept.update(folders)
    return sorted(removed - kept)


def _bundle_folders(server: Json) -> Iterator[Path]:
    connection = as_map(server.get("connection")) or {}
    for word in (connection.get("command"), *(as_list(connection.get("args")) or [])):
        path = Path(str(word).replace("$$", "$"))
        if path.is_absolute():
            folders = (path, *path.parents)
            yield from (each for each in folders if os.path.isfile(each / UNPACKED_MARK))
