"""The built-in demo server: what a first start shows when there is no configuration (RUN-3).
Nothing is written."""

import ast
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from math import isfinite
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from mcpx import __version__
from mcpx.catalog.naming import Naming
from mcpx.config import Config, Server
from mcpx.model.call import Json, as_object
from mcpx.model.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from mcpx.transports.memory import Memory
from mcpx.wire import era

ABOUT = (
    "This is the demo server inside mcpx. It runs because no configuration was found.\n\n"
    "Put your own servers into mcpx.yaml:\n\n"
    "mcp_servers:\n"
    "  - name: files\n"
    "    connection:\n"
    "      type: stdio\n"
    "      command: npx\n"
    '      args: ["-y", "@modelcontextprotocol/server-filesystem", "."]\n'
)


def config() -> Config:
    """The configuration that a start without any config file runs on."""
    server = Server(
        name="demo", description="What a first start shows", connection=Memory(serve=serve)
    )
    return Config(mode="auto", naming=Naming(prefix="always"), mcp_servers=(server,))


def _text(value: str) -> Json:
    return {"content": [{"type": "text", "text": value}]}


def _echo(arguments: Json) -> Json:
    return _text(str(arguments.get("text", "")))


def _time(arguments: Json) -> Json:
    zone = arguments.get("timezone", "UTC")
    try:
        now = datetime.now(UTC if zone == "UTC" else ZoneInfo(str(zone)))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return {
            **_text(f"Unknown time zone {zone!r}; write it like Europe/Zurich"),
            "isError": True,
        }
    structured = {"time": now.isoformat(timespec="seconds"), "timezone": str(zone)}
    return {**_text(structured["time"]), "structuredContent": structured}


_BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _value(node: ast.AST) -> float:
    match node:
        case ast.Expression(body=body):
            return _value(body)
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case _:
            raise ValueError("only numbers, + - * / // % and brackets")


def _calculate(arguments: Json) -> Json:
    expression = str(arguments.get("expression", ""))
    try:
        if len(expression) > 200:
            raise ValueError("the expression is longer than 200 characters")
        result = _value(ast.parse(expression.strip(), mode="eval"))
        if not isfinite(result):
            raise ValueError("the result is not a finite number")
    except (ValueError, SyntaxError, ArithmeticError, RecursionError) as error:
        return {**_text(f"Cannot calculate {expression[:200]!r}: {error}"), "isError": True}
    return {
        **_text(f"{result:.15g}" if isinstance(result, float) else str(result)),
        "structuredContent": {"result": result},
    }


def _tool(name: str, description: str, properties: Json, required: list[str], **more: Any) -> Json:
    schema: Json = {"type": "object", "properties": properties, "required": required}
    return {
        "name": name,
        "description": description,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True},
        **more,
    }


_TOOLS: dict[str, tuple[Json, Callable[[Json], Json]]] = {
    "echo": (
        _tool(
            "echo",
            "Say a text back",
            {"text": {"type": "string", "description": "What to say"}},
            ["text"],
        ),
        _echo,
    ),
    "time": (
        _tool(
            "time",
            "Current date and time in a time zone",
            {
                "timezone": {
                    "type": "string",
                    "description": "IANA name, e.g. Asia/Shanghai",
                    "default": "UTC",
                }
            },
            [],
        ),
        _time,
    ),
    "calculate": (
        _tool(
            "calculate",
            "Work out an arithmetic expression",
            {"expression": {"type": "string", "description": "e.g. (3 + 4) * 2"}},
            ["expression"],
        ),
        _calculate,
    ),
}

_PROMPT: Json = {
    "name": "tour",
    "description": "Have the model show what a gateway of tools can do",
    "arguments": [{"name": "topic", "description": "What to try the tools on", "required": False}],
}

_RESOURCE: Json = {
    "uri": "demo://about",
    "name": "about",
    "description": "What this demo is",
    "mimeType": "text/plain",
}


async def serve(method: str, params: Json) -> Json:
    """Answer one request, in either era."""
    row = _METHODS.get(method)
    if row is None:
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
    return await row(params)


async def _initialize(params: Json) -> Json:
    return {
        "protocolVersion": era.negotiate(params.get("protocolVersion")),
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
        "serverInfo": {"name": "mcpx-demo", "version": __version__},
        "instructions": "Small tools to try a gateway with: echo, time, calculate.",
    }


async def _discover(params: Json) -> Json:
    greeting = await _initialize(params)
    return {
        "supportedVersions": list(era.MODERN),
        "capabilities": greeting["capabilities"],
        "instructions": greeting["instructions"],
        "_meta": {era.SERVER_KEY: greeting["serverInfo"]},
    }


async def _list_tools(params: Json) -> Json:
    return {"tools": [definition for definition, _ in _TOOLS.values()]}


async def _call_tool(params: Json) -> Json:
    found = _TOOLS.get(params.get("name", ""))
    if found is None:
        raise RpcError(INVALID_PARAMS, f"Unknown tool: {params.get('name')}")
    return found[1](as_object(params.get("arguments")))


async def _list_prompts(params: Json) -> Json:
    return {"prompts": [_PROMPT]}


async def _get_prompt(params: Json) -> Json:
    if params.get("name") != _PROMPT["name"]:
        raise RpcError(INVALID_PARAMS, f"Unknown prompt: {params.get('name')}")
    topic = as_object(params.get("arguments")).get("topic")
    text = f"Use the tools you have to show me something useful about {topic or 'today'}."
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


async def _list_resources(params: Json) -> Json:
    return {"resources": [_RESOURCE]}


async def _list_templates(params: Json) -> Json:
    return {"resourceTemplates": []}


async def _read_resource(params: Json) -> Json:
    if params.get("uri") != _RESOURCE["uri"]:
        raise RpcError(INVALID_PARAMS, f"Unknown resource: {params.get('uri')}")
    return {"contents": [{"uri": _RESOURCE["uri"], "mimeType": "text/plain", "text": ABOUT}]}


_METHODS: dict[str, Callable[[Json], Awaitable[Json]]] = {
    "initialize": _initialize,
    "server/discover": _discover,
    "tools/list": _list_tools,
    "tools/call": _call_tool,
    "prompts/list": _list_prompts,
    "prompts/get": _get_prompt,
    "resources/list": _list_resources,
    "resources/templates/list": _list_templates,
    "resources/read": _read_resource,
}
