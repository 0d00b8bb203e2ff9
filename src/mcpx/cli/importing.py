"""`mcpx import [CLIENT | FILE]`: the servers of client programs, taken over into the configuration
(RUN-5).

Promised: what is found, what becomes of it and where it is written is shown before anything is;
nothing is written without a yes, and nothing at all into a client's own file. A file that cannot be
read is told with its place, and the others are taken all the same.
"""

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from mcpx.cli import changing, codes, secrets_offer, target
from mcpx.cli.output import Cell, Table, agreed, can_ask, counted, plain, print_json, shown
from mcpx.clients.catalogue import client, clients
from mcpx.clients.taking.duplicates import there_of
from mcpx.clients.taking.merging import Item, There, Wishes, merged
from mcpx.clients.taking.reading import WHY_OFF, Origin, Taken, of_clients, of_file, of_text
from mcpx.config.edits import Edit, EntrySection, PutEntry, SetSection
from mcpx.config.recognising import Section
from mcpx.config.source import MAX_BYTES
from mcpx.config.tool_filters import describe, with_rules
from mcpx.config.tree import Tree
from mcpx.config.written import Written
from mcpx.core.alone import Proposal
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError

MOST_LINES = 30
"""Lines of a kind that are told."""
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(slots=True)
class Import:
    """One import, from what was found to what is written."""

    taken: Sequence[Taken]
    items: Sequence[Item]
    on: changing.Subject
    native: bool = True
    """Whether the config is written in the native shape."""
    policy: Any = None
    """The section `policy` of the config."""
    secrets: secrets_offer.Offer | None = None

    @property
    def target(self) -> Path:
        return self.on.path

    @property
    def is_new(self) -> bool:
        return self.on.alone.is_new

    @property
    def chosen(self) -> list[Item]:
        return [item for item in self.items if item.state in ("new", "replaces")]

    @property
    def problems(self) -> list[str]:
        return [problem for each in self.taken for problem in each.problems]

    @property
    def wanted(self) -> dict[str, str]:
        return {name: what for each in self.taken for name, what in each.wanted.items()}


def run(options: argparse.Namespace) -> int:
    on = changing.subject(changing.to_make(options), target.overlay(options))
    taken = _found(options.what, os.environ)
    written = on.alone.look()
    _refuse_a_clients_own(on.path, taken, written)
    given = [each for file in taken for each in file.entries]
    wishes = Wishes(tuple(options.only), tuple(options.skip), options.replace)
    native = all(sheet.dialect == "native" for sheet in written.sheets)
    work = Import(
        taken, merged(given, _there(written), wishes), on, native, written.section("policy")
    )
    _refuse_unknown(options.only, work)
    if not options.json:
        _tell_found(work)
        _print_items(work)
    if not work.chosen:
        return _nothing(work, options)
    entries: list[tuple[Section, Tree]] = [
        (cast(Section, item.section), item.entry) for item in work.chosen
    ]
    work.secrets = secrets_offer.offer(entries, on.path, _with_references(entries))
    secrets_offer.choose(work.secrets, options.secrets)
    proposal = on.alone.propose(
        _edits(work, work.secrets.written), written, **work.secrets.variables
    )
    if options.dry_run:
        return _show(work, proposal, options)
    if not options.json:
        _tell_plan(work)
    if not _agreed(work, options):
        sys.stderr.write("nothing was written\n")
        return codes.FAILED
    return _write(work, work.secrets, proposal, options)


# What there is
# --------------------------------------------------------------------------------------------------


def _found(words: Sequence[str], environ: Mapping[str, str]) -> list[Taken]:
    project = Path.cwd()
    if not words:
        return of_clients(clients(), environ, project)
    taken: list[Taken] = []
    for word in words:
        if word == "-":
            taken.append(_of_stdin(environ))
        elif (known := client(word)) is not None and not os.path.isfile(word):
            files = of_clients([known], environ, project)
            taken += files or [
                Taken(Origin(known.id, known.name, None), notes=("it has no file here",))
            ]
        elif os.path.isfile(word) or target.looks_like_file(word):
            file = Path(os.path.abspath(os.path.expanduser(word)))
            if not file.exists():
                raise ConfigError([f"error: {word} does not exist"])
            taken.append(of_file(file, environ))
        else:
            raise ConfigError([_unknown(word)])
    return taken


def _of_stdin(environ: Mapping[str, str]) -> Taken:
    data = (
        sys.stdin.buffer.read(MAX_BYTES + 1)
        if hasattr(sys.stdin, "buffer")
        else sys.stdin.read().encode()
    )
    if len(data) > MAX_BYTES:
        raise ConfigError([f"error: standard input has more than {MAX_BYTES:,} bytes"])
    try:
        return of_text(data.decode("utf-8-sig"), environ)
    except UnicodeDecodeError:
        raise ConfigError(["error: standard input is not UTF-8 text"]) from None


def _unknown(word: str) -> str:
    from mcpx.cli.parsing import near

    ids = [each.id for each in clients()]
    meant = near(word, [*ids, "openapi", "curl"])
    hint = f"; did you mean {meant!r}?" if meant else f"\n  known client programs: {', '.join(ids)}"
    return f"error: {plain(word, 60)!r} is neither a client program nor a file{hint}"


def _there(written: Written) -> There:
    """What the configuration has; one that cannot be read is told before anything else is done."""
    if written.told:
        first = written.told[0]
        place = f"{first.file}:{first.line}: " if first.line else ""
        raise ConfigError(
            [
                f"error: the config cannot be read: {place}{first.message}; mend it first (mcpx "
                "check)"
            ]
        )
    return there_of(written)


def _refuse_a_clients_own(target: Path, taken: Sequence[Taken], written: Written) -> None:
    own = {os.path.realpath(each.origin.path) for each in taken if each.origin.path is not None}
    if own & {
        os.path.realpath(path) for path in (target, *(sheet.path for sheet in written.sheets))
    }:
        told = f"error: {target} is what is imported, and a client's own file is not written here"
        raise ConfigError([f"{told}\n  Name the config to write into: --into FILE"])


def _refuse_unknown(only: Sequence[str], work: Import) -> None:
    """A name of --only that is nowhere is a slip of the pen."""
    names = [name for item in work.items for name in (item.name, *item.own_names)]
    for pattern in only:
        if not any(fnmatchcase(name.lower(), pattern.lower()) for name in names):
            told = ", ".join(sorted({plain(name, 40) for name in names})) or "none"
            raise ConfigError(
                [f"error: --only {plain(pattern, 60)!r}: no server is called so; there is: {told}"]
            )


# Writing
# --------------------------------------------------------------------------------------------------


def _with_references(entries: Sequence[tuple[Section, Tree]]) -> Mapping[str, str]:
    """The environment, in which no variable is free that something refers to: it is no place for
    another's secret."""
    named = {name: "" for _, entry in entries for name in _REFERENCE.findall(repr(entry))}
    return {**named, **os.environ}


def _edits(work: Import, entries: Sequence[tuple[EntrySection, Json]]) -> list[Edit]:
    edits: list[Edit] = []
    if work.is_new:
        # As a client's own file is read (CFG-2): whose tool it is, is seen by its name.
        edits += [SetSection("mode", "auto"), SetSection("naming", {"prefix": "always"})]
    for item, (section, entry) in zip(work.chosen, entries, strict=True):
        if not work.native:
            entry = {
                key: value for key, value in entry.items() if key != WHY_OFF
            }  # a shape without a word for it
        edits.append(PutEntry(section, item.name, entry, True if item.state == "new" else None))
    if hidden := {item.name: item.hidden_tools for item in work.chosen if item.hidden_tools}:
        edits.append(SetSection("policy", with_rules(work.policy, hidden)))
    return edits


def _agreed(work: Import, options: argparse.Namespace) -> bool:
    if options.yes:
        return True
    if options.json or not can_ask():
        told = (
            "error: nothing was written: nobody can be asked here\n  --yes writes it, "
            "--dry-run shows what would change"
        )
        raise ConfigError([told])
    return agreed(f"\nWrite this into {'the new file ' * work.is_new}{work.on.told}?", default=True)


def _write(
    work: Import, secrets: secrets_offer.Offer, proposal: Proposal, options: argparse.Namespace
) -> int:
    secrets.keep()
    whose = ", ".join(dict.fromkeys(each.origin.name for each in work.taken if each.entries))
    try:
        result = changing.write(work.on, proposal, f"imported from {whose}")
    except BaseException:
        secrets.undo()
        raise
    warnings = _warnings(work, proposal)
    if options.json:
        print_json({**_facts(work), **result, "written": True, "warnings": warnings})
        return codes.FAILED if work.problems else changing.code_of(result)
    changing.print_warnings(warnings[:MOST_LINES])
    sys.stdout.write(f"{counted(len(work.chosen), 'server')} written into {work.on.told}\n")
    code = changing.print_written(result, work.on)
    sys.stdout.write("look at them: mcpx servers; then use them everywhere: mcpx connect\n")
    return codes.FAILED if work.problems else code


# Telling
# --------------------------------------------------------------------------------------------------


def _tell_found(work: Import) -> None:
    say = sys.stderr.write
    counts: dict[str, int] = {}
    for each in work.taken:
        if each.entries or each.itself:
            counts[each.origin.name] = counts.get(each.origin.name, 0) + len(each.entries)
    total, different = sum(counts.values()), len(work.items)
    told = ", ".join(f"{plain(name, 80)} {number}" for name, number in counts.items())
    if told:
        some = "" if different == total else f", {different} different"
        say(f"{told}: {counted(total, 'server')}{some}\n")
    for each in work.taken:
        for name in each.itself:
            say(
                f"  {plain(each.origin.name, 80)}: {plain(name)!r} is left out, it is mcpx itself\n"
            )
    notes = [(each.origin.name, note) for each in work.taken for note in each.notes]
    for name, note in notes[:MOST_LINES]:
        say(f"  {plain(name, 80)}: {plain(note)}\n")
    for problem in work.problems:
        say(f"\n{shown(problem)}\n")
    if work.problems:
        say("\n")


def _nothing(work: Import, options: argparse.Namespace) -> int:
    if options.json:
        print_json({**_facts(work), "written": False})
    elif not work.items:
        what = (
            "the client programs on this machine have no servers"
            if not options.what
            else "there are no servers in it"
        )
        sys.stderr.write(f"nothing to import: {what}\n")
    else:
        sys.stderr.write(f"nothing to import: {work.on.told} is as it was\n")
    return codes.FAILED if work.problems else codes.DONE


def _print_items(work: Import) -> None:
    if not work.items:
        return
    table = Table("SERVER", "WHAT", "FROM", "NOTE")
    styles: Mapping[str, Any] = {
        "new": "green",
        "replaces": "yellow",
        "there": "dim",
        "skipped": "dim",
    }
    words = {"new": "new", "replaces": "replaces", "there": "there already", "skipped": "left out"}
    for item in work.items:
        origins = ", ".join(dict.fromkeys(plain(each.name, 60) for each in item.origins))
        also = f"called {', '.join(map(repr, item.own_names))} there" if item.own_names else ""
        off = f"off: {item.off}" if item.off else "" if item.enabled else "off there, and here"
        tools = (
            f"tools: {describe(item.hidden_tools)}"
            if item.hidden_tools and item in work.chosen
            else ""
        )
        note = "; ".join(filter(None, (off, item.why, also, tools)))
        kind = (
            ""
            if item.section == "mcp_servers"
            else f" ({item.section.removesuffix('s').replace('_', ' ')})"
        )
        table.add(
            plain(item.name, 64) + kind,
            Cell(words[item.state], styles[item.state]),
            origins,
            plain(note),
        )
    table.print()


def _tell_plan(work: Import) -> None:
    say = sys.stderr.write
    for each in work.taken:
        for old, new in list(each.rewritten.items())[:MOST_LINES]:
            say(
                f"  {plain(each.origin.name, 80)}: {plain(old, 80)} is written {plain(new, 80)} "
                "here\n"
            )
    for name, what in work.wanted.items():
        say(
            f"  to be set, where mcpx is started or in a .env file beside the config: {name} "
            f"({plain(what, 120)})\n"
        )
    if work.secrets is not None and work.secrets.variables:
        names = ", ".join(plain(name, 60) for name in work.secrets.variables)
        say(f"  secrets, kept in {_place(work.secrets, work.target)}: {names}\n")


def _place(secrets: secrets_offer.Offer, target: Path) -> str:
    return {"env": plain(str(secrets.file), 4096), "keyring": "the keyring"}.get(
        secrets.place, target.name
    )


def _show(work: Import, proposal: Proposal, options: argparse.Namespace) -> int:
    if options.json:
        diff = "".join(each.diff for each in proposal.files)
        print_json(
            {**_facts(work), "written": False, "diff": diff, "warnings": _warnings(work, proposal)}
        )
    else:
        _tell_plan(work)
        changing.print_change(proposal)
        changing.print_warnings(_warnings(work, proposal))
        sys.stderr.write("nothing was written (--dry-run)\n")
    return codes.FAILED if work.problems else codes.DONE


def _warnings(work: Import, proposal: Proposal) -> list[str]:
    """What the new configuration is warned of, without what is only about to be kept in the
    keyring."""
    names = {item.name for item in work.chosen}
    about = [line for line in proposal.config.warnings if any(repr(name) in line for name in names)]
    kept = (
        work.secrets.variables
        if work.secrets is not None and work.secrets.place == "keyring"
        else {}
    )
    told = [
        line
        for line in about
        if not any(f"keyring has no secret {name!r}" in line for name in kept)
    ]
    return [*(work.secrets.warnings if work.secrets is not None else ()), *told]


def _facts(work: Import) -> dict[str, Any]:
    files = [
        {
            "client": each.origin.id,
            "name": each.origin.name,
            "file": None if each.origin.path is None else str(each.origin.path),
            "servers": len(each.entries),
            "itself": list(each.itself),
            "notes": list(each.notes),
            "rewritten": [{"from": old, "to": new} for old, new in each.rewritten.items()],
            "problems": [
                {"message": t.message, "line": t.line, "column": t.column, "hint": t.hint}
                for t in each.told
            ],
        }
        for each in work.taken
    ]
    servers = [
        {
            "name": item.name,
            "section": item.section,
            "state": item.state,
            "from": list(dict.fromkeys(each.id for each in item.origins)),
            "own_names": list(item.own_names),
            "enabled": item.enabled,
            "why": item.off or item.why or None,
            "hidden_tools": list(item.hidden_tools),
        }
        for item in work.items
    ]
    secrets = work.secrets
    return {
        "config": str(work.target),
        "new_file": work.is_new,
        "clients": files,
        "servers": servers,
        "secrets": None
        if secrets is None or not secrets.variables
        else {"kept": secrets.place, "names": list(secrets.variables)},
        "variables": work.wanted,
    }
