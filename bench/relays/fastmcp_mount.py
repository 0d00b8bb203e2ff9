# pyright: basic, reportMissingImports=false
"""A peer: FastMCP as its documents allow to tune it, one client for each upstream that stays
connected, JSON replies.

python fastmcp_mount.py CONFIG.json [--port 9100]
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from fastmcp import Client, FastMCP
from fastmcp.server import create_proxy


async def main(servers: dict[str, Any], port: int | None) -> None:
    app = FastMCP("bench")
    async with AsyncExitStack() as stack:
        for name, server in servers.items():
            client = await stack.enter_async_context(
                Client({"mcpServers": {name: server}}, mode="legacy")
            )
            app.mount(create_proxy(client), namespace=name)
        if port is None:
            await app.run_async(transport="stdio", show_banner=False, log_level="ERROR")
        else:
            options = {"access_log": False}
            await app.run_http_async(
                host="127.0.0.1",
                port=port,
                path="/mcp",
                json_response=True,
                show_banner=False,
                log_level="ERROR",
                uvicorn_config=options,
            )


if __name__ == "__main__":
    entries = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["mcpServers"]
    asyncio.run(main(entries, int(sys.argv[3]) if "--port" in sys.argv else None))
