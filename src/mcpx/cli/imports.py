"""`mcpx import openapi` and `mcpx import curl`: requests as commands of a configuration (SRC-7)."""

import argparse
import os
import re
import sys
from collections import Counter
from pathlib import Path

from mcpx.cli.output import Table, counted, print_json
from mcpx.imports.imported import Imported, to_file, to_yaml
from mcpx.imports.source import one_line
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError

MAX_LINES = 10
"""Notes and reasons that are shown."""


def run(options: argparse.Namespace) -> int:
    if options.kind == "curl":
        return _give(_curl(options), options)
    from mcpx.imports.openapi import METHODS, Choice, OpenApiOptions, import_openapi, operations
    from mcpx.imports.openapi_document import read

    for method in options.method:
        if method.lower() not in METHODS:
            problem = f"error: --method {one_line(method, 20)}: there is {', '.join(METHODS)}"
            raise ConfigError([problem])
    if not re.fullmatch(r"[A-Za-z0-9_-]{0,32}", options.prefix):
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
        found = operations(document, options.prefix)
        _list([each.row() for each in found if not choice.refusal(each)], options.json)
        return 0
    made = import_openapi(
        document,
        OpenApiOptions(choice, options.server, options.auth, options.prefix, options.allow_private),
    )
    if not made.commands:
        _report(made)
        raise ConfigError(["error: no operation was imported; --list shows what there is"])
    return _give(made, options)


def _curl(options: argparse.Namespace) -> Imported:
    from mcpx.imports.curl import MAX_LINE, CurlOptions, import_curl

    line: list[str] = options.line
    if not line or line == ["-"]:
        if sys.stdin.isatty():
            sys.stderr.write("Paste the command line, then press Ctrl-D.\n")
        line = [sys.stdin.read(MAX_LINE + 1)]
    params = tuple(options.param)
    return import_curl(line, CurlOptions(options.name, options.auth, params, options.allow_private))


def _list(rows: list[Json], as_json: bool) -> None:
    if as_json:
        print_json({"operations": rows})
        return
    table = Table("NAME", "METHOD", "PATH", "TAGS", "SUMMARY")
    for row in rows:
        note = "(deprecated) " * row["deprecated"]
        tags = one_line(", ".join(row["tags"]), 30)
        summary = note + one_line(row["summary"], 60)
        table.add(row["name"], row["method"], one_line(row["path"], 80), tags, summary)
    table.print()
    sys.stdout.write(f"{counted(len(rows), 'operation')}\n")


def _give(made: Imported, options: argparse.Namespace) -> int:
    text = to_yaml(made.tree)
    file = options.output and str(Path(options.output))
    if file:
        to_file(Path(file), text, force=options.force)
    if options.json:
        facts: Json = {
            "file": file,
            "commands": [command["name"] for command in made.commands],
            "auth_configs": [auth["name"] for auth in made.auths],
            "variables": made.variables,
            "skipped": [{"operation": what, "reason": why} for what, why in made.skipped],
            "notes": made.notes,
        }
        if not file:
            facts["config"] = text
        print_json(facts)
        return 0
    if not file:
        sys.stdout.write(text)
    _report(made)
    for name, what in made.variables.items():
        sys.stderr.write(f"set {name}: {one_line(what, 120)}\n")
    if options.auth is not None:
        auth = one_line(options.auth, 64)
        sys.stderr.write(f"they use the auth config {auth!r} of your configuration\n")
    if file:
        shown = one_line(file, 200)
        how = (
            f"mcpx check {shown}; then put it into the folder of your configuration, or start it: "
            f"mcpx {shown}"
        )
    else:
        how = "write it to a file (-o FILE) in the folder of your configuration, or: mcpx FILE"
    sys.stderr.write(f"use it: {how}\n")
    return 0


def _report(made: Imported) -> None:
    lines = [f"{counted(len(made.commands), 'command')} imported, {len(made.skipped)} skipped"]
    first = {why: what for what, why in reversed(made.skipped)}
    for why, count in Counter(why for _, why in made.skipped).most_common(MAX_LINES):
        more = f" and {count - 1} more" * (count > 1)
        lines.append(f"  skipped {one_line(first[why], 60)}{more}: {one_line(why, 200)}")
    lines += [f"  note: {one_line(note, 200)}" for note in made.notes[:MAX_LINES]]
    if len(made.notes) > MAX_LINES:
        lines.append(f"  note: and {len(made.notes) - MAX_LINES} more; --json shows all")
    if made.shortened and made.commands:
        lines.append(
            "  note: descriptions and schemas are cut so that a configuration can hold them all; "
            "pick fewer for more"
        )
    sys.stderr.write("".join(f"{line}\n" for line in lines))
