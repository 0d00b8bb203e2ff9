"""`mcpx migrate`: converts a configuration of any dialect to the native dialect (CFG-8)."""

import argparse
import os
import sys
import time
from pathlib import Path

from mcpx.cli import codes
from mcpx.cli.change import ConfigChange
from mcpx.cli.output import counted, plain, print_json, styled
from mcpx.cli.target import overlay, required
from mcpx.config.migration import Migrated, migrated
from mcpx.config.written import Written
from mcpx.core.differences import shown as masked
from mcpx.core.saving import Overtaken, Unwritable, replace_file
from mcpx.imports.imported import to_file
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError

MAX_LINES = 10
"""Comments and differences that are shown."""


def run(options: argparse.Namespace) -> int:
    if options.output and options.in_place:
        raise ConfigError(["error: --in-place and -o FILE: say one of them"])
    change = ConfigChange(required(options, "migrate"), overlay(options), options)
    written = change.require_readable()
    assert written.layers is not None
    dialect = written.layers.whole.dialect
    target = _target(written, change, options)
    is_same_file = options.in_place or (len(written.sheets) == 1 and not options.output)
    if dialect == "native" and is_same_file:
        if change.json:
            print_json({"dialect": "native", "changed": False, "file": str(change.path)})
        else:
            sys.stderr.write(f"{change.shown} is in the native shape already\n")
        return codes.DONE
    made = migrated(written, change.alone.where, target)
    if made.differs:
        places = ", ".join(plain(place, 100) for place in made.differs[:MAX_LINES])
        hint = "say these in the old file in another way first"
        if options.output:
            hint = "write it beside the old file"
        shown = plain(str(target), 4096)
        raise ConfigError([f"error: it would not mean the same in {shown}: {places}\n  {hint}"])
    facts: Json = {"dialect": dialect, "changed": True, "lost_comments": list(made.lost)}
    if options.dry_run or not (options.output or options.in_place):
        _print(made, facts, written, options)
        return codes.DONE
    if options.in_place:
        return _in_place(change, made, facts)
    to_file(target, made.text, force=options.force)
    if change.json:
        print_json({**facts, "file": str(target)})
    else:
        sys.stderr.write(f"written to {plain(str(target), 4096)}\n")
        _print_lost(made)
    return codes.DONE


def _target(written: Written, change: ConfigChange, options: argparse.Namespace) -> Path:
    if options.output:
        path = Path(os.path.abspath(os.path.expanduser(options.output)))
        if path.suffix.lower() not in (".yaml", ".yml", ".json"):
            raise ConfigError(["error: -o FILE: a name that ends in .yaml or .json"])
        return path
    if not options.in_place:
        folder = change.path
        if not os.path.isdir(folder):
            folder = folder.parent
        return folder / ".mcpx-migrated.yaml"  # This file is never written.
    if len(written.sheets) != 1:
        raise ConfigError([f"error: {change.shown} is several files: -o FILE makes one of them"])
    if written.sheets[0].source.form == "toml":
        problem = "is TOML, which mcpx does not write: -o FILE makes a new one"
        raise ConfigError([f"error: {change.shown} {problem}"])
    return written.sheets[0].path


def _print(made: Migrated, facts: Json, written: Written, options: argparse.Namespace) -> None:
    """On a terminal, secrets are masked. A pipe gets the text of the file."""
    if options.json:
        print_json({**facts, "config": made.text})
        return
    text = made.text
    if options.in_place:
        from mcpx.core.differences import difference

        sheet = written.sheets[0]
        lines = difference({str(sheet.path): sheet.text}, {str(sheet.path): text}).splitlines()
        text = "".join(f"{_colored(plain(line, 10_000))}\n" for line in lines)
    elif sys.stdout.isatty():
        text = masked("x.yaml", text)
    sys.stdout.write(text)
    _print_lost(made)


def _colored(line: str) -> str:
    if line.startswith("+"):
        return styled(line, "green")
    if line.startswith("-"):
        return styled(line, "red")
    return line


def _in_place(change: ConfigChange, made: Migrated, facts: Json) -> int:
    sheet = change.written.sheets[0]
    backup = sheet.path.with_name(f"{sheet.path.name}.{time.strftime('%Y%m%d-%H%M%S')}.bak")
    shown = plain(str(backup), 4096)
    try:
        replace_file(backup, sheet.data, None)
    except Overtaken:
        raise ConfigError([f"error: {shown} already exists; try again"]) from None
    except Unwritable as error:
        raise ConfigError([f"error: {error}"]) from None
    try:
        proposal = change.propose({sheet.path: made.text})
        result = change.commit(proposal, "migrate to the native shape")
    except BaseException:
        backup.unlink(missing_ok=True)
        raise
    if not change.json:
        _print_lost(made)
    line = f"{change.shown} is in the native shape; what it was is in {shown}"
    return change.report(result, {**facts, "backup": str(backup)}, line)


def _print_lost(made: Migrated) -> None:
    if made.lost:
        sys.stderr.write(f"{counted(len(made.lost), 'comment')} could not be kept:\n")
        for comment in made.lost[:MAX_LINES]:
            sys.stderr.write(f"  {plain(comment, 120)}\n")
