"""`mcpx import [CLIENT | FILE]`: adds the servers of client programs to the configuration (RUN-5).

The command shows the servers and the planned change, and asks before it writes. It never writes
into a client's file. It reports a file that cannot be read, and imports the other files.
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

from mcpx.cli import codes
from mcpx.cli.change import ConfigChange, path_to_write, print_change, print_warnings
from mcpx.cli.output import Cell, Table, agreed, can_ask, counted, plain, print_json, shown
from mcpx.cli.parsing import near
from mcpx.cli.secret_references import SecretReferences, refer_to_secrets
from mcpx.cli.target import looks_like_file, overlay
from mcpx.clients.catalogue import client, clients
from mcpx.clients.merging import Item, Selection, merged, present_entries
from mcpx.clients.reading import WHY_OFF, Origin, Taken, read_clients, read_file, read_text
from mcpx.config.edits import Edit, PutEntry, SetSection
from mcpx.config.recognising import Section
from mcpx.config.source import MAX_BYTES
from mcpx.config.tool_filters import describe, with_rules
from mcpx.core.alone import Proposal
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError

MAX_LINES = 30
"""Lines of one kind that are shown."""
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")
_STATES: Mapping[str, Cell] = {
    "new": Cell("new", "green"),
    "replaces": Cell("replaces", "yellow"),
    "there": Cell("there already", "dim"),
    "skipped": Cell("left out", "dim"),
}


@dataclass(slots=True)
class _Import:
    change: ConfigChange
    taken: Sequence[Taken]
    items: Sequence[Item]
    chosen: Sequence[Item]
    secrets: SecretReferences

    @property
    def problems(self) -> list[str]:
        return [problem for each in self.taken for problem in each.problems]

    @property
    def variables(self) -> dict[str, str]:
        """Variables that the user has to set, with a description."""
        return {name: what for each in self.taken for name, what in each.wanted.items()}

    @property
    def failure_code(self) -> int:
        if self.problems:
            return codes.FAILED
        return codes.DONE


def run(options: argparse.Namespace) -> int:
    change = ConfigChange(path_to_write(options), overlay(options), options)
    taken = _taken(options.what, os.environ)
    written = change.written
    _refuse_own_file(change, taken)
    selection = Selection(tuple(options.only), tuple(options.skip), options.replace)
    given = [entry for file in taken for entry in file.entries]
    items = merged(given, present_entries(written), selection)
    _refuse_unknown(options.only, items)
    chosen = [item for item in items if item.state in ("new", "replaces")]
    entries: list[tuple[Section, Json]] = [
        (cast(Section, item.section), item.entry) for item in chosen
    ]
    # A variable that an entry refers to is no place for another secret.
    named = {name: "" for _, entry in entries for name in _REFERENCE.findall(repr(entry))}
    secrets = refer_to_secrets(entries, change.path, {**named, **os.environ})
    work = _Import(change, taken, items, chosen, secrets)
    if not change.json:
        _print_found(work)
        _print_items(items, chosen)
    if not chosen:
        return _report_nothing(work, options)
    secrets.choose_place(options.secrets)
    proposal = change.propose(_edits(work), **secrets.variables)
    if change.dry_run:
        return _report_dry_run(work, proposal)
    if not change.json:
        _print_plan(work)
    if not _agreed(work):
        sys.stderr.write("nothing was written\n")
        return codes.FAILED
    names = ", ".join(dict.fromkeys(each.origin.name for each in taken if each.entries))
    result = change.commit(proposal, f"imported from {names}", secrets)
    warnings = _warnings(work, proposal)
    if not change.json:
        print_warnings(warnings[:MAX_LINES])
    facts = {**_facts(work), "written": True, "warnings": warnings}
    line = f"{counted(len(chosen), 'server')} written into {change.shown}"
    code = change.report(result, facts, line)
    if not change.json:
        sys.stdout.write("look at them: mcpx servers; then use them everywhere: mcpx connect\n")
    return max(code, work.failure_code)


# Reading


def _taken(words: Sequence[str], environ: Mapping[str, str]) -> list[Taken]:
    project = Path.cwd()
    if not words:
        return read_clients(clients(), environ, project)
    taken: list[Taken] = []
    for word in words:
        known = client(word)
        if word == "-":
            taken.append(read_text(_standard_input(), environ))
        elif known is not None and not os.path.isfile(word):
            origin = Origin(known.id, known.name, None)
            files = read_clients([known], environ, project)
            taken += files or [Taken(origin, notes=("it has no file here",))]
        elif os.path.isfile(word) or looks_like_file(word):
            file = Path(os.path.abspath(os.path.expanduser(word)))
            if not file.exists():
                raise ConfigError([f"error: {word} does not exist"])
            taken.append(read_file(file, environ))
        else:
            raise ConfigError([_unknown(word)])
    return taken


def _standard_input() -> str:
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigError([f"error: standard input has more than {MAX_BYTES:,} bytes"])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(["error: standard input is not UTF-8 text"]) from None


def _unknown(word: str) -> str:
    ids = [each.id for each in clients()]
    similar = near(word, [*ids, "openapi", "curl"])
    hint = f"\n  known client programs: {', '.join(ids)}"
    if similar:
        hint = f"; did you mean {similar!r}?"
    return f"error: {plain(word, 60)!r} is neither a client program nor a file{hint}"


def _refuse_own_file(change: ConfigChange, taken: Sequence[Taken]) -> None:
    paths = (change.path, *(sheet.path for sheet in change.written.sheets))
    targets = {os.path.realpath(path) for path in paths}
    if any(each.origin.path and os.path.realpath(each.origin.path) in targets for each in taken):
        problem = "is what is imported, and a client's own file is not written here"
        hint = "Name the config to write into: --into FILE"
        raise ConfigError([f"error: {change.path} {problem}\n  {hint}"])


def _refuse_unknown(only: Sequence[str], items: Sequence[Item]) -> None:
    names = [name for item in items for name in (item.name, *item.own_names)]
    for pattern in only:
        if not any(fnmatchcase(name.lower(), pattern.lower()) for name in names):
            known = ", ".join(sorted({plain(name, 40) for name in names})) or "none"
            problem = f"--only {plain(pattern, 60)!r}: no server is called so; there is: {known}"
            raise ConfigError([f"error: {problem}"])


# Writing


def _edits(work: _Import) -> list[Edit]:
    edits: list[Edit] = []
    written = work.change.written
    if work.change.alone.is_new:
        # As for a client's own file (CFG-2): the name of a tool shows its server.
        edits += [SetSection("mode", "auto"), SetSection("naming", {"prefix": "always"})]
    is_native = all(sheet.dialect == "native" for sheet in written.sheets)
    for item, (section, entry) in zip(work.chosen, work.secrets.written, strict=True):
        kept = {key: value for key, value in entry.items() if is_native or key != WHY_OFF}
        is_new = {"new": True}.get(item.state)
        edits.append(PutEntry(section, item.name, kept, is_new))
    hidden = {item.name: item.hidden_tools for item in work.chosen if item.hidden_tools}
    if hidden:
        edits.append(SetSection("policy", with_rules(written.section("policy"), hidden)))
    return edits


def _agreed(work: _Import) -> bool:
    change = work.change
    if change.yes:
        return True
    if change.json or not can_ask():
        problem = "error: nothing was written: nobody can be asked here"
        hint = "--yes writes it, --dry-run shows what would change"
        raise ConfigError([f"{problem}\n  {hint}"])
    new = "the new file " * change.alone.is_new
    return agreed(f"\nWrite this into {new}{change.shown}?", default=True)


# Showing


def _print_found(work: _Import) -> None:
    counts: dict[str, int] = {}
    lines: list[str] = []
    for each in work.taken:
        name = plain(each.origin.name, 80)
        if each.entries or each.itself:
            counts[name] = counts.get(name, 0) + len(each.entries)
        lines += [f"  {name}: {plain(own)!r} is left out, it is mcpx itself" for own in each.itself]
    for each in work.taken:
        name = plain(each.origin.name, 80)
        lines += [f"  {name}: {plain(note)}" for note in each.notes[:MAX_LINES]]
    lines += [f"\n{shown(problem)}" for problem in work.problems]
    if counts:
        total = sum(counts.values())
        different = f", {len(work.items)} different" * (len(work.items) != total)
        names = ", ".join(f"{name} {number}" for name, number in counts.items())
        lines.insert(0, f"{names}: {counted(total, 'server')}{different}")
    if work.problems:
        lines.append("")
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def _print_items(items: Sequence[Item], chosen: Sequence[Item]) -> None:
    if not items:
        return
    table = Table("SERVER", "WHAT", "FROM", "NOTE")
    for item in items:
        notes = [f"off: {item.off}" * bool(item.off), item.why]
        if not item.off and not item.enabled:
            notes.insert(0, "off there, and here")
        if item.own_names:
            notes.append(f"called {', '.join(map(repr, item.own_names))} there")
        if item.hidden_tools and item in chosen:
            notes.append(f"tools: {describe(item.hidden_tools)}")
        name = plain(item.name, 64)
        if item.section != "mcp_servers":
            name += f" ({item.section.removesuffix('s').replace('_', ' ')})"
        origins = ", ".join(dict.fromkeys(plain(each.name, 60) for each in item.origins))
        table.add(name, _STATES[item.state], origins, plain("; ".join(filter(None, notes))))
    table.print()


def _print_plan(work: _Import) -> None:
    lines: list[str] = []
    for each in work.taken:
        name = plain(each.origin.name, 80)
        for old, new in list(each.rewritten.items())[:MAX_LINES]:
            lines.append(f"{name}: {plain(old, 80)} is written {plain(new, 80)} here")
    for name, what in work.variables.items():
        place = "where mcpx is started or in a .env file beside the config"
        lines.append(f"to be set, {place}: {name} ({plain(what, 120)})")
    if work.secrets.variables:
        names = ", ".join(plain(name, 60) for name in work.secrets.variables)
        lines.append(f"secrets, kept in {work.secrets.shown_place}: {names}")
    sys.stderr.write("".join(f"  {line}\n" for line in lines))


def _report_nothing(work: _Import, options: argparse.Namespace) -> int:
    reason = f"{work.change.shown} is as it was"
    if not work.items:
        reason = "the client programs on this machine have no servers"
        if options.what:
            reason = "there are no servers in it"
    if work.change.json:
        print_json({**_facts(work), "written": False})
    else:
        sys.stderr.write(f"nothing to import: {reason}\n")
    return work.failure_code


def _report_dry_run(work: _Import, proposal: Proposal) -> int:
    warnings = _warnings(work, proposal)
    if work.change.json:
        diff = "".join(file.diff for file in proposal.files)
        print_json({**_facts(work), "written": False, "diff": diff, "warnings": warnings})
    else:
        _print_plan(work)
        print_change(proposal)
        print_warnings(warnings)
        sys.stderr.write("nothing was written (--dry-run)\n")
    return work.failure_code


def _warnings(work: _Import, proposal: Proposal) -> list[str]:
    """The warnings about the new entries."""
    names = [repr(item.name) for item in work.chosen]
    warnings = [line for line in proposal.config.warnings if any(name in line for name in names)]
    if work.secrets.place == "keyring":  # The secrets are not in the keyring yet.
        missing = [f"keyring has no secret {name!r}" for name in work.secrets.variables]
        warnings = [line for line in warnings if not any(each in line for each in missing)]
    return [*work.secrets.warnings, *warnings]


def _facts(work: _Import) -> Json:
    secrets: Any = None
    if work.secrets.variables:
        secrets = {"kept": work.secrets.place, "names": list(work.secrets.variables)}
    return {
        "config": str(work.change.path),
        "new_file": work.change.alone.is_new,
        "clients": list(map(_client_facts, work.taken)),
        "servers": list(map(_item_facts, work.items)),
        "secrets": secrets,
        "variables": work.variables,
    }


def _client_facts(taken: Taken) -> Json:
    keys = ("message", "line", "column", "hint")
    return {
        "client": taken.origin.id,
        "name": taken.origin.name,
        "file": taken.origin.path and str(taken.origin.path),
        "servers": len(taken.entries),
        "itself": list(taken.itself),
        "notes": list(taken.notes),
        "rewritten": [{"from": old, "to": new} for old, new in taken.rewritten.items()],
        "problems": [{key: getattr(each, key) for key in keys} for each in taken.told],
    }


def _item_facts(item: Item) -> Json:
    return {
        "name": item.name,
        "section": item.section,
        "state": item.state,
        "from": list(dict.fromkeys(each.id for each in item.origins)),
        "own_names": list(item.own_names),
        "enabled": item.enabled,
        "why": item.off or item.why or None,
        "hidden_tools": list(item.hidden_tools),
    }
