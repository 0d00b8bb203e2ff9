"""`mcpx export`: one text that holds no literal secret, and which variables stand for them."""

import argparse
import sys
from pathlib import Path

from mcpx.cli import codes
from mcpx.cli.changing import print_warnings, subject
from mcpx.cli.terminal import plain, print_json
from mcpx.cli.where import overlay, required
from mcpx.config.exports import export
from mcpx.imports.imported import to_file


def run(options: argparse.Namespace) -> int:
    on = subject(required(options, "export"), overlay(options))
    written = on.alone.look()
    if written.told:
        on.alone.propose([])  # which says what is wrong with it, and where
    made = export(written, options.format)
    file = Path(options.output) if options.output else None
    if file is not None:
        to_file(file, made.text, force=options.force)
    if options.json:
        facts = {"variables": made.variables, "warnings": list(made.warnings)}
        print_json(
            {"file": str(file), **facts} if file is not None else {"config": made.text, **facts}
        )
        return codes.DONE
    if file is None:
        sys.stdout.write(made.text)
    else:
        sys.stderr.write(f"written to {plain(str(file), 4096)}\n")
    print_warnings(made.warnings)
    for name, place in made.variables.items():
        sys.stderr.write(f"to be set: {plain(name, 100)}, for {plain(place, 200)}\n")
    return codes.DONE
