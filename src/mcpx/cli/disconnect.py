"""`mcpx disconnect` and `mcpx connect --undo`: remove mcpx from client programs, or revert a
change."""

import argparse
from pathlib import Path

from mcpx.cli.client_changes import ClientChanges, named_clients, short
from mcpx.cli.running import mistake
from mcpx.clients.catalogue import Client, clients, places_here
from mcpx.clients.changes import Change, to_disconnect, to_undo
from mcpx.clients.ledger import Record
from mcpx.model.errors import ConfigError


def disconnect(options: argparse.Namespace) -> int:
    wanted = named_clients(options.clients)
    if not wanted and not options.all:
        from mcpx.cli.connect import list_clients

        return list_clients(options, "mcpx disconnect")
    if wanted and options.all:
        raise mistake("name clients, or say --all")
    changes = ClientChanges(options)
    chosen = wanted or clients()
    found = [each for client in chosen for each in _connected(client, changes, options)]
    if not found:
        which = "mcpx is in none of them"
        if len(wanted) == 1:
            which = f"mcpx is not in {wanted[0].name}"
        changes.say(which)
        return changes.finish()
    return changes.each(found, lambda change: _disconnect(changes, change))


def _connected(client: Client, changes: ClientChanges, options: argparse.Namespace) -> list[Change]:
    """The changes that remove the entries of mcpx."""
    scope = "project" if options.project else "user"
    found: list[Change] = []
    for place in places_here(client, changes.project):
        if place.scope != scope or place.spec.reads or not place.there():
            continue
        try:
            change = to_disconnect(client, place, Path(place.path), changes.ledger)
        except ConfigError:
            if not options.all:  # With --all, only files with an entry matter.
                raise
            change = None
        if change is not None:
            found.append(change)
    return found


def _disconnect(changes: ClientChanges, first: Change) -> None:
    def plan() -> Change:
        change = to_disconnect(first.client, first.place, first.file, changes.ledger)
        if change is None:
            raise mistake(f"mcpx is no longer in {first.file}")
        return change

    client = first.client
    done = changes.carry_out(plan, f"Take mcpx out of {client.name}?", "disconnect")
    if done is not None:
        change, copy = done
        changes.add_row(change, "disconnected", backup=copy and str(copy))
        gone = "; the file, which connect had made, is gone" * (change.after is None)
        changes.say(f"disconnected {client.name}: {short(change.file)}{gone}", "green")
        changes.say(f"  {client.after}\n" * bool(client.after))


def undo(options: argparse.Namespace) -> int:
    wanted = named_clients(options.clients)
    changes = ClientChanges(options)
    records = changes.ledger.records()[::-1]
    if wanted:  # The last change of each file of these clients.
        last: dict[str, Record] = {}
        for record in records:
            if record.client in [client.id for client in wanted]:
                last.setdefault(record.file, record)
        records = list(last.values())
    elif not options.all:  # The changes of the last command.
        records = [record for record in records if record.run == records[0].run]
    if not records:
        whose = f" of {', '.join(client.name for client in wanted)}" * bool(wanted)
        hint = "'mcpx disconnect' takes the entry out, whoever wrote it"
        raise mistake(f"there is nothing{whose} to take back; {hint}")
    return changes.each(records, lambda record: _undo(changes, record))


def _undo(changes: ClientChanges, record: Record) -> None:
    first = to_undo(record, changes.ledger)
    if first is None:
        changes.say(f"{short(record.file)}: there is nothing left of it to take back\n")
        row = {"client": record.client, "file": record.file, "status": "already"}
        changes.rows.append(row)
        if not changes.dry_run:
            changes.ledger.drop(record)
        return
    file = short(first.file)
    if not first.exact:
        changes.say(f"{file} was changed since: only the entry of mcpx is taken back")

    def plan() -> Change:
        change = to_undo(record, changes.ledger)
        if change is None:
            raise mistake(f"there is nothing left to take back in {record.file}")
        return change

    done = changes.carry_out(plan, f"Put {file} back?", "undo")
    if done is not None:
        change, _ = done
        changes.add_row(change, "undone", exact=change.exact)
        how = "put back"
        if change.after is None:
            how = "gone, as it was before"
        elif change.exact:
            how = "as it was, byte for byte"
        changes.say(f"undone {change.client.name}: {file} is {how}\n", "green")
