"""`mcpx remove`, `mcpx enable` and `mcpx disable`: entries of the config, by their names.

Promised: comments and order of everything else stay; all names or none; what other parts of the
config refer to is not taken out unless somebody insists. Files of a bundle stay unless `--purge`
says otherwise.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from mcpx.cli import codes
from mcpx.cli.changing import Subject, code_of, print_change, print_written, subject, write
from mcpx.cli.output import agreed, can_ask, plain, print_json
from mcpx.cli.parsing import near
from mcpx.cli.target import overlay, required
from mcpx.config.edits import Edit, EntrySection, RemoveEntry, SetFields
from mcpx.config.recognising import NOUNS, Section
from mcpx.config.tree import as_bool, as_list, as_map, maps_in
from mcpx.config.written import Written
from mcpx.core.alone import Proposal
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError

Verb = Literal["remove", "enable", "disable"]
_MARK = ".mcpx-sha256"
"""In a folder into which a bundle was unpacked."""


def run(options: argparse.Namespace) -> int:
    verb: Verb = options.command
    on = subject(required(options, f"{verb} NAME --config"), overlay(options))
    written = on.alone.look()
    if written.told:
        on.alone.propose([])  # which says what is wrong with it, and where
    sections: tuple[Section, ...] = ("mcp_servers", "commands", "auth_configs")
    found = _found(
        written, options.names, sections if verb == "remove" else sections[:2], options.kind
    )
    if verb == "remove":
        _refuse_broken(written, found, force=options.force)
        edits: list[Edit] = [RemoveEntry(section, name) for section, name in found]
    else:
        found = [each for each in found if _is_on(written, *each) is (verb == "disable")]
        edits = [SetFields(section, name, {"enabled": verb == "enable"}) for section, name in found]
    if not edits:
        return _nothing(verb, options, on)
    proposal = on.alone.propose(edits, written)
    folders = list(_bundles(written, found)) if verb == "remove" else []
    if options.dry_run or not options.json:
        _show(proposal, options)
    if options.dry_run:
        return codes.DONE
    asks = verb == "remove" and can_ask() and not options.yes and not options.json
    if asks and not agreed(f"Remove {_named(found)}?", default=True):
        return codes.FAILED
    result = write(on, proposal, f"{verb} {_named(found)}")
    purged = _purge(folders, options) if verb == "remove" else []
    if options.json:
        names = [{"section": section, "name": name} for section, name in found]
        print_json(
            {
                f"{verb}d": names,
                "folders": [str(each) for each in folders],
                "purged": purged,
                **result,
            }
        )
        return code_of(result)
    done = {"remove": "removed", "enable": "enabled", "disable": "disabled"}[verb]
    sys.stdout.write(f"{done} {_named(found)} in {on.told}\n")
    for folder in folders:
        told = (
            "its files are gone"
            if str(folder) in purged
            else "its files stay in (--purge removes them)"
        )
        sys.stdout.write(f"{told}: {plain(str(folder), 4096)}\n")
    return print_written(result, on)


def _found(
    written: Written, names: Sequence[str], sections: Sequence[Section], kind: str | None
) -> list[tuple[Section, str]]:
    """Raises `ConfigError` for names there are not, or that several things have."""
    sections = [
        section for section in sections if kind in (None, NOUNS[section].replace(" config", ""))
    ]
    known = {section: [name for _, name in written.names(section)] for section in sections}
    found: list[tuple[Section, str]] = []
    problems: list[str] = []
    for name in dict.fromkeys(names):
        having: list[Section] = [section for section in sections if name in known[section]]
        if len(having) == 1:
            found.append((having[0], name))
        elif having:
            told = " and a ".join(NOUNS[section] for section in having)
            problems.append(
                f"error: {plain(name)!r} is a {told}: say which, --kind "
                f"{NOUNS[having[0]].split()[0]}"
            )
        else:
            every = [each for section in sections for each in known[section]]
            meant = near(name, every)
            few = ", ".join(plain(each, 60) for each in every[:10])
            hint = (
                f"did you mean {plain(meant)!r}?"
                if meant
                else f"there is {few}"
                if every
                else "there is nothing yet"
            )
            noun = " or ".join(NOUNS[section] for section in sections)
            problems.append(f"error: no {noun} is named {plain(name)!r}; {hint}")
    if problems:
        raise ConfigError(problems)
    return found


def _is_on(written: Written, section: Section, name: str) -> bool:
    index = next(index for index, own in written.names(section) if own == name)
    return as_bool(written.native(section, index).get("enabled", True)) is not False


def _refuse_broken(written: Written, found: Sequence[tuple[Section, str]], *, force: bool) -> None:
    """Raises `ConfigError` where something that stays names what goes."""
    gone = set(found)
    problems = [
        f"error: {place} refers to {NOUNS[section]} {plain(name)!r}"
        for section, name in found
        for place in _referring(written, section, name)
        if not any((own, each) in gone for own, each in _owner(written, place))
    ]
    if problems and not force:
        raise ConfigError(
            [*problems[:-1], f"{problems[-1]}\n  take that out first, or use --force"]
        )


def _tree(written: Written) -> dict[str, Any]:
    return written.layers.whole.tree if written.layers else {}


def _referring(written: Written, section: Section, name: str) -> Iterator[str]:
    """Places that name it: `profiles[0].servers`."""
    tree = _tree(written)
    if section == "auth_configs":
        for other in ("mcp_servers", "commands"):
            for index, entry in maps_in(tree.get(other)):
                for holder in (entry, as_map(entry.get("http")) or {}):
                    auth = holder.get("auth")
                    if name in (auth, (as_map(auth) or {}).get("ref")):
                        yield f"{other}[{index}].auth"
        return
    own = "commands" if section == "commands" else name
    for index, profile in maps_in(tree.get("profiles")):
        if section == "mcp_servers" and name in (as_list(profile.get("servers")) or []):
            yield f"profiles[{index}].servers"
        yield from _patterns(profile, own, name, section, f"profiles[{index}]")
    for index, rule in maps_in((as_map(tree.get("policy")) or {}).get("rules")):
        if section == "mcp_servers" and name in (as_list(rule.get("servers")) or []):
            yield f"policy.rules[{index}].servers"
        yield from _patterns(rule, own, name, section, f"policy.rules[{index}]")


def _patterns(
    holder: dict[str, Any], own: str, name: str, section: Section, place: str
) -> Iterator[str]:
    begins = f"{own}.{name}" if section == "commands" else f"{name}."
    for pattern in as_list(holder.get("tools")) or []:
        if str(pattern).removeprefix("!").startswith(begins):
            yield f"{place}.tools"
            return


def _owner(written: Written, place: str) -> Iterator[tuple[EntrySection, str]]:
    """The entry a place stands in."""
    section, _, rest = place.partition("[")
    if section in ("mcp_servers", "commands"):
        known: EntrySection = "mcp_servers" if section == "mcp_servers" else "commands"
        yield known, dict(written.names(known))[int(rest.partition("]")[0])]


def _nothing(verb: Verb, options: argparse.Namespace, on: Subject) -> int:
    if options.json:
        print_json({f"{verb}d": [], "config": str(on.path)})
    else:
        names = ", ".join(plain(name, 100) for name in options.names)
        sys.stdout.write(f"{names}: {verb}d already; nothing was changed\n")
    return codes.DONE


def _show(proposal: Proposal, options: argparse.Namespace) -> None:
    if options.json:
        files = [{"path": str(file.path), "diff": file.diff} for file in proposal.files]
        print_json({"dry_run": True, "files": files, "plan": proposal.plan})
        return
    print_change(proposal)
    if options.dry_run:
        sys.stdout.write(f"would: {plain(proposal.plan)}\nnothing was written (--dry-run)\n")


def _named(found: Sequence[tuple[Section, str]]) -> str:
    return ", ".join(f"{NOUNS[section]} {plain(name, 100)!r}" for section, name in found)


# Bundles
# --------------------------------------------------------------------------------------------------


def _bundles(written: Written, found: Sequence[tuple[Section, str]]) -> Iterator[Path]:
    """Folders of bundles that nothing uses any more."""
    gone, kept = set[Path](), set[Path]()
    for index, name in written.names("mcp_servers"):
        folders = set(_folders(written.native("mcp_servers", index)))
        (gone if ("mcp_servers", name) in found else kept).update(folders)
    yield from sorted(gone - kept)


def _folders(server: Json) -> Iterator[Path]:
    connection = as_map(server.get("connection")) or {}
    for word in (connection.get("command"), *(as_list(connection.get("args")) or [])):
        path = Path(str(word).replace("$$", "$"))
        if path.is_absolute():
            yield from (each for each in (path, *path.parents) if os.path.isfile(each / _MARK))


def _purge(folders: Sequence[Path], options: argparse.Namespace) -> list[str]:
    if not options.purge:
        return []
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return [str(folder) for folder in folders if not folder.exists()]
