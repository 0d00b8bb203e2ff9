# pyright: basic, reportMissingImports=false
"""Another peer: FastMCP's proxy, tuned as its documents allow (one client that stays connected, JSON replies).

uv run --with fastmcp==4.1.4 python fastmcp_proxy.py CONFIG.json [--port 9100]
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.server import create_proxy


async def main(servers: dict[str, Any], port: int | None) -> None:
    async with Client(servers, mode="legacy") as client:
        proxy = create_proxy(client)
        if port is None:
            await proxy.run_async(transport="stdio", show_banner=False, log_level="ERROR")
        else:
            options = {"access_log": False}
            await proxy.run_http_async(
                host="127.0.0.1",
                port=port,
                path="/mcp",
                json_response=True,
                show_banner=False,
                log_level="ERROR",
                uvicorn_config=options,
            )


if __name__ == "__main__":
    config = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    asyncio.run(main(config, int(sys.argv[3]) if "--port" in sys.argv else None))
