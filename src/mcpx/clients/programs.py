"""What to paste where, for every client program: snippets of files, command lines and links.

Promised: each snippet is what the client reads, by the same data that `mcpx connect` writes by.
Where a token has to be shown it stands in the form in which the program reads variables; programs
that cannot read variables there get a placeholder. Not done here: writing anything.
"""

import base64
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from mcpx.clients.catalogue import Client, Spec, Transport, clients, this_system
from mcpx.clients.entry import NAME, VARIABLE, Json, Target, as_text, asks, entry, whole

Language = Literal["json", "toml", "yaml", "shell", "text", "url"]

SET = f"Set {VARIABLE} where the program is started: it holds a token of `mcpx token new`."
BY_HAND = (
    "This program reads no variables there: put a token of `mcpx token new` where the "
    "capitals stand."
)
JOINS = (
    "Over stdio the program joins the gateway that runs on this configuration, "
    "or starts one that all such programs share."
)
NO_HTTP = "the gateway is not served over HTTP now"
SHARED = "all clients share one gateway and its servers"
EACH_REQUEST = (
    "A token goes with each request: Authorization: Bearer … (`mcpx token new` makes one)."
)


@dataclass(frozen=True, slots=True)
class Snippet:
    label: str
    language: Language
    text: str
    path: str | None = None
    """Of the file it belongs into."""


@dataclass(frozen=True, slots=True)
class Program:
    """One client program, with what to paste for a gateway."""

    id: str
    name: str
    transport: Transport
    why: str
    snippets: Sequence[Snippet]
    deeplink: str | None
    notes: Sequence[str]
    client: Client | None = None

    def is_called(self, name: str) -> bool:
        return self.client is not None and self.client.is_called(name)


def programs(*, url: str | None, command: Sequence[str], token: bool) -> Iterable[Program]:
    """All of them, for a gateway that is found there."""
    target = Target(url, command, token)
    known = [program_of(client, target) for client in clients() if not client.imports_only]
    return [*known, _any_other(target)]


def program_of(client: Client, target: Target, transport: Transport | None = None) -> Program:
    transport = transport or ("http" if client.http and target.url is not None else "stdio")
    made = entry(client, client.specs[0].shapes[0], transport, target)
    if transport == "http":
        why, notes = SHARED, (*_about_token(client, target), *client.http_notes)
    else:
        why, notes = client.why or NO_HTTP, (*client.stdio_notes, JOINS)
    asking = bool(asks(client.specs[0].shapes[0], transport, target))
    snippets = [*_commands(client, transport, target, made), *_files(client, transport, target)]
    link = None if asking or not client.deeplink else _link(client.deeplink, made)
    return Program(client.id, client.name, transport, why, snippets, link, notes, client)


def _about_token(client: Client, target: Target) -> tuple[str, ...]:
    if not target.token:
        return ()
    return (client.token_note or (SET if client.token else BY_HAND),)


def _files(client: Client, transport: Transport, target: Target) -> Iterable[Snippet]:
    system = this_system()
    for spec in client.specs:
        if spec.reads or (spec.scope == "project" and len(spec.shapes) > 1):
            continue
        for shape in spec.shapes:
            made, beside = entry(client, shape, transport, target), asks(shape, transport, target)
            text = as_text(whole(shape, shape.root, made, beside), spec.format, shape.root)
            yield Snippet(shape.label or spec.label, _language(spec), text, spec.shown(system))


def _language(spec: Spec) -> Language:
    return "json" if spec.format == "jsonc" else spec.format


def _commands(
    client: Client, transport: Transport, target: Target, made: Json
) -> Iterable[Snippet]:
    if words := vendor_command(client, transport, target, made):
        yield Snippet("Command", "shell", shlex.join(words))


def vendor_command(client: Client, transport: Transport, target: Target, made: Json) -> list[str]:
    """The vendor's own command line; none where there is none for this."""
    template = (
        client.cli.stdio
        if transport == "stdio"
        else client.cli.token
        if target.token
        else client.cli.http
    )
    values = {
        "{name}": [NAME],
        "{url}": [target.url or ""],
        "{words}": list(target.command),
        "{variable}": [VARIABLE],
        "{entry}": [_compact(made)],
        "{named}": [_compact({"name": NAME, **made})],
    }
    return [word for part in template for word in values.get(part, [part])]


def _link(template: str, made: Json) -> str:
    told = base64.b64encode(_compact(made).encode()).decode()
    link = template.replace("{name}", NAME).replace("{base64}", quote(told, safe=""))
    return link.replace("{named}", quote(_compact({"name": NAME, **made}), safe=""))


def _compact(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _any_other(target: Target) -> Program:
    if target.url is None:
        command = Snippet("Command", "shell", shlex.join(target.command))
        return Program("other", "Any other client", "stdio", NO_HTTP, [command], None, [JOINS])
    address = Snippet("Streamable HTTP", "url", target.url)
    return Program(
        "other", "Any other client", "http", SHARED, [address], None, [EACH_REQUEST] * target.token
    )
