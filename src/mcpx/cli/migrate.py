"""`mcpx migrate`: any dialect in the native shape, saying what could not be kept; nothing is
changed in meaning."""

import argparse
import os
import sys
import time
from pathlib import Path

from mcpx.cli import codes
from mcpx.cli.changing import Subject, code_of, print_written, subject, write
from mcpx.cli.output import plain, print_json, styled
from mcpx.cli.target import overlay, required
from mcpx.config.migration import Migrated, migrated
from mcpx.config.written import Written
from mcpx.core.differences import shown as masked
from mcpx.core.saving import Overtaken, Unwritable, replace_file
from mcpx.imports.imported import to_file
from mcpx.model.errors import ConfigError

MOST = 10
"""Comments and differences that are told one by one."""


def run(options: argparse.Namespace) -> int:
    if options.output and options.in_place:
        raise ConfigError(["error: --in-place and -o FILE: say one of them"])
    on = subject(required(options, "migrate"), overlay(options))
    written = on.alone.look()
    if written.told or written.layers is None:
        on.alone.propose([])  # which says what is wrong with it, and where
        raise ConfigError([f"error: {on.told} cannot be read"])
    dialect = written.layers.whole.dialect
    target = _target(written, on, options)
    if dialect == "native" and (
        options.in_place or (len(written.sheets) == 1 and not options.output)
    ):
        return _native_already(on, options)
    made = migrated(written, on.alone.where, target)
    if made.differs:
        places = ", ".join(plain(place, 100) for place in made.differs[:MOST])
        told = (
            "write it beside the old file"
            if options.output
            else "say these in the old file in another way first"
        )
        raise ConfigError(
            [f"error: it would not mean the same in {plain(str(target), 4096)}: {places}\n  {told}"]
        )
    if options.dry_run or not (options.output or options.in_place):
        return _print(made, dialect, written, options)
    if options.output:
        to_file(target, made.text, force=options.force)
        if options.json:
            print_json({**_facts(made, dialect), "file": str(target)})
            return codes.DONE
        sys.stderr.write(f"written to {plain(str(target), 4096)}\n")
        _say_lost(made)
        return codes.DONE
    return _in_place(on, written, made, dialect, options)


def _target(written: Written, on: Subject, options: argparse.Namespace) -> Path:
    if options.output:
        path = Path(os.path.abspath(os.path.expanduser(options.output)))
        if path.suffix.lower() not in (".yaml", ".yml", ".json"):
            raise ConfigError(["error: -o FILE: a name that ends in .yaml or .json"])
        return path
    if options.in_place:
        if len(written.sheets) != 1:
            raise ConfigError([f"error: {on.told} is several files: -o FILE makes one of them"])
        if written.sheets[0].source.form == "toml":
            raise ConfigError(
                [f"error: {on.told} is TOML, which mcpx does not write: -o FILE makes a new one"]
            )
        return written.sheets[0].path
    folder = on.path if os.path.isdir(on.path) else on.path.parent
    return folder / ".mcpx-migrated.yaml"  # it is only imagined to be there


def _native_already(on: Subject, options: argparse.Namespace) -> int:
    if options.json:
        print_json({"dialect": "native", "changed": False, "file": str(on.path)})
    else:
        sys.stderr.write(f"{on.told} is in the native shape already\n")
    return codes.DONE


def _print(made: Migrated, dialect: str, written: Written, options: argparse.Namespace) -> int:
    """On a terminal without its secrets; a pipe gets what a file would."""
    if options.json:
        print_json({**_facts(made, dialect), "config": made.text})
        return codes.DONE
    if options.in_place and options.dry_run:
        from mcpx.core.differences import difference

        sheet = written.sheets[0]
        for line in difference(
            {str(sheet.path): sheet.text}, {str(sheet.path): made.text}
        ).splitlines():
            style = {"+": "green", "-": "red"}.get(line[:1])
            sys.stdout.write(f"{styled(plain(line, 10_000), style)}\n")  # pyright: ignore[reportArgumentType]
    else:
        sys.stdout.write(masked("x.yaml", made.text) if sys.stdout.isatty() else made.text)
    _say_lost(made)
    return codes.DONE


def _in_place(
    on: Subject, written: Written, made: Migrated, dialect: str, options: argparse.Namespace
) -> int:
    sheet = written.sheets[0]
    stamp = time.strftime("%Y%m%d-%H%M%S")
    backup = sheet.path.with_name(f"{sheet.path.name}.{stamp}.bak")
    try:
        replace_file(backup, sheet.data, None)
    except Overtaken:
        raise ConfigError(
            [f"error: {plain(str(backup), 4096)} is there already; try again"]
        ) from None
    except Unwritable as error:
        raise ConfigError([f"error: {error}"]) from None
    try:
        result = write(
            on, on.alone.propose({sheet.path: made.text}, written), "migrate to the native shape"
        )
    except BaseException:
        backup.unlink(missing_ok=True)
        raise
    if options.json:
        print_json({**_facts(made, dialect), "backup": str(backup), **result})
        return code_of(result)
    sys.stdout.write(
        f"{on.told} is in the native shape; what it was is in {plain(str(backup), 4096)}\n"
    )
    _say_lost(made)
    return print_written(result, on)


def _facts(made: Migrated, dialect: str) -> dict[str, object]:
    return {"dialect": dialect, "changed": True, "lost_comments": list(made.lost)}


def _say_lost(made: Migrated) -> None:
    if made.lost:
        number = len(made.lost)
        sys.stderr.write(f"{number} comment{'s' * (number != 1)} could not be kept:\n")
        for comment in made.lost[:MOST]:
            sys.stderr.write(f"  {plain(comment, 120)}\n")
