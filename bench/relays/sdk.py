"""The peer: the same relay on the official SDK's session classes, in its fastest form (JSON
replies, no streams).

python sdk.py CONFIG.json --era older               stdio front
python sdk.py CONFIG.json --era older --port 9100   streamable HTTP front
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import ListToolsResult


async def hold(
    server: dict[str, Any], mode: Any, connected: "asyncio.Future[ClientSession]"
) -> None:
    """One connection, entered and left in one task as anyio wants it; all of them are made at the
    same time."""
    try:
        target = server.get("url") or StdioServerParameters(
            command=server["command"], args=server["args"]
        )
        async with Client(target, mode=mode) as client:
            connected.set_result(client.session)
            await asyncio.Event().wait()
    except Exception as error:  # noqa: BLE001 - whatever it is, the start fails with it
        connected.set_exception(error)


async def main(servers: dict[str, Any], era: str, port: int | None) -> None:
    mode = "2026-07-28" if era == "modern" else "legacy"
    sessions = [asyncio.get_running_loop().create_future() for _ in servers]
    pairs = zip(servers.values(), sessions, strict=True)
    held = [asyncio.create_task(hold(server, mode, connected)) for server, connected in pairs]
    routes: dict[str, ClientSession] = {}
    tools: list[Any] = []
    for connected in sessions:
        session: ClientSession = await connected
        for tool in (await session.list_tools()).tools:
            routes[tool.name] = session
            tools.append(tool)
    menu = ListToolsResult(tools=tools)

    async def list_tools(context: Any, params: Any) -> Any:
        return menu

    async def call_tool(context: Any, params: Any) -> Any:
        return await routes[params.name].call_tool(params.name, params.arguments)

    server = Server("sdk-relay", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    if port is None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())
    else:
        import uvicorn

        app = server.streamable_http_app(json_response=True)
        options = uvicorn.Config(
            app, host="127.0.0.1", port=port, log_level="warning", access_log=False
        )
        await uvicorn.Server(options).serve()
    for task in held:
        task.cancel()


if __name__ == "__main__":
    options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=True))
    entries = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["mcpServers"]
    asyncio.run(
        main(entries, options["--era"], int(options["--port"]) if "--port" in options else None)
    )
