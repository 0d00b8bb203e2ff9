"""`mcpx call`: one tool, called as a client would, through the gateway that runs or one in this
process.

Promised: the arguments are checked as in compact modes before anything is sent; Ctrl-C and
`--timeout` cancel the call at its server; the exit code tells how it ended.
"""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcpx.cli import arguments, failing, results
from mcpx.cli.codes import FAILED, MISTAKE, TIMED_OUT
from mcpx.cli.parsing import near
from mcpx.cli.questions import Questions
from mcpx.cli.reach import Desk, Needs, is_down, place, reach, tools_when_started
from mcpx.cli.running import result_of
from mcpx.cli.terminal import Waiting, plain, print_json
from mcpx.cli.where import same_target
from mcpx.library.values import COMMANDS, Progress, Result, Tool
from mcpx.model.call import Json
from mcpx.model.errors import ConfigError, RpcError

if TYPE_CHECKING:
    from mcpx.config import Config

TICK = 0.25
"""Seconds between two words on how long it takes."""


def call(options: argparse.Namespace) -> int:
    if options.jmespath is not None:
        results.compiled(options.jmespath)
    return result_of(_call(options))


async def _call(options: argparse.Namespace) -> int:
    waiting = Waiting()
    try:
        code = await _called(options, waiting, options.tool)
        if (
            code is None
        ):  # The server that had the tool in an earlier run does not have it any more.
            code = await _called(options, waiting, None)
        return FAILED if code is None else code
    finally:
        waiting.clear()


async def _called(options: argparse.Namespace, waiting: Waiting, known: str | None) -> int | None:
    """Return the exit code, or None if only one server was searched and does not have the tool.

    `known`: see `tool` of `reach`."""
    name, words = options.tool, list[str](options.arguments)
    async with reach(place(options), Questions(waiting), waiting, only(name), tool=known) as desk:
        wanted = desk.earlier_path or name
        try:
            meant = _server_of(wanted, await desk.servers())
            tools = await tools_when_started(
                desk, waiting, meant, lambda listed: find(wanted, listed) is not None
            )
        except RpcError as error:
            return failing.failed(error, [], "", options.json)
        tool = find(wanted, tools)
        if tool is None:
            return (
                None
                if desk.earlier_path is not None
                else await _not_found(desk, name, tools, options)
            )
        if (stopped := await _refused(desk, tool, options.json)) is not None:
            return stopped
        given = arguments.given(words, tool.input_schema)
        checked = check(tool, given)
        if isinstance(checked, str):
            return failing.tell("bad_arguments", checked, MISTAKE, options.json)
        params: Json = {"name": tool.name, "arguments": checked}
        return await _made(desk, tool, params, options, waiting)


async def _made(
    desk: Desk, tool: Tool, params: Json, options: argparse.Namespace, waiting: Waiting
) -> int:
    try:
        async with asyncio.timeout(options.timeout), Ticking(tool.path, waiting) as ticking:
            raw = await desk.request("tools/call", params, ticking.progress)
    except TimeoutError:
        told = f"{tool.path} took longer than {options.timeout:g} s; it was cancelled"
        return failing.tell("timed_out", told, TIMED_OUT, options.json)
    except RpcError as error:
        return failing.failed(error, await desk.servers(), tool.server, options.json)
    waiting.clear()
    result = Result.of(raw)
    if options.jmespath is not None and not result.is_error:
        results.print_query(result, options.jmespath, options.json)
    elif options.json:
        print_json(raw)
        if options.output is not None:
            results.save(result.content, options.output)
    else:
        results.print_result(result, options.output)
    return FAILED if result.is_error else 0


class Ticking:
    """Says how long something takes, and how far it is."""

    def __init__(self, what: str, waiting: Waiting) -> None:
        self._what, self._waiting = what, waiting
        self._said = ""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Ticking":
        self._task = asyncio.ensure_future(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
        self._waiting.clear()

    def progress(self, told: Progress) -> None:
        part = f"{told.progress:g}" + ("" if told.total is None else f" of {told.total:g}")
        self._said = f": {part}{f', {plain(told.message)}' if told.message else ''}"
        self._waiting.tell(f"{self._what}{self._said}")

    async def _tick(self) -> None:
        began = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(TICK)
            seconds = asyncio.get_running_loop().time() - began
            self._waiting.tell(f"{self._what}{self._said} ({seconds:.0f} s, Ctrl-C cancels)")


# Which tool
# --------------------------------------------------------------------------------------------------


def only(name: str) -> Needs:
    """The one server that a name begins with is all that has to be there. A server that is none is
    told at once."""

    def needs(config: "Config") -> Sequence[str] | None:
        names = [server.name for server in config.mcp_servers]
        names += [COMMANDS] if config.commands else []
        meant = [server for server in names if name == server or name.startswith(f"{server}.")]
        if meant:
            return [max(meant, key=len)]
        if told := _other_server(name, names):
            raise ConfigError([f"error: {told}"])
        return None

    return needs


def _other_server(name: str, names: Sequence[str]) -> str | None:
    """What to say of a name that nearly begins with a server's. A public name may hold dots,
    too."""
    before, dot, rest = name.partition(".")
    close = near(before, names) if dot else None
    if close is None or before.startswith(close):
        return None
    return f"no server is named {plain(before)!r}; did you mean {close}.{plain(rest)}?"


def find(name: str, tools: Sequence[Tool]) -> Tool | None:
    """By `SERVER.TOOL`, or by the public name."""
    return next((tool for tool in tools if tool.path == name), None) or next(
        (tool for tool in tools if tool.name == name), None
    )


async def _refused(desk: Desk, tool: Tool, as_json: bool) -> int | None:
    """Without a running gateway a server that did not come is not tried once more."""
    if desk.running:
        return None
    server = next((each for each in await desk.servers() if each.get("name") == tool.server), None)
    return failing.down(server, as_json) if server is not None and is_down(server) else None


def _server_of(name: str, servers: Sequence[Json]) -> str | None:
    """The server that a name begins with."""
    names = [str(server.get("name")) for server in servers] + [COMMANDS]
    meant = [server for server in names if name == server or name.startswith(f"{server}.")]
    return max(meant, key=len) if meant else None


async def _not_found(
    desk: Desk, name: str, tools: Sequence[Tool], options: argparse.Namespace
) -> int:
    as_json: bool = options.json
    servers = await desk.servers()
    names = [str(server.get("name")) for server in servers] + [COMMANDS]
    server = _server_of(name, servers)
    if server is not None:
        state = next((each for each in servers if each.get("name") == server), Json())
        own = [tool for tool in tools if tool.server == server]
        if not own and is_down(state):
            return failing.down(state, as_json)
        missing = await desk.missing(name)
        if missing is not None:
            return failing.missing(missing, same_target(options), as_json)
        rest = name[len(server) + 1 :]
        if not rest:
            return failing.unknown(
                f"{server} is a server; say which tool: mcpx tools {server}", as_json
            )
        close = near(rest, [tool.tool for tool in own])
        hint = (
            f"did you mean {server}.{close}?" if close else f"mcpx tools {server} lists what it has"
        )
        return failing.unknown(f"{server} has no tool {plain(rest)!r}; {hint}", as_json)
    missing = await desk.missing(name)
    if missing is not None:
        return failing.missing(missing, same_target(options), as_json)
    if told := _other_server(name, names):
        return failing.unknown(told, as_json)
    close = near(name, [spelled for tool in tools for spelled in (tool.path, tool.name)])
    hint = f"did you mean {close}?" if close else "mcpx tools lists what there is"
    return failing.unknown(f"there is no tool {plain(name)!r}; {hint}", as_json)


# Arguments
# --------------------------------------------------------------------------------------------------


def check(tool: Tool, given: Json) -> Json | str:
    """What to send, or what is wrong with it and how the tool is called."""
    from mcpx.surfaces.checking.arguments import Checker

    checked = Checker().check(tool.raw.get("inputSchema"), given)
    if not checked.problems:
        return checked.arguments
    return "\n  ".join([*checked.problems, signature(tool.path, tool.input_schema)])


def signature(name: str, schema: Mapping[str, Any]) -> str:
    from mcpx.formats import typescript

    return typescript.signature(name, dict(schema))
