"""`mcpx disconnect`, and `mcpx connect --undo`: mcpx taken out of client programs, or what was
there put back."""

import argparse
from pathlib import Path

from mcpx.cli.client_files import Hand, named, short
from mcpx.clients.catalogue import Client, clients, places_here
from mcpx.clients.changes import Change, to_disconnect, to_undo
from mcpx.clients.ledger import Record
from mcpx.model.errors import ConfigError


def disconnect(options: argparse.Namespace) -> int:
    wanted = named(options.clients)
    if not wanted and not options.all:
        from mcpx.cli.connect import list_clients

        return list_clients(options, "mcpx disconnect")
    if wanted and options.all:
        raise ConfigError(["error: name clients, or say --all"])
    hand = Hand(options)
    found = [each for known in wanted or clients() for each in _with_entry(known, hand, options)]
    if not found:
        hand.say(
            "mcpx is in none of them"
            if options.all or len(wanted) > 1
            else f"mcpx is not in {wanted[0].name}"
        )
        return hand.done()
    return hand.each(found, lambda change: _take_out(hand, change))


def _with_entry(known: Client, hand: Hand, options: argparse.Namespace) -> list[Change]:
    scope = "project" if options.project else "user"
    found: list[Change] = []
    for place in places_here(known, hand.project):
        if place.scope == scope and not place.spec.reads and place.there():
            try:
                change = to_disconnect(known, place, Path(place.path), hand.ledger)
            except ConfigError:
                if not options.all:  # of a file that was not named nobody wants to hear
                    raise
                continue
            found += [change] if change is not None else []
    return found


def _take_out(hand: Hand, planned: Change) -> None:
    def plan() -> Change:
        again = to_disconnect(planned.client, planned.place, planned.file, hand.ledger)
        if again is None:
            raise ConfigError([f"error: mcpx is no longer in {planned.file}"])
        return again

    name = planned.client.name
    done = hand.carry_out(plan, f"Take mcpx out of {name}?", "disconnect")
    if done is not None:
        change, copy = done
        hand.row(change, "disconnected", backup=None if copy is None else str(copy))
        gone = "; the file, which connect had made, is gone" if change.after is None else ""
        hand.say(f"disconnected {name}: {short(change.file)}{gone}", "green")
        hand.say(f"  {change.client.after}\n" if change.client.after else "")


def undo(options: argparse.Namespace) -> int:
    wanted = named(options.clients)
    hand = Hand(options)
    records = _records(hand, wanted, everything=options.all)
    if not records:
        whose = f" of {', '.join(known.name for known in wanted)}" if wanted else ""
        hint = "; 'mcpx disconnect' takes the entry out, whoever wrote it"
        raise ConfigError([f"error: there is nothing{whose} to take back{hint}"])
    return hand.each(records, lambda record: _take_back(hand, record))


def _records(hand: Hand, wanted: list[Client], *, everything: bool) -> list[Record]:
    """The newest first: everything, the last one of each file of these clients, or those of the
    last command."""
    records = hand.ledger.records()[::-1]
    if everything:
        return records
    if not wanted:
        return [record for record in records if record.run == records[0].run]
    last: dict[str, Record] = {}
    for record in records:
        if record.client in {known.id for known in wanted}:
            last.setdefault(record.file, record)
    return list(last.values())


def _take_back(hand: Hand, record: Record) -> None:
    first = to_undo(record, hand.ledger)
    if first is None:
        hand.say(f"{short(record.file)}: there is nothing left of it to take back\n")
        hand.told.rows.append({"client": record.client, "file": record.file, "status": "already"})
        if not hand.dry:
            hand.ledger.drop(record)
        return
    if not first.exact:
        hand.say(f"{short(first.file)} was changed since: only the entry of mcpx is taken back")

    def plan() -> Change:
        again = to_undo(record, hand.ledger)
        if again is None:
            raise ConfigError([f"error: there is nothing left to take back in {record.file}"])
        return again

    done = hand.carry_out(plan, f"Put {short(first.file)} back?", "undo")
    if done is not None:
        change, _ = done
        hand.row(change, "undone", exact=change.exact)
        how = (
            "gone, as it was before"
            if change.after is None
            else "as it was, byte for byte"
            if change.exact
            else "put back"
        )
        hand.say(f"undone {change.client.name}: {short(change.file)} is {how}", "green")
        hand.say("")
