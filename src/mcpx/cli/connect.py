"""`mcpx connect`: which clients there are, and mcpx written into them.

Promised: nothing is written that was not shown; a file is made only for a client that was named.
Over stdio unless HTTP was asked for: a client that starts mcpx needs nobody to have started it
before, and shares the gateway that runs.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from mcpx.cli import codes
from mcpx.cli import target as config_target
from mcpx.cli.change import ConfigChange
from mcpx.cli.client_files import Hand, named, short
from mcpx.cli.output import Cell, Table, agreed, counted, print_json
from mcpx.cli.running import result_of
from mcpx.clients.catalogue import Client, Place, Transport, clients, this_system
from mcpx.clients.changes import Change, Own, files_of, is_used_here, look, places_in, to_connect
from mcpx.clients.entry import NAME, PLACEHOLDER, VARIABLE, Target, needs_hand
from mcpx.clients.launcher import launcher
from mcpx.clients.merging import PresentEntries, duplicates, present_entries
from mcpx.clients.programs import program_of
from mcpx.model.errors import ConfigError
from mcpx.model.state import state_folder
from mcpx.policy.patterns import Patterns

if TYPE_CHECKING:
    from mcpx.config import Config


def connect(options: argparse.Namespace) -> int:
    if options.clients and options.all:
        raise ConfigError(["error: name clients, or say --all"])
    if options.undo:
        from mcpx.cli.disconnect import undo

        return undo(options)
    wanted = named(options.clients)
    if not wanted and not options.all:
        return list_clients(options, "mcpx connect")
    for known in wanted:
        if known.imports_only:
            raise ConfigError([f"error: mcpx does not connect {known.name}: {known.imports_only}"])
    gateway = _gateway(options)
    if options.print:
        return _print(
            options, wanted or [each for each in clients() if not each.imports_only], gateway
        )
    for known in wanted:
        _refuse_impossible(known, options)
    hand = Hand(options)
    found = wanted or _found_here(hand.project, in_project=options.project)
    if not found:
        where_ = "in this folder" if options.project else "on this machine"
        raise ConfigError([f"error: no client was found {where_}; name one: mcpx connect CLIENT"])
    if not hand.json:
        for line in gateway.about:
            hand.say(line)
        hand.say("")
    files = [
        (known, *each)
        for known in found
        for each in files_of(known, hand.project, in_project=options.project)
    ]
    return hand.each(files, lambda each: _one(hand, gateway, *each, named=bool(wanted)))


# The gateway that is written into them
# --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gateway:
    target: Target
    config: "Config | None"
    about: list[str]
    transport: Transport
    there: PresentEntries | None = None
    """The servers of the config, to be compared with a client's own."""
    seen: Patterns | None = None
    """Patterns of the servers that the profile shows. None if it shows all servers."""


def _gateway(options: argparse.Namespace) -> _Gateway:
    path = config_target.found(options)
    config = None if path is None else config_target.load(path, options)
    profile: str | None = options.profile
    if profile is not None and profile not in (
        names := [each.name for each in config.profiles] if config else []
    ):
        raise ConfigError(
            [
                f"error: --profile: there is no profile {profile!r}; there is "
                f"{', '.join(names) or 'none'}"
            ]
        )
    chosen = launcher()
    words = [*chosen.words]
    about = [f"clients will start {chosen.about}"]
    if path is None:
        about.append(
            "no config file was found here: mcpx looks for one when it is started, else it shows "
            "its demo"
        )
    else:
        words.append(os.path.abspath(path))
    words += ["--transport", "stdio"]
    if (overlay := config_target.overlay(options)) is not None:
        words += ["--env", overlay]
    words += ["--profile", profile] if profile else []
    url, token = None, False
    if options.transport == "http":
        url, token = (
            _url(options, path, config, profile),
            config is not None and config.server.auth is not None,
        )
        about = [f"over HTTP at {url}: keep that gateway running"]
    seen = (
        next((each.servers for each in config.profiles if each.name == profile), None)
        if config
        else None
    )
    patterns = None if seen is None else Patterns(seen)
    target = Target(url, words, token)
    return _Gateway(
        target, config, about, options.transport or "stdio", _there(path, options), patterns
    )


def _there(path: Path | None, options: argparse.Namespace) -> PresentEntries | None:
    if path is None:
        return None
    env = config_target.overlay(options)
    written = ConfigChange(Path(os.path.abspath(path)), env, options).written
    return None if written.told else present_entries(written)


def _url(
    options: argparse.Namespace, path: Path | None, config: "Config | None", profile: str | None
) -> str:
    """Where the gateway that runs on this config is found, else where one would be."""
    from mcpx.cli.serve import address
    from mcpx.config import Config
    from mcpx.front.control import ask, socket_path

    url: str | None = None
    if path is not None:
        at = socket_path(
            state_folder(os.environ), Path(os.path.abspath(path)), config_target.overlay(options)
        )
        url = (result_of(ask(at, "status")) or {}).get("url")
    if not url:
        host, port = address(options, os.environ, config or Config())
        if not port:
            raise ConfigError(
                ["error: the port of the gateway is not known: start it first, or give server.port"]
            )
        host = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
        scheme = "https" if config is not None and config.server.tls else "http"
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/mcp"
    return f"{url.removesuffix('/mcp')}/p/{quote(profile, safe='')}/mcp" if profile else url


def _transport(known: Client, gateway: _Gateway) -> tuple[Transport, str]:
    """And why it is not the one that was asked for."""
    if gateway.transport == "http" and not known.http:
        return "stdio", f"{known.name} gets stdio: {known.why}"
    return gateway.transport, ""


# Clients
# --------------------------------------------------------------------------------------------------


def _refuse_impossible(known: Client, options: argparse.Namespace) -> None:
    if options.transport == "http" and not known.http:
        raise ConfigError(
            [
                f"error: {known.name} cannot be connected over HTTP: {known.why}; leave "
                "--transport out"
            ]
        )
    scopes = {spec.scope for spec in known.specs if not spec.reads}
    if ("project" if options.project else "user") in scopes:
        return
    if "gui" in scopes and not options.project:
        place = next(spec for spec in known.specs if spec.scope == "gui").shown(this_system())
        how = f"mcpx connect {known.id} --print shows what to paste"
        raise ConfigError([f"error: {known.name} has no file to write to: {place}; {how}"])
    hint = (
        "leave --project out"
        if options.project
        else f"for a project there is: mcpx connect {known.id} --project"
    )
    raise ConfigError(
        [f"error: {known.name} has no file for {'a project' if options.project else 'you'}; {hint}"]
    )


def _found_here(project: Path, *, in_project: bool) -> list[Client]:
    scope = "project" if in_project else "user"
    able = [each for each in clients() if any(s.scope == scope and not s.reads for s in each.specs)]
    return [
        each
        for each in able
        if not each.imports_only and is_used_here(each, project, in_project=in_project)
    ]


def list_clients(options: argparse.Namespace, command: str) -> int:
    """Those that are found, or for disconnecting those that have it, and how to go on."""
    project, rows = Path.cwd(), list[dict[str, str]]()
    for known in _found_here(project, in_project=options.project):
        for place, file in files_of(known, project, in_project=options.project):
            rows.append(
                {
                    "client": known.id,
                    "name": known.name,
                    "file": str(file),
                    "mcpx": _state(place, file),
                }
            )
    connecting = command == "mcpx connect"
    rows = [row for row in rows if connecting or row["mcpx"] == "connected"]
    if options.json:
        print_json({"clients": rows})
        return codes.DONE
    here = "in this folder" if options.project else "on this machine"
    if rows:
        _print_table(rows)
        first = next(
            (row["client"] for row in rows if not connecting or row["mcpx"] != "connected"),
            rows[0]["client"],
        )
        project_ = " --project" if options.project else ""
        _line(
            f"\n{command} {first}{project_} --dry-run shows the change, without --dry-run it is "
            "made"
        )
        _line(f"{command} --all{project_} takes every one of them")
    else:
        _line(
            f"No client was found {here}."
            if connecting
            else f"mcpx is in no client that was found {here}."
        )
    if connecting:
        there = {row["client"] for row in rows}
        others = ", ".join(
            each.id for each in clients() if each.id not in there and not each.imports_only
        )
        _line(f"Others that are known: {others}")
    return codes.DONE


def _print_table(rows: list[dict[str, str]]) -> None:
    table = Table("CLIENT", "MCPX", "FILE")
    for row in rows:
        style = (
            "green"
            if row["mcpx"] == "connected"
            else "red"
            if row["mcpx"] == "unreadable"
            else None
        )
        table.add(row["client"], Cell(row["mcpx"], style), short(row["file"]))
    table.print()


def _state(place: Place, file: Path) -> str:
    try:
        reading = look(place, file)
    except ConfigError:
        return "unreadable"
    return "no file yet" if reading is None else "connected" if reading.entry is not None else "no"


# One file
# --------------------------------------------------------------------------------------------------


def _one(
    hand: Hand, gateway: _Gateway, known: Client, place: Place, file: Path, *, named: bool
) -> None:
    transport, why = _transport(known, gateway)
    twice = _names(_duplicates(hand, gateway, known, file))
    replaces = hand.replace or (
        bool(twice) and hand.asks and _agreed_to_replace(hand, known, place, twice)
    )

    def plan() -> Change:
        replaced = _duplicates(hand, gateway, known, file) if replaces else ()
        return to_connect(known, place, file, transport, gateway.target, replaced)

    change = plan()
    left = [] if replaces else twice
    if change.is_none:
        hand.say(f"{known.name} is connected already: {short(file)}")
        hand.row(change, "already", transport=transport, duplicates=left)
        if left:
            hand.say(f"  note: {_duplicates_note(known, place, left)}")
        hand.say("")
        return
    if change.before is None and not named:
        hand.say(
            f"{known.name}: {short(file)} is not there yet; 'mcpx connect {known.id}' makes it\n"
        )
        hand.row(change, "skipped")
        return
    done = hand.carry_out(
        plan,
        f"Write it into {known.name}?",
        "connect",
        duplicates=left,
        replaced=_names(change.replaced),
    )
    if done is None:
        if left and hand.dry:
            hand.say(f"note: {_duplicates_note(known, place, left)}\n")
        return
    change, copy = done
    notes = [*([why] if why else []), *_notes(known, place, gateway, transport)]
    if left:
        notes.append(_duplicates_note(known, place, left))
    status = "replaced" if change.old is not None else "connected"
    kept = None if copy is None else str(copy)
    replaced = _names(change.replaced)
    facts = {"duplicates": left, "replaced": replaced}
    hand.row(
        change,
        status,
        transport=transport,
        backup=kept,
        next=_next(known, place),
        notes=notes,
        **facts,
    )
    hand.say(f"{status} {known.name} over {transport}: {short(file)}", "green")
    if replaced:
        hand.say(
            f"  {_off_word(place, file)}d the entries of {known.name} for servers of mcpx: "
            f"{', '.join(replaced)}"
        )
    if (next_ := _next(known, place)) != "":
        hand.say(f"  next: {next_}")
    for note in notes:
        hand.say(f"  note: {note}")
    hand.say(
        f"  undo: mcpx connect --undo {known.id}"
        + (f" (a copy is {short(copy)})" if copy else "")
        + "\n"
    )


def _duplicates(hand: Hand, gateway: _Gateway, known: Client, file: Path) -> list[Own]:
    """The client's own entries for servers that it gets through mcpx."""
    found: list[Own] = []
    for place in places_in(known, file, hand.project):
        reading = look(place, file)
        if reading is None or gateway.there is None:
            continue
        for own, name in duplicates(reading, gateway.there, os.environ, hand.project).items():
            if gateway.seen is None or gateway.seen.matches(name):
                found.append(Own(place, own))
    return found


def _names(own: Sequence[Own]) -> list[str]:
    return list(dict.fromkeys(each.name for each in own))


def _agreed_to_replace(hand: Hand, known: Client, place: Place, twice: list[str]) -> bool:
    hand.say(
        f"{known.name} has {counted(len(twice), 'server')} that it also gets through mcpx: "
        f"{', '.join(twice)}"
    )
    what = (
        f"{_off_word(place, Path(place.path)).capitalize()} its own "
        f"{'entry' if len(twice) == 1 else 'entries'}?"
    )
    return agreed(what, default=True)


def _off_word(place: Place, file: Path) -> str:
    reading = look(place, file)
    return "disable" if reading is not None and reading.shape.off else "remove"


def _duplicates_note(known: Client, place: Place, names: list[str]) -> str:
    project = " --project" if place.scope == "project" else ""
    command = (
        f"'mcpx connect {known.id}{project} --replace' "
        f"{_off_word(place, Path(place.path))}s its own entries"
    )
    return f"{known.name} has {', '.join(names)} twice, by itself and through mcpx; {command}"


def _next(known: Client, place: Place) -> str:
    return place.spec.after or known.after


def _notes(known: Client, place: Place, gateway: _Gateway, transport: Transport) -> list[str]:
    """What of this client matters for this config."""
    notes: list[str] = []
    if needs_hand(known, transport, gateway.target):
        told = (
            f"put a token of `mcpx token new` where {PLACEHOLDER} stands, or connect it over "
            "stdio, which needs none"
        )
        notes.append(f"{known.name} reads no variables there: {told}")
    elif transport == "http" and gateway.target.token:
        told = (
            known.token_note
            or f"set {VARIABLE} where {known.name} is started: a token of `mcpx token new`"
        )
        notes.append(told)
    if place.scope == "project" and transport == "stdio":
        notes.append(
            "the file names programs and folders of this machine: others who get it have to "
            "connect anew"
        )
    config, limits = gateway.config, known.limits
    if config is None or config.mode != "direct":
        return notes
    if limits.tools is not None:
        notes.append(
            f"{known.name} takes {limits.tools} tools; where your servers offer more, set 'mode: "
            "search'"
        )
    room = None if limits.name is None else limits.name - len(limits.prefix)
    if room is not None and config.naming.max_length > room:
        notes.append(
            f"names of tools of more than {room} characters are too long for it: "
            f"naming.max_length: {room}"
        )
    return notes


def _line(text: str) -> None:
    sys.stdout.write(f"{text}\n")


# Only shown
# --------------------------------------------------------------------------------------------------


def _print(options: argparse.Namespace, wanted: list[Client], gateway: _Gateway) -> int:
    made = [program_of(known, gateway.target, _transport(known, gateway)[0]) for known in wanted]
    if options.json:
        rows = [
            {
                "client": each.id,
                "name": each.name,
                "transport": each.transport,
                "entry": NAME,
                "snippets": [
                    {"label": s.label, "language": s.language, "path": s.path, "text": s.text}
                    for s in each.snippets
                ],
                "deeplink": each.deeplink,
            }
            for each in made
        ]
        print_json({"clients": rows})
        return codes.DONE
    for each in made:
        _line(f"# {each.name}, over {each.transport}")
        for snippet in each.snippets:
            _line(
                f"\n# {snippet.label}{f': {snippet.path}' if snippet.path else ''}\n{snippet.text.rstrip()}"
            )
        if each.deeplink:
            _line(f"\n# Link\n{each.deeplink}")
        _line("")
    return codes.DONE
