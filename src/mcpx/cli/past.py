"""`mcpx config history` and `mcpx config rollback`: revisions of the config, as the admin UI keeps
them too."""

import argparse
import sys
from dataclasses import asdict

from mcpx.cli import codes
from mcpx.cli.changing import Subject, code_of, print_change, print_written, subject, write
from mcpx.cli.terminal import Table, plain, print_json
from mcpx.cli.where import overlay, required
from mcpx.model.errors import ConfigError
from mcpx.wire.exchange import whole_number


def run(options: argparse.Namespace) -> int:
    on = subject(required(options, "config history --config"), overlay(options))
    return _history(on, options) if options.action == "history" else _rollback(on, options)


def _history(on: Subject, options: argparse.Namespace) -> int:
    found = on.alone.revisions()
    if options.json:
        print_json(
            {
                "config": str(on.path),
                "revisions": [{**asdict(each), "kept": kept} for each, kept in found],
            }
        )
        return codes.DONE
    if not found:
        sys.stdout.write(f"nothing is kept of {on.told}\n")
        return codes.DONE
    table = Table("NUMBER", "WHEN", "BY", "WHAT")
    for revision, kept in found:
        what = revision.message or revision.plan
        gone = "" if kept else " (its text is not kept)"
        table.add(str(revision.number), revision.at, plain(revision.by, 40), plain(what) + gone)
    table.print()
    return codes.DONE


def _rollback(on: Subject, options: argparse.Namespace) -> int:
    number = whole_number(options.what or "")
    if number is None:
        raise ConfigError(
            ["error: say which: mcpx config rollback NUMBER; 'mcpx config history' lists them"]
        )
    texts = on.alone.texts(number)
    proposal = on.alone.propose(texts)
    if not proposal.texts:
        if options.json:
            print_json({"config": str(on.path), "changed": False})
        else:
            sys.stdout.write(f"{on.told} says that already\n")
        return codes.DONE
    if not options.json:
        print_change(proposal)
    if options.dry_run:
        if options.json:
            print_json(
                {
                    "dry_run": True,
                    "files": [{"path": str(f.path), "diff": f.diff} for f in proposal.files],
                }
            )
        return codes.DONE
    result = write(on, proposal, f"back to revision {number}")
    if options.json:
        print_json({"changed": True, **result})
        return code_of(result)
    sys.stdout.write(f"{on.told} says again what it said in revision {number}\n")
    return print_written(result, on)
