"""`mcpx tools` and `mcpx search`: what can be called, as a table, as TypeScript, or for
programs."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcpx.cli import failing
from mcpx.cli.codes import PARTIAL, SIGN_IN
from mcpx.cli.parsing import near
from mcpx.cli.questions import Questions
from mcpx.cli.reach import Desk, Needs, Place, place, reach, tell_down, tools_of, tools_when_started
from mcpx.cli.running import result_of
from mcpx.cli.terminal import Cell, Table, Waiting, plain, print_json, shown, styled
from mcpx.cli.where import same_target
from mcpx.cli.words import counted
from mcpx.library.values import COMMANDS, Tool
from mcpx.model.call import Json, as_list, as_object
from mcpx.model.errors import ConfigError, RpcError

if TYPE_CHECKING:
    from mcpx.config import Config

MOST_ARGUMENTS = 44
"""Characters of a tool's arguments in a table."""


def tools(options: argparse.Namespace, server: str | None) -> int:
    return result_of(_tools(options, place(options), server))


async def _tools(options: argparse.Namespace, where: Place, server: str | None) -> int:
    with Waiting() as waiting:
        async with reach(
            where, Questions(waiting), waiting, _only(server), whole=server is not None
        ) as desk:
            servers = await desk.servers()
            if server is not None and (problem := _unknown(server, servers)) is not None:
                return failing.unknown(problem, options.json)
            try:
                listed = await _listed(desk, waiting, server)
            except RpcError as error:
                return failing.failed(error, servers, "", options.json)
            servers = await desk.servers()  # a list waits for those that are starting
            await _tell_hidden(desk, listed, server, same_target(options))
            return _tell(
                options, listed, servers, server, server is None or desk.running
            )  # ending them may take long


async def _listed(desk: Desk, waiting: Waiting, server: str | None) -> list[Tool]:
    """A list of all servers does not wait for a server that hangs; a list of one server waits until
    it has started."""
    if server is None:
        return await tools_of(desk)
    return await tools_when_started(desk, waiting, server, lambda listed: False)


async def _tell_hidden(desk: Desk, listed: Sequence[Tool], server: str | None, target: str) -> None:
    """Report why a server has no tools in the list if its state does not explain it."""
    if server is None or any(tool.server == server for tool in listed):
        return
    missing = await desk.missing(server)
    if missing is not None and missing["reason"] in ("hidden", "disabled"):
        sys.stderr.write(
            f"{plain(str(missing['message']))}; {plain(failing.missing_hint(missing, target))}\n"
        )


def _tell(
    options: argparse.Namespace,
    listed: Sequence[Tool],
    servers: Sequence[Json],
    server: str | None,
    public: bool,
) -> int:
    found = [tool for tool in listed if server in (None, tool.server)]
    down = tell_down(servers, server, same_target(options))
    if options.json:
        withheld = [
            {
                "name": each.get("name"),
                "held": each.get("held"),
                "quarantined": bool(each.get("quarantined")),
            }
            for each in servers
            if server in (None, each.get("name")) and (each.get("held") or each.get("quarantined"))
        ]
        rows = [told(tool, options.schema, public) for tool in found]
        print_json({"tools": rows, "down": down, "withheld": withheld})
    elif options.schema:
        _print_signatures(found)
    else:
        _print_table(found)
    sys.stdout.flush()
    return _code(down)


def _code(down: Sequence[Json]) -> int:
    if any(server["status"] != "needs_auth" for server in down):
        return PARTIAL
    return SIGN_IN if down else 0


def _only(server: str | None) -> Needs:
    def needs(config: "Config") -> Sequence[str] | None:
        if server is None:
            return None
        names = [
            *(each.name for each in config.mcp_servers),
            *([COMMANDS] if config.commands else []),
        ]
        if server not in names:
            raise ConfigError([f"error: {_no_server(server, names)}"])
        return [server]

    return needs


def _unknown(server: str, servers: Sequence[Json]) -> str | None:
    names = [str(each.get("name")) for each in servers]
    return None if server in (*names, COMMANDS) else _no_server(server, names)


def _no_server(server: str, names: Sequence[str]) -> str:
    close = near(server, names)
    hint = f"did you mean {close}?" if close else f"there is {', '.join(names) or 'none'}"
    return f"no server is named {plain(server)!r}; {hint}"


def told(tool: Tool, schema: bool, public: bool) -> Json:
    """For programs. `public`: whether all servers were looked at, so that the public name is
    known."""
    about: Json = {
        "name": tool.path,
        "public": tool.name if public else None,
        "server": tool.server,
        "tool": tool.tool,
        "title": tool.title or None,
        "description": tool.description,
        "read_only": tool.read_only,
        "destructive": tool.destructive,
    }
    if schema:
        about["inputSchema"], about["outputSchema"] = tool.input_schema, tool.output_schema
    return about


def _print_table(found: Sequence[Tool]) -> None:
    table = Table("TOOL", "ARGUMENTS", "DESCRIPTION")
    for tool in found:
        about = plain(" ".join((tool.description or tool.title).split()), 400)
        table.add(Cell(plain(tool.path), "cyan"), _arguments(tool.input_schema), about)
    table.print()
    sys.stdout.write(f"{_total(found)}\n")


def _total(found: Sequence[Tool]) -> str:
    """How many tools servers have, and how many are commands of the config."""
    commands = sum(tool.server == COMMANDS for tool in found)
    servers = len({tool.server for tool in found} - {COMMANDS})
    tools = f"{counted(len(found) - commands, 'tool')} of {counted(servers, 'server')}"
    if not commands:
        return tools
    return f"{tools}, {counted(commands, 'command')}" if servers else counted(commands, "command")


def _arguments(schema: Mapping[str, Any]) -> str:
    """Names, the needed ones first; a question mark where one may be left out."""
    names, needed = list(as_object(schema.get("properties"))), as_list(schema.get("required"))
    listed = [name for name in names if name in needed] + [
        f"{name}?" for name in names if name not in needed
    ]
    text = plain(", ".join(map(str, listed)) or "-", 1000)
    if len(text) <= MOST_ARGUMENTS:
        return text
    return (
        text[: MOST_ARGUMENTS - 2].rpartition(", ")[0] + ", …"
        if ", " in text
        else text[:MOST_ARGUMENTS]
    )


def _print_signatures(found: Sequence[Tool]) -> None:
    from mcpx.formats import typescript

    server = None
    for tool in found:
        if tool.server != server:
            sys.stdout.write(
                f"{'' if server is None else chr(10)}{styled('// ' + plain(tool.server), 'bold')}\n"
            )
            server = tool.server
        about = shown(tool.description or tool.title).strip().replace("*/", "* /")
        if about:
            sys.stdout.write(
                styled("/** " + "\n *  ".join(about.splitlines()) + " */", "dim") + "\n"
            )
        took = typescript.type_text(dict(tool.input_schema))
        gives = (
            "unknown"
            if tool.output_schema is None
            else typescript.type_text(dict(tool.output_schema))
        )
        args = (
            ""
            if took in ("{}", "Record<string, unknown>") and not tool.input_schema.get("properties")
            else took
        )
        name = plain(tool.tool)
        spelled = name if name.isidentifier() else f'"{name}"'
        given = f"args: {args}" if args else ""
        sys.stdout.write(f"function {styled(spelled, 'cyan')}({given}): {gives};\n")


# Search
# --------------------------------------------------------------------------------------------------


def search(options: argparse.Namespace) -> int:
    query = " ".join(options.words).strip()
    if not query:
        raise ConfigError(["error: say what to look for: mcpx search WORDS"])
    if options.limit < 1:
        raise ConfigError(["error: --limit is a number from 1 on"])
    return result_of(_search(options, query))


async def _search(options: argparse.Namespace, query: str) -> int:
    with Waiting() as waiting:
        async with reach(place(options), Questions(waiting), waiting, whole=False) as desk:
            found, servers = await _found(desk, query, options.limit)
            return _tell_hits(options, query, found, servers)


def _tell_hits(
    options: argparse.Namespace, query: str, found: Json, servers: Sequence[Json]
) -> int:
    hits = [
        (Tool.of(as_object(hit.get("definition"))), as_object(hit))
        for hit in as_list(found.get("tools"))
    ]
    total = found.get("total")
    down = tell_down(servers, target=same_target(options))
    if options.json:
        tools = [
            {**told(tool, False, True), "score": hit.get("score"), "strong": hit.get("strong")}
            for tool, hit in hits
        ]
        print_json({"query": query, "tools": tools, "total": total, "down": down})
    elif not hits:
        sys.stderr.write(
            f"no tool matches {plain(query)!r}; other words may, and mcpx tools lists all\n"
        )
    else:
        table = Table("TOOL", "ARGUMENTS", "DESCRIPTION")
        for tool, hit in hits:
            about = plain(" ".join((tool.description or tool.title).split()), 400)
            style = "cyan" if hit.get("strong") else "dim"
            table.add(Cell(plain(tool.path), style), _arguments(tool.input_schema), about)
        table.print()
        if isinstance(total, int) and total > len(hits):
            sys.stdout.write(f"{len(hits)} of {total:,} matches; --limit shows more\n")
    sys.stdout.flush()
    return 0 if hits else 1


async def _found(desk: Desk, query: str, limit: int) -> tuple[Json, list[Json]]:
    return await desk.search(query, limit), await desk.servers()
