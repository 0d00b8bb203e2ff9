"""The peer: the same relay on the official SDK's session classes, in its fastest form (JSON replies, no streams).

python sdk.py CONFIG.json               stdio front
python sdk.py CONFIG.json --port 9100   streamable HTTP front
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server


async def main(upstream: dict[str, Any], port: int | None) -> None:
    async with AsyncExitStack() as stack:
        if "url" in upstream:
            streams = await stack.enter_async_context(streamable_http_client(upstream["url"]))
        else:
            command = StdioServerParameters(command=upstream["command"], args=upstream["args"])
            streams = await stack.enter_async_context(stdio_client(command))
        session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
        await session.initialize()
        tools = await session.list_tools()

        async def list_tools(context: Any, params: Any) -> Any:
            return tools

        async def call_tool(context: Any, params: Any) -> Any:
            return await session.call_tool(params.name, params.arguments)

        server = Server("sdk-relay", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
        if port is None:
            async with stdio_server() as (reading, writing):
                await server.run(reading, writing, server.create_initialization_options())
        else:
            import uvicorn

            app = server.streamable_http_app(json_response=True)
            options = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)
            await uvicorn.Server(options).serve()


if __name__ == "__main__":
    (only,) = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["mcpServers"].values()
    asyncio.run(main(only, int(sys.argv[3]) if "--port" in sys.argv else None))
