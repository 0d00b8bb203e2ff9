"""Client programs: which of them have mcpx, whether their entries still work, and which of the
gateway's tools they do not accept (RUN-4).

Their files are read and never written. No client is started.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from mcpx.cli.doctor.finding import Case, Finding, error, ok, warning
from mcpx.cli.doctor.gateway import is_mcpx
from mcpx.cli.output import counted, limited
from mcpx.cli.running import result_of
from mcpx.clients import glance
from mcpx.clients.catalogue import Client, Place, places_here
from mcpx.clients.catalogue import clients as all_clients
from mcpx.clients.changes import look as look_into
from mcpx.clients.changes import places_in
from mcpx.clients.entry import NAME
from mcpx.clients.merging import PresentEntries, duplicates, present_entries
from mcpx.config import Config, is_loopback
from mcpx.config.edits import Where
from mcpx.config.itself import config_named
from mcpx.config.source import UnreadableError, read_text, tree_of
from mcpx.config.written import read_written
from mcpx.model.call import Caller, Json
from mcpx.model.errors import ConfigError
from mcpx.processes.environment import find_program

URL_KEYS = ("url", "httpUrl", "serverUrl", "uri")

Entry = tuple[str, Json]
"""Name and content of a server in a client's file."""


@dataclass(frozen=True, slots=True)
class ClientFile:
    client: Client
    file: Path
    in_project: bool
    """Whether it belongs to the project in this folder, and not to the user."""
    ours: Sequence[Entry]
    others: Sequence[Entry]

    def words(self) -> list[str]:
        """Arguments of `connect` that name this file."""
        return [self.client.id, *["--project"] * self.in_project]


@dataclass(frozen=True, slots=True)
class Shown:
    names: Sequence[str]
    """Of all tools, as far as they are known from the last run."""
    is_direct: bool
    """Whether the client is shown all of them."""
    deferred_tokens: int = 0
    """Tokens of the list, if all tools are shown only because the client is known to defer
    tools."""


def clients(case: Case) -> Iterator[Finding]:
    files = list(_files(case))
    connected = {each.client.id: each.client for each in files if each.ours}
    there = _there(case) if connected else None
    for each in files:
        for name, entry in each.ours:
            yield _works(each, name, entry, case)
    for each in files:
        names: list[str] = []
        if each.client.id in connected and there is not None and each.others:
            names = _names_twice(each, there, case)
        if names:
            numbered = counted(len(names), "server")
            what = f"{each.client.name} has {numbered} twice, by itself and through mcpx: "
            fix = case.command("connect", *each.words(), "--replace")
            yield warning(what + ", ".join(dict.fromkeys(names)), str(each.file), fix=fix)
        elif not each.ours:
            yield _without_mcpx(each, case)
    if not files:
        yield ok("no client program has a server yet", fix=case.command("connect"))
    if case.config is not None:
        for client in connected.values():
            shown = result_of(_shown(case, case.config, client))
            yield from _limits(client, shown, case.config)
            if client.id == "claude-code" and shown.deferred_tokens:
                yield _defers(client, shown, case.environ)


def _without_mcpx(seen: ClientFile, case: Case) -> Finding:
    number = counted(len(seen.others), "server")
    fix = _connect(seen, case)
    if not all(_is_known(name, entry, case) for name, entry in seen.others):
        fix = f"{case.command('import', seen.client.id)}, then {fix}"
    what = f"{seen.client.name} has {number} of its own, and mcpx is not among them"
    return ok(what, str(seen.file), fix=fix)


def _names_twice(seen: ClientFile, there: PresentEntries, case: Case) -> list[str]:
    """The servers that a connected client has by itself and through mcpx."""
    project, names = _project(), list[str]()
    for place in places_in(seen.client, seen.file, project):
        with contextlib.suppress(ConfigError):  # Another finding reports an unreadable file.
            reading = look_into(place, seen.file)
            if reading is not None:
                names += duplicates(reading, there, case.environ, project)
    return names


def _there(case: Case) -> PresentEntries | None:
    if case.path is None or case.config is None:
        return None
    written = read_written(Where(case.path, case.environ, case.env))
    return None if written.told else present_entries(written)


def _project() -> Path:
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def _files(case: Case) -> Iterator[ClientFile]:
    """The files of clients that have servers, each once."""
    known: set[str] = set()
    for client in all_clients():
        files: dict[Path, list[Place]] = {}
        for place in places_here(client, _project(), case.environ):
            for file in place.there():
                if os.path.realpath(file) not in known:
                    files.setdefault(file, []).append(place)
        known |= {os.path.realpath(file) for file in files}
        for file, places in files.items():
            entries = _entries(file, places)
            if entries:
                ours = [pair for pair in entries if glance.is_mcpx(*pair)]
                others = [pair for pair in entries if not glance.is_mcpx(*pair)]
                in_project = all(place.scope == "project" for place in places)
                yield ClientFile(client, file, in_project, ours, others)


def _entries(file: Path, places: Sequence[Place]) -> list[Entry]:
    form = places[0].format
    if form == "yaml":
        try:
            tree: Any = tree_of(read_text(file), "yaml")
        except UnreadableError:
            tree = None
    else:
        tree = glance.read_tree(file, form)
    # In the home folder, the files of the user and of the project may be one file with the same
    # keys.
    by_root = {place.roots: glance.entries_in(tree, place) for place in places}
    return [pair for found in by_root.values() for pair in found]


def _is_known(name: str, entry: Json, case: Case) -> bool:
    """Whether the config has this server, by its name or by its address or command."""
    url = _url(entry)
    for server in case.servers:
        spec = server.connection
        command = [getattr(spec, "command", None), *getattr(spec, "args", ())]
        is_same = url == getattr(spec, "url", None) if url else _words(entry) == command
        if is_same or server.name == name:
            return True
    return False


def _url(entry: Json) -> str | None:
    texts = (entry.get(key) for key in URL_KEYS)
    return next((text for text in texts if isinstance(text, str)), None)


def _words(entry: Json) -> list[str]:
    words: list[Any] = []
    for key in ("command", "cmd", "args"):
        value = entry.get(key)
        words += cast("list[Any]", value) if isinstance(value, list) else [value]
    return [word for word in words if isinstance(word, str)]


def _connect(seen: ClientFile, case: Case, entry: str = NAME) -> str:
    """The command that writes a working entry into this file. `entry`: the name of the present
    one."""
    if seen.client.imports_only:
        return f"edit {seen.file}"
    connect = case.command("connect", *seen.words())
    if entry == NAME:
        return connect
    # `connect` writes the entry under its usual name, and would leave the other one.
    return f"remove the entry {entry!r} from {seen.file}, then {connect}"


def _works(seen: ClientFile, name: str, entry: Json, case: Case) -> Finding:
    client, file, fix = seen.client.name, str(seen.file), _connect(seen, case, name)
    url = _url(entry)
    if url is not None:
        answers, bare = is_mcpx(url), _without_secrets(url)
        if answers:
            return ok(f"{client} has mcpx, and it answers at {bare}", file)
        who = "something else" if answers is False else "nobody"
        start = _start_at(bare, case)
        if answers is None and start is not None:
            fix = f"{start}, or {fix}"
        return error(f"{client} looks for mcpx at {bare}, and {who} answers there", file, fix=fix)
    words = _words(entry)
    command = next(iter(words), "")
    try:
        program = find_program(command, case.environ, None)
    except OSError:
        where = "is not there any more" if os.path.dirname(command) else "is not found"
        return error(f"{client} starts mcpx by {command!r}, which {where}", file, fix=fix)
    config = config_named(words)
    if config is not None and not os.path.exists(os.path.expanduser(config)):
        what = f"{client} starts mcpx on {config}, which does not exist"
        return error(what, file, fix=fix)
    return ok(f"{client} has mcpx, by {program}", file)


def _start_at(url: str, case: Case) -> str | None:
    """The command that starts a gateway at this address. None if the address is not on this
    machine."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme != "http" or port is None or not is_loopback(parts.hostname or ""):
        return None
    if port == case.port:
        return case.serve_command()
    return case.serve_command("--port", str(port))


def _without_secrets(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that is none"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


async def _shown(case: Case, config: Config, client: Client) -> Shown:
    """What the gateway would show, by what it knew of its servers last time."""
    from mcpx.core.gateway import Gateway
    from mcpx.surfaces.modes.auto import Auto
    from mcpx.surfaces.settings import DEFERS

    gateway = Gateway(config, case.environ, case.state)
    try:
        name = next(iter(client.called), client.id).rstrip("*")
        catalog = gateway.catalog
        surface = gateway.generation.surfaces.of(config.mode)
        names = [offer.public for offer in catalog.offers["tools"]]
        tokens = 0
        if isinstance(surface, Auto) and surface.choose(name, catalog).reason == DEFERS:
            tokens = surface.size_of(catalog)
            if tokens <= surface.settings.auto_budget:
                tokens = 0
        is_direct = surface.shows_all(Caller(client={"name": name}), catalog)
        return Shown(names, is_direct, tokens)
    finally:
        await gateway.close()


def _defers(client: Client, shown: Shown, environ: Mapping[str, str]) -> Finding:
    """Claude Code defers tools only with Anthropic's API."""
    tools = f"{counted(len(shown.names), 'tool')} (about {shown.deferred_tokens:,} tokens)"
    provider = ""
    with contextlib.suppress(ValueError):
        provider = urlsplit(environ.get("ANTHROPIC_BASE_URL", "")).hostname or ""
    if f".{provider}".endswith((".", ".anthropic.com")):
        what = f"{client.name} is shown all {tools}, because it defers tools. With an "
        return ok(f"{what}ANTHROPIC_BASE_URL of another provider, it does not defer them")
    what = f"{client.name} is shown all {tools} and does not defer them, because "
    fix = "auto_rules: [{client: claude-code, mode: search}] in the config's global section, or a "
    fix += "lower auto_direct_limit"
    return warning(f"{what}ANTHROPIC_BASE_URL names {provider}", fix=fix)


def _limits(client: Client, shown: Shown, config: Config) -> Iterator[Finding]:
    limits, name, number = client.limits, client.name, len(shown.names)
    if shown.is_direct and limits.tools is not None and number > limits.tools:
        what = f"{name} takes about {limits.tools} tools, and is shown {number} in mode "
        fix = "show it fewer: mode: search in the config, its URL with /mcp/search, or a profile"
        yield warning(what + config.mode, fix=fix)
    if shown.is_direct and limits.name is not None:
        most = limits.name - len(limits.prefix)
        long = [each for each in shown.names if len(each) > most]
        if long:
            what = f"{name} takes names of at most {most} characters; longer are: "
            fix = f"naming: {{max_length: {most}}} in the config, or a shorter prefix"
            yield warning(what + limited(long, 3), fix=fix)
    wait = config.global_.first_start_wait
    if limits.start_seconds is not None and wait >= limits.start_seconds:
        what = f"{name} gives up after {limits.start_seconds} s, and the first list may wait "
        fix = f"first_start_wait below {limits.start_seconds} in the config's global section"
        yield warning(f"{what}{wait:g} s for servers", fix=fix)
    if limits.call_seconds is not None:
        usual = config.global_.call_timeout
        timeouts = {server.name: server.call_timeout for server in config.mcp_servers}
        slow = [
            server
            for server, timeout in timeouts.items()
            if timeout != usual and timeout > limits.call_seconds
        ]
        if slow:
            what = f"{name} gives up a call after {limits.call_seconds} s; longer may take: "
            fix = "raise the timeout of the client program, where it has a setting"
            yield warning(what + ", ".join(slow[:5]), fix=fix)
