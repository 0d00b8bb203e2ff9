"""`mcpx connect`: lists client programs, and writes mcpx into their files (RUN-5).

A change is shown before it is written. A file is created only for a client that the user named.
The default is stdio: the client starts mcpx, which joins a running gateway.
"""

import argparse
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from mcpx.cli import codes
from mcpx.cli.change import ConfigChange
from mcpx.cli.client_changes import ClientChanges, named_clients, short
from mcpx.cli.output import Cell, Style, Table, agreed, counted, print_json, say
from mcpx.cli.running import mistake, result_of
from mcpx.cli.target import Target as ConfigTarget
from mcpx.cli.target import found as found_config
from mcpx.cli.target import load, overlay
from mcpx.clients.catalogue import Client, Place, Transport, clients, this_system
from mcpx.clients.changes import Change, Own, files_of, is_used_here, look, places_in, to_connect
from mcpx.clients.entry import NAME, PLACEHOLDER, VARIABLE, Target, needs_hand
from mcpx.clients.launcher import launcher
from mcpx.clients.merging import PresentEntries, duplicates, present_entries
from mcpx.clients.programs import program_of
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError
from mcpx.policy.patterns import Patterns

if TYPE_CHECKING:
    from mcpx.config import Config

_STATE_STYLES: dict[str, Style] = {"connected": "green", "unreadable": "red"}


def connect(options: argparse.Namespace) -> int:
    if options.clients and options.all:
        raise mistake("name clients, or say --all")
    if options.undo:
        from mcpx.cli.disconnect import undo

        return undo(options)
    wanted = named_clients(options.clients)
    if not wanted and not options.all:
        return list_clients(options, "mcpx connect")
    for client in wanted:
        if client.imports_only:
            raise mistake(f"mcpx does not connect {client.name}: {client.imports_only}")
    gateway = _gateway(options)
    if options.print:
        return _print(wanted or _connectable(), gateway, as_json=options.json)
    for client in wanted:
        _refuse_impossible(client, options)
    changes = ClientChanges(options)
    chosen = wanted or _found_here(changes.project, in_project=options.project)
    if not chosen:
        place = "in this folder" if options.project else "on this machine"
        raise mistake(f"no client was found {place}; name one: mcpx connect CLIENT")
    for line in (*gateway.about, ""):
        changes.say(line)
    files = [
        _ClientFile(changes, gateway, client, place, file, bool(wanted), options.replace)
        for client in chosen
        for place, file in files_of(client, changes.project, in_project=options.project)
    ]
    return changes.each(files, _ClientFile.connect)


# The gateway


@dataclass(frozen=True, slots=True)
class _Gateway:
    target: Target
    config: "Config | None"
    about: list[str]
    transport: Transport
    present: PresentEntries | None
    """The servers of the configuration."""
    shown: Patterns | None
    """The servers that the profile shows. None if it shows all."""

    def transport_of(self, client: Client) -> Transport:
        if self.transport == "http" and not client.http:
            return "stdio"
        return self.transport


def _gateway(options: argparse.Namespace) -> _Gateway:
    path = found_config(options)
    env = overlay(options)
    profile: str | None = options.profile
    config = present = None
    starter = launcher()
    words = [*starter.words]
    about = [f"clients will start {starter.about}"]
    if path is None:
        hint = "mcpx looks for one when it is started, else it shows its demo"
        about.append(f"no config file was found here: {hint}")
    else:
        config = load(path, options)
        path = Path(os.path.abspath(path))
        words.append(str(path))
        written = ConfigChange(path, env, options).written
        if not written.told:
            present = present_entries(written)
    words += ["--transport", "stdio"]
    if env is not None:
        words += ["--env", env]
    shown = None
    if profile is not None:
        words += ["--profile", profile]
        profiles = {each.name: each.servers for each in config.profiles} if config else {}
        if profile not in profiles:
            names = ", ".join(profiles) or "none"
            raise mistake(f"--profile: there is no profile {profile!r}; there is {names}")
        servers = profiles[profile]
        shown = servers if servers is None else Patterns(servers)
    url, has_auth = None, False
    if options.transport == "http":
        url = _url(options, config, profile)
        has_auth = config is not None and config.server.auth is not None
        about = [f"over HTTP at {url}: keep that gateway running"]
    target = Target(url, words, has_auth)
    return _Gateway(target, config, about, options.transport or "stdio", present, shown)


def _url(options: argparse.Namespace, config: "Config | None", profile: str | None) -> str:
    """The URL of the running gateway, or of a gateway that would be started."""
    from mcpx.cli.serve import address
    from mcpx.config import Config

    status = result_of(ConfigTarget.of(options).ask("status")) or {}
    url: str | None = status.get("url")
    if not url:
        host, port = address(options, os.environ, config or Config())
        if not port:
            hint = "start it first, or give server.port"
            raise mistake(f"the port of the gateway is not known: {hint}")
        if host in ("0.0.0.0", "::", ""):
            host = "127.0.0.1"
        elif ":" in host:
            host = f"[{host}]"
        scheme = "https" if config is not None and config.server.tls else "http"
        url = f"{scheme}://{host}:{port}/mcp"
    if profile:
        return f"{url.removesuffix('/mcp')}/p/{quote(profile, safe='')}/mcp"
    return url


# Clients


def _connectable() -> list[Client]:
    return [client for client in clients() if not client.imports_only]


def _refuse_impossible(client: Client, options: argparse.Namespace) -> None:
    if options.transport == "http" and not client.http:
        hint = "leave --transport out"
        raise mistake(f"{client.name} cannot be connected over HTTP: {client.why}; {hint}")
    places = {spec.scope: spec for spec in client.specs if not spec.reads}
    if options.project:
        if "project" not in places:
            raise mistake(f"{client.name} has no file for a project; leave --project out")
    elif "gui" in places and "user" not in places:
        hint = f"mcpx connect {client.id} --print shows what to paste"
        place = places["gui"].shown(this_system())
        raise mistake(f"{client.name} has no file to write to: {place}; {hint}")
    elif "user" not in places:
        hint = f"for a project there is: mcpx connect {client.id} --project"
        raise mistake(f"{client.name} has no file for you; {hint}")


def _found_here(project: Path, *, in_project: bool) -> list[Client]:
    scope = "project" if in_project else "user"
    return [
        client
        for client in _connectable()
        if any(spec.scope == scope and not spec.reads for spec in client.specs)
        and is_used_here(client, project, in_project=in_project)
    ]


def list_clients(options: argparse.Namespace, command: str) -> int:
    """List the clients that were found, or those that have mcpx, and the next commands."""
    is_connect = command == "mcpx connect"
    project = Path.cwd()
    rows: list[Json] = []
    for client in _found_here(project, in_project=options.project):
        for place, file in files_of(client, project, in_project=options.project):
            state = _state(place, file)
            if is_connect or state == "connected":
                row = {"client": client.id, "name": client.name, "file": str(file), "mcpx": state}
                rows.append(row)
    if options.json:
        print_json({"clients": rows})
        return codes.DONE
    if rows:
        _print_rows(rows, command, " --project" * options.project, is_connect=is_connect)
    else:
        here = "in this folder" if options.project else "on this machine"
        absent = "No client was found" if is_connect else "mcpx is in no client that was found"
        say(f"{absent} {here}.")
    if is_connect:
        listed = [row["client"] for row in rows]
        others = ", ".join(each.id for each in _connectable() if each.id not in listed)
        say(f"Others that are known: {others}")
    return codes.DONE


def _print_rows(rows: Sequence[Json], command: str, project: str, *, is_connect: bool) -> None:
    table = Table("CLIENT", "MCPX", "FILE")
    for row in rows:
        state = row["mcpx"]
        table.add(row["client"], Cell(state, _STATE_STYLES.get(state)), short(row["file"]))
    table.print()
    ids = [row["client"] for row in rows if not is_connect or row["mcpx"] != "connected"]
    first = [*ids, rows[0]["client"]][0]
    shows = "shows the change, without --dry-run it is made"
    say(f"\n{command} {first}{project} --dry-run {shows}")
    say(f"{command} --all{project} takes every one of them")


def _state(place: Place, file: Path) -> str:
    try:
        reading = look(place, file)
    except ConfigError:
        return "unreadable"
    if reading is None:
        return "no file yet"
    return "no" if reading.entry is None else "connected"


# One file


@dataclass(frozen=True, slots=True)
class _ClientFile:
    changes: ClientChanges
    gateway: _Gateway
    client: Client
    place: Place
    file: Path
    is_named: bool
    replace: bool

    def connect(self) -> None:
        changes, client, file = self.changes, self.client, short(self.file)
        transport = self.gateway.transport_of(client)
        twice = _names(self._duplicates())
        replaces = self.replace or bool(twice and changes.asks and self._agreed_to_replace(twice))

        def plan() -> Change:
            replaced = self._duplicates() if replaces else ()
            target = self.gateway.target
            return to_connect(client, self.place, self.file, transport, target, replaced)

        change = plan()
        left = [] if replaces else twice
        notes = self._notes(transport)
        if left:
            notes.append(self._duplicates_note(left))
        if change.is_none:
            changes.say(f"{client.name} is connected already: {file}")
            changes.add_row(change, "already", transport=transport, duplicates=left)
            for note in notes[-1:] * bool(left):
                changes.say(f"  note: {note}")
            changes.say("")
            return
        if change.before is None and not self.is_named:
            hint = f"'mcpx connect {client.id}' makes it"
            changes.say(f"{client.name}: {file} is not there yet; {hint}\n")
            changes.add_row(change, "skipped")
            return
        replaced = _names(change.replaced)
        facts = {"duplicates": left, "replaced": replaced}
        done = changes.carry_out(plan, f"Write it into {client.name}?", "connect", **facts)
        if done is None:
            if left and changes.dry_run:
                changes.say(f"note: {notes[-1]}\n")
            return
        change, copy = done
        status = "connected" if change.old is None else "replaced"
        next_step = self.place.spec.after or client.after
        row = {"transport": transport, "backup": copy and str(copy), "next": next_step}
        changes.add_row(change, status, **row, notes=notes, **facts)
        changes.say(f"{status} {client.name} over {transport}: {file}", "green")
        if replaced:
            names = f"servers of mcpx: {', '.join(replaced)}"
            changes.say(f"  {self._off_word()}d the entries of {client.name} for {names}")
        if next_step:
            changes.say(f"  next: {next_step}")
        for note in notes:
            changes.say(f"  note: {note}")
        kept = f" (a copy is {short(copy)})" if copy else ""
        changes.say(f"  undo: mcpx connect --undo {client.id}{kept}\n")

    def _duplicates(self) -> list[Own]:
        """The client's entries for servers that it gets through mcpx."""
        gateway, project = self.gateway, self.changes.project
        found: list[Own] = []
        for place in places_in(self.client, self.file, project):
            reading = look(place, self.file)
            if reading is None or gateway.present is None:
                continue
            for own, name in duplicates(reading, gateway.present, os.environ, project).items():
                if gateway.shown is None or gateway.shown.matches(name):
                    found.append(Own(place, own))
        return found

    def _agreed_to_replace(self, twice: list[str]) -> bool:
        number = counted(len(twice), "server")
        names = ", ".join(twice)
        self.changes.say(f"{self.client.name} has {number} that it also gets through mcpx: {names}")
        entries = "entry" if len(twice) == 1 else "entries"
        return agreed(f"{self._off_word().capitalize()} its own {entries}?", default=True)

    def _off_word(self) -> str:
        reading = look(self.place, self.file)
        if reading is not None and reading.shape.off:
            return "disable"
        return "remove"

    def _duplicates_note(self, names: list[str]) -> str:
        project = " --project" * (self.place.scope == "project")
        command = f"'mcpx connect {self.client.id}{project} --replace'"
        fix = f"{command} {self._off_word()}s its own entries"
        twice = ", ".join(names)
        return f"{self.client.name} has {twice} twice, by itself and through mcpx; {fix}"

    def _notes(self, transport: Transport) -> list[str]:
        """What the user should know about this client and this configuration."""
        client, config, target = self.client, self.gateway.config, self.gateway.target
        notes: list[str] = []
        if transport != self.gateway.transport:
            notes.append(f"{client.name} gets stdio: {client.why}")
        if needs_hand(client, transport, target):
            fix = (
                f"put a token of `mcpx token new` where {PLACEHOLDER} stands, or connect it over "
                "stdio, which needs none"
            )
            notes.append(f"{client.name} reads no variables there: {fix}")
        elif transport == "http" and target.token:
            fix = f"set {VARIABLE} where {client.name} is started: a token of `mcpx token new`"
            notes.append(client.token_note or fix)
        if self.place.scope == "project" and transport == "stdio":
            notes.append(
                "the file names programs and folders of this machine: others who get it have to "
                "connect anew"
            )
        if config is not None and config.mode == "direct":
            notes += _limit_notes(client, config)
        return notes


def _limit_notes(client: Client, config: "Config") -> Iterable[str]:
    limits = client.limits
    if limits.tools is not None:
        fix = "where your servers offer more, set 'mode: search'"
        yield f"{client.name} takes {limits.tools} tools; {fix}"
    if limits.name is not None:
        room = limits.name - len(limits.prefix)
        if config.naming.max_length > room:
            what = f"names of tools of more than {room} characters are too long for it"
            yield f"{what}: naming.max_length: {room}"


def _names(own: Sequence[Own]) -> list[str]:
    return list(dict.fromkeys(each.name for each in own))


# Printing


def _print(wanted: Sequence[Client], gateway: _Gateway, *, as_json: bool) -> int:
    """Print what the user can paste, and write nothing."""
    programs = [
        program_of(client, gateway.target, gateway.transport_of(client)) for client in wanted
    ]
    rows: list[Json] = []
    for program in programs:
        snippets = [
            {key: getattr(snippet, key) for key in ("label", "language", "path", "text")}
            for snippet in program.snippets
        ]
        row = {"client": program.id, "name": program.name, "transport": program.transport}
        rows.append({**row, "entry": NAME, "snippets": snippets, "deeplink": program.deeplink})
        if as_json:
            continue
        say(f"# {program.name}, over {program.transport}")
        for snippet in program.snippets:
            title = ": ".join(filter(None, (snippet.label, snippet.path)))
            say(f"\n# {title}\n{snippet.text.rstrip()}")
        if program.deeplink:
            say(f"\n# Link\n{program.deeplink}")
        say("")
    if as_json:
        print_json({"clients": rows})
    return codes.DONE
