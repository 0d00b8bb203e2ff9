"""Client programs: which of them have mcpx, whether what is written there still works, and what of
the gateway's tools they will not take (RUN-4).

Promised: their files are read and never written; nobody is started.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from mcpx.cli.doctor.finding import Case, Finding, error, ok, warning
from mcpx.cli.doctor.gateway import is_mcpx
from mcpx.cli.output import counted
from mcpx.cli.running import result_of
from mcpx.clients import glance
from mcpx.clients.catalogue import Client, Place, clients, places_here
from mcpx.clients.changes import look as look_into
from mcpx.clients.changes import places_in
from mcpx.clients.entry import NAME
from mcpx.clients.taking.duplicates import duplicates, there_of
from mcpx.clients.taking.merging import There
from mcpx.config import Config, is_loopback
from mcpx.config.edits import Where
from mcpx.config.itself import config_named
from mcpx.config.written import read_written
from mcpx.model.call import Caller
from mcpx.model.errors import ConfigError
from mcpx.processes.environment import find_program

if TYPE_CHECKING:
    from mcpx.catalog.catalog import Catalog
    from mcpx.surfaces.surface import Surface

MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """A client's file that has servers."""

    client: Client
    file: Path
    in_project: bool
    """Whether it belongs to the project in this folder, and not to the user."""
    ours: Sequence[tuple[str, Mapping[str, Any]]]
    """Entries that are mcpx, with their names."""
    others: Sequence[tuple[str, Mapping[str, Any]]]
    """Every other one, with its name."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a client gets to see."""

    names: Sequence[str]
    """Of tools, as clients are told them; none where nothing is known of the servers yet."""
    direct: bool
    """Whether all of them are listed, rather than a few that find the others."""
    deferred_tokens: int = 0
    """Tokens of the list, if all tools are listed only because the client is known to defer
    tools."""


def look(case: Case) -> Iterator[Finding]:
    seen = list(_seen(case))
    connected = [each for each in seen if each.ours]
    for each in connected:
        for name, entry in each.ours:
            yield from _works(each, name, entry, case)
    ids = {each.client.id for each in connected}
    there = _there(case) if ids else None
    twice = {
        each.file: _twice(each, there, case)
        for each in seen
        if each.client.id in ids and each.others
    }
    yield from (finding for finding in twice.values() if finding is not None)
    alone = [
        each for each in seen if not each.ours and each.others and twice.get(each.file) is None
    ]
    for each in alone:
        what = (
            f"{each.client.name} has {counted(len(each.others), 'server')} of its own, and "
            "mcpx is not among them"
        )
        new = not all(_is_here(name, entry, case.config) for name, entry in each.others)
        first = f"{case.command('import', each.client.id)}, then " if new else ""
        fix = first + _connect(each, case)
        yield ok("client", what, str(each.file), fix=fix)
    if not seen:
        yield ok("client", "no client program has a server yet", fix=case.command("connect"))
    if case.config is not None:
        for client in {each.client.id: each.client for each in connected}.values():
            shown = _shown(case, case.config, client)
            yield from _limits(client, shown, case.config)
            yield from _defers(client, shown, case.environ)


def _twice(seen: Seen, there: There | None, case: Case) -> Finding | None:
    """The servers that a connected client has by itself and through mcpx."""
    if there is None:
        return None
    project = _project()
    names: list[str] = []
    for place in places_in(seen.client, seen.file, project):
        with contextlib.suppress(ConfigError):  # A file that cannot be read is another finding.
            reading = look_into(place, seen.file)
            names += [] if reading is None else duplicates(reading, there, case.environ, project)
    if not names:
        return None
    told = ", ".join(dict.fromkeys(names))
    what = (
        f"{seen.client.name} has {counted(len(names), 'server')} twice, by itself and through "
        f"mcpx: {told}"
    )
    words = ["connect", seen.client.id, *(["--project"] if seen.in_project else []), "--replace"]
    return warning("client", what, str(seen.file), fix=case.command(*words))


def _there(case: Case) -> There | None:
    if case.path is None or case.config is None:
        return None
    written = read_written(Where(case.path, case.environ, case.env))
    return None if written.told else there_of(written)


def _project() -> Path:
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def _seen(case: Case) -> Iterator[Seen]:
    project = _project()
    known: set[str] = set()
    for client in clients():
        files: dict[Path, list[Place]] = {}
        for place in places_here(client, project, case.environ):
            for file in place.there():
                if os.path.realpath(file) not in known:
                    files.setdefault(file, []).append(place)
        for file, places in files.items():
            known.add(os.path.realpath(file))
            tree = (
                glance.read_tree(file, places[0].format)
                if places[0].format != "yaml"
                else _yaml(file)
            )
            # In the home folder, the file of the user and that of the project may be one file, read
            # by the same keys.
            by_root = {place.roots: glance.entries_in(tree, place) for place in places}
            entries = [pair for found in by_root.values() for pair in found]
            if entries:
                ours = [pair for pair in entries if glance.is_mcpx(*pair)]
                others = [pair for pair in entries if not glance.is_mcpx(*pair)]
                in_project = all(place.scope == "project" for place in places)
                yield Seen(client, file, in_project, ours, others)


def _yaml(file: Path) -> Any:
    from mcpx.config.source import UnreadableError, read_text, tree_of

    try:
        return tree_of(read_text(file), "yaml")
    except UnreadableError:
        return None


def _is_here(name: str, entry: Mapping[str, Any], config: Config | None) -> bool:
    """Whether the config has this server already, by its name or as what it is."""
    url = _url(entry)
    for server in () if config is None else config.mcp_servers:
        there = server.connection
        words = [getattr(there, "command", None), *getattr(there, "args", ())]
        if server.name == name or (
            url == getattr(there, "url", None) if url is not None else _words(entry) == words
        ):
            return True
    return False


def _url(entry: Mapping[str, Any]) -> str | None:
    return next(
        (
            entry[key]
            for key in ("url", "httpUrl", "serverUrl", "uri")
            if isinstance(entry.get(key), str)
        ),
        None,
    )


def _connect(seen: Seen, case: Case, entry: str = NAME) -> str:
    """The command that writes a working entry into this file. `entry`: the name of the present
    one."""
    if seen.client.imports_only:
        return f"edit {seen.file}"
    words = ["connect", seen.client.id, *(["--project"] if seen.in_project else [])]
    connect = case.command(*words)
    # `connect` writes the entry under its usual name, and would leave the other one.
    return (
        connect if entry == NAME else f"remove the entry {entry!r} from {seen.file}, then {connect}"
    )


def _works(seen: Seen, entry_name: str, entry: Mapping[str, Any], case: Case) -> Iterator[Finding]:
    name, file = seen.client.name, str(seen.file)
    again = _connect(seen, case, entry_name)
    url = _url(entry)
    if url is not None:
        answers, url = is_mcpx(url), _bare(url)
        if answers:
            yield ok("client", f"{name} has mcpx, and it answers at {url}", file)
        elif answers is None:
            fix = f"{start}, or {again}" if (start := _start_at(url, case)) else again
            yield error(
                "client", f"{name} looks for mcpx at {url}, and nobody answers there", file, fix=fix
            )
        else:
            yield error(
                "client",
                f"{name} looks for mcpx at {url}, and something else answers there",
                file,
                fix=again,
            )
        return
    words = _words(entry)
    command = words[0] if words else ""
    try:
        found = find_program(command, case.environ, None)
    except OSError:
        where = "is not there any more" if os.path.dirname(command) else "is not found"
        yield error("client", f"{name} starts mcpx by {command!r}, which {where}", file, fix=again)
        return
    config = config_named(words)
    if config is not None and not os.path.exists(os.path.expanduser(config)):
        what = f"{name} starts mcpx on {config}, which does not exist"
        yield error("client", what, file, fix=again)
        return
    yield ok("client", f"{name} has mcpx, by {found}", file)


def _start_at(url: str, case: Case) -> str | None:
    """The command that starts a gateway at this address. None if the address is not on this
    machine."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme != "http" or not is_loopback(parts.hostname or "") or port is None:
        return None
    return case.serve_command(*([] if port == case.port else ["--port", str(port)]))


def _bare(url: str) -> str:
    """Without what may be a secret in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that is none"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _words(entry: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for key in ("command", "cmd", "args"):
        value = entry.get(key)
        listed = cast("list[Any]", value if isinstance(value, list) else [value])
        words += [each for each in listed if isinstance(each, str)]
    return words


def _shown(case: Case, config: Config, client: Client) -> Shown:
    """As the gateway would, by what it knew of its servers last time."""
    from mcpx.core.gateway import Gateway

    async def shown() -> Shown:
        gateway = Gateway(config, case.environ, case.state)
        try:
            called = client.called[0].rstrip("*") if client.called else client.id
            caller = Caller(client={"name": called})
            catalog = gateway.catalog
            surface = gateway.generation.surfaces.of(config.mode)
            names = [offer.public for offer in catalog.offers["tools"]]
            return Shown(
                names,
                surface.shows_all(caller, catalog),
                _deferred_tokens(surface, called, catalog),
            )
        finally:
            await gateway.close()

    return result_of(shown())


def _deferred_tokens(surface: "Surface", called: str, catalog: "Catalog") -> int:
    from mcpx.surfaces.modes.auto import Auto
    from mcpx.surfaces.settings import DEFERS

    if not isinstance(surface, Auto) or surface.choose(called, catalog).reason != DEFERS:
        return 0
    size = surface.size_of(catalog)
    return size if size > surface.settings.auto_budget else 0


def _defers(client: Client, shown: Shown, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Claude Code defers tools only with Anthropic's API."""
    if client.id != "claude-code" or not shown.deferred_tokens:
        return
    listed = f"{counted(len(shown.names), 'tool')} (about {shown.deferred_tokens:,} tokens)"
    provider = _host(environ.get("ANTHROPIC_BASE_URL", ""))
    if f".{provider}".endswith((".", ".anthropic.com")):
        what = (
            f"{client.name} is shown all {listed}, because it defers tools. With an "
            "ANTHROPIC_BASE_URL of another"
        )
        yield ok("client", f"{what} provider, it does not defer them")
        return
    what = (
        f"{client.name} is shown all {listed} and does not defer them, because "
        f"ANTHROPIC_BASE_URL names {provider}"
    )
    rule = "auto_rules: [{client: claude-code, mode: search}]"
    fix = f"{rule} in the config's global section, or a lower auto_direct_limit"
    yield warning("client", what, fix=fix)


def _host(url: str) -> str:
    """The host of a URL. Empty if the URL has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _limits(client: Client, shown: Shown, config: Config) -> Iterator[Finding]:
    limits = client.limits
    if shown.direct and limits.tools is not None and len(shown.names) > limits.tools:
        what = (
            f"{client.name} takes about {limits.tools} tools, and is shown {len(shown.names)} "
            f"in mode {config.mode}"
        )
        fix = "show it fewer: mode: search in the config, its URL with /mcp/search, or a profile"
        yield warning("client", what, fix=fix)
    if shown.direct and limits.name is not None:
        long = [name for name in shown.names if len(limits.prefix) + len(name) > limits.name]
        if long:
            first = ", ".join(long[:MOST_NAMES]) + (
                f" and {len(long) - MOST_NAMES} more" if len(long) > MOST_NAMES else ""
            )
            room = limits.name - len(limits.prefix)
            what = f"{client.name} takes names of at most {room} characters; longer are: {first}"
            yield warning(
                "client",
                what,
                fix=f"naming: {{max_length: {room}}} in the config, or a shorter prefix",
            )
    wait = config.global_.first_start_wait
    if limits.start_seconds is not None and wait >= limits.start_seconds:
        what = (
            f"{client.name} gives up after {limits.start_seconds} s, and the first list may "
            f"wait {wait:g} s for servers"
        )
        yield warning(
            "client",
            what,
            fix=f"first_start_wait below {limits.start_seconds} in the config's global section",
        )
    if limits.call_seconds is not None:
        usual = config.global_.call_timeout
        slow = [
            s.name
            for s in config.mcp_servers
            if s.call_timeout != usual and s.call_timeout > limits.call_seconds
        ]
        if slow:
            what = (
                f"{client.name} gives up a call after {limits.call_seconds} s; longer may "
                f"take: {', '.join(slow[:5])}"
            )
            yield warning(
                "client",
                what,
                fix="raise the timeout of the client program, where it has a setting",
            )
