"""docs/clients/: one page for each client program, from the data that `mcpx connect` and `mcpx
import` work by."""

import shlex
from collections.abc import Iterator, Mapping

from mcpx.clients.catalogue import SYSTEMS, Client, Spec, Transport, clients
from mcpx.clients.entry import Target, as_text, asks, entry, whole
from mcpx.clients.programs import vendor_command

URL = "http://127.0.0.1:8000/mcp"
OPEN = Target(URL, ["mcpx", "/path/to/mcpx.yaml"], token=False)
CLOSED = Target(URL, ["mcpx", "/path/to/mcpx.yaml"], token=True)
NAMES = {"macos": "macOS", "linux": "Linux", "windows": "Windows"}
SCOPES = {
    "user": "you",
    "project": "a project",
    "local": "you, in a project",
    "gui": "in the program",
}
CAN = {"y": "yes", "n": "no"}

INDEX = """\
# Client programs

*Generated from the data that `mcpx connect` and `mcpx import` work by (`scripts/references.py`).*

`mcpx connect` writes mcpx into a client's file and keeps the rest as it is; `mcpx connect CLIENT --dry-run` shows the difference first,
`mcpx connect --undo` takes it back. `mcpx import` reads the servers that your clients have. Each page below says where the file is,
what stands in it, and what limits the client has, if you would rather do it by hand.

| client | over HTTP | tools at most | looked at |
|---|---|---|---|
"""


def pages() -> Mapping[str, str]:
    made = {
        f"clients/{client.id}.md": "\n".join(_page(client)).rstrip() + "\n" for client in clients()
    }
    rows = "".join(_row(client) for client in clients())
    return {"clients/README.md": INDEX + rows + "\n" + OTHERS, **made}


OTHERS = f"""\
Any other client that takes a server over streamable HTTP: the address is `{URL}`, with `Authorization: Bearer …` where
[tokens](../guard.md) are asked for; `http://127.0.0.1:8000/sse` for those that know only the older SSE. One that starts programs itself:
the command is `mcpx` with the path of your config.
"""


def _row(client: Client) -> str:
    http = "yes" if client.http else "no"
    how = f"only read: {client.imports_only}" if client.imports_only else http
    return (
        f"| [{client.name}]({client.id}.md) | {how} | {client.limits.tools or ''} | "
        f"{client.verified} |\n"
    )


def _page(client: Client) -> Iterator[str]:
    yield f"# {client.name}\n"
    yield f"*Generated; as read in the client's own documents, {client.verified}.*\n"
    if client.imports_only:
        yield (
            f"mcpx reads its servers (`mcpx import {client.id}`) and writes nothing into it: "
            f"{client.imports_only}\n"
        )
    else:
        yield (
            f"```\nmcpx connect {client.id} --dry-run   # what would be written, and "
            f"where\nmcpx connect {client.id}\nmcpx import {client.id}              # the "
            "servers it has\n```\n"
        )
    yield from _files(client)
    if client.imports_only:
        return
    if client.http:
        yield from _way(
            client, "http", OPEN, "Over HTTP", "All clients share one gateway and its servers."
        )
        yield from _way(client, "http", CLOSED, "Over HTTP, with a token", _about_token(client))
    yield from _way(
        client,
        "stdio",
        OPEN,
        "Over stdio",
        client.why and f"{client.name} takes no server over HTTP here: {client.why}.",
    )
    if client.after:
        yield f"{client.after}\n"
    yield from _limits(client)
    if notes := (*client.notes, *client.http_notes, *client.stdio_notes):
        yield "## Good to know\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"
    if client.documentation:
        yield f"Its own documentation: <{client.documentation}>\n"


def _about_token(client: Client) -> str:
    if client.token_note:
        return client.token_note
    if client.token:
        return (
            "Set `MCPX_TOKEN` where the program is started: it holds a token of `mcpx token new`."
        )
    return (
        "This program reads no variables there: put a token of `mcpx token new` where the "
        "capitals stand."
    )


def _files(client: Client) -> Iterator[str]:
    yield "| file | for | where |\n|---|---|---|"
    for spec in client.specs:
        yield f"| {spec.label} | {SCOPES[spec.scope]} | {_where(spec)} |"
    yield ""


def _where(spec: Spec) -> str:
    """Where it is: once where all systems agree, else by system."""
    paths = {
        system: spec.shown(system) if spec.scope == "gui" else f"`{spec.shown(system)}`"
        for system in SYSTEMS
    }
    if len({path.replace("\\", "/") for path in paths.values()}) == 1:
        return paths["linux"]
    groups: dict[str, list[str]] = {}
    for system, path in paths.items():
        groups.setdefault(path, []).append(NAMES[system])
    return "<br>".join(f"{', '.join(names)}: {path}" for path, names in groups.items())


def _way(
    client: Client, transport: Transport, target: Target, title: str, words: str
) -> Iterator[str]:
    yield f"## {title}\n"
    if words:
        yield words + "\n"
    seen: set[str] = set()
    for spec in client.specs:
        for shape in spec.shapes:
            if spec.reads or spec.scope == "local":
                continue
            made = entry(client, shape, transport, target)
            text = as_text(
                whole(shape, shape.root, made, asks(shape, transport, target)),
                spec.format,
                shape.root,
            ).strip()
            if text in seen:
                continue
            seen.add(text)
            label = f"{spec.label}{f', {shape.label[:1].lower()}{shape.label[1:]}' if shape.label else ''}"
            language = "json" if spec.format == "jsonc" else spec.format
            yield f"{label}:\n\n```{language}\n{text}\n```\n"
    made = entry(client, client.specs[0].shapes[0], transport, target)
    if command := vendor_command(client, transport, target, made):
        yield f"Or by its own command:\n\n```\n{shlex.join(command)}\n```\n"


def _limits(client: Client) -> Iterator[str]:
    limits, rows = client.limits, list[str]()
    if limits.tools:
        rows.append(
            f"| tools | {limits.tools}; with more, use a compact mode ([Modes and "
            "tokens](../modes.md)) |"
        )
    if limits.name:
        prefix = f", with `{limits.prefix}` before it" if limits.prefix else ""
        rows.append(f"| name of a tool | {limits.name} characters{prefix} |")
    if limits.start_seconds:
        rows.append(f"| patience at the start | {limits.start_seconds} s |")
    if limits.call_seconds:
        rows.append(f"| patience for a call | {limits.call_seconds} s |")
    rows += [
        f"| {what.replace('_', ' ')} | {CAN.get(how, how)} |" for what, how in client.can.items()
    ]
    if rows:
        yield "## What it can, and its limits\n\n| | |\n|---|---|\n" + "\n".join(rows) + "\n"
