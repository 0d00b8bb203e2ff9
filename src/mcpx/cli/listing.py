"""`mcpx tools` and `mcpx search`: callable tools as a table, as TypeScript, or for programs."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcpx.cli.codes import FAILED, PARTIAL, SIGN_IN, code_if
from mcpx.cli.gateway_client import (
    Client,
    Needs,
    connected,
    report_down,
    tools_of,
    tools_when_started,
)
from mcpx.cli.output import (
    Cell,
    Output,
    Style,
    Table,
    Waiting,
    counted,
    hint_of,
    objects,
    plain,
    print_json,
    say,
    shown,
    styled,
    text_of,
)
from mcpx.cli.parsing import suggestion
from mcpx.cli.running import mistake, result_of, warn
from mcpx.cli.target import Target, subject_of
from mcpx.library.values import COMMANDS, Tool
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import RpcError

if TYPE_CHECKING:
    from mcpx.config import Config

MAX_ARGUMENTS = 44
"""Characters of a tool's arguments in a table."""
MAX_DESCRIPTION = 400


def tools(options: argparse.Namespace) -> int:
    server = subject_of(options)
    return result_of(_tools(options, Target.of(options), server))


async def _tools(options: argparse.Namespace, target: Target, server: str | None) -> int:
    out = Output(options.json)
    with Waiting() as waiting:
        whole = server is not None
        async with connected(target, waiting, _needs(server), whole=whole) as client:
            servers = await client.servers()
            names = [str(each.get("name")) for each in servers]
            if server is not None and server not in (*names, COMMANDS):
                return out.not_found(_no_server(server, names))
            try:
                if server is None:  # Does not wait for a server that hangs.
                    listed = await tools_of(client)
                else:
                    listed = await tools_when_started(client, waiting, server, lambda _: False)
            except RpcError as error:
                return out.rpc_failure(error, servers, "")
            servers = await client.servers()  # Listing has waited for servers that were starting.
            if server is not None:
                listed = [tool for tool in listed if tool.server == server]
                servers = [each for each in servers if each.get("name") == server]
                if not listed:
                    await _report_hidden(client, server, target)
            has_public_names = server is None or client.is_running
            # Before the servers are ended, which may take long.
            return _write_tools(options, listed, servers, has_public_names, target)


async def _report_hidden(client: Client, server: str, target: Target) -> None:
    """Report why a server has no tools in the list if its state does not explain it."""
    missing = await client.missing(server)
    if missing is not None and missing["reason"] in ("hidden", "disabled"):
        hint = hint_of(missing, target.suffix)
        warn(f"{text_of(missing, 'message')}; {plain(hint)}")


def _write_tools(
    options: argparse.Namespace,
    listed: Sequence[Tool],
    servers: Sequence[Json],
    has_public_names: bool,
    target: Target,
) -> int:
    down = report_down(servers, suffix=target.suffix)
    if options.json:
        withheld = [
            {
                "name": each.get("name"),
                "held": each.get("held"),
                "quarantined": bool(each.get("quarantined")),
            }
            for each in servers
            if each.get("held") or each.get("quarantined")
        ]
        rows = [_facts(tool, has_public_names) for tool in listed]
        if options.schema:
            for row, tool in zip(rows, listed, strict=True):
                row |= {"inputSchema": tool.input_schema, "outputSchema": tool.output_schema}
        print_json({"tools": rows, "down": down, "withheld": withheld})
    elif options.schema:
        _print_signatures(listed)
    else:
        table = Table("TOOL", "ARGUMENTS", "DESCRIPTION")
        for tool in listed:
            _add_row(table, tool, "cyan")
        table.print()
        say(f"{_total(listed)}")
    sys.stdout.flush()
    if any(server["status"] != "needs_auth" for server in down):
        return PARTIAL
    return code_if(down, SIGN_IN)


def _needs(server: str | None) -> Needs:
    def needs(config: "Config") -> Sequence[str] | None:
        if server is None:
            return None
        names = [each.name for each in config.mcp_servers]
        if config.commands:
            names.append(COMMANDS)
        if server not in names:
            raise mistake(f"{_no_server(server, names)}")
        return [server]

    return needs


def _no_server(server: str, names: Sequence[str]) -> str:
    hint = suggestion(server, names, f"there is {', '.join(names) or 'none'}")
    return f"no server is named {plain(server)!r}; {hint}"


def _facts(tool: Tool, has_public_names: bool) -> Json:
    """For programs. The public name is known only if all servers were looked at."""
    return {
        "name": tool.path,
        "public": tool.name if has_public_names else None,
        "server": tool.server,
        "tool": tool.tool,
        "title": tool.title or None,
        "description": tool.description,
        "read_only": tool.read_only,
        "destructive": tool.destructive,
    }


def _add_row(table: Table, tool: Tool, style: Style) -> None:
    about = " ".join((tool.description or tool.title).split())
    path = Cell(plain(tool.path), style)
    table.add(path, _arguments(tool.input_schema), plain(about, MAX_DESCRIPTION))


def _total(found: Sequence[Tool]) -> str:
    """The number of tools of servers, and of commands of the config."""
    commands = sum(tool.server == COMMANDS for tool in found)
    servers = len({tool.server for tool in found} - {COMMANDS})
    totals: list[str] = []
    if servers or not commands:
        tools = counted(len(found) - commands, "tool")
        totals.append(f"{tools} of {counted(servers, 'server')}")
    if commands:
        totals.append(counted(commands, "command"))
    return ", ".join(totals)


def _arguments(schema: Mapping[str, Any]) -> str:
    """The names of the arguments, required ones first. A question mark marks optional ones."""
    names, required = list(as_object(schema.get("properties"))), as_list(schema.get("required"))
    listed = [name for name in names if name in required]
    listed += [f"{name}?" for name in names if name not in required]
    text = plain(", ".join(listed) or "-", 1000)
    if len(text) <= MAX_ARGUMENTS:
        return text
    whole, comma, _ = text[: MAX_ARGUMENTS - 2].rpartition(", ")
    if comma:
        return f"{whole}, …"
    return text[:MAX_ARGUMENTS]


def _print_signatures(found: Sequence[Tool]) -> None:
    server = None
    for tool in found:
        if tool.server != server:
            if server is not None:
                say("")
            server = tool.server
            say(styled(f"// {plain(server)}", "bold"))
        about = shown(tool.description or tool.title).strip().replace("*/", "* /")
        if about:
            comment = "\n *  ".join(about.splitlines())
            say(styled(f"/** {comment} */", "dim"))
        say(f"{_signature(tool)}")


def _signature(tool: Tool) -> str:
    from mcpx.formats import typescript

    name, result = plain(tool.tool), "unknown"
    if not name.isidentifier():
        name = f'"{name}"'
    takes = typescript.type_text(dict(tool.input_schema))
    arguments = f"args: {takes}"
    is_empty = takes in ("{}", "Record<string, unknown>")
    if is_empty and not tool.input_schema.get("properties"):
        arguments = ""
    if tool.output_schema is not None:
        result = typescript.type_text(dict(tool.output_schema))
    return f"function {styled(name, 'cyan')}({arguments}): {result};"


# Search


def search(options: argparse.Namespace) -> int:
    query = " ".join(options.words).strip()
    if not query:
        raise mistake("say what to look for: mcpx search WORDS")
    if options.limit < 1:
        raise mistake("--limit is a number from 1 on")
    return result_of(_search(options, query))


async def _search(options: argparse.Namespace, query: str) -> int:
    target = Target.of(options)
    with Waiting() as waiting:
        async with connected(target, waiting, whole=False) as client:
            found = await client.search(query, options.limit)
            down = report_down(await client.servers(), suffix=target.suffix)
            return _write_hits(options.json, query, found, down)


def _write_hits(as_json: bool, query: str, found: Json, down: Sequence[Json]) -> int:
    hits = objects(found.get("tools"))
    tools = [Tool.of(as_object(hit.get("definition"))) for hit in hits]
    total = found.get("total")
    if as_json:
        rows = [
            {**_facts(tool, True), "score": hit.get("score"), "strong": hit.get("strong")}
            for tool, hit in zip(tools, hits, strict=True)
        ]
        print_json({"query": query, "tools": rows, "total": total, "down": down})
    elif not hits:
        warn(f"no tool matches {plain(query)!r}; other words may, and mcpx tools lists all")
    else:
        table = Table("TOOL", "ARGUMENTS", "DESCRIPTION")
        for tool, hit in zip(tools, hits, strict=True):
            _add_row(table, tool, "cyan" if hit.get("strong") else "dim")
        table.print()
        if isinstance(total, int) and total > len(hits):
            say(f"{len(hits)} of {total:,} matches; --limit shows more")
    sys.stdout.flush()
    return code_if(not hits, FAILED)
