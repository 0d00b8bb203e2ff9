"""`mcpx import openapi` and `mcpx import curl`: other people's descriptions of requests as a config
file (SRC-7)."""

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mcpx.cli.terminal import print_json
from mcpx.cli.words import counted
from mcpx.imports.made import Imported
from mcpx.imports.openapi import METHODS, Choice, Operation, import_openapi, operations, summary
from mcpx.imports.openapi import Wishes as OpenApiWishes
from mcpx.imports.servers import NoServer
from mcpx.imports.texts import one_line
from mcpx.imports.writing import fits, refuse_too_much, to_file, to_yaml
from mcpx.model.errors import ConfigError

MOST_LINES = 10
"""Notes of a kind that are told."""


def run(options: argparse.Namespace) -> int:
    imported = _curl(options) if options.kind == "curl" else _openapi(options)
    return 0 if imported is None else _give(imported, options)


def _openapi(options: argparse.Namespace) -> Imported | None:
    from mcpx.imports.document import read

    if unknown := [each for each in options.method if each.lower() not in METHODS]:
        raise ConfigError(
            [f"error: --method {one_line(unknown[0], 20)}: there is {', '.join(METHODS)}"]
        )
    if options.prefix and not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", options.prefix):
        raise ConfigError(["error: --prefix: 1 to 32 letters, digits, _ and -"])
    document = read(options.document, os.environ, allow_private=options.allow_private)
    choice = Choice(
        tuple(options.only),
        tuple(options.skip),
        tuple(options.tag),
        tuple(options.method),
        options.deprecated,
    )
    if options.list:
        _list(
            [each for each in operations(document, options.prefix) if choice.refusal(each) is None],
            options.json,
        )
        return None
    wishes = OpenApiWishes(
        choice, options.server, options.auth, options.prefix, options.allow_private
    )
    try:
        imported = import_openapi(document, wishes, fits)
    except NoServer as reason:
        raise ConfigError([f"error: --server: {reason}"]) from None
    if not imported.commands:
        _report(imported)
        raise ConfigError(["error: no operation was imported; --list shows what there is"])
    refuse_too_much(imported)
    return imported


def _curl(options: argparse.Namespace) -> Imported:
    from mcpx.imports.curl import LONGEST, Wishes, import_curl

    line: list[str] = options.line
    if not line or line == ["-"]:
        if sys.stdin.isatty():
            sys.stderr.write("Paste the command line, then press Ctrl-D.\n")
        line = [sys.stdin.read(LONGEST + 1)]
    wishes = Wishes(options.name, options.auth, tuple(options.param), options.allow_private)
    return import_curl(line, wishes)


def _list(found: Sequence[Operation], as_json: bool) -> None:
    told = [summary(each) for each in found]
    if as_json:
        print_json({"operations": told})
        return
    rows = [("NAME", "METHOD", "PATH", "TAGS", "SUMMARY")]
    for each in told:
        tags = one_line(", ".join(each["tags"]), 30)
        noted = f"{'(deprecated) ' * each['deprecated']}{one_line(each['summary'], 60)}"
        rows.append((each["name"], each["method"], one_line(each["path"], 80), tags, noted))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        sys.stdout.write("  ".join([*cells, row[-1]]).rstrip() + "\n")
    sys.stdout.write(f"{counted(len(told), 'operation')}\n")


def _give(imported: Imported, options: argparse.Namespace) -> int:
    text = to_yaml(imported.tree)
    file = Path(options.output) if options.output else None
    if file is not None:
        to_file(file, text, force=options.force)
    if options.json:
        facts: dict[str, Any] = {
            "file": None if file is None else str(file),
            "commands": [command["name"] for command in imported.commands],
            "auth_configs": [auth["name"] for auth in imported.auths],
            "variables": imported.variables,
            "skipped": [{"operation": what, "reason": why} for what, why in imported.skipped],
            "notes": imported.notes,
        }
        print_json(facts if file is not None else {**facts, "config": text})
        return 0
    if file is None:
        sys.stdout.write(text)
    _report(imported)
    _say_how_to_use(imported, file, options.auth)
    return 0


def _report(imported: Imported) -> None:
    """What was done, and what was not and why."""
    say = sys.stderr.write
    say(f"{counted(len(imported.commands), 'command')} imported, {len(imported.skipped)} skipped\n")
    for reason, count in Counter(why for _, why in imported.skipped).most_common(MOST_LINES):
        first = one_line(next(what for what, why in imported.skipped if why == reason), 60)
        more = f" and {count - 1} more" if count > 1 else ""
        say(f"  skipped {first}{more}: {one_line(reason, 200)}\n")
    for note in imported.notes[:MOST_LINES]:
        say(f"  note: {one_line(note, 200)}\n")
    if (left := len(imported.notes) - MOST_LINES) > 0:
        say(f"  note: and {left} more; --json tells them all\n")
    if imported.shortened and imported.commands:
        say(
            "  note: descriptions and schemas are cut so that a configuration can hold them all; "
            "pick fewer for more\n"
        )


def _say_how_to_use(imported: Imported, file: Path | None, auth: str | None) -> None:
    say = sys.stderr.write
    for name, what in imported.variables.items():
        say(f"set {name}: {one_line(what, 120)}\n")
    if auth is not None:
        say(
            f"they use the auth config {one_line(auth, 64)!r}, which must be in your "
            "configuration\n"
        )
    if file is None:
        say(
            "use it: write it to a file (-o FILE) in the folder of your configuration, or start "
            "it alone: mcpx FILE\n"
        )
    else:
        told = one_line(str(file), 200)
        say(
            f"use it: mcpx check {told}; then put it into the folder of your configuration, or "
            f"start it: mcpx {told}\n"
        )
