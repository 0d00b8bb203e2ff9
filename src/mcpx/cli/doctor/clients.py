"""Client programs: which of them have mcpx, whether what is written there still works, and what of the gateway's tools
they will not take (RUN-4).

Promised: their files are read and never written; nobody is started.
"""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from mcpx.cli.doctor.finding import Case, Finding, error, ok, warning
from mcpx.cli.doctor.gateway import is_mcpx
from mcpx.cli.running import result_of
from mcpx.cli.words import counted
from mcpx.clients import glance
from mcpx.clients.catalogue import Client, clients, places_here
from mcpx.config import Config
from mcpx.config.itself import config_named
from mcpx.model.call import Caller
from mcpx.processes.environment import find_program

MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """A client's file that has servers."""

    client: Client
    file: Path
    ours: Sequence[Mapping[str, Any]]
    """Entries that are mcpx."""
    others: Sequence[tuple[str, Mapping[str, Any]]]
    """Every other one, with its name."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a client gets to see."""

    names: Sequence[str]
    """Of tools, as clients are told them; none where nothing is known of the servers yet."""
    direct: bool
    """Whether all of them are listed, rather than a few that find the others."""


def look(case: Case) -> Iterator[Finding]:
    seen = list(_seen(case))
    connected = [each for each in seen if each.ours]
    for each in connected:
        for entry in each.ours:
            yield from _works(each, entry, case)
    alone = [each for each in seen if not each.ours and each.others]
    for each in alone:
        what = f"{each.client.name} has {counted(len(each.others), 'server')} of its own, and mcpx is not among them"
        new = not all(_is_here(name, entry, case.config) for name, entry in each.others)
        fix = f"{f'mcpx import {each.client.id}, then ' if new else ''}mcpx connect {each.client.id}"
        yield ok("client", what, str(each.file), fix=fix)
    if not seen:
        yield ok("client", "no client program has a server yet", fix="mcpx connect")
    if case.config is not None:
        for client in {each.client.id: each.client for each in connected}.values():
            yield from _limits(client, _shown(case, case.config, client), case.config)


def _seen(case: Case) -> Iterator[Seen]:
    try:
        project = Path.cwd()
    except OSError:
        project = Path("/")
    known: set[Path] = set()
    for client in clients():
        files: dict[Path, list[tuple[str, Mapping[str, Any]]]] = {}
        for place in places_here(client, project, case.environ):
            for file in place.there():
                if file in known:
                    continue
                tree = glance.read_tree(file, place.format) if place.format != "yaml" else _yaml(file)
                files.setdefault(file, []).extend(glance.entries_in(tree, place))
        for file, entries in files.items():
            known.add(file)
            ours = [entry for name, entry in entries if glance.is_mcpx(name, entry)]
            if entries:
                others = [(name, entry) for name, entry in entries if not glance.is_mcpx(name, entry)]
                yield Seen(client, file, ours, others)


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
        if server.name == name or (url == getattr(there, "url", None) if url is not None else _words(entry) == words):
            return True
    return False


def _url(entry: Mapping[str, Any]) -> str | None:
    return next((entry[key] for key in ("url", "httpUrl", "serverUrl", "uri") if isinstance(entry.get(key), str)), None)


def _works(seen: Seen, entry: Mapping[str, Any], case: Case) -> Iterator[Finding]:
    name, file = seen.client.name, str(seen.file)
    again = f"mcpx connect {seen.client.id}"
    url = _url(entry)
    if url is not None:
        answers, url = is_mcpx(url), _bare(url)
        if answers:
            yield ok("client", f"{name} has mcpx, and it answers at {url}", file)
        elif answers is None:
            start = "mcpx" if case.path is None else f"mcpx {shlex.quote(str(case.path))}"
            yield error(
                "client", f"{name} looks for mcpx at {url}, and nobody answers there", file, fix=f"{start}, or {again}"
            )
        else:
            yield error("client", f"{name} looks for mcpx at {url}, and something else answers there", file, fix=again)
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
            direct = gateway.generation.surfaces.of(config.mode).shows_all(caller, catalog)
            return Shown([offer.public for offer in catalog.offers["tools"]], direct)
        finally:
            await gateway.close()

    return result_of(shown())


def _limits(client: Client, shown: Shown, config: Config) -> Iterator[Finding]:
    limits = client.limits
    if shown.direct and limits.tools is not None and len(shown.names) > limits.tools:
        what = f"{client.name} takes about {limits.tools} tools, and is shown {len(shown.names)} in mode {config.mode}"
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
            yield warning("client", what, fix=f"naming: {{max_length: {room}}} in the config, or a shorter prefix")
    wait = config.global_.first_start_wait
    if limits.start_seconds is not None and wait >= limits.start_seconds:
        what = (
            f"{client.name} gives up after {limits.start_seconds} s, and the first list may wait {wait:g} s for servers"
        )
        yield warning(
            "client", what, fix=f"first_start_wait below {limits.start_seconds} in the config's global section"
        )
    if limits.call_seconds is not None:
        usual = config.global_.call_timeout
        slow = [s.name for s in config.mcp_servers if s.call_timeout != usual and s.call_timeout > limits.call_seconds]
        if slow:
            what = (
                f"{client.name} gives up a call after {limits.call_seconds} s; longer may take: {', '.join(slow[:5])}"
            )
            yield warning("client", what, fix="raise the timeout of the client program, where it has a setting")
