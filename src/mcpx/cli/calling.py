"""`mcpx call`: calls one tool as a client would.

The arguments are checked before anything is sent, as in compact modes. Ctrl-C and `--timeout`
cancel the call at its server. The exit code says how the call ended.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcpx.cli import arguments, results
from mcpx.cli.codes import FAILED, MISTAKE, TIMED_OUT, code_if
from mcpx.cli.gateway_client import (
    Client,
    Needs,
    connected,
    is_down,
    shown_while,
    tools_when_started,
)
from mcpx.cli.output import Output, Waiting, plain, print_json
from mcpx.cli.parsing import near, suggestion
from mcpx.cli.running import mistake, result_of
from mcpx.cli.target import Target
from mcpx.library.values import COMMANDS, Progress, Result, Tool
from mcpx.model.call import Json
from mcpx.model.errors import RpcError

if TYPE_CHECKING:
    from mcpx.config import Config

TICK_SECONDS = 0.25


def call(options: argparse.Namespace) -> int:
    if options.jmespath is not None:
        results.compiled(options.jmespath)
    return result_of(_call(options))


async def _call(options: argparse.Namespace) -> int:
    with Waiting() as waiting:
        for known in (options.tool, None):
            code = await _try_call(options, waiting, known)
            if code is not None:
                return code  # Otherwise the server that had the tool in an earlier run lost it.
    return FAILED


async def _try_call(options: argparse.Namespace, waiting: Waiting, known: str | None) -> int | None:
    """Return the exit code, or None if only one server was searched and does not have the tool.

    `known`: see `tool` of `connected`."""
    target, out = Target.of(options), Output(options.json)
    async with connected(target, waiting, needs_server_of(options.tool), tool=known) as client:
        name = client.earlier_path or options.tool
        server = _prefix_of(name, _names(await client.servers()))
        try:
            tools = await tools_when_started(
                client, waiting, server, lambda listed: find(name, listed) is not None
            )
        except RpcError as error:
            return out.rpc_failure(error, [], "")
        tool = find(name, tools)
        if tool is None and client.earlier_path is not None:
            return None
        if tool is None:
            return await _not_found(client, name, tools, target, out)
        if not client.is_running:  # A server that did not start is not tried once more.
            for state in await client.servers():
                if state.get("name") == tool.server and is_down(state):
                    return out.server_down(state)
        given = arguments.given(options.arguments, tool.input_schema)
        checked = _check(tool, given)
        if isinstance(checked, str):
            return out.fail("bad_arguments", checked, MISTAKE)
        params: Json = {"name": tool.name, "arguments": checked}
        return await _send(client, tool, params, options, waiting)


async def _send(
    client: Client, tool: Tool, params: Json, options: argparse.Namespace, waiting: Waiting
) -> int:
    out, began, state = Output(options.json), time.monotonic(), tool.path

    def on_progress(progress: Progress) -> None:
        nonlocal state
        state = f"{tool.path}: {progress.progress:g}"
        if progress.total is not None:
            state += f" of {progress.total:g}"
        if progress.message:
            state += f", {plain(progress.message)}"
        waiting.tell(state)

    async def text() -> str:
        return f"{state} ({time.monotonic() - began:.0f} s, Ctrl-C cancels)"

    request = client.request("tools/call", params, on_progress)
    try:
        async with asyncio.timeout(options.timeout):
            raw = await shown_while(waiting, request, text, TICK_SECONDS)
    except TimeoutError:
        message = f"{tool.path} took longer than {options.timeout:g} s; it was cancelled"
        return out.fail("timed_out", message, TIMED_OUT)
    except RpcError as error:
        return out.rpc_failure(error, await client.servers(), tool.server)
    result = Result.of(raw)
    if options.jmespath is not None and not result.is_error:
        results.print_query(result, options.jmespath, out.json)
    elif out.json:
        print_json(raw)
        if options.output is not None:
            results.save(result.content, options.output)
    else:
        results.print_result(result, options.output)
    return code_if(result.is_error, FAILED)


# Which tool


def needs_server_of(name: str) -> Needs:
    """Only the server that a name begins with is needed. A wrong server is reported at once."""

    def needs(config: "Config") -> Sequence[str] | None:
        names = [server.name for server in config.mcp_servers]
        if config.commands:
            names.append(COMMANDS)
        server = _prefix_of(name, names)
        if server is not None:
            return [server]
        message = _unknown_server(name, names)
        if message:
            raise mistake(f"{message}")
        return None

    return needs


def _prefix_of(name: str, servers: Sequence[str]) -> str | None:
    """The server that a name begins with."""
    fitting = [server for server in servers if name == server or name.startswith(f"{server}.")]
    return max(fitting, key=len, default=None)


def _unknown_server(name: str, servers: Sequence[str]) -> str | None:
    """A message for a name that nearly begins with a server's. A public name may contain dots,
    too."""
    before, dot, rest = name.partition(".")
    close = near(before, servers)
    if not dot or close is None or before.startswith(close):
        return None
    return f"no server is named {plain(before)!r}; did you mean {close}.{plain(rest)}?"


def find(name: str, tools: Sequence[Tool]) -> Tool | None:
    """By `SERVER.TOOL`, or by the public name."""
    by_public = {tool.name: tool for tool in reversed(tools)}
    by_path = {tool.path: tool for tool in reversed(tools)}
    return by_path.get(name) or by_public.get(name)


def _names(servers: Sequence[Json]) -> list[str]:
    return [*(str(server.get("name")) for server in servers), COMMANDS]


async def _not_found(
    client: Client, name: str, tools: Sequence[Tool], target: Target, out: Output
) -> int:
    servers = await client.servers()
    names = _names(servers)
    server = _prefix_of(name, names)
    own = [tool.tool for tool in tools if tool.server == server]
    for state in servers:
        if state.get("name") == server and is_down(state) and not own:
            return out.server_down(state)
    missing = await client.missing(name)
    if missing is not None:
        return out.not_offered(missing, target.suffix)
    if server is None:
        known = [spelled for tool in tools for spelled in (tool.path, tool.name)]
        hint = suggestion(name, known, "mcpx tools lists what there is")
        message = _unknown_server(name, names)
        return out.not_found(message or f"there is no tool {plain(name)!r}; {hint}")
    tool = name[len(server) + 1 :]
    if not tool:
        return out.not_found(f"{server} is a server; say which tool: mcpx tools {server}")
    close = near(tool, own)
    hint = f"mcpx tools {server} lists what it has"
    if close:
        hint = f"did you mean {server}.{close}?"
    return out.not_found(f"{server} has no tool {plain(tool)!r}; {hint}")


def _check(tool: Tool, given: Json) -> Json | str:
    """The arguments to send, or the problems with them and the signature of the tool."""
    from mcpx.formats import typescript
    from mcpx.surfaces.checking.arguments import Checker

    checked = Checker().check(tool.raw.get("inputSchema"), given)
    if not checked.problems:
        return checked.arguments
    signature = typescript.signature(tool.path, dict(tool.input_schema))
    return "\n  ".join([*checked.problems, signature])
